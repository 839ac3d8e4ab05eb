"""What a task is. Imports no torch until data is encoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import TaskError, unknown_name
from ..registry import Registry
from .metrics import classification_metrics


@dataclass(frozen=True)
class Example:
    """One labelled text, or pair of texts."""

    text: str
    label: int
    pair: str | None = None


@dataclass(frozen=True)
class Task:
    """A classification of sentences or of pairs, read from files in the layout in which it is published."""

    name: str
    summary: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    """The first is the task's own; the others are reported beside it."""
    read: Callable[[Path], list[Example]]
    """The examples of a file."""
    files: Mapping[str, str] = field(default_factory=lambda: {"train": "train.tsv", "validation": "dev.tsv"})

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def path(self, data_dir: str | Path, split: str) -> Path:
        """The file of one split of a local copy."""
        if split not in self.files:
            raise TaskError(unknown_name("split", split, self.files))
        path = Path(data_dir) / self.files[split]
        if not path.is_file():
            held = f"the directory that holds {' and '.join(self.files.values())}"
            raise TaskError(f"There is no file {path}: for {self.name}, --data_dir is {held}.")
        return path

    def load(self, data_dir: str | Path, split: str) -> list[Example]:
        """The examples of one split of a local copy."""
        path = self.path(data_dir, split)
        examples = self.read(path)
        if not examples:
            raise TaskError(f"{path} holds no examples.")
        return examples

    @property
    def model_class(self) -> Any:
        from transformers import AutoModelForSequenceClassification

        return AutoModelForSequenceClassification

    @property
    def model_settings(self) -> dict[str, Any]:
        """What a fresh task head needs to know."""
        names = dict(enumerate(self.labels))
        return {
            "num_labels": len(names),
            "id2label": names,
            "label2id": {name: index for index, name in names.items()},
        }

    def encode(self, examples: Sequence[Example], tokenizer: Any, max_length: int) -> EncodedDataset:
        pairs = [example.pair for example in examples] if examples[0].pair is not None else None
        encoded = tokenizer([example.text for example in examples], pairs, truncation=False, verbose=False)
        lengths = [len(ids) for ids in encoded["input_ids"]]
        truncated = sum(length > max_length for length in lengths)
        if truncated:
            encoded = tokenizer([example.text for example in examples], pairs, truncation=True, max_length=max_length)
        return EncodedDataset(dict(encoded), [example.label for example in examples], truncated)

    def compute_metrics(self, prediction: Any) -> dict[str, float]:
        """For a Trainer."""
        logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
        return classification_metrics(self.metrics, prediction.label_ids, logits.argmax(-1))


@dataclass
class EncodedDataset:
    """Token ids and labels, as a map-style dataset."""

    columns: dict[str, list[Any]]
    labels: list[int]
    truncated: int
    """How many examples were longer than allowed and lost their end."""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**{name: values[index] for name, values in self.columns.items()}, "labels": self.labels[index]}


TASKS: Registry[Task] = Registry("task")
