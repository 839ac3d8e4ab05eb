"""Does AttendOut's generator learn from its reward? A problem with known masks, with real rewards and controls.

    python benchmarks/planted_rewards.py                               # all variants, 5 seeds: JSON and a figure
    python benchmarks/planted_rewards.py --variants default shuffled --seeds 2

One token gives the label away in the training data and means nothing in the held-out data: the right mask drops it.
Another token gives the right label 85% of the time everywhere: the right mask keeps it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import transformers
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments, default_data_collator

from attentrim import AttendOut, Trainer

FIRST, HONEST, SPURIOUS, OTHERS = 2, 11, 13, range(20, 80)
LENGTH, RELIABLE = 12, 0.85
SHAPE = {
    "vocab_size": 99,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
LOOK_EVERY = 25
PAPERS = {
    "estimator": "policy",
    "window": 10,
    "restart": "sampled",
    "baseline": "moving_average",
    "generator_warmup": 0.0,
    "shared_noise": False,
}
VARIANTS: dict[str, tuple[dict[str, Any] | None, bool]] = {
    "plain fine-tuning": (None, False),
    "default": ({}, False),
    "shuffled": ({"shuffle_rewards": True}, False),
    "held-out data shares the token": ({}, True),
    "papers' policy (v2)": ({**PAPERS, "unit": "pair", "prior": 0.0, "generator_lr": 5e-5}, False),
    "papers' policy, faster": ({**PAPERS, "unit": "pair", "prior": 2.0}, False),
    "papers' policy, faster, shuffled": ({**PAPERS, "unit": "pair", "prior": 2.0, "shuffle_rewards": True}, False),
    "policy by key, leave-one-out": ({**PAPERS, "baseline": "leave_one_out", "shared_noise": True}, False),
    "heldout": ({"estimator": "heldout"}, False),
    "lookahead": ({"estimator": "lookahead"}, False),
    "lookahead, shuffled": ({"estimator": "lookahead", "shuffle_rewards": True}, False),
    "default without shared noise": ({"shared_noise": False}, False),
    "default by pair": ({"unit": "pair"}, False),
    "default without drop_cost": ({"drop_cost": 0.0}, False),
    "default without warmup": ({"generator_warmup": 0.0}, False),
}
"""Settings, and whether the held-out data has the spurious token too. None: plain fine-tuning."""


def examples(count: int, seed: int, *, spurious: bool) -> list[dict[str, Any]]:
    """Labelled sequences; `spurious`: the spurious token gives the label away."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        ids = torch.randint(OTHERS.start, OTHERS.stop, (LENGTH,), generator=generator)
        ids[0] = FIRST
        places = 1 + torch.randperm(LENGTH - 1, generator=generator)
        label = int(torch.randint(2, (), generator=generator))
        honest = label if float(torch.rand((), generator=generator)) < RELIABLE else 1 - label
        other = label if spurious else int(torch.randint(2, (), generator=generator))
        if honest:
            ids[places[0]] = HONEST
        if other:
            ids[places[1]] = SPURIOUS
        rows.append({"input_ids": ids, "labels": label})
    return rows


def accuracy(model: Any, rows: list[dict[str, Any]]) -> float:
    batch = default_data_collator(rows)
    model.eval()
    with torch.no_grad():
        return float((model(**batch).logits.argmax(-1) == batch["labels"]).float().mean())


def drop_rates(session: Any, rows: list[dict[str, Any]]) -> dict[str, float]:
    """How often each kind of token is hidden from the first one, which is classified; the mean over sites."""
    batch = default_data_collator(rows)
    session.model.eval()
    with torch.no_grad(), session.masks.sampled() as draw:
        session.model(**batch)
    chances = torch.stack([_for_first(torch.sigmoid(-logits)) for logits in draw.logits.values()]).mean(0)
    ids = batch["input_ids"]
    kinds = {"spurious": ids == SPURIOUS, "honest": ids == HONEST, "others": ids >= OTHERS.start}
    return {kind: float(chances[places].mean()) for kind, places in kinds.items()}


def _for_first(chances: Tensor) -> Tensor:
    """[batch, key] of the first query."""
    return chances[:, 0].expand(-1, LENGTH)


class Curve(transformers.TrainerCallback):
    """Drop rates and clean accuracy over training."""

    def __init__(self, trainer: Any, test: list[dict[str, Any]]) -> None:
        self.trainer, self.test = trainer, test
        self.points: list[dict[str, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % LOOK_EVERY:
            return
        session, model = self.trainer.session, self.trainer.model
        rates = drop_rates(session, self.test[:200]) if session else {}
        self.points.append({"step": state.global_step, "accuracy": accuracy(model, self.test), **rates})
        model.train()


def run(variant: str, seed: int, steps: int = 600) -> dict[str, Any]:
    """One training: its curves, and the accuracy on clean data, with and without the generator's masks."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    settings, shares = VARIANTS[variant]
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(
            model=BertForSequenceClassification(BertConfig(**SHAPE, num_labels=2)),
            args=TrainingArguments(
                directory,
                max_steps=steps,
                per_device_train_batch_size=32,
                learning_rate=1e-3,
                seed=seed,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
                dataloader_pin_memory=False,
                logging_steps=steps,
            ),
            method=None if settings is None else AttendOut(reward_source="dev", **settings),
            train_dataset=examples(2000, seed + 100, spurious=True),
            eval_dataset=examples(500, seed + 200, spurious=shares),
        )
        trainer.remove_callback(transformers.PrinterCallback)
        test = examples(1000, seed + 300, spurious=False)
        curve = Curve(trainer, test)
        trainer.add_callback(curve)
        trainer.train()
        result = {"variant": variant, "seed": seed, "accuracy": accuracy(trainer.model, test), "curve": curve.points}
        session = trainer.session
        if session is not None:
            result.update(drop_rates(session, test))
            with session.masks.likely():
                result["accuracy_under_masks"] = accuracy(trainer.model, test)
    return result


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: one line per variant, one number per seed."""
    columns = ("spurious", "honest", "others", "accuracy", "accuracy_under_masks")
    lines = ["| variant | " + " | ".join(name.replace("_", " ") for name in columns) + " |", "|---" * 6 + "|"]
    for variant in dict.fromkeys(result["variant"] for result in results):
        mine = [result for result in results if result["variant"] == variant]
        cells = [" ".join(f"{one[name]:.2f}" for one in mine if name in one) or "-" for name in columns]
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def figure(results: list[dict[str, Any]], path: Path) -> None:
    """The drop rate of the three kinds of token over training: one panel per variant, one line per seed."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    variants = [name for name in dict.fromkeys(one["variant"] for one in results) if VARIANTS[name][0] is not None]
    rows = -(-len(variants) // 3)
    shape, axes = pyplot.subplots(rows, 3, figsize=(11, 2.4 * rows), sharex=True, sharey=True, squeeze=False)
    colours = {"spurious": "#D55E00", "honest": "#0072B2", "others": "#999999"}
    for variant, axis in zip(variants, axes.flat, strict=False):
        for one in (result for result in results if result["variant"] == variant):
            steps = [point["step"] for point in one["curve"]]
            for kind, colour in colours.items():
                axis.plot(steps, [point[kind] for point in one["curve"]], color=colour, linewidth=1)
        axis.set_title(variant, fontsize=9)
        axis.set_ylim(-0.03, 1.03)
    for axis in list(axes.flat)[len(variants) :]:
        axis.set_visible(False)
    names = {"spurious": "spurious token", "honest": "honest token", "others": "other tokens"}
    handles = [pyplot.Line2D([], [], color=colour, label=names[kind]) for kind, colour in colours.items()]
    shape.legend(handles=handles, loc="lower center", ncols=3, frameon=False)
    shape.supxlabel("optimiser step", y=0.03, fontsize=9)
    shape.supylabel("drop probability", fontsize=9)
    shape.tight_layout(rect=(0, 0.04, 1, 1))
    shape.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first_seed", type=int, default=5, help="0 to 4 were looked at when the default was chosen")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "planted_rewards.json")
    parser.add_argument("--figure", type=Path, help="an SVG file")
    args = parser.parse_args()
    jobs = [
        (variant, seed, args.steps)
        for variant in args.variants
        for seed in range(args.first_seed, args.first_seed + args.seeds)
    ]
    with ProcessPoolExecutor(args.workers) as pool:
        results = list(pool.map(run, *zip(*jobs, strict=True)))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    rounded = json.loads(json.dumps(results), parse_float=lambda text: round(float(text), 3))
    args.out.write_text(json.dumps(rounded) + "\n")
    if args.figure:
        figure(results, args.figure)
    print(table(results))


if __name__ == "__main__":
    main()
