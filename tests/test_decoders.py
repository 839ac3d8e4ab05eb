"""Decoders: what their cache holds, what their portable models must fit, what cannot go."""

from __future__ import annotations

import functools

import plans
import pytest
import torch
import transformers as tf
import zoo
from close import assert_close
from commands import run_json

from attentrim import Control, Plan, find_sites, portable, routed, summary, trim
from attentrim.cost import cost, plan_cost
from attentrim.errors import PlanError, UnsupportedModelError
from attentrim.kv_cache import cache_bytes_per_token

DECODERS = (*sorted(zoo.GENERATIVE), "bart", "t5")
TOKENS = 4  # no more than the windows of the tiny models keep


def measured(model, tokens=TOKENS, batch=3):
    """Bytes per token in the cache after a forward."""
    inputs = zoo.inputs("t5" if model.config.is_encoder_decoder else "llama", batch=batch, length=tokens)
    if "decoder_input_ids" in inputs:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    cache = model(**inputs, use_cache=True).past_key_values
    layers = getattr(cache, "self_attention_cache", cache).layers
    held = [tensor for layer in layers for tensor in (layer.keys, layer.values) if tensor is not None]
    return sum(tensor.numel() * tensor.element_size() for tensor in held) / batch / tokens


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", DECODERS)
def test_the_cache_holds_what_is_said(name, dtype, no_grad):
    model = zoo.build(name, layers=3).to(dtype)
    sizes = {}
    for corner, plan in plans.corner_plans(model).items():
        small = trim(model, plan)
        sizes[corner] = measured(small)
        assert cache_bytes_per_token(small) == sizes[corner], corner
    # one mark for the length of each kind of layer, full and sliding
    marks = 2 if name in ("gemma3_text", "qwen2", "smollm3") else 1
    assert sizes["every site headless"] == 2 * dtype.itemsize * marks
    site = find_sites(model)[-1]
    each = 2 * site.key_heads * site.head_size * dtype.itemsize
    assert sizes["nothing"] == sizes["half of the neurons"] == 3 * each
    assert sizes["first site headless"] == 2 * each + 2 * dtype.itemsize or name in zoo.SEQ2SEQ


@pytest.mark.parametrize("name", ["llama", "smollm3"])
def test_sites_without_heads_hold_nothing_between_others(name, no_grad):
    model = zoo.build(name, layers=4)
    small = trim(model, Plan.of(model, heads={2: range(4)}))
    assert measured(model) - measured(small) == measured(model) / 4
    cache = small(**zoo.inputs("llama")).past_key_values
    assert cache.layers[2].keys is None


@pytest.mark.parametrize("name", ["bert", "clip", "wav2vec2", "vit"])
def test_models_that_do_not_generate_have_no_cache(name):
    model = zoo.build(name)
    assert cache_bytes_per_token(model) is None
    assert "cache_bytes_per_token" not in cost(model).as_dict()
    assert "cache" not in summary(model).sizes


def test_a_classifier_on_a_decoder_has_no_cache():
    assert cost(tf.LlamaForSequenceClassification(zoo.CONFIGS["llama"]())).cache_bytes_per_token is None


def test_the_cache_is_said_wherever_sizes_are(tmp_path, capsys):
    model = zoo.build("mistral")
    plan = Plan.of(model, heads={0: [0, 1]})
    before, after = (size.cache_bytes_per_token for size in plan_cost(model, plan))
    assert (before, after) == (256, 192)
    assert "key/value cache: 256 bytes per token (sites with a window" in summary(model).sizes
    model.save_pretrained(tmp_path / "dense")
    trimmed = run_json(
        capsys, "trim", "--model", tmp_path / "dense", "--heads", "0:0,1", "--output_dir", tmp_path / "small"
    )
    assert (trimmed["cache_bytes_per_token_before"], trimmed["cache_bytes_per_token"]) == (before, after)
    assert run_json(capsys, "show", "--model", tmp_path / "small")["cache_bytes_per_token"] == after


def test_heads_that_are_normalised_as_one_go_together():
    model = zoo.build("olmo2")
    with pytest.raises(
        PlanError, match=r"Heads \[0, 1, 2, 3\] of site 0 are normalised as one: they can only be removed"
    ):
        Plan.of(model, heads={0: [0, 1]})
    with Control(model) as control:
        control.set("heads", 0, torch.zeros(1))
    assert Plan.of(model, heads={0: range(4)}).heads_kept == [0, 4]


def test_what_belongs_to_layers_moves_with_them():
    model = zoo.build("smollm3", layers=4)
    small = trim(model, Plan.of(model, layers=[0]))
    assert small.config.no_rope_layers == model.config.no_rope_layers[1:] == [0, 1, 0]
    assert small.config.layer_types == model.config.layer_types[1:]
    model.config.no_rope_layers = [*model.config.no_rope_layers, 0, 0]  # longer lists are allowed
    assert trim(model, Plan.of(model, layers=[0])).config.no_rope_layers[:3] == [0, 1, 0]


def test_smollm3_windows_are_those_of_its_masks():
    config = zoo.CONFIGS["smollm3"]()
    config.use_sliding_window = False
    sites = find_sites(tf.SmolLM3ForCausalLM(config))
    assert [site.window for site in sites] == [None, 5]


KEPT = {"llama": 8, "gemma3_text": 8, "phi3": 8, "mistral": 6, "qwen2": 6, "qwen3": 6, "smollm3": 6}
"""Heads of portable models that need 6 of 8. Some configs take divisors of the width only, which is 32 here; in phi3,
heads stay as zeros."""


@pytest.mark.parametrize("name", KEPT)
def test_portable_models_have_a_number_of_heads_that_loads(name, tmp_path, no_grad):
    config = zoo.CONFIGS[name]()
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 8, 4, 8
    model = tf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    zoo.liven(model)
    plan = Plan.of(model, heads={site.index: site.group(site.index) for site in find_sites(model)})
    portable(model, plan).save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, attn_implementation="eager").eval()
    batch = zoo.inputs(name, "left")
    assert_close(zoo.output(name, loaded, batch), zoo.output(name, trim(model, plan), batch))
    assert loaded.config.num_attention_heads == KEPT[name]


def test_phi3_by_its_weights_is_phi3_to_the_bit(no_grad):
    """What thinned sites run, on a whole one."""
    model, batch = zoo.build("phi3"), zoo.inputs("phi3", "left")
    expected = model(**batch).logits
    for site in find_sites(model):
        site.module.forward = functools.partial(routed.phi3, site.module)
    assert torch.equal(model(**batch).logits, expected)


def test_gemma3_with_images_is_refused_by_name():
    config = tf.Gemma3Config(
        text_config={**zoo.GROUPED, "head_dim": 8},
        vision_config={**zoo.TEXT, **zoo.IMAGE},
        mm_tokens_per_image=4,
    )
    with torch.device("meta"):
        model = tf.Gemma3ForConditionalGeneration(config)
    with pytest.raises(UnsupportedModelError, match=r"type 'gemma3'\. Did you mean 'gemma3_text'"):
        find_sites(model)
    assert len(find_sites(model.model.language_model)) == 2
