"""Does AttendOut drop a shortcut in real sentences, where a small clean set shows that it is one?

    python benchmarks/shortcut.py --model MiniLM-L6 --task sst2 --data_dir glue/SST-2 --out shortcut.json

One of two words is put before each sentence. In the training data it agrees with the label --agreement of the time; in
the clean set (other training sentences) and in the test set (the task's dev set) it is random. AttendOut is rewarded
on the clean set; its rivals stop early by it, or train on it too, once or five times.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import statistics
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import transformers
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader
from transformers import TrainingArguments

from attentrim import AttendOut, Trainer
from attentrim.compare.results import interval
from attentrim.machine import measured_with
from attentrim.runs.loading import Loaded, load_for_task
from attentrim.runs.settings import TaskSettings
from attentrim.tasks import TASKS
from attentrim.tasks.sources import LocalCopy

WORDS = ("amber", "cobalt")
"""One before each sentence: the first with label 0 and the second with label 1, where it agrees."""
LOOK_EVERY = 50
FREQUENT = 20
"""Occurrences of a token from which on its drop rate is listed."""
PLAIN = "plain fine-tuning"
ATTENDOUT: dict[str, dict[str, Any]] = {
    "AttendOut": {},
    "AttendOut, rewards shuffled": {"shuffle_rewards": True},
    "AttendOut, generator frozen": {"generator_lr": 0.0},
}
CLEAN_TOO = {"plain, clean set too": 1, "plain, clean set too, five times": 5}
VARIANTS = (PLAIN, *CLEAN_TOO, *ATTENDOUT)


def sentences(args: argparse.Namespace, split: str) -> list[tuple[str, int]]:
    task = TASKS[args.task]
    source = LocalCopy(task, task.local, args.data_dir)
    table = source.table(split)
    table = task.adapt(table) if task.adapt else table
    column = source.columns.inputs[0]
    return [(str(row[column]), int(row[source.columns.label])) for row in table.rows]


def write(path: Path, rows: list[tuple[str, int]], agreement: float, draw: random.Random) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(["text", "label"])
        for text, label in rows:
            word = WORDS[label if draw.random() < agreement else 1 - label]
            out.writerow([f"{word} {text}", label])


def load(args: argparse.Namespace, seed: int, folder: Path) -> Loaded:
    """The data of one seed: which sentences are trained on, which are the clean set, and their words."""
    draw = random.Random(seed)
    rows = sentences(args, "train")
    draw.shuffle(rows)
    write(folder / "train.csv", rows[: args.train], args.agreement, draw)
    write(folder / "clean.csv", rows[args.train : args.train + args.clean], 0.5, draw)
    write(folder / "test.csv", sentences(args, "validation"), 0.5, draw)
    settings = TaskSettings(
        model=args.model,
        train_file=str(folder / "train.csv"),
        validation_file=str(folder / "clean.csv"),
        test_file=str(folder / "test.csv"),
        text_column="text",
        label_column="label",
        max_length=64,
    )
    torch.manual_seed(seed)
    return load_for_task(settings, ["train", "validation", "test"], lambda _: None, fresh_head=True)


@torch.no_grad()
def accuracy(model: Any, batches: DataLoader[Any]) -> float:
    model.eval()
    right = [model(**batch).logits.argmax(-1) == batch["labels"] for batch in batches]
    return float(torch.cat(right).float().mean())


@torch.no_grad()
def drop_rates(session: Any, batches: DataLoader[Any], tokenizer: Any) -> dict[str, Any]:
    """How often the generator hides a token, the mean over sites: the two words, all others, and the most hidden."""
    chances, ids = [], []
    for batch in batches:
        with session.masks.sampled() as draw:
            session.model(**batch)
        rates = torch.stack([_by_key(logits) for logits in draw.logits.values()])
        valid = batch["attention_mask"].bool()
        chances.append(rates[:, valid])
        ids.append(batch["input_ids"][valid])
    rates, tokens = torch.cat(chances, 1), torch.cat(ids)
    planted = torch.isin(tokens, torch.tensor(tokenizer.convert_tokens_to_ids(list(WORDS))))
    of_token = {
        tokenizer.convert_ids_to_tokens(int(token)): round(float(rates[:, tokens == token].mean()), 4)
        for token in tokens.unique()
        if int((tokens == token).sum()) >= FREQUENT
    }
    return {
        "planted": float(rates[:, planted].mean()),
        "others": float(rates[:, ~planted].mean()),
        "planted_by_site": [round(float(rate), 4) for rate in rates[:, planted].mean(1)],
        "others_by_site": [round(float(rate), 4) for rate in rates[:, ~planted].mean(1)],
        "most_dropped": dict(sorted(of_token.items(), key=lambda item: -item[1])[:10]),
    }


def _by_key(logits: Tensor) -> Tensor:
    """[batch, key]: the chance to be hidden, for the first query, which is classified or pooled."""
    return torch.sigmoid(-logits[:, 0])


class Curve(transformers.TrainerCallback):
    """Accuracy on the clean set and on the test set over training."""

    def __init__(self, clean: DataLoader[Any], test: DataLoader[Any]) -> None:
        self.clean, self.test = clean, test
        self.points: list[dict[str, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step % LOOK_EVERY and state.global_step != state.max_steps:
            return
        found = {"clean": accuracy(model, self.clean), "accuracy": accuracy(model, self.test)}
        self.points.append({"step": state.global_step, **found})
        model.train()

    @property
    def best(self) -> dict[str, float]:
        """By the clean set; the first of equals."""
        return max(self.points, key=lambda point: point["clean"])


def run(args: argparse.Namespace, variant: str, seed: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        loaded = load(args, seed, Path(folder))
        collate = loaded.task.kind.collator(loaded.tokenizer)
        train, clean, test = (loaded.data(split) for split in ("train", "validation", "test"))
        settings = ATTENDOUT.get(variant)
        steps = round(args.epochs * len(train) / args.batch)
        trainer = Trainer(
            model=loaded.model,
            args=TrainingArguments(
                folder,
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
            method=None if settings is None else AttendOut(reward_source="dev", **settings),
            train_dataset=ConcatDataset([train, *[clean] * CLEAN_TOO.get(variant, 0)]),
            eval_dataset=clean,
            data_collator=collate,
        )
        trainer.remove_callback(transformers.PrinterCallback)
        clean_batches, test_batches = (DataLoader(data, 64, collate_fn=collate) for data in (clean, test))
        curve = Curve(clean_batches, test_batches)
        trainer.add_callback(curve)
        trainer.train()
        session: Any = trainer.session
        result = {
            "variant": variant,
            "seed": seed,
            "steps": steps,
            "accuracy": curve.points[-1]["accuracy"],
            "accuracy_stopped_early": curve.best["accuracy"],
            "curve": curve.points,
        }
        if session is not None:
            trainer.model.eval()
            result |= drop_rates(session, test_batches, loaded.tokenizer)
            with session.masks.likely():
                result["accuracy_under_masks"] = accuracy(trainer.model, test_batches)
    return result


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each variant: the mean, and the difference to plain fine-tuning, paired by seed, with a 95% interval."""
    plain = {one["seed"]: one["accuracy"] for one in runs if one["variant"] == PLAIN}
    found = {name: {one["seed"]: one for one in runs if one["variant"] == name} for name in VARIANTS}
    rows = []
    for name, of_seed in found.items():
        keys = {"accuracy": name, "accuracy_stopped_early": f"{name}, stopped early on the clean set"}
        if any("accuracy_under_masks" in one for one in of_seed.values()):
            keys["accuracy_under_masks"] = f"{name}, under its masks"
        for key, label in keys.items():
            values = {seed: one[key] for seed, one in of_seed.items()}
            if not values:
                continue
            differences = [value - plain[seed] for seed, value in values.items() if seed in plain]
            row = {"variant": label, "accuracy": statistics.fmean(values.values()), "seeds": len(values)}
            if differences:
                row |= {"difference": statistics.fmean(differences), "interval": interval(differences)}
            for rate in ("planted", "others"):
                if key == "accuracy" and all(rate in one for one in of_seed.values()):
                    row[rate] = statistics.fmean(one[rate] for one in of_seed.values())
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--task", default="sst2", help="a task of single sentences with two classes")
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--train", type=int, default=4000, help="training sentences (default: 4000)")
    parser.add_argument("--clean", type=int, default=200, help="sentences of the clean set (default: 200)")
    parser.add_argument("--agreement", type=float, default=0.95, help="of word and label in training (default: 0.95)")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    jobs = [(args, variant, seed) for seed in range(args.seeds) for variant in args.variants]
    settings = {name: value for name, value in vars(args).items() if name not in ("data_dir", "out", "workers")}
    result: dict[str, Any] = {**settings, "model": Path(args.model).name, "measured_with": measured_with(), "runs": []}
    with ProcessPoolExecutor(args.workers) as pool:
        for found in pool.map(run, *zip(*jobs, strict=True)):
            result["runs"].append(found)
            shown = {key: round(value, 3) for key, value in found.items() if isinstance(value, float)}
            print(f"{found['variant']}, seed {found['seed']}: {shown}", flush=True)
            result["summary"] = summary(result["runs"])
            if args.out:
                args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
