"""Plain texts to shrink an embedding model with, others to evaluate it on, and scored pairs, without duplicates.

    python benchmarks/embedding_texts.py --out texts cola=glue/CoLA mrpc=glue/MRPC sst2=glue/SST-2 \\
        --books text/gutenberg/*.txt text/wikitext-2/valid.txt --held_out text/wikitext-2/test.txt

train.txt has the training sentences of the tasks and the sentences of the books, in random order; validation.txt has
--each of every task's dev sentences and of the held-out file; pairs.jsonl has MRPC's dev pairs with their labels.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterable
from pathlib import Path

from attentrim.tasks import TASKS
from attentrim.tasks.sources import LocalCopy

SHORTEST, LONGEST = 3, 60
"""Words of a sentence from running text."""


def sentences_of_task(name: str, data_dir: str, split: str) -> list[str]:
    task = TASKS[name]
    source = LocalCopy(task, task.local, data_dir)
    table = source.table(split)
    table = task.adapt(table) if task.adapt else table
    texts = (row[column] for row in table.rows for column in source.columns.inputs)
    return [" ".join(str(text).split()) for text in texts if text]


def sentences_of_text(path: Path) -> list[str]:
    """Paragraphs, separated by blank lines or by WikiText's line breaks, cut after full stops."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:  # older books
        text = raw.decode("latin-1")
    paragraphs = re.split(r"\n\s*\n", text) if "\n \n" not in text else text.split("\n")
    found = []
    for paragraph in paragraphs:
        words = " ".join(paragraph.split())
        if words and not words.startswith("="):
            found += re.split(r"(?<=[.!?]) (?=[A-Z\"'])", words)
    return [sentence for sentence in found if SHORTEST <= len(sentence.split()) <= LONGEST]


def chosen(found: Iterable[str], count: int | None, seed: int = 0) -> list[str]:
    unique = list(dict.fromkeys(found))
    random.Random(seed).shuffle(unique)
    return unique[:count]


def write_pairs(data_dir: str, path: Path) -> int:
    task = TASKS["mrpc"]
    source = LocalCopy(task, task.local, data_dir)
    rows = source.table("validation").rows
    first, second = source.columns.inputs
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            pair = {"sentence1": row[first], "sentence2": row[second], "score": float(row[source.columns.label])}
            file.write(json.dumps(pair, ensure_ascii=False) + "\n")
    return len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", metavar="TASK=DIR", help="tasks and the directories of their data")
    parser.add_argument("--books", nargs="*", type=Path, default=[], help="running text to train on")
    parser.add_argument("--held_out", type=Path, help="running text to evaluate on")
    parser.add_argument("--limit", type=int, default=100_000, help="training texts (default: 100000)")
    parser.add_argument("--each", type=int, default=500, help="held-out texts from each source (default: 500)")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    places = dict(pair.split("=", 1) for pair in args.data)
    held = [chosen(sentences_of_task(name, place, "validation"), args.each) for name, place in places.items()]
    held += [chosen(sentences_of_text(args.held_out), args.each)] if args.held_out else []
    validation = [text for part in held for text in part]
    train = {name: sentences_of_task(name, place, "train") for name, place in places.items()}
    train |= {path.name: sentences_of_text(path) for path in args.books}
    held_out = set(validation)
    found = [text for part in train.values() for text in part if text not in held_out]
    args.out.mkdir(parents=True, exist_ok=True)
    texts = {"train": chosen(found, args.limit), "validation": validation}
    for name, lines in texts.items():
        (args.out / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print({name: len(part) for name, part in train.items()})
    print({name: len(lines) for name, lines in texts.items()})
    if "mrpc" in places:
        print("pairs:", write_pairs(places["mrpc"], args.out / "pairs.jsonl"))


if __name__ == "__main__":
    main()
