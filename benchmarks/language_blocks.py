"""What a language model loses without some of its blocks, untrained: perplexity by order and number.

    python benchmarks/language_blocks.py --model smollm2-135m --calibration wikitext-2/valid.txt \\
        --text wikitext-2/test.txt --out blocks.json

Blocks are chosen by the method `similarity` on the first examples of --calibration, and evaluated on the first of
--text; an example is a block of --length tokens.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from attentrim import Plan, Similarity
from attentrim.machine import measured_with
from attentrim.methods.similarity.blocks import BLOCKS
from attentrim.runs.loading import Loaded, load_for_task
from attentrim.runs.settings import TaskSettings

COUNTS = (2, 4, 8)
STUDY = ("attention:similarity", "attention:last", "attention:greedy", "feed_forward:similarity")


def chosen(loaded: Loaded, sort: str, order: str, most: int, samples: int) -> tuple[dict[str, Any], float]:
    """What the method records when it removes `most` blocks, and how long it took."""
    method = Similarity(remove=f"{sort}:{most}", order=order, calibration_samples=samples)
    data = loaded.data("train", samples)
    batches = torch.utils.data.DataLoader(data, 2, collate_fn=loaded.task.kind.collator(loaded.tokenizer))
    session = method.attach(loaded.model, calibration=batches)
    try:
        start = time.perf_counter()
        session.search()
        return session.results(), time.perf_counter() - start
    finally:
        session.detach()


def plan_of(model: Any, sort: str, places: list[int]) -> Plan:
    """All units of these blocks."""
    if sort == "layers":
        return Plan.of(model, layers=places)
    return Plan.of(model, **{BLOCKS[sort]: {place: _units(model, sort) for place in places}})


def _units(model: Any, sort: str) -> range:
    config = model.config
    return range(config.num_attention_heads if sort == "attention" else config.intermediate_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a decoder whose blocks are all of one size")
    parser.add_argument("--calibration", required=True, help="plain text to choose by")
    parser.add_argument("--text", required=True, help="plain text to measure perplexity on")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--length", type=int, default=512, help="tokens per example (default: 512)")
    parser.add_argument("--examples", type=int, default=32, help="of --text (default: 32)")
    parser.add_argument("--samples", type=int, default=32, help="of --calibration (default: 32)")
    parser.add_argument("--greedy_samples", type=int, default=2, help="the same for order greedy (default: 2)")
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="blocks to remove (default: 2 4 8)")
    parser.add_argument("--study", nargs="+", default=STUDY, help=f"SORT:ORDER (default: {' '.join(STUDY)})")
    args = parser.parse_args()

    settings = TaskSettings(
        model=args.model, task="clm", train_file=args.calibration, test_file=args.text, max_length=args.length
    )
    loaded = load_for_task(settings, ["train", "test"], print, fresh_head=False)
    data = loaded.data("test", args.examples)
    evaluation = loaded.evaluation(data)
    rows: list[dict[str, Any]] = []

    def measure(plan: Plan | None, **about: Any) -> None:
        with tempfile.TemporaryDirectory() as directory:
            arguments = TrainingArguments(
                directory, per_device_eval_batch_size=4, use_cpu=True, report_to=[], disable_tqdm=True
            )
            found, _ = evaluation.of_model(loaded.model, arguments, plan)
        rows.append({**about, **found["metrics"]})
        print(rows[-1], flush=True)
        write(args, loaded, data, rows)

    measure(None, sort="dense")
    for study in args.study:
        sort, order = study.split(":")
        samples = args.greedy_samples if order == "greedy" else args.samples
        found, seconds = chosen(loaded, sort, order, max(args.counts), samples)
        places = found["blocks_removed"][sort]
        for count in args.counts:
            plan = plan_of(loaded.model, sort, places[:count])
            measure(plan, sort=sort, order=order, count=count, removed=places[:count])
        rows[-1] |= {"samples": samples, "seconds_to_choose": seconds, **found}
        write(args, loaded, data, rows)


def write(args: argparse.Namespace, loaded: Loaded, data: Any, rows: list[dict[str, Any]]) -> None:
    tokens = sum(label != -100 for row in data.labels for label in row)
    about = {
        "command": shlex.join(["python", *sys.argv]),
        "model": Path(args.model).name,
        "machine": {**measured_with(), "threads": torch.get_num_threads()},
        "examples": len(data),
        "tokens": tokens,
        "words": sum(data.words),
        "length": loaded.max_length,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
