"""Settings: what is refused, in which words, and how text becomes values."""

from __future__ import annotations

import json

import pytest

import attentrim
from attentrim.distillation import FLAGS
from attentrim.errors import AttentrimError, MethodError
from attentrim.methods import METHODS
from attentrim.registry import Registry


def test_a_share_given_in_percent_is_refused_with_the_fix():
    with pytest.raises(MethodError) as caught:
        attentrim.AutoAttention(target_sparsity=50)
    assert str(caught.value) == (
        "The 'target_sparsity' parameter of AutoAttention must be in [0, 1). Got 50 instead. Did you mean 0.5?"
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"target_sparsity": 1.0}, r"in \[0, 1\). Got 1"),
        ({"target_sparsity": -0.1}, r"in \[0, 1\). Got -0.1"),
        ({"target_sparsity": float("nan")}, "Got nan"),
        ({"target_sparsity": True}, "a number"),
        ({"target_sparsity": "half"}, "a number"),
        ({"penalty": -1e-3}, "0 or more"),
        ({"penalty": float("inf")}, "Got inf"),
        ({"checks": 1.5}, "a whole number"),
        ({"checks": 0}, "1 or more"),
        ({"backward": "softmax"}, "one of softplus, sigmoid"),
        ({"preset": "fast"}, "one of one_shot, paper"),
        ({"max_drop": 0.0, "target_sparsity": 0.5}, "not both"),
        ({"max_drop": 0.0, "dense_share": 0.0}, "dense model"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(MethodError, match=words):
        attentrim.AutoAttention(**settings)


def test_text_becomes_the_type_of_the_field():
    made = attentrim.AutoAttention.from_settings(
        {"penalty": "1e-2", "target_sparsity": "0.25", "checks": "3", "dense_share": "none"}
    )
    assert (made.penalty, made.target_sparsity, made.checks, made.dense_share) == (0.01, 0.25, 3, None)
    with pytest.raises(MethodError, match=r"'checks' parameter of AutoAttention must be a whole number\. Got 'many'"):
        attentrim.AutoAttention.from_settings({"checks": "many"})
    with pytest.raises(MethodError, match="Unknown setting of AutoAttention 'target_sparcity'"):
        attentrim.AutoAttention.from_settings({"target_sparcity": "0.5"})


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_public_and_documented(name, request):
    method = METHODS[name]
    assert getattr(attentrim, method.__name__) is method
    assert method.__name__ in attentrim.__all__
    json.dumps(method().settings)
    page = (request.config.rootpath / "docs" / "methods" / f"{name}.md").read_text()
    for entry in method.setting_fields():
        shown = (
            "none"
            if entry.default is None
            else f"{entry.default:g}"
            if isinstance(entry.default, float)
            else entry.default
        )
        assert f"| `{entry.name}` | {shown} | {entry.metadata['help']} |" in page


def test_distillation_is_documented(request):
    page = (request.config.rootpath / "docs" / "training.md").read_text()
    for flag, name in FLAGS.items():
        entry = attentrim.Distillation.__dataclass_fields__[name]
        assert f"| `{name}` | `{flag}` | {entry.default:g} | {entry.metadata['help']} |" in page


def test_the_registry_refuses_duplicates_and_bad_names():
    table: Registry[int] = Registry("thing")
    table.register("one-two", 1)
    with pytest.raises(AttentrimError, match="already"):
        table.register("one-two", 2)
    with pytest.raises(AttentrimError, match="no name"):
        table.register("One Two", 2)
    with pytest.raises(AttentrimError, match=r"Unknown thing 'one-tow'\. Did you mean 'one-two'"):
        table["one-tow"]
