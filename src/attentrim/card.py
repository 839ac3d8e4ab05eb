"""The model card, README.md beside the weights: what is ours in it is marked and kept up to date; the rest stays."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__
from .bench.rows import measured_pairs
from .errors import AttentrimError
from .recorded import CARD, METRICS, PLAN, Recorded

if TYPE_CHECKING:
    from huggingface_hub import ModelCard

    from .plan import Plan

TAG = "attentrim"
CARRIED = ("license", "license_name", "license_link", "language")
"""Fields that hold for whatever is made from a model."""
SECTIONS = ("title", "about", "results", "seeds", "speed", "loading", "heads")
"""Ours, in the order in which a new card has them."""
PIPELINES = {
    "SequenceClassification": "text-classification",
    "TokenClassification": "token-classification",
    "MultipleChoice": "multiple-choice",
    "MaskedLM": "fill-mask",
    "CausalLM": "text-generation",
}
LONGEST_NAME = 60


def write_card(
    directory: Path, model: Any = None, *, base: str | None = None, seeds: Mapping[str, Any] | None = None
) -> None:
    """Write the card of the model in `directory`, or bring it up to date with what lies beside it.

    With `model`, the card is of a model that has just been saved: what was measured of the one before goes. `seeds` is
    what a comparison found out about runs like this one.
    """
    run = _recorded(directory)
    path = directory / CARD
    card = _load(path) or _fresh(base)
    sections: dict[str, str | None] = {}
    if model is not None:
        plan = _plan_of(model) or run.plan
        sections = dict.fromkeys(SECTIONS)
        sections |= {"about": _about(run, base, plan, model), "loading": _loading(model), "heads": _heads(plan)}
        sections["title"] = None if _has_a_title(card.text) else f"# {_title(run, base)}"
        _describe(card, base, model)
    if run.metrics:
        sections["results"] = _results(run)
        _index(card, run)
    if run.bench.get("against"):
        sections["speed"] = _speed(run.bench)
    if seeds is not None:
        sections["seeds"] = _seeds(seeds)
    card.text = _put(card.text, sections)
    card.save(path)


def known_as(base: str) -> str:
    """What people call a model: the title of its card, or the last part of its name."""
    name = base.replace("\\", "/").rstrip("/").rpartition("/")[2] or base
    directory = Path(base)
    if not directory.is_dir():
        return name
    with suppress(OSError, ValueError):
        return str(json.loads((directory / METRICS).read_text(encoding="utf-8"))["model"])
    with suppress(OSError, ValueError, KeyError):
        heading = re.search(r"^# +(\S.*)$", (directory / CARD).read_text(encoding="utf-8"), re.MULTILINE)
        if heading and len(heading[1]) <= LONGEST_NAME:
            return heading[1].strip()
    return name


# The file


def _load(path: Path) -> ModelCard | None:
    from huggingface_hub import ModelCard

    if not path.is_file():
        return None
    try:
        return ModelCard(path.read_text(encoding="utf-8"), ignore_metadata_errors=True)
    except Exception as error:
        raise AttentrimError(f"The header of {path} is no valid YAML: mend or delete it.") from error


def _fresh(base: str | None) -> ModelCard:
    """A card with what carries over from the base model's."""
    from huggingface_hub import ModelCard, ModelCardData

    known = _base_card(base)
    fields: dict[str, Any] = known.data.to_dict() if known else {}  # type: ignore[no-untyped-call]
    carried: dict[str, Any] = {name: fields[name] for name in CARRIED if name in fields}
    origin = base if base and not Path(base).is_dir() else fields.get("base_model")
    data = ModelCardData(library_name="transformers", base_model=origin, **carried)
    return ModelCard(f"---\n{data.to_yaml()}\n---\n")


def _base_card(base: str | None) -> ModelCard | None:
    """Of a model in a directory, or of one in the hub's cache. Nothing is fetched."""
    if not base:
        return None
    from huggingface_hub import try_to_load_from_cache

    path: Any = Path(base) / CARD
    with suppress(Exception):
        path = path if Path(base).is_dir() else try_to_load_from_cache(base, CARD)
        return _load(Path(path)) if isinstance(path, str | Path) else None
    return None


def _has_a_title(text: str) -> bool:
    """Of the user's own."""
    return re.search(r"^# ", re.sub(_marked("title"), "", text, flags=re.DOTALL), re.MULTILINE) is not None


def _marked(name: str) -> str:
    return rf"\n*<!-- attentrim: {name} -->.*?<!-- /attentrim: {name} -->\n*"


def _put(text: str, sections: Mapping[str, str | None]) -> str:
    """Replace, add or take away sections of ours; all else stays as it is."""
    for name in SECTIONS:
        if name not in sections:
            continue
        found = re.search(_marked(name), text, re.DOTALL)
        body = sections[name]
        new = f"\n\n<!-- attentrim: {name} -->\n{body}\n<!-- /attentrim: {name} -->\n\n" if body else "\n\n"
        if found:
            text = text[: found.start()] + new + text[found.end() :]
        elif body:
            text = _after_the_one_before(text, name, new)
    return re.sub(r"\n{3,}(?=<!-- /?attentrim)", "\n\n", text).strip("\n") + "\n"


def _after_the_one_before(text: str, name: str, new: str) -> str:
    for earlier in reversed(SECTIONS[: SECTIONS.index(name)]):
        mark = f"<!-- /attentrim: {earlier} -->\n"
        if mark in text:
            before, _, after = text.partition(mark)
            return before + mark + new + after.lstrip("\n")
    return text.rstrip("\n") + new


# The header


def _describe(card: ModelCard, base: str | None, model: Any) -> None:
    data: Any = card.data
    data.tags = sorted({*(data.tags or []), TAG})
    data.library_name = data.library_name or "transformers"
    kind = _kind(model)
    if kind and not data.pipeline_tag:
        data.pipeline_tag = kind


def _kind(model: Any) -> str | None:
    name = type(model).__name__
    return next((kind for suffix, kind in PIPELINES.items() if name.endswith(suffix)), None)


def _index(card: ModelCard, run: Recorded) -> None:
    """The metrics in the form that the hub reads."""
    from huggingface_hub import EvalResult

    data: Any = card.data
    data.model_name = data.model_name or run.path.resolve().name
    data.eval_results = [
        EvalResult(
            task_type=data.pipeline_tag or "text-classification",
            dataset_type=run.task,
            dataset_name=run.task,
            dataset_split="validation",
            metric_type=name,
            metric_value=round(value, 6),
        )
        for name, value in run.metrics["metrics"].items()
    ]


# The sections


def _recorded(directory: Path) -> Recorded:
    try:
        return Recorded.read(directory)
    except AttentrimError:
        return Recorded(directory)


def _plan_of(model: Any) -> Plan | None:
    from .checkpoint import stored_plan

    return stored_plan(model)


def _title(run: Recorded, base: str | None) -> str:
    name = known_as(base) if base else run.model
    if not run.metrics:
        return f"{name}, trimmed"
    how = "fine-tuned" if run.method == "none" else f"trained with {run.method}"
    return f"{name} on {run.task}, {how}"


def _about(run: Recorded, base: str | None, plan: Plan | None, model: Any) -> str:
    import torch
    import transformers

    whole = sum(parameter.numel() for parameter in model.parameters())
    versions = f"attentrim {__version__} (transformers {transformers.__version__}, torch {torch.__version__})"
    start = f" from `{known_as(base)}`" if base else ""
    data = f" on {run.task}" if run.metrics else ""
    method = run.method if run.metrics else str((plan.made_by if plan else {}).get("method", ""))
    by = f", method {method}" if method and method != "none" else ""
    made = f"{'Fine-tuned' if run.metrics else 'Made'}{start}{data} with {versions}{by}."
    if plan is None or not plan:
        return f"{made} All attention is kept; {whole:,} parameters."
    trimmed = _plan_of(model) is not None
    gone, have = ("are removed", "have") if trimmed else (f"are to be removed ({PLAN})", "are to have")
    return (
        f"{made} {plan.heads_removed} of {plan.heads_total} attention heads {gone}, {len(plan.uniform)} of "
        f"{len(plan.sites)} sites {have} uniform attention; {whole:,} parameters are left."
    )


def _loading(model: Any) -> str:
    name = type(model).__name__
    needs = "import attentrim\n" if _plan_of(model) is not None else ""
    return f"""## Loading

```python
{needs}from transformers import {name}

model = {name}.from_pretrained("...")
```"""


def _heads(plan: Plan | None) -> str | None:
    if not plan:
        return None
    rows = [
        (index, f"`{site.path}`", _kept(plan, index), ", ".join(map(str, plan.heads.get(index, ()))) or "none")
        for index, site in enumerate(plan.sites)
    ]
    return f"## Heads kept by layer\n\n{_table(('site', 'module', 'heads kept', 'removed'), rows)}"


def _kept(plan: Plan, index: int) -> str:
    if index in plan.uniform or plan.sites[index].uniform:
        return "uniform"
    return f"{plan.heads_kept[index]} of {plan.sites[index].heads}"


def _results(run: Recorded) -> str:
    metrics, before = run.metrics, run.metrics.get("before") or {}
    known = before.get("metrics") or {}
    rows = [
        (name, *([_number(known.get(name))] if before else []), _number(value))
        for name, value in metrics["metrics"].items()
    ]
    columns = ("metric", *(["before"] if before else []), "after")
    whose = f' "Before" is {before["of"]}.' if before else " The model that it started from was not trained for this."
    remark = f" Rewarded on {metrics['rewarded_on']}." if "rewarded_on" in metrics else ""
    return (
        f"## Results\n\n{_table(columns, rows)}\n\nOn {metrics['examples']} validation examples of {run.task}, seed "
        f"{run.seed}.{whose}{remark}"
    )


def _seeds(found: Mapping[str, Any]) -> str:
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
    return "" if entry.get("sparsity") is None else f"{entry['sparsity']:.0%}"


def _speed(bench: Mapping[str, Any]) -> str | None:
    cells = [
        (
            f"{after['batch']} x {after['length']}",
            f"{after['device']}, {after['dtype']}, {after['backend']}",
            f"{before['milliseconds_median']:.2f} ms",
            f"{after['milliseconds_median']:.2f} ms",
            f"{after['speedup']:.2f}",
        )
        for before, after in measured_pairs(bench)
    ]
    if not cells:
        return None
    machine = bench["machine"]
    place = ", ".join(dict.fromkeys([*machine.get("gpus", []), str(machine.get("cpu"))]))
    table = _table(("batch x tokens", "on", "before", "after", "times as fast"), cells)
    return (
        f"## Speed\n\n{table}\n\nMedians of {bench['repeats']} repeats, in turn, on {place} ({machine.get('threads')} "
        f"threads, torch {machine.get('torch')}). Before: {_plain(bench['against'])}."
    )


def _plain(name: str) -> str:
    """A model by the last part of its name: a card speaks of models, not of someone's disk."""
    return name if " " in name else known_as(name)


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [list(columns)]
    lines += [["---"] * len(lines[0])]
    lines += [[str(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


# With every trimmed model


def cards_when_saving(modeling: Any) -> None:
    """Have `save_pretrained` of trimmed models write a card, as that of PEFT's models does."""
    from wrapt import wrap_function_wrapper

    def save(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        directory = Path(args[0] if args else kwargs["save_directory"])
        main = args[1] if len(args) > 1 else kwargs.get("is_main_process", True)
        if main and directory.is_dir() and _plan_of(model) is not None:
            try:
                write_card(directory, model, base=getattr(model.config, "_name_or_path", None) or None)
            except Exception as error:  # the model is saved: a card is not worth losing that over
                warnings.warn(f"No model card was written: {error}", stacklevel=2)
        return result

    wrap_function_wrapper(modeling, "PreTrainedModel.save_pretrained", save)
