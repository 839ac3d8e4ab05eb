"""Damage files at random and read them: nothing but attentrim's own errors may come out.

Run as a script, so that the memory it takes is its own: it writes one JSON object with the number of inputs, the leaks
(what came out that is no AttentrimError) and by how many bytes the process grew.
"""

from __future__ import annotations

import copy
import json
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import yaml
from recordings import bench_of, history_of, plan_of, speed_facts, write_run

from attentrim.errors import AttentrimError

DIGITS, DEEP, WIDE = "@digits@", "@deep@", "@wide@"
RAW = {DIGITS: "9" * 5000, DEEP: "[" * 20_000 + "]" * 20_000, WIDE: "[" + "0," * 20_000 + "0]"}
"""What is written in place of these: JSON that `json.dumps` does not write."""
ODD = (
    *(None, True, False, 0, 1, -1, 2, 3.5, -0.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), -float("inf")),
    *(10**6, 4 * 10**6, 10**8, 10**17, 10**30, -(10**30), DIGITS, DEEP, WIDE),
    *("", "x", "0", "-1", "1e999", "nan", "$\\undefined$", "\0", "\ud800", "é" * 50, "a" * 100_000, "../../x", "/"),
    *("0-99999999", "0-4194303", "5-1", "1,1", "mask:////////", "mask:" + "/" * 40_000, "{dense}", "%s %d {0}"),
    *([], {}, [[]], [{}], [None], [0, 1], [[1, 2, 3]], ["a"], {"a": 1}, {"": None}, {"then": "then"}, {"0": "0-9"}),
    *([[0] * 3] * 3, [1e308, float("nan")], {"value": "x"}, {"name": []}, [[[[[[[[1]]]]]]]], {"then": {"then": []}}),
)


def damaged(data, rng):
    """A copy with one to three values replaced, taken away, renamed, repeated or put elsewhere."""
    data = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = rng.choice(places(data) or [(None, None)])
        if holder is None:
            return rng.choice(ODD)
        change = rng.random()
        if change < 0.7:
            holder[key] = copy.deepcopy(rng.choice(ODD))
        elif change < 0.8:
            del holder[key]
        elif change < 0.9:
            holder[key] = [copy.deepcopy(holder[key])] * rng.choice((1, 2, 50))
        elif isinstance(holder, dict):
            holder[rng.choice(("x", "0", "99999999999", "9" * 5000, "then", "rows"))] = holder.pop(key)
        else:
            other, place = rng.choice(places(data))
            holder[key] = copy.deepcopy(other[place])
    return data


def places(data):
    """All (container, key) in nested data."""
    found, left = [], [data]
    while left:
        holder = left.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        found += [(holder, key) for key in keys][:200]
        left += [holder[key] for key in keys][:200]
    return found


def as_bytes(text, rng):
    """The text with, now and then, its end cut off or bytes of it replaced."""
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw).replace(name, raw)
    content = bytearray(text.encode("utf-8", "surrogatepass"))
    change = rng.random()
    if change < 0.05:
        del content[rng.randrange(len(content) + 1) :]
    elif change < 0.1 and content:
        for _ in range(rng.choice((1, 5, 50))):
            content[rng.randrange(len(content))] = rng.randrange(256)
    elif change < 0.11:
        content = bytearray(rng.randbytes(rng.choice((1, 100, 10_000))))
    return bytes(content)


def write_json(path, data, rng):
    path.write_bytes(as_bytes(json.dumps(data), rng))


# What is read, each a function that makes one input and reads it


def a_plan():
    """With all kinds of places."""
    made_by = {"method": "fisher", "then": {"method": "hisp", "drop_rates": {"0": 0.5}, "reason": "scores"}}
    layers = [f"encoder.layer.{index}" for index in range(3)]
    return {
        "format": "attentrim-plan",
        "version": 2,
        "model_type": "bert",
        "places": {
            "sites": [{"path": f"{layer}.attention.self", "heads": 4, "head_size": 8} for layer in layers],
            "blocks": [{"path": layer, "neurons": 32} for layer in layers],
            "layers": [{"path": layer} for layer in layers],
        },
        "removed": {"heads": {"0": "1-2"}, "uniform": "1", "neurons": {"0": "0-7,9"}, "layers": "2"},
        "made_by": made_by,
    }


def first_version():
    sites = [{"path": f"encoder.layer.{index}.attention", "heads": 4, "head_size": 8} for index in range(3)]
    return {
        "format": "attentrim-plan",
        "version": 1,
        "model_type": "bert",
        "sites": sites,
        "heads": {"0": [1, 2]},
        "uniform": [1],
        "made_by": {},
    }


def use(plan):
    from attentrim.breakdown import breakdown

    return plan.facts(), plan.describe(), plan.left(), plan.after(), breakdown(plan), plan.to_dict()


def read_plan(folder, rng):
    from attentrim.plan import Plan

    write_json(folder / "plan.json", damaged(rng.choice((a_plan, first_version))(), rng), rng)
    use(Plan.load(folder / "plan.json"))


class Model:
    """As much of a model as is asked for its stored plan."""

    class config:  # noqa: N801
        quantization_config = None


def read_plan_in_config(folder, rng):
    from attentrim.checkpoint.stored import TrimmedConfig, full_size, stored_plan

    data = damaged({"plan": a_plan(), "full_size": {"parameters": 10, "flops": 20, "length": 128}}, rng)
    if not isinstance(data, dict):
        return
    Model.config.quantization_config = TrimmedConfig(**{name: data[name] for name in data if name.isidentifier()})
    plan = stored_plan(Model)
    full_size(Model)
    use(plan)


def damaged_run(folder, rng):
    """A run of which one or two files are damaged."""
    plan = plan_of(3, 4, removed={0: (1,), 2: (0, 3)}, uniform=(1,), made_by=a_plan()["made_by"])
    history = history_of(5, 3, 4, closed={(0, 1): 2, (2, 0): 3, (2, 3): 4})
    history[-1]["drop_rates"] = history[-2]["drop_rates"] = [0.1, 0.2, 0.3]
    more = {"alternatives": {"greedy": 0.5}, "remarks": ["slow"], "measured_with": {"cpu": "a chip"}}
    write_run(folder, plan=plan, history=history, metrics={**speed_facts(), **more}, bench=bench_of(), sentences=[])
    for name in rng.sample(
        ("metrics.json", "bench.json", "plan.json", "history.jsonl", "config.yaml"), rng.choice((1, 2))
    ):
        path = folder / name
        if name == "history.jsonl":
            lines = [json.dumps(damaged(line, rng)) for line in history]
            path.write_bytes(as_bytes("\n".join(lines), rng))
        elif name == "config.yaml":
            path.write_bytes(as_bytes(yaml.safe_dump(damaged(yaml.safe_load(path.read_text()), rng)), rng))
        else:
            write_json(path, damaged(json.loads(path.read_text()), rng), rng)


def read_run(folder, rng):
    from attentrim.report import write_report

    damaged_run(folder, rng)
    write_report([folder], folder.parent / "report.html")


def read_card(folder, rng):
    from attentrim.card import write_card

    damaged_run(folder, rng)
    (folder / "README.md").unlink(missing_ok=True)
    write_card(folder)


def read_comparison(folder, rng):
    from attentrim.report import write_report

    runs = []
    for number, name in enumerate(("dense", "a", "b")):
        settings = {"method": name, "method_config": {"rate": number}}
        result = {"value": 0.5, "sparsity": 0.1 * number, "heads_total": 12, "heads_kept": [4, 4, 4 - number]}
        runs.append({"name": name, "seed": 0, "error": None, "settings": settings, **result})
        if not (folder / name).is_dir():
            write_run(folder / name / "seed-0", sentences=[], metrics={"method": name})
    summary = [{"name": name, "difference": 0.1, "interval": [0.0, 0.2]} for name in ("a", "b")]
    whole = {"metric": "accuracy", "baseline": "dense", "about": "", "runs": runs, "summary": summary}
    write_json(folder / "results.json", damaged(whole, rng), rng)
    write_report([folder], folder.parent / "comparison.html")


def read_table(folder, rng):
    from attentrim.speed.table import Table

    levels = {"heads": {"0": 0.0, "4": 1.0}, "neurons": {"0": 0.0, "32": 2.0}, "uniform": {"0": 0.1}}
    table = {
        "version": 1,
        "unit": "ms",
        "model": {"type": "bert", "shapes": "00"},
        "fixed": 0.5,
        "target": {"batch": 8, "length": 128, "dtype": "float32", "backend": "sdpa", "device": "cpu"},
        "machine": {"cpu": "a chip", "cores": 2},
        "groups": [{"layers": [[0, {"sites": [0], "blocks": [0]}]], "rest": 0.1, "levels": levels}],
        "checks": [[1.5, 1.4], [2.0, 1.8]],
    }
    write_json(folder / "table.json", damaged(table, rng), rng)
    found = Table.load(folder / "table.json")
    assert found.dense >= 0
    assert found.corrected(1.7) is not None
    assert found.to_dict()


TRAINING = {
    "model": "tiny",
    "task": "cola",
    "method": "autoattention",
    "method_config": {"target_sparsity": 0.5},
    "learning_rate": "1e-4",
    "seed": 3,
    "max_length": 64,
    "no_bench": True,
    "dropout": 0.1,
    "eval_strategy": False,
}
COMPARED = {
    "about": "all",
    "model": "tiny",
    "task": "cola",
    "seeds": 2,
    "baseline": "dense",
    "num_train_epochs": 1,
    "runs": {"dense": {"method": "none"}, "late": {"method": "hisp", "method_config": {"target_sparsity": 0.25}}},
    "sweep": {"method": ["autoattention"], "target_sparsity": [0.25, 0.5], "gate_lr": [0.1, 1]},
}
LETTERS = tuple(zip("abcdefgh", "bcdefghi", strict=True))
BOMBS = (
    "a: &a [x, x]\n" + "".join(f"{to}: &{to} [{', '.join([f'*{of}'] * 9)}]\n" for of, to in LETTERS),
    "a: &a {x: 1}\n" + "".join(f"{to}: &{to} {{<<: [{', '.join([f'*{of}'] * 9)}]}}\n" for of, to in LETTERS),
    *("a: &a [*a]", "!!bool x", "!!int ''", "2001-02-30", "!!python/object/apply:os.system [true]", "? [a]\n: b"),
    *("a: " + ":".join(["59"] * 5000), "a: " + "[" * 5000, "task: !!set {a, b}", "task: 2001-01-01", "--- a\n--- b"),
)
"""YAML that stands for billions of values, or that its reader trips over."""


def read_config_file(folder, rng):
    from attentrim.compare.config import make_experiment
    from attentrim.runs.files import read_config
    from attentrim.runs.settings import RunSettings, read_method

    data = rng.choice((TRAINING, COMPARED))
    text = rng.choice(BOMBS) if rng.random() < 0.1 else yaml.safe_dump(damaged(data, rng), allow_unicode=True)
    (folder / "config.yaml").write_bytes(as_bytes(text, rng))
    config = read_config(folder / "config.yaml")
    if data is COMPARED:
        make_experiment(config, {})
    else:
        settings = RunSettings.from_mapping(config)
        read_method(settings.method, settings.method_config)


TARGETS = {
    read_plan: 1100,
    read_plan_in_config: 700,
    read_run: 90,
    read_card: 300,
    read_comparison: 110,
    read_table: 700,
    read_config_file: 250,
}


def without_drawing():
    """What figures show is computed; that they are put on paper, which takes most of the time, is not."""
    from matplotlib.figure import Figure

    drawn = Figure.savefig
    count = iter(range(10**9))

    def savefig(self, file, **kwargs):
        return drawn(self, file, **kwargs) if next(count) % 50 == 0 else file.write("<svg ></svg>")

    Figure.savefig = savefig


def main(seed, scale=1.0):
    warnings.simplefilter("ignore")
    without_drawing()
    leaks, total, seconds = [], 0, {}
    grown = 0
    with tempfile.TemporaryDirectory() as scratch:
        for target, count in TARGETS.items():
            folder = Path(scratch, target.__name__)
            folder.mkdir()
            start = time.perf_counter()
            for number in range(round(count * scale)):
                rng = random.Random(f"{seed} {target.__name__} {number}")
                try:
                    target(folder, rng)
                except AttentrimError as error:
                    if len(str(error)) > 5000:
                        leaks.append(f"{target.__name__} {number}: a message of {len(str(error))} characters")
                except BaseException:
                    leaks.append(f"{target.__name__} {number}: {traceback.format_exc(limit=-3)[-1500:]}")
                if total == 0:
                    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                total += 1
            seconds[target.__name__] = round(time.perf_counter() - start, 1)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown) * 1024
    sys.stdout.write(json.dumps({"inputs": total, "leaks": leaks, "grown": grown, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
