"""Tags for words: named entities (CoNLL-2003, WNUT 2017), parts of speech (Universal Dependencies, Penn Treebank)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import TaskError
from .base import TASKS, Hub, Local, Task
from .examples import Columns
from .kinds import KINDS
from .tables import Table, lines_of, read_columns, read_text

ENTITY = ("entity_f1", "entity_precision", "entity_recall", "accuracy")
CONLL_LABELS = tuple(["O"] + [f"{place}-{kind}" for kind in ("PER", "ORG", "LOC", "MISC") for place in "BI"])
WNUT_KINDS = ("corporation", "creative-work", "group", "location", "person", "product")
WNUT_LABELS = tuple(["O"] + [f"{place}-{kind}" for kind in WNUT_KINDS for place in "BI"])
PTB_SECTIONS = {"train": range(19), "validation": range(19, 22), "test": range(22, 25)}
"""The usual split of the Wall Street Journal for tagging."""


def each_entity_begins(tags: Sequence[str]) -> tuple[str, ...]:
    """IOB1, in which B- marks only an entity that touches another of its kind, as IOB2."""
    fixed = []
    for before, tag in zip(("O", *tags), tags, strict=False):
        starts = tag.startswith("I-") and before[2:] != tag[2:]
        fixed.append(f"B-{tag[2:]}" if starts else tag)
    return tuple(fixed)


def _read_conll2003(path: Path) -> Table:
    """Space-separated columns, the entity last."""
    table = read_columns(path)
    rows = [{**row, "tags": each_entity_begins(row["tags"])} for row in table.rows]
    return Table(table.origin, table.columns, rows, table.numbers)


def _read_tabbed_words(path: Path) -> Table:
    return read_columns(path, "\t", tag=1)


def _read_pos(path: Path) -> Table:
    """By what is there: token and tag by tabs, CoNLL-U, or the treebank's sections of trees."""
    if not path.suffix:
        return _read_trees(path)
    return _read_conllu(path) if path.suffix == ".conllu" else _read_tabbed_words(path)


def _read_conllu(path: Path) -> Table:
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    open_sentence = False
    for number, line in lines_of(path):
        if not line.strip():
            open_sentence = False
            continue
        cells = line.split("\t")
        if line.startswith("#") or not cells[0].isdigit():
            continue  # comments, contractions (1-2) and words that are not there (1.1)
        if len(cells) < 4:
            raise TaskError(f"{path}, line {number}: 10 columns are needed, {len(cells)} found.")
        if not open_sentence:
            rows.append({"tokens": [], "tags": []})
            numbers.append(number)
            open_sentence = True
        rows[-1]["tokens"].append(cells[1])
        rows[-1]["tags"].append(cells[3])
    return Table(str(path), ("tokens", "tags"), rows, numbers)


def _read_trees(path: Path) -> Table:
    """The sections of one split of the Wall Street Journal; `path` is DIR/SPLIT where DIR holds 00 to 24."""
    rows = []
    for section in PTB_SECTIONS[path.name]:
        folder = path.parent / f"{section:02d}"
        files = sorted(file for file in folder.glob("*") if file.suffix.lower() == ".mrg")
        if not files:
            needed = f"{PTB_SECTIONS[path.name][0]:02d} to {PTB_SECTIONS[path.name][-1]:02d}"
            raise TaskError(f"There are no trees (.mrg) in {folder}: {path.name} is sections {needed}.")
        for file in files:
            rows += [{"tokens": words, "tags": tags} for words, tags in _sentences(read_text(file))]
    return Table(str(path.parent), ("tokens", "tags"), rows, range(1, len(rows) + 1), "sentence")


def _sentences(text: str) -> list[tuple[list[str], list[str]]]:
    """Leaves of bracketed trees, without the traces."""
    found: list[tuple[list[str], list[str]]] = []
    depth = 0
    for part in re.finditer(r"\(([^\s()]+)\s+([^\s()]+)\)|[()]", text):
        if part.group(0) == "(":
            if depth == 0:
                found.append(([], []))
            depth += 1
        elif part.group(0) == ")":
            depth -= 1
        elif part.group(1) != "-NONE-" and found:
            found[-1][0].append(part.group(2))
            found[-1][1].append(part.group(1))
    return [sentence for sentence in found if sentence[0]]


class _PosFiles(Local):
    """Files, or else the sections of a treebank, which lie side by side and have no name for a split."""

    def path(self, task: str, data_dir: str | Path, split: str) -> Path:
        if split in PTB_SECTIONS and any((Path(data_dir) / f"{section:02d}").is_dir() for section in range(25)):
            return Path(data_dir) / split
        return super().path(task, data_dir, split)


COLUMNS = Columns("tokens", "tags")
HUB_ENTITIES = Columns("tokens", "ner_tags")

TASKS.register(
    "conll2003",
    Task(
        "conll2003",
        "find persons, organisations, places (entity F1)",
        KINDS["tokens"],
        ENTITY,
        CONLL_LABELS,
        Local(
            {
                "train": ("eng.train", "train.txt"),
                "validation": ("eng.testa", "valid.txt"),
                "test": ("eng.testb", "test.txt"),
            },
            _read_conll2003,
            COLUMNS,
        ),
        Hub("lhoestq/conll2003", HUB_ENTITIES),
    ),
)
TASKS.register(
    "wnut17",
    Task(
        "wnut17",
        "find rare entities in noisy text (entity F1)",
        KINDS["tokens"],
        ENTITY,
        WNUT_LABELS,
        Local(
            {
                "train": ("train.conll", "wnut17train.conll"),
                "validation": ("dev.conll", "emerging.dev.conll"),
                "test": ("test.conll", "emerging.test.annotated"),
            },
            _read_tabbed_words,
            COLUMNS,
        ),
        Hub("leondz/wnut_17", HUB_ENTITIES, revision="refs/convert/parquet"),
    ),
)
TASKS.register(
    "pos",
    Task(
        "pos",
        "tag each word with its part of speech (accuracy, F1)",
        KINDS["tokens"],
        ("accuracy", "f1_macro"),
        None,
        _PosFiles(
            {
                "train": ("train.tsv", "en_ewt-ud-train.conllu"),
                "validation": ("dev.tsv", "en_ewt-ud-dev.conllu"),
                "test": ("test.tsv", "en_ewt-ud-test.conllu"),
            },
            _read_pos,
            COLUMNS,
        ),
        Hub("universal-dependencies/universal_dependencies", Columns("tokens", "upos"), config="en_ewt"),
    ),
)
