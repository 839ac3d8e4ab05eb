"""Runs as a library: what `attentrim train` does, without a command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml
from commands import run_json
from recordings import plan_of, write_run
from test_recorder import trainer_for

import attentrim
from attentrim.errors import AttentrimError
from attentrim.report.removals import reason
from attentrim.runs.pipeline import run
from attentrim.runs.reader import Recorded
from attentrim.runs.settings import RunSettings
from attentrim.runs.training import given_flags, training_arguments

DIFFERENT = ("output_dir", "train_seconds", "peak_memory_bytes", "measured_with")
"""What no two runs share."""
FEW = {"num_train_epochs": 1, "per_device_train_batch_size": 16, "learning_rate": 1e-3, "use_cpu": True, "seed": 3}


def settings_for(home, directory, **more):
    data = {"model": str(home / "tiny"), "task": "cola", "data_dir": str(home / "data"), "max_eval_samples": 24}
    training = {**FEW, "disable_tqdm": True, **more.pop("training", {})}
    return RunSettings(**{**data, "output_dir": str(directory), "no_bench": True, "training": training, **more})


def alike(result):
    return {key: value for key, value in result.items() if key not in DIFFERENT}


def test_the_library_leaves_what_the_command_leaves(home, tmp_path, capsys):
    half = {"target_sparsity": 0.5}
    finished = run(settings_for(home, tmp_path / "library", method="hisp", method_config=half))
    assert capsys.readouterr().out == ""
    flags = [word for name, value in FEW.items() for word in (f"--{name}", str(value))]
    data = ("--model", home / "tiny", "--task", "cola", "--data_dir", home / "data", "--max_eval_samples", 24)
    method = ("--method", "hisp", "--method_config", "target_sparsity=0.5", "--no_bench", "--quiet")
    printed = run_json(capsys, "train", *data, "--output_dir", tmp_path / "command", *method, *flags)
    assert alike(finished.result) == alike(printed)
    places = [tmp_path / "library", tmp_path / "command"]
    assert {path.name for path in places[0].iterdir()} == {path.name for path in places[1].iterdir()}
    configs = [yaml.safe_load((place / "config.yaml").read_text()) for place in places]
    assert [config.pop("output_dir") for config in configs] == [str(place) for place in places]
    assert configs[0] == configs[1]
    assert (places[0] / "model.safetensors").read_bytes() == (places[1] / "model.safetensors").read_bytes()
    assert sum(site.heads for site in attentrim.find_sites(finished.final)) == 4
    assert sum(site.heads for site in attentrim.find_sites(finished.trainer.model)) == 8


def test_remarks_go_to_whoever_listens(home, tmp_path):
    rows = "".join(f"film {number},{number % 2}\n" for number in range(40))
    (tmp_path / "t.csv").write_text(f"review,label\n{rows}")
    remarks = []
    own = {"task": None, "data_dir": None, "train_file": str(tmp_path / "t.csv"), "text_column": "review"}
    finished = run(settings_for(home, tmp_path / "run", method="none", **own), say=remarks.append)
    assert remarks.pop().endswith("--keep_checkpoints keeps the last one")
    assert remarks == [
        "reading text from 'review', label from 'label'",
        "there is no validation data: 10% of the training rows, chosen at random with a fixed seed, are held out for "
        "it",
    ]
    assert finished.result["examples"] == 4


def test_a_config_is_the_settings_again(home, tmp_path):
    settings = settings_for(home, tmp_path / "run", method="random-heads", dropout=0.0, no_trim=True)
    run(settings)
    again = RunSettings.from_mapping(yaml.safe_load((tmp_path / "run" / "config.yaml").read_text()))
    assert again.to_mapping() == settings.to_mapping()
    assert again.dropout == 0
    assert again.method_config["target_sparsity"] == 0.5
    assert {name: again.training[name] for name in FEW} == FEW


def test_settings_are_checked_before_anything_is_loaded(home, tmp_path):
    with pytest.raises(AttentrimError, match="--output_dir is missing"):
        run(RunSettings(model="m", task="cola"))
    with pytest.raises(AttentrimError, match="--model is missing"):
        run(RunSettings(task="cola", output_dir="x"))
    with pytest.raises(AttentrimError, match="Unknown method 'hips'"):
        run(settings_for(home, tmp_path / "run", method="hips"))
    with pytest.raises(AttentrimError, match=r"'learning_rat' in the config .* Did you mean 'learning_rate'"):
        run(settings_for(home, tmp_path / "run", training={"learning_rat": 1}))


def test_flags_are_those_that_were_given():
    found = given_flags(["--learning_rate", "1e-4", "--no_dataloader_pin_memory", "--bf16", "--warmup_steps=0.1"])
    assert found == {"learning_rate": 1e-4, "dataloader_pin_memory": False, "bf16": True, "warmup_steps": 0.1}
    made = training_arguments({"seed": 7, "logging_steps": 3}, {"seed": "-1", "eval_strategy": False}, "x")
    assert (made.seed, made.logging_steps, str(made.eval_strategy.value)) == (-1, 3, "no")


def test_a_script_records_what_its_method_has_to_say(home, tmp_path):
    method = attentrim.AttendOut(preset="v2", window=2, prune_count=1, prune_order="top")
    recorder = attentrim.RunRecorder(trainer_for(home, tmp_path / "work", method), tmp_path / "run")
    recorder.trainer.train()
    recorder.finish(metric="accuracy", task="dogs")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert "Rewarded on dev" in metrics["remarks"][0]
    assert set(metrics["alternatives"]) == {"generator_masks"}


def test_the_plan_says_why_in_the_words_of_the_method(home, tmp_path):
    run(settings_for(home, tmp_path / "run", method="random-heads", method_config={"target_sparsity": 0.25}))
    found = Recorded.read(tmp_path / "run")
    assert reason(found) == attentrim.RandomHeads(target_sparsity=0.25).reason


@pytest.mark.parametrize(
    ("made_by", "method", "expected"),
    [
        ({"method": "l0", "reason": "By this."}, "l0", "By this."),
        ({"method": "l0"}, "l0", ""),
        ({"method": "l0", "reason": "By this.", "then": {"method": "hisp", "reason": "By that."}}, "hisp", "By that."),
        ({"method": "l0", "reason": "By this."}, "attention-dropout", ""),
        ({"method": "l0", "reason": "By this."}, "none", "Plain fine-tuning: nothing was removed."),
    ],
    ids=["told", "an older run", "the last of two", "of an earlier run", "no method"],
)
def test_the_reason_is_that_of_the_run(tmp_path, made_by, method, expected):
    plan = plan_of(removed={0: [1]}, made_by=made_by)
    assert reason(Recorded.read(write_run(tmp_path / "run", plan=plan, metrics={"method": method}))) == expected


def test_reading_a_run_and_making_settings_import_nothing_heavy():
    code = (
        "import sys, attentrim.runs.reader, attentrim.runs.settings, attentrim.report, attentrim.plots, attentrim.card"
    )
    done = subprocess.run([sys.executable, "-c", f"{code}; print(*sys.modules)"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & {"torch", "transformers", "numpy", "safetensors", "matplotlib", "jinja2"}
