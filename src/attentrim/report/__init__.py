"""One self-contained HTML file about a run, or about several.

    from attentrim.report import write_report

    write_report(["run"], "report.html")

It needs no network and no server. Importing this package imports neither torch nor matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import AttentrimError, MissingExtraError
from ..plots.points import RESULTS
from ..recorded import Recorded

__all__ = ["write_report"]


def write_report(runs: Sequence[str | Path], out: str | Path) -> list[Recorded]:
    """Write the report of one run, or the comparison of several, to `out`; what was read of each.

    A directory of `attentrim compare` stands for all of its runs.
    """
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(str(error.name), "report", "The report") from error
    from .comparison import comparison_page
    from .page import run_page

    found, compared = _read(runs)
    page = run_page(found[0]) if len(found) == 1 and compared is None else comparison_page(found, compared)
    Path(out).write_text(page, encoding="utf-8")
    return found


def _read(runs: Sequence[str | Path]) -> tuple[list[Recorded], Path | None]:
    """The runs, and the comparison that they are all of, if they are."""
    if not runs:
        raise AttentrimError("There is no run to report on.")
    places: list[Path] = []
    for run in map(Path, runs):
        if (run / RESULTS).is_file():
            inside = sorted(
                place for place in run.glob("*/seed-*") if any((place / name).is_file() for name in _SIGNS)
            )
            if not inside:
                raise AttentrimError(f"{run} is a comparison without runs.")
            places += inside
        else:
            places.append(run)
    whole = Path(runs[0]) if len(runs) == 1 and (Path(runs[0]) / RESULTS).is_file() else None
    unique = list(dict.fromkeys(place.resolve() for place in places))
    if len(unique) < len(places):
        raise AttentrimError("A run is named twice.")
    return [Recorded.read(place) for place in places], whole


_SIGNS = ("history.jsonl", "metrics.json", "config.yaml")
