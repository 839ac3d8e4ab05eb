"""`measure`: models, backends and rivals side by side, for each device, dtype and shape."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from ..sites import unwrap
from .allocator import keep_buffers
from .candidates import Candidates
from .checks import check
from .decoding import DecodingTurns
from .rows import Row
from .turns import Turns


def measure(
    model: Any,
    against: Any = None,
    *,
    shapes: Sequence[tuple[int, int]] = ((1, 128), (8, 128)),
    dtypes: Sequence[str] = ("float32",),
    devices: Sequence[str] = ("cpu",),
    backends: Sequence[str] = ("sdpa",),
    rivals: Sequence[str] = (),
    repeats: int = 15,
    padding: float = 0.125,
    new_tokens: int | None = None,
) -> list[Row]:
    """Time `model`, and `against` beside it, at all `shapes` (batch, length), dtypes, devices and backends.

    Rivals are made from `against` (or else `model`) and run in the first of `backends` that is sdpa or eager. A
    setting that cannot be measured gets a row with a remark. With `new_tokens`, further rows time the generation of
    that many tokens after each shape of prompt, in sdpa and eager. The models are not changed.
    """
    models = {} if against is None else {"against": unwrap(against)}
    models["model"] = unwrap(model)
    check(models, shapes, dtypes, devices, backends, rivals, repeats, padding, new_tokens)
    if "cpu" in devices:
        keep_buffers()
    candidates = Candidates(models, backends, rivals)
    settings = len(devices) * len(dtypes) * len(shapes)
    total = len(rivals) + settings * (len(candidates.pairs) + repeats)
    total += settings * (len(candidates.decoding_pairs) + repeats) if new_tokens else 0
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, tqdm(total=total, disable=None, leave=False) as bar:
        candidates.make_rivals(lambda rival: bar.set_description(f"making {rival}"))
        bar.update(len(rivals))
        turns = [Turns(candidates, repeats, padding, Path(folder), bar)]
        if new_tokens:
            turns.append(DecodingTurns(candidates, repeats, padding, Path(folder), bar, new_tokens))
        with torch.inference_mode():
            for device, dtype in product(devices, dtypes):
                candidates.move(device, dtype)
                for batch, length in shapes:
                    rows += [row for each in turns for row in each.measure(batch, length)]
    return rows
