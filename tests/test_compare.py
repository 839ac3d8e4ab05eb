"""compare: entries, statistics against hand computation, failures, and a comparison that is killed and goes on."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from commands import fails, run_json

from attentrim.compare.config import parse_budget
from attentrim.compare.experiment import (
    Entry,
    Experiment,
    chosen_entries,
    entries_of_config,
    entries_of_methods,
    entries_of_sweep,
)
from attentrim.compare.results import interval, markdown, summarise, table
from attentrim.compare.runs import Outcome, Run, check_kept, drop_weights, run_all, runs_of
from attentrim.errors import AttentrimError

FEW = ("--max_train_samples", 32, "--max_eval_samples", 24, "--num_train_epochs", 1, "--use_cpu")
COMMON = {"model": "m", "task": "cola"}


# Entries


def test_methods_at_the_same_speed_get_it_or_that_share_of_the_flops():
    names = ["fisher", "fewer-layers", "l0", "smp", "attention-dropout"]
    _, fisher, fewer, l0, smp, dropout = entries_of_methods(names, {"l0.gate_lr": "2"}, {"speedup": "4"}, COMMON)
    assert fisher.settings["method_config"] == fewer.settings["method_config"] == {"speedup": "4"}
    share = {"prune": "heads,neurons", "share_of": "flops", "target_sparsity": "0.75"}
    assert l0.settings["method_config"] == {**share, "gate_lr": "2"}
    assert smp.settings["method_config"] == dropout.settings["method_config"] == {}  # heads alone cannot


@pytest.mark.parametrize(
    ("budget", "words"),
    [(("0.5", 2.0), "not both"), ((None, 1.0), "--speedup must be above 1. Got 1"), ((None, float("nan")), "nan")],
)
def test_budgets_that_cannot_be(budget, words):
    with pytest.raises(AttentrimError, match=words):
        parse_budget(*budget)


def test_methods_get_the_same_sparsity_and_the_settings_they_know():
    settings = {"gate_lr": "2", "l0.gate_lr": "0.1", "rounds": "3"}
    dense, auto, l0, hisp, dropout = entries_of_methods(
        ["autoattention", "l0", "none", "hisp", "attention-dropout"], settings, {"target_sparsity": "0.25"}, COMMON
    )
    assert (dense.name, dense.settings["method"]) == ("dense", "none")
    assert auto.settings["method_config"] == {"gate_lr": "2", "target_sparsity": "0.25"}
    assert l0.settings["method_config"] == {"gate_lr": "0.1", "target_sparsity": "0.25"}
    assert hisp.settings["method_config"] == {"rounds": "3", "target_sparsity": "0.25"}
    assert dropout.settings["method_config"] == {}
    own = entries_of_methods(["autoattention"], {}, {}, COMMON)
    assert own[1].settings["method_config"] == {}
    with pytest.raises(AttentrimError, match="none of the methods compared has the setting 'gate_lr'"):
        entries_of_methods(["random-heads"], {"gate_lr": "2"}, {"target_sparsity": "0.5"}, COMMON)
    with pytest.raises(AttentrimError, match=r"Unknown method 'autoatention'\. Did you mean 'autoattention'"):
        entries_of_methods(["autoatention"], {}, 0.5, COMMON)


def test_sweeps_are_all_combinations():
    common = {**COMMON, "method_config": {"penalty": 0.1}}
    sweep = {"method": ["autoattention", "l0"], "target_sparsity": [0.1, 0.5], "num_train_epochs": [2]}
    entries = entries_of_sweep(sweep, common, ["method", "num_train_epochs"])
    assert [entry.name for entry in entries] == [
        f"{method}-target_sparsity={share}" for method in ("autoattention", "l0") for share in (0.1, 0.5)
    ]
    assert entries[0].settings["method_config"] == {"penalty": 0.1, "target_sparsity": 0.1}
    assert entries[0].settings["num_train_epochs"] == 2
    (only,) = entries_of_sweep({"method": ["l0"], "model": ["{dense}"]}, common, ["method", "model"])
    assert only.needs == {"dense"}
    with pytest.raises(AttentrimError, match="each key needs a list"):
        entries_of_sweep({"gate_lr": 1}, common, [])


def test_runs_find_the_directories_of_those_before_them(tmp_path):
    entries = entries_of_config(
        {
            "dense": {"method": "none"},
            "late": {"method": "scheduled-dropout", "model": "{dense}", "method_config": {"fitted_to": "{dense}"}},
        },
        COMMON,
    )
    runs = runs_of(Experiment(tuple(entries), (0, 3)), tmp_path)
    assert [run.title for run in runs] == ["dense, seed 0", "late, seed 0", "dense, seed 3", "late, seed 3"]
    place = str(tmp_path / "dense" / "seed-3")
    assert runs[3].settings["model"] == runs[3].settings["method_config"]["fitted_to"] == place
    assert runs[3].settings["seed"] == 3
    assert runs[3].needs == (tmp_path / "dense" / "seed-3",)


@pytest.mark.parametrize(
    ("entries", "baseline", "words"),
    [
        ([Entry("a", {"model": "{b}"}), Entry("b", {})], None, "'a' needs 'b', which is not an earlier run"),
        ([Entry("a", {}), Entry("a", {})], None, "two runs with the name 'a'"),
        ([Entry("a/b", {})], None, "'a/b' is not a valid name for a run"),
        ([Entry("a", {})], "dense", "The baseline 'dense' is not one of the runs: a"),
    ],
)
def test_experiments_that_make_no_sense(entries, baseline, words):
    with pytest.raises(AttentrimError, match=words):
        Experiment(tuple(entries), (0,), baseline)


def test_braces_that_name_no_run_are_text():
    assert Entry("a", {"run_name": "{x", "train_file": "data{1}.csv"}).needs == set()


def test_settings_of_a_config_are_checked_before_anything_runs():
    with pytest.raises(AttentrimError, match="The run 'x': hisp has no setting 'gate_lr'"):
        entries_of_config({"x": {"method": "hisp", "method_config": {"gate_lr": 1}}}, COMMON)


# Statistics


def outcome(name, seed, value, error=None):
    run = Run(Entry(name, {}), seed, Path(name), {})
    result = {"value": value, "sparsity": 0.5, "parameters": 10, "train_seconds": 2.0, "uniform_sites": [3]}
    return Outcome(run, {} if error else result, error)


def test_paired_differences_by_hand():
    experiment = Experiment((Entry("dense", {}), Entry("new", {})), (0, 1, 2))
    dense, new = [0.50, 0.60, 0.70], [0.52, 0.61, 0.75]
    outcomes = [outcome("dense", seed, value) for seed, value in enumerate(dense)]
    outcomes += [outcome("new", seed, value) for seed, value in enumerate(new)]
    found = {summary.name: summary for summary in summarise(experiment, outcomes)}
    assert found["dense"].difference is None
    assert found["dense"].sd == pytest.approx(0.1)
    differences = [0.02, 0.01, 0.05]
    mean = sum(differences) / 3
    sd = math.sqrt(sum((value - mean) ** 2 for value in differences) / 2)
    half = 4.302652729911275 * sd / math.sqrt(3)  # Student's t, 2 degrees of freedom
    assert found["new"].difference == pytest.approx(mean)
    assert found["new"].interval == pytest.approx((mean - half, mean + half))
    assert interval([0.1]) is None


def test_a_failed_seed_is_left_out_of_the_pairs_and_said():
    experiment = Experiment((Entry("dense", {}), Entry("new", {})), (0, 1))
    outcomes = [outcome("dense", 0, 0.5), outcome("dense", 1, 0.9), outcome("new", 0, 0.6), outcome("new", 1, 0, "no")]
    summaries = summarise(experiment, outcomes)
    assert summaries[1].difference == pytest.approx(0.1)
    assert (summaries[1].seeds, summaries[1].failed) == (1, 1)
    names, rows = table(summaries, "accuracy", "dense")
    assert names[:3] == ["run", "accuracy", "sd"]
    assert rows[1][3] == "1 (1 failed)"
    facts = {"model": "m", "task": "t", "metric": "accuracy", "higher_is_better": True, "examples": 9}
    text = markdown(experiment, facts, summaries, "attentrim compare")
    assert "| new | 0.6000 |  | 1 (1 failed) | +0.1000 | needs 2 seeds |" in text


def test_weights_go_when_nobody_needs_them(tmp_path):
    runs = runs_of(Experiment((Entry("dense", {}), Entry("b", {"model": "{dense}"})), (0,)), tmp_path)
    for run in runs:
        run.directory.mkdir(parents=True)
        for name in ("model.safetensors", "attention.safetensors", "done"):
            (run.directory / name).touch()
    weights = runs[0].directory / "model.safetensors"
    drop_weights(runs[:1], runs[1:])
    assert weights.exists()
    drop_weights(runs, [])
    assert not weights.exists()
    assert (runs[0].directory / "attention.safetensors").exists()


# Runs


def compare(home, directory, *more):
    data = ("--model", home / "tiny", "--task", "cola", "--data_dir", home / "data")
    return ("compare", *data, "--output_dir", directory, *FEW, *more)


def without_seconds(text):
    """A table without the column that no two runs share."""
    lines = [line.split("|") for line in text.splitlines() if line.startswith("|")]
    return [line[:-3] + line[-2:] for line in lines]


def test_a_comparison_that_is_killed_ends_in_the_same_table(home, tmp_path, capsys):
    methods = ("--methods", "random-heads,attention-dropout", "--seeds", 2)
    whole = run_json(capsys, *compare(home, tmp_path / "whole", *methods, "--jobs", 2))
    assert [(run["name"], run["seed"]) for run in whole["runs"]] == [
        (name, seed) for seed in (0, 1) for name in ("dense", "random-heads", "attention-dropout")
    ]
    assert {run["name"]: run["sparsity"] for run in whole["runs"]} == {
        "dense": 0.0,
        "random-heads": 0.5,
        "attention-dropout": 0.0,
    }
    assert whole["measured_with"]["torch"]
    assert not list((tmp_path / "whole").rglob("model.safetensors"))

    words = [str(word) for word in compare(home, tmp_path / "killed", *methods)]
    process = subprocess.Popen(
        [sys.executable, "-m", "attentrim.cli", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    eventually(lambda: len(list((tmp_path / "killed").rglob("done"))) >= 2, 120)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = sorted((tmp_path / "killed").rglob("done"))
    assert 2 <= len(done) < 6
    times = [path.stat().st_mtime for path in done]
    again = run_json(capsys, *compare(home, tmp_path / "killed", *methods))
    assert [path.stat().st_mtime for path in done] == times
    assert [run["value"] for run in again["runs"]] == [run["value"] for run in whole["runs"]]
    tables = [(tmp_path / name / "table.md").read_text() for name in ("whole", "killed")]
    assert without_seconds(tables[0]) == without_seconds(tables[1])
    assert "random-heads" in tables[0]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_comparison_that_is_killed_takes_its_runs_with_it(home, tmp_path, how):
    """They would go on using the machine, and write where the next comparison does."""
    endless = ("--methods", "random-heads", "--max_steps", 100_000, "--logging_steps", 1)
    words = [str(word) for word in compare(home, tmp_path, *endless)]
    process = subprocess.Popen(
        [sys.executable, "-m", "attentrim.cli", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    history = tmp_path / "dense" / "seed-0" / "history.jsonl"

    def grows():
        before = history.stat().st_size if history.is_file() else 0
        time.sleep(2)
        return history.is_file() and history.stat().st_size > before

    try:
        assert eventually(grows)
    finally:
        os.kill(process.pid, how)
        process.wait()
    assert eventually(lambda: not grows())


def eventually(wanted, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := wanted()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def test_one_failed_run_does_not_lose_the_others(home, tmp_path, capsys):
    config = {
        "runs": {
            "dense": {"method": "none"},
            "broken": {"method": "none", "model": str(tmp_path / "nowhere")},
            "after": {"method": "none", "model": "{broken}"},
            "from-dense": {"method": "random-heads", "model": "{dense}", "max_steps": 1, "learning_rate": 0.0},
        },
        "about": "One of these cannot work.",
        "seeds": 1,
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    command = compare(home, tmp_path / "out", "--config", tmp_path / "c.yaml")
    error = fails(capsys, *command)
    assert "2 of 4 runs failed; the first, broken, seed 0: There is no model directory" in error
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    runs = {run["name"]: run for run in found["runs"]}
    assert "which failed" in runs["after"]["error"]
    assert runs["from-dense"]["sparsity"] == 0.5
    assert runs["dense"]["value"] is not None
    assert "One of these cannot work." in (tmp_path / "out" / "table.md").read_text()
    changed = {**config, "runs": {**config["runs"], "dense": {"method": "none", "weight_decay": 0.5}}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(changed, sort_keys=False))
    assert "was made with other settings" in fails(capsys, *command)


def test_kept_runs_are_those_of_this_experiment(tmp_path):
    runs = runs_of(Experiment((Entry("dense", {"a": 1}),), (0,)), tmp_path)
    runs[0].directory.mkdir(parents=True)
    (runs[0].directory / "done").touch()
    (runs[0].directory / "settings.json").write_text('{"a": 1, "seed": 0}')
    (runs[0].directory / "metrics.json").write_text('{"value": 7}')
    check_kept(runs)
    kept = list(run_all(runs, 1, False, lambda outcome: pytest.fail("nothing is to be run")))
    assert kept[0].result == {"value": 7}


def test_only_some_runs_with_what_they_start_from(home, tmp_path, capsys):
    runs = {
        "dense": {"method": "none"},
        "longer": {"method": "none", "model": "{dense}"},
        "first": {"method": "random-heads", "model": "{dense}"},
        "second": {"method": "random-heads", "model": "{first}"},
        "third": {"method": "hisp", "model": "{dense}"},
    }
    config = {"runs": runs, "baseline": "longer", "seeds": 1}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    entries = entries_of_config(runs, COMMON)
    assert [entry.name for entry in chosen_entries(entries, ["second"])] == ["dense", "first", "second"]
    command = compare(home, tmp_path / "out", "--config", tmp_path / "c.yaml", "--only")
    result = run_json(capsys, *command, "first")
    assert [run["name"] for run in result["runs"]] == ["dense", "longer", "first"]
    assert result["baseline"] == "longer"
    assert "Unknown run 'secnd'. Did you mean 'second'" in fails(capsys, *command, "secnd")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "Nothing to compare: give --methods, or --config with runs or sweep"),
        (("--methods", "hisp", "--seeds", "x"), "--seeds must be a number of seeds"),
        (("--methods", "hisp", "--seeds", "1,1"), "--seeds must be a number of seeds"),
        (("--methods", "hisp", "--target_sparsity", 50), "must be a share in [0, 1), or 'own'. Got 50"),
        (("--methods", "hips"), "Unknown method 'hips'. Did you mean 'hisp'"),
        (("--methods", "hisp", "--learning_rat", 1), "Unknown flag '--learning_rat'"),
    ],
)
def test_wrong_input(home, tmp_path, capsys, more, words):
    assert words in fails(capsys, *compare(home, tmp_path / "out", *more))


def test_what_a_failed_run_starts_from_is_kept_for_the_next_try(home, tmp_path, capsys):
    runs = {"dense": {"method": "none"}, "more": {"method": "random-heads", "model": "{dense}", "max_length": 4}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"runs": runs, "seeds": 1}, sort_keys=False))
    command = compare(home, tmp_path / "out", "--config", tmp_path / "c.yaml")
    assert "--max_length must be between" in fails(capsys, *command)
    runs["more"]["max_length"] = 16
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"runs": runs, "seeds": 1}, sort_keys=False))
    assert len(run_json(capsys, *command)["runs"]) == 2
    runs["late"] = {"method": "random-heads", "model": "{dense}", "max_length": 20}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"runs": runs, "seeds": [0]}, sort_keys=False))
    assert len(run_json(capsys, *command)["runs"]) == 3  # dense is run again for its weights
    assert not list((tmp_path / "out").rglob("model.safetensors"))


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ({"method": "hisp", "method_config": {"target_sparsity": 7}}, "The run 'x': The 'target_sparsity' parameter"),
        ({"method_config": {"target_sparsity": 0.5}}, "The run 'x' names no method"),
        ({"method": "none", "max_step": 1}, "The run 'x' has no setting 'max_step'. Did you mean 'max_steps'"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_the_first_one_starts(home, tmp_path, capsys, run, words):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"runs": {"dense": {"method": "none"}, "x": run}}))
    assert words in fails(capsys, *compare(home, tmp_path / "out", "--config", tmp_path / "c.yaml"))
    assert not list((tmp_path / "out").rglob("metrics.json")) if (tmp_path / "out").exists() else True
