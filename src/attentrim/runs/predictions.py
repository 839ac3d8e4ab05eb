"""Answers as files: GLUE's submission format, and the same for other tasks; words and tags for tagging."""

from __future__ import annotations

from typing import Any

from ..atomic import write_text
from ..tasks.kinds import EncodedDataset
from .loading import Loaded


def write_predictions(path: str, loaded: Loaded, split: str, data: EncodedDataset, outputs: Any) -> None:
    task = loaded.task
    answers = task.kind.answers(outputs, data, task.named_labels)
    if task.kind.words:
        lines = _tagged(loaded, split, answers)
    else:
        lines = ["index\tprediction"]
        lines += [
            f"{index}\t{_spelt(loaded, answer)}"
            for index, answer in zip(_indices(loaded, split), answers, strict=False)
        ]
    write_text(path, "".join(f"{line}\n" for line in lines))


def _spelt(loaded: Loaded, answer: int | float) -> str:
    """GLUE wants numbers for some tasks and names for others; the user's own classes have names."""
    task = loaded.task
    if task.kind.name == "regression":
        return f"{answer:.3f}" if task.local else repr(answer)
    by_name = task.files_names or task.local is None
    return task.named_labels[int(answer)] if by_name and task.named_labels else str(answer)


def _indices(loaded: Loaded, split: str) -> list[Any]:
    """As the file counts its rows; else from 0."""
    table, column = loaded.table(split), loaded.columns.index
    if column is None or column not in table.columns:
        return list(range(len(table)))
    return [row[column] for row in table.rows]


def _tagged(loaded: Loaded, split: str, answers: list[list[str]]) -> list[str]:
    """One word and its tag per line, a blank line after each sentence; words beyond the longest input get no tag."""
    lines = []
    for example, tags in zip(loaded.examples(split, labelled=False), answers, strict=False):
        none = "O" if "O" in loaded.task.named_labels else "_"
        padded = [*tags, *[none] * (len(example.text) - len(tags))]
        lines += [f"{word}\t{tag}" for word, tag in zip(example.text, padded, strict=True)] + [""]
    return lines
