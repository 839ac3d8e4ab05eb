"""A trimmed model that is asked for long leaves nothing behind. benchmarks/serving_memory.py measures megabytes."""

from __future__ import annotations

import gc
import random
from collections import Counter

import pytest
import torch
import transformers as tf
import zoo

from attentrim import Plan, trim
from attentrim.control import Control

PADDING = ("none", "right", "left")
REQUESTS = 100


def trimmed(attn):
    model = zoo.build("bert", attn=attn, layers=4)
    plan = Plan.of(model, heads={0: [1]}, uniform=[1], neurons={0: range(9), 2: [3]}, layers=[3])
    return trim(model, plan)


def ask(model, count):
    """The same requests each time: shapes that were not seen before are no growth."""
    rng = random.Random(0)
    for _ in range(count):
        batch = zoo.inputs("bert", batch=rng.randint(1, 4), length=rng.randint(4, 24), padding=rng.choice(PADDING))
        with torch.inference_mode():
            model(**batch)


def alive():
    """How many objects there are, by type."""
    gc.collect()
    return Counter(type(thing).__name__ for thing in gc.get_objects())


def hooks(model):
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, name)) for module in model.modules() for name in names)


@pytest.mark.parametrize("attn", ["eager", "sdpa"])
@pytest.mark.parametrize("how", ["trimmed", "loaded", "gated"])
def test_nothing_grows_with_requests(how, attn, tmp_path):
    model = trimmed(attn)
    if how == "loaded":
        model.save_pretrained(tmp_path)
        model = tf.AutoModel.from_pretrained(tmp_path, attn_implementation=attn).eval()
    control = Control(model) if how == "gated" else None
    for _ in range(2):  # what is cached once, by counting too, is there then
        ask(model, REQUESTS)
        before, attached = alive(), hooks(model)
    ask(model, REQUESTS)
    grown = alive() - before
    assert sum(grown.values()) < REQUESTS // 10, grown.most_common(5)
    assert not {name for name in grown if "Tensor" in name or "Parameter" in name}
    assert hooks(model) == attached
    del control
