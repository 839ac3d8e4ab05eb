"""Keep the tokens that a user's texts need: the tokenizer and all that a model has by token shrink together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..duplicate import duplicate
from ..errors import AttentrimError, UnsupportedModelError
from ..sites import unwrap
from .closure import needed
from .ids import ids_in
from .models import configs_of, count_rows, shrink
from .tokens import Vocabulary, rebuilt
from .used import TextCheck, batches_of, check_texts, used_ids

__all__ = ["TextCheck", "check_texts", "trim_vocabulary"]

CHECKED = 2000
"""Texts for which the new tokenizer is compared with the old one. By its kind it must agree (`closure`); this guards
against what surrounds it."""


@torch.inference_mode(False)
def trim_vocabulary(model: Any, tokenizer: Any, texts: Iterable[str], *, progress: bool = False) -> tuple[Any, Any]:
    """Copies of `model` and `tokenizer` with only the tokens that `texts` need.

    Also kept are special and added tokens, those that the config names, and what the tokenizer needs to split other
    words. A text whose tokens are all kept is tokenised as before, under new ids, and gets the same outputs. Other
    texts are split into other tokens.

    Args:
        texts: Texts of the kind that the model will read.
        progress: Show a progress bar if it takes long.
    """
    inner = unwrap(model)
    rows = count_rows(inner)
    vocabulary = Vocabulary.of(tokenizer)
    if max(vocabulary.tokens) >= rows:
        raise UnsupportedModelError(
            f"The tokenizer's ids go up to {max(vocabulary.tokens)}, and the model has embeddings for {rows}: they "
            "do not belong together, or resize_token_embeddings was not called."
        )
    texts = _listed(texts)
    used = used_ids(tokenizer, texts, progress)
    if used <= vocabulary.special:
        raise AttentrimError("The texts hold no tokens but special ones: give texts of the kind that the model reads.")
    named = {number for config in configs_of(inner) for number in ids_in(config) if 0 <= number < rows}
    kept = used | vocabulary.special | (named & vocabulary.tokens.keys())
    kept |= needed(vocabulary, kept)
    # rows that the config names and that have no token come last
    order = [*vocabulary.order(kept, named), *sorted(named - vocabulary.tokens.keys())]
    copied = duplicate(inner, Tensor.clone)
    if len(order) < rows:
        shrink(copied, order, rows)
    numbers = {old: new for new, old in enumerate(order)}
    small = rebuilt(tokenizer, vocabulary, numbers)
    _compare(tokenizer, small, numbers, texts[:CHECKED])
    return copied, small


def _listed(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise AttentrimError("texts must be a list of texts. Got one text: put it in a list.")
    found = list(texts)
    for text in found:
        if not isinstance(text, str):
            raise AttentrimError(f"texts must be a list of texts. Got {type(text).__name__} among them.")
    if not found:
        raise AttentrimError("There are no texts: give texts of the kind that the model reads.")
    return found


def _compare(tokenizer: Any, small: Any, numbers: dict[int, int], texts: Sequence[str]) -> None:
    for before, after in zip(batches_of(tokenizer, texts), batches_of(small, texts), strict=True):
        for old, new in zip(before, after, strict=True):
            if [numbers[number] for number in old] != new:
                raise UnsupportedModelError(
                    f"{type(tokenizer).__name__} splits texts differently once its vocabulary is smaller: it is not "
                    "supported."
                )
