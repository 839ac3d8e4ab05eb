"""A tag for each word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import TaskError
from ..examples import Example
from ..metrics import ENTITY_METRICS, compute
from .base import EncodedDataset, Encoding, Kind, chunks

IGNORED = -100
"""The label of pieces that are not judged: a word's tag stands at its first piece."""


class Tokens(Kind):
    name = "tokens"
    head = "ForTokenClassification"
    default_metrics = ("accuracy", "f1_macro")

    def encode(self, examples: Sequence[Example], encoding: Encoding) -> EncodedDataset:
        tokenizer = encoding.tokenizer
        if not tokenizer.is_fast:
            raise TaskError("Tagging words needs a fast tokenizer; this model has a slow one.")
        columns: dict[str, list[Any]] = {}
        starts: list[list[int]] = []
        truncated = 0
        for part in chunks(examples):
            sentences = self._visible(part, tokenizer)
            encoded = tokenizer(
                sentences, is_split_into_words=True, truncation=True, max_length=encoding.max_length, verbose=False
            )
            for name, values in encoded.items():
                columns.setdefault(name, []).extend(values)
            found = [_first_pieces(encoded.word_ids(row)) for row in range(len(part))]
            starts += found
            truncated += sum(len(places) < len(words) for places, words in zip(found, sentences, strict=True))
        labels = None
        if examples[0].label is not None:
            labels = [
                _spread(example.label, places, len(ids))
                for example, places, ids in zip(examples, starts, columns["input_ids"], strict=True)
            ]
        return EncodedDataset(columns, labels, truncated, len(examples), starts=starts)

    def _visible(self, examples: Sequence[Example], tokenizer: Any) -> list[list[str]]:
        """Words, with the unknown one for those that a tokenizer makes nothing of: each word keeps its tag."""
        words = sorted({word for example in examples for word in example.text})
        pieces = tokenizer([[word] for word in words], is_split_into_words=True, add_special_tokens=False)["input_ids"]
        unseen = {word for word, ids in zip(words, pieces, strict=True) if not ids}
        stand_in = tokenizer.unk_token or tokenizer.pad_token
        return [[stand_in if word in unseen else word for word in example.text] for example in examples]

    def collator(self, tokenizer: Any) -> Any:
        from transformers import DataCollatorForTokenClassification

        return DataCollatorForTokenClassification(tokenizer)

    def reduce(self, logits: Any, labels: Any) -> Any:
        return super().reduce(logits, labels).argmax(-1)

    def score(self, metrics: Sequence[str], outputs: Any, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        judged = truth != IGNORED
        plain = [name for name in metrics if name not in ENTITY_METRICS]
        values = compute(plain, truth[judged], outputs[judged])
        if len(plain) < len(metrics):
            sentences = [
                [[labels[tag] for tag in row[seen]] for row, seen in zip(tags, judged, strict=True)]
                for tags in (truth, outputs)
            ]
            values |= {name: ENTITY_METRICS[name](*sentences) for name in metrics if name in ENTITY_METRICS}
        return values

    def answers(self, outputs: Any, data: EncodedDataset, labels: Sequence[str]) -> list[Any]:
        """Tags of the words that were seen."""
        assert data.starts is not None
        return [[labels[row[place]] for place in places] for row, places in zip(outputs, data.starts, strict=True)]


def _first_pieces(word_ids: Sequence[int | None]) -> list[int]:
    """Where each word begins."""
    places: dict[int, int] = {}
    for place, word in enumerate(word_ids):
        if word is not None:
            places.setdefault(word, place)
    return list(places.values())


def _spread(tags: Any, places: Sequence[int], length: int) -> list[int]:
    row = [IGNORED] * length
    for place, tag in zip(places, tags, strict=False):
        row[place] = tag
    return row
