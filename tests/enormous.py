"""Small files that claim much, read by the commands and functions that meet them.

Run as a script, so that the memory it takes is its own: it writes one JSON object with what each case said (the error,
or what `report` cannot read), and by how many bytes the process grew.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from pathlib import Path

import fuzzing
import zoo
from recordings import bench_of, write_run

LAYERS = [f"encoder.layer.{index}" for index in range(5000)]


def claiming(by_site=(4, 4, 4), by_block=(32, 32, 32), /, **removed):
    """A plan for a BERT with so many heads and neurons in its layers."""
    plan = fuzzing.a_plan()
    sites = [
        {"path": f"{LAYERS[index]}.attention.self", "heads": n, "head_size": 6} for index, n in enumerate(by_site)
    ]
    plan["places"]["sites"] = sites
    plan["places"]["blocks"] = [{"path": LAYERS[index], "neurons": n} for index, n in enumerate(by_block)]
    plan["places"]["layers"] = [{"path": path} for path in LAYERS[: max(len(by_site), len(by_block))]]
    return {**plan, "removed": removed}


def hundred_million_heads():
    return claiming([4 * 10**6] * 25, heads={str(index): "0-3999999" for index in range(25)})


PLANS = {
    "10^8 heads": hundred_million_heads,
    "5000 sites": lambda: claiming([4] * 5000, heads={"0": "0"}),
    "65536 heads at one site": lambda: claiming([2**16], [32], heads={"0": "0-65534"}),
    "a million neurons": lambda: claiming([4], [10**6], neurons={"0": "0-999998"}),
}


def trimmed(folder, plan):
    """A checkpoint whose config has another plan than the one that it was made by."""
    from attentrim import Plan, trim

    model = zoo.build("bert", layers=3)
    trim(model, Plan.of(model, heads={0: [1]})).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["plan"] = plan
    (folder / "config.json").write_text(json.dumps(config))


def load(folder, plan):
    import transformers as tf

    trimmed(folder, plan)
    tf.AutoModel.from_pretrained(folder)


def show(folder):
    from attentrim.overview import summary
    from attentrim.runs.models import load_model

    plan = claiming([4], heads={"0": "0"})
    trimmed(folder, {**plan, "made_by": {"reason": "x" * 20_000_000}})
    summary(load_model(str(folder)))


def report(folder, history=(), **texts):
    from attentrim.report import write_report

    write_run(folder, history=history, sentences=[])
    for name, text in texts.items():
        (folder / f"{name}.json").write_text(text)
    (found,) = write_report([folder], folder / "report.html")
    raise LookupError(" ".join(sentence for sentence in found.missing if "cannot be read" in sentence))


def scores(count):
    """A history that ends with a score for each head, by which the report ranks them."""
    heads, values = list(range(count)), [round(0.001 * head, 3) for head in range(count)]
    return [{"step": step, "heads": [heads], "gates": [[0] * count], "scores": [values]} for step in (0, 1)]


def timings(count):
    against, model = bench_of()["rows"][:2]
    return {"rows": [{**row, "batch": batch} for batch in range(count) for row in (against, model)]}


CASES = {
    **{f"from_pretrained: {name}": lambda folder, plan=plan: load(folder, plan()) for name, plan in PLANS.items()},
    "show: 20 MB": show,
    **{f"report: {name}": lambda folder, plan=p: report(folder, plan=json.dumps(plan())) for name, p in PLANS.items()},
    "report: scores of 65536 heads": lambda folder: report(
        folder, scores(2**16), plan=json.dumps(PLANS["65536 heads at one site"]())
    ),
    "report: 20 MB": lambda folder: report(folder, metrics=json.dumps({"metric": "x" * 20_000_000})),
    "report: 20000 timings": lambda folder: report(folder, bench=json.dumps(timings(20_000))),
}


def main():
    from attentrim.errors import AttentrimError

    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, case) in enumerate(CASES.items()):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            (folder := Path(scratch, str(number))).mkdir()
            said = "nothing"
            try:
                case(folder)
            except (AttentrimError, LookupError) as error:
                said = str(error.args[0])
            found[name] = (said, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
