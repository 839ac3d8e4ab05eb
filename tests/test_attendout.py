"""AttendOut: the mathematics against enumeration and brute force, the game step by step, what users rely on."""

from __future__ import annotations

import itertools
import json
import warnings

import pytest
import torch
import training as tr
import transformers as tf
import zoo

from attentrim import AttendOut, Control, UniformSites, trim
from attentrim.attention import SiteState, explicit
from attentrim.errors import MethodError, TrainingError
from attentrim.methods.attendout.draws import merged
from attentrim.methods.attendout.estimators import Baseline, contrast, log_probabilities, policy_gradient
from attentrim.methods.attendout.generator import Generator, Valid, log_probability
from attentrim.methods.attendout.records import rates_and_entropies
from attentrim.methods.attendout.restart import Restart
from attentrim.methods.attendout.scores import correctness, sample_losses

NOTHING = {"prior": 1e3, "generator_lr": 0.0, "drop_cost": 0.0}
"""A generator that drops nothing."""
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
GAMES = {
    "v1": {"preset": "v1", "window": 4},
    "v2": {"preset": "v2", "window": 4},
    "by spread": {"preset": "v2", "window": 4, "restart_scale": "spread"},
    "better": {"restart": "better", "window": 4, "estimate_samples": 8, "reward_source": "dev"},
    "default": {"reward_source": "dev"},
    "lookahead": {"estimator": "lookahead", "reward_source": "dev"},
    "heldout": {"estimator": "heldout", "reward_source": "noisy_train"},
}


def game(directory, settings, model=None, **more):
    settings = {"estimate_samples": 8, **settings}
    return tr.trainer(directory, AttendOut(**settings), model or tr.classifier(**DROPOUT), **more)


def attached(model=None, steps=20, evaluate=None, **settings):
    settings = {"preset": "v1", **settings}
    return AttendOut(**settings).attach(model or tr.classifier(), steps=steps, evaluate=evaluate)


# The generator's mathematics


def every_mask(count):
    return [torch.tensor(bits, dtype=torch.bool) for bits in itertools.product((True, False), repeat=count)]


def test_policy_gradient_is_that_of_the_expected_reward():
    """All 16 masks of a site with two tokens: what the estimator gives on average is the exact gradient."""
    torch.manual_seed(0)
    generator = Generator(5).double()
    hidden, valid = torch.randn(1, 2, 5, dtype=torch.float64), Valid(torch.ones(1, 2, 2, dtype=torch.bool))
    rewards = torch.randn(16, dtype=torch.float64)

    def chances():
        keep = torch.sigmoid(generator.passes(hidden).next(valid)).double().flatten()
        return torch.stack([torch.where(mask, keep, 1 - keep).prod() for mask in every_mask(4)])

    exact = torch.autograd.grad((chances() * rewards).sum(), list(generator.projections.parameters()))
    averaged = [torch.zeros_like(part) for part in exact]
    with torch.no_grad():
        weights = chances()
    assert float(weights.sum()) == pytest.approx(1.0)
    for mask, weight, reward in zip(every_mask(4), weights, rewards, strict=True):
        logits = generator.passes(hidden).next(valid)
        log_p = log_probability(logits, mask.view(1, 2, 2), valid.pairs)
        assert float(4 * log_p.detach()) == pytest.approx(float(weight.log()), rel=1e-5)
        parts = torch.autograd.grad(reward * log_p.sum(), list(generator.projections.parameters()))
        for total, part in zip(averaged, parts, strict=True):
            total += weight * part
    for total, part in zip(averaged, exact, strict=True):
        torch.testing.assert_close(4 * total, part, rtol=1e-4, atol=1e-8)  # log P is averaged over the 4 pairs


def test_a_constant_reward_teaches_nothing_on_average():
    """The score function has mean zero, so a baseline changes no expectation."""
    torch.manual_seed(0)
    logits = torch.randn(1, 2, 2, requires_grad=True)
    keep = torch.sigmoid(logits).flatten()
    total = torch.zeros(1, 2, 2)
    for mask in every_mask(4):
        log_p = log_probability(logits, mask.view(1, 2, 2), torch.ones(1, 2, 2, dtype=torch.bool)).sum()
        weight = torch.where(mask, keep, 1 - keep).prod().detach()
        total += weight * torch.autograd.grad(log_p, logits)[0]
    torch.testing.assert_close(total, torch.zeros_like(total), rtol=0, atol=1e-7)


@pytest.mark.parametrize("shared", [False, True])
def test_contrast_is_the_gradient_of_the_expected_held_out_loss(shared):
    """Many draws of few decisions against the sum over all masks of one site."""
    model = tr.classifier(num_hidden_layers=1)
    zoo.liven(model, 6.0)
    batch = {"input_ids": torch.tensor([[2, 7, 30]]), "labels": torch.tensor([1])}
    model.eval()
    losses = []
    with Control(model) as control, torch.no_grad():
        for mask in every_mask(3):
            control.set_score_mask(0, mask.view(1, 1, 3))
            losses.append(model(**batch).loss)
    masks = attached(model, unit="key", embedding="model", generator_width=64, shared_noise=shared, prior=0.5).masks
    with masks.sampled() as draw, torch.no_grad():
        model(**batch)
    logits = masks.logits_of(draw.round)[0]
    keep = torch.sigmoid(logits).flatten()
    chances = torch.stack([torch.where(mask, keep, 1 - keep).prod() for mask in every_mask(3)])
    wanted = next(iter(masks.networks.generators.values())).projections.weight
    (exact,) = torch.autograd.grad((chances * torch.stack(losses)).sum(), wanted)
    contrast(model, masks, [batch], draws=40_000)
    assert float(exact.norm()) > 1e-4
    similarity = torch.nn.functional.cosine_similarity(exact.flatten(), wanted.grad.flatten(), dim=0)
    assert float(similarity) > 0.97
    assert float((3 * wanted.grad).norm() / exact.norm()) == pytest.approx(1.0, abs=0.15)


def test_drop_rates_match_their_probabilities():
    session = attached(prior=1.0)
    logits = torch.linspace(-3, 3, 7).view(1, 1, 7).expand(4000, 1, 7)
    draw = type("draw", (), {"noise": None})()
    kept = session.masks.sample(draw, logits).float().mean((0, 1))
    torch.testing.assert_close(kept, torch.sigmoid(torch.linspace(-3, 3, 7)), rtol=0, atol=0.03)
    model, batch = session.model, tr.batches(1, size=512)[0]
    with torch.no_grad(), session.masks.sampled() as drawn:
        model.eval()(**batch)
    rates, _ = rates_and_entropies(drawn)
    for rate, decisions in zip(rates, drawn.close().decisions.values(), strict=True):
        assert float((decisions == 0).float().mean()) == pytest.approx(float(rate), abs=0.01)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("unit", ["pair", "key", "site"])
def test_padding_enters_no_decision_average_or_reward(side, unit):
    model = tr.classifier()
    session = attached(model, unit=unit, embedding="model", prior=0.3)
    short = {"input_ids": torch.tensor([[2, 7, 30, 31], [2, 40, 41, 42]]), "labels": torch.tensor([1, 0])}
    pad = (0, 3) if side == "right" else (3, 0)
    long = {
        "input_ids": torch.nn.functional.pad(short["input_ids"], pad),
        "attention_mask": torch.nn.functional.pad(torch.ones(2, 4, dtype=torch.long), pad),
        "position_ids": torch.nn.functional.pad(torch.arange(4).expand(2, 4), pad),
        "labels": short["labels"],
    }
    rounds = []
    for batch in (short, long):
        with torch.no_grad(), session.masks.sampled() as draw:
            model.eval()(**batch)
        rounds.append(draw)
    places = slice(0, 4) if side == "right" else slice(3, 7)
    for index in session.sites:
        bare, padded = (draw.logits[index] for draw in rounds)
        decisions = rounds[1].close().decisions[index]
        if unit == "pair":
            assert (decisions == -1).sum() == decisions.numel() - bare.numel()
            padded = padded[:, places, places]
        elif unit == "key":
            assert (decisions == -1).sum() == 6
            padded = padded[:, :, places]
        torch.testing.assert_close(bare, padded, rtol=1e-4, atol=1e-5)
    bare, padded = (rates_and_entropies(draw)[0] for draw in rounds)
    torch.testing.assert_close(bare, padded, rtol=1e-4, atol=1e-5)
    if side == "left":  # the classifier reads the first position: not a real token there
        return
    with torch.no_grad():
        torch.testing.assert_close(sample_losses(model, short), sample_losses(model, long), rtol=1e-4, atol=1e-5)


def test_a_fully_dropped_row_is_uniform_over_valid_keys(no_grad):
    model, batch = zoo.build("bert"), zoo.inputs("bert", padding="right")
    session = attached(model, embedding="model", prior=-1e3)
    with session.masks.likely(), session.control.recording() as maps:
        model.eval()(**batch)
    valid = batch["attention_mask"].bool()
    for calls in maps.values():
        for row, keys in enumerate(valid):
            expected = (keys / keys.sum()).expand_as(calls[0][row])
            torch.testing.assert_close(calls[0][row], expected, rtol=0, atol=1e-6)


def test_merged_rounds_have_the_probabilities_of_each_alone():
    model = tr.classifier()
    session = attached(model, embedding="own", unit="pair")
    rounds = []
    for length in (5, 9, 7):
        batch = tf.default_data_collator(tr.examples(4, seed=length, length=length))
        with torch.no_grad(), session.masks.sampled() as draw:
            model.eval()(**batch)
        rounds.append(draw.close())
    alone = torch.cat([log_probabilities(one, session.masks.logits_of(one)) for one in rounds])
    whole = merged(rounds)
    torch.testing.assert_close(log_probabilities(whole, session.masks.logits_of(whole)), alone, rtol=1e-4, atol=1e-6)
    half = rounds[1].first(2)
    torch.testing.assert_close(
        log_probabilities(half, session.masks.logits_of(half)), alone[4:6], rtol=1e-4, atol=1e-6
    )


def test_the_gradient_of_a_window_weighs_steps_by_their_advantages():
    model = tr.classifier()
    session = attached(model, embedding="own")
    rounds = []
    for seed in range(3):
        with torch.no_grad(), session.masks.sampled() as draw:
            model.eval()(**tf.default_data_collator(tr.examples(4, seed=seed)))
        rounds.append(draw.close())
    advantages = torch.tensor([0.5, -2.0])
    policy_gradient(session.masks, [[rounds[0]], [rounds[1], rounds[2]]], advantages)
    found = {name: part.grad.clone() for name, part in session.networks.named_parameters() if part.grad is not None}
    session.networks.zero_grad()
    means = [log_probabilities(one, session.masks.logits_of(one)).mean() for one in rounds]
    (-(0.5 * means[0] - 2.0 * (means[1] + means[2]) / 2)).backward()
    for name, part in session.networks.named_parameters():
        if part.grad is not None:
            torch.testing.assert_close(found[name], part.grad, rtol=1e-3, atol=1e-7)


def test_baselines():
    rewards = torch.tensor([1.0, 2.0, 6.0])
    assert Baseline("none", 0.9).advantages(rewards).tolist() == [1.0, 2.0, 6.0]
    assert Baseline("leave_one_out", 0.9).advantages(rewards).tolist() == [-3.0, -1.5, 4.5]
    moving = Baseline("moving_average", 0.9)
    assert moving.advantages(rewards).tolist() == [1.0, 2.0, 6.0]
    assert moving.advantages(rewards).tolist() == [-2.0, -1.0, 3.0]
    moving.advantages(torch.zeros(3))
    assert moving.average == pytest.approx(2.7)


def test_generator_options_change_what_they_say():
    hidden, valid = torch.randn(2, 4, 8), Valid(torch.ones(2, 4, 4, dtype=torch.bool))
    assert Generator(8, width=3).passes(hidden).next(valid).shape == (2, 4, 4)
    assert Generator(8, unit="key").passes(hidden).next(valid).shape == (2, 1, 4)
    assert Generator(8, unit="site").passes(hidden).next(valid).shape == (2, 1, 1)
    seeds = [torch.Generator().manual_seed(0) for _ in range(3)]
    base = Generator(8, random=seeds[0]).passes(hidden).next(valid)
    torch.testing.assert_close(Generator(8, prior=2.0, random=seeds[1]).passes(hidden).next(valid), base + 2.0)
    plain = Generator(8, residual=False, random=seeds[2])
    assert not [name for name, _ in plain.named_parameters() if "norm" in name]
    assert abs(float(torch.sigmoid(base).mean()) - 0.5) < 0.1


@pytest.mark.parametrize("residual", [True, False])
def test_the_passes_are_single_head_attention_by_hand(residual):
    """One set of weights for all sites; without the residual connection there is no LayerNorm either."""
    torch.manual_seed(0)
    generator, hidden = Generator(8, prior=0.5, residual=residual), torch.randn(2, 4, 8)
    passes, valid = generator.passes(hidden), Valid(torch.ones(2, 4, 4, dtype=torch.bool))

    def normed(state):
        return torch.nn.functional.layer_norm(state, (8,)) if residual else state

    query, key, value = generator.projections.weight.chunk(3)
    state = normed(hidden)
    for _ in range(3):
        scores = (state @ query.T) @ (state @ key.T).mT / 8**0.5
        torch.testing.assert_close(passes.next(valid), scores + 0.5)
        after = scores.softmax(-1) @ (state @ value.T) @ generator.output.weight.T
        state = normed(state + after) if residual else after


def test_valid_pairs_read_real_tokens_off_any_mask():
    keys = torch.tensor([[1, 1, 0], [1, 1, 1]], dtype=torch.bool)
    allowed = keys[:, None, None, :].expand(2, 4, 3, 3)
    expected = keys[:, :, None] & keys[:, None, :]
    assert torch.equal(Valid.among(allowed).pairs, expected)
    assert torch.equal(Valid.among(allowed & torch.ones(3, 3).tril().bool()).pairs, expected.tril())


# Soft masks


@pytest.mark.parametrize("name", ["bert", "mpnet", "llama", "t5"])
def test_a_soft_mask_of_zeros_and_ones_is_the_score_mask(name, no_grad):
    model, batch = zoo.build(name), zoo.inputs(name, padding="right")
    length = next(iter(batch.values())).shape[1]
    keep = torch.rand(1, length, length, generator=torch.Generator().manual_seed(0)) < 0.6
    keep[:, 1] = False
    with Control(model) as control:
        control.set_score_mask(0, keep)
        hard = zoo.output(name, model, batch)
        control.clear()
        control.set_soft_mask(0, keep.float())
        torch.testing.assert_close(zoo.output(name, model, batch), hard, rtol=1e-4, atol=1e-4)


def test_the_gradient_of_a_soft_mask_is_what_each_pair_adds():
    """For a loss that is linear in attention: the exact difference between the pair kept and dropped."""
    torch.manual_seed(0)
    scores, value = 0.7 * torch.randn(1, 1, 3, 4), torch.randn(1, 1, 4, 5)
    weight = torch.randn(1, 3, 1, 5)
    kept = torch.tensor([[1.0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 0]]).view(1, 3, 4)

    def loss(mask):
        state = SiteState("site", None, soft_mask=mask)
        return (explicit(state, scores, value, None, causal=False, dropout=0, training=False)[0] * weight).sum()

    soft = kept.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(loss(soft), soft)
    for query, key in itertools.product(range(3), range(4)):
        inside, outside = kept.clone(), kept.clone()
        inside[0, query, key], outside[0, query, key] = 1.0, 0.0
        assert float(slopes[0, query, key]) == pytest.approx(float(loss(inside) - loss(outside)), abs=1e-4)


# Rewards


@pytest.mark.parametrize(
    ("model", "batch"),
    [
        (lambda: tr.classifier(), lambda: tr.batches(1, size=4)[0]),
        (lambda: tr.classifier(num_labels=1), lambda: {**tr.batches(1, size=4)[0], "labels": torch.randn(4)}),
    ],
    ids=["classes", "regression"],
)
def test_losses_of_samples_are_those_of_samples_alone(model, batch):
    model, batch = model().eval(), batch()
    with torch.no_grad():
        found = sample_losses(model, batch)
        alone = [model(**{name: value[row : row + 1] for name, value in batch.items()}).loss for row in range(4)]
    torch.testing.assert_close(found, torch.stack(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head", ["TokenClassification", "MaskedLM", "QuestionAnswering", "CausalLM"])
def test_losses_of_samples_for_other_heads(head):
    torch.manual_seed(0)
    name = "llama" if head == "CausalLM" else "bert"
    config = zoo.build(name).config
    model = getattr(tf, f"AutoModelFor{head}").from_config(config).eval()
    ids = torch.randint(5, 90, (3, 6))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if head == "QuestionAnswering":
        batch |= {"start_positions": torch.tensor([1, 2, 3]), "end_positions": torch.tensor([2, 3, 4])}
    else:
        batch["labels"] = ids % 2 if head == "TokenClassification" else ids.clone()
        batch["labels"][0, 3:] = -100
    with torch.no_grad():
        found = sample_losses(model, batch)
        alone = [model(**{key: value[row : row + 1] for key, value in batch.items()}).loss for row in range(3)]
    torch.testing.assert_close(found, torch.stack(alone), rtol=1e-4, atol=1e-5)


def test_correctness_counts_labels():
    model, batch = tr.classifier().eval(), tr.batches(1, size=4)[0]
    with torch.no_grad():
        right = model(**batch).logits.argmax(-1) == batch["labels"]
        assert correctness(model, batch).tolist() == right.float().tolist()


# The game


@pytest.mark.parametrize("settings", [GAMES["v1"], GAMES["v2"], GAMES["better"], GAMES["default"]])
def test_with_nothing_dropped_all_networks_stay_plain_fine_tuning(settings, tmp_path):
    stock = tr.trainer(tmp_path / "a", None, tr.classifier(**DROPOUT), cls=tf.Trainer)
    stock.train()
    ours = game(tmp_path / "b", {**settings, **NOTHING, "plain_run": True})
    ours.train()
    assert tr.same(tr.weights(stock.model), tr.weights(ours.model))
    assert len(ours.session.game.others) == 1 + AttendOut(**settings).needs_defender
    for network in ours.session.game.others:
        for weight, parameter in zip(network.weights, stock.model.parameters(), strict=True):
            assert torch.equal(weight, parameter)


class Watch(tf.TrainerCallback):
    """Compares attacker and defender after every step."""

    def __init__(self, trainer):
        self.trainer, self.equal = trainer, []

    def on_step_end(self, args, state, control, **kwargs):
        game, optimizer = self.trainer.session.game, self.trainer.optimizer.optimizer
        defender = game.defender
        weights = all(torch.equal(a, b) for a, b in zip(game.parameters, defender.weights, strict=True))
        states = [(optimizer.state[one], defender.state[one]) for one in game.parameters]
        assert all(first.keys() == second.keys() and first for first, second in states)
        same = all(torch.equal(first[name], second[name]) for first, second in states for name in first)
        assert weights == same
        self.equal.append(weights)


@pytest.mark.parametrize("restart", ["attacker", "better", "sampled"])
def test_after_each_dropout_step_and_only_then_the_two_are_identical(restart, tmp_path):
    trainer = game(tmp_path, {"preset": "v2", "window": 4, "restart": restart}, max_steps=10)
    watch = Watch(trainer)
    trainer.add_callback(watch)
    trainer.train()
    assert watch.equal == [step in (4, 8, 10) for step in range(1, 11)]  # the last window is a short one


def test_until_the_first_dropout_step_the_defender_is_plain_fine_tuning(tmp_path):
    found = []

    class Keep(tf.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 3:
                found.extend(weight.clone() for weight in trainer.session.game.defender.weights)

    stock = tr.trainer(tmp_path / "a", None, tr.classifier(**DROPOUT), cls=tf.Trainer, callbacks=[])
    plain = []

    class KeepStock(tf.TrainerCallback):
        def on_step_end(self, args, state, control, model, **kwargs):
            if state.global_step == 3:
                plain.extend(parameter.detach().clone() for parameter in model.parameters())

    stock.add_callback(KeepStock())
    stock.train()
    trainer = game(tmp_path / "b", GAMES["v2"])
    trainer.add_callback(Keep())
    trainer.train()
    assert all(torch.equal(first, second) for first, second in zip(found, plain, strict=True))


def test_the_plain_run_beside_is_a_plain_run(tmp_path):
    looks = {"eval_strategy": "steps", "eval_steps": 10}
    stock = tr.trainer(tmp_path / "a", None, tr.classifier(**DROPOUT), cls=tf.Trainer, **looks)
    stock.train()
    trainer = game(tmp_path / "b", {**GAMES["v1"], "plain_run": True}, **looks)
    trainer.train()
    for weight, parameter in zip(trainer.session.game.plain.weights, stock.model.parameters(), strict=True):
        assert torch.equal(weight, parameter)
    logged = [entry for entry in trainer.state.log_history if "eval_accuracy" in entry][-1]
    assert logged["plain_accuracy"] == stock.evaluate()["eval_accuracy"]


def test_the_curve_on_held_out_data_is_that_of_the_model(tmp_path):
    """Its metric on the part that is not trained on, logged beside that of each evaluation; nothing else changes."""
    looks = {"eval_strategy": "steps", "eval_steps": 10}
    settings = {"preset": "v2", "window": 4, "reward_source": "train_split", "holdout_share": 0.25}
    plain = game(tmp_path / "a", settings, **looks)
    plain.train()
    trainer = game(tmp_path / "b", {**settings, "holdout_curve": True}, **looks)
    trainer.train()
    assert tr.same(tr.weights(plain.model), tr.weights(trainer.model))
    logged = [entry for entry in trainer.state.log_history if "eval_accuracy" in entry]
    assert len(logged) == 2
    batch = tf.default_data_collator([trainer._holdout[row] for row in range(16)])
    assert logged[-1]["holdout_accuracy"] == pytest.approx(score_of(trainer.model, batch, "correctness"))
    assert not any("holdout_accuracy" in entry for entry in plain.state.log_history)


def masking(rows):
    """A collator that draws random numbers, as that of masked language modelling does."""
    batch = tf.default_data_collator(rows)
    hidden = torch.rand(batch["input_ids"].shape) < 0.15
    return {**batch, "input_ids": batch["input_ids"].masked_fill(hidden, 3)}


@pytest.mark.parametrize("source", ["cached", "dev", "noisy_train"])
def test_a_masking_collator_leaves_the_plain_run_plain(source, tmp_path):
    """Examples for rewards are masked too, and training meets the masks that it would have met without them."""
    stock = tr.trainer(tmp_path / "a", None, tr.classifier(**DROPOUT), cls=tf.Trainer, data_collator=masking)
    stock.train()
    settings = {"preset": "v2", "window": 4, "reward_source": source, "plain_run": True}
    trainer = game(tmp_path / "b", settings, data_collator=masking)
    trainer.train()
    for weight, parameter in zip(trainer.session.game.plain.weights, stock.model.parameters(), strict=True):
        assert torch.equal(weight, parameter)


def test_the_restart_goes_by_the_rewards(tmp_path):
    trainer = game(tmp_path, {"preset": "v2", "restart": "better", "window": 4})
    trainer.train()
    session, numbers = trainer.session, trainer.session.records.numbers
    defender, parameters = session.game.defender, session.game.parameters
    kept = numbers["attacker_kept"]
    for total, restart, attacker in ((1.0, "better", True), (-1.0, "better", False), (-1.0, "attacker", True)):
        session.method.restart = restart
        before = [weight.clone() for weight in defender.weights]
        with torch.no_grad():
            parameters[0].add_(1.0)
        session._restart(defender, total, trainer.optimizer)
        assert torch.equal(parameters[0], defender.weights[0])
        assert torch.equal(parameters[0], before[0]) != attacker
        kept = 0.9 * kept + 0.1 * attacker
        assert numbers["attacker_kept"] == pytest.approx(kept)
    session.method.restart, session.method.restart_temperature = "sampled", 1.0
    shares = []
    for _ in range(400):
        numbers.pop("attacker_kept")
        session._restart(defender, 0.8, trainer.optimizer)
        shares.append(numbers["attacker_kept"])
    assert sum(shares) / 400 == pytest.approx(float(torch.sigmoid(torch.tensor(0.8))), abs=0.08)


def restart(**settings):
    method = AttendOut(preset="v2", restart="sampled", **settings)
    return Restart(method, torch.Generator().manual_seed(0))


def test_the_spread_is_the_temperature_of_the_restart_by_hand():
    """Sums of .02, -.01 and .04: mean squares .0004, .9 * .0004 + .1 * .0001 = .00037, then .000493."""
    decides = restart(restart_scale="spread")
    for total, temperature, chance in (
        (0.02, 0.02, 0.731059),
        (-0.01, 0.0192354, 0.372887),
        (0.04, 0.0222036, 0.858333),
    ):
        decides.attacker_is_kept(total)
        assert decides.numbers["restart_temperature"] == pytest.approx(temperature, rel=1e-5)
        assert decides.numbers["restart_chance"] == pytest.approx(chance, abs=1e-5)
    twice = restart(restart_scale="spread", restart_temperature=2.0)
    twice.attacker_is_kept(-0.02)
    assert twice.numbers["restart_chance"] == pytest.approx(0.377541, abs=1e-5)  # sigmoid(-1 / 2)


def test_the_spread_makes_restarts_blind_to_the_scale_of_rewards():
    totals = torch.randn(50, generator=torch.Generator().manual_seed(1)).tolist()

    def kept(scale, **settings):
        decides = restart(**settings)
        return [decides.attacker_is_kept(scale * total) for total in totals]

    assert (
        kept(1e-3, restart_scale="spread") == kept(1.0, restart_scale="spread") == kept(10.0, restart_scale="spread")
    )
    assert kept(1.0, restart_scale="spread") != kept(-1.0, restart_scale="spread")
    # with a fixed temperature of 1, small rewards change nothing
    assert kept(1e-3) == kept(-1e-3)


def test_a_restart_without_any_reward_yet_is_a_coin():
    decides = restart(restart_scale="spread")
    decides.attacker_is_kept(0.0)
    assert decides.numbers["restart_chance"] == 0.5
    decides.attacker_is_kept(1e-6)
    assert decides.numbers["restart_chance"] > 0.9  # a first reward after none at all: sigmoid(1 / sqrt(0.1))
    for kind, total, wins in (("better", 1e-9, True), ("better", -1e-9, False), ("attacker", -1.0, True)):
        decides.method.restart = kind
        assert all(decides.attacker_is_kept(total) is wins for _ in range(20))


def test_equal_scores_are_decided_by_a_coin():
    """Whatever the restart is, unless it is always the attacker's."""
    for kind in ("better", "sampled"):
        decides = restart()
        decides.method.restart = kind
        kept = [decides.attacker_is_kept(0.0) for _ in range(1000)]
        assert sum(kept) / 1000 == pytest.approx(0.5, abs=0.05)


def score_of(model, batch, reward):
    """Of a batch as a whole, with masks off: minus the loss, or the share of right answers."""
    with torch.no_grad():
        found = model.eval()(**batch)
    return float((found.logits.argmax(-1) == batch["labels"]).float().mean()) if reward != "loss" else -found.loss


@pytest.mark.parametrize("reward", ["loss", "correctness"])
def test_rewards_are_differences_of_scores_with_masks_off(reward, tmp_path):
    settings = {"preset": "v1", "window": 6, "cache_samples": 16, "reward": reward}
    trainer = game(tmp_path, settings, max_steps=18, learning_rate=1e-2)
    session, seen = trainer.session, []
    original = session._rewards

    def rewards(window):
        found = original(window)
        for step, given in zip(window, found, strict=True):
            attacker = score_of(session.model, step.batches[0], reward)
            with session.game.defender.swapped_in():
                defender = score_of(session.model, step.batches[0], reward)
            seen.append((float(given), float(attacker - defender)))
        return found

    session._rewards = rewards
    trainer.train()
    assert len(seen) == 18
    assert any(given for given, _ in seen)
    for given, by_hand in seen:
        assert given == pytest.approx(by_hand, abs=1e-6)


def learned_from(trainer):
    """Train; the rewards of each window, and the advantages that the generator got."""
    session, rewards, advantages = trainer.session, [], []
    judge, compare = session._rewards, session.learning.baseline.advantages

    def judged(window):
        rewards.append(judge(window).tolist())
        return torch.tensor(rewards[-1])

    def compared(given):
        advantages.append(compare(given).tolist())
        return torch.tensor(advantages[-1])

    session._rewards, session.learning.baseline.advantages = judged, compared
    trainer.train()
    return rewards, advantages


@pytest.mark.parametrize(("window", "lengths"), [(10, [10] * 3), (15, [15] * 2), (25, [25, 5])])
def test_a_window_has_one_reward_for_each_of_its_steps(window, lengths, tmp_path):
    rewards, _ = learned_from(game(tmp_path, {"preset": "v2", "window": window}, max_steps=30))
    assert [len(one) for one in rewards] == lengths


def test_the_first_version_takes_a_moving_average_off_its_rewards(tmp_path):
    settings = {"preset": "v1", "window": 4, "baseline": "moving_average", "restart": "better"}
    rewards, advantages = learned_from(game(tmp_path, settings))
    average = 0.0
    for number, (given, compared) in enumerate(zip(rewards, advantages, strict=True)):
        assert compared == pytest.approx([reward - average for reward in given], abs=1e-6)
        mean = sum(given) / len(given)
        average = 0.9 * average + 0.1 * mean if number else mean


def test_shuffled_rewards_reach_the_generator_and_no_restart(tmp_path):
    """The control: each step is credited with the reward of any step so far, and better is better as before."""
    totals, kept = [], []
    settings = {"preset": "v2", "window": 4, "baseline": "none", "restart": "better", "shuffle_rewards": True}
    trainer = game(tmp_path, settings, max_steps=40)
    decide = trainer.session.restart.attacker_is_kept
    trainer.session.restart.attacker_is_kept = lambda total: (
        kept.append(decide(total)) or totals.append(total) or kept[-1]
    )
    rewards, given = learned_from(trainer)
    assert totals == pytest.approx([sum(one) for one in rewards], abs=1e-6)
    assert kept == [total > 0 for total in totals]
    past: list[float] = []
    for own, drawn in zip(rewards, given, strict=True):
        past += own
        assert set(drawn) <= set(past)
    assert sum(own != drawn for own, drawn in zip(rewards, given, strict=True)) > 8
    assert any(set(drawn) - set(own) for own, drawn in zip(rewards, given, strict=True))


def test_a_frozen_generator_drops_as_often_as_at_the_start(tmp_path):
    """The control with generator_lr=0: the game goes on, and nothing is learned from it."""
    trainer = game(tmp_path, {"preset": "v2", "window": 4, "generator_lr": 0.0}, max_steps=10)
    before = {name: part.clone() for name, part in trainer.session.networks.state_dict().items()}
    trainer.train()
    assert tr.same(before, trainer.session.networks.state_dict())
    assert 0.4 < trainer.session.records.numbers["drop_rate"] < 0.6
    assert trainer.session.records.numbers["reward"] != 0


def test_noisy_training_data_is_for_rewards_only(tmp_path):
    """Copies of training examples with words replaced, special tokens and labels as they are; none is held out."""
    trainer = game(tmp_path, {"preset": "v2", "window": 4, "reward_source": "noisy_train", "noise": 0.3})
    trainer.processing_class = type("Tokenizer", (), {"all_special_ids": [2]})()
    held_out = trainer.session.held_out
    order = torch.randperm(64, generator=torch.Generator().set_state(held_out.state()))
    drawn = held_out.draw(64)
    rows = [trainer.train_dataset[row] for row in order.tolist()]
    assert torch.cat([batch["labels"] for batch in drawn]).tolist() == [row["labels"] for row in rows]
    changed = torch.cat([batch["input_ids"] for batch in drawn]) != torch.stack([row["input_ids"] for row in rows])
    assert not changed[:, 0].any()
    assert 0.24 < float(changed[:, 1:].float().mean()) < 0.33  # a few words are replaced by the same
    assert len(trainer.train_dataset) == 64


@pytest.mark.parametrize("settings", GAMES.values(), ids=GAMES)
@pytest.mark.parametrize("step", [6, 15])
def test_a_resumed_game_is_the_uninterrupted_one(settings, step, tmp_path):
    """Also in the middle of a window: networks, optimisers, cache, baseline and random numbers go on."""
    saving = {"save_strategy": "steps", "save_steps": 3, "max_steps": 18}
    whole = game(tmp_path, settings, **saving)
    whole.train()
    again = game(tmp_path, settings, tr.classifier(seed=5, **DROPOUT), **saving)
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert tr.same(tr.weights(whole.model), tr.weights(again.model))
    assert tr.same(whole.session.networks.state_dict(), again.session.networks.state_dict())
    assert whole.session.records.rates == again.session.records.rates
    assert whole.session.records.numbers == again.session.records.numbers
    assert whole.session.restart.state_dict() == again.session.restart.state_dict()
    assert whole.session.learning.baseline.average == again.session.learning.baseline.average


@pytest.mark.parametrize("settings", [GAMES["v1"], GAMES["default"]], ids=["v1", "default"])
def test_checkpointing_meets_the_same_masks(settings, tmp_path):
    found = []
    for on in (False, True):
        trainer = game(tmp_path / str(on), settings, max_steps=8, gradient_checkpointing=on)
        trainer.train()
        found.append(tr.weights(trainer.model))
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("settings", [GAMES["v1"], GAMES["v2"], GAMES["default"]], ids=["v1", "v2", "default"])
@pytest.mark.parametrize(
    "more",
    [
        {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 8},
        {"bf16": True},
        {"torch_compile": True, "torch_compile_backend": "eager"},
        {"eval_strategy": "steps", "eval_steps": 5, "save_strategy": "steps", "save_steps": 5,
         "load_best_model_at_end": True},
    ],
    ids=["accumulation", "bf16", "compile", "best"],
)  # fmt: skip
def test_what_the_stock_trainer_offers_keeps_working(settings, more, tmp_path):
    trainer = game(tmp_path, settings, max_steps=10, **more)
    before = [part.clone() for part in trainer.session.networks.state_dict().values()]
    trainer.train()
    after = trainer.session.networks.state_dict().values()
    assert any(not torch.equal(first, second) for first, second in zip(before, after, strict=True))
    assert 0 < trainer.session.records.numbers["drop_rate"] < 1
    assert trainer.evaluate()["eval_accuracy"] >= 0


def test_accumulated_batches_are_the_same_defender(tmp_path):
    """With nothing dropped: two halves are the whole, for every network."""
    found = []
    for size, parts in ((16, 1), (8, 2)):
        trainer = game(
            tmp_path / str(parts), {**GAMES["v1"], **NOTHING}, tr.classifier(), max_steps=7,
            per_device_train_batch_size=size, gradient_accumulation_steps=parts,
        )  # fmt: skip
        trainer.train()
        found.append(trainer.session.game.defender.weights)
    for first, second in zip(*found, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-5)


def test_records_tell_the_game(tmp_path):
    trainer = game(tmp_path, GAMES["v2"])
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry][-1]
    assert {"reward", "win_rate", "attacker_kept", "drop_rate", "entropy", "peak_memory_mb"} <= logged.keys()
    assert len(trainer.session.record()["drop_rates"]) == 2
    assert json.loads(json.dumps(trainer.plan().made_by))["drop_rates"].keys() == {"0", "1"}
    assert "Rewarded on dev" in trainer.session.remarks()[0]
    assert 0 < logged["entropy"] <= 0.694
    assert logged["restart_temperature"] == 1.0
    assert logged["restart_chance"] == pytest.approx(float(torch.tensor(logged["reward"]).sigmoid()), abs=1e-6)


# Pruning


def test_sites_are_chosen_by_rate_threshold_and_metric():
    """Drop rates and costs of four sites, in place of a generator's and a metric's."""
    rates = {0: 0.2, 1: 0.9, 2: 0.6, 3: 0.6}
    costs = {0: 0.5, 1: 0.3, 2: 0.05, 3: 0.1}

    def choose(**settings):
        session = attached(tr.classifier(num_hidden_layers=4), evaluate=lambda: 1.0, **settings)
        session.drop_rates = lambda: rates
        session.metric_with = lambda uniform: 1 - sum(costs[site] for site in uniform)
        return session.choose()

    assert choose(prune_count=3) == [1, 3, 2]
    assert choose(prune_threshold=0.6) == [1, 3, 2]
    assert choose(prune_threshold=0.95) == []
    assert choose(prune_count=2, prune_order="top") == [3, 2]
    assert choose(prune_count=3, prune_order="greedy") == [2, 3, 1]
    assert choose(max_drop=0.16, prune_order="top") == [3, 2]
    assert choose(max_drop=0.16) == []
    with pytest.raises(MethodError, match="this model has 4 sites"):
        choose(prune_count=5)


@pytest.mark.parametrize(
    "settings",
    [
        {"prune_count": 1},
        {"prune_threshold": 0.01},
        {"prune_count": 1, "prune_order": "greedy"},
        {"max_drop": 0.5, "prune_order": "greedy"},
        {"max_drop": 0.5, "prune_order": "top"},
        {"prune_count": 2, "prune_order": "top", "tune_share": 0.5, "distill_logits": 1.0, "distill_hidden": 1.0},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_pruning_ends_in_a_plan_that_trims(settings, tmp_path):
    trainer = game(tmp_path, {**GAMES["v1"], **settings})
    trainer.train()
    plan = trainer.plan()
    assert plan.uniform
    assert len(plan.uniform) == settings.get("prune_count", len(plan.uniform))
    batch = tr.batches(1, seed=9)[0]
    with torch.no_grad():
        masked = trainer.model.eval()(**batch).logits
        trainer.session.detach()
        torch.testing.assert_close(trim(trainer.model, plan).eval()(**batch).logits, masked, rtol=0, atol=1e-5)


def test_sites_turn_uniform_one_by_one_and_the_game_is_the_teacher(tmp_path):
    trainer = game(
        tmp_path,
        {**GAMES["v1"], "prune_count": 2, "tune_share": 0.5, "distill_logits": 1.0},
        eval_strategy="steps", eval_steps=1, max_steps=20,
    )  # fmt: skip
    seen = []

    class Look(tf.TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            seen.append(len(trainer.session.uniform))

    trainer.add_callback(Look())
    trainer.train()
    assert seen == [0] * 11 + [1, 1] + [2] * 7 or seen == [0] * 11 + [1] * 2 + [2] * 7
    assert trainer.teacher is not None
    assert (tmp_path / "dense").is_dir()
    assert trainer.session.settled


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"prune_count": 2, "prune_order": "top"}, UniformSites(count=2, order="top")),
        ({"prune_count": 1, "prune_order": "greedy"}, UniformSites(count=1, order="greedy")),
        ({"max_drop": 0.5, "prune_order": "top"}, UniformSites(max_drop=0.5, order="top")),
    ],
    ids=["top", "greedy", "max_drop"],
)
def test_without_a_game_it_is_uniform_sites(old, new, tmp_path):
    """The same plan and the same weights, and a warning that names the method to use."""
    amount = f"count={new.count}" if new.count else f"max_drop={new.max_drop}"
    with pytest.warns(FutureWarning, match=rf"UniformSites\({amount}, order='{new.order}'\)"):
        method = AttendOut(tune_share=1, **old)
    found = []
    for place, made in enumerate((method, new)):
        trainer = tr.trainer(tmp_path / str(place), made, tr.classifier(**DROPOUT))
        trainer.train()
        assert not trainer.session.alternatives()
        found.append((trainer.plan(), tr.weights(trainer.model), len(trainer.train_dataset)))
    (first, mine, rows), (second, theirs, others) = found
    assert first.uniform == second.uniform != ()
    assert (first.made_by["method"], second.made_by["method"]) == ("attendout", "uniform-sites")
    assert tr.same(mine, theirs)
    assert rows == others


@pytest.mark.parametrize("order", ["generator", "greedy"])
def test_pruning_after_a_game_resumes(order, tmp_path):
    """In the game, when sites are to be chosen next, and when they are chosen."""
    settings = {**GAMES["v1"], "prune_count": 2, "prune_order": order, "tune_share": 0.5}
    saving = {"save_strategy": "steps", "save_steps": 3, "max_steps": 18}
    whole = game(tmp_path, settings, **saving)
    whole.train()
    for step in (6, 9, 12):
        again = game(tmp_path, settings, tr.classifier(seed=5, **DROPOUT), **saving)
        again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert tr.same(tr.weights(whole.model), tr.weights(again.model))
        assert whole.session.chosen == again.session.chosen


# Bad input


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"preset": "v3"}, "one of default, v1, v2"),
        ({"prune_count": 1, "max_drop": 0.1}, "not several"),
        ({"tune_share": 0.3}, "tune_share is for pruning"),
        ({"tune_share": 1, "prune_count": 1}, "no generator learns"),
        ({"tune_share": 1, "prune_threshold": 0.5}, "no generator learns"),
        ({"tune_share": 1, "prune_count": 1, "prune_order": "top", "plain_run": True}, "there is none"),
        ({"tune_share": 100, "prune_count": 1}, "Did you mean 1"),
        ({"prune_threshold": 0.5, "prune_order": "top"}, "leave prune_order"),
        ({"estimator": "contrast", "reward_source": "cached"}, "not trained on"),
        ({"draws": 1}, "2 or more"),
        ({"preset": "v2", "holdout_curve": True}, "a game with held-out training data"),
        ({"window": 0}, "1 or more"),
        ({"reward": "accuracy"}, "one of loss, correctness"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(MethodError, match=words):
        AttendOut(**settings)


def test_more_samples_than_there_are(tmp_path):
    trainer = game(tmp_path, {"preset": "v2", "window": 10, "reward_samples": 8})
    with pytest.raises(MethodError, match="draws 80 examples; 'dev' has 32"):
        trainer.train()
    trainer = game(tmp_path, {"restart": "better"})
    with pytest.raises(MethodError, match="draws 5 examples; 'train_split' has 3"):
        trainer.train()
    game(tmp_path, {"estimate_samples": 8}).train()  # an estimate takes what there is
    trainer = game(tmp_path, {"preset": "v1", "window": 50})
    with pytest.raises(MethodError, match="window is 50 steps; the game has 20"):
        trainer.train()


def test_a_split_that_leaves_a_class_out(tmp_path):
    rows = [{"input_ids": row["input_ids"], "labels": 0} for row in tr.examples(40)]

    def trainer_on(rows, share):
        made = AttendOut(holdout_share=share, estimate_samples=1)
        return __import__("attentrim").Trainer(
            model=tr.classifier(), args=tr.arguments(tmp_path), method=made, train_dataset=rows
        )

    held = trainer_on(rows, 0.5)._holdout.indices
    rows[held[0]]["labels"] = 1
    with pytest.raises(MethodError, match="leaves none of class 1 to train on"):
        trainer_on(rows, 0.5)
    rows[held[0]]["labels"], rows[next(i for i in range(40) if i not in held)]["labels"] = 0, 1
    with pytest.warns(UserWarning, match="is of class 1"):
        trainer_on(rows, 0.5)


def test_rewards_that_are_no_numbers(tmp_path):
    trainer = game(tmp_path, GAMES["v1"])

    def broken(window):
        with torch.no_grad():
            trainer.session.game.defender.weights[-1].fill_(float("nan"))
        return original(window)

    original = trainer.session._rewards
    trainer.session._rewards = broken
    with pytest.raises(TrainingError, match="rewards of step 4 are not finite"):
        trainer.train()


def test_a_model_without_dropout_is_remarked(tmp_path):
    with pytest.warns(UserWarning, match="own dropout is 0"):
        game(tmp_path, GAMES["v1"], tr.classifier())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        game(tmp_path, GAMES["v1"], tr.classifier(hidden_dropout_prob=0.1))


def test_correctness_of_a_regression_is_refused(tmp_path):
    with pytest.raises(MethodError, match="for regression leave reward at 'loss'"):
        game(tmp_path, {"preset": "v1", "reward": "correctness"}, tr.classifier(num_labels=1))


def test_a_stock_trainer_cannot_play(tmp_path):
    model = tr.classifier()
    session = AttendOut(preset="v1").attach(model)
    trainer = tr.trainer(tmp_path, None, model, cls=tf.Trainer, callbacks=[session.callback()])
    with pytest.raises(MethodError, match=r"needs attentrim\.Trainer"):
        trainer.train()
