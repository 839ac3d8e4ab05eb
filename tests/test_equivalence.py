"""The heart of the product, over every architecture: masked = trimmed = portable, and loaded = saved."""

from __future__ import annotations

import functools

import plans
import pytest
import torch
import zoo
from close import assert_apart, assert_close, assert_same_weights
from hypothesis import given, settings
from hypothesis import strategies as st

from attentrim import Control, Plan, find_sites, portable, trim
from attentrim.errors import UnsupportedModelError
from attentrim.structures.neurons import find_blocks

EAGER_ONLY = ("mpnet", "deberta-v2")
NAMES = (*zoo.CONFIGS, *zoo.VARIANTS)
PAIRS = [(name, attn) for name in NAMES for attn in ("eager", "sdpa") if not (name in EAGER_ONLY and attn == "sdpa")]
CORNERS = (
    "nothing",
    "one group of every site",
    "every site uniform",
    "every site uniform and thinned",
    "first site headless",
    "every site headless",
    "first uniform, last thinned",
    "first headless, last uniform",
    "half of the neurons",
    "no neurons in the first block",
    "all layers that can go",
    "some of everything",
)
MIXTURES = (*((kind,) for kind in plans.REMOVALS), tuple(plans.REMOVALS))


@functools.cache
def shared_model(name: str, attn: str):
    return zoo.build(name, attn=attn, layers=3)


def paddings(name: str) -> list[str]:
    return ["none"] if name in zoo.WITHOUT_PADDING else ["none", "left", "right"]


def assert_same(expected: torch.Tensor, actual: torch.Tensor) -> None:
    assert torch.isfinite(expected).all()
    assert (expected - actual).abs().max() <= 1e-5 * max(1.0, expected.abs().max().item())


def masked_output(name: str, model, plan: Plan, batch) -> torch.Tensor:
    with Control(model) as control:
        control.apply(plan)
        control.check(**batch)
        return zoo.output(name, model, batch)


@torch.no_grad()
def check_equivalence(name: str, attn: str, plan: Plan) -> None:
    model = shared_model(name, attn)
    trimmed = trim(model, plan)
    same_shape = None
    if plan.uniform and name in zoo.NO_PORTABLE_UNIFORM:
        with pytest.raises(UnsupportedModelError, match=f"Site {plan.uniform[0]}"):
            portable(model, plan)
    else:
        same_shape = portable(model, plan)
    for padding in paddings(name):
        batch = zoo.inputs(name, padding)
        masked = masked_output(name, model, plan, batch)
        assert_same(masked, zoo.output(name, trimmed, batch))
        if same_shape is not None:
            assert_same(masked, zoo.output(name, same_shape, batch))


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize(("name", "attn"), PAIRS)
def test_corner_plans(name, attn, corner):
    check_equivalence(name, attn, plans.corner_plans(shared_model(name, attn))[corner])


@pytest.mark.parametrize("kinds", MIXTURES, ids="+".join)
@pytest.mark.parametrize(("name", "attn"), PAIRS)
@settings(max_examples=3)
@given(data=st.data())
def test_random_plans(name, attn, kinds, data):
    check_equivalence(name, attn, data.draw(plans.random_plans(shared_model(name, attn), kinds)))


@pytest.mark.parametrize(("name", "attn"), PAIRS)
def test_the_plans_of_this_suite_change_the_answers(name, attn, no_grad):
    """Equality would prove nothing if gates and uniform attention left the output where it was."""
    model, batch = shared_model(name, attn), zoo.inputs(name)
    dense = zoo.output(name, model, batch)
    for corner in CORNERS[1:]:
        if corner == "all layers that can go" and not plans.removable_layers(model):
            continue
        masked = masked_output(name, model, plans.corner_plans(model)[corner], batch)
        assert (masked - dense).abs().max() > 5e-4, corner  # fifty times what equality allows


@pytest.mark.parametrize(("name", "attn"), PAIRS)
def test_attaching_and_detaching_leaves_no_trace(name, attn, no_grad):
    model, batch = shared_model(name, attn), zoo.inputs(name)
    before = zoo.output(name, model, batch)
    attributes = {path: set(vars(module)) for path, module in model.named_modules()}
    with Control(model) as control:
        assert torch.equal(zoo.output(name, model, batch), before)
        control.set("uniform", 0)
        control.set("heads", 0, torch.zeros(control.sites[0].groups))
        assert_apart(zoo.output(name, model, batch), before)
    assert torch.equal(zoo.output(name, model, batch), before)
    assert {path: set(vars(module)) for path, module in model.named_modules()} == attributes


@pytest.mark.parametrize(
    "corner",
    ["every site uniform", "first headless, last uniform", "all layers that can go", "some of everything"],
)
@pytest.mark.parametrize("name", NAMES)
def test_weights_loaded_equal_those_saved_to_the_bit(name, corner, tmp_path, no_grad):
    model, batch = shared_model(name, "eager"), zoo.inputs(name, paddings(name)[-1])
    trimmed = trim(model, plans.corner_plans(model)[corner])
    trimmed.save_pretrained(tmp_path / "first")
    loaded = type(model).from_pretrained(tmp_path / "first", attn_implementation="eager")
    loaded.save_pretrained(tmp_path / "second")
    assert_same_weights(loaded, trimmed)
    assert_close(zoo.output(name, loaded, batch), zoo.output(name, trimmed, batch))
    weights = [(tmp_path / turn / "model.safetensors").read_bytes() for turn in ("first", "second")]
    assert weights[0] == weights[1]
    assert [p.requires_grad for p in loaded.parameters()] == [p.requires_grad for p in trimmed.parameters()]


@pytest.mark.parametrize(
    "corner",
    [
        "first uniform, last thinned",
        "first headless, last uniform",
        "no neurons in the first block",
        "some of everything",
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_all_that_is_left(name, corner):
    """Nothing trainable goes without a gradient, or data-parallel training would wait for it."""
    dense = zoo.build(name, layers=3)
    trimmed = trim(dense, plans.corner_plans(dense)[corner])
    batch = zoo.inputs(name)
    for model in (dense, trimmed):
        zoo.output(name, model.train(), batch).square().sum().backward()
    reached = {path for path, parameter in dense.named_parameters() if parameter.grad is not None}
    for path, parameter in trimmed.named_parameters():
        if parameter.requires_grad and path in reached:
            assert parameter.grad is not None, path
            assert torch.isfinite(parameter.grad).all(), path
    outputs = [block.output.weight for block in find_blocks(trimmed) if block.neurons]
    outputs += [site.output.weight for site in find_sites(trimmed) if site.heads or site.uniform]
    assert outputs
    assert all(weight.grad is not None and weight.grad.any() for weight in outputs)
