"""Rows of a measurement as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..bench import RIVALS, Row
from ..bench.settings import INT8
from .output import Output

COLUMNS = ("", "ms (quartiles)", "seq/s", "speed-up (quartiles)", "FLOPs", "diff")
MOMENTS = {"against": "before", "model": "after"}
"""The names of rows, for people."""
DECODING = ("", "prompt ms", "speed-up", "tokens/s", "speed-up (quartiles)", "diff")


def show_rows(output: Output, rows: Sequence[Row]) -> None:
    """A table for each device, dtype and shape, and below them why some rows are missing."""
    label = labels(rows)
    remarks: dict[str, dict[str, None]] = {}
    for key in dict.fromkeys(map(_setting, rows)):
        here = [row for row in rows if _setting(row) == key]
        decoding = here[0].new_tokens is not None
        cells = _decoding_cells if decoding else _cells
        measured = [(label(row), *cells(row)) for row in here if row.milliseconds_median is not None]
        if measured:
            output.table(key, DECODING if decoding else COLUMNS, measured)
        for row in here:
            if row.remark:
                remarks.setdefault(row.remark, {})[f"{label(row)} ({row.device}, {row.dtype})"] = None
    for remark, whose in remarks.items():
        output.say(f"{', '.join(whose)}: {remark}")
    for reference in sorted({row.reference_backend or INT8 for row in rows if row.backend == INT8} - {INT8}):
        output.say(f"speed-ups of {INT8} refer to {reference}, so quantisation is part of them")
    changed = {row.name: row.parameters for row in rows if row.name in RIVALS and row.milliseconds_median}
    for name, parameters in changed.items():
        output.say(f"{name} ({parameters:,} parameters) was not retrained: its answers are not the dense model's")


def labels(rows: Sequence[Row]) -> Callable[[Row], str]:
    """What to call each of these rows: 'before, sdpa' and 'after, sdpa'; 'sdpa' where nothing is compared."""
    compared = any(row.name == "against" for row in rows)

    def label(row: Row) -> str:
        if row.name in RIVALS:
            return row.name
        return f"{MOMENTS[row.name]}, {row.backend}" if compared else row.backend

    return label


def _setting(row: Row) -> str:
    setting = f"{row.device}, {row.dtype}, {row.batch} x {row.length}"
    return setting if row.new_tokens is None else f"{setting}, then {row.new_tokens} new tokens each"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        _spread(row.milliseconds_median, row.milliseconds_quartiles),
        f"{row.sequences_per_second:,.0f}",
        _spread(row.speedup, row.speedup_quartiles),
        "" if row.flop_ratio is None else f"{row.flop_ratio:.2f}",
        _difference(row),
    )


def _decoding_cells(row: Row) -> tuple[str, ...]:
    return (
        "" if row.prefill_milliseconds is None else f"{row.prefill_milliseconds:.1f}",
        "" if row.prefill_speedup is None else f"{row.prefill_speedup:.2f}",
        "" if row.tokens_per_second is None else f"{row.tokens_per_second:,.1f}",
        _spread(row.speedup, row.speedup_quartiles),
        _difference(row),
    )


def _difference(row: Row) -> str:
    return "" if row.max_abs_difference is None else f"{row.max_abs_difference:.0e}".replace("e-0", "e-")


def _spread(median: float | None, quartiles: tuple[float, float] | None) -> str:
    """'18.8 (18.4-19.3)'; the reference itself is 1 by definition, without spread."""
    if median is None or quartiles is None:
        return ""
    if quartiles == (1.0, 1.0):
        return "1"
    places = 2 if median < 9.995 else 1 if median < 99.95 else 0
    return f"{median:.{places}f} ({quartiles[0]:.{places}f}-{quartiles[1]:.{places}f})"
