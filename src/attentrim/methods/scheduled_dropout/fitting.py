"""Curves for scheduled dropout, fitted to what AttendOut's generator did in a run. Imports no torch."""

from __future__ import annotations

import json
from pathlib import Path

from ...errors import MethodError

POINTS = 4
"""Of a fitted curve, spread evenly over training."""
HIGHEST = 0.99


def fitted_curves(run: str | Path, points: int = POINTS) -> list[list[list[float]]]:
    """One curve per site: the piecewise linear one nearest, in the least squares, to the recorded drop rates."""
    import numpy

    steps, rates = _recorded(Path(run))
    progress = numpy.array(steps) / max(steps)
    places = numpy.linspace(0.0, 1.0, points)
    # each column is 1 at one point, 0 at the others, and linear in between
    basis = numpy.stack([numpy.interp(progress, places, row) for row in numpy.eye(points)], axis=1)
    values = numpy.linalg.lstsq(basis, numpy.array(rates), rcond=None)[0].clip(0.0, HIGHEST)
    return [[[round(float(x), 4), round(float(y), 4)] for x, y in zip(places, site, strict=True)] for site in values.T]


def _recorded(run: Path) -> tuple[list[int], list[list[float]]]:
    """Steps and drop rates, site by site, from the history of a run."""
    path = run / "history.jsonl" if run.is_dir() else run
    if not path.is_file():
        raise MethodError(f"There is no {path}: fitted_to takes the directory of an AttendOut run.")
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        found = {int(line["step"]): line["drop_rates"] for line in lines if line.get("drop_rates")}
    except (ValueError, KeyError, AttributeError, UnicodeDecodeError) as error:
        raise MethodError(f"{path} is not the history of a run.") from error
    if len(found) < POINTS or len({len(rates) for rates in found.values()}) != 1:
        raise MethodError(f"{path} has drop rates of {len(found)} steps: too few to fit curves to.")
    return list(found), list(found.values())
