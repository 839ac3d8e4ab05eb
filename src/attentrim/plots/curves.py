"""Numbers over training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..recorded import Recorded, as_run
from .style import axes, layers_colours, look, nothing, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Run = str | Path | Recorded
RATES = ("drop_rates", "drop_chances")
PLAIN = "plain_"
"""What the metrics of a plain run begin with that AttendOut trains beside the game."""


def training_curve(run: Run, name: str = "loss", ax: Axes | None = None) -> Axes:
    """One number of the log over steps."""
    run = as_run(run)
    steps, values = run.curve(name)
    if not steps:
        raise nothing(name, run.path)
    ax = axes(ax)
    ax.plot(steps, values, color=look(0)["color"], marker="o" if len(steps) < 12 else "")
    return tidy(ax, "step", name.replace("_", " "))


def drop_rates(run: Run, ax: Axes | None = None) -> Axes:
    """How likely attention is dropped, one line a site, over steps (001, Figure 3)."""
    run = as_run(run)
    steps, rows = next((found for name in RATES if (found := run.by_site(name))[0]), ([], []))
    if not steps:
        raise nothing("drop rates", run.path)
    ax = axes(ax)
    sites = [index for index, heads in enumerate(run.start) if heads] or list(range(len(rows[0])))
    colours = layers_colours(len(rows[0]))
    for number, (site, colour) in enumerate(zip(sites, colours, strict=False)):
        values = [row[number] for row in rows]
        ax.plot(steps, values, color=colour, linestyle=look(number)["linestyle"], label=f"site {site}")
    ax.set_ylim(0, 1)
    ax.legend(
        frameon=False, fontsize="small", ncols=2 if len(rows[0]) > 6 else 1, loc="center left", bbox_to_anchor=(1, 0.5)
    )
    return tidy(ax, "step", "drop probability")


def metric_by_epoch(
    runs: Run | Sequence[Run] | Mapping[str, Run], ax: Axes | None = None, *, metric: str | None = None
) -> Axes:
    """The metric on the evaluation data, epoch by epoch, one line a run (001, Figure 4).

    A run that trained a plain model beside its own has two lines.
    """
    named = _named(runs)
    ax = axes(ax)
    drawn = 0
    for name, run in named.items():
        wanted = metric or str(run.metrics.get("metric") or run.config.get("metric_for_best_model") or "loss")
        for key, label in ((f"eval_{wanted}", name), (f"{PLAIN}{wanted}", f"{name}: plain fine-tuning")):
            epochs, values = run.curve(key, along="epoch")
            if epochs:
                ax.plot(epochs, values, label=label, **look(drawn))
                drawn += 1
    if not drawn:
        raise nothing("metric by epoch", ", ".join(str(run.path) for run in named.values()))
    if drawn > 1:
        ax.legend(frameon=False, fontsize="small")
    found = metric or next(str(run.metrics.get("metric") or "metric") for run in named.values())
    return tidy(ax, "epoch", found)


def _named(runs: Run | Sequence[Run] | Mapping[str, Run]) -> dict[str, Recorded]:
    if isinstance(runs, Mapping):
        return {name: as_run(run) for name, run in runs.items()}
    if isinstance(runs, str | Path | Recorded):
        runs = [runs]
    found = [as_run(run) for run in runs]
    names = [run.method for run in found]
    return {
        name if names.count(name) == 1 else f"{name} ({run.path.name})": run
        for name, run in zip(names, found, strict=True)
    }
