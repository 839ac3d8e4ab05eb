"""Output projections fitted by least squares: against numpy, and where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as tf
import zoo

import attentrim
from attentrim import Control, Plan, find_sites, fit_outputs, trim
from attentrim.inputs import example_inputs
from attentrim.projections import is_conv1d, weight_and_bias
from attentrim.structures.neurons import find_blocks

FITTED = ("bert", "distilbert", "mpnet", "gpt2", "llama", "modernbert", "bart", "vit")


def batches_for(model, count=4):
    return [example_inputs(model, 3, 11, padding="right", seed=seed) for seed in range(count)]


def features_and_outputs(model, masked, projection, other, batches):
    """What goes into `projection` of the masked model and comes out of `other` of the dense one, at valid tokens."""
    inputs, outputs = [], []
    handles = [
        projection.register_forward_hook(lambda _, args, out: inputs.append(args[0].detach())),
        other.register_forward_hook(lambda _, args, out: outputs.append(out.detach())),
    ]
    with torch.no_grad():
        for batch in batches:
            model(**batch)
            masked(**batch)
    for handle in handles:
        handle.remove()
    masks = [batch["attention_mask"].bool() for batch in batches]
    return (
        np.concatenate([x[m].double().numpy() for x, m in zip(inputs, masks, strict=True)]),
        np.concatenate([y[m].double().numpy() for y, m in zip(outputs, masks, strict=True)]),
    )


def test_one_block_is_fitted_as_numpy_fits_it():
    model = zoo.build("bert").eval()
    removed = {1: list(range(20))}
    plan = Plan.of(model, neurons=removed)
    batches = batches_for(model, 8)
    fitted = fit_outputs(model, plan, batches, rounds=1, ridge=1e-9)
    block, dense = find_blocks(fitted)[1], find_blocks(model)[1]
    with Control(fitted) as control:
        control.apply(plan)
        features, wanted = features_and_outputs(model, fitted, block.output, dense.output, batches)
    kept = plan.kept("neurons", 1)
    known = np.concatenate([features[:, kept], np.ones((len(features), 1))], 1)
    best, *_ = np.linalg.lstsq(known, wanted, rcond=None)
    weight, bias = weight_and_bias(block.output)
    ours = known @ np.concatenate([weight[:, kept].detach().double().numpy().T, bias.detach().double().numpy()[None]])
    assert np.square(ours - wanted).sum() <= np.square(known @ best - wanted).sum() * (1 + 1e-3) + 1e-8


@pytest.mark.parametrize("name", FITTED)
def test_fitting_brings_the_outputs_of_blocks_nearer(name):
    model = zoo.build(name).eval()
    plan = Plan.of(
        model,
        heads={0: list(range(find_sites(model)[0].heads_per_group))},
        neurons={block.index: range(block.neurons // 2) for block in find_blocks(model)},
    )
    batches = batches_for(model)
    small, fitted = trim(model, plan), trim(fit_outputs(model, plan, batches), plan)
    apart = []
    with torch.no_grad():
        for other in (small, fitted):
            pairs = [(other(**batch)[0], model(**batch)[0]) for batch in batches]
            apart.append(sum(float((own - dense).square().sum()) for own, dense in pairs))
    assert apart[1] < apart[0]


def test_units_that_copy_others_can_go_without_loss():
    """The answer is known: a neuron whose twin stays is made up for exactly."""
    model = zoo.build("bert").eval()
    block = find_blocks(model)[0]
    with torch.no_grad():
        for tensor in (block.inputs[0].weight, block.inputs[0].bias):
            tensor[:8] = tensor[8:16]
    plan = Plan.of(model, neurons={0: range(8)})
    batches = batches_for(model, 6)
    fitted = trim(fit_outputs(model, plan, batches, ridge=1e-7), plan)
    probe = example_inputs(model, 2, 9, seed=99)
    with torch.no_grad():
        dense, loss = model(**probe)[0], trim(model, plan)(**probe)[0]
        ours = fitted(**probe)[0]
    assert float((ours - dense).abs().max()) < 0.02 * float((loss - dense).abs().max())


@pytest.mark.parametrize("name", FITTED)
def test_nothing_else_changes(name):
    model = zoo.build(name).eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    block = find_blocks(model)[0]
    fitted = fit_outputs(model, Plan.of(model, neurons={0: [1, 2, 3]}), batches_for(model, 2))
    after = model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    changed = [key for key, value in fitted.state_dict().items() if not torch.equal(value, before[key])]
    prefix = f"{block.name}.{block.layout.output}."
    assert changed
    assert all(key.startswith((prefix, "pooler.")) for key in changed)  # and what is behind all layers
    own, old = weight_and_bias(find_blocks(fitted)[0].output)[0], weight_and_bias(block.output)[0]
    assert torch.equal(own[:, [1, 2, 3]], old[:, [1, 2, 3]])  # those that go are left as they are
    assert is_conv1d(block.output) == (name == "gpt2")


def test_blocks_of_layers_that_go_and_of_uniform_sites_are_not_fitted():
    model = zoo.build("bert").eval()
    plan = Plan.of(model, uniform=[0], layers=[1])
    fitted = fit_outputs(model, plan, batches_for(model, 1))
    old = dict(model.named_parameters())
    assert all(torch.equal(own, old[name]) for name, own in fitted.named_parameters() if "pooler" not in name)
    assert attentrim.fit_outputs is fit_outputs


def test_a_shift_of_the_logits_is_taken_back():
    """Without neurons the classifier would answer otherwise; its fitted head answers as before, on the mean."""
    torch.manual_seed(0)
    config = tf.BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, num_labels=3
    )
    model = tf.BertForSequenceClassification(config).eval()
    zoo.liven(model)
    plan = Plan.of(model, neurons={0: range(48), 1: range(48)})
    batches = batches_for(model, 12)
    small, fitted = trim(model, plan), trim(fit_outputs(model, plan, batches), plan)
    with torch.no_grad():
        means = [torch.cat([m(**batch).logits for batch in batches]).mean(0) for m in (model, small, fitted)]
    assert float((means[2] - means[0]).abs().max()) < 0.1 * float((means[1] - means[0]).abs().max())
