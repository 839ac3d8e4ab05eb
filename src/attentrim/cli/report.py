"""attentrim report: one HTML page about a run, or about several."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import AttentrimError
from .output import Output

HELP = "write one self-contained HTML page about a run, or one that compares several"
EXAMPLES = """  attentrim report --run run
  attentrim report --run dense --run pruned --out both.html
  attentrim report --run comparison

a directory of `attentrim compare` stands for all of its runs"""

PAGE, COMPARISON = "report.html", "comparison.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run",
        action="append",
        required=True,
        dest="runs",
        metavar="DIR",
        help="a directory written by `attentrim train` or `attentrim compare`; repeat the flag to compare runs",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help=f"the page to write (default: {PAGE} in the run directory; for several runs, {COMPARISON} here)",
    )


def run(args: argparse.Namespace, output: Output) -> None:
    from ..report import write_report
    from ..runs.directories import check_output_file

    out = Path(args.out or (Path(args.runs[0]) / PAGE if len(args.runs) == 1 else COMPARISON))
    for place in args.runs:
        if not Path(place).is_dir():
            raise AttentrimError(f"There is no directory {place}.")
    check_output_file(out)
    found = write_report(args.runs, out)
    missing = {str(run.path): run.missing for run in found if run.missing}
    for place, sentences in missing.items():
        for sentence in sentences:
            output.say(f"{place}: {sentence}")
    size = out.stat().st_size
    output.say(f"written to {out} ({size / 1e6:.2f} MB): open it in a browser")
    output.result({"report": str(out), "bytes": size, "runs": [str(run.path) for run in found], "missing": missing})
