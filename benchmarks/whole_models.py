"""Time whole models of given widths beside the dense one: the speed asked for against the speed measured.

    cd benchmarks
    python whole_models.py --model mpnet-base --shapes results/speed/latency/mpnet-base-cpu-speeds.json
    python whole_models.py --model mpnet-base --shapes results/speed/latency/mpnet-base-h200-speeds.json \\
        --batch 32 --length 256 --dtype tf32 --backend cudagraph --device cuda

A file of shapes is a list: row and task, the speed-up that was asked for, heads and neurons kept by layer, layers
removed. Weights are random: speed does not depend on them. With --out the results are written to a file.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForSequenceClassification

from attentrim import Plan, trim
from attentrim.bench.timing import paired_ratios
from attentrim.speed.target import complete_target
from attentrim.speed.timing import time_models


def plan_of(model: Any, shape: dict[str, Any]) -> Plan:
    """Any plan that leaves this shape."""
    whole, gone = Plan.of(model), set(shape["layers_removed"])
    heads = {site: range(kept, whole.heads_kept[site]) for site, kept in enumerate(shape["heads_kept"])}
    neurons = {block: range(kept, whole.neurons_kept[block]) for block, kept in enumerate(shape["neurons_kept"])}
    stay: Any = [{place: units for place, units in kind.items() if place not in gone} for kind in (heads, neurons)]
    return Plan.of(model, heads=stay[0], neurons=stay[1], layers=sorted(gone))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a directory with a config")
    parser.add_argument("--shapes", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=40.0, help="for all repeats (default: 40)")
    for name, kind in (("batch", int), ("length", int), ("dtype", str), ("backend", str), ("device", str)):
        parser.add_argument(f"--{name}", type=kind)
    args = parser.parse_args()
    dense = AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(args.model)).eval()
    target = complete_target(dense, args.batch, args.length, args.dtype, args.backend, args.device)
    shapes = json.loads(args.shapes.read_text(encoding="utf-8"))
    models = [dense, *(trim(dense, plan_of(dense, shape)) for shape in shapes)]
    before, *times = time_models(models, target, args.seconds)
    print(f"{target}: dense {statistics.median(before):.2f} ms")
    for shape, found in zip(shapes, times, strict=True):
        shape["milliseconds"] = round(statistics.median(found), 3)
        shape["speedup"] = round(statistics.median(paired_ratios(before, found)), 3)
        print(f"{shape['row']}, {shape['task']}: asked {shape['asked']}, measured {shape['speedup']}")
    if args.out:
        args.out.write_text(json.dumps(shapes, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
