"""What a method's training step costs against the stock Trainer's: same model, same batches, alternating steps.

    python benchmarks/step_cost.py                                    # MiniLM-L6 shape on the CPU
    python benchmarks/step_cost.py --device cuda --bf16 --shape base  # BERT-base shape on a GPU
    python benchmarks/step_cost.py --method attendout --phases        # and where its time goes

Two Trainers run in two processes that alternate, so only one computes at a time and both see the same conditions. The
results are the median of the paired ratios and the ratio of the totals (for methods in which some steps do more),
each with its bootstrap interval, and the peak memory above what the process held before it made a model.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import statistics
import tempfile
import time
from typing import Any, ClassVar

# the waiting process must not spin on the cores of the other
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, TrainerCallback, TrainingArguments

import attentrim
from attentrim.methods import METHODS

SHAPES = {
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "base": {},
}
WARM_UP = 10


class Turns(TrainerCallback):
    """Takes steps in the order ABBAABBA..., so that neither side is always first; times each from begin to begin."""

    def __init__(self, which: int, turns: tuple[Any, Any], device: str) -> None:
        self.which, self.mine, self.other, self.device = which, turns[which], turns[1 - which], device
        self.seconds: list[float] = []
        self.started: float | None = None

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self._stop()
        if len(self.seconds) % 2 != self.which:
            self.mine.acquire()
        self.started = time.perf_counter()

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self._stop()

    def _stop(self) -> None:
        if self.started is None:
            return
        if self.device == "cuda":
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self.started)
        if (len(self.seconds) - 1) % 2 == self.which:
            self.other.release()


def train(which: int, args: argparse.Namespace, turns: tuple[Any, Any], results: Any) -> None:
    """Run one of the two Trainers: 0 is the stock one."""
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 20000, (args.batch * 64, args.length), generator=generator)
    data = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": n % 2} for n, row in enumerate(ids)]
    memory = Memory(args.device)
    torch.manual_seed(0)
    timer = Turns(which, turns, args.device)
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory,
            max_steps=args.steps + WARM_UP,
            per_device_train_batch_size=args.batch,
            learning_rate=3e-5,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            bf16=args.bf16,
            use_cpu=args.device == "cpu",
            dataloader_pin_memory=False,
        )
        common: dict[str, Any] = {
            "model": BertForSequenceClassification(BertConfig(**SHAPES[args.shape])),
            "args": arguments,
            "train_dataset": data,
            "eval_dataset": data[:256],
            "callbacks": [timer],
        }
        method = METHODS[args.method](**json.loads(args.method_config)) if args.method != "none" else None
        made = attentrim.Trainer(method=method, **common) if which and method else transformers.Trainer(**common)
        made.remove_callback(transformers.PrinterCallback)
        phases = Phases(made, args.device) if args.phases and which else None
        made.train()
    results.put((which, (timer.seconds, memory.peak(), phases.seconds if phases else {})))


class Memory:
    """Peak memory since the start, in MiB."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

    def peak(self) -> float:
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated() / 2**20
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10 - self.before


class Phases:
    """Seconds in each part of AttendOut."""

    PARTS: ClassVar = {
        "attacker": "game.run_batch",
        "others": "game.take_turn",
        "rewards": "_rewards",
        "generator": "learning.step",
        "restart": "_restart",
    }
    """The session's methods, by part."""

    def __init__(self, trainer: Any, device: str) -> None:
        self.seconds = dict.fromkeys(self.PARTS, 0.0)
        for part, name in self.PARTS.items():
            owner, _, method = name.rpartition(".")
            place = getattr(trainer.session, owner) if owner else trainer.session
            setattr(place, method, self._timed(part, getattr(place, method), device))

    def _timed(self, part: str, inner: Any, device: str) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            result = inner(*args, **kwargs)
            if device == "cuda":
                torch.cuda.synchronize()
            self.seconds[part] += time.perf_counter() - started
            return result

        return timed


def measure(args: argparse.Namespace) -> tuple[list[tuple[float, float]], list[float], dict[str, float]]:
    """(stock, method) seconds for each pair of steps; the memory of either; seconds by part of the method."""
    context = multiprocessing.get_context("spawn")
    turns, results = (context.Semaphore(0), context.Semaphore(0)), context.Queue()
    processes = [context.Process(target=train, args=(which, args, turns, results)) for which in (0, 1)]
    for process in processes:
        process.start()
    found = dict(results.get() for _ in processes)
    for process in processes:
        process.join()
    pairs = list(zip(found[0][0], found[1][0], strict=True))[WARM_UP:]
    return pairs, [found[0][1], found[1][1]], found[1][2]


def interval(pairs: list[tuple[float, float]], figure: Any, draws: int = 2000) -> list[float]:
    """The middle 95% of a statistic over resampled pairs."""
    source = random.Random(0)
    found = sorted(figure(source.choices(pairs, k=len(pairs))) for _ in range(draws))
    return [round(found[int(share * draws)], 4) for share in (0.025, 0.975)]


def median_ratio(pairs: list[tuple[float, float]]) -> float:
    return statistics.median(mine / stock for stock, mine in pairs)


def total_ratio(pairs: list[tuple[float, float]]) -> float:
    return sum(mine for _, mine in pairs) / sum(stock for stock, _ in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="autoattention", help="none measures the stock Trainer against itself")
    parser.add_argument("--method_config", default="{}", help="a JSON object")
    parser.add_argument("--shape", default="minilm", choices=SHAPES)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=16, help="tokens (CoLA's sentences have 11 on average)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument(
        "--phases", action="store_true", help="attendout: seconds by part (waits for the GPU more often)"
    )
    args = parser.parse_args()
    pairs, memory, phases = measure(args)
    result = {
        "method": args.method,
        "method_config": json.loads(args.method_config),
        "shape": args.shape,
        "batch": args.batch,
        "length": args.length,
        "device": args.device,
        "dtype": "bfloat16" if args.bf16 else "float32",
        "pairs": len(pairs),
        "stock_milliseconds": round(1e3 * statistics.median(stock for stock, _ in pairs), 2),
        "ratio_median": round(median_ratio(pairs), 4),
        "ratio_median_interval_95": interval(pairs, median_ratio),
        "ratio_total": round(total_ratio(pairs), 4),
        "ratio_total_interval_95": interval(pairs, total_ratio),
        "memory_mib": [round(part) for part in memory],
        "memory_ratio": round(memory[1] / memory[0], 3),
        **({"seconds_by_part": {part: round(value, 2) for part, value in phases.items()}} if phases else {}),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
