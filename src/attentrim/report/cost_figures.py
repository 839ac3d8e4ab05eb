"""The figures of a run's page about speed: where the time went, and what each of several speeds costs."""

from __future__ import annotations

from .. import plots
from ..runs.headline import number, times
from ..runs.reader import Recorded
from .figures import SIZE, Figure, figure, present


def cost_figures(run: Recorded) -> list[Figure]:
    return present([_models(run), _layers(run)])


def _models(run: Recorded) -> Figure | None:
    if not run.speeds:
        return None
    known = [point for point in run.speeds if point.measured is not None and point.value is not None]
    metric = run.metrics.get("metric")
    words = "; ".join(f"{times(point.measured or 0)}: {number(point.value or 0)}" for point in known)
    dense = f" The dense model has {number(run.before['value'])}." if run.before else ""
    return figure(
        f"{metric} against measured speed", lambda ax: plots.metric_against_speed(run, ax), f"{words}.{dense}"
    )


def _layers(run: Recorded) -> Figure | None:
    found = run.layer_times
    if found is None:
        return None
    gone = [str(layer) for layer, after in zip(found.layers, found.after, strict=True) if after is None]
    words = f"All layers, embeddings and task head: {found.total_before:.3g} → {found.total_after:.3g} {found.unit}"
    words += f" ({found.setting})." + (f" Removed layers: {', '.join(gone)}." if gone else "")
    height = max(SIZE[1], 1.6 + 0.25 * len(found.layers))
    return figure(found.title, lambda ax: plots.layer_times(run, ax), words, size=(SIZE[0], height))
