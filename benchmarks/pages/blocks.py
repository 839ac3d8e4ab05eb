"""The marked parts of a page, and what fills them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from . import compared, measured
from .inline import number, values
from .raw import ROOT

BLOCK = re.compile(r"(<!-- ([a-z-]+): ([^>]*?)-->\n)(?:(?!<!-- \2: ).)*?(<!-- /\2 -->)", re.DOTALL)
NUMBER = re.compile(r"(<!-- n: (\S+) -->).*?(<!-- /n -->)")
KINDS: dict[str, Callable[[Path, list[str], dict[str, str]], str]] = {
    "results": compared.table,
    "across": compared.across,
    "by-speed": compared.by_speed,
    "pairs": compared.pairs,
    "heads": compared.heads,
    "cost": compared.cost,
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
    return NUMBER.sub(lambda found: f"{found[1]}{number(found[2])}{found[3]}", text)
