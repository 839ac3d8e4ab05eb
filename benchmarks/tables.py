"""Put the tables of RESULTS.md, docs/results.md and README.md together from the files under benchmarks/results.

    python benchmarks/tables.py            # bring the pages up to date
    python benchmarks/tables.py --check    # end with code 1 if one is not

A table stands where a page has `<!-- results: EXPERIMENT/MODEL-TASK -->` and `<!-- /results -->`. In place of
`results`: `heads` are the heads kept by layer, `cost` is what training took; `speed` names a directory of what
`attentrim bench --out` wrote, `steps` a file of lines of `step_cost.py`. A list of rows after the name leaves the
others out; a row that no run has ended of is "not run". `pooled: ROW BASELINE EXPERIMENT/MODEL-TASK ...` is the mean
over tasks; `across: BASELINE EXPERIMENT/MODEL-TASK ... ROW ...` has one column per task; where one training left
several speeds, `ROW@2` is the one at twice the speed. `shapes: MODEL DIRECTORY ...` is
one model of `speed` at every shape, on the machines of these directories.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from attentrim.compare.config import DEFAULTS
from attentrim.compare.results import interval
from attentrim.runs.files import read_config

HERE = Path(__file__).parent
PAGES = [HERE.parent / name for name in ("RESULTS.md", "docs/results.md", "README.md")]
BLOCK = re.compile(r"(<!-- (\w+): (\S+)((?: \S+)*) -->\n).*?(<!-- /\2 -->)", re.DOTALL)


def table(name: str, rows: list[str]) -> str:
    """One table in Markdown, and the command that makes it."""
    experiment, _, place = name.partition("/")
    model, _, task = place.rpartition("-")
    result = results_of(name)
    found = {entry["name"]: entry for entry in result["summary"]}
    baseline = result["baseline"]
    columns = [
        "run",
        f"{result['metric']}, mean ± sd",
        "seeds",
        f"against {baseline} (95% interval)",
        "heads removed",
        "uniform layers",
    ]
    lines = ["| " + " | ".join(cells) + " |" for cells in (columns, ["---"] * len(columns))]
    for row in rows or list(found):
        cells = _cells(found[row], baseline) if row in found else [f"`{row}`", "not run", "", "", "", ""]
        lines.append("| " + " | ".join(cells) + " |")
    words = ["python benchmarks/run.py", experiment, "--model", model, "--task", task, "--seeds", len(result["seeds"])]
    command = " ".join(map(str, [*words, "--tf32 True", *_flags(experiment, result["runs"][0])]))
    return "\n".join([*lines, "", f"`{command}`", ""])


def _flags(experiment: str, run: dict[str, Any]) -> list[str]:
    """What the command said beyond the config, as far as it changes results."""
    config = read_config(str(HERE / experiment / "config.yaml"))
    own = {**DEFAULTS, **config, **config.get("runs", {}).get(run["name"], {})}
    names = ("max_train_samples", "num_train_epochs")
    return [f"--{name} {run['settings'][name]:g}" for name in names if run["settings"].get(name) != own.get(name)]


def heads(name: str, rows: list[str]) -> str:
    """Heads kept by layer, the mean over seeds."""
    result = results_of(name)
    counts: dict[str, list[list[int]]] = {}
    for run in result["runs"]:
        counts.setdefault(run["name"], []).append(run["heads_kept"])
    layers = len(result["runs"][0]["heads_kept"])
    lines = ["| heads kept in layer | " + " | ".join(map(str, range(layers))) + " |", "|---" * (layers + 1) + "|"]
    for row in rows or list(counts):
        means = [f"{statistics.fmean(column):.1f}" for column in zip(*counts[row], strict=True)]
        lines.append(f"| `{row}` | " + " | ".join(means) + " |")
    return "\n".join([*lines, ""])


def speed(name: str, rows: list[str]) -> str:
    """How much faster models became, one a row, at each shape that the first was measured at."""
    found = {row: _measured(name, row) for row in rows}
    places = list(found[rows[0]])
    lines = ["| model | " + " | ".join(places) + " | theoretical speed-up (FLOPs) |", "|---" * (len(places) + 2) + "|"]
    for row, measured in found.items():
        shown = [_speedup(measured[place]) if place in measured else "not run" for place in places]
        ratios = [measured[place]["flop_ratio"] for place in places if place in measured]
        lines.append(f"| `{row}` | " + " | ".join(shown) + f" | {f'{max(ratios):.2f}' if ratios else ''} |")
    return "\n".join([*lines, ""])


def shapes(row: str, names: list[str]) -> str:
    """How much faster one model became, a row a machine and shape, a column a precision."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        for entry in _measured(name, row).values():
            shape = found.setdefault(f"{entry['where']}, {entry['batch']} x {entry['length']}", {})
            shape[entry["dtype"]] = _speedup(entry)
    dtypes = list(dict.fromkeys(dtype for cells in found.values() for dtype in cells))
    lines = ["| batch x length | " + " | ".join(dtypes) + " |", "|---" * (len(dtypes) + 1) + "|"]
    for shape_name, cells in found.items():
        lines.append(f"| {shape_name} | " + " | ".join(cells.get(dtype, "") for dtype in dtypes) + " |")
    return "\n".join([*lines, ""])


def _measured(name: str, row: str) -> dict[str, dict[str, Any]]:
    """What `attentrim bench` found of a trimmed model, by precision and shape, and where; nothing if not run."""
    file = HERE / "results" / "speed" / name / f"{row}.json"
    if not file.is_file():
        return {}
    data = json.loads(file.read_text(encoding="utf-8"))
    machine = data["machine"]
    cores = f"{machine['threads']} cores of {machine['cpu']}"
    return {
        f"{entry['dtype']}, {entry['batch']} x {entry['length']}": {
            **entry,
            "where": machine["gpus"][0].removeprefix("NVIDIA ") if entry["device"] == "cuda" else cores,
        }
        for entry in data["rows"]
        if entry["name"] == "model"
    }


def _speedup(entry: dict[str, Any]) -> str:
    return f"{entry['speedup']:.2f} ({'-'.join(f'{value:.2f}' for value in entry['speedup_quartiles'])})"


def cost(name: str, rows: list[str]) -> str:
    """What training took beside the baseline, seed by seed: time, and the most memory; medians."""
    result = results_of(name)
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for run in result["runs"]:
        found.setdefault(run["name"], {})[run["seed"]] = run
    base = found[result["baseline"]]
    lines = ["| run | seconds | times the baseline's | memory, GiB | times the baseline's |", "|---|---|---|---|---|"]
    for row in rows or list(found):
        cells = []
        for key, unit, digits in (("train_seconds", 1, 0), ("peak_memory_bytes", 2**30, 2)):
            values = {seed: run[key] for seed, run in found[row].items()}
            ratio = statistics.median(value / base[seed][key] for seed, value in values.items() if seed in base)
            cells += [f"{statistics.median(values.values()) / unit:.{digits}f}", f"{ratio:.2f}"]
        lines.append(f"| `{row}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def steps(name: str, _rows: list[str]) -> str:
    """What a step costs beside a stock one, alone on a machine."""
    text = (HERE / "results" / "step_cost" / f"{name}.jsonl").read_text(encoding="utf-8")
    lines = ["| method | settings | time, times stock | 95% interval | memory, times |", "|---|---|---|---|---|"]
    for entry in map(json.loads, text.splitlines()):
        settings = " ".join(f"{key}={value}" for key, value in entry["method_config"].items())
        low, high = entry["ratio_total_interval_95"]
        cells = [f"{entry['ratio_total']:.2f}", f"{low:.2f} to {high:.2f}", f"{entry['memory_ratio']:.2f}"]
        lines.append(f"| `{entry['method']}` | {f'`{settings}`' if settings else ''} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def pooled(row: str, places: list[str]) -> str:
    """The mean over tasks of a row's difference to another, seed by seed, with its interval over seeds."""
    baseline, *names = places
    tasks = []
    for name in names:
        tasks.append(_paired(values_of(name), row, baseline))
    seeds = sorted(set.intersection(*(set(task) for task in tasks)))
    means = [statistics.fmean(task[seed] for task in tasks) for seed in seeds]
    low, high = interval(means) or (math.nan, math.nan)
    where = ", ".join(name.rpartition("-")[2] for name in names)
    line = f"`{row}` against `{baseline}` on the mean over {where}: {statistics.fmean(means):+.4f} "
    return line + f"({low:+.4f} to {high:+.4f}), {len(seeds)} seeds.\n"


def across(baseline: str, words: list[str]) -> str:
    """Differences in points to a baseline of the same experiment, with intervals and seeds, a column a task."""
    tasks: dict[str, list[dict[tuple[str, int], float]]] = {}
    for name in (word for word in words if "/" in word):
        tasks.setdefault(name.rpartition("-")[2], []).append(values_of(name))
    lines = [f"| against `{baseline}`, points | " + " | ".join(tasks) + " |", "|---" * (len(tasks) + 1) + "|"]
    for row in (word for word in words if "/" not in word):
        found = [[pairs for values in files if (pairs := _paired(values, row, baseline))] for files in tasks.values()]
        cells = [_points(pairs[0]) if pairs else "not run" for pairs in found]
        lines.append(f"| `{row}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def values_of(name: str) -> dict[tuple[str, int], float]:
    """The metric by row and seed; those of several speeds too."""
    found = {}
    for run in results_of(name)["runs"]:
        found[run["name"], run["seed"]] = run["value"]
        for speed in run.get("speeds", []):
            found[f"{run['name']}@{speed['asked']:g}", run["seed"]] = speed["value"]
    return found


def _paired(values: dict[tuple[str, int], float], row: str, baseline: str) -> dict[int, float]:
    """Differences by seed."""
    return {
        seed: value - values[baseline, seed]
        for (name, seed), value in values.items()
        if name == row and (baseline, seed) in values
    }


def _points(pairs: dict[int, float]) -> str:
    points = [100 * value for value in pairs.values()]
    ends = interval(points)
    shown = f"{ends[0]:+.1f} to {ends[1]:+.1f}; " if ends else ""
    return f"{statistics.fmean(points):+.1f} ({shown}{len(points)} seed{'s' * (len(points) > 1)})"


def results_of(name: str) -> dict[str, Any]:
    """What keep.py kept of EXPERIMENT/MODEL-TASK."""
    return dict(json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8")))


def _cells(entry: dict[str, Any], baseline: str) -> list[str]:
    spread = f" ± {entry['sd']:.4f}" if entry["sd"] is not None else ""
    difference = ""
    if entry["difference"] is not None:
        low, high = entry["interval"] or (None, None)
        interval = f" ({low:+.4f} to {high:+.4f})" if low is not None else ""
        difference = f"{entry['difference']:+.4f}{interval}"
    name = f"`{entry['name']}`" + (", the baseline" if entry["name"] == baseline else "")
    removed = f"{entry['sparsity']:.1%}" if entry["sparsity"] else ""
    uniform = f"{entry['uniform']:g}" if entry["uniform"] else ""
    return [name, f"{entry['mean']:.4f}{spread}", str(entry["seeds"]), difference, removed, uniform]


def filled(text: str) -> str:
    """The page with its tables as they are now."""
    kinds = {
        "results": table,
        "heads": heads,
        "speed": speed,
        "shapes": shapes,
        "cost": cost,
        "steps": steps,
        "pooled": pooled,
        "across": across,
    }
    return BLOCK.sub(lambda found: f"{found[1]}{kinds[found[2]](found[3], found[4].split())}{found[5]}", text)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; say whether the pages are up to date")
    check = parser.parse_args(words).check
    stale = False
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = filled(before)
        if not check:
            page.write_text(after, encoding="utf-8")
        elif before != after:
            stale = True
            print(f"{page.relative_to(HERE.parent)} is not up to date: python benchmarks/tables.py")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
