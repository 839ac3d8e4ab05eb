"""Which tokens occur in texts."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm.auto import tqdm

CHUNK = 1000
CONVERSATION = tuple({"role": role, "content": "a"} for role in ("user", "assistant", "user"))


def used_ids(tokenizer: Any, texts: Sequence[str], progress: bool = False) -> set[int]:
    """The ids of whole texts, cut nowhere, special tokens included; and of the words of the chat template."""
    found: set[int] = set()
    for batch in batches_of(tokenizer, [*_template(tokenizer), *texts], progress):
        for ids in batch:
            found.update(ids)
    return found


def batches_of(tokenizer: Any, texts: Sequence[str], progress: bool = False) -> Iterator[list[list[int]]]:
    """The ids of texts, many at a time."""
    reader = copy.deepcopy(tokenizer)  # a call changes how the tokenizer pads
    starts = range(0, len(texts), CHUNK)
    hidden = None if progress and len(starts) > 1 else True
    for start in tqdm(starts, desc="tokenising", disable=hidden, leave=False):
        yield reader(list(texts[start : start + CHUNK]), padding=False, truncation=False, verbose=False)["input_ids"]


def _template(tokenizer: Any) -> list[str]:
    """What surrounds the words of a conversation, where the tokenizer knows."""
    if not getattr(tokenizer, "chat_template", None):
        return []
    found = []
    for turns in (1, 3):
        try:
            text = tokenizer.apply_chat_template(
                list(CONVERSATION[:turns]), tokenize=False, add_generation_prompt=True
            )
        except Exception:  # templates are programs, which may refuse any conversation
            continue
        found.append(str(text))
    return found


@dataclass(frozen=True)
class TextCheck:
    """How many texts a smaller vocabulary writes with other tokens."""

    texts: int
    others: int
    """Texts whose tokens are not all kept."""
    tokens: int
    gone: int
    """Tokens, as often as they occur, that are not kept."""


def check_texts(tokenizer: Any, small: Any, texts: Iterable[str]) -> TextCheck:
    """Compare what texts need with what is kept."""
    kept = small.get_vocab().keys()
    gone = {number for token, number in tokenizer.get_vocab().items() if token not in kept}
    texts = list(texts)
    others = tokens = missing = 0
    for batch in batches_of(tokenizer, texts):
        for ids in batch:
            count = sum(number in gone for number in ids)
            others, tokens, missing = others + bool(count), tokens + len(ids), missing + count
    return TextCheck(len(texts), others, tokens, missing)
