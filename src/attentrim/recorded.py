"""A run as its directory tells it: what is there, and what is missing. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import AttentrimError, PlanError
from .plan import Plan

if TYPE_CHECKING:
    from numpy import ndarray

HISTORY, METRICS, CONFIG, ATTENTION, CARD, PLAN, BENCH = (
    "history.jsonl",
    "metrics.json",
    "config.yaml",
    "attention.safetensors",
    "README.md",
    "plan.json",
    "bench.json",
)
MOMENTS = ("before", "after")
BY_HEAD = ("heads", "gates", "gate_parameters", "scores", "closed", "reopened")
"""What lines of a history tell of single heads."""


@dataclass(frozen=True)
class Gates:
    """Head gates at one step, by site and head in the numbering of the full model. None: there is no such head."""

    step: int
    open: list[list[bool | None]]
    values: list[list[float | None]] | None = None
    """Gate parameters, or the scores that heads were chosen by."""

    @property
    def count(self) -> int:
        return sum(gate is True for site in self.open for gate in site)


@dataclass(frozen=True)
class Sentence:
    """One of the run's own examples, and how the model attended to it."""

    text: str
    tokens: list[str]
    maps: Mapping[str, Mapping[int, ndarray]]
    """By moment and site: [heads, query, key], heads being those the run started with."""


@dataclass
class Recorded:
    """What a run left. `missing` says in words what it did not."""

    path: Path
    metrics: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    plan: Plan | None = None
    config: dict[str, Any] = field(default_factory=dict)
    config_text: str = ""
    bench: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: str | Path) -> Recorded:
        """Whatever is there; raises where nothing of a run is."""
        run = cls(Path(path))
        if not run.path.is_dir():
            raise AttentrimError(f"There is no directory {path}.")
        if not any((run.path / name).is_file() for name in (HISTORY, METRICS, CONFIG, PLAN)):
            raise AttentrimError(f"{path} is no run: it holds none of {HISTORY}, {METRICS}, {CONFIG} and {PLAN}.")
        run.history = run._read(HISTORY, _lines, "there are no curves and no head map over training") or []
        run.metrics = run._read(METRICS, _result, "the run has not ended, or its evaluation failed") or {}
        run.config_text = run._read(CONFIG, str, "its settings are not known") or ""
        run.config = _yaml(run.config_text)
        run.plan = run._read(PLAN, _plan, "what was removed is not known")
        if run.plan is None:
            run.plan = _last_plan(run)
        run.bench = run._read(BENCH, _object, None) or {}
        run._check_heads()
        return run

    def _check_heads(self) -> None:
        """History and plan must be of one run, and say which heads they speak of."""
        if self.plan is None:
            return
        sites = self.plan.shapes["sites"]
        known = next((line["heads"] for line in self.history if line.get("heads")), None)
        rows: list[list[int]] = next((line["gates"] for line in self.history if line.get("gates")), [])
        if known is not None:
            fits = len(known) == len(sites) and all(
                set(heads) <= set(range(site.heads)) for heads, site in zip(known, sites, strict=True)
            )
            present = sum(bool(heads) for heads in known)
            fits = fits and (not rows or len(rows) == present)
            problem = f"{HISTORY} is of another model than {PLAN}"
        else:
            fits = not rows or [len(row) for row in rows] == [site.groups for site in sites if site.heads]
            problem = f"{HISTORY} does not say which heads its gates are of"
        if not fits:
            self.missing.append(f"{problem}: the gates over training are left out.")
            self.history = [
                {name: value for name, value in line.items() if name not in BY_HEAD} for line in self.history
            ]

    def _read(self, name: str, parse: Callable[[str], Any], loss: str | None) -> Any:
        """The content of a file, or None; `loss` says what a reader misses without it."""
        try:
            return parse((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            if loss is not None:
                self.missing.append(f"There is no {name}: {loss}.")
        except (OSError, ValueError, PlanError) as error:
            self.missing.append(f"{name} cannot be read ({' '.join(str(error).split())}).")
        return None

    # What it was

    @property
    def method(self) -> str:
        return str(self.metrics.get("method") or self.config.get("method") or self.made_by.get("method") or "unknown")

    @property
    def made_by(self) -> Mapping[str, Any]:
        return self.plan.made_by if self.plan is not None else {}

    @property
    def model(self) -> str:
        """The last part of the name of the model that it started from."""
        name = str(
            self.metrics.get("model") or self.config.get("model") or ("MiniLM-L6" if self.config else "a model")
        )
        return name.replace("\\", "/").rstrip("/").rpartition("/")[2] or name

    @property
    def task(self) -> str:
        files = self.config.get("train_file") or self.config.get("dataset")
        name = (
            self.metrics.get("task")
            or self.config.get("task")
            or self.config.get("task_name")
            or (files and Path(str(files)).name)
        )
        return str(name or "an unknown task")

    @property
    def seed(self) -> int | None:
        return self.metrics.get("seed", self.config.get("seed"))

    # Its curves

    def curve(self, name: str, along: str = "step") -> tuple[list[float], list[float]]:
        """A number of the log over steps or epochs; of several lines at one step, the last."""
        found = {
            float(line[along]): float(line[name])
            for line in self.history
            if isinstance(line.get(name), int | float) and isinstance(line.get(along), int | float)
        }
        places = sorted(found)
        return places, [found[place] for place in places]

    def by_site(self, name: str) -> tuple[list[int], list[list[float]]]:
        """Steps, and at each of them a number for each site that has heads."""
        found = {int(line["step"]): line[name] for line in self.history if line.get(name)}
        longest = max((len(values) for values in found.values()), default=0)
        whole = {step: values for step, values in found.items() if len(values) == longest}
        return list(whole), list(whole.values())

    @property
    def last_step(self) -> int:
        return max((int(line.get("step", 0)) for line in self.history), default=0)

    # Its heads

    @cached_property
    def start(self) -> list[list[int]]:
        """By site, the heads that the run started with, as the full model numbers them."""
        for line in self.history:
            if line.get("heads"):
                return [list(heads) for heads in line["heads"]]
        if self.plan is not None:
            return [list(range(site.heads)) for site in self.plan.shapes["sites"]]
        rows: list[list[int]] = next((line["gates"] for line in self.history if line.get("gates")), [])
        return [list(range(len(row))) for row in rows]

    @cached_property
    def width(self) -> list[int]:
        """How many heads each site of the full model has."""
        if self.plan is not None:
            return [site.heads for site in self.plan.shapes["sites"]]
        return [max(heads, default=-1) + 1 for heads in self.start]

    @cached_property
    def gates(self) -> list[Gates]:
        """The head gates at each recorded step; of several lines at one step, the last."""
        found: dict[int, Gates] = {}
        for line in self.history:
            if line.get("gates"):
                values = line.get("gate_parameters") or line.get("scores")
                found[int(line["step"])] = Gates(
                    int(line["step"]),
                    self._spread(line["gates"], bool),
                    self._spread(values, float) if values else None,
                )
        return list(found.values())

    def _spread(self, rows: Sequence[Sequence[Any]], kind: Callable[[Any], Any]) -> list[list[Any]]:
        """Rows by site with heads and by group of heads, laid out by site and head of the full model."""
        result: list[list[Any]] = [[None] * width for width in self.width]
        present = [index for index, heads in enumerate(self.start) if heads]
        for site, row in zip(present, rows, strict=False):
            heads = self.start[site]
            size = max(1, len(heads) // max(1, len(row)))
            for position, head in enumerate(heads):
                if position // size < len(row) and row[position // size] is not None:
                    result[site][head] = kind(row[position // size])
        return result

    def events(self) -> dict[tuple[int, int], list[tuple[int, bool]]]:
        """By site and head: (step, whether it opened), in order."""
        found: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        rows: list[list[int]] = next((line["gates"] for line in self.history if line.get("gates")), [])
        sizes = dict(zip([index for index, heads in enumerate(self.start) if heads], map(len, rows), strict=False))
        for line in self.history:
            for name, opened in (("closed", False), ("reopened", True)):
                for step, site, gate in line.get(name) or []:
                    heads = self.start[site] if site < len(self.start) else []
                    size = max(1, len(heads) // max(1, sizes.get(site, len(heads))))
                    for head in heads[gate * size : (gate + 1) * size]:
                        found.setdefault((site, head), []).append((step, opened))
        return {key: sorted(happened) for key, happened in found.items()}

    # Its attention

    @cached_property
    def sentences(self) -> list[Sentence]:
        """The examples whose attention was recorded."""
        path = self.path / ATTENTION
        if not path.is_file():
            self.missing.append(f"There is no {ATTENTION}: the attention of its sentences was not kept.")
            return []
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "numpy") as file:
                words = file.metadata() or {}
                tokens, texts = (json.loads(words.get(name) or "[]") for name in ("tokens", "texts"))
                maps: list[dict[str, dict[int, ndarray]]] = [{} for _ in tokens]
                for key in file.keys():  # noqa: SIM118
                    moment, sentence, site = key.split(".")
                    maps[int(sentence)].setdefault(moment, {})[int(site)] = file.get_tensor(key)
        except (OSError, ValueError, IndexError, SafetensorError) as error:
            self.missing.append(f"{ATTENTION} cannot be read ({' '.join(str(error).split())}).")
            return []
        return [
            Sentence(texts[number] if number < len(texts) else " ".join(found), found, maps[number])
            for number, found in enumerate(tokens)
        ]

    def attention_changed(self) -> dict[int, float]:
        """By site: 1 - cosine of a kept head's attention before and after, the mean over heads and sentences."""
        import numpy

        found: dict[int, list[float]] = {}
        for sentence in self.sentences:
            before, after = (sentence.maps.get(moment, {}) for moment in MOMENTS)
            for site in before.keys() & after.keys():
                kept = self._kept_positions(site, len(before[site]))
                if not kept or before[site].shape != after[site].shape:
                    continue
                a, b = (side[site][kept].reshape(len(kept), -1).astype(numpy.float64) for side in (before, after))
                norms = numpy.linalg.norm(a, axis=1) * numpy.linalg.norm(b, axis=1)
                found.setdefault(site, []).extend((1 - (a * b).sum(1) / numpy.maximum(norms, 1e-12)).tolist())
        return {site: sum(values) / len(values) for site, values in sorted(found.items()) if values}

    def _kept_positions(self, site: int, recorded: int) -> list[int]:
        """Where, among the recorded heads, those are that the run kept; nothing where that is not known."""
        heads = self.start[site] if site < len(self.start) else []
        if len(heads) != recorded:
            return []
        if self.plan is None:
            return list(range(len(heads)))
        if site in self.plan.uniform:
            return []
        kept = set(self.plan.kept("heads", site))
        return [position for position, head in enumerate(heads) if head in kept]


def entries(runs: Sequence[Recorded]) -> list[str]:
    """What each run is called among others. Those in `NAME/seed-N` are called NAME, whatever the seed; of different
    places with the same name, as much of the path is told as keeps them apart."""
    places = [run.path.resolve() for run in runs]
    places = [place.parent if place.name.startswith("seed-") else place for place in places]
    names = {place: place.name for place in places}
    for depth in range(2, 1 + max(len(place.parts) for place in places)):
        shared = {name for name in names.values() if list(names.values()).count(name) > 1}
        if not shared:
            break
        names = {place: "/".join(place.parts[-depth:]) if name in shared else name for place, name in names.items()}
    return [names[place] for place in places]


def as_run(run: str | Path | Recorded) -> Recorded:
    return run if isinstance(run, Recorded) else Recorded.read(run)


def _lines(text: str) -> list[dict[str, Any]]:
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


def _result(text: str) -> dict[str, Any]:
    """What `attentrim train` writes; other tools have files of this name too."""
    data = _object(text)
    kinds = {"metric": str, "value": int | float, "metrics": dict, "examples": int}
    for name, kind in kinds.items():
        if not isinstance(data.get(name), kind):
            raise ValueError(f"it is no result of attentrim: {name!r} is {data.get(name)!r}")
    data["metrics"] = {name: value for name, value in data["metrics"].items() if isinstance(value, int | float)}
    return data


def _object(text: str) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data


def _plan(text: str) -> Plan:
    return Plan.from_dict(json.loads(text), source="it")


def _yaml(text: str) -> dict[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    if not isinstance(data, dict):
        return {}
    return data if isinstance(data.get("method_config") or {}, dict) else {**data, "method_config": {}}


def _last_plan(run: Recorded) -> Plan | None:
    """Of a run that was stopped: the plan at its last checkpoint, if it is in the full model's numbering."""
    found = sorted(run.path.glob(f"checkpoint-*/{PLAN}"), key=lambda file: _number(file.parent.name))
    try:
        plan = Plan.load(found[-1]) if found else None
    except PlanError:
        return None
    heads = next((line["heads"] for line in run.history if line.get("heads")), None)
    fits = plan is not None and heads == [list(range(site.heads)) for site in plan.shapes["sites"]]
    if fits:
        run.missing.append(f"What is shown as removed is what stood in {found[-1].parent.name}.")
    return plan if fits else None


def _number(name: str) -> int:
    """checkpoint-500 -> 500"""
    return int("".join(filter(str.isdigit, name)) or 0)
