"""AutoAttention: the gate, the step, and what follows from them."""

from __future__ import annotations

import io
import itertools
import math
import statistics
import warnings

import numpy as np
import pytest
import torch
import training as tr
from close import assert_close

from attentrim import AutoAttention, trim
from attentrim.errors import MethodError, TrainingError
from attentrim.methods.autoattention.session import COARSE
from attentrim.methods.autoattention.starts import Overlap

POINTS = torch.tensor([-2.0, -0.5, 0.0, 1e-6, 0.4, 1.0, 1.7, 3.0])
SLOPES = {
    "softplus": [math.log1p(math.exp(x)) for x in POINTS.tolist()],
    "sigmoid": [math.exp(-x) / (1 + math.exp(-x)) ** 2 for x in POINTS.tolist()],
    "linear": [1.0] * 8,
    "relu": [0, 0, 0, 1, 1, 1, 1, 1],
    "clipped_relu": [0, 0, 0, 1, 1, 0, 0, 0],
}


@pytest.mark.parametrize("name", COARSE)
def test_the_gate_is_a_step_and_its_backward_the_named_slope(name):
    session = AutoAttention(backward=name, penalty=0.0, gate_lr=0.5).attach(tr.classifier())
    session.parameters.copy_(POINTS)
    session.open = session.hard()
    gates = session.training_gates()
    assert gates.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    incoming = torch.linspace(-1, 2, 8)
    gates.backward(incoming)
    session.before_optimizer_step()
    torch.testing.assert_close(session.parameters, POINTS - 0.5 * incoming * torch.tensor(SLOPES[name]))


def test_gates_start_open_as_a_truncated_normal():
    session = AutoAttention().attach(tr.classifier(num_attention_heads=12, hidden_size=48))
    start = session.parameters.detach()
    assert session.open.all()
    drawn = torch.cat([AutoAttention().attach(tr.classifier(), seed=seed).parameters.detach() for seed in range(200)])
    assert float(drawn.min()) > 0
    assert float(drawn.max()) <= 2
    assert len(start) == 24
    assert float(drawn.mean()) == pytest.approx(1.0, abs=0.03)
    assert float(drawn.std()) == pytest.approx(0.3, abs=0.03)


def test_gates_can_start_alike():
    session = AutoAttention(start_spread=0).attach(tr.classifier())
    assert session.parameters.unique().tolist() == [1.0]
    assert session.open.all()


def test_the_overlap_with_the_lowest_starts_is_hypergeometric_by_chance():
    """10 gates, of which 4 closed: mean and deviation against all subsets there are."""
    start = torch.tensor([0.9, 0.1, 0.5, 0.3, 0.7, 1.1, 0.2, 1.3, 0.8, 0.6])
    lowest = {1, 6, 3, 2}
    found = []
    for chosen in itertools.combinations(range(10), 4):
        closed = torch.zeros(10, dtype=torch.bool)
        closed[list(chosen)] = True
        overlap = Overlap.of(start, closed)
        assert overlap.started_lowest == len(lowest & set(chosen))
        found.append(overlap.started_lowest)
    assert statistics.fmean(found) == pytest.approx(overlap.by_chance)
    assert statistics.pstdev(found) == pytest.approx(overlap.deviation)


@pytest.mark.parametrize(
    ("overlap", "agreement", "follows"),
    [
        (Overlap(72, 36, 36), 1.0, True),
        (Overlap(72, 36, 33), 15 / 18, True),
        (Overlap(72, 36, 28), 10 / 18, True),
        (Overlap(72, 36, 27), 0.5, False),  # no more than halfway
        (Overlap(72, 36, 18), 0.0, False),
        (Overlap(8, 4, 4), 1.0, False),  # one case in 70 by chance: too few gates to say
        (Overlap(8, 8, 8), 0.0, False),
    ],
)
def test_a_start_is_followed_where_it_chose_most_of_what_closed(overlap, agreement, follows):
    assert overlap.agreement == pytest.approx(agreement)
    assert overlap.follows_start is follows


def planted_run(method, gradient, steps=20):
    """A run whose gates see a given gradient at each step, and no other; and the warnings it ends with."""
    session = method.attach(tr.classifier(num_attention_heads=12, hidden_size=48), steps=steps)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(steps):
            session.start_step()
            gates = session.training_gates()
            if gates.requires_grad:
                gates.backward(gradient)
            session.before_optimizer_step()
        session.finish()
    return session, [str(one.message) for one in said if "start lowest" in str(one.message)]


@pytest.mark.parametrize("settings", [{"target_sparsity": 0.5}, {"gate_lr": 30.0, "penalty": 2e-3}])
def test_it_warns_where_the_random_start_chose(settings):
    """Planted: no gate is of any use, or harm, so only the start tells them apart."""
    session, said = planted_run(AutoAttention(**settings), torch.zeros(24))
    overlap = session.overlap
    assert overlap.started_lowest == overlap.closed
    assert 3 < overlap.closed < 24
    assert len(said) == 1
    assert "start_spread=0" in said[0]
    assert session.remarks() == said
    assert session.results()["start_overlap"]["started_lowest"] == overlap.closed


@pytest.mark.parametrize("settings", [{"target_sparsity": 0.5}, {"penalty": 0.0}])
def test_it_does_not_warn_where_training_chose(settings):
    """Planted: gates that are harmful, as many of those that started high as of those that started low."""
    start = AutoAttention(**settings).attach(tr.classifier(num_attention_heads=12, hidden_size=48)).parameters
    harmful = start.argsort()[::2]
    session, said = planted_run(AutoAttention(**settings), torch.full((24,), -0.2).index_fill(0, harmful, 0.2))
    assert set((session.open == 0).nonzero().flatten().tolist()) == set(harmful.tolist())
    assert (said, session.remarks()) == ([], [])
    assert session.overlap.agreement == pytest.approx(0)


def test_gates_that_start_alike_follow_no_start():
    session, said = planted_run(AutoAttention(target_sparsity=0.5, start_spread=0), torch.zeros(24))
    assert session.overlap is None
    assert (said, session.remarks(), session.results()) == ([], [], {})


def test_the_start_is_that_of_the_first_part_of_a_resumed_run():
    session, _ = planted_run(AutoAttention(target_sparsity=0.5), torch.zeros(24))
    again = AutoAttention(target_sparsity=0.5).attach(
        tr.classifier(num_attention_heads=12, hidden_size=48), steps=20, seed=7
    )
    assert not torch.equal(again.start, session.start)
    again.load_state_dict(session.state_dict())
    assert torch.equal(again.start, session.start)
    assert again.remarks() == session.remarks()


def gate_gradient(model, session, batch):
    """dF/dG by finite differences in float64: the gates as plain numbers."""
    model.double()
    found = []
    open_gates = session.open.double()
    for gate in range(session.count):
        losses = []
        for change in (1e-4, -1e-4):
            gates = open_gates.clone()
            gates[gate] += change
            with session.gates_set(gates):
                losses.append(model(**batch).loss.item())
        found.append((losses[0] - losses[1]) / 2e-4)
    model.float()
    return torch.tensor(found)


@pytest.mark.parametrize("backward", COARSE)
def test_one_step_is_equation_10(backward):
    """W' - lr * (dF/dG + mu) * slope(W'), with dF/dG from finite differences, and with one gate closed."""
    model = tr.classifier().eval()
    session = AutoAttention(backward=backward, penalty=0.03, gate_lr=0.7).attach(model)
    with torch.no_grad():
        session.parameters[3] = -0.2
    session.open = session.hard()
    batch = tr.batches(1)[0]
    expected = gate_gradient(model, session, batch)
    before = session.parameters.detach().clone()
    model.train()
    model(**batch).loss.backward()
    session.before_optimizer_step()
    by_hand = before - 0.7 * (expected + 0.03) * COARSE[backward](before)
    torch.testing.assert_close(session.parameters.detach(), by_hand, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("backward", "reopens"),
    [("softplus", True), ("sigmoid", True), ("linear", True), ("relu", False), ("clipped_relu", False)],
)
def test_who_can_reopen_a_gate(backward, reopens):
    """A closed gate whose opening would lower the loss, pulled for as long as it takes."""
    session = AutoAttention(backward=backward, penalty=0.0).attach(tr.classifier())
    with torch.no_grad():
        session.parameters[2] = -0.05
    session.open = session.hard()
    session.history.note(0, session.open)
    for _ in range(40):
        (-session.training_gates()[2]).backward()
        session.before_optimizer_step()
    assert bool(session.open[2]) is reopens
    session.history.look()
    assert session.history.reopenings == int(reopens)


def test_penalty_counts_once_a_step_however_many_batches_are_accumulated():
    moved = []
    for parts in (1, 4):
        session = AutoAttention(penalty=0.5).attach(tr.classifier())
        for _ in range(parts):
            (session.training_gates() * 0).sum().backward()
        before = session.parameters.detach().clone()
        session.before_optimizer_step()
        moved.append(before - session.parameters.detach())
    torch.testing.assert_close(moved[0], moved[1])
    assert (moved[0] > 0).all()


@pytest.mark.parametrize("sparsity", [0.0, 0.1, 0.5, 0.99])
def test_a_target_removes_just_that_many(tmp_path, sparsity):
    trainer = tr.trainer(tmp_path, AutoAttention(target_sparsity=sparsity, gate_lr=3.0))
    trainer.train()
    assert trainer.plan().heads_removed == min(round(8 * sparsity), 7)


def test_the_number_climbs_and_the_set_is_fixed_for_the_last_fifth(tmp_path):
    method = AutoAttention(target_sparsity=0.5, gate_lr=30.0)
    session = method.attach(tr.classifier(), steps=50)
    generator = torch.Generator().manual_seed(0)
    counts, sets = [], []
    for _ in range(50):
        gates = session.training_gates()
        assert gates.requires_grad is not session.is_fixed
        if gates.requires_grad:
            (gates * torch.randn(8, generator=generator) * 0.02).sum().backward()
        session.before_optimizer_step()
        counts.append(int((session.open == 0).sum()))
        sets.append(tuple(session.open.tolist()))
        assert session.is_fixed == (session.steps_done >= 40)
    assert counts == sorted(counts)
    assert counts[:1] == [0]
    assert counts[23:] == [4] * 27
    assert len(set(sets[24:39])) > 1, "gates trade places while the number stays"
    assert len(set(sets[39:])) == 1


def test_projection_shifts_all_parameters_alike():
    session = AutoAttention(target_sparsity=0.5).attach(tr.classifier(), steps=10)
    for start in (torch.linspace(0.1, 0.8, 8), torch.linspace(-0.8, -0.1, 8), torch.linspace(-0.35, 0.35, 8)):
        for closed in range(8):
            session.parameters.data = start.clone()
            session.project(closed)
            assert int((session.parameters <= 0).sum()) == closed
            shift = session.parameters.detach() - start
            torch.testing.assert_close(shift, shift[:1].expand(8))


def test_same_seed_same_plan_other_seed_other_plan(tmp_path):
    plans = []
    for run, seed in enumerate((1, 1, 2)):
        trainer = tr.trainer(tmp_path / str(run), AutoAttention(target_sparsity=0.5), seed=seed)
        trainer.train()
        plans.append(trainer.plan())
    assert plans[0] == plans[1]
    assert plans[0] != plans[2]


def test_a_penalty_that_closes_every_gate_stops_with_the_way_out(tmp_path):
    trainer = tr.trainer(tmp_path, AutoAttention(penalty=10.0), save_strategy="steps", save_steps=1, logging_steps=1)
    with pytest.raises(
        TrainingError, match=r"Every gate of the model was closed at step \d+.*Lower the penalty \(now 10"
    ):
        trainer.train()


def test_the_budget_keeps_the_sparsest_model_within_it(tmp_path):
    """Against a metric that is known: it falls by 0.1 with each closed gate."""
    model = tr.classifier()
    method = AutoAttention(max_drop=0.25, dense_share=0.1, penalty=0.2, checks=30)
    values = []

    def evaluate():
        values.append(1 - 0.1 * int((session.open == 0).sum()))
        return values[-1]

    session = method.attach(model, steps=60, evaluate=evaluate)
    for _ in range(60):
        model.train()
        session.start_step()
        model(**tr.batches(1)[0]).loss.backward()
        session.before_optimizer_step()
    assert min(values) < 0.75, "the search went beyond the budget"
    session.finish()
    assert session.plan().heads_removed == 2
    assert session.metrics()["budget_mark"] == 1.0
    assert session.metrics()["budget_value"] == pytest.approx(0.8)


def test_the_budget_restores_weights_and_gates_of_the_best_state():
    model = tr.classifier()
    scores = iter([1.0, 1.0, *[0.0] * 100])
    kept = []

    def evaluate():
        score = next(scores)
        if score == 1.0:
            kept.append((tr.weights(model), session.open.clone()))
        return score

    session = AutoAttention(max_drop=0.1, dense_share=0.2, penalty=0.2, checks=8).attach(
        model, steps=20, evaluate=evaluate
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session.follow(optimizer)
    for _ in range(20):
        model.train()
        optimizer.zero_grad()
        model(**tr.batches(1)[0]).loss.backward()
        optimizer.step()
    assert not tr.same(tr.weights(model), kept[-1][0])
    session.finish()
    assert tr.same(tr.weights(model), kept[-1][0])
    assert torch.equal(session.open, kept[-1][1])


def test_schedules_need_steps():
    model = tr.classifier()
    session = AutoAttention(target_sparsity=0.5).attach(model)
    for moment in (session.start_step, session.before_optimizer_step):
        with pytest.raises(MethodError, match=r"attach\(model, steps=...\)"):
            moment()
    with pytest.raises(MethodError, match=r"attach\(model, steps=...\)"):
        session.follow(torch.optim.SGD(model.parameters(), lr=0.1))
    session.detach()
    with pytest.raises(MethodError, match="No step is left"):
        AutoAttention(target_sparsity=0.5, dense_share=0.9).attach(model, steps=100)


def test_presets():
    assert AutoAttention().dense == 0.0
    assert AutoAttention(preset="paper").dense == 0.5
    assert AutoAttention(preset="paper").training_defaults["num_train_epochs"] == 8
    assert AutoAttention(preset="paper", dense_share=0.25).dense == 0.25


def test_evaluation_uses_the_hard_gates_of_training(tmp_path):
    """No gap between training and testing: the training forward has the same loss as the evaluation's."""
    model = tr.classifier()
    session = AutoAttention().attach(model)
    with torch.no_grad():
        session.parameters[:3] = -1.0
    session.open = session.hard()
    batch = tr.batches(1)[0]
    trained = model.train()(**batch).logits
    tested = model.eval()(**batch).logits
    assert torch.equal(trained, tested)
    small = trim(model, session.plan())
    assert_close(small(**batch).logits, tested)


def test_a_loop_has_its_dense_steps_too():
    session = AutoAttention(preset="paper").attach(tr.classifier(), steps=10)
    assert session.dense_until == 5
    assert session.is_dense


def test_an_attach_that_fails_leaves_the_model_free():
    model = tr.classifier()
    with pytest.raises(MethodError):
        AutoAttention(target_sparsity=0.5, dense_share=0.9).attach(model, steps=100)
    AutoAttention().attach(model)


@pytest.mark.parametrize("value", [float("nan"), "all"])
def test_budgets_that_cannot_be_judged(value):
    """A metric that is no number is refused; one that stays perfect does not lead to a model without attention."""
    model = tr.classifier()
    method = AutoAttention(max_drop=0.5, dense_share=0.1, penalty=1.0, checks=20)
    session = method.attach(model, steps=40, evaluate=lambda: np.float64(1.0 if value == "all" else value))

    def run():
        for _ in range(40):
            session.start_step()
            model.train()(**tr.batches(1)[0]).loss.backward()
            session.before_optimizer_step()
        session.finish()

    if value == "all":
        run()
        assert session.plan().heads_removed < 8
        torch.save(session.state_dict(), buffer := io.BytesIO())
        torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
    else:
        with pytest.raises(TrainingError, match="NaN at step"):
            run()
