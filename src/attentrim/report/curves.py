"""The figures of the page about a run."""

from __future__ import annotations

from functools import partial

from .. import plots
from ..runs.reader import Recorded, measured_pairs
from .figures import SIZE, Figure, Numbers, curve_numbers, curve_words, figure, present, short, thinned

MORE_CURVES = {
    "sparsity": "Share of gates closed",
    "reward": "Reward",
    "win_rate": "Win rate of the attacker",
    "entropy": "Entropy of the generator",
    "speedup_by_table": "Estimated speed-up (latency table)",
    "layers_removed": "Layers removed",
    "budget_value": "Metric on held-out training data",
    "gates_expected_open": "Expected number of open gates",
}
"""Numbers of the log that have a figure of their own where a run has them."""


def run_figures(run: Recorded) -> list[Figure]:
    return present(
        [
            _curve(run, "loss", "Training loss"),
            _by_epoch(run),
            _by_layer(run),
            _over_training(run),
            *_open_units(run),
            _rates(run),
            _latency(run),
            *(_curve(run, name, title) for name, title in MORE_CURVES.items()),
        ]
    )


def _curve(run: Recorded, name: str, title: str) -> Figure | None:
    steps, values = run.curve(name)
    if len(steps) < 2 or (name in MORE_CURVES and not any(values)):
        return None
    words = curve_words(title, steps, values)
    numbers = curve_numbers("step", [name], steps, [values])
    return figure(title, lambda ax: plots.training_curve(run, name, ax), words, numbers)


def _by_epoch(run: Recorded) -> Figure | None:
    metric = str(run.metrics.get("metric") or run.config.get("metric_for_best_model") or "loss")
    epochs, values = run.curve(f"eval_{metric}", along="epoch")
    if not epochs:
        return None
    words = curve_words(metric, epochs, values, "epoch")
    numbers = curve_numbers("epoch", [metric], epochs, [values])
    return figure(
        f"{metric} on the validation data", lambda ax: plots.metric_by_epoch([run], ax, metric=metric), words, numbers
    )


def left_figures(run: Recorded) -> list[Figure]:
    return present([_left_by_layer(run)])


def _left_by_layer(run: Recorded) -> Figure | None:
    """Heads beside neurons and layers, where a run removed anything but heads."""
    if not run.plan or set(run.plan.removed) <= {"heads", "uniform"}:
        return None
    from ..breakdown import breakdown

    found = breakdown(run.plan)
    words = ". ".join(f"{name.capitalize()} kept by layer: {', '.join(kept)}" for name, kept in found.kept().items())
    height = max(SIZE[1], 1.2 + 0.3 * len(found.rows))
    return figure(
        "What is left of each layer", lambda ax: plots.left_by_layer(run, ax), f"{words}.", size=(SIZE[0], height)
    )


def _open_units(run: Recorded) -> list[Figure | None]:
    """Of every kind whose units a history counts by place."""
    found = []
    for name in dict.fromkeys(key for line in run.history for key in line if key.endswith("_open")):
        steps, rows = run.by_site(name) if isinstance(run.history[0].get(name), list) else ([], [])
        if len(steps) < 2:
            continue
        kind = name.removesuffix("_open")
        first, last = sum(rows[0]), sum(rows[-1])
        words = f"Open {kind}: {first:,.0f} at step {steps[0]}, {last:,.0f} at step {steps[-1]}."
        columns = [[row[index] for row in rows] for index in range(len(rows[0]))]
        numbers = curve_numbers("step", [f"block {index}" for index in range(len(columns))], steps, columns)
        title = f"{kind.capitalize()} over training, by block"
        found.append(figure(title, partial(plots.open_over_training, run, kind), words, numbers))
    return found


def _by_layer(run: Recorded) -> Figure | None:
    if run.plan is None:
        return None
    changed = run.attention_changed()
    most = max(changed, key=changed.__getitem__) if changed else None
    kept = [
        site.left_of(run.plan.shapes["sites"][index]) if site else "removed"
        for index, site in enumerate(run.plan.final("sites"))
    ]
    words = "Heads kept by site: " + ", ".join(kept) + "."
    if most is not None:
        words += f" The attention of kept heads changed most in site {most} (1 - cosine {changed[most]:.2f})."
    rows = [[str(index), text, short(changed.get(index))] for index, text in enumerate(kept)]
    numbers = Numbers(["site", "heads kept", "attention changed (1 - cosine)"], rows)
    return figure(
        "Heads kept and attention changed, by site", lambda ax: plots.heads_by_layer(run, ax), words, numbers
    )


def _over_training(run: Recorded) -> Figure | None:
    if len(run.gates) < 2:
        return None
    first, last = run.gates[0], run.gates[-1]
    fewest = min(run.gates, key=lambda gates: gates.count)
    words = (
        f"Open gates: {first.count} at step {first.step}, {last.count} at step {last.step}; fewest {fewest.count}, "
        f"first at step {fewest.step}."
    )
    numbers = Numbers(["step", "open gates"], thinned([[str(gates.step), str(gates.count)] for gates in run.gates]))
    return figure(
        "Gates at the start, halfway and at the end",
        lambda ax: plots.head_map_over_training(run, ax),
        words,
        numbers,
        size=(7.6, 2.7),
    )


def _rates(run: Recorded) -> Figure | None:
    for name in ("drop_rates", "drop_chances"):
        steps, rows = run.by_site(name)
        if len(steps) > 1:
            sites = [f"site {index}" for index, heads in enumerate(run.start) if heads] or [
                f"site {index}" for index in range(len(rows[0]))
            ]
            last = dict(zip(sites, rows[-1], strict=False))
            most = max(last, key=last.__getitem__)
            words = f"At step {steps[-1]} {most} is dropped most ({last[most]:.2f})."
            columns = [[row[index] for row in rows] for index in range(len(rows[0]))]
            numbers = curve_numbers("step", sites, steps, columns)
            return figure("Drop probability by site", lambda ax: plots.drop_rates(run, ax), words, numbers)
    return None


def _latency(run: Recorded) -> Figure | None:
    pairs = measured_pairs(run.bench)
    if not pairs:
        return None
    words = " ".join(
        f"{after['batch']} x {after['length']}: {before['milliseconds_median']:.3g} ms before, "
        f"{after['milliseconds_median']:.3g} ms after."
        for before, after in pairs
    )
    return figure("Latency and FLOPs before and after", lambda ax: plots.latency_and_flops(run, ax), words)
