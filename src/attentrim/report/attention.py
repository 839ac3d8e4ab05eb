"""The attention of a run's sentences, packed so that a page can hold it."""

from __future__ import annotations

import base64
import zlib
from typing import Any

from ..runs.reader import MOMENTS, Recorded, Sentence

MOST_TOKENS = 40
MOST_BYTES = 1_400_000
"""Of packed attention in a page, before it is written as text."""


def packed_attention(run: Recorded) -> dict[str, Any]:
    """Sentences, where each map lies, and the maps: one byte per weight, deflated, in base64.

    As many sentences as there is room for, and of a sentence that is too long its beginning; `left_out` counts the
    rest.
    """
    whole = run.sentences
    for count in range(len(whole), 0, -1):
        packed = _pack(run, whole[:count], MOST_TOKENS)
        if len(packed["data"]) <= MOST_BYTES * 4 / 3:
            return {**packed, "left_out": len(whole) - count}
    tokens = MOST_TOKENS
    while whole and tokens > 4:
        tokens //= 2
        packed = _pack(run, whole[:1], tokens)
        if len(packed["data"]) <= MOST_BYTES * 4 / 3:
            return {**packed, "left_out": len(whole) - 1}
    return {"sentences": [], "maps": [], "data": "", "left_out": len(whole)}


def _pack(run: Recorded, sentences: list[Sentence], most: int) -> dict[str, Any]:
    content = bytearray()
    maps = []
    for number, sentence in enumerate(sentences):
        length = min(most, len(sentence.tokens))
        for moment in MOMENTS:
            for site, weights in sorted(sentence.maps.get(moment, {}).items()):
                part = weights[:, :length, :length].astype("float32")
                maps.append(
                    {
                        "sentence": number,
                        "moment": moment,
                        "site": site,
                        "heads": run.start[site] if site < len(run.start) else list(range(len(part))),
                        "rows": part.shape[1],
                        "columns": part.shape[2],
                        "offset": len(content),
                    }
                )
                content += (part * 255).round().clip(0, 255).astype("uint8").tobytes()
    packer = zlib.compressobj(9, wbits=-15)
    return {
        "sentences": [
            {"text": sentence.text, "tokens": sentence.tokens[:most], "length": len(sentence.tokens)}
            for sentence in sentences
        ],
        "maps": maps,
        "data": base64.b64encode(packer.compress(bytes(content)) + packer.flush()).decode("ascii"),
    }
