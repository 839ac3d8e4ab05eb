"""The files of a run directory: their names, and what each of them must hold to be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...plan import Plan


HISTORY, METRICS, CONFIG, ATTENTION, CARD, PLAN, BENCH = (
    "history.jsonl",
    "metrics.json",
    "config.yaml",
    "attention.safetensors",
    "README.md",
    "plan.json",
    "bench.json",
)
BY_HEAD = ("heads", "gates", "gate_parameters", "scores", "closed", "reopened")
"""What the lines of a history say about single heads."""


def is_run(directory: Path) -> bool:
    """Whether a directory holds anything of a run."""
    return any((directory / name).is_file() for name in (HISTORY, METRICS, CONFIG, PLAN))


def history_of(text: str) -> list[dict[str, Any]]:
    """The lines of a history; the last one may have been cut off with the run that wrote it."""
    found = []
    for line in text.splitlines():
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict) and isinstance(data.get("step"), int):
            found.append({name: value for name, value in data.items() if _is_sound(name, value)})
    return found


def _is_sound(name: str, value: Any) -> bool:
    """Whether a part of a history's line has the shape that its name promises."""
    if name in ("drop_rates", "drop_chances"):
        return isinstance(value, list) and all(isinstance(rate, int | float) for rate in value)
    if name in ("closed", "reopened"):
        return isinstance(value, list) and all(_is_row(event) and len(event) == 3 for event in value)
    return name not in BY_HEAD or (isinstance(value, list) and all(map(_is_row, value)))


def _is_row(value: Any) -> bool:
    return isinstance(value, list) and all(item is None or isinstance(item, int | float) for item in value)


def metrics_of(text: str) -> dict[str, Any]:
    """What a run of attentrim writes; other tools have files of this name too."""
    data = object_of(text)
    kinds = {"metric": str, "value": int | float, "metrics": dict, "examples": int}
    for name, kind in kinds.items():
        if not isinstance(data.get(name), kind):
            raise ValueError(f"it is no result of attentrim: {name!r} is {data.get(name)!r}")
    data["metrics"] = {name: value for name, value in data["metrics"].items() if isinstance(value, int | float)}
    return data


def object_of(text: str) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data


def plan_of(text: str) -> Plan:
    from ...plan import Plan

    return Plan.from_dict(json.loads(text), source="it")


def config_of(text: str) -> dict[str, Any]:
    """Settings; nothing where the text is no YAML mapping."""
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    if not isinstance(data, dict):
        return {}
    return data if isinstance(data.get("method_config") or {}, dict) else {**data, "method_config": {}}
