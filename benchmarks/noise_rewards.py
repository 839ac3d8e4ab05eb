"""Where does AttendOut's generator drift when its rewards are pure noise? No model is trained, none is even run.

    python benchmarks/noise_rewards.py --model mpnet-base --task cola --data_dir glue/CoLA --seeds 5 --out noise.json

The generator (our v2 preset) starts as it does in a run with the same seed, draws masks for random
batches of training sentences, and learns from rewards that are drawn from a normal distribution: its own Adam,
baseline and clipping, a dropout step every ten steps. Nothing that it does changes a reward, so nothing that its drop
rates do is learned. `--against` names a file of kept results, whose final drop rates (of `--rows`) are compared with
these.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from attentrim import AttendOut
from attentrim.machine import measured_with
from attentrim.methods.attendout.draws import Draw
from attentrim.methods.attendout.game import Step
from attentrim.methods.attendout.records import rates_and_entropies
from attentrim.runs.loading import load_for_task
from attentrim.runs.settings import TaskSettings

BATCH = 32
LOOK_EVERY = 5
"""Dropout steps between two recorded lists of drop rates."""


def draw_masks(session: Any, batch: dict[str, Tensor]) -> Draw:
    """The masks of a batch, as the model would have them made site by site."""
    mask = batch["attention_mask"].bool()
    allowed = mask[:, None, None, :].expand(-1, 1, mask.shape[1], -1)  # of all heads
    draw = Draw(session.networks, session.masks.sample, soft=False)
    for site in session.sites.values():
        draw.on_input(site.stack, ((), {"input_ids": batch["input_ids"]}))
        draw.mask(site, allowed)
    return draw


def drift(loaded: Any, seed: int, steps: int, samples: int, scale: float, settings: dict[str, Any]) -> dict[str, Any]:
    """One generator under noise: its drop rates by site at the start, over the steps, and at the end."""
    method = AttendOut(preset="v2", reward_source="cached", cache_samples=samples, **settings)
    session = method.attach(loaded.model, seed=seed)
    random = torch.Generator().manual_seed(seed)
    data = loaded.data("train")
    sentences = DataLoader(data, BATCH, shuffle=True, generator=random, collate_fn=collator(loaded), drop_last=True)
    batches = iter(sentences)
    curve = []
    for dropout_step in range(steps // method.window + 1):
        window = []
        for _ in range(method.window):
            batch = next(batches, None)
            if batch is None:
                batches = iter(sentences)
                batch = next(batches)
            draw = draw_masks(session, {name: batch[name][:samples] for name in ("input_ids", "attention_mask")})
            window.append(Step(rounds=[draw.close()]))
        if dropout_step % LOOK_EVERY == 0 or dropout_step == steps // method.window:
            rates = [round(rate, 4) for rate in rates_and_entropies(draw)[0].tolist()]
            curve.append([dropout_step * method.window, rates])
        if dropout_step < steps // method.window:
            rewards = scale * torch.randn(method.window, generator=random)
            session.learning.step(window, rewards, [])
    session.detach()
    return {"seed": seed, "curve": curve, "drop_rates": curve[-1][1]}


def collator(loaded: Any) -> Any:
    return loaded.task.kind.collator(loaded.tokenizer)


def correlation(one: list[float], other: list[float]) -> float:
    return round(statistics.correlation(one, other), 3)


def distances(rows: list[list[float]], prior_rate: float) -> list[float]:
    """By site: how far the drop rate ended from where it started, whichever way; the mean over seeds."""
    return [round(statistics.fmean(abs(rate - prior_rate) for rate in site), 4) for site in zip(*rows, strict=True)]


def comparison(found: list[dict[str, Any]], recorded: dict[int, list[float]], prior_rate: float) -> dict[str, Any]:
    """Noise against recorded runs: by site over all seeds, and seed by seed."""
    noise = [run["drop_rates"] for run in found]
    distance = {
        "noise": distances(noise, prior_rate),
        "recorded": distances(list(recorded.values()), prior_rate),
    }
    return {
        "distance_from_start": distance,
        "correlation_of_distances": correlation(distance["noise"], distance["recorded"]),
        "correlation_by_seed": {
            str(run["seed"]): correlation(run["drop_rates"], recorded[run["seed"]])
            for run in found
            if run["seed"] in recorded
        },
    }


def recorded_rates(file: Path, row: str) -> dict[int, list[float]]:
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
    return {run["seed"]: run["last"]["drop_rates"] for run in runs if run["name"] == row}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--task", default="cola")
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1072, help="as many as four epochs of CoLA have (default: 1072)")
    parser.add_argument("--samples", type=int, default=32, help="sentences of each batch to learn from (default: 32)")
    parser.add_argument("--scale", type=float, default=0.01, help="standard deviation of a reward (default: 0.01)")
    parser.add_argument("--prior", type=float, default=0.0)
    parser.add_argument("--against", type=Path, help="a file of kept results")
    parser.add_argument("--rows", nargs="+", default=["attendout", "attendout-train-split"])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    settings = TaskSettings(model=args.model, task=args.task, data_dir=args.data_dir)
    loaded = load_for_task(settings, ["train"], lambda _: None, fresh_head=True)
    result: dict[str, Any] = {
        "model": Path(args.model).name,
        "task": args.task,
        **{name: getattr(args, name) for name in ("steps", "samples", "scale", "prior")},
        "measured_with": measured_with(),
        "runs": [],
    }
    start = float(torch.sigmoid(torch.tensor(-args.prior)))
    for seed in range(args.seeds):
        run = drift(loaded, seed, args.steps, args.samples, args.scale, {"prior": args.prior})
        print(f"seed {seed}:", *run["drop_rates"], flush=True)
        result["runs"].append(run)
        if args.against:
            result["against"] = {
                row: comparison(result["runs"], recorded_rates(args.against, row), start) for row in args.rows
            }
        if args.out:
            args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result.get("against", {}), indent=1))


if __name__ == "__main__":
    main()
