"""Round a model's matrices to 8 bits per weight with one scale per row: the start of the runs in RESULTS.md.

python benchmarks/round_weights.py --model all-mpnet-base-v2 --out mpnet-base
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"


def rounded(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers from -127 to 127, and the scale of each row."""
    scale = matrix.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(matrix.dtype).tiny) / 127
    return (matrix / scale).round().to(torch.int8), scale


def is_matrix(weight: torch.Tensor) -> bool:
    return weight.dim() == 2 and weight.is_floating_point()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help=f"a directory with {WEIGHTS}")
    parser.add_argument("--out", type=Path, required=True, help="a directory for the rounded model")
    args = parser.parse_args()
    if not (args.model / WEIGHTS).is_file():
        parser.error(f"there is no {args.model / WEIGHTS}")
    if args.out.exists():
        parser.error(f"{args.out} is there already")
    shutil.copytree(args.model, args.out, ignore=shutil.ignore_patterns(WEIGHTS))
    weights = load_file(args.model / WEIGHTS)
    moved = {}
    for name, weight in weights.items():
        if is_matrix(weight):
            whole, scale = rounded(weight)
            weights[name] = whole * scale
            moved[name] = float((weights[name] - weight).norm() / weight.norm())
    save_file(weights, args.out / WEIGHTS, metadata={"format": "pt"})
    most = max(moved, key=lambda name: moved[name])
    print(f"{len(moved)} matrices rounded; {most} moved most, by {moved[most]:.1%} of its norm")


if __name__ == "__main__":
    main()
