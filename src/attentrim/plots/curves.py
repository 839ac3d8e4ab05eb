"""Numbers over training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..runs.reader import Recorded, as_run, entries
from .style import axes, below, layers_look, look, nothing, plain_look, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Run = str | Path | Recorded
RATES = ("drop_rates", "drop_chances")
PLAIN = "plain_"
"""What the metrics of a plain run begin with that AttendOut trains beside the game."""


def training_curve(run: Run, name: str = "loss", ax: Axes | None = None) -> Axes:
    """One logged number over steps."""
    run = as_run(run)
    steps, values = run.curve(name)
    if not steps:
        raise nothing(name, run.path)
    ax = axes(ax)
    ax.plot(steps, values, color=look(0)["color"], marker="o" if len(steps) < 12 else "")
    return tidy(ax, "step", name.replace("_", " "))


def drop_rates(run: Run, ax: Axes | None = None) -> Axes:
    """Drop probabilities over steps, one line per site, as in AttendOut v2's Figure 3."""
    run = as_run(run)
    steps, rows = next((found for name in RATES if (found := run.by_site(name))[0]), ([], []))
    if not steps:
        raise nothing("drop rates", run.path)
    ax = axes(ax)
    sites = [index for index, heads in enumerate(run.start) if heads] or list(range(len(rows[0])))
    for number, (site, how) in enumerate(zip(sites, layers_look(len(rows[0])), strict=False)):
        ax.plot(steps, [row[number] for row in rows], label=f"site {site}", **how)
    ax.set_ylim(0, min(1.0, max(0.05, 1.15 * max(map(max, rows)))))
    below(ax, columns=3)
    return tidy(ax, "step", "drop probability")


def metric_by_epoch(
    runs: Run | Sequence[Run] | Mapping[str, Run], ax: Axes | None = None, *, metric: str | None = None
) -> Axes:
    """The metric on the evaluation data by epoch, one line per run, as in AttendOut v2's Figure 4.

    A run that also trained a plain model (`plain_run`) has two lines.
    """
    named = _named(runs)
    ax = axes(ax)
    drawn = looks = 0
    whole = True
    for name, run in named.items():
        wanted = metric or str(run.metrics.get("metric") or run.config.get("metric_for_best_model") or "loss")
        for key, label in ((f"eval_{wanted}", name), (f"{PLAIN}{wanted}", f"{name}: plain fine-tuning")):
            epochs, values = run.curve(key, along="epoch")
            if epochs:
                plain = run.method == "none" or key.startswith(PLAIN)
                ax.plot(epochs, values, label=label, **(plain_look() if plain else look(looks)))
                drawn, looks = drawn + 1, looks + (not plain)
                whole = whole and all(float(epoch).is_integer() for epoch in epochs)
    if not drawn:
        raise nothing("metric by epoch", ", ".join(str(run.path) for run in named.values()))
    if drawn > 1:
        below(ax)
    if whole:
        ax.locator_params(axis="x", integer=True)
    found = metric or next(str(run.metrics.get("metric") or "metric") for run in named.values())
    return tidy(ax, "epoch", found)


def _named(runs: Run | Sequence[Run] | Mapping[str, Run]) -> dict[str, Recorded]:
    if isinstance(runs, Mapping):
        return {name: as_run(run) for name, run in runs.items()}
    if isinstance(runs, str | Path | Recorded):
        runs = [runs]
    found = [as_run(run) for run in runs]
    methods = [run.method for run in found]
    return {
        run.method if methods.count(run.method) == 1 else _told_apart(name, run): run
        for name, run in zip(entries(found), found, strict=True)
    }


def _told_apart(name: str, run: Recorded) -> str:
    place = run.path.resolve().name
    return f"{run.method} ({name if place in name else f'{name}, {place}'})"
