"""What trimming does to the modules: shapes, sharing, precision, and what a folded site costs."""

from __future__ import annotations

import pickle

import pytest
import torch
import zoo
from close import assert_apart, assert_close, assert_same_weights
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from attentrim import Control, Plan, find_sites, portable, trim
from attentrim.errors import PlanError, UnsupportedModelError
from attentrim.structures.means import mean_weights, windowed_mean

BATCH, TOKENS = 3, 37


class Shapes(TorchDispatchMode):
    """Records the shape of every tensor that an operator makes; views of the mask that was handed in are not made."""

    def __init__(self, given: torch.Tensor) -> None:
        super().__init__()
        self.given = given.untyped_storage().data_ptr()
        self.seen: list[torch.Size] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [
            item for item in (result if isinstance(result, tuple) else (result,)) if isinstance(item, torch.Tensor)
        ]
        self.seen += [item.shape for item in made if item.untyped_storage().data_ptr() != self.given]
        return result


def folded(name: str, attn: str = "sdpa"):
    model = zoo.build(name, attn=attn)
    return trim(model, Plan.of(model, uniform=range(len(find_sites(model)))))


def pair_mask(causal: bool) -> torch.Tensor:
    mask = torch.ones(BATCH, 1, TOKENS, TOKENS, dtype=torch.bool)
    mask[1, :, :, -5:] = False
    return mask.tril() if causal else mask


@pytest.mark.parametrize(
    ("name", "path", "causal"),
    [
        ("bert", "encoder.layer.0.attention", False),
        ("distilbert", "transformer.layer.0.attention", False),
        ("modernbert", "layers.1.attn", False),
        ("gpt2", "transformer.h.0.attn", True),
        ("llama", "model.layers.0.self_attn", True),
        ("mistral", "model.layers.0.self_attn", True),
    ],
)
def test_a_folded_site_makes_no_matrix_of_pairs(name, path, causal, no_grad):
    site, mask = folded(name).get_submodule(path), pair_mask(causal)
    hidden = torch.randn(BATCH, TOKENS, find_sites(folded(name))[0].width)
    with Shapes(mask) as shapes:
        site(hidden, attention_mask=mask)
    assert shapes.seen
    assert not [shape for shape in shapes.seen if list(shape).count(TOKENS) > 1]


def test_a_folded_encoder_site_projects_once_a_sequence(no_grad):
    """One mean and one matrix a sequence: no FLOP a token beyond the mean."""
    site, width = folded("bert").get_submodule("encoder.layer.0.attention"), 24
    counter = FlopCounterMode(display=False)
    with counter:
        site(torch.randn(BATCH, TOKENS, width), pair_mask(False))
    assert counter.get_total_flops() == BATCH * (2 * TOKENS * width + 2 * width * width)


def test_a_folded_causal_site_projects_once_a_token(no_grad):
    site, width = folded("llama").get_submodule("model.layers.0.self_attn"), 32
    counter = FlopCounterMode(display=False)
    with counter:
        site(torch.randn(BATCH, TOKENS, width), attention_mask=pair_mask(True))
    assert counter.get_total_flops() == BATCH * TOKENS * 2 * width * width


def test_shapes_of_what_is_left():
    model = zoo.build("llama")
    small = trim(model, Plan.of(model, heads={0: [2, 3]}, uniform=[1]))
    first, second = (layer.self_attn for layer in small.model.layers)
    assert (first.q_proj.weight.shape, first.k_proj.weight.shape) == ((16, 32), (8, 32))
    assert first.o_proj.weight.shape == (32, 16)
    assert (first.q_proj.in_features, first.q_proj.out_features) == (32, 16)
    assert second.q_proj.weight.shape == second.v_proj.weight.shape == (0, 32)
    assert second.o_proj.weight.shape == (32, 32)
    assert isinstance(second, type(model.model.layers[1].self_attn))
    assert [(site.heads, site.groups, site.uniform) for site in find_sites(small)] == [(2, 1, False), (0, 0, True)]


def test_folding_qwen2_adds_the_bias_it_needs():
    model = zoo.build("qwen2")
    assert model.model.layers[0].self_attn.o_proj.bias is None
    assert trim(model, Plan.of(model, uniform=[0])).model.layers[0].self_attn.o_proj.bias is not None


def test_the_fold_is_computed_in_double_precision():
    model = zoo.build("bert")
    attention = model.encoder.layer[0].attention
    exact = attention.output.dense.weight.double() @ attention.self.value.weight.double()
    small = trim(model, Plan.of(model, uniform=[0]))
    assert torch.equal(small.encoder.layer[0].attention.output.dense.weight, exact.float())


@pytest.mark.parametrize("operation", [trim, portable])
def test_the_model_given_is_left_alone(operation):
    model = zoo.build("bert")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    classes = [type(module) for module in model.modules()]
    config = model.config.to_dict()
    operation(model, Plan.of(model, heads={0: [1]}, uniform=[1]))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [type(module) for module in model.modules()] == classes
    assert model.config.to_dict() == config


def test_trainability_is_kept():
    model = zoo.build("bert").requires_grad_(False)
    small = trim(model, Plan.of(model, heads={0: [1]}, uniform=[1]))
    assert not any(parameter.requires_grad for parameter in small.parameters())


def test_trimmed_models_can_be_pickled(no_grad):
    for name in ("bert", "mpnet", "mistral", "clip", "t5"):
        model, batch = zoo.build(name), zoo.inputs(name)
        small = trim(model, Plan.of(model, heads={0: find_sites(model)[0].group(1)}, uniform=[1]))
        again = pickle.loads(pickle.dumps(small))
        assert_same_weights(again, small)
        assert_close(zoo.output(name, again, batch), zoo.output(name, small, batch))


def test_attention_maps_keep_their_places(no_grad):
    model, batch = zoo.build("bert"), zoo.inputs("bert")
    small = trim(model, Plan.of(model, heads={1: [0]}, uniform=[0]))
    maps = small(**batch, output_attentions=True).attentions
    assert [weights.shape[1] for weights in maps] == [0, 3]


@pytest.mark.parametrize("name", ["bert", "distilbert", "gpt2", "llama", "mistral", "mpnet", "gemma3_text", "phi3"])
def test_torch_compile_in_one_graph(name, no_grad):
    model, batch = zoo.build(name, attn="eager" if name == "mpnet" else "sdpa"), zoo.inputs(name, "right")
    small = trim(model, Plan.of(model, heads={0: find_sites(model)[0].group(1)}, uniform=[1]))
    compiled = torch.compile(small, backend="aot_eager", fullgraph=True)
    assert_close(zoo.output(name, compiled, batch), zoo.output(name, small, batch))


def test_dropout_noise_differs_by_token_in_training():
    """The folded row is the same for all tokens, but the stock model would drop each token's own features."""
    model = zoo.build("bert")
    small = trim(model, Plan.of(model, uniform=[0])).train()
    output = small.encoder.layer[0].attention.output
    output.dropout.p = 0.5
    seen = []
    hook = output.dropout.register_forward_hook(lambda module, args, result: seen.append(result))
    small(**zoo.inputs("bert"))
    hook.remove()
    assert not torch.equal(seen[0][:, 0] == 0, seen[0][:, 1] == 0)


def test_windowed_mean_is_precise_on_long_inputs():
    torch.manual_seed(0)
    inputs = torch.randn(1, 8192, 4) + 100
    marks = torch.ones(1, 8192, 1)
    window = 16
    exact = inputs.double().unfold(1, window, 1).mean(-1)
    actual = windowed_mean(inputs, marks, window, causal=True)[:, window - 1 :]
    torch.testing.assert_close(actual.double(), exact, atol=1e-5, rtol=0)


@pytest.mark.parametrize("causal", [True, False])
def test_windowed_mean_against_brute_force(causal):
    torch.manual_seed(0)
    inputs, valid, window = torch.randn(2, 13, 3), torch.rand(2, 13) > 0.3, 4
    positions = torch.arange(13)
    distance = positions[:, None] - positions
    allowed = (distance < window) & (distance >= 0 if causal else distance > -window) & valid[:, None]
    expected = (allowed.float() @ inputs) / allowed.sum(-1, keepdim=True).clamp(min=1)
    actual = windowed_mean(inputs, valid.float().unsqueeze(-1), window, causal)
    assert_close(actual, expected)


def test_mean_does_not_overflow_in_half_precision():
    hidden = torch.full((1, 512, 4), 300.0, dtype=torch.float16)
    weights = mean_weights(torch.ones(1, 512, dtype=torch.bool), torch.float16)
    assert torch.allclose(weights @ hidden, torch.tensor(300.0).half(), rtol=1e-2)


@pytest.mark.parametrize("inference", [False, True])
def test_what_sites_share_in_a_pass_follows_the_mask(inference):
    """A mask that is handed in again, changed in place, must not bring back the averages of before."""
    site = folded("bert").get_submodule("encoder.layer.0.attention")
    with torch.inference_mode(inference):
        hidden, mask = torch.randn(BATCH, TOKENS, 24), pair_mask(False)
        before = site(hidden, mask)[0]
        mask[:, :, :, -9:] = False
        after = site(hidden, mask)[0]
        assert torch.equal(after, site(hidden, mask.clone())[0])
        assert_apart(after, before)


def test_what_sites_share_in_inference_does_not_reach_training():
    small, mask = folded("bert"), pair_mask(False)
    hidden = torch.randn(BATCH, TOKENS, 24, requires_grad=True)
    with torch.inference_mode():
        small.get_submodule("encoder.layer.0.attention")(hidden, mask)
    small.get_submodule("encoder.layer.1.attention")(hidden, mask)[0].sum().backward()
    assert hidden.grad.any()


@pytest.mark.parametrize("name", ["bert", "distilbert", "llama"])
def test_hand_made_masks(name, no_grad):
    """Additive masks at -10000, and masks with one row for all queries, mean what they mean to the stock model."""
    model = zoo.build(name, scale=1.0)
    small = trim(model, Plan.of(model, uniform=[0, 1]))
    ids, valid = zoo.inputs(name)["input_ids"], zoo.inputs(name, "right")["attention_mask"].bool()
    mask = torch.where(valid[:, None, None], 0.0, -1e4)
    if name == "llama":
        mask = mask + torch.full((11, 11), -1e4).triu(1)
    for given in (mask, mask.expand(3, 1, 11, 11).contiguous()):
        with Control(model) as control:
            control.apply(Plan.of(model, uniform=[0, 1]))
            masked = model(ids, attention_mask=given)[0][valid]
        assert_close(small(ids, attention_mask=given)[0][valid], masked)


def test_offloaded_weights_are_refused():
    with torch.device("meta"):
        model = zoo.tf.BertModel(zoo.CONFIGS["bert"]())
    with pytest.raises(UnsupportedModelError, match="offloaded"):
        trim(model, Plan.of(model, heads={0: [0]}))


def test_portable_needs_the_full_model():
    model = zoo.build("bert")
    small = trim(model, Plan.of(model, heads={0: [0]}))
    with pytest.raises(PlanError, match="trimmed already"):
        portable(small, Plan.of(small, heads={0: [0]}))
