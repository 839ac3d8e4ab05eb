"""The Trainer, the callback and the hand-written loop: the same method under each, and what users rely on."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch
import training as tr
import transformers as tf
from close import assert_apart, assert_close, assert_same_weights

import attentrim
from attentrim import (
    HISP,
    L0,
    SMP,
    AutoAttention,
    Control,
    Distillation,
    FewerLayers,
    Fisher,
    RandomHeads,
    Similarity,
    trim,
)
from attentrim.errors import AttentrimError, ControlError, MethodError, TrainingError, UnsupportedModelError
from attentrim.methods.gates import GateSession
from attentrim.runs.evaluation import Evaluation

ALL = [
    AutoAttention(),
    AutoAttention(target_sparsity=0.5),
    AutoAttention(max_drop=0.2, checks=4),
    L0(target_sparsity=0.5),
    L0(),
    HISP(target_sparsity=0.5),
    HISP(target_sparsity=0.5, rounds=2),
    SMP(search_steps=2, map_length=8),
    RandomHeads(),
    FewerLayers(dense_share=0.3),
    Similarity(remove="attention:1,feed_forward:1", calibration_samples=16, distill=False),
    Similarity(remove="layers:1", order="greedy", calibration_samples=16, dense_share=0.3),
    Fisher(speedup=1.5, cost="flops", speed_length=16),
]


def name_of(method):
    changed = [value for field, value in method.settings.items() if value != getattr(type(method)(), field)]
    return "-".join([method.name, *(str(value) for value in changed)])


def events_of(session):
    """Of the gates, where a method has any."""
    return session.history.events if isinstance(session, GateSession) else []


def answers(model):
    model.eval()
    with torch.no_grad():
        return model(**tr.batches(1, seed=9)[0]).logits


@pytest.mark.parametrize("method", ALL, ids=name_of)
def test_every_method_trains_and_ends_in_a_plan_that_trims(method, tmp_path):
    trainer = tr.trainer(tmp_path, method, eval_strategy="steps", eval_steps=10)
    trainer.train()
    plan = trainer.plan()
    if getattr(method, "target_sparsity", None) is not None:
        assert plan.heads_removed == 4
    assert plan.made_by["method"] == method.name
    small = trim(trainer.model, plan)
    torch.testing.assert_close(answers(small), answers(trainer.model), rtol=0, atol=1e-5)
    small.save_pretrained(tmp_path / "small")
    loaded = type(small).from_pretrained(tmp_path / "small")
    assert_same_weights(loaded, small)
    assert_close(answers(loaded), answers(small))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_open_gates_without_penalty_are_plain_fine_tuning_to_the_bit(tmp_path, dropout):
    config = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    stock = tr.trainer(tmp_path / "a", None, tr.classifier(**config), cls=tf.Trainer)
    stock.train()
    ours = tr.trainer(tmp_path / "b", AutoAttention(penalty=0.0, gate_lr=0.0), tr.classifier(**config))
    ours.train()
    assert tr.same(tr.weights(stock.model), tr.weights(ours.model))
    none = tr.trainer(tmp_path / "c", None, tr.classifier(**config))
    none.train()
    assert tr.same(tr.weights(stock.model), tr.weights(none.model))
    assert not none.plan()


def hand_written(method, steps=20):
    """The loop that docs/training.md shows, on the batches and with the settings of `tr.trainer`."""
    model = tr.classifier()
    session = method.attach(model, steps=steps, seed=42)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    session.follow(optimizer)
    return model, session, optimizer


class Batches(tf.TrainerCallback):
    """Keeps what a Trainer fed its model, for a loop to feed again."""

    def __init__(self):
        self.seen = []

    def watch(self, model):
        model.register_forward_pre_hook(
            lambda _, args, kwargs: self.seen.append(kwargs) if model.training else None, with_kwargs=True
        )


@pytest.mark.parametrize(
    "method",
    [AutoAttention(gate_lr=20.0), AutoAttention(target_sparsity=0.5, gate_lr=20.0), L0(target_sparsity=0.5)],
    ids=name_of,
)
def test_trainer_stock_trainer_and_loop_agree(method, tmp_path):
    settings = {"lr_scheduler_type": "constant", "max_grad_norm": 0.0, "weight_decay": 0.0}
    ours = tr.trainer(tmp_path / "a", method, **settings)
    fed = Batches()
    fed.watch(ours.model)
    ours.train()

    model = tr.classifier()
    session = method.attach(model, seed=42)
    stock = tr.trainer(tmp_path / "b", None, model, cls=tf.Trainer, callbacks=[session.callback()], **settings)
    stock.train()
    assert tr.same(tr.weights(ours.model), tr.weights(stock.model))
    assert session.plan() == ours.plan()
    assert torch.equal(session.parameters, ours.session.parameters)

    model, session, optimizer = hand_written(method)
    for batch in fed.seen:
        model.train()
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    session.finish()
    torch.testing.assert_close(session.parameters.detach(), ours.session.parameters.detach(), rtol=1e-4, atol=1e-5)
    assert session.plan() == ours.plan()
    assert session.history.events == ours.session.history.events


DISTILLED = AutoAttention(target_sparsity=0.5, dense_share=0.3)


@pytest.mark.parametrize("method", [*ALL, DISTILLED], ids=name_of)
@pytest.mark.parametrize("step", [5, 15])
def test_a_resumed_run_is_the_uninterrupted_one(method, step, tmp_path):
    distillation = Distillation(logits=1.0, noise=0.3) if method is DISTILLED else None
    settings = {"save_strategy": "steps", "save_steps": 5, "distillation": distillation}
    whole = tr.trainer(tmp_path, method, **settings)
    whole.train()
    expected = tr.weights(whole.model)
    again = tr.trainer(tmp_path, copy.deepcopy(method), tr.classifier(seed=5), **settings)
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert tr.same(expected, tr.weights(again.model))
    assert again.plan() == whole.plan()
    assert events_of(again.session) == events_of(whole.session)


def test_resuming_with_another_method_or_without_its_state_is_refused(tmp_path):
    first = tr.trainer(tmp_path, AutoAttention(), max_steps=4, save_strategy="steps", save_steps=2)
    first.train()
    with pytest.raises(TrainingError, match='method was "autoattention", is "l0"'):
        tr.trainer(tmp_path, L0(), max_steps=4).train(resume_from_checkpoint=True)
    (tmp_path / "checkpoint-4" / "attentrim_method.pt").unlink()
    with pytest.raises(MethodError, match="holds no attentrim_method"):
        tr.trainer(tmp_path, AutoAttention(), max_steps=4).train(resume_from_checkpoint=True)


def test_gradient_accumulation_gives_the_same_gates(tmp_path):
    found = []
    for size, parts in ((16, 1), (4, 4)):
        trainer = tr.trainer(
            tmp_path / str(parts),
            AutoAttention(gate_lr=20.0),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=parts,
            max_steps=8,
        )
        trainer.train()
        found.append(trainer.session.parameters.detach())
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-5)


def test_gradient_checkpointing_gives_the_same_run(tmp_path):
    found = []
    for on in (False, True):
        trainer = tr.trainer(tmp_path / str(on), AutoAttention(gate_lr=20.0), max_steps=8, gradient_checkpointing=on)
        trainer.train()
        found.append((trainer.session.parameters.detach(), tr.weights(trainer.model)))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-6)


def test_the_best_model_comes_with_its_own_gates(tmp_path):
    trainer = tr.trainer(
        tmp_path,
        AutoAttention(gate_lr=30.0),
        max_steps=30,
        eval_strategy="steps",
        eval_steps=5,
        save_strategy="steps",
        save_steps=5,
        load_best_model_at_end=True,
    )
    trainer.train()
    best = trainer.state.best_model_checkpoint
    state = torch.load(f"{best}/attentrim_method.pt", weights_only=True)
    assert torch.equal(trainer.session.open, state["open"])
    logged = {entry["step"]: entry["eval_accuracy"] for entry in trainer.state.log_history if "eval_accuracy" in entry}
    assert trainer.evaluate()["eval_accuracy"] == logged[int(best.rpartition("-")[2])] == max(logged.values())


def test_with_a_target_only_models_with_the_final_set_can_be_best(tmp_path):
    trainer = tr.trainer(
        tmp_path,
        AutoAttention(target_sparsity=0.5),
        eval_strategy="steps",
        eval_steps=4,
        save_strategy="steps",
        save_steps=4,
        load_best_model_at_end=True,
    )
    trainer.train()
    assert int(trainer.state.best_model_checkpoint.rpartition("-")[2]) >= 16
    assert trainer.plan().heads_removed == 4


def test_numbers_reach_report_to_and_checkpoints_carry_plans(tmp_path):
    lines = []

    class Listener(tf.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            lines.append(logs)

    listener = Listener()
    trainer = tr.trainer(
        tmp_path, AutoAttention(target_sparsity=0.5), callbacks=[listener], save_strategy="steps", save_steps=10
    )
    trainer.train()
    logged = [line for line in lines if "loss" in line]
    assert [line["gates_open"] for line in logged][-1] == 4
    assert logged[-1]["sparsity"] == 0.5
    plan = attentrim.Plan.load(tmp_path / "checkpoint-20" / "plan.json")
    assert plan == trainer.plan()
    full = tf.BertForSequenceClassification.from_pretrained(tmp_path / "checkpoint-20")
    torch.testing.assert_close(answers(trim(full, plan)), answers(trainer.model), rtol=0, atol=1e-5)


def test_dense_steps_are_dense_and_the_learning_rate_starts_again(tmp_path):
    method = AutoAttention(dense_share=0.5, gate_lr=5.0, penalty=0.02)
    trainer = tr.trainer(tmp_path, method, logging_steps=1, lr_scheduler_type="linear")
    trainer.train()
    events = trainer.session.history.events
    assert events
    assert min(step for step, _, _ in events) > 10
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    expected = [1e-3 * (1 - step / 10) for step in range(10)] * 2
    assert rates == pytest.approx(expected)

    plain = tr.trainer(tmp_path / "plain", None, max_steps=10)
    plain.train()
    first = tr.trainer(tmp_path / "first", method, save_strategy="steps", save_steps=10)
    first.train()
    dense = tf.BertForSequenceClassification.from_pretrained(tmp_path / "first" / "checkpoint-10")
    assert tr.same(tr.weights(plain.model), tr.weights(dense))


def test_distillation_from_a_given_teacher_pulls_towards_it(tmp_path):
    teacher = tr.classifier(seed=3)
    with torch.no_grad():
        teacher.classifier.weight.mul_(30)
    distances = {}
    for weight in (0.0, 5.0):
        distilled = {"teacher": teacher, "distillation": Distillation(logits=weight, hidden=weight)} if weight else {}
        trainer = tr.trainer(tmp_path / str(weight), RandomHeads(), max_steps=60, **distilled)
        trainer.train()
        distances[weight] = float((answers(trainer.model) - answers(teacher)).abs().mean())
    assert distances[5.0] < 0.8 * distances[0.0]
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_without_a_teacher_the_dense_model_is_it(tmp_path):
    trainer = tr.trainer(tmp_path, HISP(dense_share=0.5), distillation=Distillation(logits=1.0))
    trainer.train()
    plain = tr.trainer(tmp_path / "plain", None, max_steps=10)
    plain.train()
    assert tr.same(tr.weights(trainer.teacher), tr.weights(plain.model))
    assert (tmp_path / "dense" / "model.safetensors").is_file()
    with pytest.raises(MethodError, match=r"give a teacher, or have dense steps first \(dense_share"):
        tr.trainer(tmp_path, RandomHeads(), distillation=Distillation(logits=1.0))


def test_distillation_is_scaled_for_accumulation_like_the_loss(tmp_path):
    found = []
    for size, parts in ((16, 1), (4, 4)):
        trainer = tr.trainer(
            tmp_path / str(parts),
            RandomHeads(),
            distillation=Distillation(logits=2.0, hidden=1.0),
            teacher=tr.classifier(seed=3),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=parts,
            max_steps=3,
            logging_steps=1,
        )
        trainer.train()
        found.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert found[0] == pytest.approx(found[1], rel=1e-3)


class Poison(tf.TrainerCallback):
    """Spoils one weight before a step."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            with torch.no_grad():
                model.classifier.bias[0] = math.nan


@pytest.mark.parametrize("method", [None, AutoAttention()], ids=["none", "autoattention"])
def test_a_loss_that_turns_nan_stops_the_run_and_names_the_last_good_checkpoint(tmp_path, method):
    trainer = tr.trainer(
        tmp_path, method, callbacks=[Poison(7)], save_strategy="steps", save_steps=3, save_total_limit=1
    )
    with pytest.raises(TrainingError, match=r"The loss is nan at step 8.*checkpoint-6"):
        trainer.train()
    kept = tf.BertForSequenceClassification.from_pretrained(tmp_path / "checkpoint-6")
    assert all(parameter.isfinite().all() for parameter in kept.parameters())


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    trainer = tr.trainer(tmp_path, None)
    with torch.no_grad():
        trainer.model.classifier.bias[0] = math.inf
    with pytest.raises(TrainingError, match="not saved"):
        trainer.save_model(str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def test_models_without_sites_are_refused(tmp_path):
    class Bare(torch.nn.Module):
        def forward(self, input_ids, labels=None):
            return {"loss": input_ids.float().mean()}

    with pytest.raises(UnsupportedModelError, match="transformers models"):
        AutoAttention().attach(Bare())
    config = tf.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], num_labels=2)
    with pytest.raises(UnsupportedModelError, match="Unknown model type 'resnet'"):
        tr.trainer(tmp_path, AutoAttention(), tf.ResNetForImageClassification(config))
    headless = trim(tr.classifier(), attentrim.Plan.of(tr.classifier(), heads={0: range(4)}, uniform=[1]))
    with pytest.raises(UnsupportedModelError, match="no heads left to choose from"):
        AutoAttention().attach(headless)
    assert Control(tr.classifier())  # the refusal left nothing attached


def test_a_trimmed_model_can_be_trained_and_trimmed_again(tmp_path):
    first = trim(tr.classifier(), attentrim.Plan.of(tr.classifier(), heads={0: [1], 1: [2, 3]}))
    trainer = tr.trainer(tmp_path, AutoAttention(target_sparsity=0.4), first)
    trainer.train()
    assert trainer.plan().heads_removed == 2
    small = trim(trainer.model, trainer.plan())
    torch.testing.assert_close(answers(small), answers(trainer.model), rtol=0, atol=1e-5)


def test_training_twice_starts_the_method_again(tmp_path):
    trainer = tr.trainer(tmp_path, AutoAttention(target_sparsity=0.5))
    trainer.train()
    first = trainer.session
    trainer.train()
    assert trainer.session is not first
    assert trainer.session.steps_done == 20
    assert trainer.plan().heads_removed == 4


def test_model_init_gets_the_method_too(tmp_path):
    trainer = tr.trainer(tmp_path, AutoAttention(target_sparsity=0.5), model_init=lambda: tr.classifier())
    trainer.train()
    assert trainer.plan().heads_removed == 4
    torch.testing.assert_close(answers(trim(trainer.model, trainer.plan())), answers(trainer.model), rtol=0, atol=1e-5)


def test_a_session_leaves_nothing_behind_and_copies_are_free_of_it(tmp_path):
    model = tr.classifier()
    names = set(model.state_dict())
    session = AutoAttention().attach(model)
    session.close(torch.arange(4))
    masked = answers(model)
    twin = copy.deepcopy(model)
    model.save_pretrained(tmp_path)
    assert set(model.state_dict()) == names
    with pytest.raises(ControlError, match="Another Control is attached"):
        AutoAttention().attach(model)
    session.detach()
    assert_apart(answers(model), masked)
    for copied in (twin, tf.BertForSequenceClassification.from_pretrained(tmp_path)):
        assert_same_weights(copied, model)
        assert_close(answers(copied), answers(model))
    assert not model._forward_pre_hooks


def test_methods_by_name(tmp_path):
    assert tr.trainer(tmp_path, "random-heads").method == RandomHeads()
    with pytest.raises(AttentrimError, match=r"Unknown method 'autoatention'\. Did you mean 'autoattention'\?"):
        tr.trainer(tmp_path, "autoatention")


def test_history_records_closings_and_reopenings(tmp_path):
    """Recoverability: with a high gate rate on a real loss, a gate closes and later opens again."""
    trainer = tr.trainer(tmp_path, AutoAttention(gate_lr=10.0, penalty=2e-3), max_steps=80)
    trainer.train()
    session = trainer.session
    assert session.history.reopenings > 0
    step, gate, _ = next(event for event in session.history.events if event[2])
    assert any(before < step and which == gate and not opened for before, which, opened in session.history.events)
    gates = torch.ones(8)
    for _, which, opened in session.history.events:
        gates[which] = float(opened)
    assert torch.equal(gates, session.open)
    record = session.record()
    assert record["gates"] == [part.int().tolist() for part in session.open.split([4, 4])]
    assert len(record["closed"]) + len(record["reopened"]) == len(session.history.events)
    assert session.record()["closed"] == []
    json.dumps(record)


def test_parts_called_on_their_own_are_gated_too(tmp_path):
    """What was set last must not be a sample: the bare model inside answers as in the whole."""
    trainer = tr.trainer(tmp_path, L0(target_sparsity=0.5))
    trainer.train()
    trainer.model.eval()
    batch = {"input_ids": tr.batches(1)[0]["input_ids"]}
    small = trim(trainer.model, trainer.plan())
    with torch.no_grad():
        inside = trainer.model.bert(**batch).last_hidden_state
        torch.testing.assert_close(inside, small.bert(**batch).last_hidden_state, rtol=0, atol=1e-5)


def test_peft_models_are_gated_from_outside_and_inside(tmp_path):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(
        tr.classifier(), peft.LoraConfig(target_modules=["query", "value"], task_type="SEQ_CLS")
    )
    trainer = tr.trainer(tmp_path, L0(target_sparsity=0.5), model, gradient_checkpointing=False)
    trainer.train()
    assert trainer.plan().heads_removed == 4
    model.eval()
    batch = tr.batches(1)[0]
    with torch.no_grad():
        assert torch.equal(model(**batch).logits, model.get_base_model()(**batch).logits)
    with pytest.raises(MethodError, match="cannot be its own teacher"):
        tr.trainer(tmp_path, HISP(), model, distillation=Distillation(logits=1.0))


def best_of(**more):
    return {
        "eval_strategy": "steps",
        "eval_steps": 5,
        "save_strategy": "steps",
        "save_steps": 5,
        "load_best_model_at_end": True,
        **more,
    }


def test_a_budget_keeps_its_own_best(tmp_path):
    method = AutoAttention(max_drop=0.9, penalty=0.05, checks=8)
    found = []
    for run, more in enumerate(({}, best_of())):
        trainer = tr.trainer(tmp_path / str(run), method, max_steps=40, **more)
        trainer.train()
        found.append((trainer.plan(), tr.weights(trainer.model)))
    assert found[0][0] == found[1][0]
    assert found[0][0].heads_removed > 0
    assert tr.same(found[0][1], found[1][1])


def test_the_stock_trainers_best_model_comes_with_its_gates(tmp_path):
    model = tr.classifier()
    session = AutoAttention(gate_lr=30.0).attach(model, seed=42)
    trainer = tr.trainer(
        tmp_path, None, model, cls=tf.Trainer, callbacks=[session.callback()], max_steps=30, **best_of()
    )
    trainer.train()
    state = torch.load(f"{trainer.state.best_model_checkpoint}/attentrim_method.pt", weights_only=True)
    assert torch.equal(session.open, state["open"])


@pytest.mark.parametrize("name", ["bart", "t5", "clip"])
def test_the_distance_to_an_equal_teacher_is_nothing(name, tmp_path):
    import zoo

    model, teacher = zoo.build(name).eval(), zoo.build(name).eval()
    batch = zoo.inputs(name)
    if name == "clip":
        batch["return_loss"] = True
    else:
        batch = {"input_ids": batch["input_ids"], "labels": batch["decoder_input_ids"][:, :5].contiguous()}
    distillation = Distillation(logits=1.0, hidden=0.0 if name == "clip" else 1.0)
    method = RandomHeads(target_sparsity=0.0)
    trainer = tr.trainer(tmp_path, method, model, teacher=teacher, distillation=distillation)
    plain = model(**batch).loss
    model.training = True  # what says that this is training; the parts stay in eval mode, free of dropout
    assert float(trainer.compute_loss(model, batch).detach()) == pytest.approx(float(plain.detach()), rel=1e-5)


def test_teachers_that_do_not_fit_are_refused(tmp_path):
    model = tr.classifier()
    logits, hidden = Distillation(logits=1.0), Distillation(hidden=1.0)
    with pytest.raises(MethodError, match="must not be the model that is trained"):
        tr.trainer(tmp_path, RandomHeads(), model, teacher=model, distillation=logits)
    for teacher, words in (
        (tr.classifier(num_labels=3), "same shape"),
        (tf.BertModel(tr.classifier().config), "same shape"),
    ):
        with pytest.raises((MethodError, TypeError), match=f"{words}|unexpected keyword"):
            tr.trainer(tmp_path, RandomHeads(), teacher=teacher, distillation=logits).train()
    shallow = tr.classifier(num_hidden_layers=1)
    with pytest.raises(MethodError, match="as many layers"):
        tr.trainer(tmp_path, RandomHeads(), teacher=shallow, distillation=hidden).train()


def test_what_cannot_work_is_refused_at_once(tmp_path):
    kwargs = {"use_reentrant": True}
    with pytest.raises(MethodError, match="use_reentrant"):
        tr.trainer(tmp_path, AutoAttention(), gradient_checkpointing=True, gradient_checkpointing_kwargs=kwargs)
    for wrong in (AutoAttention, 3):
        with pytest.raises(MethodError, match=r"AutoAttention\(\), or its name"):
            tr.trainer(tmp_path, wrong)
    with pytest.raises(MethodError, match="leaves none to train on"):
        tr.trainer(tmp_path, AutoAttention(max_drop=0.1, holdout_share=0.999))


def test_tuples_for_outputs_are_understood(tmp_path):
    model = tr.classifier(return_dict=False)
    trainer = tr.trainer(tmp_path, AutoAttention(), model, gradient_accumulation_steps=2, max_steps=2)
    trainer.train()


def test_a_detached_session_is_made_anew(tmp_path):
    trainer = tr.trainer(tmp_path, AutoAttention(target_sparsity=0.5))
    trainer.session.detach()
    trainer.train()
    assert trainer.plan().heads_removed == 4
    torch.testing.assert_close(answers(trim(trainer.model, trainer.plan())), answers(trainer.model), rtol=0, atol=1e-5)


def test_state_lies_where_the_trainer_saves(tmp_path):
    """A search over hyperparameters gives each trial a directory of its own."""
    trainer = tr.trainer(tmp_path, AutoAttention(gate_lr=30.0), **best_of())
    trainer._get_output_dir = lambda trial: str(tmp_path / "run-0")
    trainer.train()
    assert (tmp_path / "run-0" / "checkpoint-5" / "attentrim_method.pt").is_file()


def test_a_scaled_loss_needs_its_scaler():
    class Scaler:
        def get_scale(self):
            return 1024.0

    moved = []
    for scaler in (None, Scaler()):
        model = tr.classifier()
        session = AutoAttention(penalty=0.0).attach(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        session.follow(optimizer, scaler=scaler)
        before = session.parameters.detach().clone()
        loss = model.train()(**tr.batches(1)[0]).loss
        (loss * (1024.0 if scaler else 1.0)).backward()
        optimizer.step()
        moved.append(session.parameters.detach() - before)
    torch.testing.assert_close(moved[0], moved[1])
    assert moved[0].abs().max() > 0
    session.training_gates().grad = torch.full((8,), math.inf)
    session.before_optimizer_step(scale=2.0)
    assert session.parameters.isfinite().all(), "a step that overflowed is skipped"


def test_resuming_a_distilled_run_elsewhere_says_what_is_missing(tmp_path):
    distilled = {"distillation": Distillation(logits=1.0)}
    trainer = tr.trainer(tmp_path / "a", HISP(), save_strategy="steps", save_steps=15, **distilled)
    trainer.train()
    (tmp_path / "a" / "dense").rename(tmp_path / "moved")
    again = tr.trainer(tmp_path / "b", HISP(), **distilled)
    with pytest.raises(MethodError, match="dense model to distil from is not in"):
        again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-15"))


def test_a_loop_with_accelerate_takes_one_step_an_update():
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.GradientState._reset_state()  # what earlier Trainers of this process left in it
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = tr.classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    session = AutoAttention(penalty=0.0).attach(model)
    session.follow(optimizer)
    before, batches = session.parameters.detach().clone(), tr.batches(4)
    for number, batch in enumerate(batches):
        with accelerator.accumulate(model):
            accelerator.backward(model.train()(**batch).loss)
            optimizer.step()
            optimizer.zero_grad()
        assert session.steps_done == (number + 1) // 2
    assert not torch.equal(session.parameters, before)


def test_predictions_keep_the_order_of_the_data_where_training_groups_by_length(tmp_path):
    data = [
        {"input_ids": [2] + [10 + place] * (place % 7 + 1), "labels": place % 2} for place in range(40)
    ]  # shuffled by the stock Trainer
    model = tr.classifier()
    args = tr.arguments(tmp_path, train_sampling_strategy="group_by_length", per_device_eval_batch_size=4)

    def pad(rows):
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row["input_ids"]) for row in rows], batch_first=True)
        return {
            "input_ids": ids,
            "attention_mask": (ids != 0).long(),
            "labels": torch.tensor([row["labels"] for row in rows]),
        }

    trainer = attentrim.Trainer(model, args, data_collator=pad, train_dataset=data)
    found = trainer.predict(data)
    assert found.label_ids.tolist() == [row["labels"] for row in data]
    with torch.no_grad():
        for row, logits in zip(data, found.predictions, strict=True):
            batch = pad([row])
            assert_close(torch.tensor(logits), model.eval()(batch["input_ids"]).logits[0])
    assert isinstance(trainer._get_train_sampler(data), tf.trainer_pt_utils.LengthGroupedSampler)
    _, again = Evaluation("own", "accuracy", data, len(data), pad, None, None).of_model(model, args)
    assert_close(torch.tensor(again), torch.tensor(found.predictions))
