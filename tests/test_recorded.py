"""What is read from run directories: numbering, curves, attention, and what is missing."""

from __future__ import annotations

import json

import numpy
import pytest
from recordings import WORDS, history_of, plan_of, speed_facts, write_run
from safetensors.numpy import load_file

from attentrim.errors import AttentrimError
from attentrim.plan import Plan
from attentrim.runs.reader import Recorded
from attentrim.sites import SiteShape


def test_gates_curves_and_events(tmp_path):
    closed = {(0, 2): 2, (1, 0): 4}
    run = Recorded.read(
        write_run(tmp_path / "run", plan=plan_of(removed={0: [2], 1: [0]}), history=history_of(5, closed=closed))
    )
    assert run.missing == []
    assert [gates.step for gates in run.gates] == [0, 1, 2, 3, 4, 5]
    assert [gates.count for gates in run.gates] == [6, 6, 5, 5, 4, 4]
    assert run.gates[-1].open == [[True, True, False], [False, True, True]]
    assert run.gates[-1].values == [[0.5, 0.5, -0.27], [-0.25, 0.5, 0.5]]
    assert run.events() == {(0, 2): [(2, False)], (1, 0): [(4, False)]}
    assert run.curve("loss") == ([1, 2, 3, 4, 5], [1, 0.5, 1 / 3, 0.25, 0.2])
    assert run.curve("eval_accuracy", along="epoch") == ([1.0], [0.75])


def test_a_run_that_started_from_a_trimmed_model_is_told_in_the_full_numbering(tmp_path):
    """Site 0 had lost its head 1, site 1 all of its heads; the run then closes what it calls head 1 of site 0."""
    lines = [
        {"step": 0, "epoch": 0, "heads": [[0, 2], [], [0, 1, 2]], "gates": [[1, 1], [1, 1, 1]]},
        {"step": 1, "epoch": 1, "gates": [[1, 0], [1, 1, 1]], "closed": [[1, 0, 1]]},
    ]
    plan = plan_of(3, removed={0: [1, 2], 1: [0, 1, 2]})
    run = Recorded.read(write_run(tmp_path / "run", plan=plan, history=lines, sentences=[]))
    assert run.gates[0].open == [[True, None, True], [None] * 3, [True] * 3]
    assert run.gates[1].open == [[True, None, False], [None] * 3, [True] * 3]
    assert run.events() == {(0, 2): [(1, False)]}


def test_a_gate_of_grouped_keys_stands_for_all_heads_of_its_group(tmp_path):
    plan = Plan("llama", {"sites": (SiteShape("layers.0.self_attn", 4, 8, 2),)}, {"heads": {0: (2, 3)}})
    lines = [
        {"step": 0, "epoch": 0, "heads": [[0, 1, 2, 3]], "gates": [[1, 1]], "gate_parameters": [[0.5, 0.4]]},
        {"step": 3, "epoch": 1, "gates": [[1, 0]], "gate_parameters": [[0.5, -0.1]], "closed": [[3, 0, 1]]},
    ]
    run = Recorded.read(write_run(tmp_path / "run", plan=plan, history=lines, sentences=[]))
    assert run.gates[1].open == [[True, True, False, False]]
    assert run.gates[1].values == [[0.5, 0.5, -0.1, -0.1]]
    assert run.events() == {(0, 2): [(3, False)], (0, 3): [(3, False)]}


def test_attention_changed_is_one_minus_the_mean_cosine_of_kept_heads(tmp_path):
    plan = plan_of(2, removed={0: [1]}, uniform=(1,))
    run = Recorded.read(write_run(tmp_path / "run", plan=plan, sentences=[WORDS, WORDS[:4]]))
    tensors = load_file(tmp_path / "run" / "attention.safetensors")
    by_hand = []
    for sentence in (0, 1):
        for head in (0, 2):
            a, b = (tensors[f"{moment}.{sentence}.0"][head].ravel().astype(float) for moment in ("before", "after"))
            by_hand.append(1 - a @ b / (numpy.sqrt(a @ a) * numpy.sqrt(b @ b)))
    assert run.attention_changed() == {0: pytest.approx(numpy.mean(by_hand))}


def test_what_is_missing_is_said(tmp_path):
    run = write_run(tmp_path / "run")
    for name in ("metrics.json", "plan.json", "attention.safetensors"):
        (run / name).unlink()
    with (run / "history.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')  # cut off with the run
    read = Recorded.read(run)
    assert read.sentences == []
    assert [sentence.split(":")[0] for sentence in read.missing] == [
        "There is no metrics.json",
        "There is no plan.json",
        "There is no attention.safetensors",
    ]
    assert read.last_step == 4
    assert read.width == [3, 3]


def test_damaged_files_are_missing_with_a_reason(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "metrics.json").write_text("[1]")
    (run / "plan.json").write_text("{}")
    (run / "attention.safetensors").write_bytes(b"no tensors")
    read = Recorded.read(run)
    assert (read.metrics, read.plan, read.sentences) == ({}, None, [])
    assert len(read.missing) == 3
    assert all("cannot be read" in sentence for sentence in read.missing)


def test_a_stopped_run_has_the_plan_of_its_last_checkpoint(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "plan.json").unlink()
    for step, removed in ((90, {0: [0]}), (100, {0: [0, 1]})):
        (run / f"checkpoint-{step}").mkdir()
        plan_of(removed=removed).save(run / f"checkpoint-{step}" / "plan.json")
    read = Recorded.read(run)
    assert read.plan is not None
    assert read.plan.heads == {0: (0, 1)}
    assert "checkpoint-100" in read.missing[-1]


def test_a_plan_that_removes_nothing_is_a_plan(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "checkpoint-9").mkdir()
    plan_of(removed={0: [0]}).save(run / "checkpoint-9" / "plan.json")
    assert Recorded.read(run).plan == plan_of()


def test_a_history_of_another_model_is_left_out(tmp_path):
    run = write_run(tmp_path / "run", history=history_of(3, sites=4, heads=2))
    read = Recorded.read(run)
    assert read.gates == []
    assert read.events() == {}
    assert "history.jsonl is from another model than plan.json" in read.missing[0]
    assert read.curve("loss")[0] == [1, 2, 3]
    assert set(read.attention_changed()) == {0, 1}


def test_a_history_that_does_not_tell_where_it_started_is_used_only_if_that_is_clear(tmp_path):
    def without_start(lines):
        return [{key: value for key, value in line.items() if key != "heads"} for line in lines]

    full = Recorded.read(write_run(tmp_path / "full", history=without_start(history_of(2))))
    assert len(full.gates) == 3
    lines = without_start(history_of(2, heads=2))
    trimmed = Recorded.read(write_run(tmp_path / "trimmed", plan=plan_of(removed={0: [0], 1: [0]}), history=lines))
    assert trimmed.gates == []
    assert "does not say which heads" in trimmed.missing[0]


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(AttentrimError, match="no directory"):
        Recorded.read(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text(json.dumps({}))
    with pytest.raises(AttentrimError, match="is not a run directory"):
        Recorded.read(tmp_path)


def test_times_of_layers_and_several_speeds(tmp_path):
    run = Recorded.read(write_run(tmp_path / "run", metrics=speed_facts()))
    assert run.before["value"] == 0.76
    times = run.layer_times
    assert (times.unit, times.setting) == ("ms", "8 x 128 tokens, cpu, float32, sdpa")
    assert times.parts == ("attention", "feed-forward", "rest")
    assert times.before == ((1.0, 2.0, 0.5),) * 2
    assert times.after == ((0.5, 1.0, 0.25), None)
    assert (times.total_before, times.total_after) == (7.25, 2.0)
    assert [(point.asked, point.measured, point.value) for point in run.speeds] == [
        (1.5, 1.52, 0.74),
        (2.0, 2.05, 0.7),
    ]
    plain = Recorded.read(write_run(tmp_path / "plain"))
    assert (plain.before, plain.layer_times, plain.speeds) == ({}, None, [])


@pytest.mark.parametrize("damage", ["no", [], {}, {"rows": 3}, {"rows": [{"layer": 0}]}, {"rows": [None]}])
def test_damaged_times_and_speeds_are_left_out(tmp_path, damage):
    times = {**speed_facts()["layer_times"], **damage} if isinstance(damage, dict) and damage else damage
    metrics = {"layer_times": times, "speeds": [damage, {"asked": "much"}, {}], "before": damage}
    run = Recorded.read(write_run(tmp_path / "run", metrics=metrics))
    assert (run.layer_times, run.speeds, run.before) == (None, [], {})
