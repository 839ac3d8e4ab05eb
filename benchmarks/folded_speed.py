"""How much faster a model of BERT-base's shape is with uniform or narrower attention: dense and trimmed, interleaved.

python benchmarks/folded_speed.py --shapes 8x128 4x256 2x512 --profile
python benchmarks/folded_speed.py --shapes 8x128 --widths p50 p35
python benchmarks/folded_speed.py --shapes 1x128 32x128 32x256 32x512 --device cuda --dtypes tf32 bfloat16 \\
    --backends sdpa cudagraph
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

import torch
from transformers import BertConfig, BertModel

from attentrim import Plan, trim
from attentrim.bench import BACKENDS, DTYPES, measure

WIDTHS = {
    "p50": (
        (12, 12, 11, 12, 12, 11, 9, 5, 3, 2, 1, 3),
        (2524, 2698, 2703, 2594, 2310, 1735, 795, 126, 56, 36, 18, 37),
    ),
    "p35": (
        (10, 9, 10, 10, 12, 9, 5, 3, 2, 1, 1, 1),
        (1534, 1873, 2020, 1867, 1299, 886, 347, 52, 29, 23, 7, 15),
    ),
    "q35": ((10, 9, 10, 10, 12, 9, 5, 3), (1536, 1856, 2048, 1856, 1280, 896, 320, 64)),
}
"""Heads and neurons kept by layer, as found by training; layers that are not listed are removed."""


def plan_of_widths(model: BertModel, name: str) -> Plan:
    heads, neurons = WIDTHS[name]
    return Plan.of(
        model,
        heads={site: range(kept, 12) for site, kept in enumerate(heads)},
        neurons={block: range(kept, 3072) for block, kept in enumerate(neurons)},
        layers=range(len(heads), 12),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["4x256"], help="batch x length, such as 4x256")
    parser.add_argument("--uniform", type=int, default=11, help="uniform sites of 12, from the top")
    parser.add_argument("--widths", nargs="+", default=[], choices=WIDTHS, help="these widths, in place of --uniform")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", nargs="+", default=["float32"], choices=DTYPES)
    parser.add_argument("--backends", nargs="+", default=["sdpa"], choices=BACKENDS)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--profile", action="store_true", help="also show where each model's time goes, in float32")
    args = parser.parse_args()
    torch.manual_seed(0)
    dense = BertModel(BertConfig(), add_pooling_layer=False).eval()
    plans = {name: plan_of_widths(dense, name) for name in args.widths}
    plans = plans or {f"uniform-{args.uniform}": Plan.of(dense, uniform=range(12 - args.uniform, 12))}
    shapes = [(int(batch), int(length)) for batch, length in (shape.split("x") for shape in args.shapes)]
    for name, plan in plans.items():
        compare(name, dense, trim(dense, plan), shapes, args)


def compare(
    name: str, dense: BertModel, small: BertModel, shapes: list[tuple[int, int]], args: argparse.Namespace
) -> None:
    for dtype in args.dtypes:
        rows = measure(
            small,
            dense,
            shapes=shapes,
            dtypes=[dtype],
            devices=[args.device],
            backends=args.backends,
            repeats=args.repeats,
        )
        for row in rows:
            print(json.dumps({"plan": name, **asdict(row)}))
    if args.profile:
        for batch, length in shapes:
            ids = torch.randint(5, 30000, (batch, length), device=args.device)
            for model in (dense, small):
                print(profile(model.to(args.device), ids))


@torch.inference_mode()
def profile(model: BertModel, ids: torch.Tensor) -> str:
    """The operators that take the most time, on the device that does the work."""
    with torch.profiler.profile() as profiler:
        for _ in range(5):
            model(ids)
    order = "self_cuda_time_total" if ids.is_cuda else "self_cpu_time_total"
    return profiler.key_averages().table(sort_by=order, row_limit=8, max_name_column_width=40)


if __name__ == "__main__":
    main()
