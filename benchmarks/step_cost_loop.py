"""What a method adds to a training step, in one process: two copies of a model alternate in a bare loop.

    python benchmarks/step_cost_loop.py --device cuda --bf16 --shape base --batch 32 --length 128

Between two processes the same step differs by up to 6% on a GPU, since each has its own cores; here both share them.
The Trainer's own work is the same for both and left out, so the ratio is at least as large as under a Trainer.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from attentrim.methods import METHODS

SHAPES: dict[str, dict[str, int]] = {
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "base": {},
}
WARM_UP = 10


class Side:
    """One copy of the model, with a method or without."""

    def __init__(self, args: argparse.Namespace, method: Any) -> None:
        torch.manual_seed(0)
        self.model = BertForSequenceClassification(BertConfig(**SHAPES[args.shape])).to(args.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-5, fused=args.device == "cuda")
        self.autocast = torch.autocast(args.device, torch.bfloat16, enabled=args.bf16)
        if method is not None:
            method.attach(self.model, steps=args.steps + WARM_UP).follow(self.optimizer)

    def step(self, batch: dict[str, torch.Tensor], cuda: bool) -> float:
        started = time.perf_counter()
        with self.autocast:
            loss = self.model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="autoattention")
    parser.add_argument("--method_config", default="{}", help="a JSON object")
    parser.add_argument("--shape", default="minilm", choices=SHAPES)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--bf16", action="store_true")
    args = parser.parse_args()
    method = None if args.method == "none" else METHODS[args.method](**json.loads(args.method_config))
    sides = [Side(args, None), Side(args, method)]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 20000, (args.batch, args.length), generator=generator).to(args.device)
    labels = (torch.arange(args.batch) % 2).to(args.device)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    ratios, stock = [], []
    for number in range(args.steps + WARM_UP):
        order = [0, 1] if number % 2 else [1, 0]
        seconds = {which: sides[which].step(batch, args.device == "cuda") for which in order}
        if number >= WARM_UP:
            ratios.append(seconds[1] / seconds[0])
            stock.append(seconds[0])
    draws = random.Random(0)
    medians = sorted(statistics.median(draws.choices(ratios, k=len(ratios))) for _ in range(1000))
    print(
        json.dumps(
            {
                **{name: getattr(args, name) for name in ("method", "method_config", "shape", "batch", "length")},
                "device": args.device,
                "dtype": "bfloat16" if args.bf16 else "float32",
                "pairs": len(ratios),
                "stock_milliseconds": round(1e3 * statistics.median(stock), 2),
                "ratio_median": round(statistics.median(ratios), 4),
                "ratio_median_interval_95": [round(medians[25], 4), round(medians[975], 4)],
                "torch": torch.__version__,
            }
        )
    )


if __name__ == "__main__":
    main()
