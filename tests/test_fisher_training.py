"""Fisher at work: every kind of training loop, several speeds, resuming, ending early, a drop that is allowed."""

from __future__ import annotations

import copy

import pytest
import torch
import training as tr
import transformers as tf
import zoo
from close import assert_apart, assert_close
from tables import made_up

from attentrim import Control, Distillation, Fisher, Plan, trim
from attentrim.errors import MethodError, TrainingError
from attentrim.flops import flops
from attentrim.methods.callback import MethodCallback
from attentrim.methods.fisher import session as session_module

SPEED = {"cost": "flops", "speed_length": 16}


@pytest.fixture(autouse=True)
def _choices_every_other_step(monkeypatch):
    """Short runs have a ramp too."""
    monkeypatch.setattr(session_module, "LEAST_EVERY", 2)


def speed_of(model, plan):
    return flops(model, 8, 16) / flops(trim(model, plan), 8, 16)


@torch.no_grad()
def answers(model):
    was = model.training
    model.eval()
    found = model(**tr.batches(1, seed=9)[0]).logits
    model.train(was)
    return found


def assert_ends_as(model, session, asked):
    plan = session.plan()
    assert speed_of(model, plan) == pytest.approx(asked, rel=0.03)
    assert_close(answers(trim(model, plan)), answers(model), 1e-4)


# Every kind of loop


@pytest.mark.parametrize("asked", [1.3, 2.5])
def test_the_trainer_reaches_the_speed(asked, tmp_path):
    trainer = tr.trainer(tmp_path, Fisher(speedup=asked, **SPEED), max_steps=30)
    trainer.train()
    assert_ends_as(trainer.model, trainer.session, asked)
    found = trainer.session.results()
    assert found["speedup_asked"] == asked
    rows = found["layer_times"]["rows"]
    whole = found["layer_times"]["rest"] + sum(sum(row["after"].values()) for row in rows if row["after"])
    assert whole == pytest.approx(flops(trim(trainer.model, trainer.plan()), 8, 16) / 1e6, rel=1e-3)
    logged = [entry["speedup_by_table"] for entry in trainer.state.log_history if "speedup_by_table" in entry]
    assert logged == sorted(logged)
    assert logged[-1] == pytest.approx(asked, rel=0.03)


def test_trainer_stock_trainer_and_loop_agree(tmp_path):
    settings = {"lr_scheduler_type": "constant", "max_grad_norm": 0.0, "weight_decay": 0.0, "max_steps": 24}
    method = Fisher(speedup=1.6, dense_share=0.25, distill=False, **SPEED)
    ours, fed = tr.trainer(tmp_path / "a", method, **settings), []
    ours.model.register_forward_pre_hook(
        lambda module, _, kwargs: fed.append(kwargs) if module.training else None, with_kwargs=True
    )
    ours.train()
    assert_ends_as(ours.model, ours.session, 1.6)

    model = tr.classifier()
    session = method.attach(model, seed=42)
    stock = tr.trainer(tmp_path / "b", None, model, cls=tf.Trainer, callbacks=[session.callback()], **settings)
    stock.train()
    assert tr.same(tr.weights(ours.model), tr.weights(model))
    assert session.plan() == ours.plan()
    assert_ends_as(model, session, 1.6)

    model = tr.classifier()
    session = method.attach(model, steps=24, seed=42)
    session.follow(optimizer := torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0))
    for batch in fed:
        model.train()
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    session.finish()
    assert_ends_as(model, session, 1.6)
    assert session.plan() == ours.plan()


def test_gradient_accumulation_gives_the_same_run(tmp_path):
    found = []
    for size, parts in ((8, 1), (4, 2)):
        trainer = tr.trainer(
            tmp_path / str(parts),
            Fisher(speedup=1.5, **SPEED),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=parts,
            max_steps=12,
        )
        trainer.train()
        found.append((trainer.session.scores, trainer.session.switch_scores, trainer.plan()))
    for once, twice in zip(found[0][:2], found[1][:2], strict=True):
        assert_close(twice / once.max(), once / once.max(), 1e-2)
    assert found[0][2] == found[1][2]


# Several speeds


def test_one_training_leaves_a_model_of_each_speed(tmp_path, monkeypatch):
    masked, save = {}, MethodCallback._save_trimmed

    def look(callback, folder, model, plan, tokenizer):
        masked[folder.name] = answers(callback.session.model)
        save(callback, folder, model, plan, tokenizer)

    monkeypatch.setattr(MethodCallback, "_save_trimmed", look)
    method = Fisher(speedup="1.3,1.7,2.5", **SPEED)
    trainer = tr.trainer(tmp_path, method, tr.classifier(num_hidden_layers=3), max_steps=45)
    trainer.train()
    assert_ends_as(trainer.model, trainer.session, 2.5)
    assert list(masked) == ["speedup-1.3", "speedup-1.7"]
    plans = []
    for name, before in masked.items():
        model = tf.BertForSequenceClassification.from_pretrained(tmp_path / name)
        assert_close(answers(model), before, 1e-4)
        assert_apart(answers(model), answers(trainer.model))
        plans.append(Plan.load(tmp_path / name / "plan.json"))
        asked = float(name.partition("-")[2])
        assert flops(trainer.model, 8, 16) / flops(model, 8, 16) == pytest.approx(asked, rel=0.03)
    for early, late in zip(plans, [plans[1], trainer.plan()], strict=True):
        assert set(early.layers) <= set(late.layers), "what has gone stays gone"
        for kind in ("heads", "neurons"):
            for place, units in getattr(early, kind).items():
                assert place in late.layers or set(units) <= set(getattr(late, kind).get(place, ()))


STEPS = 30
"""Of which 10 are dense; the first speed is fixed at 15 and left at 20, the second fixed at 25."""
RESUMED = (4, 10, 13, 17, 20, 23, 27)


class SaveAt(tf.TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        control.should_save = state.global_step in RESUMED


def started(directory, method, seed=0):
    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    return tr.trainer(directory, copy.deepcopy(method), tr.classifier(seed, **dropout), max_steps=STEPS)


WITHOUT_A_BREAK = {
    "dense first": Fisher(speedup="1.3,1.8", **SPEED),
    "a drop": Fisher(max_drop=0.3, speedup="1.3,1.8", **SPEED),
    "with uniform": Fisher(speedup="1.3,1.8", prune="heads,neurons,layers,uniform", **SPEED),
}


@pytest.fixture(scope="module", params=WITHOUT_A_BREAK, ids=lambda name: name)
def whole(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_module, "LEAST_EVERY", 2)
        trainer = started(directory, WITHOUT_A_BREAK[request.param])
        trainer.add_callback(SaveAt())
        trainer.train()
    return trainer, directory


@pytest.mark.parametrize("step", RESUMED)
def test_a_resumed_run_is_the_uninterrupted_one(whole, step):
    trainer, directory = whole
    again = started(directory, trainer.method, seed=5)
    again.train(resume_from_checkpoint=str(directory / f"checkpoint-{step}"))
    assert again.plan() == trainer.plan()
    assert tr.same(tr.weights(again.model), tr.weights(trainer.model))
    assert again.session.speeds.measured == trainer.session.speeds.measured
    assert again.session.history.events == trainer.session.history.events
    assert again.session.remarks() == trainer.session.remarks()


def test_a_checkpoint_holds_all_that_a_choice_depends_on(tmp_path):
    """In the middle of a ramp, some gates being closed."""
    method = Fisher(speedup="1.5,2", dense_share=0.0, **SPEED)
    model = tr.classifier()
    session = method.attach(model, steps=40)
    session.follow(optimizer := torch.optim.SGD(model.parameters(), lr=0.1))
    for batch in tr.batches(8):
        model.train()
        model(**batch).loss.backward()
        optimizer.step()
    assert not torch.equal(session.open, session._stage_open)
    session.save(tmp_path)
    session.detach()
    again = method.attach(model, steps=40)
    again.load(tmp_path)
    for name in ("open", "off", "scores", "switch_scores", "_stage_open"):
        assert torch.equal(getattr(again, name), getattr(session, name)), name
    for name in ("cost", "_from_cost", "settled_stage", "left_stage", "steps_done", "stages", "stage"):
        assert getattr(again, name) == getattr(session, name), name
    assert again.plan() == session.plan()
    again.detach()


# Ending early


class StopAt(tf.TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.step


@pytest.mark.parametrize("step", [3, 10, 12, 17, 20, 22, 27])
def test_training_that_ends_early_ends_at_the_last_speed(step, tmp_path):
    method = Fisher(speedup="1.3,1.8", **SPEED)
    trainer = tr.trainer(tmp_path, method, max_steps=30, callbacks=[StopAt(step)])
    trainer.train()
    assert trainer.state.global_step == step
    assert_ends_as(trainer.model, trainer.session, 1.8)
    assert (tmp_path / "speedup-1.3" / "config.json").is_file()


def test_a_loop_that_ends_early_ends_at_the_last_speed():
    model = tr.classifier()
    session = Fisher(speedup=1.5, **SPEED).attach(model, steps=100)
    session.follow(optimizer := torch.optim.SGD(model.parameters(), lr=1e-3))
    model.train()
    model(**tr.batches(1)[0]).loss.backward()
    optimizer.step()
    session.finish()
    assert_ends_as(model, session, 1.5)


# A drop that is allowed


def with_drop(values, steps=30, stop=None, **settings):
    """Trained by hand; `values` are the metrics of the dense model and of each speed."""
    model = tr.classifier()
    seen, values = [], iter(values)

    def evaluate():
        seen.append((tr.weights(model), answers(model), session.plan()))
        return next(values)

    method = Fisher(max_drop=0.05, **{"speedup": "1.3,1.6,2", "dense_share": 0.2, **SPEED, **settings})
    session = method.attach(model, steps=steps, evaluate=evaluate)
    session.follow(optimizer := torch.optim.AdamW(model.parameters(), lr=1e-3))
    for batch in tr.batches(stop or steps, size=4):
        model.train()
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    session.finish()
    return model, session, seen


@pytest.mark.parametrize(
    ("values", "kept", "remark"),
    [
        ([0.9, 0.9, 0.88, 0.86], 3, "Kept the fastest model within 0.05 of the dense model"),
        ([0.9, 0.86, 0.88, 0.70], 2, "Kept the fastest model within 0.05"),
        ([0.9, 0.60, 0.88, 0.70], 2, "Kept the fastest model within 0.05"),
        ([0.9, 0.87, 0.80, 0.70], 1, "Kept the fastest model within 0.05"),
        ([0.9, 0.84, 0.84, 0.84], 0, "Nothing was removed: none of the speeds tried stayed within 0.05"),
    ],
)
def test_the_fastest_model_within_a_drop_is_kept(values, kept, remark):
    model, session, seen = with_drop(values)
    assert len(seen) == 4
    weights, before, plan = seen[kept]
    assert tr.same(tr.weights(model), weights)
    assert session.plan() == plan
    assert_close(answers(model), before)
    assert_close(answers(trim(model, plan)), before, 1e-4)
    assert session.keeps_best
    (said,) = [line for line in session.remarks() if "dense model on held-out" in line]
    assert remark in said
    assert f"dense {values[0]:.4f}, 1.3 x {values[1]:.4f}" in said
    assert session.results()["speedup_asked"] == [1.0, 1.3, 1.6, 2.0][kept]
    assert bool(plan) == bool(kept)
    if kept:
        assert speed_of(model, plan) == pytest.approx([1.3, 1.6, 2.0][kept - 1], rel=0.03)


@pytest.mark.parametrize("stop", [3, 6, 10, 18])
def test_a_drop_is_judged_though_training_ends_early(stop):
    model, session, seen = with_drop([0.9, 0.88, 0.87, 0.1], stop=stop)
    weights, before, plan = seen[2]
    assert session.plan() == plan
    assert tr.same(tr.weights(model), weights)
    assert_close(answers(model), before)
    assert speed_of(model, plan) == pytest.approx(1.6, rel=0.03)


def test_a_metric_is_needed_and_must_be_a_number():
    with pytest.raises(TrainingError, match="that max_drop is judged by is NaN at step 6"):
        with_drop([float("nan")])
    model = tr.classifier()
    session = Fisher(max_drop=0.1, dense_share=0.0, **SPEED).attach(model, steps=30)
    with pytest.raises(MethodError, match="max_drop is judged by a metric"):
        session.start_step()


# The teacher


def test_the_start_model_teaches_where_no_step_is_dense(tmp_path):
    model = tr.classifier()
    before = tr.weights(model)
    trainer = tr.trainer(tmp_path, Fisher(dense_share=0.0, speedup=1.5, **SPEED), model, max_steps=10)
    trainer.train()
    assert tr.same(tr.weights(trainer.teacher), before)
    assert not tr.same(tr.weights(trainer.model), before)
    assert trainer.distillation == Distillation(logits=1.0, hidden=1.0, label_weight=0.5)


def test_dense_steps_make_the_teacher(tmp_path):
    trainer = tr.trainer(tmp_path, Fisher(dense_share=0.5, speedup=1.5, **SPEED), max_steps=20)
    trainer.train()
    plain = tr.trainer(tmp_path / "plain", None, max_steps=10)
    plain.train()
    assert tr.same(tr.weights(trainer.teacher), tr.weights(plain.model))


def test_a_teacher_of_ones_own_and_none(tmp_path):
    given = tr.classifier(seed=3)
    trainer = tr.trainer(tmp_path, Fisher(speedup=1.5, **SPEED), teacher=given)
    assert trainer.teacher is given
    assert trainer.distillation == Fisher().default_distillation
    for dense_share in (0.0, 0.3):
        method = Fisher(speedup=1.5, distill=False, dense_share=dense_share, **SPEED)
        trainer = tr.trainer(tmp_path, method, max_steps=10)
        trainer.train()
        assert trainer.teacher is None
        assert trainer.distillation is None
    own = Distillation(logits=3.0)
    trainer = tr.trainer(tmp_path, Fisher(speedup=1.5, dense_share=0.2, **SPEED), distillation=own)
    assert trainer.distillation is own


# What does nothing goes first


def planted():
    """Layer 1 passes on what it gets; heads 1 and 2 of site 0 and neurons 5 to 20 of block 2 add nothing."""
    model = tr.classifier(num_hidden_layers=3)
    layers = model.bert.encoder.layer
    with torch.no_grad():
        for dense in (layers[1].attention.output.dense, layers[1].output.dense):
            dense.weight.zero_()
            dense.bias.zero_()
        layers[0].attention.output.dense.weight[:, 6:18] = 0
        layers[2].output.dense.weight[:, 5:21] = 0
    useless = Plan.of(model, layers=[1], heads={0: [1, 2]}, neurons={2: range(5, 21)})
    return model, useless


@pytest.fixture
def elsewhere(tmp_path):
    """Settings for the speed of `useless` by a table in which layers cost something of their own."""
    model, useless = planted()
    table = made_up(model, rest=20.0)
    table.save(tmp_path / "table.json")
    asked = 0.999 * table.dense / table.cost(useless)
    return {"speedup": asked, "speed_table": str(tmp_path / "table.json"), "speed_elsewhere": True}


@pytest.mark.parametrize("labels", [True, False], ids=["labels", "own answers"])
def test_what_does_nothing_goes_first_without_training(labels, elsewhere):
    model, useless = planted()
    before = answers(model)
    plan = Fisher(use_labels=labels, **elsewhere).search(model, tr.batches(2))
    assert plan.removed == useless.removed
    assert_close(answers(trim(model, plan)), before, 1e-4)


def test_what_does_nothing_goes_first_in_training(elsewhere):
    model, useless = planted()
    before = answers(model)
    session = Fisher(dense_share=0.0, **elsewhere).attach(model, steps=40)
    session.follow(optimizer := torch.optim.SGD(model.parameters(), lr=0.0))
    for batch in tr.batches(40, size=4):
        model.train()
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    session.finish()
    assert session.plan().removed == useless.removed
    assert_close(answers(model), before, 1e-4)
    assert_close(answers(trim(model, session.plan())), before, 1e-4)
    assert "was not measured: run attentrim bench there" in session.remarks()[0]


def test_of_what_does_nothing_no_more_goes_than_must():
    """Nothing in this model reaches the loss."""
    model = tr.classifier()
    torch.nn.init.zeros_(model.classifier.weight)
    plan = Fisher(speedup=1.5, **SPEED).search(model, tr.batches(1))
    assert speed_of(model, plan) == pytest.approx(1.5, rel=0.03)


def test_a_plan_without_training_is_as_fast_as_asked():
    model = tr.classifier(num_hidden_layers=4)
    before = tr.weights(model)
    plans = [Fisher(speedup=1.8, rearrange=on, **SPEED).search(model, tr.batches(2)) for on in (False, True)]
    for plan in plans:
        assert speed_of(model, plan) == pytest.approx(1.8, rel=0.03)
    assert plans[0].heads_kept == plans[1].heads_kept
    assert plans[0].neurons_kept == plans[1].neurons_kept
    assert tr.same(tr.weights(model), before)


@pytest.mark.parametrize("name", ["distilbert", "deberta-v2", "modernbert", "clip", "wav2vec2", "llama", "t5"])
def test_a_plan_without_labels_for_other_architectures(name):
    """Without a task head, nothing at all would be left of some of them."""
    model, batch = zoo.build(name, layers=3), zoo.inputs(name)
    plan = Fisher(speedup=1.5, use_labels=False, **SPEED).search(model, [batch])
    assert speed_of(model, plan) == pytest.approx(1.5, rel=0.03)
    with Control(model) as control, torch.no_grad():
        control.apply(plan)
        masked = zoo.output(name, model, batch)
    with torch.no_grad():
        assert_close(zoo.output(name, trim(model, plan), batch), masked, 1e-3)
