"""One vector per text, as near as can be to those of a teacher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import TaskError
from ..examples import Example
from ..similarity import FEWEST, measures, pairs_spearman
from .base import SHOWN_EXAMPLES, EncodedDataset, Encoding, Kind, chunks, gather

OF_PAIRS = "pairs_spearman"
"""The metric of pairs that people scored; the others compare with a teacher."""


class Embedding(Kind):
    name = "embedding"
    head = ""
    default_metrics = ("similarity_spearman", "cosine", "neighbours")
    predicts = False
    embeds = True

    def fits(self, architectures: Sequence[str] | None) -> bool:
        """Any encoder does, whatever head it was saved with."""
        return True

    def model_settings(self, labels: Sequence[str]) -> dict[str, Any]:
        return {}

    def encode(self, examples: Sequence[Example], encoding: Encoding) -> EncodedDataset:
        """Pairs are read text by text: all first ones, then all second ones."""
        found = [example for example in examples if all(text.strip() for text in _texts(example))]
        if not found:
            raise TaskError("There is no text: all rows are blank.")
        paired = found[0].pair is not None
        texts = [_texts(example)[side] for side in range(1 + paired) for example in found]
        parts, too_long = [], [False] * len(texts)
        done = 0
        for part in chunks(texts):
            prepared = [encoding.prepare(text) for text in part]
            whole = encoding.tokenizer(prepared, verbose=False)["input_ids"]
            for row, ids in enumerate(whole, done):
                too_long[row] = len(ids) > encoding.max_length
            done += len(part)
            parts.append(dict(encoding.tokenizer(prepared, truncation=True, max_length=encoding.max_length)))
        cut = sum(any(too_long[row :: len(found)]) for row in range(len(found)))
        shown = [example.written for example in found[:SHOWN_EXAMPLES]]
        data = EncodedDataset(gather(parts), None, cut, len(found), blank=len(examples) - len(found), texts=shown)
        if paired and found[0].label is not None:
            data.scores = [example.label for example in found]
        return data

    def collator(self, tokenizer: Any) -> Any:
        return EmbeddingCollator(tokenizer)

    def held_out_metric(self, metrics: Sequence[str]) -> str:
        """Training texts have no scores: a teacher judges them."""
        return next(name for name in metrics if name != OF_PAIRS)

    def judge(
        self, metrics: Sequence[str], outputs: Any, truth: Any, data: EncodedDataset, labels: Sequence[str]
    ) -> dict[str, float]:
        """Those that the data allows: with a teacher's embeddings, with scored pairs, or with both."""
        found: dict[str, float] = {}
        if data.scores is not None and _is_of(data, truth):
            found[OF_PAIRS] = pairs_spearman(outputs, data.scores)
        if truth is not None:
            found |= self.score(metrics, outputs, truth, labels)
        return {name: found[name] for name in metrics if name in found}

    def score(self, metrics: Sequence[str], outputs: Any, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        if len(outputs) < FEWEST:
            raise TaskError(
                f"The similarities of {len(outputs)} texts are not meaningful: give {FEWEST} or more to evaluate on "
                "(--validation_file)."
            )
        return measures(outputs, truth)


def _is_of(data: EncodedDataset, truth: Any) -> bool:
    """Whether a teacher's embeddings are those of this data: a Trainer judges held-out texts in the same way."""
    import numpy

    return truth is None or data.labels is None or numpy.array_equal(truth, numpy.asarray(data.labels))


def _texts(example: Example) -> list[str]:
    return [str(text) for text in (example.text, example.pair) if text is not None]


@dataclass
class EmbeddingCollator:
    """Pads; labels, if there are any, are vectors."""

    tokenizer: Any

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        import numpy
        import torch

        texts = [{name: value for name, value in row.items() if name != "labels"} for row in rows]
        batch = dict(self.tokenizer.pad(texts, return_tensors="pt"))
        if "labels" in rows[0]:
            batch["labels"] = torch.from_numpy(numpy.stack([row["labels"] for row in rows]))
        return batch
