"""What cannot be measured is refused before anything is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ..cost import most_tokens
from ..errors import AttentrimError, unknown_name
from ..kv_cache import cache_bytes_per_token
from .settings import BACKENDS, DEVICES, DTYPES, PLAIN, RIVALS


def check(
    models: Mapping[str, Any],
    shapes: Sequence[tuple[int, int]],
    dtypes: Sequence[str],
    devices: Sequence[str],
    backends: Sequence[str],
    rivals: Sequence[str],
    repeats: int,
    padding: float,
    new_tokens: int | None = None,
) -> None:
    for kind, given, known in (
        ("dtype", dtypes, DTYPES),
        ("device", devices, DEVICES),
        ("backend", backends, BACKENDS),
        ("rival", rivals, RIVALS),
    ):
        _check_names(kind, given, known)
    if "cuda" in devices and not torch.cuda.is_available():
        raise AttentrimError("--devices asks for cuda, and torch finds no CUDA device here: use --devices cpu.")
    if rivals and not set(PLAIN) & set(backends):
        raise AttentrimError(f"--rivals run in plain PyTorch: add sdpa or eager to --backends {' '.join(backends)}.")
    if min(repeats, *(size for shape in shapes for size in shape)) < 1:
        raise AttentrimError("--repeats, --batch_sizes and --lengths must be 1 or more.")
    if not 0 <= padding < 1:
        raise AttentrimError(f"--padding is the share of the last row that is padding, in [0, 1). Got {padding}.")
    if new_tokens is not None:
        _check_decoding(models, backends, new_tokens)
    for name, model in models.items():
        for length in {length for _, length in shapes}:
            _check_length(name, model, length + (new_tokens or 0), new_tokens)


def _check_names(kind: str, given: Sequence[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise AttentrimError(unknown_name(kind, name, known))
    if not given and kind != "rival":
        raise AttentrimError(f"Give at least one {kind}.")
    if len(set(given)) < len(given):
        raise AttentrimError(f"--{kind}s names something twice: {' '.join(given)}.")


def _check_decoding(models: Mapping[str, Any], backends: Sequence[str], new_tokens: int) -> None:
    if new_tokens < 1:
        raise AttentrimError(f"--decode is how many tokens to generate: 1 or more. Got {new_tokens}.")
    if not set(PLAIN) & set(backends):
        raise AttentrimError(f"--decode runs in plain PyTorch: add sdpa or eager to --backends {' '.join(backends)}.")
    for name, model in models.items():
        if cache_bytes_per_token(model) is None:
            raise AttentrimError(
                f"--decode is for models that generate text with a cache; --{name} is a {type(model).__name__}: leave "
                "it out."
            )


def _check_length(name: str, model: Any, length: int, new_tokens: int | None = None) -> None:
    most = most_tokens(model)
    if length <= most:
        return
    asked = f"--lengths {length - new_tokens} with --decode {new_tokens}" if new_tokens else f"--lengths {length}"
    raise AttentrimError(f"{asked} is too long for --{name}, which has positions for {most} tokens.")
