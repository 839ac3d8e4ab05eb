"""Settings: what is refused, in which words, and how text becomes values."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
import pydoc

import pytest

import attentrim
from attentrim.distillation import FLAGS
from attentrim.errors import AttentrimError, MethodError
from attentrim.methods import METHODS
from attentrim.options import current_fields
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
    with pytest.raises(AttentrimError, match="is not a valid name"):
        table.register("One Two", 2)
    with pytest.raises(AttentrimError, match=r"Unknown thing 'one-tow'\. Did you mean 'one-two'"):
        table["one-tow"]


OPTIONS = [*(METHODS[name] for name in METHODS), attentrim.Distillation]


@pytest.mark.parametrize("config", OPTIONS, ids=lambda config: config.__name__)
def test_every_parameter_is_in_the_docstring(config):
    text = " ".join(inspect.getdoc(config).split())
    summary, listed = text.split("Args:")
    assert summary
    for entry in current_fields(config):
        assert f" {entry.name} (" in listed
        assert f"default {entry.default!r}): {entry.metadata['help']}".rstrip(".") in listed
        if entry.metadata["rule"]:
            assert entry.metadata["rule"].text.removeprefix("one of ") in listed
    for entry in config.__dataclass_fields__.values():
        if "renamed" in entry.metadata:
            assert f" {entry.name} (" not in listed


def test_help_shows_what_a_method_inherits_and_what_it_changes():
    text = pydoc.plain(pydoc.render_doc(attentrim.HISP))
    assert "target_sparsity (float, default 0.5): remove exactly this share" in text
    assert "rounds (int, default 1)" in text
    assert text.count("target_sparsity (") == 1


def test_an_unknown_setting_is_answered_with_the_nearest_in_python_too():
    for make in (attentrim.AutoAttention, lambda **given: attentrim.AutoAttention.from_settings(given)):
        with pytest.raises(MethodError, match=r"^Unknown setting of AutoAttention 'target_sparcity'\. Did you mean "):
            make(target_sparcity=0.5)
    with pytest.raises(MethodError, match=r"^Unknown setting of Distillation 'hiden'\. Did you mean 'hidden'\?"):
        attentrim.Distillation(hiden=1.0)
    with pytest.raises(MethodError, match=r"^Name the settings of HISP, as in HISP\(\w+=\.\.\.\)\.$"):
        attentrim.HISP(0.5)


def test_a_method_may_have_an_init_of_its_own():
    class Own(attentrim.Distillation):
        def __init__(self, strength, **more):
            super().__init__(logits=strength, **more)

    assert Own(2.0, temperature=3.0).temperature == 3.0
    assert Own(strength=2.0).logits == 2.0


@pytest.mark.parametrize("made", [attentrim.AutoAttention(gate_lr=3.0), attentrim.Distillation(hidden=1.0)])
def test_settings_survive_copies(made):
    assert copy.deepcopy(made) == made
    assert pickle.loads(pickle.dumps(made)) == made
    assert dataclasses.replace(made) == made
