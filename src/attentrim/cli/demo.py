"""attentrim demo: the whole story on a task and a model that need no network."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError
from ..runs.headline import headline_of
from ..runs.settings import EMBEDDED_TASK, RunSettings
from . import bench
from .output import Output, positive

HELP = "fine-tune a small model, make it twice as fast, and report what that cost"
EXAMPLES = """  attentrim demo
  attentrim demo --output_dir demo"""

TRAINING = {"per_device_train_batch_size": 16, "seed": 0, "eval_strategy": "no", "save_strategy": "no"}
SCHEDULE = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 0.05}
DENSE = {"max_steps": 340, "learning_rate": 5e-5, **SCHEDULE}
FASTER = {"max_steps": 240, "learning_rate": 1e-4}
SHAPE = ("8", "64")
"""Sentences per batch, and tokens; the task's sentences are short."""
TWICE = {"speedup": "2.1", "speed_batch": SHAPE[0], "speed_length": SHAPE[1]}
"""A little more than twice: two measurements of one model differ by a few percent."""
FEWEST_STEPS = 3
"""Of a training that reaches a speed."""
SENTENCES = 504
"""To evaluate on: half of the validation split, to save time."""
BENCH = ("--batch_sizes", SHAPE[0], "--lengths", SHAPE[1], "--repeats", "9", "--card")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output_dir",
        default="attentrim-demo",
        help="where to write the models and the report (default: attentrim-demo)",
    )
    parser.add_argument(
        "--max_steps", type=positive, metavar="N", help="stop each training after N steps, for a quick look"
    )
    parser.add_argument(
        "--max_eval_samples", type=positive, metavar="N", help="evaluate only on the first N sentences"
    )


def run(args: argparse.Namespace, output: Output) -> None:
    from ..runs.directories import check_output_dir

    started = time.perf_counter()
    directory = check_output_dir(args.output_dir, "")

    from ..runs.embedded import embedded_model

    dense, small = str(directory / "dense"), str(directory / "trimmed")
    output.say("1 of 4: fine-tune MiniLM-L6 to tell acceptable English sentences from others, with all its heads")
    before = _train(args, output, embedded_model(output.say), dense, DENSE, "none", {})
    output.say("2 of 4: time its blocks; then train on, while heads, neurons and layers go, until it is twice as fast")
    # a quick look is too short to time blocks in
    after = _train(
        args, output, dense, small, FASTER, "fisher", {**TWICE, **({"cost": "flops"} if args.max_steps else {})}
    )
    output.say("3 of 4: measure both on this machine, in turns")
    speed = _bench(output, "--model", small, "--against", dense, *BENCH)
    output.say("4 of 4: write a page about it")
    page = _page(output, small, directory / "report.html")
    output.say(headline_of(after, speed, here=True))
    measured = {row["name"]: row for row in speed["rows"]}
    _show_results(output, before, after, measured)
    _show_next(output, dense, small, page, time.perf_counter() - started)
    output.result(
        {
            "before": before,
            "after": after,
            "speedup": measured["model"]["speedup"],
            "flop_ratio": measured["model"]["flop_ratio"],
            "seconds": time.perf_counter() - started,
            "output_dir": str(directory),
            "report": page,
        }
    )


def _train(
    args: argparse.Namespace,
    output: Output,
    model: str,
    output_dir: str,
    training: dict[str, Any],
    method: str,
    method_config: dict[str, Any],
) -> dict[str, Any]:
    """A run; its progress is seen, its remarks are not."""
    from ..runs import pipeline
    from .progress import CompactProgress

    steps = max(FEWEST_STEPS, min(training["max_steps"], args.max_steps or training["max_steps"]))
    quiet = {"disable_tqdm": True} if output.quiet else {}
    settings = RunSettings(
        model=model,
        task=EMBEDDED_TASK,
        max_eval_samples=args.max_eval_samples or SENTENCES,
        output_dir=output_dir,
        method=method,
        method_config=method_config,
        training={**TRAINING, **training, "max_steps": steps, **quiet},
        overwrite_output_dir=True,
        no_bench=True,
    )
    return pipeline.run(settings, progress=CompactProgress).result


def _page(output: Output, run: str, out: Path) -> str | None:
    """The report, or why there is none."""
    from ..report import write_report

    try:
        write_report([run], out)
    except MissingExtraError as error:
        output.say(f"no page: {error}")
        return None
    return str(out)


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


def _bench(output: Output, *words: str) -> dict[str, Any]:
    """`attentrim bench`, as if typed."""
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    listener = _Listener(output.quiet)
    bench.run(parser.parse_args(words), listener)
    return listener.found


def _show_results(
    output: Output, before: dict[str, Any], after: dict[str, Any], measured: dict[str, dict[str, Any]]
) -> None:
    shape = f"{measured['model']['batch']} x {measured['model']['length']} tokens"
    output.table(
        "acceptability, before and after",
        ("", "before", "after"),
        [
            (f"{after['metric']} ({after['examples']} sentences)", f"{before['value']:.3f}", f"{after['value']:.3f}"),
            ("attention heads", sum(before["heads_kept"]), sum(after["heads_kept"])),
            ("neurons", sum(before["neurons_kept"]), sum(after["neurons_kept"])),
            ("layers", *(len(result["heads_kept"]) - len(result["layers_removed"]) for result in (before, after))),
            ("parameters", before["parameters"], after["parameters"]),
            (
                f"milliseconds ({shape})",
                *(f"{measured[name]['milliseconds_median']:.1f}" for name in ("against", "model")),
            ),
            ("measured speed-up", "", f"{measured['model']['speedup']:.2f}"),
            ("theoretical speed-up (FLOPs)", "", f"{measured['model']['flop_ratio']:.2f}"),
        ],
    )
    output.say("(it was trained longer than the dense model, so a better score is not due to pruning)")


def _show_next(output: Output, dense: str, small: str, page: str | None, seconds: float) -> None:
    output.say(f"took {seconds:.0f} s; the models are in {dense} and {small}")
    if page:
        output.say(
            f"open {page} in a browser: heads over training, attention before and after, what was removed and why"
        )
    output.say("Try next:")
    output.say(f"  attentrim evaluate --model {small} --task acceptability --split test")
    output.say(f"  attentrim bench --model {small} --against {dense} --backends sdpa onnx --rivals int8")
    output.say("  attentrim train --model YOUR-MODEL --train_file YOUR.csv --speedup 2 --output_dir run")
