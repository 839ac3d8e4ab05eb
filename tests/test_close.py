"""The comparisons that other tests rely on: they allow rounding, and nothing else."""

from __future__ import annotations

import pytest
import torch
import zoo
from close import assert_apart, assert_close, assert_same_metrics, assert_same_weights, misaligned, round_by_alignment


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "wav2vec2"])
def test_a_misaligned_model_has_the_same_weights_and_close_outputs(name, monkeypatch, no_grad):
    model, moved = zoo.build(name), misaligned(zoo.build(name))
    assert all(parameter.data_ptr() % 64 == 4 for parameter in moved.parameters())
    assert_same_weights(moved, model)
    batch = zoo.inputs(name, "right")
    expected = zoo.output(name, model, batch)
    assert_close(zoo.output(name, moved, batch), expected)
    round_by_alignment(monkeypatch)
    rounded = zoo.output(name, moved, batch)
    assert not torch.equal(rounded, expected)
    assert_close(rounded, expected)
    assert torch.equal(zoo.output(name, model, batch), expected)


def test_a_model_that_is_loaded_rounds_otherwise(monkeypatch, tmp_path, no_grad):
    model, batch = zoo.build("bert"), zoo.inputs("bert")
    model.save_pretrained(tmp_path)
    round_by_alignment(monkeypatch)
    loaded = type(model).from_pretrained(tmp_path)
    assert_same_weights(loaded, model)
    assert not torch.equal(zoo.output("bert", loaded, batch), zoo.output("bert", model, batch))
    assert_close(zoo.output("bert", loaded, batch), zoo.output("bert", model, batch))


def test_more_than_rounding_is_refused():
    values = torch.linspace(-3.0, 3.0, 7)
    assert_close(values + 3e-5, values)
    assert_apart(values + 3e-2, values)
    for other in (values + 4e-5, values * float("nan"), values[:6]):
        with pytest.raises(AssertionError):
            assert_close(other, values)
    with pytest.raises(AssertionError):
        assert_apart(values + 3e-5, values)


def test_weights_are_compared_to_the_bit():
    model, other = zoo.build("bert"), zoo.build("bert")
    assert_same_weights(model, other)
    with torch.no_grad():
        weight = next(other.parameters())
        weight.copy_(torch.nextafter(weight, weight + 1))
    with pytest.raises(AssertionError, match="word_embeddings"):
        assert_same_weights(model, other)


def test_metrics_may_differ_by_rounding():
    result = {"task": "stsb", "metric": "pearson", "examples": 9, "value": 0.5, "metrics": {"pearson": 0.5}}
    assert_same_metrics(result, {**result, "value": 0.5 + 1e-8})
    for change in ({"value": 0.501}, {"metrics": {"pearson": 0.501}}, {"metrics": {}}, {"examples": 8}):
        with pytest.raises(AssertionError):
            assert_same_metrics(result, {**result, **change})
