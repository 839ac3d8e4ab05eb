"""Which heads a short run of AutoAttention closes: those that it found useless, or those whose gates started lowest?

    python benchmarks/short_runs.py --model fine-tuned --task cola --data_dir glue/CoLA --steps 20 100 --out short.json

Half of the heads are removed in so many steps of `--batch`, by several ways to start the gates and to set their rate,
five seeds each, from the same model. Kept of each run: the gates' parameters at the start, the gates that closed, how
many of them are among as many that started lowest, and metric and loss on the development data. All runs of a seed see
the same batches. `summary` has the mean of each variant and its difference to `as it is`, paired by seed, with a 95%
interval.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from sklearn.metrics import matthews_corrcoef
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import TrainingArguments

from attentrim import HISP, AutoAttention, Trainer
from attentrim.compare.results import interval
from attentrim.machine import measured_with
from attentrim.methods.autoattention.starts import Overlap
from attentrim.runs.loading import load_for_task
from attentrim.runs.settings import TaskSettings

TARGET = 0.5
SPREAD = 0.3
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "alike": {"start_spread": 0.0},
    "faster": {"gate_lr": 10.0},
    "from HISP": {"start_spread": 0.0},
}
"""Settings; the last one's gates start at scores of one pass over some batches, with the usual spread."""
SCORED = 128
"""Training examples of that pass."""


def starts_from_scores(scores: Tensor) -> Tensor:
    """Normal quantiles around 1 in the order of the scores, within what a start may be."""
    ranks = scores.argsort().argsort().float()
    quantiles = (ranks + 0.5) / len(scores)
    return (1 + SPREAD * 2**0.5 * torch.erfinv(2 * quantiles - 1)).clamp(1e-3, 2)


def load(args: argparse.Namespace) -> Any:
    settings = TaskSettings(model=args.model, task=args.task, data_dir=args.data_dir)
    return load_for_task(settings, ["train", "validation"], lambda _: None, fresh_head=False)


@torch.no_grad()
def judged(model: nn.Module, batches: Any) -> tuple[float, float]:
    """Matthews correlation and mean loss."""
    model.eval()
    logits, labels = zip(*((model(**batch).logits, batch["labels"]) for batch in batches), strict=True)
    everything, truth = torch.cat(logits), torch.cat(labels)
    loss = nn.functional.cross_entropy(everything, truth)
    return float(matthews_corrcoef(truth, everything.argmax(-1))), float(loss)


def run(args: argparse.Namespace, variant: str, steps: int, seed: int) -> dict[str, Any]:
    loaded = load(args)
    collate = loaded.task.kind.collator(loaded.tokenizer)
    train = loaded.data("train")
    scores = None
    if variant == "from HISP":
        random = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(train), generator=random)[:SCORED].tolist()
        batches = [collate([train[index] for index in order[at : at + 16]]) for at in range(0, SCORED, 16)]
        hisp = HISP().attach(loaded.model.eval(), calibration=batches)
        scores = hisp.scores()
        hisp.detach()
    with tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(
            model=loaded.model,
            args=TrainingArguments(
                directory,
                max_steps=steps,
                per_device_train_batch_size=args.batch,
                learning_rate=args.learning_rate,
                seed=seed,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
                logging_steps=steps,
            ),
            train_dataset=train,
            data_collator=collate,
            method=AutoAttention(target_sparsity=TARGET, **VARIANTS[variant]),
        )
        session: Any = trainer.session
        if scores is not None:
            session.parameters.copy_(starts_from_scores(scores))
        start = session.parameters.clone()
        trainer.train()
        closed = session.open == 0
        overlap = None if variant == "alike" else Overlap.of(start, closed)
        value, loss = judged(trainer.model, DataLoader(loaded.data("validation"), 64, collate_fn=collate))
    return {
        "variant": variant,
        "steps": steps,
        "seed": seed,
        "value": value,
        "loss": loss,
        "closed": closed.nonzero().flatten().tolist(),
        "started_lowest": overlap and overlap.started_lowest,
        "start": [round(number, 4) for number in start.tolist()],
    }


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for variant, steps in dict.fromkeys((run["variant"], run["steps"]) for run in runs):
        of_seed = {
            name: {run["seed"]: run for run in runs if (run["variant"], run["steps"]) == (name, steps)}
            for name in (variant, "as it is")
        }
        found = list(of_seed[variant].values())
        row: dict[str, Any] = {
            "variant": variant,
            "steps": steps,
            "seeds": len(found),
            "started_lowest": [run["started_lowest"] for run in found],
            "closed": len(found[0]["closed"]),
        }
        for figure in ("value", "loss"):
            row[figure] = statistics.fmean(run[figure] for run in found)
            pairs = [(run[figure], of_seed["as it is"][run["seed"]][figure]) for run in found]
            differences = [one - other for one, other in pairs]
            row[f"{figure}_difference"] = statistics.fmean(differences)
            row[f"{figure}_interval"] = interval(differences)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="trained for the task")
    parser.add_argument("--task", default="cola")
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=3e-5)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    result: dict[str, Any] = {
        "model": Path(args.model).name,
        "task": args.task,
        "batch": args.batch,
        "learning_rate": args.learning_rate,
        "target_sparsity": TARGET,
        "measured_with": measured_with(),
        "runs": [],
    }
    for seed in range(args.seeds):
        for steps in args.steps:
            for variant in args.variants:
                found = run(args, variant, steps, seed)
                result["runs"].append(found)
                figures = f"value {found['value']:.3f}, loss {found['loss']:.3f}"
                print(f"{variant}, {steps} steps, seed {seed}: {found['started_lowest']}, {figures}", flush=True)
        result["summary"] = summary(result["runs"])
        if args.out:
            args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
