"""The tables of the page about a run: size, speed, machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..guarded import is_number
from ..runs.headline import speeds_table
from ..runs.reader import Recorded, measured_pairs
from .figures import Numbers

UNITS = {
    "heads": (1, "{:.0f}"),
    "parameters": (1, "{:,.0f}"),
    "bytes": (1e6, "{:.1f} MB"),
    "flops": (1e9, "{:.2f} G"),
    "cache_bytes_per_token": (1, "{:,.0f} bytes"),
}


def sizes(run: Recorded) -> list[tuple[str, str, str, str]]:
    from ..breakdown import change

    bench, rows = run.bench, []
    names = {
        "bytes": "size",
        "flops": f"FLOPs (1 x {bench.get('flops_length')} tokens)",
        "cache_bytes_per_token": "key/value cache per token",
    }
    for name, (unit, shape) in UNITS.items():
        before, after = bench.get(f"{name}_against"), bench.get(name)
        if before and after is not None:
            counts = (shape.format(before / unit), shape.format(after / unit))
            cells = (*counts, change(name, before, after, run.plan))
            rows.append((names.get(name, name), *cells))
    return rows


def check(run: Recorded) -> str:
    """That taking heads out changed nothing."""
    masked = run.metrics.get("masked_value")
    if not run.metrics.get("trimmed") or masked is None or not run.plan:
        return ""
    metric = run.metrics["metric"]
    if math.isclose(masked, run.metrics["value"], abs_tol=5e-5):
        return f"Check: with the same parts masked instead of removed, {metric} is the same ({masked:.4f})."
    return f"With the same parts masked instead of removed, {metric} was {masked:.4f}."


def speeds(run: Recorded) -> list[tuple[str, str, str, str]]:
    return [
        (
            f"{after['batch']} x {after['length']} tokens, {after['device']}, {after['dtype']}, {after['backend']}",
            f"{before['milliseconds_median']:.2f} ms",
            f"{after['milliseconds_median']:.2f} ms",
            f"{after['speedup']:.2f}{_spread(after.get('speedup_quartiles'))}",
        )
        for before, after in measured_pairs(run.bench)
    ] + [
        (
            f"{after['new_tokens']} new tokens after {after['batch']} x {after['length']}, {after['device']}, "
            f"{after['dtype']}, {after['backend']}",
            f"{before['tokens_per_second']:,.1f} tokens/s",
            f"{after['tokens_per_second']:,.1f} tokens/s",
            f"{after['speedup']:.2f}{_spread(after.get('speedup_quartiles'))}",
        )
        for before, after in measured_pairs(run.bench, decoding=True)
    ]


def _spread(quartiles: Any) -> str:
    """' (1.95 to 2.11)'; nothing where a bench did not say."""
    if not isinstance(quartiles, list) or len(quartiles) != 2 or not all(map(is_number, quartiles)):
        return ""
    return f" ({quartiles[0]:.2f} to {quartiles[1]:.2f})"


def models(run: Recorded) -> Numbers | None:
    """Those that one training left."""
    columns, rows = speeds_table(run.metrics)
    return Numbers(columns, rows) if rows else None


def layer_times(run: Recorded) -> Numbers | None:
    """Where the time went, by layer and part, and in all."""
    found = run.layer_times
    if found is None:
        return None
    rows = []
    for layer, before, after in zip(found.layers, found.before, found.after, strict=True):
        now = [" removed"] * (len(before) + 1) if after is None else [f"\u00a0{time}" for time in _in_all(after)]
        rows.append([str(layer), *(f"{old} →{new}" for old, new in zip(_in_all(before), now, strict=True))])
    blank = [""] * len(found.parts)
    rows.append(["other", *blank, f"{found.outside:.2f}"])
    rows.append(["all", *blank, f"{found.total_before:.2f} →\u00a0{found.total_after:.2f}"])
    return Numbers(["layer", *found.parts, "all"], rows)


def _in_all(parts: Sequence[float]) -> list[str]:
    return [f"{time:.2f}" for time in (*parts, sum(parts))]


def place(machine: Mapping[str, Any]) -> str:
    chips = [*(machine.get("gpus") or []), machine.get("cpu")]
    return ", ".join(str(chip) for chip in chips if chip)


def machine_rows(machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    shown = {name: value for name, value in machine.items() if value not in (None, [], "")}
    return [
        (name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)) for name, value in shown.items()
    ]
