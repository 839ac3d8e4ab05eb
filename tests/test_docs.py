"""Every Python block in README and docs runs, in order, page by page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import transformers as tf

from attentrim import Plan

ROOT = Path(__file__).parent.parent
PAGES = [
    path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if "```python" in path.read_text()
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # a stand-in where the pages load BERT-base by name
    config = tf.BertConfig(
        hidden_size=48, num_hidden_layers=12, num_attention_heads=12, intermediate_size=64, vocab_size=90
    )
    tf.BertForSequenceClassification(config).save_pretrained("bert-base-uncased")
    ids = torch.randint(5, 90, (32, 8))
    rows = [{"input_ids": row, "labels": int(row[0] > 45)} for row in ids]
    scope: dict[str, object] = {"train_dataset": rows}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), scope)


def test_readme_shows_real_numbers():
    """What README says the example prints, counted on the skeleton of BERT-base: any half of the heads."""
    with torch.device("meta"):
        model = tf.BertForSequenceClassification(tf.BertConfig())
    before, after = Plan.of(model, heads={site: range(6) for site in range(12)}).cost(model)
    printed = f"{before.heads} -> {after.heads} heads, {before.parameters:,} -> {after.parameters:,} parameters"
    assert f"`{printed}`" in (ROOT / "README.md").read_text()
