"""Methods over kinds: heads, neurons or both, to a share of heads, parameters or FLOPs."""

from __future__ import annotations

import pytest
import torch
import training as tr

from attentrim import HISP, L0, AutoAttention, Plan, RandomHeads, plan_cost, trim
from attentrim.errors import MethodError
from attentrim.methods.units import LENGTH
from attentrim.structures import STRUCTURES

GATED = (AutoAttention, L0, HISP, RandomHeads)


def layers_cost(model, plan, measure):
    """What heads and neurons cost before and after, as `plan_cost` counts it; the rest of the model is left out."""
    everything = {
        kind: {place.index: range(STRUCTURES[kind].units(place.shape)) for place in STRUCTURES[kind].find(model)}
        for kind in ("heads", "neurons")
    }
    before, after = plan_cost(model, plan, length=LENGTH)
    _, bare = plan_cost(model, Plan.of(model, **everything), length=LENGTH)
    return [getattr(cost, measure) - getattr(bare, measure) for cost in (before, after)]


@pytest.mark.parametrize("measure", ["parameters", "flops"])
@pytest.mark.parametrize("method", GATED)
def test_a_target_is_a_share_of_what_was_asked(method, measure, tmp_path):
    """Counted by running the trimmed skeleton, not by the method's own sums; a head is 1/13 of all there is here."""
    chosen = method(prune="heads,neurons", share_of=measure, target_sparsity=0.4)
    trainer = tr.trainer(tmp_path, chosen, model=tr.classifier(max_position_embeddings=130))
    trainer.train()
    plan = trainer.plan()
    before, after = layers_cost(trainer.model, plan, measure)
    assert 1 - after / before == pytest.approx(0.4, abs=0.06)
    assert plan.heads or plan.neurons
    small = trim(trainer.model, plan)
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in trainer.model.parameters())


@pytest.mark.parametrize("method", GATED)
def test_neurons_alone_leave_all_heads(method, tmp_path):
    trainer = tr.trainer(tmp_path, method(prune="neurons", target_sparsity=0.25))
    trainer.train()
    plan = trainer.plan()
    assert not plan.heads
    assert sum(plan.neurons_kept) == 48
    line = trainer.session.record()
    assert line["neurons_open"] == plan.neurons_kept
    assert "gates" not in line


def test_weights_are_costs_in_units_of_a_head():
    session = AutoAttention(prune="heads,neurons", share_of="parameters").attach(tr.classifier())
    # a head: four projections of 24 x 6; a neuron: two of 24
    assert session.weights.unique().tolist() == pytest.approx([48 / 576, 1.0])
    assert session.weights[:8].tolist() == [1.0] * 8
    assert session.whole_amount == pytest.approx(8 + 64 * 48 / 576)
    session.detach()


def test_autoattention_learns_by_gradient_per_cost():
    """One step by hand: W - lr (dF/dG / cost + mu) softplus(W), with the gradient by finite differences."""
    model = tr.classifier().eval()
    (batch,) = tr.batches(1)
    session = AutoAttention(prune="heads,neurons", penalty=0.01, gate_lr=0.5).attach(model, steps=10)
    before = session.parameters.clone()
    with torch.enable_grad():
        model.train()
        model(**batch).loss.backward()
    model.eval()
    session.before_optimizer_step()
    moved = before - session.parameters
    for gate in (2, 8 + 5, 8 + 40):
        losses = []
        for sign in (1, -1):
            gates = torch.ones(session.count)
            gates[gate] += sign * 1e-2
            with session.gates_set(gates), torch.no_grad():
                losses.append(float(model(**batch).loss.double()))
        slope = (losses[0] - losses[1]) / 2e-2
        wanted = (
            0.5 * (slope / float(session.weights[gate]) + 0.01) * float(torch.nn.functional.softplus(before[gate]))
        )
        assert float(moved[gate]) == pytest.approx(wanted, rel=0.05, abs=2e-4)
    session.detach()


def test_hisp_ranks_neurons_by_their_gradient_per_cost():
    """Brute force over single samples."""
    model, (batch,) = tr.classifier(), tr.batches(1, size=4)
    session = HISP(prune="heads,neurons", share_of="parameters").attach(model, calibration=[batch])
    scores = session.scores()
    model.eval()
    total = torch.zeros(session.count)
    for row in range(4):
        gates = torch.ones(session.count, requires_grad=True)
        with session.gates_set(gates):
            model(**{name: value[row : row + 1] for name, value in batch.items()}).loss.backward()
        total += gates.grad.abs() / 4
    parts = (total / session.weights).split([4, 4, 32, 32])
    wanted = torch.cat([part / part.square().mean().sqrt() for part in parts])
    torch.testing.assert_close(scores, wanted, atol=1e-4, rtol=1e-3)
    session.detach()


@pytest.mark.parametrize("method", [AutoAttention, L0, HISP])
def test_a_run_over_both_kinds_goes_on_where_it_was(method, tmp_path):
    settings = {"prune": "heads,neurons", "target_sparsity": 0.5}
    whole = tr.trainer(tmp_path / "whole", method(**settings), save_strategy="steps", save_steps=10)
    whole.train()
    again = tr.trainer(tmp_path / "again", method(**settings), save_strategy="no")
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-10"))
    assert again.plan() == whole.plan()
    assert tr.same(tr.weights(again.model), tr.weights(whole.model))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prune": "neurons", "share_of": "heads"}, "With prune=neurons, set share_of"),
        ({"prune": ""}, "prune names kinds of structure, each once"),
        ({"prune": "heads,heads"}, "each once"),
        ({"share_of": "layers"}, "must be one of heads, parameters, flops"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(MethodError, match=message):
        AutoAttention(**settings)


@pytest.mark.parametrize("kind", ["neuron", "layers"])
def test_a_kind_that_cannot_be_gated_one_by_one(kind):
    with pytest.raises(MethodError, match=f"Unknown kind of structure to prune '{kind}'"):
        RandomHeads(prune=kind).attach(tr.classifier())
