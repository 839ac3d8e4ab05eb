"""Curves for scheduled dropout, fitted to what AttendOut's generator did in a run. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from ...errors import MethodError
from ...guarded import MOST_HISTORY_BYTES, is_number, parse_json, read_text

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
        lines = [parse_json(line) for line in read_text(path, MOST_HISTORY_BYTES, follow=path == run).splitlines()]
        found = {int(line["step"]): line["drop_rates"] for line in lines if line.get("drop_rates")}
        if not all(map(is_number, (rate for rates in found.values() for rate in rates))):
            raise ValueError("a drop rate is not a number")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise MethodError(f"{path} is not the history of a run.") from error
    if len(found) < POINTS or len({len(rates) for rates in found.values()}) != 1:
        raise MethodError(f"{path} has drop rates of {len(found)} steps: too few to fit curves to.")
    return list(found), list(found.values())
