"""Head maps: which heads are kept, and what their gates say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AttentrimError
from ..runs.reader import Gates, Recorded, as_run
from .style import BLUE, ORANGE, axes, below, diverging, ink, nothing, tidy, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..plan import Plan

Run = str | Path | Recorded
SNAPSHOTS = 3


def head_map(run: Run | Plan, ax: Axes | None = None, *, step: int | None = None) -> Axes:
    """One square per head, sites from top to bottom; removed heads are crossed out, uniform sites struck through.

    Colours are gate parameters, or the scores that heads were chosen by, if the run has them: at its end, or at the
    last recorded step up to `step`.
    """
    plan: Plan | None
    if not isinstance(run, str | Path | Recorded):
        plan, gates = run, None
    else:
        run = as_run(run)
        plan, gates = (run.plan if step is None else None), _at(run, step)
    if plan is None and gates is None:
        raise nothing("plan and no gates", run.path if isinstance(run, Recorded) else run)
    ax = axes(ax, (5.2, 3.6))
    if plan is not None:
        removed = [{*plan.heads.get(index, ())} for index in range(len(plan.shapes["sites"]))]
        cells = [
            [head < site.heads and head not in removed[index] for head in range(site.heads)]
            for index, site in enumerate(plan.shapes["sites"])
        ]
        _draw(ax, cells, gates.values if gates else None, plan.uniform)
    else:
        assert gates is not None
        _draw(ax, gates.open, gates.values)
    return tidy(ax, "head", "site")


def head_map_over_training(run: Run, ax: Axes | None = None, *, steps: Sequence[int] | None = None) -> Axes:
    """Head maps at several steps side by side, as in AutoAttention's Figure 5. Default: start, middle and end."""
    run = as_run(run)
    if not run.gates:
        raise nothing("gates over training", run.path)
    last = len(run.gates) - 1
    shown = (
        [run.gates[round(part * last / (SNAPSHOTS - 1))] for part in range(SNAPSHOTS)]
        if steps is None
        else [found for step in steps if (found := _at(run, step)) is not None]
    )
    if not shown:
        raise nothing(f"gates at steps {list(steps or [])}", run.path)
    ax = axes(ax, (9.0, 3.0))
    ax.axis("off")
    span = _span([gates.values for gates in shown])
    width = 1 / len(shown)
    for number, gates in enumerate(shown):
        part = ax.inset_axes((number * width + 0.04, 0.12, width - 0.05, 0.76))
        _draw(part, gates.open, gates.values, span=span, small=True)
        part.set_title(f"step {gates.step}: {gates.count} open", fontsize="medium")
        part.set_xlabel("head")
        if number:
            part.set_yticklabels([])
        else:
            part.set_ylabel("site")
    return ax


def kept_by_seeds(runs: Sequence[Run | Plan], ax: Axes | None = None) -> Axes:
    """Of several runs with one model, the share that keeps each head; heads that none keeps are crossed out."""
    found = [as_run(run).plan if isinstance(run, str | Path | Recorded) else run for run in runs]
    plans = [plan for plan in found if plan is not None]
    if not plans:
        raise nothing("plans", "what was given")
    if len({plan.shapes["sites"] for plan in plans}) > 1:
        raise AttentrimError("These plans are for models of different shapes.")
    ax = axes(ax, (5.2, 3.6))
    shares = [
        [
            sum(head in plan.kept("heads", index) and index not in plan.uniform for plan in plans) / len(plans)
            for head in range(site.heads)
        ]
        for index, site in enumerate(plans[0].shapes["sites"])
    ]
    _draw(ax, [[share > 0 for share in row] for row in shares], shares, what="share that keeps it")
    return tidy(ax, "head", "site")


def heads_by_layer(run: Run, ax: Axes | None = None) -> Axes:
    """Share of heads kept, and how much the attention of kept heads changed, by site.

    The change is 1 - the cosine between a head's attention before and after training, on the run's example sentences
    (AutoAttention, section 5.2).
    """
    run = as_run(run)
    if run.plan is None:
        raise nothing("plan", run.path)
    ax = axes(ax)
    sites = range(len(run.plan.shapes["sites"]))
    shares = [kept / max(1, run.plan.shapes["sites"][index].heads) for index, kept in enumerate(run.plan.heads_kept)]
    bars = ax.bar(sites, shares, color=BLUE, alpha=0.75, label="heads kept")
    ax.bar_label(
        bars,
        ["" if site in run.plan.uniform else str(kept) for site, kept in enumerate(run.plan.heads_kept)],
        padding=1,
    )
    for site in run.plan.uniform:
        ax.text(site, 0.02, "uniform", rotation=90, ha="center", va="bottom")
    changed = run.attention_changed()
    if changed:
        ax.plot(
            list(changed), list(changed.values()), color=ORANGE, marker="s", label="attention changed (1 - cosine)"
        )
    ax.set_ylim(0, 1.12)
    whole_ticks(ax, x=sites)
    below(ax, columns=1)
    return tidy(ax, "site", "share")


def _at(run: Recorded, step: int | None) -> Gates | None:
    """The last recorded gates; with a step, the last up to it."""
    found = [gates for gates in run.gates if step is None or gates.step <= step]
    return found[-1] if found else None


def _span(maps: Sequence[list[list[float | None]] | None]) -> float:
    sizes = [abs(value) for values in maps for row in values or [] for value in row if value is not None]
    return max(sizes, default=1.0) or 1.0


def _draw(
    ax: Any,
    cells: Sequence[Sequence[bool | None]],
    values: Sequence[Sequence[float | None]] | None,
    uniform: Sequence[int] = (),
    span: float | None = None,
    small: bool = False,
    what: str = "gate parameter or score",
) -> None:
    """`small`: one of several maps, without a scale of its own."""
    import numpy

    width = max((len(row) for row in cells), default=1)
    cells = [[None if site in uniform else kept for kept in row] for site, row in enumerate(cells)]
    colours = numpy.full((len(cells), width), numpy.nan)
    for site, row in enumerate(cells):
        for head, kept in enumerate(row):
            value = values[site][head] if values and site < len(values) and head < len(values[site]) else None
            if kept is not None:
                colours[site, head] = (
                    (1.0 if kept else 0.0) if values is None else numpy.nan if value is None else value
                )
    reach = span or (_span([[list(row) for row in values]]) if values else 1.0)
    image = ax.imshow(colours, cmap=diverging(), vmin=-reach, vmax=reach, aspect="auto" if small else "equal")
    for site, row in enumerate(cells):
        gone = [head for head, kept in enumerate(row) if kept is False]
        ax.scatter(gone, [site] * len(gone), marker="x", s=9 if small else 22, linewidths=1, color=ink())
        if site in uniform:
            ax.plot([-0.4, len(row) - 0.6], [site, site], color=ink(), linewidth=2)
            ax.text(len(row) / 2 - 0.5, site - 0.12, "uniform", ha="center", va="bottom", fontsize="small")
    ax.set_facecolor("none")
    whole_ticks(ax, x=range(width), y=range(len(cells)), most=6 if small else 16)
    if values is not None and not small:
        scale = ax.figure.colorbar(image, ax=ax, shrink=0.8, label=what)
        if not (colours < 0).any():
            scale.ax.set_ylim(0, reach)
