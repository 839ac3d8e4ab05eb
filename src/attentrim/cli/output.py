"""Where words and results go: tables to people; with `--json`, one object to stdout and all else to stderr."""

from __future__ import annotations

import argparse
import json as json_module
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ..atomic import explaining

if TYPE_CHECKING:
    from ..cost import Cost
    from ..plan import Plan


STDOUT = Path("standard output")


class Output:
    def __init__(self, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.main = os.environ.get("RANK", "0") == "0"
        """Of several processes, the one that speaks for all."""
        self.quiet = quiet or not self.main
        self.stdout = sys.stdout
        self.console = Console(stderr=json, highlight=False)

    def say(self, text: str) -> None:
        """A remark, which --quiet leaves out."""
        if not self.quiet:
            encoding = self.console.encoding  # a file on Windows may know no arrows
            text = text.encode(encoding, "replace").decode(encoding)
            with explaining(STDOUT):
                self.console.print(text, markup=False, soft_wrap=True)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Numbers to the right, words to the left."""
        cells = [[_cell(value) for value in row] for row in rows]
        table = Table(title=title, title_justify="left", title_style="bold")
        for index, column in enumerate(columns):
            numeric = bool(cells) and all(row[index][:1].isdigit() for row in cells)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=index == 0)
        for row in cells:
            table.add_row(*row)
        with explaining(STDOUT):
            self.console.print(table)

    def result(self, data: dict[str, Any]) -> None:
        """The machine-readable answer of a command."""
        if self.json:
            with explaining(STDOUT):
                self.stdout.write(json_module.dumps(data, ensure_ascii=False) + "\n")
                self.stdout.flush()

    def error(self, text: str) -> None:
        sys.stderr.write(f"attentrim: error: {' '.join(text.split())}\n")


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)


def positive(text: str) -> int:
    """A flag that takes a whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text}")
    return number


def metric_rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, f"{value:.4f}") for name, value in result["metrics"].items()]


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def size_table(output: Output, title: str, before: Cost, after: Cost, plan: Plan | None = None) -> None:
    """Two models side by side. The plan that is between them knows which units are gone without being removed."""
    from ..breakdown import change

    units = ((name, count, after.units[name]) for name, count in before.units.items())
    rows: list[tuple[str, Any, Any, str]] = [
        *((name, count, left, change(name, count, left, plan)) for name, count, left in units),
        ("parameters", before.parameters, after.parameters, change("", before.parameters, after.parameters)),
        ("size", megabytes(before.bytes), megabytes(after.bytes), change("", before.bytes, after.bytes)),
        (
            f"MFLOPs (1x{before.length})",
            before.flops // 10**6,
            after.flops // 10**6,
            change("", before.flops, after.flops),
        ),
    ]
    held, holds = before.cache_bytes_per_token, after.cache_bytes_per_token
    if held is not None and holds is not None:
        rows.append(("cache bytes per token", held, holds, change("", held, holds)))
    output.table(title, ("", "before", "after", "change"), rows)


def size_fields(before: Cost, after: Cost) -> dict[str, float]:
    """The same for JSON."""
    return {
        "parameters_before": before.parameters,
        "parameters": after.parameters,
        "bytes_before": before.bytes,
        "bytes": after.bytes,
        "flops_before": before.flops,
        "flops": after.flops,
        "flops_ratio": before.flops / after.flops if after.flops else 0.0,
        **{
            f"cache_bytes_per_token{suffix}": size.cache_bytes_per_token
            for suffix, size in (("_before", before), ("", after))
            if size.cache_bytes_per_token is not None
        },
    }
