"""The model card, README.md beside the weights: what is ours in it is marked and kept up to date; the rest stays."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import AttentrimError, WriteError
from ..runs.reader import CARD, Recorded
from ..sentences.listing import MODULES
from .names import known_as
from .page import Page

__all__ = ["cards_when_saving", "known_as", "try_card", "write_card"]

TAG = "attentrim"
CARRIED = ("license", "license_name", "license_link", "language")
"""Fields that hold for whatever is made from a model."""
SECTIONS = ("title", "headline", "about", "results", "seeds", "speeds", "speed", "times", "loading", "heads")
"""Ours, in the order in which a new card has them."""
PIPELINES = {
    "SequenceClassification": "text-classification",
    "TokenClassification": "token-classification",
    "MultipleChoice": "multiple-choice",
    "MaskedLM": "fill-mask",
    "CausalLM": "text-generation",
}
EMBEDDING_TAGS = ("sentence-transformers", "feature-extraction", "sentence-similarity")
"""The library, and what its models do; the last is the pipeline."""
MEASURED = "(measured by attentrim)"
"""By this, in the names of metrics, we know results in a header for ours."""


def write_card(
    directory: Path,
    model: Any = None,
    *,
    base: str | None = None,
    measured: bool = False,
    seeds: Mapping[str, Any] | None = None,
    tokens: tuple[int, int] | None = None,
) -> None:
    """Write the card of the model in `directory`, or bring it up to date with what lies beside it.

    With `model`, the card is of a model that has just been saved: what was measured of the one before goes, and the
    files beside it are trusted only if they are said to be of it (`measured`). `seeds` is what a comparison found out
    about runs like this one. `tokens` is the size of the vocabulary before and after, where it was trimmed.
    """
    from ..checkpoint.stored import stored_plan
    from . import sections as say

    path = directory / CARD
    page = Page.read(path) if path.is_file() else _fresh(base)
    run = _recorded(directory) if measured or model is None else Recorded(directory)
    sections: dict[str, str | None] = {}
    if model is not None:
        plan = stored_plan(model) or run.plan
        sections = dict.fromkeys(SECTIONS)
        sections["title"] = None if page.has_title() else f"# {say.title(run, base)}"
        sections["about"] = say.about(run, base, plan, model, tokens)
        sections["loading"] = say.loading(model, _embeds(model, directory))
        sections["heads"] = say.layers(plan)
        _describe(page, model, directory)
    if run.metrics:
        sections["headline"] = say.headline(run)
        sections["results"] = say.results(run)
        sections["speeds"] = say.speeds(run)
        sections["times"] = say.layer_times(run)
    if run.metrics or model is not None:
        _index(page, run)
    if run.bench.get("against"):
        sections["speed"] = say.speed(run.bench)
    if seeds is not None:
        sections["seeds"] = say.seeds(seeds)
    page.put(sections, SECTIONS)
    page.write(path)


def try_card(*args: Any, **kwargs: Any) -> None:
    """Write it; where the card that is there is in the way, a warning says so, and the model is saved all the same."""
    try:
        write_card(*args, **kwargs)
    except WriteError:
        raise
    except (AttentrimError, OSError) as error:
        warnings.warn(f"No model card was written: {error}", stacklevel=3)


def _recorded(directory: Path) -> Recorded:
    try:
        return Recorded.read(directory)
    except AttentrimError:
        return Recorded(directory)


def _fresh(base: str | None) -> Page:
    """A card with what carries over from the base model's."""
    page = Page()
    known = _base_card(base)
    page.set("library_name", "transformers")
    page.fill("base_model", base if base and not Path(base).is_dir() else known.get("base_model"))
    for name in CARRIED:
        page.fill(name, known.get(name))
    return page


def _base_card(base: str | None) -> Mapping[str, Any]:
    """The header of the card of a model in a directory, or in the hub's cache. Nothing is fetched."""
    from huggingface_hub import try_to_load_from_cache

    with suppress(Exception):
        if base and Path(base).is_dir():
            return Page.read(Path(base) / CARD).fields
        cached = try_to_load_from_cache(base, CARD) if base else None
        return Page.read(Path(cached)).fields if isinstance(cached, str) else {}
    return {}


def _describe(page: Page, model: Any, directory: Path) -> None:
    tags = page.fields.get("tags") or []
    tags = tags if isinstance(tags, list) else [tags]
    page.set("tags", tags if TAG in tags else [*tags, TAG])
    if _embeds(model, directory):
        _describe_embeddings(page)
        return
    page.fill("library_name", "transformers")
    kind = next((kind for suffix, kind in PIPELINES.items() if type(model).__name__.endswith(suffix)), None)
    if kind and page.fields.get("pipeline_tag") in (None, *PIPELINES.values()):
        page.set("pipeline_tag", kind)


def _embeds(model: Any, directory: Path) -> bool:
    """Whether it is a model of sentence-transformers; what makes a directory one may not be written yet."""
    return hasattr(model, "sentence_modules") or (directory / MODULES).is_file()


def _describe_embeddings(page: Page) -> None:
    """As sentence-transformers' own cards do."""
    tags: Any = page.fields["tags"]
    page.set("tags", [*tags, *(tag for tag in EMBEDDING_TAGS if tag not in tags)])
    page.set("library_name", EMBEDDING_TAGS[0])
    page.set("pipeline_tag", EMBEDDING_TAGS[-1])


def _index(page: Page, run: Recorded) -> None:
    """The metrics in the form that the hub reads; results of others stay, ours are those of this run or none."""
    index: Any = page.fields.get("model-index")
    if index is not None and not (isinstance(index, list) and index and isinstance(index[0], dict)):
        return
    entry = dict(index[0]) if index else {"name": run.path.resolve().name}
    known = entry.get("results")
    others = [result for result in known if not _is_ours(result)] if isinstance(known, list) else []
    ours = {
        "task": {"type": page.fields.get("pipeline_tag") or "text-classification"},
        "dataset": {"name": run.task, "type": run.task, "split": "validation"},
        "metrics": [
            {"type": name, "value": round(value, 6), "name": f"{name} {MEASURED}"}
            for name, value in (run.metrics.get("metrics") or {}).items()
        ],
    }
    says_something = run.metrics and run.metrics.get("head_trained", True)
    results = [*others, *([ours] if says_something else [])]
    if results:
        page.set("model-index", [{**entry, "results": results}, *(index[1:] if index else [])])
    elif index:
        page.set("model-index", index[1:] or None)


def _is_ours(result: Any) -> bool:
    metrics: Any = result.get("metrics") if isinstance(result, dict) else None
    return (
        isinstance(metrics, list)
        and bool(metrics)
        and all(isinstance(metric, dict) and str(metric.get("name", "")).endswith(MEASURED) for metric in metrics)
    )


def cards_when_saving(modeling: Any) -> None:
    """Have `save_pretrained` of trimmed models write a card, as that of PEFT's models does."""
    from wrapt import wrap_function_wrapper

    def save(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
        from ..checkpoint.stored import stored_plan

        result = wrapped(*args, **kwargs)
        directory = Path(args[0] if args else kwargs["save_directory"])
        main = args[1] if len(args) > 1 else kwargs.get("is_main_process", True)
        if main and directory.is_dir() and stored_plan(model) is not None:
            try_card(directory, model, base=getattr(model.config, "_name_or_path", None) or None)
        return result

    wrap_function_wrapper(modeling, "PreTrainedModel.save_pretrained", save)
