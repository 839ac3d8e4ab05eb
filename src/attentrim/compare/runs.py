"""The runs of an experiment: finished ones are kept, one that fails takes nothing with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..atomic import explaining, write_text
from ..errors import AttentrimError, WriteError
from ..guarded import read_json
from ..runs.files import write_json
from ..runs.reader import METRICS
from .engines import ENGINES, Engine
from .experiment import Entry, Experiment
from .making import DONE, SETTINGS

DATA = "data.txt"
WEIGHTS = ("model*.safetensors", "model.safetensors.index.json", "checkpoint-*", "dense", "speedup-*")


@dataclass(frozen=True)
class Run:
    """One entry with one seed."""

    entry: Entry
    seed: int
    directory: Path
    settings: Mapping[str, Any]
    needs: tuple[Path, ...] = ()
    """Directories of runs that it starts from."""

    @property
    def title(self) -> str:
        return f"{self.entry.name}, seed {self.seed}"

    @property
    def done(self) -> bool:
        return (self.directory / DONE).is_file()


@dataclass
class Outcome:
    """What came of a run: its result as in metrics.json, or why there is none."""

    run: Run
    result: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


def runs_of(experiment: Experiment, directory: Path) -> list[Run]:
    """All runs, seed by seed, so that early results compare all entries."""
    runs = []
    for seed in experiment.seeds:
        places = {entry.name: directory / entry.name / f"seed-{seed}" for entry in experiment.entries}
        for entry in experiment.entries:
            settings = {**entry.filled({name: str(place) for name, place in places.items()}), "seed": seed}
            needs = tuple(places[name] for name in sorted(entry.needs))
            runs.append(Run(entry, seed, places[entry.name], settings, needs))
    return runs


def run_all(
    runs: Sequence[Run],
    jobs: int | None,
    keep_models: bool,
    report: Callable[[Outcome], None],
    engine: str = "local",
) -> Iterator[Outcome]:
    """Run what is not done yet, `jobs` at a time; yields the outcome of each. `report` is called with new ones."""
    check_kept(runs)
    _forget_those_without_weights(runs)
    yield from (_outcome(run) for run in runs if run.done)
    left = [run for run in runs if not run.done]
    for outcome in _outcomes(list(left), engine, jobs):
        left.remove(outcome.run)
        report(outcome)
        yield outcome
        if not keep_models:
            drop_weights([outcome.run], left)
    if not keep_models:
        drop_weights(runs, [run for run in runs if not run.done])  # failed ones are tried again


def _outcomes(waiting: list[Run], name: str, jobs: int | None) -> Iterator[Outcome]:
    """Each run starts when those that it starts from are done; the outcomes in the order in which they come."""
    if not waiting:
        return
    failed = set[Path]()
    pending: dict[Future[str | None], Run] = {}
    with closing(ENGINES[name](jobs)) as engine, ThreadPoolExecutor(engine.jobs) as pool:
        try:
            while waiting or pending:
                for run in [run for run in waiting if _ready(run, failed)][: engine.jobs - len(pending)]:
                    waiting.remove(run)
                    pending[pool.submit(_start, engine, run)] = run
                for outcome in _ended(pending) if pending else [_blocked(waiting.pop(0), failed)]:
                    if outcome.error is not None:
                        failed.add(outcome.run.directory)
                    yield outcome
        finally:
            engine.stop()


def _ready(run: Run, failed: set[Path]) -> bool:
    return all((place / DONE).is_file() for place in run.needs) and failed.isdisjoint(run.needs)


def _start(engine: Engine, run: Run) -> str | None:
    """In a fresh directory; why the run failed, or None."""
    shutil.rmtree(run.directory, ignore_errors=True)
    try:
        with explaining(run.directory):
            run.directory.mkdir(parents=True)
        write_json(run.directory / SETTINGS, run.settings)
        write_text(run.directory / DATA, fingerprint(run))
    except WriteError as error:
        return str(error)
    return engine.run(run.directory)


def _ended(pending: dict[Future[str | None], Run]) -> list[Outcome]:
    """Wait for the next runs to end, and take them out of those that are at work."""
    return [_outcome(pending.pop(future), future.result()) for future in wait(pending, None, FIRST_COMPLETED).done]


def _blocked(run: Run, failed: set[Path]) -> Outcome:
    lost = next(place for place in run.needs if place in failed)
    return Outcome(run, error=f"needs {lost}, which failed")


def _outcome(run: Run, error: str | None = None) -> Outcome:
    if error is not None:
        return Outcome(run, error=error)
    return Outcome(run, read_json(run.directory / METRICS, "the result"))


# What is kept


def check_kept(runs: Sequence[Run]) -> None:
    """Runs of another experiment must not be taken for runs of this one."""
    for run in runs:
        if run.done and read_json(run.directory / SETTINGS, "the settings") != json.loads(json.dumps(run.settings)):
            raise AttentrimError(
                f"{run.directory} was made with other settings: choose another --output_dir, or delete that directory."
            )
        if run.done and (run.directory / DATA).is_file() and (run.directory / DATA).read_text() != fingerprint(run):
            raise AttentrimError(
                f"{run.directory} was run with other data: choose another --output_dir, or delete that directory."
            )


def fingerprint(run: Run) -> str:
    """Sizes and dates of the files that a run reads."""
    named = [run.settings.get(key) for key in ("train_file", "validation_file", "test_file", "data_dir")]
    places = [Path(str(name)) for name in named if name]
    files = [file for place in places for file in (sorted(place.glob("*")) if place.is_dir() else [place])]
    return "".join(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}\n" for file in files if file.is_file())


def _forget_those_without_weights(runs: Sequence[Run]) -> None:
    """A run that another one starts from is run again if its weights were deleted."""
    needed = {place for run in runs if not run.done for place in run.needs}
    for run in reversed(runs):
        if run.done and run.directory in needed and not list(run.directory.glob("model*.safetensors")):
            (run.directory / DONE).unlink()
            needed.update(run.needs)


def drop_weights(runs: Sequence[Run], unfinished: Sequence[Run]) -> None:
    """A comparison keeps figures, not models; those that other runs start from are kept until these are done."""
    needed = {place for run in unfinished for place in run.needs}
    for run in runs:
        for pattern in WEIGHTS if run.done and run.directory not in needed else ():
            for path in run.directory.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
