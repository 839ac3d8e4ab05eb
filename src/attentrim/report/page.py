"""The page about one run."""

from __future__ import annotations

import math
import shlex
from typing import Any

from .. import plots
from ..bench.rows import measured_pairs
from ..recorded import CONFIG, Recorded
from ..version import __version__
from .attention import packed_attention
from .figures import Figure, Numbers, curve_numbers, curve_words, figure, present, short, thinned
from .removals import fates, reason, removed_heads
from .render import render

MOST_STEPS = 240
"""Of the head map over training."""
MORE_CURVES = {
    "sparsity": "Share of gates closed",
    "reward": "Reward",
    "win_rate": "Win rate of the attacker",
    "entropy": "Entropy of the generator",
    "budget_value": "Metric on held-out training data",
    "gates_expected_open": "Expected number of open gates",
}
"""Numbers of the log that are worth a figure of their own where a run has them."""


def run_page(run: Recorded) -> str:
    attention = packed_attention(run)  # first: reading it may find that it is missing
    return render(
        "run.html",
        version=__version__,
        title=f"{run.model} on {run.task}, {_how(run)}",
        run=run,
        lead=_lead(run),
        tiles=_tiles(run),
        remarks=_remarks(run),
        missing=run.missing,
        figures=_figures(run),
        reason=reason(run),
        fates=fates(run),
        removed=removed_heads(run),
        sizes=_sizes(run),
        speeds=_speeds(run),
        check=_check(run),
        place=_place(run.bench.get("machine") or {}),
        machine=_machine(run.metrics.get("measured_with") or {}),
        metrics=[(name, f"{value:.6g}") for name, value in sorted((run.metrics.get("metrics") or {}).items())],
        alternatives=[
            (name.replace("_", " "), f"{value:.6g}") for name, value in (run.metrics.get("alternatives") or {}).items()
        ],
        command=_command(run),
        data={**_head_map(run), "attention": attention},
        attention=attention,
    )


def _command(run: Recorded) -> str | None:
    """What reproduces the run; None where it was trained by a script."""
    if not any(run.config.get(name) for name in ("task", "train_file", "dataset")):
        return None
    return f"attentrim train --config {shlex.quote(str(run.path / CONFIG))} --output_dir again"


def _how(run: Recorded) -> str:
    return "plain fine-tuning" if run.method == "none" else run.method


def _lead(run: Recorded) -> str:
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
    return f"{_removed(run)} {result}.{reference}"


def _removed(run: Recorded) -> str:
    """What is gone, and how much of that this run did."""
    if not run.plan:
        return f"{run.model} keeps all of its attention."
    plan, found = run.plan, fates(run)
    heads, layers = plan.heads_removed, len(plan.uniform)
    by_run = sum(len(fate.removed) for fate in found), sum(fate.uniform and not fate.uniform_before for fate in found)
    parts = [f"{heads} of {plan.heads_total} attention heads"] if heads else []
    parts += [f"the attention of {layers} of {len(plan.sites)} layers"] if layers else []
    gone = " and ".join(parts)
    verb = "is" if not heads else "are"
    how = f"{verb} gone from" if run.metrics.get("trimmed") else f"{verb} switched off in"
    text = f"{gone[:1].upper()}{gone[1:]} {how} {run.model}"
    if by_run == (0, 0):
        return f"{text}, all from before this run."
    if by_run != (heads, layers):
        here = [f"{by_run[0]} heads"] * bool(by_run[0]) + [f"{by_run[1]} layers"] * bool(by_run[1])
        return f"{text}: {' and '.join(here)} by this run, the rest before it."
    return f"{text}."


def _tiles(run: Recorded) -> list[dict[str, Any]]:
    """The numbers that matter: name, value, remark, and the value as it is for machines."""
    tiles: list[dict[str, Any]] = []
    metrics, bench, plan = run.metrics, run.bench, run.plan
    if metrics:
        before = metrics.get("before") or {}
        known = before.get("value")
        note = f"{metrics['value'] - known:+.4f} against {before['of']}" if known is not None else f"seed {run.seed}"
        tiles.append(_tile(metrics["metric"], f"{metrics['value']:.4f}", note, metrics["value"], "value"))
    if plan is not None:
        kept, earlier = sum(plan.heads_kept), sum(len(fate.before) for fate in fates(run))
        note = f"{plan.sparsity:.1%} removed" if plan.heads else "none removed"
        note += f", {earlier} of them before this run" if earlier else ""
        note += f", {plan.heads_total - plan.heads_removed - kept} in uniform layers" if plan.uniform else ""
        tiles.append(_tile("attention heads kept", f"{kept} of {plan.heads_total}", note, kept, "heads_kept"))
        if plan.uniform:
            tiles.append(
                _tile(
                    "uniform layers",
                    f"{len(plan.uniform)} of {len(plan.sites)}",
                    "every word looks equally at all words",
                    len(plan.uniform),
                    "uniform_sites",
                )
            )
    if "parameters" in metrics:
        whole = bench.get("parameters_against")
        note = f"{metrics['parameters'] / whole - 1:+.1%} against before" if whole else f"{metrics['parameters']:,}"
        tiles.append(
            _tile("parameters", f"{metrics['parameters'] / 1e6:.2f} M", note, metrics["parameters"], "parameters")
        )
    for slow, fast in measured_pairs(bench)[:1]:
        note = f"{fast['batch']} x {fast['length']} tokens on {fast['device']}: {slow['milliseconds_median']:.3g} → "
        note += f"{fast['milliseconds_median']:.3g} ms"
        tiles.append(_tile("speed-up, measured", f"{fast['speedup']:.2f} x", note, fast["speedup"], "speedup"))
    if "train_seconds" in metrics:
        memory = metrics.get("peak_memory_bytes")
        note = f"{memory / 1e9:.1f} GB of memory at most" if memory else ""
        tiles.append(
            _tile(
                "training time", _duration(metrics["train_seconds"]), note, metrics["train_seconds"], "train_seconds"
            )
        )
    return tiles


def _tile(name: str, value: str, note: str, raw: float, key: str) -> dict[str, Any]:
    return {"name": name, "value": value, "note": note, "raw": repr(raw), "key": key}


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "under 1 s"


def _remarks(run: Recorded) -> list[str]:
    remarks = list(run.metrics.get("remarks") or [])
    if run.metrics.get("metric") == "matthews" and run.metrics["value"] == 0:
        remarks.append(
            "A Matthews correlation of 0 is what guessing gives: the model may put every example into one class."
        )
    if run.plan and run.metrics and not run.metrics.get("trimmed"):
        remarks.append("The checkpoint has its full shape: what the plan removes is still in it (--no_trim).")
    load, cores = (run.bench.get("machine") or {}).get("load"), (run.bench.get("machine") or {}).get("cores")
    if load and cores and load > 1.5 * cores:
        remarks.append(f"The machine was busy while the speed was measured (load {load:.1f} on {cores} cores).")
    return remarks


# Figures


def _figures(run: Recorded) -> list[Figure]:
    return present(
        [
            _curve(run, "loss", "Training loss"),
            _by_epoch(run),
            _by_layer(run),
            _over_training(run),
            _rates(run),
            _latency(run),
            *(_curve(run, name, title) for name, title in MORE_CURVES.items()),
        ]
    )


def _curve(run: Recorded, name: str, title: str) -> Figure | None:
    steps, values = run.curve(name)
    if len(steps) < 2:
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


def _by_layer(run: Recorded) -> Figure | None:
    if run.plan is None:
        return None
    changed = run.attention_changed()
    most = max(changed, key=changed.__getitem__) if changed else None
    words = "Heads kept by layer: " + ", ".join(map(str, run.plan.heads_kept)) + "."
    if most is not None:
        words += f" The attention of kept heads changed most in layer {most} (1 - cosine {changed[most]:.2f})."
    rows = [
        [str(index), f"{kept} of {run.plan.sites[index].heads}", short(changed.get(index))]
        for index, kept in enumerate(run.plan.heads_kept)
    ]
    numbers = Numbers(["layer", "heads kept", "attention changed (1 - cosine)"], rows)
    return figure(
        "Heads kept and attention changed, by layer", lambda ax: plots.heads_by_layer(run, ax), words, numbers
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


# Tables


UNITS = {"heads": (1, "{:.0f}"), "parameters": (1, "{:,.0f}"), "bytes": (1e6, "{:.1f} MB"), "flops": (1e9, "{:.2f} G")}


def _sizes(run: Recorded) -> list[tuple[str, str, str, str]]:
    bench, rows = run.bench, []
    names = {"bytes": "size", "flops": f"FLOPs (1 x {bench.get('flops_length')} tokens)"}
    for name, (unit, shape) in UNITS.items():
        before, after = bench.get(f"{name}_against"), bench.get(name)
        if before and after is not None:
            cells = (shape.format(before / unit), shape.format(after / unit), f"{after / before - 1:+.1%}")
            rows.append((names.get(name, name), *cells))
    return rows


def _check(run: Recorded) -> str:
    """That taking heads out changed nothing."""
    masked = run.metrics.get("masked_value")
    if not run.metrics.get("trimmed") or masked is None or not run.plan:
        return ""
    metric = run.metrics["metric"]
    if math.isclose(masked, run.metrics["value"], abs_tol=5e-5):
        return f"Check: with the attention switched off rather than cut out, {metric} is the same ({masked:.4f})."
    return f"With the attention switched off rather than cut out, {metric} was {masked:.4f}."


def _speeds(run: Recorded) -> list[tuple[str, str, str, str]]:
    return [
        (
            f"{after['batch']} x {after['length']} tokens, {after['device']}, {after['dtype']}, {after['backend']}",
            f"{before['milliseconds_median']:.2f} ms",
            f"{after['milliseconds_median']:.2f} ms",
            f"{after['speedup']:.2f} ({after['speedup_quartiles'][0]:.2f} to {after['speedup_quartiles'][1]:.2f})",
        )
        for before, after in measured_pairs(run.bench)
    ]


def _place(machine: dict[str, Any]) -> str:
    chips = [*(machine.get("gpus") or []), machine.get("cpu")]
    return ", ".join(str(chip) for chip in chips if chip)


def _machine(machine: dict[str, Any]) -> list[tuple[str, str]]:
    shown = {name: value for name, value in machine.items() if value not in (None, [], "")}
    return [(name, ", ".join(value) if isinstance(value, list) else str(value)) for name, value in shown.items()]


# The head map


def _head_map(run: Recorded) -> dict[str, Any]:
    """What the script draws: sites, and their gates (or drop rates) at each recorded step."""
    found = fates(run)
    sites = [
        {
            "path": fate.path,
            "heads": fate.heads,
            "removed": [*fate.removed, *fate.before],
            "before": list(fate.before),
            "uniform": fate.uniform,
            "uniformBefore": fate.uniform_before,
        }
        for fate in found
    ] or [
        {
            "path": f"site {index}",
            "heads": width,
            "removed": [],
            "before": [],
            "uniform": False,
            "uniformBefore": False,
        }
        for index, width in enumerate(run.width)
    ]
    gates = thinned(run.gates, MOST_STEPS)
    steps, rates = run.by_site("drop_rates") if not gates else ([], [])
    kept = thinned(list(zip(steps, rates, strict=True)), MOST_STEPS)
    present = [index for index, heads in enumerate(run.start) if heads]
    events = {f"{site},{head}": happened for (site, head), happened in run.events().items()}
    return {
        "sites": sites,
        "finished": bool(run.metrics),
        "steps": [entry.step for entry in gates] or [step for step, _ in kept],
        "open": ["".join(_sign(gate) for row in entry.open for gate in row) for entry in gates],
        "values": [
            [_value(value) for row in entry.values for value in row] if entry.values else None for entry in gates
        ],
        "valueName": _value_name(run),
        "rates": [
            [dict(zip(present, row, strict=False)).get(index) for index in range(len(sites))] for _, row in kept
        ],
        "recorded": len(run.gates) or len(steps),
        "events": events,
    }


def _sign(gate: bool | None) -> str:
    return "-" if gate is None else "1" if gate else "0"


def _value(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 3)


def _value_name(run: Recorded) -> str:
    return "gate parameter" if any(line.get("gate_parameters") for line in run.history) else "score"
