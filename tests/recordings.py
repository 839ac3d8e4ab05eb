"""Run directories made by hand, whose content is known."""

from __future__ import annotations

import json

import numpy
import yaml
from safetensors.numpy import save_file

from attentrim.plan import Plan
from attentrim.sites import SiteShape

WORDS = ["[CLS]", "the", "keys", "to", "the", "cabinet", "are", "here", ".", "[SEP]"]


def plan_of(sites=2, heads=3, removed=None, uniform=(), made_by=None):
    shapes = tuple(SiteShape(f"encoder.layer.{index}.attention", heads, 4) for index in range(sites))
    gone = {"heads": removed or {}, "uniform": dict.fromkeys(uniform, ())}
    return Plan("bert", {"sites": shapes}, gone, made_by or {"method": "autoattention"})


def history_of(steps, sites=2, heads=3, closed=None):
    """Gates that close one after the other: `closed` maps (site, head) to the step at which it does."""
    closed = closed or {}
    lines = [{"step": 0, "epoch": 0.0, "heads": [list(range(heads))] * sites}]
    lines += [{"step": step, "epoch": step / steps, "loss": 1 / step} for step in range(1, steps + 1)]
    for line in lines:
        gone = {place for place, step in closed.items() if step <= line["step"]}
        line["gates"] = [[int((site, head) not in gone) for head in range(heads)] for site in range(sites)]
        line["gate_parameters"] = [
            [round(0.5 if gate else -0.25 - 0.01 * head, 4) for head, gate in enumerate(row)] for row in line["gates"]
        ]
        line["closed"] = [[step, *place] for place, step in closed.items() if step == line["step"]]
        line["reopened"] = []
    lines[-1]["eval_accuracy"] = 0.75
    return lines


def write_run(
    directory, *, plan=None, history=None, metrics=None, config=None, sentences=None, texts=None, bench=None
):
    """`sentences`: token lists; their attention is drawn at random. `metrics`: over those of a plain result."""
    directory.mkdir(parents=True, exist_ok=True)
    plan = plan or plan_of()
    plan.save(directory / "plan.json")
    lines = history if history is not None else history_of(4)
    (directory / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    result = {
        "task": "cola",
        "metric": "accuracy",
        "value": 0.75,
        "metrics": {"accuracy": 0.75},
        "examples": 40,
        "sparsity": plan.sparsity,
        "heads_total": plan.heads_total,
        "heads_kept": plan.heads_kept,
        "uniform_sites": list(plan.uniform),
        "parameters": 1000,
        "output_dir": str(directory),
        "train_seconds": 3.0,
        "method": "autoattention",
        "model": "tiny",
        "seed": 0,
        "trimmed": True,
        "masked_value": 0.75,
        **(metrics or {}),
    }
    (directory / "metrics.json").write_text(json.dumps(result), encoding="utf-8")
    settings = {"model": "tiny", "task": "cola", "method": "autoattention", "method_config": {"target_sparsity": 0.5}}
    (directory / "config.yaml").write_text(yaml.safe_dump({**settings, **(config or {})}), encoding="utf-8")
    sentences = [WORDS] if sentences is None else sentences
    tensors = {}
    generator = numpy.random.default_rng(0)
    for number, tokens in enumerate(sentences):
        for moment in ("before", "after"):
            for index, site in enumerate(plan.shapes["sites"]):
                weights = generator.dirichlet([0.3] * len(tokens), (site.heads, len(tokens)))
                tensors[f"{moment}.{number}.{index}"] = weights.astype("float16")
    words = {"tokens": sentences, "texts": texts or [" ".join(tokens) for tokens in sentences]}
    metadata = {name: json.dumps(value, ensure_ascii=False) for name, value in words.items()}
    save_file(tensors, directory / "attention.safetensors", metadata)
    if bench is not None:
        (directory / "bench.json").write_text(json.dumps(bench), encoding="utf-8")
    return directory


def bench_of(before=20.0, after=10.0):
    row = {"batch": 8, "length": 128, "dtype": "float32", "device": "cpu", "backend": "sdpa"}
    quartiles = {"speedup_quartiles": [1.9, 2.1], "milliseconds_quartiles": [1, 2]}
    return {
        "model": "small",
        "against": "the same model before trimming",
        "machine": {"cpu": "a chip", "gpus": [], "threads": 2, "torch": "2", "load": 0.1, "cores": 2},
        "repeats": 9,
        "padding": 0.125,
        "heads": 3,
        "heads_against": 6,
        "parameters": 1000,
        "parameters_against": 1250,
        "bytes": 4000,
        "bytes_against": 5000,
        "flops": 3_000_000,
        "flops_against": 6_000_000,
        "flops_length": 128,
        "rows": [
            {**row, "name": "against", "milliseconds_median": before, "speedup": 1.0, **quartiles},
            {**row, "name": "model", "milliseconds_median": after, "speedup": before / after, **quartiles},
        ],
    }


def speed_facts():
    """What a run adds to its result that timed its layers, the last of which is gone, and left two speeds."""
    parts = {"attention": 1.0, "feed-forward": 2.0, "rest": 0.5}
    half = {name: time / 2 for name, time in parts.items()}
    setting = {"batch": 8, "length": 128, "device": "cpu", "dtype": "float32", "backend": "sdpa", "unit": "ms"}
    rows = [{"layer": 0, "before": parts, "after": half}, {"layer": 1, "before": parts, "after": None}]
    speeds = [
        {"asked": 2.0, "measured": 2.05, "flops": 2.2, "value": 0.7, "directory": "speedup-2"},
        {"asked": 1.5, "measured": 1.52, "flops": 1.55, "value": 0.74, "directory": "speedup-1.5"},
    ]
    before = {"of": "the dense model", "value": 0.76, "metrics": {"accuracy": 0.76}}
    return {"layer_times": {**setting, "rest": 0.25, "rows": rows}, "speeds": speeds, "before": before}
