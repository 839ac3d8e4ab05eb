"""The right one of several endings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..examples import Example
from ..metrics import compute
from .base import EncodedDataset, Encoding, Kind, chunks, gather, labels_of


class Choice(Kind):
    name = "choice"
    head = "ForMultipleChoice"
    default_metrics = ("accuracy",)

    def model_settings(self, labels: Sequence[str]) -> dict[str, Any]:
        return {}

    def encode(self, examples: Sequence[Example], encoding: Encoding) -> EncodedDataset:
        count = len(examples[0].choices)
        parts, truncated = [], 0
        for part in chunks(examples):
            first = [example.text for example in part for _ in range(count)]
            second = [choice for example in part for choice in example.choices]
            lengths = [len(ids) for ids in encoding.tokenizer(first, second, verbose=False)["input_ids"]]
            truncated += sum(
                max(lengths[start : start + count]) > encoding.max_length for start in range(0, len(lengths), count)
            )
            encoded = encoding.tokenizer(first, second, truncation=True, max_length=encoding.max_length)
            parts.append(
                {
                    name: [values[start : start + count] for start in range(0, len(values), count)]
                    for name, values in encoded.items()
                }
            )
        return EncodedDataset(gather(parts), labels_of(examples), truncated, len(examples))

    def collator(self, tokenizer: Any) -> Any:
        return ChoiceCollator(tokenizer)

    def score(self, metrics: Sequence[str], outputs: Any, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        return compute(metrics, truth, outputs.argmax(-1))

    def answers(self, outputs: Any, data: EncodedDataset, labels: Sequence[str]) -> list[Any]:
        return [int(index) for index in outputs.argmax(-1)]


@dataclass
class ChoiceCollator:
    """Pads all endings of a batch to one length; labels may be absent."""

    tokenizer: Any

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        import torch

        names = [name for name in rows[0] if name != "labels"]
        count = len(rows[0]["input_ids"])
        flat = [{name: row[name][choice] for name in names} for row in rows for choice in range(count)]
        padded = self.tokenizer.pad(flat, return_tensors="pt")
        batch = {name: value.view(len(rows), count, -1) for name, value in padded.items()}
        if "labels" in rows[0]:
            batch["labels"] = torch.tensor([row["labels"] for row in rows])
        return batch
