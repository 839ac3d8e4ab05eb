"""What a row is, from the settings that its runs recorded: columns in place of encoded names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attentrim.distillation import OF_EMBEDDINGS

from .formats import rate
from .raw import Place, Row

METHODS = {
    "none": "dense",
    "random-heads": "random heads",
    "hisp": "HISP",
    "l0": "L0",
    "smp": "SMP",
    "autoattention": "AutoAttention",
    "attendout": "AttendOut",
    "uniform-sites": "uniform layers",
    "fewer-layers": "fewer layers",
    "fisher": "Fisher",
    "similarity": "similarity",
    "attention-dropout": "attention dropout",
    "layerdrop": "LayerDrop",
    "attention-layerdrop": "Attention LayerDrop",
    "drophead": "DropHead",
    "scheduled-dropout": "scheduled dropout",
}
ORDERS = {"top": "top first", "greedy": "greedy", "generator": "by the generator"}
COLUMNS = ("method", "asked", "trained for", "epochs", "rate", "noise", "distilled from", "data")
SHOWN_ELSEWHERE = {
    *("distill_logits", "distill_hidden", "distill_noise", "label_weight", "prune_order", "prune_count", "count"),
    *("target_sparsity", "share_of", "max_drop", "speedup", "speed_table", "speed_elsewhere", "cache_samples"),
    "holdout_curve",
}
"""Of a method's settings: those with a column of their own, and those that change no result worth a column."""
MAY_BE_EMPTY = ("trained for", "rate")
"""Columns that say nothing where all rows that fill them agree."""
NEVER = 30
"""From this prior on, a generator that does not learn drops nothing; below, one that is frozen still drops."""
OF_AN_IDLE_GENERATOR = {"prior", "window", "generator_lr", "generator_warmup", "tune_share"}
PLAIN_ERROR = ("c439c1c", "06f5bd0", "6c6ace1")
"""Commits at which distill_hidden weighed the plain squared error of hidden states, not its share of the teacher's."""
AS_A_SHARE = 0.07
"""About the weight that a plain squared error of 1 was on MPNet-base (benchmarks/hidden_states.py)."""

OF_A_SENTENCE = ("embedding", "similarity", "hidden")
"""What an embedding model learns from its teacher, by the names of the weights."""


def facts_of(place: Place, row: Row) -> dict[str, str]:
    """By column; where seeds differ, all that they have."""
    each = [_facts(place, row, run) for run in row.runs.values()]
    return {column: joined(facts[column] for facts in each) for column in COLUMNS}


def joined(values: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(value for value in values if value))


def _facts(place: Place, row: Row, run: Mapping[str, Any]) -> dict[str, str]:
    settings = run["settings"]
    own = settings.get("method_config") or {}
    speeds = str(own.get("speedup", "")).split(",")
    return {
        "method": _method(place, run),
        "asked": _asked(row, own),
        "trained for": f"{', '.join(speeds)} ×" if len(speeds) > 1 else "this speed" if speeds[0] else "",
        "epochs": epochs(place, row, settings),
        "rate": rate(settings["learning_rate"]) if takes_steps(settings) else "",
        "noise": _share(_distilling(settings, "distill_noise")),
        "distilled from": _distilled_from(run),
        "data": _data(settings, own),
    }


def takes_steps(settings: Mapping[str, Any]) -> bool:
    return float(settings.get("learning_rate", 1)) > 0


def is_idle(run: Mapping[str, Any]) -> bool:
    """AttendOut whose generator drops nothing: how layers were pruned, and data held out, without a game."""
    own = run["settings"].get("method_config") or {}
    drops_nothing = own.get("generator_lr") == 0 and own.get("prior", 0) >= NEVER
    return run["settings"]["method"] == "attendout" and (drops_nothing or own.get("tune_share") == 1)


def _method(place: Place, run: Mapping[str, Any]) -> str:
    """With its settings, and what came before it where that is neither the pre-trained nor the dense model."""
    own = run["settings"].get("method_config") or {}
    before = _start(place, run["settings"])
    start = _kind(next(iter(before.runs.values()))) if before else "dense"
    parts = [
        _kind(run) + (f" after {start}" if start != "dense" else ""),
        "for an H200" if "h200" in str(own.get("speed_table", "")) else "",
        _order(place, run) if _kind(run) in ("uniform layers", "AttendOut") else "",
        _settings(run),
    ]
    return ", ".join(filter(None, parts))


def _kind(run: Mapping[str, Any]) -> str:
    settings = run["settings"]
    own = settings.get("method_config") or {}
    removes_nothing = settings["method"] in ("none", "random-heads") and not own.get("target_sparsity")
    if removes_nothing or (is_idle(run) and not own.get("prune_count")) or own.get("gate_lr") == 0:
        return "uniform layers" if run.get("uniform_sites") else "dense"
    if is_idle(run):
        return "uniform layers"
    if settings["method"] == "attendout" and own.get("prune_count") and not takes_steps(settings):
        return "uniform layers"
    if settings["method"] == "attention-dropout" and own.get("on") != "scores" and not own.get("rescale"):
        return f"{METHODS['attention-dropout']}, not rescaled"
    return METHODS.get(settings["method"], settings["method"])


def _settings(run: Mapping[str, Any]) -> str:
    own = run["settings"].get("method_config") or {}
    hidden = SHOWN_ELSEWHERE | (OF_AN_IDLE_GENERATOR if is_idle(run) else set())
    if _kind(run) in ("dense", "uniform layers"):
        hidden = hidden | own.keys()
    shown = {key: value for key, value in own.items() if key not in hidden and (key, value) != ("dense_share", 0)}
    if "fitted_to" in shown:
        return "curves fitted to AttendOut's rates"
    if run["settings"]["method"] == "smp" and "search_steps" not in shown:
        return "short search"
    if run["settings"]["method"] == "attendout" and not shown and _kind(run) == "AttendOut":
        return "our defaults"
    return " ".join(f"`{key}={value}`" for key, value in shown.items())


def _order(place: Place, run: Mapping[str, Any]) -> str:
    """How layers were chosen to become uniform, in this row or in the one that it starts from."""
    if not run.get("uniform_sites"):
        return ""
    start = str(run["settings"]["model"])
    if start.startswith("text-"):
        return "top first, on plain text"
    own = run["settings"].get("method_config") or {}
    if "prune_order" in own or run["settings"]["method"] == "uniform-sites":
        return ORDERS[own.get("prune_order", own.get("order", "top"))]
    if own.get("prune_count"):
        return ORDERS["generator"]
    before = _start(place, run["settings"])
    return _order(place, next(iter(before.runs.values()))) if before else "top first"


def _start(place: Place, settings: Mapping[str, Any]) -> Row | None:
    """The row whose model this one starts from: "{dense}"; other names are directories."""
    name = str(settings["model"])
    return place.rows.get(name.strip("{}")) if name.startswith("{") else None


def _asked(row: Row, own: Mapping[str, Any]) -> str:
    if row.asked or own.get("speedup"):
        return f"{row.asked or float(str(own['speedup']).split(',')[0]):g} ×"
    if own.get("max_drop") is not None and own.get("gate_lr") != 0:
        return "most heads at no loss" if not own["max_drop"] else f"most heads within {100 * own['max_drop']:g} point"
    if own.get("share_of") == "flops":
        return f"{own['target_sparsity']:.0%} of the FLOPs"
    return ""


def epochs(place: Place, row: Row, settings: Mapping[str, Any]) -> str:
    """Those of the row, after those of the rows that it starts from: "4 + 6"."""
    before = _start(place, settings)
    start = f"{epochs(place, before, next(iter(before.runs.values()))['settings'])} + " if before else ""
    if not takes_steps(settings):
        return f"{start}0"
    if (settings.get("max_steps") or -1) > 0:
        return f"{start}{settings['max_steps'] * row.share:,.0f} steps"
    return f"{start}{settings['num_train_epochs'] * row.share:g}"


def _distilling(settings: Mapping[str, Any], key: str) -> float:
    """Older files have the settings of distillation among those of the method."""
    return float(settings.get(key) or (settings.get("method_config") or {}).get(key) or 0)


def _share(value: float) -> str:
    return f"{value:.0%}" if value else ""


def _distilled_from(run: Mapping[str, Any]) -> str:
    """The teacher, and how much its hidden states count beside its logits."""
    settings = run["settings"]
    if settings.get("task") == "embedding" and takes_steps(settings):
        weights = (settings.get(f"distill_{name}", getattr(OF_EMBEDDINGS, name)) for name in OF_A_SENTENCE)
        return "itself: " + ", ".join(f"{name} {w:g}" for name, w in zip(OF_A_SENTENCE, weights, strict=True))
    if not _distilling(settings, "distill_logits"):
        return ""
    weight = _distilling(settings, "distill_hidden")
    if str(run.get("commit") or "").startswith(PLAIN_ERROR):
        weight *= AS_A_SHARE
    teacher = str(settings.get("teacher") or "the game's model")
    return f"{'dense' if teacher.startswith('{dense') else teacher.strip('{}')}, hidden states {weight:g}"


def _data(settings: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Less than all of it where examples were counted off, or held out to judge by."""
    few = f"{settings['max_train_samples']:,} examples" if settings.get("max_train_samples") else ""
    share = ""
    default = {"v2": "dev", "v1": "cached"}.get(own.get("preset", ""), "train_split")
    if own.get("max_drop") is not None:
        share = "90%"
    elif settings["method"] == "attendout" and own.get("tune_share") != 1 and takes_steps(settings):
        share = "95%" if own.get("reward_source", default) == "train_split" else ""
    return f"{share} of {few}" if share and few else share or few


def columns(facts: Sequence[Mapping[str, str]], tasks: Sequence[Sequence[Mapping[str, str]]] = ()) -> list[str]:
    """Those in which rows differ; at least one. With several tasks, those in which rows of one task differ."""
    return [name for name in COLUMNS if any(_differ(name, found) for found in tasks or [facts])] or ["method"]


def _differ(column: str, facts: Sequence[Mapping[str, str]]) -> bool:
    values = {fact[column] for fact in facts}
    return len(values - {""} if column in MAY_BE_EMPTY else values) > 1


def constants(facts: Sequence[Mapping[str, str]]) -> str:
    """What all rows have in common."""
    shared = {name: facts[0][name] for name in COLUMNS if name != "method" and len({row[name] for row in facts}) == 1}
    return "; ".join(f"{name}: {value}" for name, value in shared.items() if value)
