"""How much faster a model is with most of its attention folded: dense SDPA against trimmed, interleaved.

python benchmarks/folded_speed.py --shapes 8x128 4x256 2x512 --profile
python benchmarks/folded_speed.py --shapes 1x128 32x128 32x256 32x512 --device cuda --dtype bfloat16
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from transformers import BertConfig, BertModel

from attentrim import Plan, trim


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["4x256"], help="batch x length, such as 4x256")
    parser.add_argument("--uniform", type=int, default=11, help="how many of the 12 sites are folded, the top ones")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--profile", action="store_true", help="also show where each model's time goes")
    args = parser.parse_args()
    torch.manual_seed(0)
    dense = BertModel(BertConfig(), add_pooling_layer=False).eval()
    small = trim(dense, Plan.of(dense, uniform=range(12 - args.uniform, 12)))
    models = [model.to(args.device, getattr(torch, args.dtype)) for model in (dense, small)]
    for shape in args.shapes:
        batch, length = map(int, shape.split("x"))
        # padding, as in real batches: SDPA gets a mask
        ids = torch.randint(5, 30000, (batch, length), device=args.device)
        mask = torch.ones_like(ids)
        mask[-1, -length // 8 :] = 0
        print(json.dumps({"shape": shape, **compare(models, ids, mask, args.repeats)}))
        for model in models if args.profile else ():
            print(profile(model, ids, mask))


@torch.inference_mode()
def compare(models: list[BertModel], ids: torch.Tensor, mask: torch.Tensor, repeats: int) -> dict[str, object]:
    """Alternate the two models, so that both see the same disturbances; the ratio is the median of paired ones."""
    calls = max(1, 20 if ids.is_cuda else 1)
    seconds: list[list[float]] = [[], []]
    for _ in range(repeats + 2):
        for model, times in zip(models, seconds, strict=True):
            start = _clock(ids)
            for _ in range(calls):
                model(ids, attention_mask=mask)
            times.append((_clock(ids) - start) / calls)
    dense, small = (times[2:] for times in seconds)
    ratios = sorted(before / after for before, after in zip(dense, small, strict=True))
    return {
        "dense_milliseconds_median": round(1e3 * statistics.median(dense), 3),
        "trimmed_milliseconds_median": round(1e3 * statistics.median(small), 3),
        "speedup_median": round(statistics.median(ratios), 3),
        "speedup_quartiles": [round(ratios[len(ratios) // 4], 3), round(ratios[-1 - len(ratios) // 4], 3)],
        "device": ids.device.type,
        "dtype": str(models[0].dtype).removeprefix("torch."),
        "repeats": repeats,
    }


@torch.inference_mode()
def profile(model: BertModel, ids: torch.Tensor, mask: torch.Tensor) -> str:
    """The operators that take the most time, on the device that does the work."""
    with torch.profiler.profile() as profiler:
        for _ in range(5):
            model(ids, attention_mask=mask)
    order = "self_cuda_time_total" if ids.is_cuda else "self_cpu_time_total"
    return profiler.key_averages().table(sort_by=order, row_limit=8, max_name_column_width=40)


def _clock(ids: torch.Tensor) -> float:
    if ids.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
