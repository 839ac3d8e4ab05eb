"""The tables of the page about a run: size, speed, machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..runs.reader import Recorded, measured_pairs

UNITS = {"heads": (1, "{:.0f}"), "parameters": (1, "{:,.0f}"), "bytes": (1e6, "{:.1f} MB"), "flops": (1e9, "{:.2f} G")}


def sizes(run: Recorded) -> list[tuple[str, str, str, str]]:
    bench, rows = run.bench, []
    names = {"bytes": "size", "flops": f"FLOPs (1 x {bench.get('flops_length')} tokens)"}
    for name, (unit, shape) in UNITS.items():
        before, after = bench.get(f"{name}_against"), bench.get(name)
        if before and after is not None:
            cells = (shape.format(before / unit), shape.format(after / unit), f"{after / before - 1:+.1%}")
            rows.append((names.get(name, name), *cells))
    return rows


def check(run: Recorded) -> str:
    """That taking heads out changed nothing."""
    masked = run.metrics.get("masked_value")
    if not run.metrics.get("trimmed") or masked is None or not run.plan:
        return ""
    metric = run.metrics["metric"]
    if math.isclose(masked, run.metrics["value"], abs_tol=5e-5):
        return f"Check: with the attention switched off rather than cut out, {metric} is the same ({masked:.4f})."
    return f"With the attention switched off rather than cut out, {metric} was {masked:.4f}."


def speeds(run: Recorded) -> list[tuple[str, str, str, str]]:
    return [
        (
            f"{after['batch']} x {after['length']} tokens, {after['device']}, {after['dtype']}, {after['backend']}",
            f"{before['milliseconds_median']:.2f} ms",
            f"{after['milliseconds_median']:.2f} ms",
            f"{after['speedup']:.2f} ({after['speedup_quartiles'][0]:.2f} to {after['speedup_quartiles'][1]:.2f})",
        )
        for before, after in measured_pairs(run.bench)
    ]


def place(machine: Mapping[str, Any]) -> str:
    chips = [*(machine.get("gpus") or []), machine.get("cpu")]
    return ", ".join(str(chip) for chip in chips if chip)


def machine_rows(machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    shown = {name: value for name, value in machine.items() if value not in (None, [], "")}
    return [(name, ", ".join(value) if isinstance(value, list) else str(value)) for name, value in shown.items()]
