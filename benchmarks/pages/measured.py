"""Tables of speed and of the cost of a step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import formats
from .compared import raw_link
from .raw import RESULTS, Row, read


def speed(_page: Path, words: Sequence[str], _options: dict[str, str]) -> str:
    """`speed: DIRECTORY MODEL ...`: how much faster models became, at the shapes of the first model."""
    directory, *models = words
    found = {model: cells for model in models if (cells := _measured(directory, model))}
    places = list(next(iter(found.values())))
    lines = []
    for model, cells in found.items():
        shown = [_speedup(cells[place]) if place in cells else formats.NO_VALUE for place in places]
        flops = max(entry["flop_ratio"] for place, entry in cells.items() if place in places)
        lines.append([*_shape(directory, model), *shown, f"{flops:.2f}", f"`{model}`"])
    header = ["uniform layers", "heads left", *places, "theoretical speed-up (FLOPs)", "raw name"]
    return formats.table(header, lines)


def shapes(_page: Path, words: Sequence[str], _options: dict[str, str]) -> str:
    """`shapes: MODEL DIRECTORY ...`: one model, a row for each machine and shape, a column for each precision."""
    model, *directories = words
    found: dict[str, dict[str, str]] = {}
    for directory in directories:
        for entry in _measured(directory, model).values():
            shape = found.setdefault(f"{entry['where']}, {entry['batch']} × {entry['length']}", {})
            shape[entry["dtype"]] = _speedup(entry)
    dtypes = list(dict.fromkeys(dtype for cells in found.values() for dtype in cells))
    lines = [[shape, *(cells.get(dtype, "") for dtype in dtypes)] for shape, cells in found.items()]
    return formats.table(["batch × length", *dtypes], lines)


def _measured(directory: str, model: str) -> dict[str, dict[str, Any]]:
    """What `attentrim bench` found of a trimmed model, by precision and shape, and where; nothing if not run."""
    if not (RESULTS / "speed" / directory / f"{model}.json").is_file():
        return {}
    data = read(f"speed/{directory}/{model}.json")
    machine = data["machine"]
    cores = f"{machine['threads']} cores of {machine['cpu']}"
    return {
        f"{entry['dtype']}, {entry['batch']} × {entry['length']}": {
            **entry,
            "where": machine["gpus"][0].removeprefix("NVIDIA ") if entry["device"] == "cuda" else cores,
        }
        for entry in data["rows"]
        if entry["name"] == "model"
    }


def _speedup(entry: dict[str, Any]) -> str:
    return f"{entry['speedup']:.2f} ({'-'.join(f'{value:.2f}' for value in entry['speedup_quartiles'])})"


def _shape(directory: str, model: str) -> list[str]:
    """Layers made uniform, and heads left in the others."""
    data = read(f"speed/{directory}/{model}.json")
    plan = RESULTS / "speed" / "plans" / f"{directory.partition('-')[0]}-{model}.json"
    if plan.is_file():
        uniform = len(json.loads(plan.read_text(encoding="utf-8")).get("uniform") or [])
    else:  # whole layers of 12 heads
        uniform = (data["heads_against"] - data["heads"]) // 12
    return [str(uniform) if uniform else formats.NO_VALUE, f"{data['heads']} of {data['heads_against']}"]


def steps(_page: Path, words: Sequence[str], _options: dict[str, str]) -> str:
    """`steps: FILE`: a training step of each method against a stock one (step_cost.py)."""
    text = (RESULTS / "step_cost" / f"{words[0]}.jsonl").read_text(encoding="utf-8")
    lines = []
    for entry in map(json.loads, text.splitlines()):
        settings = " ".join(f"`{key}={value}`" for key, value in entry["method_config"].items())
        low, high = entry["ratio_total_interval_95"]
        lines.append([f"`{entry['method']}`", settings, f"{entry['ratio_total']:.2f} ×", f"{low:.2f} to {high:.2f}"])
        lines[-1].append(f"{entry['memory_ratio']:.2f} ×")
    return formats.table(["method", "settings", "time", "95% interval", "memory"], lines)


def asked(_page: Path, words: Sequence[str], _options: dict[str, str]) -> str:
    """`asked: FILE`: speeds that were asked for, and whole models timed again (whole_models.py)."""
    entries = read(f"speed/latency/{words[0]}.json")
    tasks = list(dict.fromkeys(entry["task"] for entry in entries))
    found: dict[tuple[float, str], dict[str, float]] = {}
    for entry in entries:
        found.setdefault((entry["asked"], entry["row"]), {})[entry["task"]] = entry["speedup"]
    lines = [
        [
            f"{speed:g} ×",
            *(f"{cells[task]:.2f} ×" if task in cells else formats.NO_VALUE for task in tasks),
            f"`{row}`",
        ]
        for (speed, row), cells in found.items()
    ]
    return formats.table(["asked", *map(formats.task_name, tasks), "raw name"], lines)


UNITS = ("heads", "neurons", "layers")
"""What a model has, in the record of a measurement."""


def backends(page: Path, words: Sequence[str], _options: dict[str, str]) -> str:
    """`backends: DIRECTORY MODEL ...`: milliseconds by runtime, and times as fast as the dense model in PyTorch."""
    directory, *models = words
    found: dict[str, dict[str, list[float]]] = {"dense": {}}
    units: dict[str, list[str]] = {}
    dense = []
    for model in models:
        measured = read(f"speed/{directory}/{model}.json")
        units["dense"] = [f"{measured[f'{unit}_against']:,}" for unit in UNITS]
        units[model] = [f"{measured[unit]:,}" for unit in UNITS]
        for entry in measured["rows"]:
            name = model if entry["name"] == "model" else "dense"
            found.setdefault(name, {}).setdefault(entry["backend"], []).append(entry["milliseconds_median"])
        dense += [entry["milliseconds_median"] for entry in measured["rows"] if entry["name"] == "against"][:1]
    start = sum(dense) / len(dense)
    runtimes = list(found["dense"])
    lines = [
        [
            *units[name],
            *(f"{(ms := sum(cells[each]) / len(cells[each])):.0f} ms, {start / ms:.1f} ×" for each in runtimes),
            f"`{name}`",
        ]
        for name, cells in found.items()
    ]
    names = {"eager": "PyTorch", "onnx": "ONNX Runtime", "onnx-int8": "ONNX Runtime, int8"}
    links = ", ".join(raw_link(page, f"speed/{directory}/{model}", model) for model in models)
    header = [*UNITS, *(names.get(each, each) for each in runtimes), "raw name"]
    return formats.table(header, lines) + f"\nRaw files: {links}.\n"


def speed_of(row: Row, task: str, file: str = "mpnet-base-cpu") -> tuple[float, bool] | None:
    """The speed-up of a row's first seed on that machine, and whether it was timed as a whole model.

    Where it was not, it comes from the machine's latency table, scaled as the whole models that check the table are.
    """
    for entry in read(f"speed/latency/{file}-speeds.json"):
        of_a_speed = f"{entry['row']}@{entry['asked']:g}"
        if entry["task"] == task and row.name in (entry["row"], of_a_speed):
            return entry["speedup"], True
    run = row.runs[min(row.runs)]
    if not row.is_last or not run.get("neurons_kept"):
        return None
    return speed_by_table(read(f"speed/latency/{file}.json"), run), False


def speed_by_table(table: dict[str, Any], run: dict[str, Any]) -> float:
    """A latency table's speed-up for the heads and neurons that a run kept."""

    def of_place(levels: dict[str, float], kept: float) -> float:
        known = sorted(map(int, levels))
        return float(np.interp(kept, known, [levels[str(count)] for count in known]))

    (group,) = table["groups"]
    levels = group["levels"]
    each = [
        group["rest"] + of_place(levels["heads"], heads) + of_place(levels["neurons"], neurons)
        for layer, (heads, neurons) in enumerate(zip(run["heads_kept"], run["neurons_kept"], strict=True))
        if layer not in (run.get("layers_removed") or [])
    ]
    full = group["rest"] + of_place(levels["heads"], 1e9) + of_place(levels["neurons"], 1e9)
    by_table = (table["fixed"] + full * len(run["heads_kept"])) / (table["fixed"] + sum(each))
    checks = sorted([(1.0, 1.0), *((said, whole / said) for said, whole in table["checks"])])
    return by_table * float(np.interp(by_table, *zip(*checks, strict=True)))
