"""A rival: Torch-Pruning's magnitude pruning to a share of the FLOPs, then training with distillation.

    python benchmarks/magnitude_pruning.py --model dense --task cola --data_dir glue/CoLA --flops_share 0.5 --seed 1

Removes the same share of heads and neurons from every layer of a fine-tuned checkpoint. The rest is trained on the
labels and distilled from the checkpoint, like the rows of `ours-speed`. All other flags are fields of
TrainingArguments (such as --bf16 True). Prints one line of JSON; remarks go to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from transformers import PrinterCallback, set_seed

from attentrim import Distillation, Trainer
from attentrim.bench.magnitude import prune_to_flops
from attentrim.errors import AttentrimError
from attentrim.flops import flops
from attentrim.methods.base import TRAINING_DEFAULTS
from attentrim.runs.loading import load_for_task
from attentrim.runs.settings import TaskSettings
from attentrim.runs.training import DEFAULTS, given_flags, training_arguments

AS_IN_OURS_SPEED = {"num_train_epochs": 12, "learning_rate": 5e-5}
RESULT_ALONE = {"eval_strategy": "no", "save_strategy": "no", "disable_tqdm": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint fine-tuned on the task")
    parser.add_argument("--task", required=True)
    parser.add_argument("--data_dir", help="a local copy of the task in its published layout")
    parser.add_argument("--flops_share", type=float, default=0.5, help="share of the FLOPs to keep (default: 0.5)")
    parser.add_argument("--max_train_samples", type=int, help="train on this many examples only, the first ones")
    args, more = parser.parse_known_args()
    if not 0 < args.flops_share < 1:
        parser.error(f"--flops_share must be between 0 and 1. Got {args.flops_share:g}")
    try:
        print(json.dumps(run(args, given_flags(more))))
    except AttentrimError as error:
        sys.exit(str(error))


def run(args: argparse.Namespace, training_flags: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        defaults = {**DEFAULTS, **TRAINING_DEFAULTS, **AS_IN_OURS_SPEED, **RESULT_ALONE}
        training = training_arguments(defaults, training_flags, directory)
        set_seed(training.seed)
        settings = TaskSettings(model=args.model, task=args.task, data_dir=args.data_dir)
        loaded = load_for_task(settings, ["train", "validation"], say, fresh_head=False)
        dense = loaded.model
        pruned = prune_to_flops(dense, args.flops_share)
        evaluation = loaded.evaluation(loaded.data("validation"), more_sets=False)
        trainer = Trainer(
            model=pruned,
            args=training,
            distillation=Distillation(logits=1.0, hidden=1.0, label_weight=0.5),
            teacher=dense,
            train_dataset=loaded.data("train", args.max_train_samples),
            data_collator=evaluation.data_collator,
            processing_class=loaded.tokenizer,
        )
        trainer.remove_callback(PrinterCallback)
        start = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - start
        found, _ = evaluation.of_model(trainer.model, training)
    return {
        "task": args.task,
        "seed": training.seed,
        "metric": found["metric"],
        "value": found["value"],
        "flops_ratio": round(flops(dense) / flops(pruned), 3),
        "train_seconds": round(seconds, 1),
    }


def say(remark: str) -> None:
    print(remark, file=sys.stderr)


if __name__ == "__main__":
    main()
