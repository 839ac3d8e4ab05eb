"""Files that are damaged, or made to do harm."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import fuzzing
import pytest
from recordings import write_run

from attentrim import plots
from attentrim.cli import main
from attentrim.errors import AttentrimError, PlanError
from attentrim.guarded import parse_json, parse_yaml, read_text
from attentrim.plan import Plan
from attentrim.runs.directories import check_output_dir, copy_companions
from attentrim.runs.models import load_model


def test_nothing_but_our_own_errors_comes_out_of_damaged_files():
    here = Path(fuzzing.__file__)
    done = subprocess.run(
        [sys.executable, here.name, "0"], cwd=here.parent, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["inputs"] >= 3000
    assert not found["leaks"], "\n".join(found["leaks"][:5])
    assert found["grown"] < 500e6


def enormous(**changes):
    plan = fuzzing.a_plan()
    plan["places"]["sites"] = [{"path": f"layer.{index}", "heads": 4 * 10**6, "head_size": 1} for index in range(25)]
    plan["removed"] = {"heads": {str(index): "0-3999999" for index in range(25)}}
    return {**plan, **changes}


def test_a_plan_that_claims_a_hundred_million_heads_is_refused_at_once(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(enormous()))
    start = time.perf_counter()
    with pytest.raises(PlanError, match="more than any model has") as error:
        Plan.load(tmp_path / "plan.json")
    assert time.perf_counter() - start < 2
    assert len(str(error.value)) < 3000


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


def test_files_of_the_hub_cache_are_copied(tmp_path):
    snapshot, out = tmp_path / "models--a--b" / "snapshots" / "0123", tmp_path / "out"
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True), blobs.mkdir(), out.mkdir()
    (blobs / "abc").write_text("words")
    (snapshot / "tokenizer.json").symlink_to("../../blobs/abc")
    assert copy_companions(str(snapshot), out) == ["tokenizer.json"]
    assert (out / "tokenizer.json").read_text() == "words"


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


def test_names_with_dollar_signs_are_drawn_as_they_are(tmp_path):
    name = "$\\undefined$"
    lines = [{"step": step, "epoch": step, f"eval_{name}": 0.5} for step in (1, 2)]
    run = write_run(tmp_path / "run", metrics={"metric": name}, history=lines)
    plots.metric_by_epoch(run).figure.savefig(tmp_path / "figure.svg")
