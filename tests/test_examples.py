"""The scripts in examples/ run, on tiny models."""

from __future__ import annotations

import random
import runpy
import sys
from pathlib import Path

import pytest
import texts
import tiny_sentences as ts
import transformers as tf

import attentrim
from attentrim.checkpoint.stored import stored_plan

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(monkeypatch, name, *words):
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_shrink_an_embedding_model(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sentence_transformers")
    model = ts.directory(tmp_path / "model", normalize=True)
    draw = random.Random(0)
    lines = [" ".join(draw.choices(ts.WORDS, k=draw.randint(3, 9))) for _ in range(60)]
    (tmp_path / "texts.txt").write_text("\n".join(lines))
    out = tmp_path / "embedder"
    words = ("--model", model, "--texts", tmp_path / "texts.txt", "--max_steps", 6, "--output_dir", out)
    run(monkeypatch, "shrink_an_embedding_model.py", *words, "--speedup", 1.2)
    printed = capsys.readouterr().out
    for said in ("similarity_spearman", "neighbours", "times the model's it was made from"):
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
