"""train, evaluate, plan and methods, run as a user would."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys

import pytest
import torch
import transformers as tf
import yaml
from close import assert_same_metrics
from commands import fails, run, run_json
from recordings import bench_of, plan_of, speed_facts, write_run
from safetensors import safe_open

import attentrim
from attentrim.cli.output import Output
from attentrim.cli.train import report
from attentrim.cost import Cost
from attentrim.runs.finish import Finished
from attentrim.runs.headline import number, times


def train(capsys, home, directory, *more):
    data = ("--model", home / "tiny", "--task", "cola", "--data_dir", home / "data")
    few = (
        "--num_train_epochs",
        2,
        "--per_device_train_batch_size",
        16,
        "--learning_rate",
        "1e-3",
        "--use_cpu",
        "--no_bench",
    )
    return run_json(capsys, "train", *data, "--output_dir", directory, *few, *more)


def evaluate(capsys, home, model, *more):
    return run_json(capsys, "evaluate", "--model", model, "--task", "cola", "--data_dir", home / "data", *more)


KEYS = {"task", "metric", "value", "metrics", "examples"}
MORE_KEYS = {"sparsity", "heads_total", "heads_kept", "uniform_sites", "parameters", "output_dir", "train_seconds"}


@pytest.mark.parametrize("method", ["autoattention", "l0", "hisp", "smp", "random-heads"], ids=lambda name: name)
def test_train_trims_saves_and_reports_what_loads(home, tmp_path, capsys, method):
    more = ["search_steps=2", "map_length=8"] if method == "smp" else []
    result = train(capsys, home, tmp_path / "run", "--method", method, "--method_config", "target_sparsity=0.5", *more)
    assert set(result) >= KEYS | MORE_KEYS
    assert (result["task"], result["metric"], result["examples"]) == ("cola", "matthews", 40)
    assert (result["sparsity"], result["heads_total"], sum(result["heads_kept"])) == (0.5, 8, 4)
    assert result["value"] == pytest.approx(result["masked_value"], abs=1e-6)

    model = tf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    assert sum(parameter.numel() for parameter in model.parameters()) == result["parameters"]
    assert [site.heads for site in attentrim.find_sites(model)] == result["heads_kept"]
    assert_same_metrics(result, evaluate(capsys, home, tmp_path / "run", "--use_cpu"))


def test_a_regulariser_removes_nothing(home, tmp_path, capsys):
    curves = "curves=[[0, 0.4], [1, 0]]"
    result = train(capsys, home, tmp_path / "run", "--method", "scheduled-dropout", "--method_config", curves)
    assert (result["sparsity"], result["heads_kept"], result["trimmed"]) == (0.0, [4, 4], False)
    history = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert history[0]["drop_chances"] == pytest.approx([0.4 * (1 - history[0]["step"] / 12)] * 2, abs=1e-3)


def test_attendout_prunes_records_and_says_what_it_was_rewarded_on(home, tmp_path, capsys):
    settings = ("preset=v2", "window=3", "prune_count=1", "prune_order=top", "plain_run=true")
    command = ("--method", "attendout", "--method_config", *settings, "--logging_steps", 3)
    result = train(capsys, home, tmp_path / "run", *command)
    assert result["uniform_sites"] == [1]
    assert result["heads_kept"] == [4, 0]
    assert "Rewarded on dev" in result["remarks"][0]
    assert result["value"] == pytest.approx(result["masked_value"], abs=1e-6)
    assert set(result["alternatives"]) == {"generator_masks"}
    assert evaluate(capsys, home, tmp_path / "run")["value"] == pytest.approx(result["value"], abs=1e-6)
    assert "the attention pattern of 1 of 2 sites (uniform now)" in " ".join(
        (tmp_path / "run" / "README.md").read_text().split()
    )
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert all(len(line["drop_rates"]) == 2 for line in lines if line["step"] >= 3 and "loss" in line)
    assert any("plain_matthews" in line for line in lines)
    again = train(capsys, home, tmp_path / "again", "--config", tmp_path / "run" / "config.yaml")
    assert again["value"] == result["value"]
    fitted = (f"fitted_to={tmp_path / 'run'}",)
    assert (
        train(capsys, home, tmp_path / "s", "--method", "scheduled-dropout", "--method_config", *fitted)["value"] <= 1
    )


def test_what_a_run_leaves(home, tmp_path, capsys):
    directory = tmp_path / "run"
    result = train(
        capsys, home, directory, "--method_config", "target_sparsity=0.5", "gate_lr=20", "--logging_steps", 1
    )
    assert attentrim.Plan.load(directory / "plan.json").heads_kept == result["heads_kept"]
    assert json.loads((directory / "metrics.json").read_text())["value"] == result["value"]
    history = [json.loads(line) for line in (directory / "history.jsonl").read_text().splitlines()]
    steps = [line for line in history if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 13))
    for line in steps:
        closed = sum(gate == 0 for site in line["gates"] for gate in site)
        assert line["gates_open"] == 8 - closed
        assert [len(site) for site in line["gate_parameters"]] == [4, 4]
    assert sum(len(line["closed"]) - len(line["reopened"]) for line in history) == 4
    with safe_open(directory / "attention.safetensors", "pt") as file:
        tokens = json.loads(file.metadata()["tokens"])
        assert len(tokens) == 4
        before, after = file.get_tensor("before.0.1"), file.get_tensor("after.0.1")
        assert before.shape == after.shape == (4, len(tokens[0]), len(tokens[0]))
        torch.testing.assert_close(before.float().sum(-1), torch.ones(before.shape[:2]), atol=1e-2, rtol=0)
    card = (directory / "README.md").read_text()
    assert "Removed: 4 of 8 attention heads" in card
    assert (directory / "tokenizer.json").is_file()


def test_a_config_can_be_used_from_anywhere(home, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(home)
    names = ("--model", "tiny", "--task", "cola", "--data_dir", "data", "--max_steps", 1, "--use_cpu", "--no_bench")
    run_json(capsys, "train", *names, "--method", "none", "--output_dir", tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    run_json(capsys, "train", "--config", "a/config.yaml", "--output_dir", "b")


def test_the_config_of_a_run_gives_the_same_run(home, tmp_path, capsys):
    # values that are transformers' defaults, and not ours
    stock = ("--num_train_epochs", 3, "--learning_rate", 5e-5, "--per_device_train_batch_size", 8)
    first = train(capsys, home, tmp_path / "a", "--method_config", "target_sparsity=0.25", "--seed", 7, *stock)
    second = run_json(capsys, "train", "--config", tmp_path / "a" / "config.yaml", "--output_dir", tmp_path / "b")
    changing = ("output_dir", "train_seconds", "peak_memory_bytes", "measured_with")
    assert {k: v for k, v in first.items() if k not in changing} == {
        k: v for k, v in second.items() if k not in changing
    }
    for name in ("plan.json", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_flags_win_over_yaml_and_yaml_over_defaults(home, tmp_path, capsys):
    config = {
        "model": str(home / "tiny"),
        "task": "cola",
        "data_dir": str(home / "data"),
        "method": "random-heads",
        "method_config": {"target_sparsity": 0.25},
        "learning_rate": "1e-4",  # YAML reads 1e-4 as a string
        "num_train_epochs": 1,
        "use_cpu": True,
        "max_train_samples": 32,
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config).replace("'1e-4'", "1e-4"))
    result = run_json(
        capsys, "train", "--config", tmp_path / "c.yaml", "--output_dir", tmp_path / "r", "--learning_rate", 5e-4
    )
    assert result["sparsity"] == 0.25
    assert (result["method"], result["trimmed"]) == ("random-heads", True)
    used = yaml.safe_load((tmp_path / "r" / "config.yaml").read_text())
    assert (used["learning_rate"], used["num_train_epochs"], used["max_train_samples"]) == (5e-4, 1, 32)


def test_settings_in_yaml_hold_for_the_method_that_is_named_beside_it(home, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(
        "method_config: {target_sparsity: 0.25}\nmax_train_samples: 3e1\nno_trim: 'false'\n"
    )
    result = train(capsys, home, tmp_path / "r", "--config", tmp_path / "c.yaml", "--method", "random-heads")
    assert (result["sparsity"], result["trimmed"]) == (0.25, True)
    (tmp_path / "c.yaml").write_text("method: l0\nmethod_config: {initial_logit: 1}\n")
    result = train(capsys, home, tmp_path / "r2", "--config", tmp_path / "c.yaml", "--method", "random-heads")
    assert result["sparsity"] == 0.5


def test_the_lowest_loss_is_the_best(home, tmp_path, capsys):
    best = ("--metric_for_best_model", "loss", "--load_best_model_at_end", "--save_total_limit", 1)
    train(capsys, home, tmp_path / "r", "--method", "none", *best)
    assert yaml.safe_load((tmp_path / "r" / "config.yaml").read_text())["greater_is_better"] is False


def test_no_trim_keeps_the_shape_and_the_plan_beside_it(home, tmp_path, capsys):
    directory = tmp_path / "run"
    result = train(capsys, home, directory, "--method_config", "target_sparsity=0.5", "--no_trim")
    model = tf.AutoModelForSequenceClassification.from_pretrained(directory)
    assert [site.heads for site in attentrim.find_sites(model)] == [4, 4]
    assert result["value"] == pytest.approx(result["masked_value"], abs=1e-6)
    masked = evaluate(capsys, home, directory, "--plan", directory / "plan.json", "--use_cpu")
    assert masked["value"] == pytest.approx(result["value"], abs=1e-6)
    assert (
        run("trim", "--model", directory, "--plan", directory / "plan.json", "--output_dir", tmp_path / "small") == 0
    )
    small = evaluate(capsys, home, tmp_path / "small", "--use_cpu")
    assert small["value"] == pytest.approx(result["value"], abs=1e-6)


def test_none_is_plain_fine_tuning(home, tmp_path, capsys):
    result = train(capsys, home, tmp_path / "run", "--method", "none")
    assert (result["sparsity"], result["heads_kept"]) == (0.0, [4, 4])
    teacher = tmp_path / "run"
    settings = ("--method_config", "target_sparsity=0.5", "--distill_logits", 1, "--distill_hidden", 1)
    distilled = train(capsys, home, tmp_path / "distilled", *settings, "--teacher", teacher)
    assert distilled["sparsity"] == 0.5


def test_distillation_by_flags_by_file_and_by_the_old_settings_is_the_same(home, tmp_path, capsys):
    """Without a method too; the config that a run leaves has the flags, whichever way it was told."""
    train(capsys, home, tmp_path / "dense", "--method", "none")
    base = ("--model", tmp_path / "dense", "--teacher", tmp_path / "dense")
    ways = {
        "flags": ("--method", "none", "--distill_logits", 2, "--distill_noise", 0.2),
        "file": ("--config", tmp_path / "flags" / "config.yaml"),
        "plain": ("--method", "none", "--distill_logits", 1),
    }
    for name, words in ways.items():
        train(capsys, home, tmp_path / name, *base, *words)
    flags, file, plain = ((tmp_path / name / "model.safetensors").read_bytes() for name in ways)
    assert flags == file != plain
    heads = ("--method", "random-heads", "--method_config", "target_sparsity=0.25")
    train(capsys, home, tmp_path / "new", *base, *heads, "--distill_hidden", 1)
    with pytest.warns(FutureWarning, match="or --distill_hidden on the command line"):
        train(capsys, home, tmp_path / "old", *base, *heads, "distill_hidden=1")
    assert (tmp_path / "old" / "model.safetensors").read_bytes() == (
        tmp_path / "new" / "model.safetensors"
    ).read_bytes()
    configs = [yaml.safe_load((tmp_path / name / "config.yaml").read_text()) for name in ("old", "new")]
    assert configs[0] == {**configs[1], "output_dir": configs[0]["output_dir"]}
    assert configs[0]["distill_hidden"] == 1.0
    assert not any("distill" in name for name in configs[0]["method_config"])


def test_a_teacher_that_was_not_trained_for_the_task_is_refused(home, tmp_path, capsys):
    words = ["train", "--model", home / "tiny", "--task", "cola", "--data_dir", home / "data", "--use_cpu"]
    words += ["--output_dir", tmp_path / "run", "--teacher", home / "tiny", "--distill_hidden", 1]
    assert "has no head for classification" in fails(capsys, *words)


def test_dropout_of_the_model_is_what_was_asked_for(home, tmp_path, capsys):
    """All rates of its config, in training and in what is saved; 0 is a value, on the command line and in a file."""
    train(capsys, home, tmp_path / "none", "--method", "none", "--dropout", 0)
    train(capsys, home, tmp_path / "plain", "--method", "none")
    train(capsys, home, tmp_path / "again", "--config", tmp_path / "none" / "config.yaml")
    rates = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    saved = {name: json.loads((tmp_path / name / "config.json").read_text()) for name in ("none", "plain", "again")}
    assert {name: [config[rate] for rate in rates] for name, config in saved.items()} == {
        "none": [0, 0], "plain": [0.1, 0.1], "again": [0, 0],
    }  # fmt: skip
    none, same, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("none", "again", "plain"))
    assert none == same != other
    words = ["train", "--model", home / "tiny", "--task", "cola", "--data_dir", home / "data"]
    words += ["--output_dir", tmp_path / "run"]
    assert "--dropout must be in [0, 1). Got 1.5" in fails(capsys, *words, "--dropout", 1.5)


def test_attention_goes_on_plain_text_and_what_is_left_is_fine_tuned(home, tmp_path, capsys):
    """A bare teacher will do where nobody asks for its answers; what comes out starts a task like any model."""
    for name in ("train", "validation"):
        (tmp_path / f"{name}.txt").write_text("a dog barks\n\nthe cat sleeps there\n" * 20)
    settings = ("tune_share=1", "prune_order=top", "prune_count=1", "--distill_hidden", 1, "--label_weight", 0)
    words = ["--model", home / "tiny", "--task", "mlm", "--data_dir", tmp_path, "--use_cpu", "--max_steps", 6]
    words += ["--teacher", home / "tiny", "--method", "attendout", "--method_config", *settings, "--no_bench"]
    result = run_json(capsys, "train", *words, "--output_dir", tmp_path / "text")
    assert result["uniform_sites"] == [1]
    assert "mean nothing" in result["remarks"][0]
    assert "before" not in result
    card = (tmp_path / "text" / "README.md").read_text()
    assert "mean nothing" in card
    assert "model-index" not in card
    tuned = train(capsys, home, tmp_path / "run", "--model", tmp_path / "text", "--method", "none")
    assert (tuned["uniform_sites"], tuned["heads_kept"]) == ([1], [4, 0])


def test_resume(home, tmp_path, capsys):
    directory = tmp_path / "run"
    keep = ("--method_config", "target_sparsity=0.5", "--save_total_limit", 5)
    whole = train(capsys, home, directory, *keep)
    history = (directory / "history.jsonl").read_text().splitlines()
    again = train(capsys, home, directory, *keep, "--resume_from_checkpoint", directory / "checkpoint-6")
    assert again["value"] == whole["value"]
    assert again["heads_kept"] == whole["heads_kept"]
    steps = [json.loads(line)["step"] for line in (directory / "history.jsonl").read_text().splitlines()]
    assert steps == [json.loads(line)["step"] for line in history]


@pytest.mark.parametrize("method", ["hisp", "smp", "random-heads"])
def test_plan_without_training(home, tmp_path, capsys, method):
    trained = tmp_path / "trained"
    train(capsys, home, trained, "--method", "none")
    data = ("--task", "cola", "--data_dir", home / "data")
    more = ["search_steps=2", "map_length=8"] if method == "smp" else []
    settings = ("--method", method, "--method_config", "target_sparsity=0.25", *more)
    result = run_json(
        capsys, "plan", "--model", trained, *data, *settings, "--out", tmp_path / "plan.json", "--use_cpu"
    )
    assert sum(result["heads_kept"]) == 6
    plan = attentrim.Plan.load(tmp_path / "plan.json")
    assert plan.heads_kept == result["heads_kept"]
    assert plan.made_by["method"] == method
    assert plan.made_by["settings"]["target_sparsity"] == 0.25


def test_methods_lists_them_with_their_settings(capsys):
    listed = run_json(capsys, "methods")
    assert [entry["name"] for entry in listed["methods"]] == attentrim.list_methods()
    one = run_json(capsys, "methods", "autoattention")
    assert {"name": "penalty", "default": 1e-3, "help": "what each open gate adds to the loss"} in one["settings"]
    assert run("methods", "l0") == 0
    assert "hard-concrete" in capsys.readouterr().out


BAD = [
    (["--method", "autoatention"], "Unknown method 'autoatention'. Did you mean 'autoattention'?"),
    (["--method_config", "target_sparsity=50"], "must be in [0, 1). Got 50 instead. Did you mean 0.5?"),
    (["--method_config", "target_sparcity=0.5"], "Unknown setting of AutoAttention 'target_sparcity'"),
    (["--method_config", "target_sparsity"], "takes K=V"),
    (["--method_config", "penalty=1", "penalty=2"], "twice"),
    (["--method", "none", "--method_config", "penalty=1"], "has no settings"),
    (["--task", "colla"], "Unknown task 'colla'. Did you mean 'cola'?"),
    (["--data_dir", "nowhere"], "There is no file nowhere/train.tsv"),
    (["--learning_rat", "1"], "Unknown flag '--learning_rat'. Did you mean '--learning_rate'"),
    (["--learning_rate", "fast"], "invalid float value: 'fast'"),
    (["--max_length", "4"], "--max_length must be between 8 and 512"),
    (["--max_train_samples", "0"], "must be 1 or more"),
    (["--model", "./nowhere"], "There is no model directory ./nowhere"),
    (["--config", "nowhere.yaml"], "Cannot read the config nowhere.yaml"),
    (["--distill_logits", "1"], "Distillation needs a dense model"),
    (["--method", "none", "--distill_logits", "1"], "Distillation without a method needs a dense model"),
    (["--distill_noise", "0.1"], "distill_noise is for distillation: set distill_logits or distill_hidden too"),
    (["--distill_logits", "1", "--distill_noise", "10"], "must be in [0, 1). Got 10 instead. Did you mean 0.1?"),
    (["--teacher", "x"], "--teacher is for distillation"),
    (["surplus"], "Unexpected argument 'surplus'"),
    (["--method_config", "target_sparsity=0.5", "dense_share=0.95"], "No step is left to choose in"),
    (["--method_config", "penalty=9", "--logging_steps", "1"], "Every gate of the model was closed"),
    (["--learning_rate", "1e30"], "The loss is nan"),
    (["--resume_from_checkpoint", "nowhere"], "nowhere"),
    (["--seed", "-1"], "Seed must be between 0"),
    (["--metric_for_best_model", "bleu", "--load_best_model_at_end"], "bleu"),
]


@pytest.mark.parametrize(("wrong", "words"), BAD, ids=[words[:30] for _, words in BAD])
def test_bad_input_is_one_clear_line(home, tmp_path, capsys, monkeypatch, wrong, words):
    monkeypatch.chdir(tmp_path)
    base = [
        "--model",
        home / "tiny",
        "--task",
        "cola",
        "--data_dir",
        home / "data",
        "--output_dir",
        "run",
        "--use_cpu",
    ]
    assert run("train", *base, "--num_train_epochs", 2, "--max_grad_norm", 0, "--disable_tqdm", "True", *wrong) == 1
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if line.startswith("attentrim: error:")]
    assert len(lines) == 1
    assert words in lines[0]
    assert "Traceback" not in printed.err


def test_bad_yaml(home, tmp_path, capsys):
    for text, words in [
        ("- a\n", "must be a mapping"),
        ("a: [\n", "not valid YAML"),
        (
            "learning_rat: 1\n",
            "'learning_rat' in the config is neither a flag nor a TrainingArguments field. Did you mean 'learning_",
        ),
        ("method_config: [a]\n", "method_config must be a mapping"),
        ("max_length: many\n", "max_length in the config must be a whole number. Got 'many'"),
        ("max_length: 8.5\n", "must be a whole number"),
        ("no_trim: perhaps\n", "no_trim in the config must be true or false"),
        ("teacher: [a]\n", "teacher in the config must be text"),
        ("", "--model is missing"),
    ]:
        (tmp_path / "c.yaml").write_text(text)
        given = () if not text else ("--model", home / "tiny", "--task", "cola", "--data_dir", home / "data")
        assert run("train", "--config", tmp_path / "c.yaml", "--output_dir", tmp_path / "r", *given) == 1
        assert words in capsys.readouterr().err


def test_evaluate_and_plan_refuse_what_they_cannot_judge(home, tmp_path, capsys):
    data = ("--task", "cola", "--data_dir", home / "data")
    assert run("evaluate", "--model", home / "tiny", *data) == 1
    assert "has no head for classification" in capsys.readouterr().err
    assert run("plan", "--model", home / "tiny", *data, "--method", "l0", "--out", tmp_path / "p.json") == 1
    assert run("plan", "--model", home / "tiny", *data, "--method", "none", "--out", tmp_path / "p.json") == 1
    assert run("plan", "--model", home / "tiny", *data, "--out", tmp_path / "p.json") == 1
    assert run("plan", "--model", home / "tiny", *data, "--method", "hisp", "--out", tmp_path) == 1
    assert "must be a file" in capsys.readouterr().err


def test_help_needs_no_torch_and_help_all_has_everything():
    script = """
import sys
from attentrim.cli import main
try:
    main(['train', '--help'])
except SystemExit:
    assert 'torch' not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "--method_config" in done.stdout
    assert "--lr_scheduler_type" not in done.stdout
    everything = subprocess.run(
        [sys.executable, "-m", "attentrim.cli", "train", "--help_all"], capture_output=True, text=True, check=True
    )
    assert "--lr_scheduler_type" in everything.stdout
    assert "--method_config" in everything.stdout


def test_what_it_cost_comes_first_and_the_command_for_the_dense_model_works(home, tmp_path, capsys):
    """Timed, and started from a model that was not trained for the task."""
    directory = tmp_path / "run"
    words = ("--model", home / "tiny", "--task", "cola", "--data_dir", home / "data", "--output_dir", directory)
    few = ("--max_steps", 2, "--use_cpu", "--method_config", "target_sparsity=0.5")
    assert run("train", *words, *few) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    metrics = json.loads((directory / "metrics.json").read_text())
    measured = json.loads((directory / "bench.json").read_text())["rows"][-1]["speedup"]
    assert metrics["speedup_measured"] == measured
    assert metrics["speedup_flops"] == metrics["flops_ratio"] > 1
    most = next(line for line in lines if "at most" in line)
    assert re.fullmatch(
        r"heads alone can make this model at most \d\.\d\d × faster \(theoretical, FLOPs at .*\)", most
    )
    cost = f"matthews {number(metrics['value'])}, {times(measured)} at 8 × 128 on this CPU"
    assert (
        lines.index(most) < lines.index(cost) < next(i for i, line in enumerate(lines) if "before and after" in line)
    )
    command = lines[lines.index(cost) + 1].partition("to see what this cost: ")[2]
    assert run(*shlex.split(command)[1:]) == 0
    dense = json.loads((tmp_path / "run-dense" / "metrics.json").read_text())
    assert (dense["method"], dense["removed"], dense["speedup_measured"]) == ("none", [], None)
    assert f"matthews {number(dense['value'])}, nothing removed" in capsys.readouterr().out


def test_a_run_that_distils_from_its_own_dense_steps_knows_what_it_lost(home, tmp_path, capsys):
    settings = ("--method_config", "target_sparsity=0.5", "dense_share=0.5", "--distill_logits", 1)
    result = train(capsys, home, tmp_path / "run", *settings)
    dense = evaluate(capsys, home, tmp_path / "run" / "dense", "--use_cpu")
    assert result["before"]["of"] == "the dense model"
    assert result["before"]["value"] == pytest.approx(dense["value"], abs=1e-6)
    assert result["before"]["metrics"] == pytest.approx(dense["metrics"], abs=1e-6)
    assert f"**matthews {number(dense['value'])} → {number(result['value'])}, " in (
        tmp_path / "run" / "README.md"
    ).read_text(encoding="utf-8")


def test_the_models_of_several_speeds_are_a_table(capsys, tmp_path):
    plan = plan_of(removed={0: [0]})
    recorded = write_run(tmp_path / "run", plan=plan, metrics=speed_facts())
    size = Cost({"heads": 6}, 10, 40, 10, 128)
    result = {**json.loads((recorded / "metrics.json").read_text()), "removed": plan.describe()}
    report(Output(), Finished(None, None, result, bench_of(), (size, size), plan))
    printed = capsys.readouterr().out
    assert printed.startswith("accuracy .760 → .750, 2.00 × at 8 × 128 on this CPU")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines()]
    assert ["dense", "1.00 ×", "1.00 ×", ".760", ""] in rows
    assert ["2.00 ×", "2.05 ×", "2.20 ×", ".700", "speedup-2"] in rows


def test_a_console_without_arrows_gets_the_rest(monkeypatch):
    file = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", file)
    Output().say("accuracy .91 → .90, 2.00 ×")
    file.flush()
    assert file.buffer.getvalue().decode("cp1252").strip() == "accuracy .91 ? .90, 2.00 ×"
