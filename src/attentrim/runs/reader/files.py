"""The files of a run directory: their names, and what each of them must hold to be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AttentrimError
from ...guarded import is_number, parse_json, parse_yaml

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
MOST_HEADS = 2**16
"""More than any model has: a history that names more is damaged, and its head map would fill memory."""


def is_run(directory: Path) -> bool:
    """Whether a directory holds anything of a run."""
    return any((directory / name).is_file() for name in (HISTORY, METRICS, CONFIG, PLAN))


# What values must be. A value of another type is left out, as if it were not there: other tools have files of these
# names too, and one odd value is no reason to show nothing.


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_number, value))


def _named_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _before(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and is_number(value.get("value"))
        and isinstance(value.get("of"), str)
        and _named_numbers(value.get("metrics") or {})
    )


Checks = Mapping[str, Callable[[Any], bool]]
RESULT: Checks = {
    "seed": _whole,
    "before": _before,
    "alternatives": _named_numbers,
    "measured_with": _object,
    "remarks": _texts,
    "heads_kept": _numbers,
    "speeds": _list,
    "layer_times": _object,
    **dict.fromkeys(
        (
            "parameters",
            "train_seconds",
            "peak_memory_bytes",
            "masked_value",
            "sparsity",
            "heads_total",
            "speedup_asked",
            "speedup_measured",
            "speedup_flops",
            "flops_ratio",
        ),
        is_number,
    ),
}
SPEED: Checks = {
    "against": _text,
    "machine": _object,
    "rows": _list,
    **{
        f"{name}{suffix}": is_number
        for name in ("heads", "parameters", "bytes", "flops", "cache_bytes_per_token")
        for suffix in ("", "_against")
    },
}
MACHINE: Checks = {"gpus": _texts, "load": is_number, "cores": is_number}


def sound(data: Mapping[str, Any], checks: Checks) -> dict[str, Any]:
    """Without the values that are not what their names promise."""
    return {name: value for name, value in data.items() if name not in checks or checks[name](value)}


def history_of(text: str) -> list[dict[str, Any]]:
    """The lines of a history; the last one may have been cut off with the run that wrote it."""
    found = []
    for line in text.splitlines():
        try:
            data = parse_json(line)
        except AttentrimError:
            continue
        if isinstance(data, dict) and isinstance(data.get("step"), int):
            found.append({name: value for name, value in data.items() if _is_sound(name, value)})
    return found


def _is_sound(name: str, value: Any) -> bool:
    """Whether a part of a history's line has the shape that its name promises; else numbers and rows of them count."""
    if name in ("drop_rates", "drop_chances"):
        return _numbers(value)
    if name == "heads":
        return _list(value) and all(map(_is_heads, value)) and sum(max(row, default=0) for row in value) < MOST_HEADS
    if name in ("closed", "reopened"):
        return _list(value) and all(_is_heads(event) and len(event) == 3 for event in value)
    if name in BY_HEAD:
        return _list(value) and all(map(_is_row, value))
    return is_number(value) or _is_row(value)


def _is_heads(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) and item >= 0 for item in value)


def _is_row(value: Any) -> bool:
    return isinstance(value, list) and all(item is None or is_number(item) for item in value)


def metrics_of(text: str) -> dict[str, Any]:
    """What a run of attentrim writes; other tools have files of this name too."""
    data = object_of(text)
    kinds = {"metric": str, "value": int | float, "metrics": dict, "examples": int}
    for name, kind in kinds.items():
        if not isinstance(data.get(name), kind):
            raise AttentrimError(f"it is not a result of attentrim: {name!r} is {data.get(name)!r}")
    data["metrics"] = {name: value for name, value in data["metrics"].items() if isinstance(value, int | float)}
    return sound(data, RESULT)


def bench_of(text: str) -> dict[str, Any]:
    return sound_bench(object_of(text))


def sound_bench(data: Mapping[str, Any]) -> dict[str, Any]:
    found = sound(data, SPEED)
    return {**found, "machine": sound(found["machine"], MACHINE)} if "machine" in found else found


def object_of(text: str) -> dict[str, Any]:
    data = parse_json(text)
    if not isinstance(data, dict):
        raise AttentrimError("not a JSON object")
    return data


def plan_of(text: str) -> Plan:
    from ...plan import Plan

    return Plan.from_dict(parse_json(text), source="the plan")


def config_of(text: str) -> dict[str, Any]:
    """Settings; nothing where the text is no YAML mapping."""
    try:
        data = parse_yaml(text)
    except AttentrimError:
        return {}
    if not isinstance(data, dict):
        return {}
    return data if isinstance(data.get("method_config") or {}, dict) else {**data, "method_config": {}}
