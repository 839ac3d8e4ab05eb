"""Run the runs: each in a process of its own, so that one that fails takes nothing with it; finished ones are kept."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import AttentrimError
from ..recorded import METRICS
from .experiment import Entry, Experiment

SETTINGS, DATA, LOG = "settings.json", "data.txt", "log.txt"
DONE = "done"
PRELOADED = ("attentrim.cli.train", "attentrim.trainer", "sklearn.metrics")
"""What every run imports: once for all."""
WEIGHTS = ("model*.safetensors", "model.safetensors.index.json", "checkpoint-*", "dense")


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
    """What came of a run: its result as `train` prints it, or why there is none."""

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


def check_kept(runs: Sequence[Run]) -> None:
    """Runs of another experiment must not pass for runs of this one."""
    for run in runs:
        if run.done and json.loads((run.directory / SETTINGS).read_text()) != json.loads(json.dumps(run.settings)):
            raise AttentrimError(
                f"{run.directory} was run with other settings: choose another --output_dir, or delete that directory."
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


def carry_out(
    runs: Sequence[Run], jobs: int, keep_models: bool, report: Callable[[Outcome], None]
) -> Iterator[Outcome]:
    """Run what is not done yet, `jobs` at a time; yields the outcome of each. `report` hears of new ones only."""
    check_kept(runs)
    _forget_those_without_weights(runs)
    workers = _Workers(jobs)
    waiting = [run for run in runs if not run.done]
    yield from (_outcome(run) for run in runs if run.done)
    failed: dict[Path, str] = {}
    pending: dict[Future[str | None], Run] = {}
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while waiting or pending:
                for run in [run for run in waiting if len(pending) < jobs and _ready(run, failed)]:
                    if len(pending) == jobs:
                        break
                    waiting.remove(run)
                    pending[pool.submit(workers.run, run)] = run
                if not pending:
                    run = waiting.pop(0)  # what it needs has failed
                    lost = next(str(place) for place in run.needs if place in failed)
                    failed[run.directory] = f"needs {lost}, which failed"
                    outcome = Outcome(run, error=failed[run.directory])
                    report(outcome)
                    yield outcome
                    continue
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    run = pending.pop(future)
                    error = future.result()
                    if error is not None:
                        failed[run.directory] = error
                    outcome = _outcome(run, error)
                    report(outcome)
                    yield outcome
                    if not keep_models:
                        drop_weights([run], waiting + list(pending.values()))
        finally:
            workers.stop()
    if not keep_models:
        drop_weights(runs, [run for run in runs if not run.done])  # failed ones are tried again


def _forget_those_without_weights(runs: Sequence[Run]) -> None:
    """A run that another one starts from is run again if its weights were dropped."""
    needed = {place for run in runs if not run.done for place in run.needs}
    for run in reversed(runs):
        if run.done and run.directory in needed and not list(run.directory.glob("model*.safetensors")):
            (run.directory / DONE).unlink()
            needed.update(run.needs)


def _ready(run: Run, failed: Mapping[Path, str]) -> bool:
    return all((place / DONE).is_file() for place in run.needs) and not any(place in failed for place in run.needs)


def _outcome(run: Run, error: str | None = None) -> Outcome:
    if error is not None:
        return Outcome(run, error=error)
    return Outcome(run, json.loads((run.directory / METRICS).read_text(encoding="utf-8")))


def drop_weights(runs: Sequence[Run], unfinished: Sequence[Run]) -> None:
    """A comparison keeps figures, not models; those that other runs start from are kept until these are done."""
    needed = {place for run in unfinished for place in run.needs}
    for run in runs:
        for pattern in WEIGHTS if run.done and run.directory not in needed else ():
            for path in run.directory.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


class _Workers:
    """Processes forked from a server that has imported everything and used nothing: no GPU, no threads."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.context: Any = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(list(PRELOADED))
        self.running: set[Any] = set()
        self.stopped = False

    def run(self, run: Run) -> str | None:
        """Why it failed, or None."""
        shutil.rmtree(run.directory, ignore_errors=True)
        run.directory.mkdir(parents=True)
        (run.directory / SETTINGS).write_text(json.dumps(run.settings, indent=2) + "\n", encoding="utf-8")
        (run.directory / DATA).write_text(fingerprint(run), encoding="utf-8")
        process = self.context.Process(target=_train, args=(str(run.directory), self.jobs), daemon=True)
        if self.stopped:
            return "stopped"
        process.start()
        self.running.add(process)
        process.join()
        self.running.discard(process)
        if run.done:  # its own word: how a process ended is not always learned from the server that forked it
            return None
        return _reason(run.directory / LOG, process.exitcode)

    def stop(self) -> None:
        self.stopped = True
        for process in list(self.running):
            process.terminate()


def _reason(log: Path, code: int | None) -> str:
    """The last error in a log, or how the process ended."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    errors = [line.partition("error: ")[2] for line in lines if line.startswith("attentrim: error: ")]
    how = f"killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
    return errors[-1] if errors else f"{how}; see {log}"


def _train(directory: str, jobs: int) -> None:
    """In the process: `attentrim train` with the settings of a run, its words in a log."""
    import torch

    _die_with_the_comparison()
    if jobs > 1:
        # more threads than cores would wait for each other
        torch.set_num_threads(max(1, torch.get_num_threads() // jobs))
    log = os.open(f"{directory}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    from ..cli import main
    from ..run_files import write_yaml

    settings = json.loads(Path(directory, SETTINGS).read_text(encoding="utf-8"))
    write_yaml(Path(directory, "run.yaml"), {"disable_tqdm": True, **settings})
    # runs share the machine: a speed measured here would be of all of them
    code = main(["train", "--config", f"{directory}/run.yaml", "--output_dir", directory, "--no_bench"])
    if code == 0:
        Path(directory, DONE).touch()
    sys.exit(code)


def _die_with_the_comparison() -> None:
    """A comparison that is killed must not leave runs behind that write where the next one does."""
    comparison = multiprocessing.parent_process()
    assert comparison is not None

    def watch() -> None:
        comparison.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
