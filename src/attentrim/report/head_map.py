"""What the script of the page draws the head map from."""

from __future__ import annotations

import math
from typing import Any

from ..runs.reader import Gates, Recorded
from .figures import thinned
from .removals import SiteOutcome, outcomes

MOST_STEPS = 240
"""Of the head map over training."""


def head_map(run: Recorded) -> dict[str, Any]:
    """Sites, and their gates (or drop rates) at each recorded step."""
    sites = _sites(run)
    gates = thinned(run.gates, MOST_STEPS)
    steps, rates = run.by_site("drop_rates") if not gates else ([], [])
    kept = thinned(list(zip(steps, rates, strict=True)), MOST_STEPS)
    present = [index for index, heads in enumerate(run.start) if heads]
    return {
        "sites": sites,
        "finished": bool(run.metrics),
        "steps": [entry.step for entry in gates] or [step for step, _ in kept],
        "open": ["".join(_sign(gate) for row in entry.open for gate in row) for entry in gates],
        "values": [_values(entry) for entry in gates],
        "valueName": _value_name(run),
        "rates": [
            [dict(zip(present, row, strict=False)).get(index) for index in range(len(sites))] for _, row in kept
        ],
        "recorded": len(run.gates) or len(steps),
        "events": {f"{site},{head}": happened for (site, head), happened in run.events().items()},
    }


def _sites(run: Recorded) -> list[dict[str, Any]]:
    """By the plan; of a run without one, by its gates."""
    found = outcomes(run) or [
        SiteOutcome(index, f"site {index}", width, width, (), (), False, False, None)
        for index, width in enumerate(run.width)
    ]
    return [
        {
            "path": site.path,
            "heads": site.heads,
            "removed": [*site.removed, *site.before],
            "before": list(site.before),
            "uniform": site.uniform,
            "uniformBefore": site.uniform_before,
        }
        for site in found
    ]


def _values(gates: Gates) -> list[float | None] | None:
    return [_value(value) for row in gates.values for value in row] if gates.values else None


def _sign(gate: bool | None) -> str:
    return "-" if gate is None else "1" if gate else "0"


def _value(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 3)


def _value_name(run: Recorded) -> str:
    return "gate parameter" if any(line.get("gate_parameters") for line in run.history) else "score"
