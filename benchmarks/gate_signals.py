"""What a gate's gradient says about its unit: its mean, which AutoAttention accumulates, against its mean square.

    python benchmarks/gate_signals.py --model fine-tuned --task cola --data_dir glue/CoLA

All gates on heads and neurons are open. Gradients of the loss in them are computed batch by batch on training data,
and no weight changes. Then gates are closed for a share of their FLOPs, lowest score per FLOP first, and the loss is
computed on validation data, without retraining. Scores: `signed` is minus the mean gradient, the direction in which
AutoAttention moves a gate's parameter (eq. 10, with a slope of 1); `squared` is the mean square (Fisher).
`systematic` is the squared mean as a share of the mean square, less what chance alone would give (one part in the
number of batches).
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from attentrim import AutoAttention
from attentrim.runs.loading import load_for_task
from attentrim.runs.settings import TaskSettings


def gradients(session: Any, batches: Any) -> Tensor:
    """[batches, gates], in evaluation mode: dropout would add noise."""
    found = []
    for batch in batches:
        gates = torch.ones(session.count, requires_grad=True)
        with session.gates_set(gates):
            loss = session.model(**batch).loss
        found.append(torch.autograd.grad(loss, gates)[0])
    return torch.stack(found)


@torch.no_grad()
def loss_with(session: Any, gates: Tensor, batches: Any) -> float:
    total, rows = 0.0, 0
    with session.gates_set(gates):
        for batch in batches:
            size = len(batch["labels"])
            total, rows = total + float(session.model(**batch).loss) * size, rows + size
    return total / rows


def systematic(values: Tensor) -> float:
    """The share of the mean square that is the mean's, over all gates, less the part that is chance."""
    squares, mean = values.square().mean(0).sum(), values.mean(0).square().sum()
    return float((mean / squares - 1 / len(values)) / (1 - 1 / len(values)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="trained for the task")
    parser.add_argument("--task", required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--batches", type=int, default=100, help="of 32 training examples (default: 100)")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.2, 0.3, 0.4, 0.5])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    settings = TaskSettings(model=args.model, task=args.task, data_dir=args.data_dir)
    loaded = load_for_task(settings, ["train", "validation"], print, fresh_head=False)
    loaded.model.eval()
    collate = loaded.task.kind.collator(loaded.tokenizer)
    order = torch.Generator().manual_seed(0)
    train = DataLoader(loaded.data("train"), 32, shuffle=True, generator=order, collate_fn=collate)
    validation = list(DataLoader(loaded.data("validation"), 64, collate_fn=collate))

    session = AutoAttention(prune="heads,neurons", share_of="flops", target_sparsity=0.5).attach(loaded.model, steps=1)
    found = gradients(session, itertools.islice(train, args.batches))
    heads, costs = session.units.traced, session.weights
    scores = {
        "squared": found.square().mean(0) / costs,
        "signed": -found.mean(0) / costs,
        "random": torch.rand(session.count, generator=order),
    }
    result: dict[str, Any] = {
        "model": Path(args.model).name,
        "task": args.task,
        "batches": len(found),
        "systematic": {
            "heads": round(systematic(found[:, :heads]), 4),
            "neurons": round(systematic(found[:, heads:]), 4),
        },
        "step_per_cost": {  # how far one step at a rate of 1 moves a gate's parameter
            "heads": float((found / costs)[:, :heads].square().mean().sqrt()),
            "neurons": float((found / costs)[:, heads:].square().mean().sqrt()),
        },
        "loss": {"dense": loss_with(session, torch.ones(session.count), validation)},
    }
    for name, score in scores.items():
        for share in args.shares:
            gates = torch.ones(session.count)
            gates[session.first(score.argsort(), session.removals(share))] = 0.0
            kept = f"{int(gates[:heads].sum())} heads, {int(gates[heads:].sum())} neurons"
            loss = loss_with(session, gates, validation)
            result["loss"][f"{name} {share:g}"] = loss
            print(f"{name}, {share:.0%} of the FLOPs closed: loss {loss:.3f} ({kept} left)")
    session.detach()
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
