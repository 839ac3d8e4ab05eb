"""What the sections of a model card say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..runs.headline import dense_command, headline_of, lacks_dense, speeds_table
from ..runs.reader import PLAN, Recorded, measured_pairs
from ..version import __version__
from .names import known_as, trained_with

if TYPE_CHECKING:
    from ..plan import Plan


def title(run: Recorded, base: str | None) -> str:
    name = known_as(base) if base else run.model
    if not run.metrics:
        return f"{name}, trimmed"
    how = "fine-tuned" if run.method == "none" else f"trained with {run.method}"
    return f"{name} on {run.data}, {how}"


def about(
    run: Recorded, base: str | None, plan: Plan | None, model: Any, tokens: tuple[int, int] | None = None
) -> str:
    import torch
    import transformers

    from ..checkpoint.stored import stored_plan

    whole = sum(parameter.numel() for parameter in model.parameters())
    versions = f"attentrim {__version__} (transformers {transformers.__version__}, torch {torch.__version__})"
    earlier = trained_with(base) if base else None
    start = f" from `{known_as(base)}`" + (f" trained with {earlier}" if earlier else "") if base else ""
    data = f" on {run.data}" if run.metrics else ""
    method = run.method if run.metrics else str((plan.made_by if plan else {}).get("method", ""))
    by = f", method {method}" if method and method != "none" else ""
    made = f"{'Fine-tuned' if run.metrics else 'Made'}{start}{data} with {versions}{by}."
    fewer = f" Of {tokens[0]:,} tokens, the {tokens[1]:,} that the given texts need are kept." if tokens else ""
    if plan is None or not plan:
        return f"{made}{fewer or ' Nothing was removed.'} It has {whole:,} parameters."
    trimmed = stored_plan(model) is not None
    gone = "Removed" if trimmed else f"To be removed ({PLAN})"
    return f"{made}{fewer} {gone}: {', '.join(plan.describe())}; {whole:,} parameters are left."


def headline(run: Recorded) -> str:
    """What it cost: the first line that a reader sees."""
    text = f"**{headline_of(run.metrics, run.bench)}**"
    if not lacks_dense(run.metrics):
        return text
    how = f": `{dense_command()}`, beside config.yaml, measures it" if run.repeatable else ""
    return f"{text}\n\nThe dense model was not evaluated, so what the removal cost is not known{how}."


def speeds(run: Recorded) -> str | None:
    """The models of one training."""
    columns, rows = speeds_table(run.metrics)
    return f"## Speeds\n\n{_table(columns, rows)}" if rows else None


def layer_times(run: Recorded) -> str | None:
    """Where the time went, in short."""
    found = run.layer_times
    if found is None:
        return None
    rows = [
        (layer, *(f"{old:.2f} → {new:.2f}" for old, new in zip(before, after or [0.0] * len(before), strict=True)))
        for layer, before, after in zip(found.layers, found.before, found.after, strict=True)
    ]
    table = _table(("layer", *found.parts), rows)
    return (
        f"## {found.title}\n\n{table}\n\n{found.unit}, before → after ({found.setting}); embeddings and task "
        f"head: {found.outside:.2f}."
    )


WITHOUT_US = """

Without `import attentrim` the model does not load. The error then ends in `ignore_mismatched_sizes` or, in a pipeline,
in `unexpected keyword argument 'code_revision'`; above it, a line says `Unknown quantization type, got attentrim`."""


def loading(model: Any, embeds: bool, name: str) -> str:
    """How to load the model that has been saved under `name`."""
    from ..checkpoint.stored import stored_plan

    trimmed = stored_plan(model) is not None
    needs, remark = ("import attentrim\n", WITHOUT_US) if trimmed else ("", "")
    if embeds:
        return f"""## Loading

```python
{needs}from sentence_transformers import SentenceTransformer

model = SentenceTransformer({json.dumps(name)})
embeddings = model.encode(["The keys to the cabinet are here."])
```{remark}"""
    kind = type(model).__name__
    return f"""## Loading

```python
{needs}from transformers import {kind}

model = {kind}.from_pretrained({json.dumps(name)})
```{remark}"""


def layers(plan: Plan | None) -> str | None:
    """What is left, layer by layer."""
    if not plan:
        return None
    from ..breakdown import breakdown

    found = breakdown(plan)
    rows = [(row.index, f"`{row.path}`", *(cell.text for cell in row.cells)) for row in found.rows]
    return f"## What is left, by layer\n\n{_table(('layer', 'module', *found.columns), rows)}"


def results(run: Recorded) -> str:
    metrics, before = run.metrics, run.metrics.get("before") or {}
    known = before.get("metrics") or {}
    rows = [
        (name, *([_number(known.get(name))] if before else []), _number(value))
        for name, value in metrics["metrics"].items()
    ]
    columns = ("metric", *(["before"] if before else []), "after")
    whose = f' "Before" is {before["of"]}.' if before else " The model at the start was not trained for this task."
    remarks = "".join(f" {remark}" for remark in metrics.get("remarks") or [])
    measured = f"On {metrics['examples']} validation examples of {run.validation_data}, seed {run.seed}."
    return f"## Results\n\n{_table(columns, rows)}\n\n{measured}{whose}{remarks}"


def seeds(found: Mapping[str, Any]) -> str:
    rows = [
        (entry["name"], f"{_number(entry['mean'])} ± {_number(entry['sd'])}", entry["seeds"], _percent(entry))
        for entry in found["entries"]
    ]
    table = _table(("run", found["metric"], "seeds", "heads removed"), rows)
    interval = found.get("interval")
    span = f", 95% interval {interval[0]:+.4f} to {interval[1]:+.4f}" if interval else ""
    difference = found.get("difference")
    paired = f"\n\nPaired by seed, the difference is {difference:+.4f}{span}." if difference is not None else ""
    return f"## Over several seeds\n\n{table}{paired}"


def _percent(entry: Mapping[str, Any]) -> str:
    uniform = f" + {entry['uniform']:g} uniform sites" if entry.get("uniform") else ""
    return "" if entry.get("sparsity") is None else f"{entry['sparsity']:.0%}{uniform}"


def speed(bench: Mapping[str, Any]) -> str | None:
    cells = [
        (
            f"{after['batch']} x {after['length']}",
            f"{after['device']}, {after['dtype']}, {after['backend']}",
            f"{before['milliseconds_median']:.2f} ms",
            f"{after['milliseconds_median']:.2f} ms",
            f"{after['speedup']:.2f}",
        )
        for before, after in measured_pairs(bench)
    ] + [
        (
            f"{after['new_tokens']} new tokens after {after['batch']} x {after['length']}",
            f"{after['device']}, {after['dtype']}, {after['backend']}",
            f"{before['tokens_per_second']:,.1f} tokens/s",
            f"{after['tokens_per_second']:,.1f} tokens/s",
            f"{after['speedup']:.2f}",
        )
        for before, after in measured_pairs(bench, decoding=True)
    ]
    if not cells:
        return None
    machine = bench.get("machine") or {}
    place = ", ".join(dict.fromkeys([*machine.get("gpus", []), str(machine.get("cpu"))]))
    table = _table(("batch x tokens", "on", "before", "after", "times as fast"), cells)
    return (
        f"## Speed\n\n{table}\n\nMedians of {bench.get('repeats')} repeats, in turn, on {place} "
        f"(CPU threads: {machine.get('threads')}, torch {machine.get('torch')}). Before: {_plain(bench['against'])}."
    )


def _plain(name: str) -> str:
    """The last part of a model's name: a card should not contain someone's paths."""
    return name if " " in name else known_as(name)


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [list(columns)]
    lines += [["---"] * len(lines[0])]
    lines += [[str(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
