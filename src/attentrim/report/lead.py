"""The top of the page about a run: the sentence to take away, the numbers that matter, what to know about them."""

from __future__ import annotations

from ..runs.reader import Recorded, measured_pairs
from .removals import removal_tiles, removed_in_words
from .tiles import Tile


def lead(run: Recorded) -> str:
    if not run.metrics:
        where = f" The last recorded step is {run.last_step}." if run.history else ""
        return f"This run has no result: it was stopped early, or its evaluation failed.{where}"
    metrics = run.metrics
    result = f"On {metrics['examples']:,} validation examples of {run.task} its {metrics['metric']} is"
    result += f" {metrics['value']:.4f}"
    for _, after in measured_pairs(run.bench)[:1]:
        fewer = 1 - run.bench["parameters"] / run.bench["parameters_against"]
        result += f"; it runs {after['speedup']:.2f} times as fast"
        result += f" and has {fewer:.1%} fewer parameters"
    known = metrics.get("before") or {}
    if known.get("value") is not None:
        reference = f" For {known['of']} it was {known['value']:.4f}."
    elif run.plan:
        reference = " No unpruned model was measured beside it, so what the removal cost is not known."
    else:
        reference = ""
    return f"{removed_in_words(run)} {result}.{reference}"


def tiles(run: Recorded) -> list[Tile]:
    """The numbers that matter."""
    return [*_metric(run), *removal_tiles(run), *_parameters(run), *_speed(run), *_time(run)]


def _metric(run: Recorded) -> list[Tile]:
    if not run.metrics:
        return []
    value, before = run.metrics["value"], run.metrics.get("before") or {}
    known = before.get("value")
    note = f"{value - known:+.4f} against {before['of']}" if known is not None else f"seed {run.seed}"
    return [Tile(run.metrics["metric"], f"{value:.4f}", note, value, "value")]


def _parameters(run: Recorded) -> list[Tile]:
    count, whole = run.metrics.get("parameters"), run.bench.get("parameters_against")
    if count is None:
        return []
    note = f"{count / whole - 1:+.1%} against before" if whole else f"{count:,}"
    return [Tile("parameters", f"{count / 1e6:.2f} M", note, count, "parameters")]


def _speed(run: Recorded) -> list[Tile]:
    return [
        Tile(
            "measured speed-up",
            f"{after['speedup']:.2f} x",
            f"{after['batch']} x {after['length']} tokens on {after['device']}: "
            f"{before['milliseconds_median']:.3g} → {after['milliseconds_median']:.3g} ms",
            after["speedup"],
            "speedup",
        )
        for before, after in measured_pairs(run.bench)[:1]
    ]


def _time(run: Recorded) -> list[Tile]:
    seconds, memory = run.metrics.get("train_seconds"), run.metrics.get("peak_memory_bytes")
    if seconds is None:
        return []
    note = f"{memory / 1e9:.1f} GB of memory at most" if memory else ""
    return [Tile("training time", _duration(seconds), note, seconds, "train_seconds")]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "under 1 s"


def remarks(run: Recorded) -> list[str]:
    """What to know about these numbers."""
    found = list(run.metrics.get("remarks") or [])
    if run.metrics.get("metric") == "matthews" and run.metrics["value"] == 0:
        found.append(
            "A Matthews correlation of 0 is what guessing gives: the model may put every example into one class."
        )
    if run.plan and run.metrics and not run.metrics.get("trimmed"):
        found.append("The checkpoint has its full shape: what the plan removes is still in it (--no_trim).")
    machine = run.bench.get("machine") or {}
    load, cores = machine.get("load"), machine.get("cores")
    if load and cores and load > 1.5 * cores:
        found.append(f"The machine was busy while the speed was measured (load {load:.1f} on {cores} cores).")
    return found
