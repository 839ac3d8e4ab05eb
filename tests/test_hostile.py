"""Files that are damaged, or made to do harm."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import enormous
import fuzzing
import pytest
from commands import fails, run_json
from recordings import plan_of, write_run

from attentrim import plots
from attentrim.cli import main
from attentrim.errors import AttentrimError, PlanError
from attentrim.guarded import parse_json, parse_yaml, read_text
from attentrim.plan import Plan
from attentrim.report import write_report
from attentrim.runs.directories import check_output_dir, copy_companions
from attentrim.runs.files import read_config
from attentrim.runs.loading import _as_in_training
from attentrim.runs.models import load_model
from attentrim.runs.reader import Recorded
from attentrim.runs.settings import TaskSettings
from attentrim.speed.table import Table


def test_nothing_but_our_own_errors_comes_out_of_damaged_files():
    here = Path(fuzzing.__file__)
    done = subprocess.run(
        [sys.executable, here.name, "0"], cwd=here.parent, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["inputs"] >= 3000
    assert not found["leaks"], "\n".join(found["leaks"][:5])
    assert found["grown"] < 500e6


def test_a_plan_that_claims_a_hundred_million_heads_is_refused_at_once(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(enormous.hundred_million_heads()))
    start = time.perf_counter()
    with pytest.raises(PlanError, match="more than any model has") as error:
        Plan.load(tmp_path / "plan.json")
    assert time.perf_counter() - start < 2
    assert len(str(error.value)) < 3000


def test_files_that_claim_much_take_little():
    """Through `from_pretrained`, `show` and `report`, in a process of their own. Some would take hours."""
    here = Path(enormous.__file__)
    done = subprocess.run(
        [sys.executable, here.name], cwd=here.parent, capture_output=True, text=True, check=True, timeout=150
    )
    found = json.loads(done.stdout.splitlines()[-1])
    for case, (said, grown) in found.items():
        assert grown < 500e6, case
        assert len(said) < 3000, case
    said = {case: said for case, (said, _) in found.items()}
    assert {case.partition(": ")[0] for case in said} == {"from_pretrained", "show", "report"}
    for door, source in (("from_pretrained", "The plan stored in config.json"), ("report", "the plan")):
        assert f"{source}: it claims more than 65536 heads, more than any model has" in said[f"{door}: 10^8 heads"]
        assert f"{source}: it claims 5000 sites, more than any model has" in said[f"{door}: 5000 sites"]
    assert "does not know encoder.layer.1" in said["from_pretrained: 65536 heads at one site"]
    assert "does not know encoder.layer.1" in said["from_pretrained: a million neurons"]
    assert "config.json: it is longer than 16 MiB" in said["show: 20 MB"]
    assert "metrics.json cannot be read (it is longer than 16 MiB)" in said["report: 20 MB"]
    assert said["report: 65536 heads at one site"] == said["report: 20000 timings"] == ""


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 200 + "]" * 200, "9" * 5000])
def test_json_that_is_too_deep_or_has_too_many_digits(text):
    with pytest.raises(AttentrimError):
        parse_json(text)


@pytest.mark.parametrize("text", fuzzing.BOMBS[:3])
def test_yaml_that_stands_for_billions_of_values(text):
    with pytest.raises(AttentrimError, match=r"more than|nested"):
        parse_yaml(text)


def test_long_files_are_not_read(tmp_path):
    (tmp_path / "long").write_bytes(b" " * 101)
    assert len(read_text(tmp_path / "long", 101)) == 101
    with pytest.raises(AttentrimError, match="longer than"):
        read_text(tmp_path / "long", 100)


@pytest.mark.parametrize("path", [["plan.json"], 7.5, "plan\0.json"])
def test_what_is_no_path_is_said_to_be_none(path):
    for read in (Plan.load, read_config, Table.load):
        with pytest.raises(AttentrimError, match="it is not a valid path"):
            read(path)


def test_no_message_is_longer_than_a_screen():
    assert len(str(AttentrimError("x" * 10**7))) < 3000


def test_links_out_of_a_model_are_not_copied(tmp_path):
    model, out = tmp_path / "model", tmp_path / "out"
    model.mkdir(), out.mkdir()
    (tmp_path / "secret").write_text("secret")
    (model / "own.json").write_text("own")
    (model / "vocab.txt").symlink_to(model / "own.json")
    (model / "tokenizer.json").symlink_to(tmp_path / "secret")
    said = []
    assert sorted(copy_companions(str(model), out, said.append)) == ["own.json", "vocab.txt"]
    assert sorted(path.name for path in out.iterdir()) == ["own.json", "vocab.txt"]
    assert "tokenizer.json is a link out of" in said[0]


@pytest.mark.parametrize("command", [["trim", "--heads", "0:1"], ["trim", "--heads", "0:1", "--portable"], ["export"]])
def test_commands_neither_copy_nor_write_through_links(home, tmp_path, capsys, command):
    model, linked = tmp_path / "model", tmp_path / "linked"
    shutil.copytree(home / "tiny", model)
    (tmp_path / "secret").write_text("secret")
    (model / "vocab.txt").symlink_to(tmp_path / "secret")
    run_json(capsys, *command, "--model", model, "--output_dir", tmp_path / "out")
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    assert not (tmp_path / "out" / "vocab.txt").exists()
    linked.mkdir()
    for name in ("config.json", "tokenizer.json", "README.md"):
        (linked / name).symlink_to(tmp_path / "secret")
        assert f"symbolic link {name}" in fails(capsys, *command, "--model", model, "--output_dir", linked)
        (linked / name).unlink()
    assert (tmp_path / "secret").read_text() == "secret"


def test_files_of_the_hub_cache_are_copied(tmp_path):
    snapshot, out = tmp_path / "models--a--b" / "snapshots" / "0123", tmp_path / "out"
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True), blobs.mkdir(), out.mkdir()
    (blobs / "abc").write_text("words")
    (snapshot / "tokenizer.json").symlink_to("../../blobs/abc")
    assert copy_companions(str(snapshot), out) == ["tokenizer.json"]
    assert (out / "tokenizer.json").read_text() == "words"


RUN_FILES = ("metrics.json", "history.jsonl", "plan.json", "config.yaml", "bench.json", "attention.safetensors")


@pytest.mark.parametrize("name", RUN_FILES)
def test_a_report_reads_no_file_through_a_link_out_of_the_run(tmp_path, name):
    run, other = (write_run(tmp_path / place, bench=fuzzing.bench_of()) for place in ("run", "other"))
    (run / name).unlink()
    (run / name).symlink_to(other / name)
    found = write_report([run], tmp_path / "report.html")[0]
    assert f"{name} cannot be read (it is a link out of its directory)." in found.missing
    (run / name).unlink()
    (run / name).symlink_to(run / "own")
    shutil.copyfile(other / name, run / "own")
    assert not write_report([run], tmp_path / "report.html")[0].missing


def test_plans_of_checkpoints_and_runs_of_comparisons_are_not_read_through_links(tmp_path, capsys):
    plan = plan_of()
    heads = [list(range(site.heads)) for site in plan.shapes["sites"]]
    run = write_run(tmp_path / "all" / "a" / "seed-0", plan=plan, history=[{"step": 0, "heads": heads}])
    other = write_run(tmp_path / "other")
    (run / "plan.json").rename(other / "plan.json")
    (run / "checkpoint-5").symlink_to(other)
    assert Recorded.read(run).plan is None
    (tmp_path / "all" / "b").mkdir()
    (tmp_path / "all" / "b" / "seed-0").symlink_to(other)
    found = run_json(capsys, "report", "--run", tmp_path / "all", "--out", tmp_path / "report.html")
    assert found["runs"] == [str(run)]


def test_a_run_that_is_a_link_itself_and_files_that_a_user_names_are_read(tmp_path):
    run = write_run(tmp_path / "run")
    (tmp_path / "link").symlink_to(run)
    assert not write_report([tmp_path / "link"], tmp_path / "report.html")[0].missing
    (tmp_path / "elsewhere").mkdir()
    for name in ("plan.json", "config.yaml"):
        (tmp_path / "elsewhere" / name).symlink_to(run / name)
    assert Plan.load(tmp_path / "elsewhere" / "plan.json") == Plan.load(run / "plan.json")
    assert read_config(tmp_path / "elsewhere" / "config.yaml")["task"] == "cola"


def test_evaluate_reads_no_settings_through_a_link(tmp_path):
    (tmp_path / "secret.yaml").write_text("max_length: 7")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(AttentrimError, match=r"Cannot read the config .*it is a link out of its directory"):
        _as_in_training(TaskSettings(model=str(tmp_path / "run")), print)


def test_links_that_lead_nowhere(tmp_path):
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "gone").symlink_to("/nowhere/at/all")
    for name in ("circle", "gone"):
        with pytest.raises(AttentrimError, match="link out of its directory"):
            read_text(tmp_path / name)


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="there are no devices here")
def test_a_config_that_may_have_no_end_is_not_read(tmp_path):
    (tmp_path / "config.json").symlink_to("/dev/null")  # harmless, should it be read after all
    with pytest.raises(AttentrimError, match="not a regular file"):
        load_model(str(tmp_path))


def test_nothing_is_written_through_links(tmp_path, capsys):
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").symlink_to(tmp_path / "kept")
    with pytest.raises(AttentrimError, match=r"symbolic link config\.json"):
        check_output_dir(str(tmp_path / "out"), "model")
    run = write_run(tmp_path / "run")
    (run / "report.html").symlink_to(tmp_path / "kept")
    assert main(["report", "--run", str(run)]) == 1
    assert "symbolic link" in capsys.readouterr().err
    assert (tmp_path / "kept").read_text() == "kept"


def test_code_that_comes_with_a_model_is_refused_without_a_question(tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("it asked"))
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "code.Config"}, "architectures": ["Mine"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(AttentrimError, match="custom code"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    "command", ["show", "trim --heads 0:1", "export", "bench", "evaluate", "plan --method hisp", "train"]
)
def test_no_command_offers_to_run_code_that_comes_with_a_model(home, tmp_path, capsys, monkeypatch, command):
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("it asked"))
    shutil.copytree(home / "tiny", tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    classes = dict.fromkeys(("AutoModel", "AutoModelForSequenceClassification"), "code.Model")
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "code.Config", **classes}}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    (tmp_path / "model" / "code.py").write_text("raise SystemExit('it ran')")
    data = ("--task", "cola", "--data_dir", home / "data") if command.startswith(("evaluate", "plan", "train")) else ()
    output = () if command in ("show", "bench", "evaluate") else ("--output_dir", tmp_path / "out")
    words = (*command.split(), "--model", tmp_path / "model", *data, *output)
    assert "contains custom code" in fails(capsys, *words)


def test_names_with_dollar_signs_are_drawn_as_they_are(tmp_path):
    name = "$\\undefined$"
    lines = [{"step": step, "epoch": step, f"eval_{name}": 0.5} for step in (1, 2)]
    run = write_run(tmp_path / "run", metrics={"metric": name}, history=lines)
    plots.metric_by_epoch(run).figure.savefig(tmp_path / "figure.svg")
    write_report([run], tmp_path / "report.html")
    assert name in (tmp_path / "report.html").read_text()
