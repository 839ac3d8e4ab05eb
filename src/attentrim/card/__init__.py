"""The model card, README.md beside the weights: what is ours in it is marked and kept up to date; the rest stays."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import AttentrimError, WriteError
from ..runs.reader import CARD, Recorded
from ..sentences.listing import MODULES
from .names import dataset_of, hub_name, known_as
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
METRIC_IDS = {"matthews": "matthews_correlation", "spearman": "spearmanr", "pearson": "pearsonr"}
"""What the hub calls metrics, where that is not our name."""
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
    name: str | None = None,
) -> None:
    """Write the card of the model in `directory`, or bring it up to date with what lies beside it.

    With `model`, the card is of a model that has just been saved: what was measured of the one before goes, and the
    files beside it are trusted only if they are said to be of it (`measured`). `seeds` is what a comparison found out
    about runs like this one. `tokens` is the size of the vocabulary before and after, where it was trimmed. `name` is
    what to load the model by, where that is not the name of the directory.
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
        sections["loading"] = say.loading(model, _embeds(model, directory), name or directory.resolve().name)
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
    page.fill("base_model", hub_name(base, known.body) or known.fields.get("base_model"))
    for name in CARRIED:
        page.fill(name, known.fields.get(name))
    return page


def _base_card(base: str | None) -> Page:
    """The card of a model in a directory, or in the hub's cache. Nothing is fetched."""
    from huggingface_hub import try_to_load_from_cache

    with suppress(Exception):
        if base and Path(base).is_dir():
            return Page.read(Path(base) / CARD)
        cached = try_to_load_from_cache(base, CARD) if base else None
        return Page.read(Path(cached)) if isinstance(cached, str) else Page()
    return Page()


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
    kind = page.fields.get("pipeline_tag") or "text-classification"
    known = entry.get("results")
    others = [result for result in known if not _is_ours(result)] if isinstance(known, list) else []
    ours = {
        "task": {"type": kind, "name": kind.replace("-", " ").capitalize()},
        "dataset": {**dataset_of(run), "split": "validation"},
        "metrics": [
            {"type": METRIC_IDS.get(name, name), "value": round(value, 6), "name": f"{name} {MEASURED}"}
            for name, value in (run.metrics.get("metrics") or {}).items()
        ],
    }
    says_something = run.metrics and run.metrics.get("head_trained", True)
    results = [*others, *([ours] if says_something else [])]
    if results:
        page.set("model-index", [{**entry, "results": results}, *(index[1:] if index else [])])
        page.set("metrics", _metric_types(results))
    elif index:
        page.set("model-index", index[1:] or None)
        page.set("metrics", None)


def _metric_types(results: Sequence[Any]) -> list[str]:
    """What the hub lists a model under."""
    metrics = [metric for result in results if isinstance(result, dict) for metric in result.get("metrics") or []]
    return list(
        dict.fromkeys(str(metric["type"]) for metric in metrics if isinstance(metric, dict) and "type" in metric)
    )


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
            base = getattr(model.config, "_name_or_path", None) or None
            try_card(directory, model, base=base, name=kwargs.get("repo_id"))
        return result

    wrap_function_wrapper(modeling, "PreTrainedModel.save_pretrained", save)


def cards_of_sentence_transformers(modeling: Any) -> None:
    """Keep our parts in the cards that sentence-transformers writes: its own, or the one that a model came with."""
    from wrapt import wrap_function_wrapper

    def write(wrapped: Any, whole: Any, args: Any, kwargs: Any) -> Any:
        from ..checkpoint.stored import stored_plan

        result = wrapped(*args, **kwargs)
        model: Any = getattr(whole, "transformers_model", None)
        directory = Path(args[0] if args else kwargs["path"])
        if hasattr(model, "config") and stored_plan(model) is not None and (directory / CARD).is_file():
            name = whole.model_card_data.model_id if str(whole.model_card_data.model_id).count("/") == 1 else None
            again = Page.read(directory / CARD).section("about") is not None
            refresh = _rename if again else try_card
            refresh(directory, model, base=getattr(model.config, "_name_or_path", None) or None, name=name)
        return result

    if hasattr(getattr(modeling, "BaseModel", None), "_create_model_card"):
        wrap_function_wrapper(modeling, "BaseModel._create_model_card", write)


def _rename(directory: Path, model: Any, *, base: str | None, name: str | None) -> None:
    """The same model under another name: what was measured of it stays."""
    from .sections import loading

    page = Page.read(directory / CARD)
    page.put({"loading": loading(model, True, name or directory.resolve().name)}, SECTIONS)
    page.write(directory / CARD)
