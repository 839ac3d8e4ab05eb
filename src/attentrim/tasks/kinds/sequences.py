"""A class or a number for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import TaskError
from ..examples import Example
from ..metrics import compute
from .base import EncodedDataset, Encoding, Kind, chunks, gather, labels_of


class Sequences(Kind):
    """Base of those whose head reads the whole text."""

    head = "ForSequenceClassification"
    windows = True

    def encode(self, examples: Sequence[Example], encoding: Encoding) -> EncodedDataset:
        whole = [self._tokens(part, encoding, truncation=False) for part in chunks(examples)]
        columns = gather([dict(part) for part in whole])
        too_long = sum(len(ids) > encoding.max_length for ids in columns["input_ids"])
        labels = labels_of(examples)
        if not too_long:
            return EncodedDataset(columns, labels, 0, len(examples))
        if encoding.stride is not None:
            return self._windows(examples, encoding)
        columns = gather([dict(self._tokens(part, encoding, truncation=True)) for part in chunks(examples)])
        return EncodedDataset(columns, labels, too_long, len(examples))

    def _tokens(self, examples: Sequence[Example], encoding: Encoding, **settings: Any) -> Any:
        pairs = [example.pair for example in examples] if examples[0].pair is not None else None
        settings = {"max_length": encoding.max_length, **settings} if settings["truncation"] else settings
        return encoding.tokenizer([example.text for example in examples], pairs, verbose=False, **settings)

    def _windows(self, examples: Sequence[Example], encoding: Encoding) -> EncodedDataset:
        """Each window of a long text is a row with the text's label."""
        if examples[0].pair is not None:
            raise TaskError("Sliding windows are for single texts: leave --window_stride out for pairs.")
        if not encoding.tokenizer.is_fast:
            raise TaskError("Sliding windows need a fast tokenizer; this model has a slow one.")
        columns: dict[str, list[Any]] = {}
        groups: list[int] = []
        done = 0
        for part in chunks(examples):
            windows = self._tokens(
                part, encoding, truncation=True, stride=encoding.stride, return_overflowing_tokens=True
            )
            groups += [done + number for number in windows.pop("overflow_to_sample_mapping")]
            for name, values in windows.items():
                columns.setdefault(name, []).extend(values)
            done += len(part)
        labels = labels_of(examples)
        rows = None if labels is None else [labels[group] for group in groups]
        return EncodedDataset(columns, rows, 0, len(examples), groups)

    def _merged(self, outputs: Any, data: EncodedDataset) -> Any:
        """The mean over the windows of each example."""
        if data.groups is None:
            return outputs
        import numpy

        sums = numpy.zeros((data.examples, *outputs.shape[1:]))
        numpy.add.at(sums, data.groups, outputs)
        return sums / numpy.bincount(data.groups, minlength=data.examples).reshape(-1, *[1] * (outputs.ndim - 1))

    def judge(
        self, metrics: Sequence[str], outputs: Any, truth: Any, data: EncodedDataset, labels: Sequence[str]
    ) -> dict[str, float]:
        """Of examples rather than of their windows."""
        if data.groups is not None and len(outputs) == len(data):
            import numpy

            _, first = numpy.unique(numpy.array(data.groups), return_index=True)
            outputs, truth = self._merged(outputs, data), truth[first]
        return self.score(metrics, outputs, truth, labels)


class Classification(Sequences):
    name = "classification"
    default_metrics = ("accuracy", "f1_macro")
    classes = True

    def score(self, metrics: Sequence[str], outputs: Any, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        return compute(metrics, truth, outputs.argmax(-1))

    def answers(self, outputs: Any, data: EncodedDataset, labels: Sequence[str]) -> list[Any]:
        return [int(index) for index in self._merged(outputs, data).argmax(-1)]


class Regression(Sequences):
    name = "regression"
    default_metrics = ("pearson", "spearman")

    def model_settings(self, labels: Sequence[str]) -> dict[str, Any]:
        return {"num_labels": 1, "problem_type": "regression"}

    def score(self, metrics: Sequence[str], outputs: Any, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        return compute(metrics, truth.reshape(-1), outputs.reshape(-1))

    def answers(self, outputs: Any, data: EncodedDataset, labels: Sequence[str]) -> list[Any]:
        return [float(value) for value in self._merged(outputs, data).reshape(-1)]
