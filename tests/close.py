"""What can be promised on any machine: weights to the bit, outputs up to rounding.

Kernels round by the alignment of their operands, by shape and by processor. Weights that safetensors maps from a file
lie at other addresses than those that torch allocated, so the outputs of a loaded model can differ from those of the
saved one in the last bits on some processors. `torch.equal` is for weights, and for one tensor in one kernel twice.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Equal up to rounding, as a share of the largest value."""
    actual, expected = actual.detach(), expected.detach()
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if not expected.numel():
        return
    largest, off = float(expected.abs().max()), float((actual - expected).abs().max())
    assert off <= tolerance * largest + 1e-6, f"off by {off:.2e}, the largest value is {largest:.2e}"


def assert_apart(actual: Tensor, other: Tensor) -> None:
    """Different by far more than rounding."""
    actual, other = actual.detach(), other.detach()
    assert float((actual - other).abs().max()) > 1e-4 * float(other.abs().max())


def assert_same_weights(first: Any, second: Any) -> None:
    """Two models with the same tensors, to the bit."""
    weights, others = first.state_dict(), second.state_dict()
    assert weights.keys() == others.keys()
    different = [name for name in weights if not torch.equal(weights[name], others[name])]
    assert not different, different


def assert_same_metrics(result: dict[str, Any], again: dict[str, Any]) -> None:
    """What `train` and `evaluate` print of one checkpoint: the metrics come from outputs."""
    for key in ("task", "metric", "examples"):
        assert result[key] == again[key]
    assert again["value"] == pytest.approx(result["value"], abs=1e-6)
    assert again["metrics"] == pytest.approx(result["metrics"], abs=1e-6)


# The same on a machine where it shows


@torch.no_grad()
def misaligned(model: Any) -> Any:
    """The model with its parameters at addresses 4 bytes behind where torch would put them."""
    for parameter in model.parameters():
        if parameter.device.type == "cpu" and parameter.numel():
            room = torch.empty(parameter.numel() + 1, dtype=parameter.dtype)
            parameter.data = room[1:].view(parameter.shape).copy_(parameter)
    return model


def round_by_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear layers round otherwise where their weights are not aligned, as some processors' kernels do.

    Every output moves by about its last bit. Models come out of `from_pretrained` misaligned.
    """
    import transformers as tf

    linear = torch.nn.functional.linear
    load = tf.PreTrainedModel.from_pretrained.__func__

    def rounding(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        output = linear(inputs, weight, bias)
        if torch.compiler.is_compiling() or weight.is_meta or weight.data_ptr() % 64 == 0:
            return output
        return output * (1 + torch.finfo(output.dtype).eps)

    def loading(cls: Any, *args: Any, **kwargs: Any) -> Any:
        found = load(cls, *args, **kwargs)
        return (misaligned(found[0]), *found[1:]) if isinstance(found, tuple) else misaligned(found)

    monkeypatch.setattr(torch.nn.functional, "linear", rounding)
    monkeypatch.setattr(tf.PreTrainedModel, "from_pretrained", classmethod(loading))
