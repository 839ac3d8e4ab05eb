"""What a run cost, in one line: the metric before and after, and how much faster the model is. Imports no torch."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from .reader import CONFIG, measured_pairs, speeds_of

DENSE = "the dense model"
"""What `before` is of, where it is what one expects."""
AS_EXPECTED = (DENSE, "the model it started from")
NOT_TRAINED = "no metric (only hidden states were distilled)"


def headline(
    metric: str,
    value: float | None,
    before: float | None = None,
    *,
    of: str = DENSE,
    speedup: float | None = None,
    at: tuple[int, int] | None = None,
    on: str = "",
    flops_ratio: float | None = None,
) -> str:
    """'accuracy .912 → .908, 2.03 × at 8 × 128 on this CPU'

    Args:
        value: Of the trimmed model; None where nobody measured it.
        before: The same metric of the model that `of` names; None where nobody measured it.
        speedup: Measured; None where nobody timed the model.
        at: Sequences and tokens that it was timed with.
        on: The place where: 'this CPU', or the name of a chip.
        flops_ratio: FLOPs before over those after: the speed-up in theory, said where none was measured.
    """
    speed = _speed(speedup, at, on, flops_ratio)
    return ", ".join(filter(None, (_change(metric, value, before, of), speed)))


def headline_of(result: Mapping[str, Any], bench: Mapping[str, Any], *, here: bool = False) -> str:
    """The line of a run, from its result and what `bench.json` says (nothing where it was not timed).

    Args:
        here: Whether the reader sits at the machine that timed it: its CPU is then "this CPU".
    """
    before = result.get("before") or {}
    trained = result.get("head_trained", True)
    change = _change(result["metric"], result["value"], before.get("value"), before.get("of", DENSE))
    return ", ".join(filter(None, (change if trained else NOT_TRAINED, _speed_of(result, bench, here))))


def number(value: float) -> str:
    """'.912', '-.031', '1.000', '24.13', '1,234.5'"""
    size = abs(value)
    if size >= 99.995 or not math.isfinite(value):
        return f"{value:,.1f}"
    text = f"{value:.2f}" if size >= 9.9995 else f"{value:.3f}"
    sign = "-" if text.startswith("-") and float(text) else ""
    digits = text.removeprefix("-")
    return sign + (digits[1:] if digits.startswith("0.") else digits)


def times(ratio: float) -> str:
    """'2.03 ×'"""
    return f"{ratio:.2f} ×"


def place(device: str, machine: Mapping[str, Any], here: bool = False) -> str:
    """Where a model was timed: this CPU to who sits at it, the name of the chip to all others."""
    if device.startswith("cuda"):
        return next(iter(machine.get("gpus") or []), "a GPU")
    return "this CPU" if here else str(machine.get("cpu") or "a CPU")


def dense_command(directory: str = "") -> str:
    """What measures the dense model of a run that did not; `directory` is the run's, by default the current one."""
    config = shlex.quote(str(PurePath(directory, CONFIG)))
    output = shlex.quote(f"{PurePath(directory)}-dense" if directory else "dense")
    return f"attentrim train --config {config} --method none --output_dir {output}"


def lacks_dense(result: Mapping[str, Any]) -> bool:
    """Whether something was removed and the metric of the dense model is not known."""
    unknown = (result.get("before") or {}).get("value") is None
    return unknown and bool(result.get("removed")) and bool(result.get("head_trained", True))


def _change(metric: str, value: float | None, before: float | None, of: str) -> str:
    if value is None:
        return "" if before is None else f"{metric} {number(before)} before"
    if before is None:
        return f"{metric} {number(value)}"
    whose = "" if of in AS_EXPECTED else f" ({of})"
    return f"{metric} {number(before)}{whose} → {number(value)}"


def _speed(speedup: float | None, at: tuple[int, int] | None, on: str, flops_ratio: float | None) -> str:
    if speedup is not None:
        shape = f" at {at[0]} × {at[1]}" if at else ""
        return times(speedup) + shape + (f" on {on}" if on else "")
    return f"{times(flops_ratio)} by FLOPs (not timed)" if flops_ratio else ""


def _speed_of(result: Mapping[str, Any], bench: Mapping[str, Any], here: bool) -> str:
    for _, row in measured_pairs(bench)[:1]:
        where = place(row["device"], bench.get("machine") or {}, here)
        return _speed(row["speedup"], (row["batch"], row["length"]), where, None)
    measured = result.get("speedup_measured")
    if measured is None and not result.get("removed"):
        return "nothing removed"
    if measured is None and not result.get("trimmed", True):
        return "not trimmed yet"
    return _speed(measured, None, "", result.get("speedup_flops") or result.get("flops_ratio")) or "speed not known"


def speeds_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows about the several speeds that one training left; no rows where it left one."""
    before = (result.get("before") or {}).get("value")
    rows = [
        [
            times(point.asked),
            "not timed" if point.measured is None else times(point.measured),
            "" if point.flops is None else times(point.flops),
            "" if point.value is None else number(point.value),
            point.directory,
        ]
        for point in speeds_of(result)
    ]
    if rows and before is not None:
        rows.insert(0, ["dense", times(1), times(1), number(before), ""])
    return ["asked", "measured", "by FLOPs", str(result.get("metric")), "directory"], rows
