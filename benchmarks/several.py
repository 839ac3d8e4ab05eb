"""Run rows of several experiments on one machine, in the order of a file's lines.

    python benchmarks/several.py lines.txt --model mpnet-base --tf32 True --jobs 16

Each line of the file is arguments of run.py; the flags of the command apply to every line that does not set them:

    ours-layers --task cola --data_dir glue/CoLA --only top-8,top-10 --seeds 3,4
    ours-tasks --task wnut17 --data_dir wnut17 --num_train_epochs 8 --only hisp --seeds 3,4

Runs that benchmarks/results has already are repeated only where another row starts from them. A start that
experiments share is trained once. Results go where run.py puts them. The same command continues where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from run import compare_words

from attentrim.cli import build_parser
from attentrim.cli.compare import experiment_of
from attentrim.compare.making import DONE, SETTINGS
from attentrim.compare.runs import Outcome, Run, run_all, runs_of
from attentrim.errors import AttentrimError
from attentrim.runs.reader import HISTORY, METRICS, PLAN

HERE = Path(__file__).parent


def runs_of_line(words: Sequence[str]) -> list[Run]:
    """The runs of a line, and those that they start from."""
    name, *flags = words
    args, args.more = build_parser().parse_known_args(compare_words(name, flags))
    place = Path(args.output_dir).resolve()
    return without_those_kept(
        runs_of(experiment_of(args), place), kept_in(HERE / "results" / name / f"{place.name}.json")
    )


def kept_in(file: Path) -> set[tuple[str, int]]:
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"] if file.is_file() else []
    return {(run["name"], run["seed"]) for run in runs}


def without_those_kept(runs: Sequence[Run], kept: set[tuple[str, int]]) -> list[Run]:
    by_place = {run.directory: run for run in runs}
    wanted: set[Path] = set()

    def want(run: Run) -> None:
        wanted.add(run.directory)
        for place in run.needs:
            want(by_place[place])

    for run in runs:
        if (run.entry.name, run.seed) not in kept:
            want(run)
    return [run for run in runs if run.directory in wanted]


def shared(runs: Iterable[Run]) -> tuple[list[Run], dict[Path, Path]]:
    """Each run once, and for runs with the same settings and no start of their own, which one is used instead."""
    found: dict[Path, Run] = {}
    first: dict[str, Path] = {}
    stands_for: dict[Path, Path] = {}
    for run in runs:
        if not run.needs:
            same = first.setdefault(json.dumps(dict(run.settings), sort_keys=True), run.directory)
            if same != run.directory:
                stands_for[run.directory] = same
                continue
        names = {str(place): str(other) for place, other in stands_for.items()}
        needs = tuple(stands_for.get(place, place) for place in run.needs)
        found.setdefault(run.directory, replace(run, settings=_renamed(dict(run.settings), names), needs=needs))
    return list(found.values()), stands_for


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(inner, names) for key, inner in value.items()}
    return names.get(value, value) if isinstance(value, str) else value


def copy_figures(source: Path, target: Path) -> None:
    """The files of a run that keep.py reads."""
    target.mkdir(parents=True, exist_ok=True)
    for name in (SETTINGS, METRICS, PLAN, HISTORY, DONE):
        if (source / name).is_file():
            shutil.copy(source / name, target / name)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, help="a text file; empty lines and those that begin with # are skipped")
    parser.add_argument("--engine", default="local", help="local, or ray (default: local)")
    parser.add_argument("--jobs", type=int, help="runs at a time (default: 1; with ray, one per GPU or machine)")
    parser.add_argument("--dry_run", action="store_true", help="list what would be run, in order")
    args, flags = parser.parse_known_args(words)
    lines = [shlex.split(line, comments=True) for line in args.lines.read_text(encoding="utf-8").splitlines()]
    # a line's own flags come last, and win
    runs, stands_for = shared(run for line in lines if line for run in runs_of_line([line[0], *flags, *line[1:]]))
    title = {run.directory: "/".join(run.directory.parts[-4:]) for run in runs}
    done = sum(run.done for run in runs)
    print(f"{len(runs)} runs" + (f"; {done} of them are done already" if done else ""), flush=True)
    if args.dry_run:
        print(*title.values(), sep="\n")
        return 0

    def report(outcome: Outcome) -> None:
        result = outcome.result
        figures = outcome.error or f"{result['metric']} {result['value']:.4f}, {result['train_seconds']:.0f} s"
        print(f"{title[outcome.run.directory]}: {figures}", flush=True)

    failed = 0
    for outcome in run_all(runs, args.jobs, False, report, args.engine):
        failed += outcome.error is not None
        for place, source in stands_for.items():
            if source == outcome.run.directory and outcome.error is None:
                copy_figures(source, place)
    return int(failed > 0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (AttentrimError, OSError) as error:
        sys.exit(f"several.py: error: {error}")
