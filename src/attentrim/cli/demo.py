"""attentrim demo: the whole story on a task and a model that need no network."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from .models import check_output_dir
from .output import Output

HELP = "fine-tune a small model, learn which heads it needs, take the others out, and measure"
EXAMPLES = """  attentrim demo
  attentrim demo --output_dir demo"""

TASK = ("--task", "acceptability")
TRAINING = ("--learning_rate", "2e-4", "--per_device_train_batch_size", "32", "--seed", "0", "--save_strategy", "no")
DENSE = ("--method", "none", "--num_train_epochs", "2")
GATES = ("--method", "autoattention", "--num_train_epochs", "2", "--method_config")
SETTINGS = ("target_sparsity=0.5", "preset=one_shot", "distill_logits=1", "distill_hidden=1")
BENCH = ("--batch_sizes", "8", "--lengths", "64", "--repeats", "9")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output_dir", default="attentrim-demo", help="(default: attentrim-demo)")
    parser.add_argument("--max_steps", type=int, default=-1, help="stop each training early, for a look")


def run(args: argparse.Namespace, output: Output) -> None:
    from .models import embedded_model

    started = time.perf_counter()
    directory = check_output_dir(args.output_dir, "")
    dense, small = str(directory / "dense"), str(directory / "trimmed")
    steps = ("--max_steps", str(args.max_steps), *TRAINING)
    output.say("1 of 3: fine-tune MiniLM-L6 to tell acceptable English sentences from others, with all its heads")
    before = _run("train", "--model", embedded_model(output), *TASK, "--output_dir", dense, *DENSE, *steps)
    output.say("2 of 3: learn which half of the heads it can do without, and take them out")
    after = _run(
        "train", "--model", dense, "--teacher", dense, *TASK, "--output_dir", small, *steps, *GATES, *SETTINGS
    )
    output.say("3 of 3: measure both on this machine, in turns")
    speed = _run("bench", "--model", small, "--against", dense, *BENCH)
    _report(output, dense, small, before, after, speed, time.perf_counter() - started)


class _Listener(Output):
    """Keeps the result of a command and lets its remarks and tables go."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.found: dict[str, Any] = {}

    def table(self, *args: Any, **kwargs: Any) -> None:
        """Not shown."""

    def result(self, data: dict[str, Any]) -> None:
        self.found = data


def _run(*words: str) -> dict[str, Any]:
    """Another command, as if typed; its progress is seen."""
    from . import build_parser

    parser = build_parser()
    args, more = parser.parse_known_args(words)
    args.more, args.words = more, list(words)
    listener = _Listener()
    args.run(args, listener)
    return listener.found


def _report(
    output: Output,
    dense: str,
    small: str,
    before: dict[str, Any],
    after: dict[str, Any],
    speed: dict[str, Any],
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
    output.say(f"took {seconds:.0f} s; the models are in {dense} and {small}. Try next:")
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
        }
    )
