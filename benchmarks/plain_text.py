"""The training sentences of some tasks as plain text, one per line, without labels, for `--task mlm`.

    python benchmarks/plain_text.py --model mpnet-base --out text cola=glue/CoLA mrpc=glue/MRPC sst2=glue/SST-2

The two sentences of a pair stand in one line, with what the model's tokenizer puts between them. Lines are in random
order; the last ones are for validation.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from attentrim.tasks import TASKS
from attentrim.tasks.sources import LocalCopy

HELD_OUT = 500
"""Lines for validation, but at most a tenth."""


def sentences(task: str, data_dir: str, between: str) -> list[str]:
    known = TASKS[task]
    source = LocalCopy(known, known.local, data_dir)
    table = source.table("train")
    table = known.adapt(table) if known.adapt else table
    rows = [[row.get(column) for column in source.columns.inputs] for row in table.rows]
    return [between.join(filter(None, map(_line, row))) for row in rows]


def _line(value: Any) -> str:
    """A sentence, or a list of words, with single spaces."""
    return " ".join((value if isinstance(value, str) else " ".join(value or ())).split())


def separator(model: str) -> str:
    """What stands between the sentences of a pair."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = tokenizer("a", "a")["input_ids"]
    word = tokenizer("a", add_special_tokens=False)["input_ids"][0]
    first, last = (place for place, token in enumerate(ids) if token == word)
    return "".join(tokenizer.convert_ids_to_tokens(ids[first + 1 : last]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", metavar="TASK=DIR", help="tasks and the directories of their data")
    parser.add_argument("--model", required=True, help="whose tokenizer says how pairs are joined")
    parser.add_argument("--out", type=Path, required=True, help="directory for train.txt and validation.txt")
    args = parser.parse_args()
    for pair in args.data:
        if pair.partition("=")[0] not in TASKS:
            parser.error(f"{pair!r} is not TASK=DIR with one of the tasks {', '.join(TASKS)}")
    between = separator(args.model)
    found = [line for pair in args.data for line in sentences(*pair.split("=", 1), between) if line]
    random.Random(0).shuffle(found)
    trained = len(found) - min(HELD_OUT, len(found) // 10)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, lines in (("train", found[:trained]), ("validation", found[trained:])):
        (args.out / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(found)} lines, {sum(len(line.split()) for line in found)} words")


if __name__ == "__main__":
    main()
