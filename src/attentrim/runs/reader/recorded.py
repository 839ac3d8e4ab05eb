"""A run as its directory tells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AttentrimError, PlanError
from ...guarded import MOST_BYTES, MOST_DIGITS, MOST_HISTORY_BYTES, belongs, read_text
from .attention import Sentence, attention_changed, read_sentences
from .files import (
    ATTENTION,
    BENCH,
    BY_HEAD,
    CONFIG,
    HISTORY,
    METRICS,
    PLAN,
    bench_of,
    config_of,
    history_of,
    is_run,
    metrics_of,
    plan_of,
)
from .gates import Events, Gates, Layout, first, gate_events, gates_over_training, mismatch
from .speeds import LayerTimes, SpeedPoint, layer_times_of, speeds_of

if TYPE_CHECKING:
    from ...plan import Plan


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
        if not is_run(run.path):
            raise AttentrimError(
                f"{path} is not a run directory: it holds none of {HISTORY}, {METRICS}, {CONFIG} and {PLAN}."
            )
        run.history = run._read(HISTORY, history_of, "there are no curves and no head map over training") or []
        run.metrics = run._read(METRICS, metrics_of, "the run has not ended, or its evaluation failed") or {}
        run.config_text = run._read(CONFIG, str, "its settings are not known") or ""
        run.config = config_of(run.config_text)
        run.plan = run._read(PLAN, plan_of, "what was removed is not known")
        if run.plan is None:
            run.plan = run._last_plan()
        run.bench = run._read(BENCH, bench_of, None) or {}
        run._check_heads()
        return run

    def _read(self, name: str, parse: Callable[[str], Any], loss: str | None) -> Any:
        """The content of a file, or None; `loss` says what a reader misses without it."""
        try:
            return parse(read_text(self.path / name, MOST_HISTORY_BYTES if name == HISTORY else MOST_BYTES))
        except FileNotFoundError:
            if loss is not None:
                self.missing.append(f"There is no {name}: {loss}.")
        except (OSError, AttentrimError) as error:
            self._cannot_read(name, error)
        return None

    def _cannot_read(self, name: str, error: Exception) -> None:
        self.missing.append(f"{name} cannot be read ({' '.join(str(error).split())}).")

    def _last_plan(self) -> Plan | None:
        """Of a run that was stopped: the plan at its last checkpoint, if it is in the full model's numbering."""
        files = [file for file in self.path.glob(f"checkpoint-*/{PLAN}") if belongs(file, self.path)]
        found = sorted(files, key=lambda file: _number(file.parent.name))
        try:
            from ...plan import Plan

            plan = Plan.load(found[-1]) if found else None
        except PlanError:
            return None
        if plan is None or first(self.history, "heads") != [list(range(site.heads)) for site in plan.shapes["sites"]]:
            return None
        self.missing.append(f"What is shown as removed is what stood in {found[-1].parent.name}.")
        return plan

    def _check_heads(self) -> None:
        """History and plan must be of one run, and say which heads they mean."""
        problem = None if self.plan is None else mismatch(self.history, self.plan)
        if problem:
            self.missing.append(f"{problem}: the gates over training are left out.")
            self.history = [
                {name: value for name, value in line.items() if name not in BY_HEAD} for line in self.history
            ]

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
    def data(self) -> str:
        """What it was trained on: the user's own file or data set by its name, otherwise the task."""
        own = self.config.get("train_file") or (None if self.config.get("task") else self.config.get("dataset"))
        return Path(str(own)).name if own else self.task

    @property
    def validation_data(self) -> str:
        """What it was measured on."""
        own = self.config.get("validation_file")
        return Path(str(own)).name if own else self.data

    @property
    def repeatable(self) -> bool:
        """Whether its config is that of a command; a script's is not."""
        return any(self.config.get(name) for name in ("task", "train_file", "dataset"))

    @property
    def seed(self) -> int | None:
        found = self.metrics.get("seed", self.config.get("seed"))
        return found if isinstance(found, int) else None

    # What it cost

    @property
    def before(self) -> Mapping[str, Any]:
        """Metrics of the dense model, and which one that is (`of`); empty where nobody measured one."""
        return self.metrics.get("before") or {}

    @cached_property
    def layer_times(self) -> LayerTimes | None:
        """Where the time goes, layer by layer; None where the run does not say."""
        return layer_times_of(self.metrics)

    @cached_property
    def speeds(self) -> list[SpeedPoint]:
        """The models that this training left, slowest first; none where it left one."""
        return speeds_of(self.metrics)

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
    def _layout(self) -> Layout:
        return Layout.of(self.history, self.plan)

    @property
    def start(self) -> list[list[int]]:
        """By site, the heads that the run started with, as the full model numbers them."""
        return self._layout.start

    @property
    def width(self) -> list[int]:
        """How many heads each site of the full model has."""
        return self._layout.width

    @cached_property
    def gates(self) -> list[Gates]:
        """The head gates at each recorded step; of several lines at one step, the last."""
        return gates_over_training(self.history, self._layout)

    def events(self) -> Events:
        """By site and head: (step, whether it opened), in order."""
        return gate_events(self.history, self._layout)

    # Its attention

    @cached_property
    def sentences(self) -> list[Sentence]:
        """The examples whose attention was recorded."""
        if not (self.path / ATTENTION).is_file():
            self.missing.append(f"There is no {ATTENTION}: the attention of its sentences was not kept.")
            return []
        try:
            if not belongs(self.path / ATTENTION, self.path):
                raise ValueError("it is a link out of its directory")
            return read_sentences(self.path / ATTENTION)
        except (OSError, ValueError) as error:
            self._cannot_read(ATTENTION, error)
            return []

    def attention_changed(self) -> dict[int, float]:
        """By site: 1 - cosine of a kept head's attention before and after, the mean over heads and sentences."""
        return attention_changed(self.sentences, self._kept_positions)

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


def _number(name: str) -> int:
    """checkpoint-500 -> 500"""
    return int("".join(digit for digit in name if "0" <= digit <= "9")[-MOST_DIGITS:] or 0)
