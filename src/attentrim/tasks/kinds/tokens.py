"""A tag for each word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import TaskError
from ..examples import Example
from ..metrics import ENTITY_METRICS, compute
from .base import EncodedDataset, Encoding, Kind, chunks, labels_of

IGNORED = -100
"""The label of pieces that are not judged: a word's tag stands at its first piece."""
CUT = -1
"""The answer for a word beyond the longest input."""


class Tokens(Kind):
    name = "tokens"
    head = "ForTokenClassification"
    default_metrics = ("accuracy", "f1_macro")
    classes = True
    words = True

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
        return EncodedDataset(columns, labels, truncated, len(examples), starts=starts, tags=labels_of(examples))

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

    def judge(
        self, metrics: Sequence[str], outputs: Any, truth: Any, data: EncodedDataset, labels: Sequence[str]
    ) -> dict[str, float]:
        """Of all words: one that was cut has no right answer."""
        if data.tags is None or len(outputs) != len(data):
            return self.score(metrics, outputs, truth, labels)
        found = [
            tags + [CUT] * (len(true) - len(tags)) for tags, true in zip(_read(outputs, data), data.tags, strict=True)
        ]
        return _scores(metrics, [list(tags) for tags in data.tags], found, labels)

    def score(self, metrics: Sequence[str], outputs: Any, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        judged = truth != IGNORED
        true, found = (
            [row[seen].tolist() for row, seen in zip(tags, judged, strict=True)] for tags in (truth, outputs)
        )
        return _scores(metrics, true, found, labels)

    def answers(self, outputs: Any, data: EncodedDataset, labels: Sequence[str]) -> list[Any]:
        """Tags of the words that were seen."""
        return [[labels[tag] for tag in tags] for tags in _read(outputs, data)]


def _read(outputs: Any, data: EncodedDataset) -> list[list[int]]:
    """The tags of the words that were seen, by number."""
    assert data.starts is not None
    return [[int(row[place]) for place in places] for row, places in zip(outputs, data.starts, strict=True)]


def _scores(
    metrics: Sequence[str], truth: list[list[int]], found: list[list[int]], labels: Sequence[str]
) -> dict[str, float]:
    flat = [[tag for sentence in sentences for tag in sentence] for sentences in (truth, found)]
    values = compute([name for name in metrics if name not in ENTITY_METRICS], *flat)
    named = [
        [["O" if tag == CUT else labels[tag] for tag in sentence] for sentence in sentences]
        for sentences in (truth, found)
    ]
    return {name: ENTITY_METRICS[name](*named) if name in ENTITY_METRICS else values[name] for name in metrics}


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
