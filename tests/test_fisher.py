"""Fisher: its scores by hand and by finite differences, the rearrangement, and what it refuses."""

from __future__ import annotations

import copy
import itertools
from types import SimpleNamespace

import pytest
import torch
import training as tr
import transformers as tf
import zoo
from close import assert_close
from hypothesis import given
from hypothesis import strategies as st

import attentrim
from attentrim import Fisher
from attentrim.errors import AttentrimError, MethodError
from attentrim.methods.fisher.calibrating import rearranged

HEADS, NEURONS = 8, 64
"""Gates of the tiny classifier; two layer switches come on top."""


class ByHand:
    """Gates and switches on a BERT, by hooks of our own: nothing of attentrim's."""

    def __init__(self, model):
        self.model = model
        self.fresh()
        for index, layer in enumerate(model.bert.encoder.layer):
            layer.attention.output.dense.register_forward_pre_hook(self.on_heads(index))
            layer.output.dense.register_forward_pre_hook(self.on_neurons(index))
            layer.register_forward_hook(self.on_layer(index))

    def fresh(self, rows=()):
        dtype = next(self.model.parameters()).dtype
        self.gates = torch.ones(*rows, HEADS + NEURONS, dtype=dtype, requires_grad=True)
        self.switches = torch.zeros(*rows, 2, dtype=dtype, requires_grad=True)

    def on_heads(self, index):
        def scale(_, inputs):
            gates = self.gates[..., 4 * index : 4 * index + 4].repeat_interleave(6, -1)
            return (inputs[0] * (gates if gates.dim() == 1 else gates[:, None]),)

        return scale

    def on_neurons(self, index):
        def scale(_, inputs):
            gates = self.gates[..., HEADS + 32 * index : HEADS + 32 * index + 32]
            return (inputs[0] * (gates if gates.dim() == 1 else gates[:, None]),)

        return scale

    def on_layer(self, index):
        def mix(_, inputs, output):
            off = self.switches[..., index]
            off = off if off.dim() == 0 else off[:, None, None]
            return output + off * (inputs[0] - output)

        return mix

    def gradients(self, batch):
        self.fresh()
        return torch.autograd.grad(self.model(**batch).loss, (self.gates, self.switches))


def assert_scores(found, wanted, tolerance=1e-3):
    """Squared gradients are far below 1: compared as shares of the largest one."""
    largest = float(wanted.abs().max())
    assert largest > 0
    assert_close(found / largest, wanted / largest, tolerance)


def attach(model, **settings):
    return Fisher(cost="flops", dense_share=0.0, **settings).attach(model, steps=1000)


# Scores


def test_in_training_scores_are_a_moving_average_of_squared_gradients():
    model, other = tr.classifier(), ByHand(tr.classifier())
    session = attach(model, decay=0.9, speedup=1.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    own = torch.optim.SGD(other.model.parameters(), lr=0.1)
    session.follow(optimizer)
    units, layers = torch.zeros(HEADS + NEURONS), torch.zeros(2)
    for batch in tr.batches(4):
        model.train()
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        by_gate, by_layer = other.gradients(batch)
        units, layers = 0.9 * units + 0.1 * by_gate.square(), 0.9 * layers + 0.1 * by_layer.square()
        other.model(**batch).loss.backward()
        own.step()
        own.zero_grad()
    assert_scores(session.scores, units)
    assert_scores(session.switch_scores, layers)
    assert float(units.min()) > 0
    assert float(layers.min()) > 0
    session.detach()


def test_scores_are_squared_slopes_of_the_loss():
    """Finite differences in the weights themselves, in float64: a head, a neuron and a layer."""
    model = tr.classifier().double()
    zoo.liven(model)
    (batch,) = tr.batches(1)
    twin = ByHand(copy.deepcopy(model))
    session = attach(model, decay=0.5, speedup=1.5)
    session.start_step()
    model.train()
    model(**batch).loss.backward()
    session.before_optimizer_step()

    def loss():
        with torch.no_grad():
            return float(twin.model(**batch).loss)

    def slope_of_column(weight, columns):
        kept, found = weight.detach().clone(), []
        for sign in (1, -1):
            with torch.no_grad():
                weight[:, columns] = kept[:, columns] * (1 + sign * 1e-5)
            found.append(loss())
        with torch.no_grad():
            weight.copy_(kept)
        return (found[0] - found[1]) / 2e-5

    first, second = twin.model.bert.encoder.layer
    head = slope_of_column(second.attention.output.dense.weight, slice(12, 18))
    neuron = slope_of_column(first.output.dense.weight, slice(7, 8))
    passed_by = []
    for sign in (1, -1):
        twin.switches = torch.tensor([0.0, sign * 1e-5], dtype=torch.float64)
        passed_by.append(loss())
    layer = (passed_by[0] - passed_by[1]) / 2e-5
    found = [session.scores[4 + 2], session.scores[HEADS + 7], session.switch_scores[1]]
    assert [float(value) for value in found] == pytest.approx(
        [0.5 * s**2 for s in (head, neuron, layer)], rel=1e-3, abs=0
    )
    session.detach()


def test_gates_that_are_closed_keep_the_score_they_closed_with():
    model = tr.classifier()
    session = attach(model, decay=0.5, speedup=1.5)
    session.follow(optimizer := torch.optim.SGD(model.parameters(), lr=0.0))

    def step():
        model.train()
        model(**tr.batches(1)[0]).loss.backward()
        optimizer.step()

    step()
    before = session.scores.clone()
    session.open = torch.ones(session.count).index_fill_(0, torch.tensor([3, 20]), 0.0)
    step()
    changed = (session.scores != before).nonzero().flatten().tolist()
    assert {3, 20}.isdisjoint(changed)
    assert len(changed) == session.count - 2
    session.detach()


def test_evaluation_in_between_leaves_the_scores_alone():
    model = tr.classifier()
    session = attach(model, speedup=1.5)
    session.start_step()
    first, second = tr.batches(2)
    for batch in (first, second):  # two batches of one step
        model.train()
        (model(**batch).loss / 2).backward()
        model.eval()
        with torch.no_grad():
            model(**first)
    session.before_optimizer_step()
    both = {name: torch.cat([first[name], second[name]]) for name in first}
    wanted, _ = ByHand(tr.classifier()).gradients(both)
    assert_scores(session.scores, 0.02 * wanted.square())
    session.detach()


def test_float16_scaling_is_undone_and_steps_that_overflowed_are_skipped():
    model = tr.classifier()
    session = attach(model, speedup=1.5)
    (batch,) = tr.batches(1)
    session.start_step()
    model.train()
    (1024 * model(**batch).loss).backward()
    session.before_optimizer_step(1024.0)
    wanted, _ = ByHand(tr.classifier()).gradients(batch)
    assert_scores(session.scores, 0.02 * wanted.square())
    before = session.scores.clone()
    session.start_step()
    (float("inf") * model(**batch).loss).backward()
    session.before_optimizer_step(1024.0)
    assert torch.equal(session.scores, before)
    session.detach()


def test_without_training_scores_are_means_over_samples():
    model = tr.classifier()
    batches = tr.batches(2, size=6)
    session = Fisher(cost="flops").attach(model, calibration=batches)
    gradients = session.calibrate()
    other = ByHand(tr.classifier())
    singles = [{name: value[row : row + 1] for name, value in batch.items()} for batch in batches for row in range(6)]
    units, layers = zip(*(other.gradients(single) for single in singles), strict=True)
    assert_scores(gradients, torch.stack(units))
    assert_scores(session.scores, torch.stack(units).square().mean(0))
    assert_scores(session.switch_scores, torch.stack(layers).square().mean(0))
    session.detach()


def information(logits_of, gates):
    """The diagonal of the Fisher information of one sample, from the Jacobian of its logits."""
    logits = logits_of()
    rows = [torch.autograd.grad(logit, gates, retain_graph=True)[0] for logit in logits]
    jacobian, chances = torch.stack(rows), logits.detach().softmax(-1)
    # the covariance of the one-hot answer is the curvature of the cross-entropy in the logits
    curvature = chances.diag() - chances.outer(chances)
    return torch.einsum("ig,ij,jg->g", jacobian, curvature, jacobian)


@pytest.mark.parametrize("labels", [3, 1], ids=["classes", "a number"])
def test_without_labels_squared_gradients_are_the_fisher_information_on_average(labels):
    count, draws = 40, 100
    model = tr.classifier(num_labels=labels)
    with torch.no_grad():
        model.classifier.weight.mul_(20)
    single = {"input_ids": tr.batches(1)[0]["input_ids"][:1]}
    batch = {"input_ids": single["input_ids"].expand(draws, -1), "labels": torch.zeros(draws, dtype=torch.long)}
    session = Fisher(cost="flops", use_labels=False).attach(model, calibration=[batch] * count)
    session.calibrate()
    other = ByHand(copy.deepcopy(tr.classifier(num_labels=labels)))
    other.model.load_state_dict(model.state_dict())
    if labels == 1:
        (jacobian,) = torch.autograd.grad(other.model(**single).logits[0, 0], other.gates)
        wanted = jacobian.square()
    else:
        wanted = information(lambda: other.model(**single).logits[0], other.gates)
    # the mean of 4,000 squares of a normal number is off by 2.2%
    assert_scores(session.scores, wanted, 0.1)
    session.detach()


def test_calibration_leaves_the_model_as_it_was():
    model = tr.classifier().train()
    before = tr.weights(model)
    session = Fisher(cost="flops").attach(model, calibration=tr.batches(1))
    session.calibrate()
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert tr.same(before, tr.weights(model))
    session.detach()
    with pytest.raises(MethodError, match="have no labels: set use_labels to false"):
        Fisher(cost="flops").search(model, [{"input_ids": tr.batches(1)[0]["input_ids"]}])
    with pytest.raises(MethodError, match="There is no calibration data"):
        Fisher(cost="flops").search(model, [])


# Rearranging


def loss_of(gradients, open_gates):
    return float((gradients.double() @ (1 - open_gates.double())).square().sum())


@given(st.integers(0, 10_000))
def test_a_rearrangement_never_loses_and_keeps_counts(seed):
    generator = torch.Generator().manual_seed(seed)
    gradients = torch.randn(7, 12, generator=generator)
    open_gates = (torch.rand(12, generator=generator) > 0.4).float()
    slices = {("sites", 0): slice(0, 5), ("blocks", 0): slice(5, 12)}
    found = rearranged(open_gates, gradients, SimpleNamespace(slices=slices))
    for here in slices.values():
        assert found[here].sum() == open_gates[here].sum()
        assert loss_of(gradients[:, here], found[here]) <= loss_of(gradients[:, here], open_gates[here]) + 1e-9
        shut, left = (found[here] == 0).nonzero().flatten(), found[here].nonzero().flatten()
        for give_back, take in itertools.product(shut, left):
            swapped = found[here].clone()
            swapped[give_back], swapped[take] = 1, 0
            assert loss_of(gradients[:, here], swapped) >= loss_of(gradients[:, here], found[here]) * (1 - 1e-6)


def test_errors_that_cancel_are_found():
    """Gate 3 is felt most of all, and with gate 2 gone, not at all."""
    generator = torch.Generator().manual_seed(0)
    small, large = torch.randn(9, 2, generator=generator), torch.randn(9, 1, generator=generator)
    gradients = torch.cat([0.5 * small[:, :1], 2.0 * small[:, 1:], 1.5 * large, -1.5 * large], 1)
    by_scores = torch.tensor([0.0, 1.0, 0.0, 1.0])
    found = rearranged(by_scores, gradients, SimpleNamespace(slices={("blocks", 0): slice(0, 4)}))
    assert found.tolist() == [1, 1, 0, 0]
    assert loss_of(gradients, found) == pytest.approx(0)


# What it refuses


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"speedup": 1.0}, "must be a number above 1"),
        ({"speedup": "0.5"}, "must be a number above 1.*Got 0.5 instead"),
        ({"speedup": "fast"}, "must be a number above 1.*Got fast instead"),
        ({"speedup": "3,2"}, "in rising order"),
        ({"speedup": "2,2"}, "in rising order"),
        ({"speedup": "1.5,,2"}, "Got 1.5,,2 instead"),
        ({"speedup": ""}, "must be a number above 1"),
        ({"speedup": "nan"}, "must be a number above 1"),
        ({"speedup": "inf"}, "must be a number above 1"),
        ({"speedup": []}, "must be a number above 1"),
        ({"speedup": True}, "'speedup' parameter of Fisher"),
        ({"max_drop": -0.1}, "'max_drop' parameter of Fisher must be"),
        ({"max_drop": 2}, r"must be in \[0, 1\). Got 2 instead. Did you mean 0.02"),
        ({"prune": ""}, "prune names kinds of structure, each once"),
        ({"prune": "heads,heads"}, "each once"),
        ({"cost": "energy"}, "must be one of time, flops"),
        ({"speed_dtype": "float8"}, "must be one of"),
        ({"speed_backend": "tpu"}, "must be one of"),
        ({"speed_device": "tpu"}, "must be one of"),
        ({"speed_batch": 0}, "must be 1 or more"),
        ({"speed_elsewhere": True}, "set speed_table too"),
        ({"cost": "flops", "speed_table": "t.json"}, "A latency table is of time"),
        ({"ramp_share": 0.0}, r"must be in \(0, 1\]"),
        ({"decay": 1.0}, r"must be in \[0, 1\)"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(MethodError, match=message):
        Fisher(**settings)


def test_speeds_in_many_spellings():
    for given_speed in (2, 2.0, "2", [2], ["2"], (2.0,)):
        assert Fisher(speedup=given_speed).speedups == [2.0]
    assert Fisher(speedup="1.5, 2,3").speedups == Fisher(speedup=[1.5, 2, 3]).speedups == [1.5, 2.0, 3.0]
    assert Fisher().speedups == [2.0]
    assert Fisher(max_drop=0.01).speedups == [1.5, 2.0, 2.5, 3.0, 4.0]


def attaches_again(model):
    attentrim.HISP().attach(model).detach()


@pytest.mark.parametrize(
    ("prune", "message"), [("neuron", "Did you mean 'neurons'"), ("heads,sites", "Unknown kind of structure")]
)
def test_unknown_kinds_leave_the_model_free(prune, message):
    model = tr.classifier()
    with pytest.raises(AttentrimError, match=message):
        Fisher(prune=prune).attach(model)
    attaches_again(model)


def test_too_few_steps(tmp_path):
    model = tr.classifier()
    with pytest.raises(MethodError, match=r"12 steps are too few: 4 are plain fine-tuning.*each of 3 speeds needs"):
        Fisher(speedup="1.2,1.3,1.4", cost="flops").attach(model, steps=12)
    attaches_again(model)


def test_beyond_reach_is_said_before_the_first_step(tmp_path):
    trainer = tr.trainer(tmp_path, Fisher(speedup=50, prune="heads", cost="flops"))
    before = tr.weights(trainer.model)
    with pytest.raises(
        MethodError, match=r"cannot be made 50 times as fast: without all heads .* \d+\.\d\d times as fast"
    ):
        trainer.train()
    assert tr.same(before, tr.weights(trainer.model))


def test_cuda_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(AttentrimError, match="torch finds no CUDA device here"):
        Fisher(speed_device="cuda").search(tr.classifier(), tr.batches(1))


def test_without_training_one_speed_at_a_time():
    with pytest.raises(MethodError, match="one speed at a time"):
        Fisher(speedup="1.5,2", cost="flops").search(tr.classifier(), tr.batches(1))


def test_layers_alone_have_no_gates():
    model = tr.classifier()
    with pytest.raises(MethodError, match="prune is layers: name one of heads, neurons too"):
        Fisher(prune="layers").attach(model)
    attaches_again(model)


def test_a_callback_of_the_stock_trainer_learns_the_number_of_steps(tmp_path):
    model = tr.classifier()
    session = Fisher(speedup=1.5, cost="flops").attach(model)
    with pytest.raises(MethodError, match="Fisher follows a schedule"):
        session.start_step()
    session.detach()
    assert isinstance(session.callback(), tf.TrainerCallback)
