"""attentrim demo: the whole story on a task and a model that need no network."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError
from .models import check_output_dir
from .output import Output, positive

HELP = "fine-tune a small model, learn which heads it needs, take the others out, measure, and show it all"
EXAMPLES = """  attentrim demo
  attentrim demo --output_dir demo"""

TASK = ("--task", "acceptability")
TRAINING = (
    *("--per_device_train_batch_size", "16", "--seed", "0", "--eval_strategy", "no", "--save_strategy", "no"),
    "--no_bench",
)
SCHEDULE = ("--lr_scheduler_type", "constant_with_warmup", "--warmup_steps", "0.05")
DENSE = ("--method", "none", "--learning_rate", "5e-5", *SCHEDULE)
GATES = ("--method", "autoattention", "--learning_rate", "1e-4", "--method_config")
SETTINGS = ("target_sparsity=0.5", "preset=one_shot")
STEPS = {"dense": 340, "gates": 200}
SENTENCES = 504
"""To evaluate on: half of the validation split, to save time."""
BENCH = ("--batch_sizes", "8", "--lengths", "64", "--repeats", "9", "--card")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output_dir", default="attentrim-demo", help="(default: attentrim-demo)")
    parser.add_argument("--max_steps", type=positive, help="stop each training after so many steps, for a quick look")
    parser.add_argument("--max_eval_samples", type=positive, help="evaluate on the first so many sentences only")


def run(args: argparse.Namespace, output: Output) -> None:
    from .models import embedded_model

    started = time.perf_counter()
    directory = check_output_dir(args.output_dir, "")
    dense, small = str(directory / "dense"), str(directory / "trimmed")
    steps = {name: ("--max_steps", str(min(count, args.max_steps or count))) for name, count in STEPS.items()}
    output.say("1 of 4: fine-tune MiniLM-L6 to tell acceptable English sentences from others, with all its heads")
    train = ("train", *TASK, *TRAINING, "--max_eval_samples", str(args.max_eval_samples or SENTENCES))
    before = _run(output, *train, "--model", embedded_model(output), "--output_dir", dense, *steps["dense"], *DENSE)
    output.say("2 of 4: go on training, learn which half of the heads it can do without, and take them out")
    start = ("--model", dense, "--output_dir", small)
    after = _run(output, *train, *start, *steps["gates"], *GATES, *SETTINGS)
    output.say("3 of 4: measure both on this machine, in turns")
    speed = _run(output, "bench", "--model", small, "--against", dense, *BENCH)
    output.say("4 of 4: write a page about it")
    page = _page(output, small, str(directory / "report.html"))
    _report(output, dense, small, before, after, speed, page, time.perf_counter() - started)


def _page(output: Output, run: str, out: str) -> str | None:
    """The report, or why there is none."""
    try:
        return str(_run(output, "report", "--run", run, "--out", out)["report"])
    except MissingExtraError as error:
        output.say(f"no page: {error}")
        return None


class _Listener(Output):
    """Keeps the result of a command and lets its remarks and tables go."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self.found: dict[str, Any] = {}

    def say(self, text: str) -> None:
        """Not shown."""

    def table(self, *args: Any, **kwargs: Any) -> None:
        """Not shown."""

    def result(self, data: dict[str, Any]) -> None:
        self.found = data


def _run(output: Output, *words: str) -> dict[str, Any]:
    """Another command, as if typed; its progress is seen."""
    from . import build_parser

    parser = build_parser()
    args, more = parser.parse_known_args(words)
    args.more, args.words = more, list(words)
    listener = _Listener(output.quiet)
    args.run(args, listener)
    return listener.found


def _report(
    output: Output,
    dense: str,
    small: str,
    before: dict[str, Any],
    after: dict[str, Any],
    speed: dict[str, Any],
    page: str | None,
    seconds: float,
) -> None:
    measured = {row["name"]: row for row in speed["rows"]}
    shape = f"{measured['model']['batch']} x {measured['model']['length']} tokens"
    attending = [sum(kept > 0 for kept in result["heads_kept"]) for result in (before, after)]
    output.table(
        "acceptability, before and after",
        ("", "before", "after"),
        [
            (f"{after['metric']} ({after['examples']} sentences)", f"{before['value']:.3f}", f"{after['value']:.3f}"),
            ("attention heads", sum(before["heads_kept"]), sum(after["heads_kept"])),
            ("layers that attend", *attending),
            ("parameters", before["parameters"], after["parameters"]),
            (
                f"milliseconds ({shape})",
                *(f"{measured[name]['milliseconds_median']:.1f}" for name in ("against", "model")),
            ),
            ("speed-up, measured", "", f"{measured['model']['speedup']:.2f}"),
            ("speed-up, if FLOPs were all", "", f"{measured['model']['flop_ratio']:.2f}"),
        ],
    )
    output.say("(it was trained a little longer with half of its heads, so a better score is no merit of pruning)")
    output.say(f"took {seconds:.0f} s; the models are in {dense} and {small}")
    if page:
        output.say(
            f"open {page} in a browser: heads over training, attention before and after, what was removed and why"
        )
    output.say("Try next:")
    output.say(f"  attentrim evaluate --model {small} --task acceptability --split test")
    output.say(f"  attentrim bench --model {small} --against {dense} --backends sdpa onnx --rivals int8")
    output.say("  attentrim train --model YOUR-MODEL --train_file YOUR.csv --output_dir run")
    output.result(
        {
            "before": before,
            "after": after,
            "speedup": measured["model"]["speedup"],
            "flop_ratio": measured["model"]["flop_ratio"],
            "seconds": seconds,
            "output_dir": str(Path(small).parent),
            "report": page,
        }
    )
