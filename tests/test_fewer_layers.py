"""FewerLayers: which layers stay, training as the trimmed model trains, distillation, every kind of loop, resuming."""

from __future__ import annotations

import itertools

import pytest
import torch
import training as tr
import transformers as tf
import zoo
from hypothesis import given
from hypothesis import strategies as st

from attentrim import Distillation, FewerLayers, Plan, trim
from attentrim.errors import MethodError, UnsupportedModelError

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
CONSTANT = {"lr_scheduler_type": "constant", "max_grad_norm": 0.0, "weight_decay": 0.0}
DENSE_FIRST = FewerLayers(keep="every-second", dense_share=0.3)


def classifier(seed=0, **more):
    return tr.classifier(seed, num_hidden_layers=4, **more)


# Which layers stay


def test_six_of_twelve_are_those_of_distilbert():
    assert FewerLayers(keep="every-second", count=6).kept(12) == [0, 2, 4, 7, 9, 11]
    assert FewerLayers(keep="every-second").kept(12) == [0, 2, 4, 7, 9, 11]
    assert FewerLayers().kept(12) == FewerLayers(keep="lowest").kept(12) == [0, 1, 2, 3, 4, 5]
    assert FewerLayers(keep="every-second").kept(5) == [0, 2, 4]
    assert FewerLayers(keep="every-second", count=2).kept(5) == [0, 4]
    assert FewerLayers(keep="every-second", count=1).kept(5) == [0]


@given(st.integers(2, 24), st.integers(2, 24))
def test_layers_are_spread_evenly_from_first_to_last(layers, count):
    count = min(count, layers)
    kept = FewerLayers(keep="every-second", count=count).kept(layers)
    gaps = [after - before for before, after in itertools.pairwise(kept)]
    assert (kept[0], kept[-1], len(kept)) == (0, layers - 1, count)
    assert min(gaps) >= 1
    assert max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize("keep", ["every-second", "lowest"])
@pytest.mark.parametrize(
    "name", ["bert", "mpnet", "modernbert", "llama", "gemma3_text", "smollm3", "bart", "t5", "clip"]
)
def test_each_stack_of_a_model_keeps_as_many(name, keep):
    """The places are those of each stack; the model that skips layers is the one without them."""
    model, batch = zoo.build(name, layers=4), zoo.inputs(name)
    removed = [1, 2] if keep == "every-second" else [2, 3]
    if name in ("bart", "t5", "clip"):
        removed += [layer + 4 for layer in removed]
    session = FewerLayers(count=2, keep=keep).attach(model)
    plan = session.plan()
    assert list(plan.removed_of("layers")) == removed
    with torch.no_grad():
        masked = zoo.output(name, model, batch)
        session.detach()
        torch.testing.assert_close(zoo.output(name, trim(model, plan).eval(), batch), masked, rtol=1e-5, atol=1e-5)


def test_it_plans_without_data_or_training():
    plan = FewerLayers(keep="lowest", dense_share=0.5).search(classifier())
    assert list(plan.removed_of("layers")) == [2, 3]
    assert plan.made_by["reason"].startswith("Kept half of the layers: the lowest ones.")
    assert "3 layers: spread evenly from the first to the last" in FewerLayers(keep="every-second", count=3).reason


# Training


@pytest.mark.parametrize("keep", ["every-second", "lowest"])
def test_it_trains_as_the_trimmed_model_does(keep, tmp_path):
    method = FewerLayers(keep=keep)
    trainer = tr.trainer(tmp_path / "ours", method, classifier(), lr_scheduler_type="constant")
    trainer.train()
    small = trim(classifier(), Plan.of(classifier(), layers=trainer.session.chosen))
    by_hand = tr.trainer(tmp_path / "by-hand", None, small, lr_scheduler_type="constant")
    by_hand.train()
    ours = tr.weights(trim(trainer.model, trainer.plan()))
    for name, expected in tr.weights(by_hand.model).items():
        torch.testing.assert_close(ours[name], expected, rtol=1e-3, atol=1e-5)


def test_distillation_compares_the_states_behind_kept_layers(tmp_path):
    """By hand: the trimmed model's states beside the teacher's after layers 0 and 3, and the embeddings."""
    model, teacher, batch = classifier(), classifier(seed=3).eval(), tr.batches(1, seed=2)[0]
    distillation = Distillation(hidden=1.0, label_weight=0.0)
    trainer = tr.trainer(tmp_path, DENSE_FIRST, model.train(), teacher=teacher, distillation=distillation)
    trainer.session.begin(20)

    def expected(student, places):
        with torch.no_grad():
            mine, theirs = (part(**batch, output_hidden_states=True).hidden_states for part in (student, teacher))
        pairs = zip(mine, (theirs[place] for place in places), strict=True)
        return sum(float((one - two).square().sum() / two.square().sum()) for one, two in pairs) / len(places)

    for step, removed, places in ((0, (), range(5)), (6, (1, 2), (0, 3, 4))):
        trainer.session.steps_done = step
        assert trainer.session.removed_layers == removed
        found = float(trainer.compute_loss(model, dict(batch)).detach())
        student = trim(classifier(), Plan.of(model, layers=removed)).eval()
        assert found == pytest.approx(expected(student, places), rel=1e-5)


def test_layers_go_at_once_when_the_dense_steps_are_done(tmp_path):
    distillation = Distillation(logits=1.0, hidden=1.0)
    trainer = tr.trainer(tmp_path, DENSE_FIRST, classifier(), distillation=distillation, logging_steps=1)
    seen = []

    class Look(tf.TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            seen.append((trainer.session.record()["layers_removed"], trainer.teacher is not None))
            if state.global_step == 6:
                seen.append(tr.weights(trainer.model))

    trainer.add_callback(Look())
    trainer.train()
    dense = seen.pop(7)
    assert seen == [([], False)] * 6 + [([1, 2], True)] * 14
    assert tr.same(tr.weights(trainer.teacher), dense)
    logged = [entry["layers_kept"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged == [4] * 5 + [2] * 15, "a line is written when its step is done"


def test_trainer_stock_trainer_and_loop_agree(tmp_path):
    ours = tr.trainer(tmp_path / "a", DENSE_FIRST, classifier(), **CONSTANT)
    fed = []
    ours.model.register_forward_pre_hook(
        lambda model, args, kwargs: fed.append(kwargs) if model.training else None, with_kwargs=True
    )
    ours.train()
    model = classifier()
    session = DENSE_FIRST.attach(model, seed=42)
    tr.trainer(tmp_path / "b", None, model, cls=tf.Trainer, callbacks=[session.callback()], **CONSTANT).train()
    assert tr.same(tr.weights(ours.model), tr.weights(model))
    assert session.plan() == ours.plan()

    loop = classifier()
    session = DENSE_FIRST.attach(loop, steps=20, seed=42)
    optimizer = torch.optim.AdamW(loop.parameters(), lr=1e-3, weight_decay=0.0)
    session.follow(optimizer)
    for batch in fed:
        loop.train()(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    session.finish()
    assert session.plan() == ours.plan()
    for name, expected in tr.weights(model).items():
        torch.testing.assert_close(tr.weights(loop)[name], expected, rtol=1e-4, atol=1e-6)


def test_checkpointing_and_accumulation_change_nothing(tmp_path):
    found = []
    for more in ({}, {"gradient_checkpointing": True}, {"gradient_accumulation_steps": 2}):
        size = 16 // more.get("gradient_accumulation_steps", 1)
        settings = {"max_steps": 8, "per_device_train_batch_size": size, "logging_steps": 1, **more}
        distilled = {"distillation": Distillation(hidden=1.0), "teacher": classifier(seed=3)}
        trainer = tr.trainer(
            tmp_path / str(len(found)), FewerLayers(keep="every-second"), classifier(), **settings, **distilled
        )
        trainer.train()
        found.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert found[1] == pytest.approx(found[0], rel=1e-3)
    assert found[2] == pytest.approx(found[0], rel=1e-3)


@pytest.mark.parametrize("step", [4, 8])
def test_a_resumed_run_is_the_uninterrupted_one(step, tmp_path):
    """From within the dense steps, and from behind them."""
    settings = {"save_strategy": "steps", "save_steps": 4, "distillation": Distillation(logits=1.0, hidden=1.0)}
    whole = tr.trainer(tmp_path, DENSE_FIRST, classifier(**DROPOUT), **settings)
    whole.train()
    again = tr.trainer(tmp_path, DENSE_FIRST, classifier(5, **DROPOUT), **settings)
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert tr.same(tr.weights(whole.model), tr.weights(again.model))
    assert whole.plan() == again.plan()


def test_only_models_without_the_layers_can_be_best_and_early_ends_remove_them_too(tmp_path):
    looks = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    trainer = tr.trainer(
        tmp_path, FewerLayers(keep="every-second", dense_share=0.5), load_best_model_at_end=True, **looks
    )
    trainer.train()
    assert int(trainer.state.best_model_checkpoint.rpartition("-")[2]) >= 10

    class Stop(tf.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step == 3

    trainer = tr.trainer(tmp_path, FewerLayers(keep="every-second", dense_share=0.5), classifier(), callbacks=[Stop()])
    trainer.train()
    assert list(trainer.plan().removed_of("layers")) == [1, 2]


# Bad input


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"count": 0}, "1 or more"),
        ({"keep": "upper"}, "one of every-second, lowest"),
        ({"dense_share": 50}, r"Did you mean 0\.5"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(MethodError, match=words):
        FewerLayers(**settings)


def test_what_cannot_work_is_said_before_training():
    model = classifier()
    with pytest.raises(MethodError, match=r"'count' parameter of FewerLayers is 5; this model has 4 layers"):
        FewerLayers(count=5).attach(model)
    with pytest.raises(MethodError, match=r"all 10 are dense. Lower dense_share"):
        FewerLayers(dense_share=0.96).attach(model, steps=10)
    session = DENSE_FIRST.attach(model)
    with pytest.raises(MethodError, match=r"FewerLayers follows a schedule: .* attach\(model, steps=...\)"):
        session.follow(torch.optim.SGD(model.parameters(), lr=0.1))
    session.detach()
    albert = zoo.build("albert", layers=4)
    for _ in range(2):  # a refused model is left as it was found
        with pytest.raises(UnsupportedModelError, match="albert model cannot be removed: all layers of a group share"):
            FewerLayers().attach(albert)
