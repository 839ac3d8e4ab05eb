"""Gates, masks and uniform sites on live models, against brute force, under every backend and training feature."""

from __future__ import annotations

import copy

import pytest
import torch
import zoo
from close import assert_close, assert_same_weights

from attentrim import Control, Plan, find_sites, routing, trim
from attentrim.attention import controlled
from attentrim.errors import ControlError

NAMES = list(zoo.CONFIGS)
SDPA = [name for name in NAMES if name not in ("mpnet", "deberta-v2")]


def attentions(name: str, model, batch) -> list[torch.Tensor]:
    """Attention maps, one a site, from an eager model."""
    result = model(**batch, output_attentions=True)
    if name == "clip":
        return [*result.text_model_output.attentions, *result.vision_model_output.attentions]
    if name in zoo.SEQ2SEQ:
        return [*result.encoder_attentions, *result.decoder_attentions]
    return list(result.attentions)


def random_mask(shape: torch.Size, keep: float = 0.5) -> torch.Tensor:
    """Some pairs dropped at random; query 3 of every sample loses all its keys."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(5)) < keep
    mask[..., 3, :] = False
    return mask


def valid_rows(weights: torch.Tensor) -> torch.Tensor:
    """Left padding gives rows without any key in causal sites; they are of no interest."""
    return (weights > 0).sum(-1) < weights.shape[-1]


@pytest.mark.parametrize("padding", ["none", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_score_mask_renormalises_and_empty_rows_turn_uniform(name, padding, no_grad):
    if padding != "none" and name in zoo.WITHOUT_PADDING:
        pytest.skip("this architecture takes no padding")
    # tame weights: the dense softmax must not round any allowed key to zero, since the test reads off what is allowed
    model, batch = zoo.build(name, scale=1.0), zoo.inputs(name, padding)
    dense = attentions(name, model, batch)[0]
    keep = random_mask(dense.shape)
    allowed = dense > 0
    kept = dense * keep
    empty = ~(allowed & keep).any(-1, keepdim=True)
    expected = torch.where(empty, allowed / allowed.sum(-1, keepdim=True), kept / kept.sum(-1, keepdim=True))
    with Control(model) as control:
        control.set_score_mask(0, keep)
        control.check(**batch)
        masked = attentions(name, model, batch)[0]
    rows = valid_rows(dense) | (padding == "none")
    assert empty.any()
    torch.testing.assert_close(masked[rows], expected[rows], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_weight_mask_multiplies_the_weights(name, no_grad):
    model, batch = zoo.build(name, scale=1.0), zoo.inputs(name)
    dense = attentions(name, model, batch)[0]
    factor = torch.rand(dense.shape, generator=torch.Generator().manual_seed(6))
    with Control(model) as control:
        control.set_weight_mask(0, factor)
        control.check(**batch)
        masked = attentions(name, model, batch)[0]
    torch.testing.assert_close(masked, dense * factor, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_weight_mask_of_ones_changes_nothing(name, no_grad):
    model, batch = zoo.build(name), zoo.inputs(name)
    dense = zoo.output(name, model, batch)
    with Control(model) as control:
        for site in control.sites:
            control.set_weight_mask(site.index, torch.ones(1, 1, 1, 1))
        torch.testing.assert_close(zoo.output(name, model, batch), dense, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["score", "weight"])
@pytest.mark.parametrize("name", SDPA)
def test_masks_agree_between_eager_and_sdpa(name, kind, no_grad):
    batch = zoo.inputs(name, "none" if name in zoo.WITHOUT_PADDING else "right")
    outputs = []
    for attn in ("eager", "sdpa"):
        model = zoo.build(name, attn=attn, scale=1.0)
        shapes = [weights.shape for weights in attentions(name, zoo.build(name), batch)]
        with Control(model) as control:
            for index, shape in enumerate(shapes):
                if kind == "score":
                    control.set_score_mask(index, random_mask(shape))
                else:
                    control.set_weight_mask(index, random_mask(shape).float())
            outputs.append(zoo.output(name, model, batch))
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-5)


def bert(**more) -> tuple:
    model = zoo.build("bert", **more)
    return model, zoo.inputs("bert", "right")


def test_gate_gradient_equals_finite_differences():
    model, batch = bert()
    model.double()
    with Control(model) as control:
        gates = torch.tensor([1.0, 0.3, 0.0, 1.0], dtype=torch.float64, requires_grad=True)
        control.set("heads", 1, gates)

        def loss() -> torch.Tensor:
            return zoo.output("bert", model, batch).square().mean()

        (gradient,) = torch.autograd.grad(loss(), gates)
        for head in range(4):
            values = []
            for step in (1e-5, -1e-5):
                moved = gates.detach().clone()
                moved[head] += step
                control.set("heads", 1, moved)
                values.append(loss().item())
            assert gradient[head].item() == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-4, abs=1e-9)


def test_gate_equals_zeroed_columns_of_the_output_projection(no_grad):
    model, batch = bert()
    by_hand = copy.deepcopy(model)
    site = find_sites(by_hand)[0]
    site.output.weight[:, site.head_size : 2 * site.head_size] = 0
    with Control(model) as control:
        control.set("heads", 0, [1.0, 0.0, 1.0, 1.0])
        torch.testing.assert_close(zoo.output("bert", model, batch), zoo.output("bert", by_hand, batch))


def test_gates_may_differ_by_sample(no_grad):
    model, batch = zoo.build("bert"), zoo.inputs("bert")
    gates = torch.tensor([[1.0, 1, 1, 1], [0, 1, 1, 1], [1, 0, 0, 1]])
    with Control(model) as control:
        control.set("heads", 0, gates)
        together = zoo.output("bert", model, batch)
        for row in range(3):
            control.set("heads", 0, gates[row])
            alone = zoo.output("bert", model, {key: value[row : row + 1] for key, value in batch.items()})
            torch.testing.assert_close(together[row : row + 1], alone)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attn", ["eager", "sdpa"])
def test_fully_dropped_rows_are_uniform_in_half_precision(attn, dtype, no_grad):
    """Large negative numbers cannot absorb scores in fp16: a row must turn uniform all the same."""
    model = zoo.build("bert", attn=attn, scale=30.0)
    batch = zoo.inputs("bert", "right")
    model.to(dtype)
    contexts = []
    site = find_sites(model)[0]
    hook = site.output.register_forward_pre_hook(lambda module, args: contexts.append(args[0]))
    values = []
    value_hook = site.module.value.register_forward_hook(lambda module, args, output: values.append(output))
    with Control(model) as control:
        control.set_score_mask(0, torch.zeros(3, 11, 11, dtype=torch.bool))
        zoo.output("bert", model, batch)
    hook.remove()
    value_hook.remove()
    mask = batch["attention_mask"].unsqueeze(-1)
    mean = (values[0].float() * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
    valid = mask.bool().squeeze(-1)
    torch.testing.assert_close(
        contexts[0].float()[valid], mean.expand_as(contexts[0])[valid], atol=0.05 * mean.abs().max().item(), rtol=0.05
    )


@pytest.mark.parametrize("name", ["bert", "llama", "deberta-v2", "t5"])
def test_gradient_checkpointing_sees_the_same_masks(name):
    """The forward runs again during backward: gradients must be those of the run without checkpointing."""
    gradients = []
    for checkpointing in (False, True):
        model, batch = zoo.build(name), zoo.inputs(name)
        model.train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        model.config.dropout_rate = 0.0
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        with Control(model) as control:
            gates = torch.ones(control.sites[0].groups, requires_grad=True)
            control.set("heads", 0, gates)
            control.set_score_mask(1, random_mask(torch.Size([3, 11, 11])))
            torch.manual_seed(0)
            zoo.output(name, model, batch).square().sum().backward()
        weight = find_sites(model)[1].output.weight.grad
        gradients.append((gates.grad, weight))
    for plain, checkpointed in zip(*gradients, strict=True):
        assert plain.any()
        torch.testing.assert_close(checkpointed, plain, rtol=1e-4, atol=1e-4 * plain.abs().max().item())


@pytest.mark.parametrize("name", ["bert", "gpt2", "mpnet"])
def test_torch_compile_sees_control_that_comes_later(name, no_grad):
    model, batch = zoo.build(name, attn="eager" if name == "mpnet" else "sdpa"), zoo.inputs(name)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    dense = zoo.output(name, compiled, batch)
    plan = Plan.of(model, heads={0: [1]}, uniform=[1])
    with Control(model) as control:
        control.apply(plan)
        expected = zoo.output(name, model, batch)
        torch.testing.assert_close(zoo.output(name, compiled, batch), expected, atol=1e-5, rtol=1e-5)
        control.clear()
        control.set("heads", 0, [0.0, 0.0, 1.0, 1.0])
        expected = zoo.output(name, model, batch)
        torch.testing.assert_close(zoo.output(name, compiled, batch), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(zoo.output(name, compiled, batch), dense, atol=1e-5, rtol=1e-5)


def test_uniform_can_be_switched_by_a_tensor(no_grad):
    model, batch = bert()
    dense = zoo.output("bert", model, batch)
    with Control(model) as control:
        switch = torch.zeros(())
        control.set("uniform", 0, switch)
        assert torch.equal(zoo.output("bert", model, batch), dense)
        switch.fill_(1.0)
        switched = zoo.output("bert", model, batch)
        control.set("uniform", 0)
        assert torch.equal(switched, zoo.output("bert", model, batch))


def test_uniform_site_keeps_its_graph():
    """Query and key get zero gradients rather than none, so that distributed training does not wait for them."""
    model, batch = bert()
    with Control(model) as control:
        control.set("uniform", 0)
        zoo.output("bert", model, batch).sum().backward()
    gradient = find_sites(model)[0].module.query.weight.grad
    assert gradient is not None
    assert not gradient.any()


def test_control_works_on_what_is_left_of_a_trimmed_model(no_grad):
    for name in ("bert", "mpnet", "t5", "deberta-v2"):
        model, batch = zoo.build(name), zoo.inputs(name)
        once = trim(model, Plan.of(model, heads={0: [1]}))
        twice = Plan.of(once, heads={0: [0]})
        with Control(once) as control:
            control.apply(twice)
            masked = zoo.output(name, once, batch)
        torch.testing.assert_close(masked, zoo.output(name, trim(once, twice), batch), atol=1e-5, rtol=1e-5)


def test_a_copy_of_a_controlled_model_is_not_controlled(no_grad):
    model, batch = bert()
    dense = zoo.output("bert", model, batch)
    with Control(model) as control:
        gates = torch.ones(4, requires_grad=True)
        control.set("heads", 0, gates * 0.5)
        assert_close(zoo.output("bert", copy.deepcopy(model), batch), dense)


def test_saving_a_controlled_model_saves_a_stock_one(tmp_path, no_grad):
    model, batch = bert()
    dense = zoo.output("bert", model, batch)
    with Control(model) as control:
        control.set("heads", 0, torch.zeros(4))
        model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path, attn_implementation="eager")
    assert_same_weights(again, model)
    assert_close(zoo.output("bert", again, batch), dense)


@pytest.mark.parametrize(
    ("backend", "ask"),
    [
        ("flex_attention", lambda control: control.set_score_mask(0, torch.zeros(1, 4, 4, dtype=torch.bool))),
        ("flash_attention_2", lambda control: control.set_score_mask(0, torch.zeros(1, 4, 4, dtype=torch.bool))),
        ("flash_attention_2", lambda control: control.set("heads", 0, torch.zeros(4))),
    ],
)
def test_backends_that_cannot_do_it_are_refused(backend, ask):
    model, _ = bert()
    query = torch.zeros(1, 4, 4, 6)
    with Control(model) as control:
        ask(control)
        model.config._attn_implementation_internal = backend
        with pytest.raises(ControlError, match=f"eager or sdpa attention; site encoder.*{backend}"):
            controlled(control.sites[0].module, query, query, query, None)


def test_check_notices_a_site_that_is_never_reached():
    model, batch = bert()
    with Control(model) as control:
        control.set("heads", 1, torch.zeros(4))
        control.check(**batch)
        layer = model.encoder.layer[1].attention
        layer.forward = lambda hidden_states, *args, **kwargs: (hidden_states, None)
        with pytest.raises(ControlError, match=r"Site 1 .* ignored what should be left out: heads"):
            control.check(**batch)


def test_closed_heads_stay_silent_whatever_is_added_before_the_projection(no_grad):
    model, batch = bert()
    seen = []
    with Control(model) as control:
        control.set("heads", 1, torch.tensor([1.0, 0.0, 1.0, 0.0]))
        site = control.sites[1]
        leak = site.module.register_forward_hook(lambda m, a, out: (out[0] + 1.0, out[1]))
        spy = site.output.register_forward_hook(lambda m, args, out: seen.append(args[0]))
        model(**batch)
        leak.remove()
        spy.remove()
    heads = seen[0].unflatten(-1, (4, -1))
    assert not heads[:, :, [1, 3]].any()
    assert heads[:, :, [0, 2]].any()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda c: c.set("heads", 0, torch.ones(3)), r"Site 0 has 4 heads: gates must be \[4\]"),
        (lambda c: c.set("heads", 7, torch.ones(4)), "There is no site 7: this model has sites 0 to 1"),
        (lambda c: c.set_score_mask(0, torch.ones(3, 3)), r"must be \[batch, query, key\]"),
        (lambda c: c.set_score_mask(0, torch.ones(1, 2, 3, 3)), r"or 1, query, key\]. Got \[1, 2, 3, 3\]"),
        (lambda c: c.set_score_mask(0, torch.ones(1, 3, 3)), "must be bool"),
    ],
)
def test_wrong_requests_are_answered_clearly(ask, message):
    model, _ = bert()
    with Control(model) as control, pytest.raises(ControlError, match=message):
        ask(control)


def test_one_control_at_a_time():
    model, _ = bert()
    with Control(model), pytest.raises(ControlError, match="Another Control is attached"):
        Control(model)
    Control(model).detach()


def test_a_detached_control_says_so():
    model, _ = bert()
    control = Control(model)
    control.detach()
    with pytest.raises(ControlError, match="detached"):
        control.set("uniform", 0)
    control.attach()
    control.set("uniform", 0)
    control.detach()


def test_folded_sites_have_nothing_to_control():
    model, _ = bert()
    small = trim(model, Plan.of(model, uniform=[0]))
    with Control(small) as control, pytest.raises(ControlError, match="has no heads left"):
        control.set("heads", 0, torch.ones(4))


@pytest.mark.parametrize("off", [False, 0, None])
def test_uniform_can_be_taken_back(off, no_grad):
    model, batch = bert()
    dense = zoo.output("bert", model, batch)
    with Control(model) as control:
        control.set("uniform", 0)
        control.set("uniform", 0, off)
        assert torch.equal(zoo.output("bert", model, batch), dense)


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_attaching_twice_is_refused_and_old_controls_leave_new_ones_alone(name, no_grad):
    model, batch = zoo.build(name), zoo.inputs(name)
    dense = zoo.output(name, model, batch)
    old = Control(model)
    with pytest.raises(ControlError, match="Another Control is attached"):
        old.attach()
    old.detach()
    with Control(model) as new:
        new.set("uniform", 0)
        asked = zoo.output(name, model, batch)
        old.detach()
        assert torch.equal(zoo.output(name, model, batch), asked)
        with pytest.raises(ControlError, match="Another Control is attached"):
            old.attach()
    assert torch.equal(zoo.output(name, model, batch), dense)


def test_check_leaves_every_module_in_its_mode():
    model, batch = bert()
    model.train()
    model.embeddings.eval()
    with Control(model) as control:
        control.set("uniform", 0)
        control.check(**batch)
    assert model.training
    assert not model.embeddings.training


@pytest.mark.parametrize("name", ["bert", "mpnet", "deberta-v2", "modernbert", "gpt2", "llama", "distilbert"])
@pytest.mark.parametrize("attn", ["eager", "sdpa"])
def test_recording_gives_the_attention_that_eager_shows(name, attn, no_grad):
    if attn == "sdpa" and name in ("mpnet", "deberta-v2"):
        pytest.skip("has no SDPA")
    batch = zoo.inputs(name, "right")
    shown = zoo.build(name, attn="eager")(**batch, output_attentions=True).attentions
    model = zoo.build(name, attn=attn)
    plain = zoo.output(name, model, batch)
    with Control(model) as control:
        with control.recording() as maps:
            recorded = zoo.output(name, model, batch)
        assert torch.equal(zoo.output(name, model, batch), plain), "recording ends with its block"
    torch.testing.assert_close(recorded, plain, rtol=1e-4, atol=1e-5)
    valid = batch["attention_mask"].bool()
    for index, expected in enumerate(shown):
        (found,) = maps[index]
        torch.testing.assert_close(found.transpose(1, 2)[valid], expected.transpose(1, 2)[valid], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["bert", "mpnet", "deberta-v2"])
def test_after_recording_a_model_computes_its_attention_as_before(name):
    model = zoo.build(name)
    with Control(model) as control:
        before = [
            (site.module.__dict__.get("forward"), getattr(site.module, "config", None)) for site in control.sites
        ]
        control.set_score_mask(1, torch.ones(1, 1, 1, dtype=torch.bool))
        masked = routing.state_of(control.sites[1])
        with control.recording():
            assert all(routing.state_of(site).routed for site in control.sites)
        assert masked.routed, "a mask still needs the detour"
        others = [site.index for site in control.sites if site.index != 1]
        assert not any(routing.state_of(control.sites[index]).routed for index in others)
        after = [(site.module.__dict__.get("forward"), getattr(site.module, "config", None)) for site in control.sites]
        assert all(after[index] == before[index] for index in others)
        with control.recording():
            control.set("uniform", 0)
        assert routing.state_of(control.sites[0]).routed, "what was set meanwhile stays"
        control.clear()
        with control.recording():
            pass
        control.set("uniform", 0)
        control.check(**zoo.inputs(name, "right"))


def test_compiled_layers_are_not_compiled_again_at_each_step():
    model, batch = zoo.build("mpnet"), zoo.inputs("mpnet", "right")
    counts = torch._dynamo.utils.counters
    with Control(model) as control:
        for layer in control.places["layers"]:
            layer.module.compile(backend="eager", dynamic=True)
        compiled = []
        for _ in range(4):
            control.set_all("heads", torch.ones(sum(site.heads for site in control.sites), requires_grad=True))
            model(**batch)
            compiled.append(counts["stats"]["unique_graphs"])
    assert compiled[0] > 0
    assert compiled[1:] == compiled[1:2] * 3
