"""The life of a step: what a method does at which moment, under a callback, under follow(), and by hand."""

from __future__ import annotations

import io

import pytest
import torch
import training as tr
import transformers as tf
from torch.utils._python_dispatch import TorchDispatchMode

from attentrim import (
    HISP,
    L0,
    SMP,
    AttentionDropout,
    AttentionLayerDrop,
    AutoAttention,
    DropHead,
    LayerDrop,
    RandomHeads,
    ScheduledDropout,
)
from attentrim.errors import MethodError
from attentrim.methods.base import DataNeeds, Method

HEAVY = {
    "hisp": HISP(dense_share=0.0, calibration_samples=32),
    "smp": SMP(search_steps=2, map_length=8),
    "budget": AutoAttention(max_drop=0.5, dense_share=0.1, checks=4),
    "l0": L0(target_sparsity=0.5, settle_share=0.4),
}
"""Methods that look at data within a step, and the step at which they first do."""
FIRST_LOOK = {"hisp": 0, "smp": 0, "budget": 1, "l0": 6}
LIGHT = [
    AutoAttention(),
    AutoAttention(target_sparsity=0.5),
    RandomHeads(),
    AttentionDropout(),
    AttentionLayerDrop(),
    LayerDrop(),
    DropHead(),
    ScheduledDropout(),
]


class Forwards:
    """Counts the forwards of a model, of its inner model too."""

    def __init__(self, model):
        self.count = 0
        model.base_model.register_forward_pre_hook(self)

    def __call__(self, *_):
        self.count += 1

    def during(self, action):
        before = self.count
        action()
        return self.count - before


def attached(method, steps=10):
    model = tr.classifier()
    batches = tr.batches(2)

    def evaluate():
        model.eval()(**batches[0])
        model.train()
        return 1.0

    forwards = Forwards(model)
    session = method.attach(model, steps=steps, calibration=batches, evaluate=evaluate)
    session.shows_progress = False
    return model, session, forwards


@pytest.mark.parametrize("name", HEAVY)
def test_the_heavy_work_is_done_when_a_step_starts_and_at_no_other_moment(name):
    model, session, forwards = attached(HEAVY[name])
    batch = tr.batches(1)[0]
    looked = []
    for step in range(10):
        if forwards.during(session.start_step):
            looked.append(step)
        assert forwards.during(session.start_step) == 0, "a second call does nothing"
        assert forwards.during(lambda: session.before_forward(training=True)) == 0
        assert forwards.during(lambda: model.train()(**batch).loss.backward()) == 1
        assert forwards.during(session.before_optimizer_step) == 0
        assert forwards.during(lambda: session.after_optimizer_step(None)) == 0
    assert looked[0] == FIRST_LOOK[name]
    assert len(looked) == (5 if name == "budget" else 1)


@pytest.mark.parametrize("method", LIGHT, ids=lambda method: method.name)
def test_methods_that_look_at_nothing_run_no_forward_of_their_own(method):
    model, session, forwards = attached(method)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert forwards.during(lambda: session.follow(optimizer)) == 0
    for _ in range(10):
        model.train()(**tr.batches(1)[0]).loss.backward()
        optimizer.step()
    session.finish()
    assert forwards.count == 10


def test_begin_is_light_so_that_a_state_can_be_loaded_before_anything_is_chosen():
    _, session, _ = attached(HEAVY["hisp"])
    session.start_step()
    torch.save(session.state_dict(), buffer := io.BytesIO())
    _, other, forwards = attached(HEAVY["hisp"])
    assert forwards.count == 0
    other.load_state_dict(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True))
    other.start_step()
    assert forwards.count == 0, "what was chosen is not chosen again"
    assert torch.equal(other.open, session.open)


class Journal:
    """Notes the moments of a session's steps as they come."""

    MOMENTS = ("begin", "start_step", "before_optimizer_step", "after_optimizer_step", "finish")

    def __init__(self, session):
        self.lines = []
        for name in self.MOMENTS:
            setattr(session, name, self._noting(name, getattr(session, name)))

    def _noting(self, name, inner):
        def noted(*args, **kwargs):
            self.lines.append(name)
            return inner(*args, **kwargs)

        return noted


STEP = ["start_step", "before_optimizer_step", "after_optimizer_step"]


@pytest.mark.parametrize("parts", [1, 2])
def test_the_callback_calls_each_moment_once_per_optimiser_step(parts, tmp_path):
    model = tr.classifier()
    session = RandomHeads().attach(model)
    journal = Journal(session)
    settings = {"max_steps": 3, "gradient_accumulation_steps": parts, "callbacks": [session.callback()]}
    tr.trainer(tmp_path, None, model, cls=tf.Trainer, **settings).train()
    assert journal.lines == ["begin", *STEP * 3, "finish"]


def test_our_trainer_calls_them_in_the_same_order(tmp_path):
    trainer = tr.trainer(tmp_path, RandomHeads(), max_steps=3)
    journal = Journal(trainer.session)
    trainer.train()
    assert journal.lines == ["begin", *STEP * 3, "finish"]


@pytest.mark.parametrize("steps", [3, None])
def test_follow_starts_the_first_step_at_once_and_none_after_the_last(steps):
    model = tr.classifier()
    session = RandomHeads().attach(model, steps=steps)
    journal = Journal(session)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session.follow(optimizer)
    assert journal.lines == ["start_step"]
    for _ in range(3):
        model.train()(**tr.batches(1)[0]).loss.backward()
        optimizer.step()
    assert journal.lines == [*STEP * 3, *(["start_step"] if steps is None else [])]
    assert session.steps_done == 3


def test_a_followed_step_starts_with_the_weights_of_the_last():
    """HISP, scored when the dense steps are done: as from the weights that they left."""
    model, batches = tr.classifier(), tr.batches(2)
    session = HISP(dense_share=0.5).attach(model, steps=4, calibration=batches)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    session.follow(optimizer)
    for _ in range(2):
        assert session.judged is None
        optimizer.zero_grad()
        model.train()(**batches[0]).loss.backward()
        optimizer.step()
    twin = tr.classifier()
    twin.load_state_dict(model.state_dict())
    expected = HISP().attach(twin, calibration=batches).scores()
    assert torch.equal(session.judged, expected)


@pytest.mark.parametrize(
    "method", [HISP(rounds=2, dense_share=0.3), RandomHeads(dense_share=0.3)], ids=["hisp", "random"]
)
def test_methods_that_choose_agree_under_both_trainers_and_in_a_loop(method, tmp_path):
    settings = {"lr_scheduler_type": "constant", "max_grad_norm": 0.0, "weight_decay": 0.0, "max_steps": 12}
    ours = tr.trainer(tmp_path / "a", method, **settings)
    calibration = list(ours.session.calibration) if ours.session.calibration else None
    fed = []
    ours.model.register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs) if module.training else None, with_kwargs=True
    )
    ours.train()
    assert len(fed) == 12

    model = tr.classifier()
    session = method.attach(model, seed=42, calibration=calibration)
    tr.trainer(tmp_path / "b", None, model, cls=tf.Trainer, callbacks=[session.callback()], **settings).train()
    assert tr.same(tr.weights(ours.model), tr.weights(model))
    assert session.history.events == ours.session.history.events

    model = tr.classifier()
    session = method.attach(model, steps=12, seed=42, calibration=calibration)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    session.follow(optimizer)
    for batch in fed:
        model.train()(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    session.finish()
    assert session.plan() == ours.plan()
    assert session.history.events == ours.session.history.events


def test_gates_of_passes_over_data_hold_for_the_model_and_its_parts_and_are_taken_back():
    model, session, _ = attached(RandomHeads(target_sparsity=0.25))
    session.start_step()
    batch = tr.batches(1)[0]
    ids = {"input_ids": batch["input_ids"]}

    def answers():
        with torch.no_grad():
            return model.eval().bert(**ids).last_hidden_state, model(**batch).logits

    before = answers()
    half = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 0])
    with session.gates_set(half):
        closed = answers()
        with session.gates_set(None):
            whole = answers()
        again = answers()
    after = answers()
    session.detach()
    plain = answers()
    for one, other in ((before, after), (closed, again), (whole, plain)):
        assert all(torch.equal(first, second) for first, second in zip(one, other, strict=True))
    for one, other in ((before, closed), (closed, whole), (whole, before)):
        assert not any(torch.equal(first, second) for first, second in zip(one, other, strict=True))


# What a step costs


class Operations(TorchDispatchMode):
    """Counts tensor operations that compute something: on a GPU, kernel launches."""

    FREE = ("view", "split", "detach", "empty", "select", "slice", "alias", "as_strided", "expand", "unsqueeze")

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if not name.startswith(self.FREE):
            self.names.append(name)
        if name in ("_local_scalar_dense", "nonzero", "item"):
            raise AssertionError(f"{name} waits for the device")
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("method", "most"),
    [
        (AutoAttention(), 4),  # penalty, slope, update, gates
        (AutoAttention(backward="linear"), 4),
        (AutoAttention(target_sparsity=0.5), 12),  # those, a sort, a common shift
    ],
    ids=["free", "linear", "target"],
)
def test_a_step_of_autoattention_is_few_operations(method, most):
    model, session, _ = attached(method, steps=40)
    for _ in range(12):
        session.start_step()
        model.train()(**tr.batches(1)[0]).loss.backward()
        with Operations() as forward:
            session.before_forward(training=True)
        with Operations() as step:
            session.before_optimizer_step()
        assert forward.names == ["clone", "_unsafe_view"]  # one value per feature, for all sites at once
        assert len(step.names) <= most, step.names


# Data


def test_methods_declare_the_data_that_they_need():
    assert Method().data == RandomHeads().data == AutoAttention().data == DataNeeds()
    assert HISP(calibration_samples=7).data == DataNeeds(calibration=7)
    assert L0().data.calibration == 512
    assert SMP().data.calibration == 4096
    assert AutoAttention(max_drop=0.1, holdout_share=0.2).data == DataNeeds(holdout=0.2)
    with pytest.raises(MethodError, match="rewards must be one of train_split, dev, noisy_train"):
        DataNeeds(rewards="test")


class Needy(RandomHeads):
    """Random heads that want data, of which they do nothing."""

    def __init__(self, **needs):
        super().__init__()
        self.needs = needs

    @property
    def data(self):
        return DataNeeds(**self.needs)


def test_the_trainer_provides_what_a_method_declares(tmp_path):
    def session(**needs):
        return tr.trainer(tmp_path, Needy(**needs)).session

    bare = session()
    assert bare.calibration is bare.evaluate is bare.held_out is None
    seen = session(calibration=24)
    assert sum(len(batch["labels"]) for batch in seen.calibration) == 24
    split = session(holdout=0.25, rewards="train_split")
    assert len(split.held_out) == 16
    assert 0 <= split.evaluate() <= 1
    assert len(session(rewards="dev").held_out) == 32
    noisy, clean = session(rewards="noisy_train", noise=0.5), session(rewards="noisy_train")
    assert len(noisy.held_out) == 64
    (corrupted,), (plain,) = noisy.held_out.draw(16), clean.held_out.draw(16)
    assert 0.2 < float((corrupted["input_ids"] != plain["input_ids"]).float().mean()) < 0.6
    assert session(rewards="train_split").held_out is None, "nothing was held out"
    trainer = tr.trainer(tmp_path, Needy(holdout=0.25))
    assert len(trainer.train_dataset) == 48


def test_a_search_asks_for_the_data_that_is_declared():
    assert RandomHeads().search(tr.classifier()).heads_removed == 4
    with pytest.raises(MethodError, match=r"HISP looks at data: search\(model, calibration=...\)"):
        HISP().search(tr.classifier())


# States of version 0.1


def test_a_state_of_version_0_1_is_understood():
    _, session, _ = attached(AutoAttention())
    state = session.state_dict()
    old = {name: value for name, value in state.items() if name not in ("steps_done", "gate_lr")}
    old |= {"taken": 4, "optimizer": {"state": {}, "param_groups": [{"lr": 0.3}]}}
    old["history"] = {"events": [(2, 1, False)], "taken": 1}
    session.load_state_dict(old)
    assert (session.steps_done, session.gate_lr) == (4, 0.3)
    assert session.record()["closed"] == []


def test_plans_say_why():
    plan = RandomHeads().search(tr.classifier(), seed=3)
    assert plan.made_by == {
        "method": "random-heads",
        "settings": {"target_sparsity": 0.5, "dense_share": None, "prune": "heads", "share_of": None},
        "seed": 3,
        "step": 0,
        "reason": "Removed 50% of all heads: those that were chosen at random.",
    }
