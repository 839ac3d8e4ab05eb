"""What only a GPU can show: CUDA kernels, flex attention, half precision, compiled graphs. Skipped without one."""

from __future__ import annotations

import plans
import pytest
import torch
import zoo
from close import assert_close

from attentrim import Control, Plan, find_sites, trim
from attentrim.errors import ControlError

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

NAMES = ("bert", "distilbert", "mpnet", "deberta-v2", "modernbert", "gpt2", "llama", "mistral", "clip", "bart", "t5")
FLEX = ("bert", "distilbert", "modernbert", "llama", "mistral", "bart")


def on_gpu(batch):
    return {name: value.cuda() for name, value in batch.items()}


@pytest.mark.parametrize("attn", ["eager", "sdpa"])
@pytest.mark.parametrize("name", NAMES)
def test_masked_equals_trimmed(name, attn, no_grad):
    if name in ("mpnet", "deberta-v2") and attn == "sdpa":
        pytest.skip("eager only")
    torch.backends.cuda.matmul.allow_tf32 = False
    model = zoo.build(name, attn=attn, scale=2.0).cuda()
    for corner, plan in plans.corner_plans(model).items():
        small = trim(model, plan)
        for padding in ("none", "left", "right"):
            batch = on_gpu(zoo.inputs(name, padding))
            with Control(model) as control:
                control.apply(plan)
                masked = zoo.output(name, model, batch)
            trimmed = zoo.output(name, small, batch)
            assert (masked - trimmed).abs().max() <= 1e-5 * max(1.0, masked.abs().max().item()), (corner, padding)


def flex_model(name):
    """Flex attention needs heads of at least 16 features."""
    torch.manual_seed(0)
    config = zoo.CONFIGS[name]()
    for field in ("hidden_size", "dim", "n_embd", "d_model"):
        if field in config.to_dict():
            setattr(config, field, 128)
    config.head_dim = 32
    head = zoo.tf.AutoModelForSeq2SeqLM if name == "bart" else zoo.tf.AutoModel
    model = head.from_config(config, attn_implementation="sdpa").eval().cuda()
    zoo.liven(model, 2.0)
    return model


@pytest.mark.parametrize("name", FLEX)
def test_flex_attention_gates_and_uniform_sites(name, no_grad):
    model = flex_model(name)
    plan = plans.corner_plans(model)["first uniform, last thinned"]
    small = trim(model, plan)
    for padding in ("none", "right"):
        batch = on_gpu(zoo.inputs(name, padding, length=40))
        outputs = []
        for attn in ("sdpa", "flex_attention"):
            model.set_attn_implementation(attn)
            small.set_attn_implementation(attn)
            with Control(model) as control:
                control.apply(plan)
                control.check(**batch)
                outputs.append(zoo.output(name, model, batch))
            outputs.append(zoo.output(name, small, batch))
        for other in outputs[1:]:
            assert_close(other, outputs[0], 2e-3)


def test_flex_attention_refuses_masks(no_grad):
    model = flex_model("bert")
    model.set_attn_implementation("flex_attention")
    with Control(model) as control:
        control.set_score_mask(0, torch.ones(3, 40, 40, dtype=torch.bool).cuda())
        with pytest.raises(ControlError, match="eager or sdpa"):
            model(**on_gpu(zoo.inputs("bert", length=40)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bert", "llama", "mpnet"])
def test_half_precision_is_close_to_float32(name, dtype, no_grad):
    model = zoo.build(name, scale=1.0).cuda()
    plan = plans.corner_plans(model)["first uniform, last thinned"]
    batch = on_gpu(zoo.inputs(name, "right"))
    exact = zoo.output(name, trim(model, plan), batch)
    model.to(dtype)
    with Control(model) as control:
        control.apply(plan)
        masked = zoo.output(name, model, batch).float()
    trimmed = zoo.output(name, trim(model, plan), batch).float()
    scale = max(1.0, exact.abs().max().item())
    assert (masked - exact).abs().max() < 0.05 * scale
    assert (trimmed - exact).abs().max() < 0.05 * scale


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_inductor_compiles_control_and_trimmed_models(name, no_grad):
    model = zoo.build(name, attn="sdpa").cuda()
    plan = Plan.of(model, heads={0: find_sites(model)[0].group(0)}, uniform=[1])
    batch = on_gpu(zoo.inputs(name, "right"))
    with Control(model) as control:
        control.apply(plan)
        masked = zoo.output(name, model, batch)
        compiled = zoo.output(name, torch.compile(model, fullgraph=True), batch)
    assert_close(compiled, masked, 1e-4)
    small = zoo.output(name, torch.compile(trim(model, plan), fullgraph=True), batch)
    assert_close(small, masked, 1e-4)


def test_gradient_checkpointing_under_autocast():
    model = zoo.build("bert", attn="sdpa").cuda().train()
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        with Control(model) as control:
            gates = torch.ones(4, device="cuda", requires_grad=True)
            control.set("heads", 0, gates)
            with torch.autocast("cuda", torch.bfloat16):
                loss = zoo.output("bert", model, on_gpu(zoo.inputs("bert"))).float().square().mean()
            loss.backward()
        gradients.append(gates.grad)
    assert_close(gradients[1], gradients[0], 5e-2)


def test_generation_with_a_static_compiled_cache():
    model = zoo.build("llama", attn="sdpa").cuda()
    plan = plans.corner_plans(model)["first uniform, last thinned"]
    batch = on_gpu(zoo.inputs("llama", "left"))
    small = trim(model, plan)
    dynamic = small.generate(**batch, max_new_tokens=8, min_new_tokens=8, do_sample=False)
    static = small.generate(
        **batch, max_new_tokens=8, min_new_tokens=8, do_sample=False, cache_implementation="static"
    )
    assert torch.equal(dynamic, static)
