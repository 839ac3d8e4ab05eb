"""Decoders: a trimmed model generates the masked model's tokens, with any cache and with left padding."""

from __future__ import annotations

import plans
import pytest
import torch
import zoo

from attentrim import Control, trim

CORNERS = (
    "one group of every site",
    "every site uniform",
    "first uniform, last thinned",
    "first headless, last uniform",
)
NAMES = (*sorted(zoo.GENERATIVE), "bart", "t5")


def prompts(name: str) -> dict[str, torch.Tensor]:
    batch = zoo.inputs(name, "right" if name in zoo.SEQ2SEQ else "left")
    batch.pop("decoder_input_ids", None)
    return batch


def generate(model, batch, **more) -> torch.Tensor:
    return model.generate(**batch, max_new_tokens=10, min_new_tokens=10, do_sample=False, pad_token_id=0, **more)


def masked_and_trimmed(name, attn, corner, **more):
    model, batch = zoo.build(name, attn=attn), prompts(name)
    plan = plans.corner_plans(model)[corner]
    with Control(model) as control:
        control.apply(plan)
        masked = generate(model, batch, **more)
    return model, masked, generate(trim(model, plan), batch, **more)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("name", NAMES)
def test_generate_gives_the_masked_models_tokens(name, corner, cache):
    model, masked, trimmed = masked_and_trimmed(name, "eager", corner, use_cache=cache)
    assert torch.equal(masked, trimmed)
    assert not torch.equal(masked, generate(model, prompts(name), use_cache=cache))


@pytest.mark.parametrize("name", NAMES)
def test_generate_under_sdpa(name):
    _, masked, trimmed = masked_and_trimmed(name, "sdpa", "first uniform, last thinned")
    assert torch.equal(masked, trimmed)


@pytest.mark.parametrize("corner", ["every site uniform", "first headless, last uniform"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bart", "t5"])
def test_beam_search_reorders_what_folded_sites_cached(name, corner):
    _, masked, trimmed = masked_and_trimmed(name, "eager", corner, num_beams=3)
    assert torch.equal(masked, trimmed)


@pytest.mark.parametrize("corner", ["every site uniform", "first headless, last uniform"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3_text", "olmo2"])
def test_static_cache(name, corner):
    if name == "gemma3_text" and corner == "every site uniform":
        pytest.skip("its first site has a window")
    _, masked, trimmed = masked_and_trimmed(name, "sdpa", corner, cache_implementation="static", disable_compile=True)
    assert torch.equal(masked, trimmed)


def test_static_cache_is_refused_for_folded_windows():
    model = zoo.build("mistral")
    small = trim(model, plans.corner_plans(model)["every site uniform"])
    with pytest.raises(ValueError, match="dynamic caches only"):
        generate(small, prompts("mistral"), cache_implementation="static", disable_compile=True)


@pytest.mark.parametrize("name", sorted(zoo.GENERATIVE))
def test_cached_logits_equal_those_of_the_whole_sequence(name, no_grad):
    """Token by token, in chunks and at once: the same numbers, past the sliding window too."""
    model = zoo.build(name)
    small = trim(model, plans.corner_plans(model)["first uniform, last thinned"])
    ids = zoo.inputs(name, length=17)["input_ids"]
    whole = small(ids, use_cache=False).logits
    for sizes in ([1] * 17, [7, 1, 9], [17]):
        cache, parts, start = None, [], 0
        for size in sizes:
            result = small(ids[:, start : start + size], past_key_values=cache, use_cache=True)
            cache, start = result.past_key_values, start + size
            parts.append(result.logits)
        torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-4, rtol=1e-4)
