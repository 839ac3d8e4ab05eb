"""The top of the page about a run: the sentence to take away, the numbers that matter, what to know about them."""

from __future__ import annotations

from ..runs.headline import dense_command, headline_of, lacks_dense
from ..runs.reader import Recorded, measured_pairs
from .certainty import on_examples
from .removals import removal_tiles, removed_in_words
from .tiles import Tile


def headline(run: Recorded) -> str:
    """What it cost; nothing where the run has no result."""
    return headline_of(run.metrics, run.bench) if run.metrics else ""


def lead(run: Recorded) -> str:
    if not run.metrics:
        where = f" The last recorded step is {run.last_step}." if run.history else ""
        return f"This run has no result: it was stopped early, or its evaluation failed.{where}"
    metrics = run.metrics
    of = f", against {run.before['of']}" if run.before else ""
    how = f"Measured on {metrics['examples']:,} validation examples of {run.validation_data}{of}"
    if run.bench.get("parameters_against"):
        how += f"; {1 - run.bench['parameters'] / run.bench['parameters_against']:.1%} fewer parameters"
    return f"{removed_in_words(run)} {how}."


def dense(run: Recorded) -> tuple[str, str | None]:
    """Where no dense model was measured: that it was not, and the command that does it, if there is one."""
    if not lacks_dense(run.metrics):
        return "", None
    command = dense_command(str(run.path)) if run.repeatable else None
    return "The dense model was not evaluated, so what the removal cost is not known.", command


def tiles(run: Recorded) -> list[Tile]:
    """The numbers that matter."""
    return [*_metric(run), *_speed(run), *removal_tiles(run), *_parameters(run), *_time(run)]


def _metric(run: Recorded) -> list[Tile]:
    if not run.metrics:
        return []
    value, before = run.metrics["value"], run.before
    note = f"{value - before['value']:+.4f} against {before['of']}" if before else f"seed {run.seed}"
    note += f"; {on_examples(run)}"
    return [Tile(run.metrics["metric"], f"{value:.4f}", note, value, "value")]


def _parameters(run: Recorded) -> list[Tile]:
    count, whole = run.metrics.get("parameters"), run.bench.get("parameters_against")
    if count is None:
        return []
    note = f"{1 - count / whole:.1%} fewer than before" if whole else f"{count:,}"
    return [Tile("parameters", f"{count / 1e6:.2f} M", note, count, "parameters")]


def _speed(run: Recorded) -> list[Tile]:
    asked = run.metrics.get("speedup_asked")
    wanted = f"requested: {asked:g} x; " if isinstance(asked, int | float) else ""
    return [
        Tile(
            "measured speed-up",
            f"{after['speedup']:.2f} x",
            f"{wanted}{after['batch']} x {after['length']} tokens on {after['device']}: "
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
    note = f"peak memory {memory / 1e9:.1f} GB" if memory else ""
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
