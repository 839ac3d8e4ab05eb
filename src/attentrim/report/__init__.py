"""One self-contained HTML file about a run, or about several.

    from attentrim.report import write_report

    write_report(["run"], "report.html")

The file needs no network and no server. Importing this package imports neither torch nor matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..atomic import write_text
from ..errors import AttentrimError, MissingExtraError
from ..guarded import belongs
from ..plots.points import read_results
from ..runs.reader import Recorded, is_run

__all__ = ["write_report"]


def write_report(runs: Sequence[str | Path], out: str | Path) -> list[Recorded]:
    """Write the report of one run, or a comparison of several, to `out`. Returns what was read of each run.

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
    write_text(out, page, errors="replace")  # half of a pair of surrogates is no text
    return found


def _read(runs: Sequence[str | Path]) -> tuple[list[Recorded], Path | None]:
    """The runs, and the comparison that they are all of, if they are."""
    if not runs:
        raise AttentrimError("There is no run to report on.")
    inside = {Path(run): _runs_in(Path(run)) for run in runs}
    places = [place for run in map(Path, runs) for place in (inside[run] or [run])]
    if len({place.resolve() for place in places}) < len(places):
        raise AttentrimError("A run is named twice.")
    whole = Path(runs[0]) if len(runs) == 1 and inside[Path(runs[0])] else None
    return [Recorded.read(place) for place in places], whole


def _runs_in(directory: Path) -> list[Path]:
    """The runs of a comparison, also of one that was stopped; none where the directory is a run itself."""
    if is_run(directory):
        return []
    found = sorted(place for place in directory.glob("*/seed-*") if is_run(place) and belongs(place, directory))
    try:
        runs = read_results(directory)["runs"]
    except AttentrimError:
        return found
    named = [directory / run["name"] / f"seed-{run.get('seed')}" for run in runs if run.get("error") is None]
    return [place for place in named if place in found] or found  # not those of an earlier comparison
