"""The marked parts of a page, and what fills them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from . import choices, compared, measured
from .inline import number, values
from .raw import ROOT

BLOCK = re.compile(r"(<!-- ([a-z-]+): ([^>]*?)-->\n)(?:(?!<!-- \2: ).)*?(<!-- /\2 -->)", re.DOTALL)
NUMBER = re.compile(r"(\?|[+-]?\d[\d,.]*%?(?:\s+(?:to|of)\s+[+-]?\d[\d,.]*)?(?:\s+\([^()]*\))?)(<!-- n: (\S+) -->)")
"""A number, a range or a difference with its interval; or a question mark that was not filled in yet."""
KINDS: dict[str, Callable[[Path, list[str], dict[str, str]], str]] = {
    "results": compared.table,
    "across": compared.across,
    "by-speed": compared.by_speed,
    "pairs": compared.pairs,
    "heads": compared.heads,
    "cost": compared.cost,
    "chosen": choices.chosen,
    "speed": measured.speed,
    "shapes": measured.shapes,
    "steps": measured.steps,
    "asked": measured.asked,
    "backends": measured.backends,
    "values": values,
}


def pages() -> list[Path]:
    """Where blocks and numbers are filled in."""
    found = [ROOT / "RESULTS.md", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if page.is_file()]


def filled(page: Path, text: str) -> str:
    """The page with its tables and numbers as the raw files have them now."""

    def block(found: re.Match[str]) -> str:
        first, *lines = found[3].strip().splitlines()
        options = dict(line.split(": ", 1) for line in map(str.strip, lines) if line)
        return f"{found[1]}{KINDS[found[2]](page, first.split(), options)}{found[4]}"

    text = BLOCK.sub(lambda found: block(found) if found[2] in KINDS else found[0], text)
    assert len(NUMBER.findall(text)) == text.count("<!-- n: "), f"{page}: a number's name does not follow a number"

    def in_sentence(found: re.Match[str]) -> str:
        new = number(found[3])
        is_same = " ".join(found[1].split()) == new  # a line may end within it
        return f"{found[1] if is_same else new}{found[2]}"

    return NUMBER.sub(in_sentence, text)
