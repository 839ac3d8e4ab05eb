"""Numbers inside sentences: `<!-- n: NAME -->+0.1 (-0.1 to +0.4)<!-- /n -->`, where numbers.yaml says what NAME is.

    speed-2: {difference: fisher-2, to: dense-longer, in: [ours-speed/mpnet-base-cola, ours-speed/mpnet-base-mrpc]}
    words:   {at: vocabulary-MiniLM-L6-sst2.json/dev/with_all_tokens_kept, as: "{:,}"}

- `difference`: in points, with its interval; over several tasks the mean of those, seed by seed
- `mean`, `removed`: a row's own mean, and the share of heads that it removed
- `kept`: heads kept in a layer, the mean over `layers`
- `last`: what the method recorded at the end of training
- `cost`: time or memory of training against the baseline's
- `below`: in how many runs the last layer's drop rate ended below those of the first two
- `at`: a value in a raw file, by keys, places in lists, or `key=value` for the first item that has it

`show: mean` leaves out the interval, `show: loss` turns the sign too, `show: range` gives the least and the largest.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from attentrim.runs.files import read_config

from . import compared, formats
from .compared import means_by_seed, raw_link
from .raw import BENCHMARKS, RESULTS, Place, by_task, find, paired


@cache
def definitions() -> dict[str, Any]:
    return dict(read_config(str(BENCHMARKS / "numbers.yaml"))["numbers"])


def number(name: str) -> str:
    return written(definitions()[name])


def written(rule: Mapping[str, Any]) -> str:
    if "at" in rule:
        return str(rule["as"]).format(value_at(rule["at"]))
    tasks = by_task(rule["in"])
    if "difference" not in rule:
        return _of_a_row(tasks, rule)
    pairs = [paired(places, rule["difference"], rule["to"]) for places in tasks.values()]
    found = list(pairs[0].values()) if len(pairs) == 1 else means_by_seed(pairs)
    assert found, f"{rule}: no seed has both"
    return _shown(found, rule, sign="+")


def _of_a_row(tasks: Mapping[str, list[Place]], rule: Mapping[str, Any]) -> str:
    kind = next(key for key in ("mean", "removed", "kept", "last", "below", "cost") if key in rule)
    if kind == "cost":
        return f"{compared.cost_ratio(next(iter(tasks.values()))[0], rule[kind], rule['what']):.2f}"
    runs = [run for places in tasks.values() for run in _runs(places, rule[kind])]
    match kind:
        case "mean":
            return _shown([run["value"] for run in runs], rule, sign="")
        case "removed":
            return _shown([run["sparsity"] for run in runs], rule, sign="")
        case "kept":
            return f"{statistics.fmean(run['heads_kept'][layer] for run in runs for layer in rule['layers']):.1f}"
        case "last":
            found = [run["last"][rule["what"]] for run in runs]
            return f"{min(found):,} to {max(found):,}"
    rates = [run["last"]["drop_rates"] for run in runs]
    return f"{sum(each[-1] < min(each[:2]) for each in rates)} of {len(rates)}"


def _runs(places: list[Place], row: str) -> list[dict[str, Any]]:
    place = find(places, row)
    assert place, f"{row} is in none of {[place.name for place in places]}"
    return list(place.rows[row].runs.values())


def _shown(values: list[float], rule: Mapping[str, Any], sign: str) -> str:
    """In points."""
    points = [100 * value for value in values]
    mean = statistics.fmean(points)
    shape = f"{{:{sign}.{rule.get('digits', 1)}f}}"
    match rule.get("show"):
        case "loss":
            return f"{-mean:.1f}"
        case "range":
            return f"{shape.format(min(points))} to {shape.format(max(points))}"
        case None if sign:
            return formats.difference(values)
    return shape.format(mean)


def value_at(path: str) -> Any:
    """`FILE.json/key/3/key=value/key`."""
    file, kind, rest = re.split(r"(\.jsonl?)/", path, maxsplit=1)
    text = (RESULTS / f"{file}{kind}").read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines()] if kind == ".jsonl" else json.loads(text)
    for step in rest.split("/"):
        if isinstance(found, list) and "=" in step:
            wanted = dict(part.split("=", 1) for part in step.split(","))
            found = next(item for item in found if all(str(item.get(key)) == value for key, value in wanted.items()))
        else:
            found = found[int(step) if isinstance(found, list) else step]
    return found


def values(page: Path, words: Sequence[str], options: dict[str, str]) -> str:
    """`values: FILE.json/PATH FORMAT`, then `columns: A | B` and lines `ROW: PATH | PATH`: a table from any file."""
    file, shape = words
    header, *_ = options.values()
    lines = [
        [label, *(shape.format(value_at(f"{file}/{path.strip()}")) for path in paths.split("|"))]
        for label, paths in list(options.items())[1:]
    ]
    source = raw_link(page, file.partition(".json")[0])
    return f"{formats.table([cell.strip() for cell in header.split('|')], lines)}\n{source}.\n"
