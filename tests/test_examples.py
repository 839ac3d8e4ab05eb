"""The scripts in examples/ run, on tiny models."""

from __future__ import annotations

import json
import os
import random
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import texts
import tiny_sentences as ts
import transformers as tf

import attentrim
from attentrim.checkpoint.stored import stored_plan

EXAMPLES = Path(__file__).parent.parent / "examples"
SIZE = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}


def run(monkeypatch, name, *words):
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_shrink_an_embedding_model(tmp_path, monkeypatch, capsys, flops_for_time):
    pytest.importorskip("sentence_transformers")
    model = ts.directory(tmp_path / "model", normalize=True)
    draw = random.Random(0)
    lines = [" ".join(draw.choices(ts.WORDS, k=draw.randint(3, 9))) for _ in range(60)]
    (tmp_path / "texts.txt").write_text("\n".join(lines))
    out = tmp_path / "embedder"
    words = ("--model", model, "--texts", tmp_path / "texts.txt", "--max_steps", 6, "--output_dir", out)
    run(monkeypatch, "shrink_an_embedding_model.py", *words, "--speedup", 1.2)
    printed = capsys.readouterr().out
    for said in ("similarity_spearman", "neighbours", "× at 8 × "):
        assert said in printed
    assert printed.count(f"nearest to {lines[0]!r}") == 2
    assert stored_plan(attentrim.embedding_model(str(out)))


def test_shrink_a_language_model(tmp_path, monkeypatch, capsys):
    model = texts.save(tmp_path / "model", texts.decoder(layers=4))
    text, out = texts.write(tmp_path / "book.txt", lines=60), tmp_path / "smaller"
    words = ("--model", model, "--text", text, "--blocks", 2, "--length", 32, "--output_dir", out)
    run(monkeypatch, "shrink_a_language_model.py", *words)
    printed = capsys.readouterr().out
    assert "perplexity" in printed
    assert "\nafter: " in printed
    loaded = tf.AutoModelForCausalLM.from_pretrained(out)
    assert sorted(stored_plan(loaded).heads_kept) == [0, 0, 4, 4]


def test_twice_as_fast(tmp_path, monkeypatch, capsys, flops_for_time):
    model = tf.BertModel(tf.BertConfig(vocab_size=len(texts.tokenizer()), **{**SIZE, "num_hidden_layers": 3}))
    texts.save(tmp_path / "model", model)
    rows = [f"{('a dull film', 'a fine film')[number % 2]} {number},{number % 2}\n" for number in range(80)]
    (tmp_path / "reviews.csv").write_text("review,good\n" + "".join(rows))
    monkeypatch.chdir(tmp_path)
    words = ("--model", "model", "--table", "reviews.csv", "--text_column", "review", "--label_column", "good")
    run(monkeypatch, "twice_as_fast.py", *words, "--speedup", 1.3)
    printed = capsys.readouterr().out
    assert re.search(r"accuracy [.\d]+ → [.\d]+, [\d.]+ × at 8 × \d+ on this CPU", printed)
    assert printed.count(" -> ") >= 5
    assert stored_plan(tf.AutoModelForSequenceClassification.from_pretrained("twice-as-fast/fast"))


def test_the_plug_in_is_what_its_page_shows():
    page = (EXAMPLES.parent / "docs" / "how-to" / "plug-ins.md").read_text()
    shown = re.findall(r"```(?:toml|python)\n# (\S+)\n(.*?)```", page, flags=re.DOTALL)
    assert {name for name, _ in shown} == {
        "pyproject.toml",
        *(f"attentrim_top/{name}.py" for name in ("__init__", "session", "complaints")),
    }
    for name, code in shown:
        assert (EXAMPLES / "plug_in" / name).read_text().endswith(code), name


def test_the_plug_in_installs_and_its_method_trains(tmp_path):
    shutil.copytree(EXAMPLES / "plug_in", tmp_path / "package")
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", site, tmp_path / "package"], check=True, capture_output=True)
    texts.save(
        tmp_path / "model", tf.BertForSequenceClassification(tf.BertConfig(vocab_size=len(texts.tokenizer()), **SIZE))
    )
    words = ["train", "--model", "model", "--method", "top-heads", "--method_config", "target_sparsity=0.25"]
    quick = [
        "--max_steps",
        "2",
        "--max_train_samples",
        "16",
        "--max_eval_samples",
        "8",
        "--no_bench",
        "--use_cpu",
        "--task",
        "acceptability",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "attentrim", *words, *quick, "--output_dir", "run", "--json"],
        env=environment, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["heads_kept"] == [4, 2]
