"""Scores without learning: the same answer for every example, or that of the most similar training example.

    python benchmarks/without_learning.py cola=glue/CoLA mrpc=glue/MRPC sst2=glue/SST-2 wnli=glue/WNLI

The most similar example shares the largest part of the words of both. The last number is how many dev examples have a
first sentence that is in the training data too.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from attentrim.errors import AttentrimError
from attentrim.tasks import TASKS
from attentrim.tasks.metrics import METRICS
from attentrim.tasks.sources import LocalCopy

KNOWN = ("cola", "mrpc", "sst2", "wnli")
"""Tasks whose answers are 0 and 1 in the files."""


class Example(NamedTuple):
    first: str
    words: frozenset[str]
    answer: int


def examples(task: str, data_dir: str, split: str) -> list[Example]:
    known = TASKS[task]
    source = LocalCopy(known, known.local, data_dir)
    found = []
    for row in source.table(split).rows:
        texts = [str(row[column]) for column in source.columns.inputs]
        words = frozenset(" ".join(texts).lower().split())
        found.append(Example(texts[0], words, int(row[source.columns.label])))
    return found


def nearest(example: Example, others: list[Example]) -> Example:
    return max(others, key=lambda other: len(example.words & other.words) / len(example.words | other.words))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "data", nargs="+", metavar="TASK=DIR", help=f"any of {', '.join(KNOWN)}, and their directories"
    )
    for pair in parser.parse_args().data:
        task, _, place = pair.partition("=")
        if task not in KNOWN:
            parser.error(f"{pair!r} is not TASK=DIR with one of the tasks {', '.join(KNOWN)}")
        metric = TASKS[task].metric
        try:
            train, dev = (examples(task, place, split) for split in ("train", "validation"))
        except AttentrimError as error:
            parser.error(str(error))
        truth = [example.answer for example in dev]
        same = {answer: METRICS[metric](truth, [answer] * len(truth)) for answer in sorted(set(truth))}
        copied = [nearest(example, train).answer for example in dev]
        right = sum(guess == answer for guess, answer in zip(copied, truth, strict=True))
        seen = {example.first for example in train}
        print(
            f"{task}: {metric} always "
            + ", ".join(f"{answer} {value:.4f}" for answer, value in same.items())
            + f"; nearest {METRICS[metric](truth, copied):.4f} ({right} of {len(dev)} right); "
            f"first sentence seen {sum(example.first in seen for example in dev)}"
        )


if __name__ == "__main__":
    main()
