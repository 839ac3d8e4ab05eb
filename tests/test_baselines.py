"""Random, HISP, L0 and SMP: each against brute force, a closed form, or a case whose answer is known."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import training as tr
import transformers as tf
import zoo

from attentrim import HISP, L0, SMP, AutoAttention, RandomHeads
from attentrim.errors import MethodError
from attentrim.methods.l0.session import chance_closed, chance_open, hard_concrete
from attentrim.methods.smp.scorer import MapScorer, distance, draw, fit

# Random


def test_random_is_exact_seeded_and_even_over_seeds():
    model = tr.classifier()
    plans = [RandomHeads(target_sparsity=0.375).search(model, seed=seed) for seed in range(300)]
    assert {plan.heads_removed for plan in plans} == {3}
    assert RandomHeads(target_sparsity=0.375).search(model, seed=5) == plans[5]
    counts = torch.zeros(2, 4)
    for plan in plans:
        for site, removed in plan.heads.items():
            counts[site, list(removed)] += 1
    assert counts.sum() == 900
    assert (counts / 300 - 0.375).abs().max() < 0.1  # 3.6 standard errors


# HISP


def importance_by_differences(model, batch):
    """Mean over samples of |dL/dgate|, by finite differences of each sample's own loss in float64."""
    session = HISP().attach(model.double().eval())
    totals = torch.zeros(session.count, dtype=torch.float64)
    size = len(batch["labels"])
    for row in range(size):
        sample = {name: values[row : row + 1] for name, values in batch.items()}
        for gate in range(session.count):
            losses = []
            for change in (1e-5, -1e-5):
                gates = torch.ones(session.count, dtype=torch.float64)
                gates[gate] += change
                with session.gates_set(gates):
                    losses.append(model(**sample).loss.item())
            totals[gate] += abs(losses[0] - losses[1]) / 2e-5 / size
    session.detach()
    model.float()
    return totals.float()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_hisp_is_the_finite_difference_of_each_samples_loss(attention):
    model = tr.classifier(attn_implementation=attention).eval()
    zoo.liven(model)
    batch = tr.batches(1, size=6)[0]
    expected = importance_by_differences(model, batch)
    session = HISP().attach(model, calibration=[batch])
    torch.testing.assert_close(session.importance(), expected, rtol=2e-3, atol=1e-6)
    normalised = torch.cat([part / part.norm() for part in expected.split([4, 4])])
    torch.testing.assert_close(session.scores(), normalised, rtol=2e-3, atol=1e-5)
    halves = [{name: values[rows] for name, values in batch.items()} for rows in (slice(0, 2), slice(2, 6))]
    session.calibration = halves
    torch.testing.assert_close(session.importance(), expected, rtol=2e-3, atol=1e-6)


def test_hisp_counts_choices_of_a_sample_together():
    torch.manual_seed(0)
    model = tf.BertForMultipleChoice(zoo.CONFIGS["bert"]()).eval()
    zoo.liven(model)
    batch = {"input_ids": torch.randint(5, 80, (3, 4, 7)), "labels": torch.tensor([0, 3, 1])}
    expected = importance_by_differences(model, batch)
    session = HISP().attach(model, calibration=[batch])
    torch.testing.assert_close(session.importance(), expected, rtol=2e-3, atol=1e-6)


def test_hisp_leaves_weights_gradients_and_modes_alone():
    model = tr.classifier().train()
    model.classifier.eval()
    batch = tr.batches(1)[0]
    model(**batch).loss.backward()
    before = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    HISP().search(model, calibration=[batch])
    assert model.training
    assert not model.classifier.training
    assert all(torch.equal(parameter.grad, before[name]) for name, parameter in model.named_parameters())


def test_hisp_in_rounds_climbs_and_never_reopens(tmp_path):
    trainer = tr.trainer(tmp_path, HISP(target_sparsity=0.75, rounds=3, dense_share=0.25), max_steps=40)
    trainer.train()
    session = trainer.session
    assert trainer.plan().heads_removed == 6
    assert session.history.reopenings == 0
    steps = sorted({step for step, _, _ in session.history.events})
    assert steps[0] == 10
    assert len(steps) == 3
    assert steps[-1] <= 32


def test_hisp_needs_labelled_data():
    model = tr.classifier()
    with pytest.raises(MethodError, match="calibration"):
        HISP().search(model)
    with pytest.raises(MethodError, match="labels"):
        HISP().search(model, calibration=[{"input_ids": torch.randint(5, 80, (2, 5))}])


# L0


@pytest.mark.parametrize("logit", [-3.0, -0.5, 0.0, 1.0, 4.0])
def test_hard_concrete_chances_equal_closed_form_and_monte_carlo(logit):
    noise = torch.rand(400_000, generator=torch.Generator().manual_seed(0))
    gates = hard_concrete(torch.tensor(logit), noise)
    assert gates.min() >= 0
    assert gates.max() <= 1
    closed, fully_open = float(chance_closed(torch.tensor(logit))), float(chance_open(torch.tensor(logit)))
    # from the distribution itself: g = 0 where s <= -gamma / (zeta - gamma), with s a sigmoid of logistic noise
    edge = 0.1 / 1.2
    by_hand = 1 / (1 + math.exp(-(2 / 3 * math.log(edge / (1 - edge)) - logit)))
    assert closed == pytest.approx(by_hand, rel=1e-5)
    assert float((gates == 0).float().mean()) == pytest.approx(closed, abs=4e-3)
    assert float((gates == 1).float().mean()) == pytest.approx(fully_open, abs=4e-3)


def test_l0_penalty_is_the_expected_number_of_open_gates():
    session = L0(penalty=0.5).attach(tr.classifier())
    session.parameters.data = torch.linspace(-3, 3, 8)
    draws = torch.stack([session.sample().detach() > 0 for _ in range(20_000)]).float()
    expected = 1 - chance_closed(session.parameters)
    assert float(expected.sum().detach()) == pytest.approx(float(draws.mean(0).sum()), rel=5e-3)
    (by_autograd,) = torch.autograd.grad(0.5 * expected.sum(), session.parameters)
    torch.testing.assert_close(session.penalty_gradient().detach(), by_autograd)
    # whichever of the two chances is larger
    expected = [float(chance_open(x) > chance_closed(x)) for x in session.parameters.detach()]
    assert session.hard().tolist() == expected == [0, 0, 0, 0, 1, 1, 1, 1]


def test_l0_gradient_of_the_sampled_loss():
    """The reparameterised gradient of the gates, against finite differences under the same noise."""
    model = tr.classifier().eval()
    session = L0(penalty=0.0).attach(model)
    session.parameters.data = torch.linspace(-1, 1, 8)
    batch = tr.batches(1)[0]
    noise = torch.rand(8, generator=torch.Generator().manual_seed(3))
    with session.gates_set(hard_concrete(session.parameters, noise)):
        model(**batch).loss.backward()
    model.double()
    for gate in range(8):
        losses = []
        for change in (1e-5, -1e-5):
            moved = session.parameters.detach().double()
            moved[gate] += change
            with session.gates_set(hard_concrete(moved, noise.double())):
                losses.append(model(**batch).loss.item())
        assert float(session.parameters.grad[gate]) == pytest.approx(
            (losses[0] - losses[1]) / 2e-5, rel=1e-2, abs=1e-6
        )


def test_l0_projection_hits_the_expected_count():
    session = L0(target_sparsity=0.5).attach(tr.classifier(), steps=10)
    for closed in range(1, 8):
        session.parameters.data = torch.linspace(-2, 3, 8)
        session.project(closed)
        expected = float((1 - chance_closed(session.parameters.detach())).sum())
        assert expected == pytest.approx(8 - closed, abs=0.01)


def test_l0_reports_the_gap_between_sampled_and_binary_gates(tmp_path):
    trainer = tr.trainer(tmp_path, L0(target_sparsity=0.5))
    trainer.train()
    assert trainer.plan().heads_removed == 4
    gap = trainer.session.gap
    assert gap["sampled_binary_gap"] == pytest.approx(gap["binary_loss"] - gap["sampled_loss"])
    assert abs(gap["sampled_binary_gap"]) > 0
    assert trainer.state.log_history[-1]["sampled_binary_gap"] == gap["sampled_binary_gap"]


# SMP


@pytest.mark.parametrize(("length", "convolutions"), [(8, 2), (32, 4), (128, 6)])
def test_the_scorer_has_the_published_depth(length, convolutions):
    scorer = MapScorer(length, base_width=2)
    layers = [layer for layer in scorer.layers if isinstance(layer, torch.nn.Conv2d)]
    assert len(layers) == convolutions
    assert {layer.kernel_size for layer in layers} == {(4, 4)}
    assert scorer(torch.rand(5, length, length)).shape == (5,)


def test_maps_are_cut_filled_and_cleared_of_padding():
    maps = torch.rand(2, 3, 6, 6)
    valid = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]).bool()
    fitted = fit(maps, valid, 8)
    assert fitted.shape == (2, 3, 8, 8)
    assert torch.equal(fitted[0, :, :6, :6], maps[0])
    assert torch.equal(fitted[1, :, :3, :3], maps[1, :, :3, :3])
    assert fitted[1, :, 3:].abs().sum() == fitted[1, :, :, 3:].abs().sum() == 0
    assert torch.equal(fit(maps, None, 4), maps[..., :4, :4])


def test_a_draw_is_a_relaxed_choice_without_putting_back():
    generator = torch.Generator().manual_seed(0)
    scores = torch.tensor([3.0, 0.0, 0.0, -3.0])
    draws = torch.stack([draw(scores, 2, 0.05, generator) for _ in range(3000)])
    # at a low temperature, Gumbel draws one after another are Plackett-Luce: their chances are known
    worth = scores.exp()
    expected = torch.zeros(4)
    for first, second in itertools.permutations(range(4), 2):
        chance = worth[first] / worth.sum() * worth[second] / (worth.sum() - worth[first])
        expected[first] += chance
        expected[second] += chance
    assert float(draws.sum(-1).mean()) == pytest.approx(2, abs=0.03)
    assert (draws.mean(0) - expected).abs().max() < 0.04


def test_the_distance_is_zero_for_the_same_and_matches_the_formula():
    before, after = torch.randn(4, 5), torch.randn(4, 5)
    assert float(distance(before, before)) == pytest.approx(0, abs=1e-6)
    assert float(distance(before, 3 * before + 1)) == pytest.approx(0, abs=1e-5)

    def chances(states):
        centred = states - states.mean(0)
        unit = centred / centred.norm(dim=-1, keepdim=True)
        return [
            torch.softmax(10 * torch.stack([unit[i] @ unit[j] for j in group]), 0)
            for group in ((0, 1), (2, 3))
            for i in group
        ]

    by_hand = sum((p * (p / q).log()).sum() for p, q in zip(chances(before), chances(after), strict=True)) / 4
    assert float(distance(before, after)) == pytest.approx(float(by_hand), rel=1e-4)


@pytest.mark.parametrize("loud_are_sharp", [True, False])
def test_smp_keeps_the_heads_that_move_the_representation(loud_are_sharp):
    """One head of each site writes, the others do not; sharp and flat maps tell them apart, one way or the other."""
    model = tr.classifier().eval()
    zoo.liven(model, 3.0)
    for layer, loud in zip(model.bert.encoder.layer, (2, 1), strict=True):
        query, output = layer.attention.self.query.weight.data, layer.attention.output.dense.weight.data
        for head in range(4):
            rows = slice(head * 6, head * 6 + 6)
            query[rows] *= 8.0 if (head == loud) is loud_are_sharp else 0.0
            output[:, rows] *= 3.0 if head == loud else 0.0
    data = [{"input_ids": batch["input_ids"]} for batch in tr.batches(4)]
    method = SMP(target_sparsity=0.75, search_steps=150, search_lr=5e-3, map_length=16)
    plan = method.search(model, calibration=data, seed=0)
    assert [plan.kept("heads", 0), plan.kept("heads", 1)] == [[2], [1]]


@pytest.mark.parametrize("sparsity", [0.3, 0.5, 0.8])
def test_smp_counts_are_exact_and_even(sparsity):
    plan = SMP(target_sparsity=sparsity, search_steps=2, map_length=8).search(
        tr.classifier(), calibration=tr.batches(1)
    )
    assert plan.heads_removed == round(8 * sparsity)
    assert max(plan.heads_kept) - min(plan.heads_kept) <= 1


def test_smp_leaves_torchs_random_numbers_and_the_model_alone():
    model = tr.classifier()
    before, state = tr.weights(model), torch.get_rng_state()
    SMP(search_steps=2, map_length=8).search(model, calibration=tr.batches(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert tr.same(tr.weights(model), before)
    assert not any(parameter.grad is not None for parameter in model.parameters())


def test_methods_that_learn_cannot_plan_without_training():
    with pytest.raises(MethodError, match=r"learns what to remove while.*hisp, random-heads, similarity, smp"):
        AutoAttention().search(tr.classifier())


@pytest.mark.parametrize(
    ("method", "steps"),
    [
        (HISP(dense_share=0.99), 10),
        (RandomHeads(dense_share=0.99), 10),
        (SMP(dense_share=0.99, search_steps=1, map_length=8), 10),
        (HISP(rounds=4, dense_share=0.9), 10),
        (HISP(rounds=4), 1),
    ],
)
def test_counts_are_exact_even_where_no_step_is_left(method, steps, tmp_path):
    trainer = tr.trainer(tmp_path, method, max_steps=steps)
    trainer.train()
    assert trainer.plan().heads_removed == 4


def test_smp_says_whose_states_it_cannot_compare():
    for name in ("t5", "bart"):
        batch = {key: value for key, value in zoo.inputs(name).items() if key == "input_ids"}
        with pytest.raises(MethodError, match="hidden states of one stack"):
            SMP(search_steps=1, map_length=8).search(zoo.build(name), calibration=[batch])
