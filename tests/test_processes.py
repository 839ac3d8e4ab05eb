"""In processes of their own: without attentrim, in both import orders, and from the wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers as tf
import zoo
from close import assert_close

from attentrim import Plan, portable, trim

ROOT = Path(__file__).parent.parent
PLANS = {
    "heads": {"heads": {0: [1, 2]}},
    "uniform only": {"uniform": [1]},
    "all uniform": {"uniform": [0, 1]},
    "headless": {"heads": {0: range(4)}},
}
LOGITS = """
import json, torch
ids = torch.arange(5, 16).repeat(2, 1)
mask = torch.ones_like(ids); mask[1, 7:] = 0
with torch.no_grad():
    print(json.dumps(model(input_ids=ids, attention_mask=mask).logits.tolist()))
"""


def python(code: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "HF_HUB_OFFLINE": "1", **environment}
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, env=variables, cwd="/")


def logits(process: subprocess.CompletedProcess[str]) -> torch.Tensor:
    assert process.returncode == 0, process.stderr
    return torch.tensor(json.loads(process.stdout.strip().splitlines()[-1]))


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    model = tf.BertForSequenceClassification(zoo.CONFIGS["bert"]()).eval()
    zoo.liven(model)
    return model


def expected(model) -> torch.Tensor:
    scope = {"model": model, "print": lambda text: scope.update(text=text)}
    exec(LOGITS, scope)
    return torch.tensor(json.loads(scope["text"]))


WITHOUT_ATTENTRIM = f"""
import sys; from transformers import AutoModelForSequenceClassification as A
for kind in sys.argv[2:]:
    print("=", kind, "=", file=sys.stderr, flush=True)
    try:
        A.from_pretrained(f"{{sys.argv[1]}}/trimmed/{{kind}}")
        print("loaded", file=sys.stderr, flush=True)
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
    model = A.from_pretrained(f"{{sys.argv[1]}}/portable/{{kind}}")
    {LOGITS.strip().replace(chr(10), chr(10) + "    ")}
assert "attentrim" not in sys.modules
"""


@pytest.fixture(scope="module")
def without_attentrim(classifier, tmp_path_factory):
    """By plan: what plain transformers says to the trimmed checkpoint, and what the portable one answers there."""
    place = tmp_path_factory.mktemp("plain")
    for kind, plan in PLANS.items():
        trim(classifier, Plan.of(classifier, **plan)).save_pretrained(place / "trimmed" / kind)
        portable(classifier, Plan.of(classifier, **plan)).save_pretrained(place / "portable" / kind)
    process = python(WITHOUT_ATTENTRIM, str(place), *PLANS)
    assert process.returncode == 0, process.stderr
    complaints = [process.stderr.partition(f"= {kind} =")[2].partition("\n= ")[0] for kind in PLANS]
    answers = [torch.tensor(json.loads(line)) for line in process.stdout.splitlines()]
    return dict(zip(PLANS, zip(complaints, answers, strict=True), strict=True))


@pytest.mark.parametrize("kind", PLANS)
def test_plain_transformers_refuses_a_trimmed_checkpoint(kind, without_attentrim):
    complaint, _ = without_attentrim[kind]
    assert "loaded" not in complaint.splitlines()
    assert "raising an error" in complaint
    assert "attentrim" in complaint
    assert "mismatch" in complaint


@pytest.mark.parametrize("kind", PLANS)
def test_plain_transformers_loads_a_portable_checkpoint(kind, classifier, without_attentrim):
    _, answer = without_attentrim[kind]
    assert_close(answer, expected(portable(classifier, Plan.of(classifier, **PLANS[kind]))))


AUTO = "from transformers import AutoModelForSequenceClassification as A"


@pytest.mark.parametrize(
    "imports",
    [
        f"import attentrim; {AUTO}",
        f"{AUTO}; import attentrim",
        f"import transformers.quantizers.auto; import attentrim; {AUTO}",
        f"from attentrim import trim; {AUTO}",
    ],
)
def test_any_order_of_imports_loads_a_trimmed_checkpoint(imports, classifier, tmp_path):
    small = trim(classifier, Plan.of(classifier, heads={0: [1]}, uniform=[1]))
    small.save_pretrained(tmp_path)
    process = python(f"{imports}\nmodel = A.from_pretrained({str(tmp_path)!r})\n{LOGITS}")
    assert_close(logits(process), expected(small))


def test_the_wheel_works_outside_the_source_tree(classifier, tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(tmp_path / "site"), str(wheel)], check=True, capture_output=True)
    small = trim(classifier, Plan.of(classifier, heads={0: [1]}, uniform=[1]))
    small.save_pretrained(tmp_path / "small")
    process = python(
        f"import attentrim; assert attentrim.__file__.startswith({str(tmp_path)!r}), attentrim.__file__\n"
        "from transformers import AutoModelForSequenceClassification as A\n"
        f"model = A.from_pretrained({str(tmp_path / 'small')!r})\n{LOGITS}",
        PYTHONPATH=str(tmp_path / "site"),
    )
    assert_close(logits(process), expected(small))
    script = (
        "import sys, attentrim.cli as cli; assert cli.__file__.startswith(sys.argv[1]);"
        "sys.exit(cli.main(['show', '--model', sys.argv[2]]))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), str(tmp_path / "small")],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )
    assert shown.returncode == 0, shown.stderr
    assert "uniform" in shown.stdout
    assert (tmp_path / "site" / "attentrim" / "py.typed").exists()


PARALLEL = """
import sys, torch, torch.distributed as dist, attentrim
from transformers import AutoModelForSequenceClassification
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}/meet", rank=rank, world_size=2)
for kind in sys.argv[3:]:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(f"{sys.argv[2]}/{kind}").train()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    torch.manual_seed(rank)
    for _ in range(3):
        parallel(input_ids=torch.randint(5, 80, (2, 9)), labels=torch.tensor([0, 1])).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(kind, sum(p.double().sum().item() for p in model.parameters()))
dist.barrier()
"""


def test_two_processes_train_a_trimmed_model_in_step(classifier, tmp_path):
    """Data parallelism waits for every trainable parameter: one without a gradient would stop it."""
    kinds = ["all uniform", "headless"]
    for kind in kinds:
        trim(classifier, Plan.of(classifier, **PLANS[kind])).save_pretrained(tmp_path / kind)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PARALLEL, str(rank), str(tmp_path), *kinds],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    answers = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    first, second = (out.splitlines() for out, _ in answers)
    assert [line.rpartition(" ")[0] for line in first] == kinds
    assert first == second
