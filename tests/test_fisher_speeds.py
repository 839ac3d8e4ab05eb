"""Fisher: when which speed is reached, and how a budget is corrected until it is."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
import training as tr
from hypothesis import given
from hypothesis import strategies as st
from tables import made_up
from transformers import get_scheduler

from attentrim import Fisher
from attentrim.errors import MethodError
from attentrim.methods.fisher.speeds import NEAR, TRIES, Speeds
from attentrim.methods.fisher.stages import stages_of
from attentrim.schedules import restarted

# The schedule


@given(st.integers(1, 4), st.integers(0, 300), st.integers(12, 3000), st.floats(0.01, 1.0))
def test_stages_cover_all_steps_in_order(count, first, more, ramp_share):
    speedups = [1.5, 2.0, 3.0, 4.0][:count]
    stages = stages_of(speedups, first, first + more, ramp_share)
    assert [stage.speedup for stage in stages] == speedups
    assert stages[0].start == first
    assert stages[-1].end == first + more
    assert all(before.end == after.start for before, after in itertools.pairwise(stages))
    lengths = [stage.end - stage.start for stage in stages]
    assert max(lengths) - min(lengths) <= 1
    for stage in stages:
        assert stage.start <= stage.ramp_start <= stage.ramp_end < stage.end
        assert stage.ramp_end - stage.start <= round(ramp_share * (stage.end - stage.start))
        done = [stage.progress(step) for step in range(stage.start, stage.end + 1)]
        assert done == sorted(done)
        assert stage.progress(stage.ramp_end) == (1.0 if stage.ramp_end > stage.ramp_start else 0.0)
        assert stage.progress(stage.start) == 0.0


def test_half_of_the_way_is_mostly_done():
    (stage,) = stages_of([2.0], 0, 1000, 0.55)
    assert (stage.ramp_start, stage.ramp_end) == (50, 550)
    assert stage.progress(300) == pytest.approx(1 - 0.5**3)


@pytest.mark.parametrize("name", ["linear", "cosine", "constant_with_warmup"])
@pytest.mark.parametrize("starts", [[10], [10, 25], [4, 8, 30]])
def test_learning_rates_start_again_like_schedules_of_their_own(name, starts, tmp_path):
    def optimizer():
        return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)

    def rates(scheduler, stepper, steps):
        found = []
        for _ in range(steps):
            found.append(scheduler.get_last_lr()[0])
            stepper.step()
            scheduler.step()
        return found

    args = tr.arguments(tmp_path, lr_scheduler_type=name, warmup_steps=2)
    own = optimizer()
    found = rates(restarted(args, own, starts, 40), own, 40)
    bounds, wanted = [0, *starts, 40], []
    for start, end in itertools.pairwise(bounds):
        own = optimizer()
        wanted += rates(get_scheduler(name, own, 2, end - start), own, end - start)
    assert found == pytest.approx(wanted)


def test_the_learning_rate_starts_again_for_each_speed(tmp_path):
    method = Fisher(speedup="1.2,1.4", cost="flops", dense_share=0.2, distill=False)
    assert method.restarts == pytest.approx([0.2, 0.6])
    trainer = tr.trainer(tmp_path, method, logging_steps=1)
    trainer.train()
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    wanted = [1e-3 * (1 - step / 4) for step in range(4)] + 2 * [1e-3 * (1 - step / 8) for step in range(8)]
    assert rates == pytest.approx(wanted)
    assert [stage.start for stage in trainer.session.stages] == [4, 12]


# Reaching a speed


class Reaching:
    """A model that is never as fast as its table says; every budget can be met."""

    def __init__(self, monkeypatch, true_speed):
        self.speeds, self.budgets, self.measured = Speeds(Fisher(), tr.classifier()), [], []
        self.speeds._table = made_up(self.speeds.model)
        self.true_speed = true_speed
        monkeypatch.setattr(self.speeds, "speed", self.speed)

    def choose(self, budget):
        self.budgets.append(budget)
        return SimpleNamespace(cost=budget)

    def speed(self, choice, model):
        self.measured.append(self.true_speed(self.speeds.table.dense / choice.cost))
        return self.measured[-1]

    def reach(self, asked):
        choice = self.speeds.reach(asked, self.choose, lambda choice: choice)
        return choice, self.measured[self.budgets.index(choice.cost)]


@pytest.mark.parametrize(
    "true_speed",
    [lambda x: x, lambda x: 0.8 * x, lambda x: 1.3 * x, lambda x: x**0.7, lambda x: 1 + 0.6 * (x - 1)],
    ids=["true", "slower", "faster", "bent", "fixed part"],
)
@pytest.mark.parametrize("asked", [1.5, 3.0])
def test_the_budget_is_corrected_until_the_model_is_as_fast_as_asked(true_speed, asked, monkeypatch):
    reaching = Reaching(monkeypatch, true_speed)
    _, speed = reaching.reach(asked)
    assert speed == pytest.approx(asked, rel=NEAR)
    assert reaching.speeds.measured == {asked: speed}
    assert len(reaching.measured) <= TRIES
    assert not reaching.speeds.remarks()


def test_of_noisy_measurements_the_nearest_is_taken(monkeypatch):
    noise = iter([1.30, 0.80, 1.06, 0.90, 1.20, 0.85, 1.0, 1.0])
    reaching = Reaching(monkeypatch, lambda x: 2.0 * next(noise))
    choice, speed = reaching.reach(2.0)
    assert len(reaching.measured) == TRIES
    assert speed == pytest.approx(2.12)
    assert choice.cost == reaching.budgets[2]
    assert reaching.speeds.remarks() == ["Requested 2 times as fast; the closest possible was 2.12."]


def test_what_a_table_knows_of_itself_is_heeded_at_once(monkeypatch):
    reaching = Reaching(monkeypatch, lambda x: x / 1.25)
    reaching.speeds._table = made_up(reaching.speeds.model, checks=((1.25, 1.0), (2.5, 2.0), (5.0, 4.0)))
    reaching.reach(2.0)
    assert len(reaching.measured) == 1


def test_where_nothing_fits_any_more_the_nearest_so_far_is_it(monkeypatch):
    reaching = Reaching(monkeypatch, lambda x: 0.9 * min(x, 2.0))
    least = reaching.speeds.table.dense / 2.05
    every = reaching.choose
    reaching.choose = lambda budget: every(budget) if budget >= least else None
    _, speed = reaching.reach(2.0)
    assert speed == pytest.approx(1.8)
    reaching.choose = lambda budget: None
    with pytest.raises(MethodError, match="No smaller version of this model is 3 times as fast"):
        reaching.speeds.reach(3.0, reaching.choose, lambda choice: choice)


def test_a_table_of_elsewhere_is_believed(monkeypatch):
    speeds = Speeds(Fisher(speed_table="there.json", speed_elsewhere=True), tr.classifier())
    speeds._table = made_up(speeds.model)
    monkeypatch.setattr("attentrim.methods.fisher.speeds.speedup_of", None)
    choice = SimpleNamespace(cost=1.0)
    assert speeds.reach(2.0, lambda budget: choice, lambda _: None) is choice
    assert "was not measured: run attentrim bench there" in speeds.remarks()[0]
