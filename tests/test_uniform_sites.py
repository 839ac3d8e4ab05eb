"""UniformSites: the schedule, the choice of sites, the same under every kind of training loop, resuming."""

from __future__ import annotations

import itertools

import pytest
import torch
import training as tr
import transformers as tf
import zoo
from hypothesis import given
from hypothesis import strategies as st

from attentrim import Control, Distillation, UniformSites, trim
from attentrim.errors import MethodError, TrainingError, UnsupportedModelError
from attentrim.methods.progressive import SitePruning

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
CONSTANT = {"lr_scheduler_type": "constant", "max_grad_norm": 0.0, "weight_decay": 0.0}
METHODS = {
    "top": UniformSites(count=2),
    "greedy": UniformSites(count=2, order="greedy"),
    "max_drop": UniformSites(max_drop=0.5),
    "dense first": UniformSites(count=2, dense_share=0.4, ramp_share=0.8),
    "distilled": UniformSites(count=2, dense_share=0.3),
}


def trainer_with(directory, method, seed=0, **more):
    if method is METHODS["distilled"]:
        more["distillation"] = Distillation(logits=1.0, hidden=1.0)
    return tr.trainer(directory, method, tr.classifier(seed, **DROPOUT), **more)


# The schedule


def test_sites_turn_uniform_one_more_at_a_time():
    def counts(progress, **settings):
        pruning = SitePruning(count=3, **settings)
        return [len(pruning.uniform_at([5, 6, 7], share)) for share in progress]

    assert counts((0, 0.01, 0.17, 0.34, 0.5, 1)) == [0, 1, 2, 3, 3, 3]
    assert counts((0, 0.01, 0.33, 0.34, 0.67, 1), ramp_share=1.0) == [0, 1, 1, 2, 3, 3]
    assert counts((0, 0.5, 1), ramp_share=0.0) == [3, 3, 3]
    assert SitePruning().uniform_at([7, 5, 6], 0.3) == [7, 5]


@given(st.integers(1, 12), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_schedule_only_climbs_and_ends_with_all(count, ramp, one, other):
    pruning, chosen = SitePruning(ramp_share=ramp), list(range(count))
    early, late = (pruning.uniform_at(chosen, progress) for progress in sorted((one, other)))
    assert early == chosen[: len(early)]
    assert len(early) <= len(late)
    assert pruning.uniform_at(chosen, 1.0) == chosen
    assert len(pruning.uniform_at(chosen, ramp)) == count


@pytest.mark.parametrize(
    ("settings", "turns"),
    [
        # 20 steps, all sites by the middle of the pruning phase: the second at a quarter
        ({}, {1: 1, 6: 0}),
        ({"ramp_share": 1.0}, {1: 1, 11: 0}),
        ({"ramp_share": 0.0}, {0: (0, 1)}),
        ({"dense_share": 0.5, "ramp_share": 1.0}, {11: 1, 16: 0}),
    ],
    ids=["default", "ramp 1", "at once", "dense first"],
)
def test_it_is_plain_training_with_sites_uniform(settings, turns, tmp_path):
    """By hand: the same model, batches and noise, sites made uniform at the steps that the settings say."""
    trainer = trainer_with(tmp_path / "ours", UniformSites(count=2, **settings), lr_scheduler_type="constant")
    trainer.train()
    by_hand = trainer_with(tmp_path / "by-hand", None, lr_scheduler_type="constant")
    control = Control(by_hand.model)

    class Schedule(tf.TrainerCallback):
        def on_step_begin(self, args, state, trainer_control, **kwargs):
            sites = turns.get(state.global_step, ())
            for site in (sites,) if isinstance(sites, int) else sites:
                control.set("uniform", site)

    by_hand.add_callback(Schedule())
    by_hand.train()
    assert tr.same(tr.weights(trainer.model), tr.weights(by_hand.model))
    assert trainer.plan().uniform == (0, 1)
    assert len(trainer.train_dataset) == len(by_hand.train_dataset)


def test_records_say_which_sites_are_uniform(tmp_path):
    trainer, seen = trainer_with(tmp_path, UniformSites(count=2), logging_steps=1), []

    class Look(tf.TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            seen.append(trainer.session.record()["uniform_sites"])

    trainer.add_callback(Look())
    trainer.train()
    assert seen == [[]] + [[1]] * 5 + [[0, 1]] * 14
    logged = [entry["sites_uniform"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged == [1] * 5 + [2] * 15


# The choice


def test_sites_are_chosen_by_order_count_and_metric():
    costs = {0: 0.5, 1: 0.3, 2: 0.05, 3: 0.1}
    ranked, tried = [3, 2, 1, 0], []

    def metric(uniform):
        tried.append(list(uniform))
        return 1 - sum(costs[site] for site in uniform)

    assert SitePruning().choose(ranked) == [3, 2]
    assert SitePruning(count=3).choose(ranked) == [3, 2, 1]
    assert SitePruning(count=3, greedy=True).choose(ranked, metric) == [2, 3, 1]
    assert SitePruning(max_drop=0.16, greedy=True).choose(ranked, metric) == [2, 3]
    assert SitePruning(max_drop=0.16).choose(ranked, metric) == [3, 2]
    assert SitePruning(max_drop=0.02).choose(ranked, metric) == []
    assert SitePruning(max_drop=1.0).choose(ranked, metric) == ranked
    tried.clear()
    SitePruning(max_drop=0.16).choose(ranked, metric)
    assert tried == [[], [3], [3, 2], [3, 2, 1]]
    assert SitePruning(count=2, greedy=True).choose(ranked, lambda uniform: 0.5) == [3, 2], "the upper one of equals"
    with pytest.raises(MethodError, match="5 sites should be made uniform; this model has 4 sites"):
        SitePruning(count=5).choose(ranked)


def planted():
    """Four sites of which 0 and 2 add the same whatever they attend to; the metric: how near the states stay."""
    model = tr.classifier(num_hidden_layers=4)
    zoo.liven(model, 4.0)
    for layer in (0, 2):
        torch.nn.init.zeros_(model.bert.encoder.layer[layer].attention.output.dense.weight)
    model.eval()
    batch = tr.batches(1, seed=3)[0]

    @torch.no_grad()
    def states():
        return model(**batch, output_hidden_states=True).hidden_states[-1]

    dense = states()

    def evaluate():
        return -float((states() - dense).abs().mean())

    return model, evaluate


def test_greedy_finds_the_sites_that_do_nothing():
    model, evaluate = planted()
    with Control(model) as control:
        metric = {}
        for pair in itertools.combinations(range(4), 2):
            control.clear()
            for site in pair:
                control.set("uniform", site)
            metric[pair] = evaluate()
    assert max(metric, key=metric.get) == (0, 2), "planted: no other pair is as good"
    assert metric[0, 2] > -1e-6
    assert sorted(metric.values())[-2] < -1e-3

    def chosen(**settings):
        session = UniformSites(**settings).attach(model, steps=10, evaluate=evaluate)
        session.start_step()
        found = session.chosen
        session.detach()
        return found

    assert sorted(chosen(count=2, order="greedy")) == [0, 2]
    assert sorted(chosen(max_drop=1e-4, order="greedy")) == [0, 2]
    assert chosen(max_drop=1e-4) == [], "the top site matters"
    assert chosen(count=2) == [3, 2]


def test_sites_are_chosen_when_a_step_starts_and_not_in_a_forward():
    model, calls = tr.classifier(), []
    session = UniformSites(count=1, order="greedy", dense_share=0.5).attach(
        model, steps=4, evaluate=lambda: calls.append(session.uniform) or 0.5
    )
    for step in range(4):
        session.start_step()
        session.start_step()
        model.train()(**tr.batches(1)[0])
        assert calls == ([] if step < 2 else [[1], [0]])
        session.before_optimizer_step()
    assert session.uniform == session.chosen == [1]


def test_a_metric_that_is_no_number_is_refused():
    session = UniformSites(count=1, order="greedy").attach(tr.classifier(), steps=4, evaluate=lambda: float("nan"))
    with pytest.raises(TrainingError, match="metric by which sites are chosen is NaN at step 0"):
        session.start_step()


# Under every kind of training loop


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_it_ends_in_a_plan_that_trims(method, tmp_path):
    trainer = trainer_with(tmp_path, method)
    trainer.train()
    plan = trainer.plan()
    assert len(plan.uniform) == 2 or method.max_drop is not None
    assert plan.made_by["method"] == "uniform-sites"
    batch = tr.batches(1, seed=9)[0]
    with torch.no_grad():
        masked = trainer.model.eval()(**batch).logits
        trainer.session.detach()
        torch.testing.assert_close(trim(trainer.model, plan).eval()(**batch).logits, masked, rtol=0, atol=1e-5)


@pytest.mark.parametrize("order", ["top", "greedy"])
def test_trainer_stock_trainer_and_loop_agree(order, tmp_path):
    """A metric that prefers site 0 stands in for that of held-out data, which only our Trainer keeps."""
    method = UniformSites(count=2, order=order, holdout_share=0.0)
    turns = []

    def run(make):
        model = tr.classifier()
        session = method.attach(model, steps=20, evaluate=lambda: float(0 in session.uniform), seed=42)
        make(model, session)
        turns.append(session.chosen)
        return tr.weights(model), session.plan().uniform

    fed = []

    def with_stock(model, session):
        hook = model.register_forward_pre_hook(
            lambda _, args, kwargs: fed.append(kwargs) if model.training else None, with_kwargs=True
        )
        tr.trainer(tmp_path / "b", None, model, cls=tf.Trainer, callbacks=[session.callback()], **CONSTANT).train()
        hook.remove()

    def by_hand(model, session):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
        session.follow(optimizer)
        for batch in fed:
            model.train()
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        session.finish()

    stock, plan = run(with_stock)
    loop, other = run(by_hand)
    assert plan == other == (0, 1)
    assert turns == [[1, 0] if order == "top" else [0, 1]] * 2
    for name in stock:
        torch.testing.assert_close(stock[name], loop[name], rtol=1e-4, atol=1e-6)
    if order == "top":
        ours = tr.trainer(tmp_path / "a", method, **CONSTANT)
        ours.train()
        assert tr.same(tr.weights(ours.model), stock)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("step", [4, 12])
def test_a_resumed_run_is_the_uninterrupted_one(method, step, tmp_path):
    """Before sites are chosen, as they turn uniform, and when all are."""
    saving = {"save_strategy": "steps", "save_steps": 4, "max_steps": 18}
    whole = trainer_with(tmp_path, method, **saving)
    whole.train()
    again = trainer_with(tmp_path, method, seed=5, **saving)
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert tr.same(tr.weights(whole.model), tr.weights(again.model))
    assert whole.session.chosen == again.session.chosen


def test_a_run_under_the_stock_trainer_resumes(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 4, "max_steps": 18}

    def stock(seed):
        model = tr.classifier(seed, **DROPOUT)
        session = UniformSites(count=2).attach(model, seed=42)
        return tr.trainer(tmp_path, None, model, cls=tf.Trainer, callbacks=[session.callback()], **saving), session

    whole, first = stock(0)
    whole.train()
    again, second = stock(5)
    second.load(tmp_path / "checkpoint-4")
    assert second.chosen == [1, 0]
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert tr.same(tr.weights(whole.model), tr.weights(again.model))
    assert first.plan() == second.plan()


def test_the_dense_steps_leave_the_teacher(tmp_path):
    trainer, seen = trainer_with(tmp_path, METHODS["distilled"]), {}

    class Look(tf.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            seen[state.global_step] = trainer.teacher is not None, len(trainer.session.uniform)
            if state.global_step == 6:
                seen["dense"] = tr.weights(trainer.model)

    trainer.add_callback(Look())
    trainer.train()
    assert [seen[step][0] for step in (5, 6, 7)] == [False, True, True]
    assert [seen[step][1] for step in (5, 6, 7, 20)] == [0, 0, 1, 2]
    assert tr.same(tr.weights(trainer.teacher), seen["dense"])
    assert (tmp_path / "dense").is_dir()


def test_only_models_with_all_sites_uniform_can_be_best(tmp_path):
    looks = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    trainer = trainer_with(tmp_path, UniformSites(count=2), load_best_model_at_end=True, **looks)
    trainer.train()
    assert int(trainer.state.best_model_checkpoint.rpartition("-")[2]) >= 6
    assert trainer.session.uniform == [1, 0]


def test_training_that_ends_early_leaves_all_sites_uniform(tmp_path):
    class Stop(tf.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step == 3

    trainer = trainer_with(tmp_path, UniformSites(count=2), callbacks=[Stop()])
    trainer.train()
    assert trainer.session.uniform == [1, 0]
    assert trainer.plan().made_by["step"] == 3
    trainer = trainer_with(tmp_path, UniformSites(count=2, dense_share=0.5), callbacks=[Stop()])
    trainer.train()
    assert trainer.plan().uniform == (0, 1)


def test_checkpointing_and_accumulation_change_nothing(tmp_path):
    found = []
    for more in ({}, {"gradient_checkpointing": True}, {"gradient_accumulation_steps": 2}):
        size = 16 // more.get("gradient_accumulation_steps", 1)
        settings = {"max_steps": 8, "per_device_train_batch_size": size, **more}
        trainer = tr.trainer(tmp_path / str(len(found)), UniformSites(count=2), **settings)
        trainer.train()
        found.append(tr.weights(trainer.model))
    for other in found[1:]:
        for name in other:
            torch.testing.assert_close(other[name], found[0][name], rtol=1e-3, atol=1e-5)


def test_only_a_metric_needs_data_held_out(tmp_path):
    rows = {name: len(trainer_with(tmp_path, method).train_dataset) for name, method in METHODS.items()}
    assert rows == {"top": 64, "greedy": 61, "max_drop": 61, "dense first": 64, "distilled": 64}


# Bad input


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"count": 0}, "1 or more"),
        ({"count": 2, "max_drop": 0.1}, "count or max_drop, not both"),
        ({"max_drop": 5}, r"Did you mean 0\.05"),
        ({"order": "bottom"}, "one of top, greedy"),
        ({"dense_share": 1.0}, r"in \[0, 1\)"),
        ({"ramp_share": 50}, r"Did you mean 0\.5"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(MethodError, match=words):
        UniformSites(**settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"order": "greedy"}, r"judged by a metric: attach\(model, evaluate=...\)"),
        ({"max_drop": 0.1}, r"judged by a metric: attach\(model, evaluate=...\)"),
        ({"dense_share": 0.96}, "No step is left to make sites uniform in: all 10"),
    ],
)
def test_what_cannot_work_is_said_before_training(settings, words):
    model = tr.classifier()
    with pytest.raises(MethodError, match=words):
        UniformSites(**settings).attach(model, steps=10)
    Control(model).detach()  # nobody holds on to it


def test_too_many_sites(tmp_path):
    with pytest.raises(MethodError, match="3 sites should be made uniform; this model has 2 sites"):
        trainer_with(tmp_path, UniformSites(count=3)).train()


def test_a_loop_that_starts_no_step_is_told():
    session = UniformSites(count=1).attach(tr.classifier(), steps=4)
    with pytest.raises(MethodError, match=r"session\.follow\(optimizer\)"):
        session.before_optimizer_step()
    model = tr.classifier()
    with pytest.raises(MethodError, match="follows a schedule"):
        UniformSites(count=1).attach(model).follow(torch.optim.SGD(model.parameters(), lr=0.1))


def test_a_model_without_attention_is_refused():
    model = tr.classifier()
    bare = trim(model, UniformSites(count=2).attach(model).planned({"uniform": (0, 1)}))
    with pytest.raises(UnsupportedModelError, match="no attention left to prune"):
        UniformSites().attach(bare)


def test_the_reason_says_how_many_and_which():
    assert UniformSites().reason == "Attention made uniform in half of the sites: those nearest to the output."
    assert "4 sites: those that cost the metric least" in UniformSites(count=4, order="greedy").reason
    assert "at most 0.01 of the metric" in UniformSites(max_drop=0.01).reason
