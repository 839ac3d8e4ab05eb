"""The line that says what a run cost."""

from __future__ import annotations

import shlex

import pytest
from recordings import bench_of

from attentrim.runs.finish import _weak_reference
from attentrim.runs.headline import dense_command, headline, headline_of, lacks_dense, number, place, speeds_table

RESULT = {
    "metric": "accuracy",
    "value": 0.908,
    "removed": ["4 of 8 attention heads"],
    "trimmed": True,
    "speedup_measured": None,
    "speedup_flops": 1.984,
}
BEFORE = {"before": {"of": "the dense model", "value": 0.9124, "metrics": {}}}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.9124, ".912"),
        (0.05, ".050"),
        (0, ".000"),
        (-0.0314, "-.031"),
        (-0.0004, ".000"),
        (0.99951, "1.000"),
        (1, "1.000"),
        (-1, "-1.000"),
        (9.99951, "10.00"),
        (24.126, "24.13"),
        (99.996, "100.0"),
        (1234.56, "1,234.6"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


def test_plain_parameters():
    speed = {"speedup": 2.031, "at": (8, 128), "on": "this CPU"}
    assert headline("accuracy", 0.908, 0.912, **speed) == "accuracy .912 → .908, 2.03 × at 8 × 128 on this CPU"
    assert headline("perplexity", 26.7, 24.1, flops_ratio=1.984) == (
        "perplexity 24.10 → 26.70, 1.98 × by FLOPs (not timed)"
    )
    assert headline("f1", 0.9, 0.91, of="its teacher", flops_ratio=2) == (
        "f1 .910 (its teacher) → .900, 2.00 × by FLOPs (not timed)"
    )
    assert headline("f1", 0.9) == "f1 .900"
    assert headline("f1", None, flops_ratio=1.5) == "1.50 × by FLOPs (not timed)"
    assert headline("f1", None, 0.9, flops_ratio=1.5) == "f1 .900 before, 1.50 × by FLOPs (not timed)"


def test_a_timed_run_names_the_place_as_its_reader_knows_it():
    result = {**RESULT, **BEFORE}
    assert headline_of(result, bench_of(), here=True) == "accuracy .912 → .908, 2.00 × at 8 × 128 on this CPU"
    assert headline_of(result, bench_of()) == "accuracy .912 → .908, 2.00 × at 8 × 128 on a chip"
    machine = {"cpu": "a chip", "gpus": ["NVIDIA H200"]}
    assert {place("cuda", machine, here) for here in (True, False)} == {"NVIDIA H200"}
    assert place("cuda", {}) == "a GPU"
    assert place("cpu", {}) == "a CPU"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "accuracy .908, 1.98 × by FLOPs (not timed)"),
        ({"speedup_measured": 2.5}, "accuracy .908, 2.50 ×"),
        ({"removed": []}, "accuracy .908, nothing removed"),
        ({"trimmed": False}, "accuracy .908, not trimmed yet"),
        ({"speedup_flops": None, "flops_ratio": 1.25}, "accuracy .908, 1.25 × by FLOPs (not timed)"),
        ({"speedup_flops": None}, "accuracy .908, speed not known"),
        ({"head_trained": False}, "no metric (only hidden states were distilled), 1.98 × by FLOPs (not timed)"),
    ],
)
def test_a_run_that_was_not_timed(changes, text):
    assert headline_of({**RESULT, **changes}, {}) == text


def test_whether_a_dense_model_is_lacking():
    assert lacks_dense(RESULT)
    assert not lacks_dense({**RESULT, **BEFORE})
    assert not lacks_dense({**RESULT, "removed": []})
    assert not lacks_dense({**RESULT, "head_trained": False})


def test_the_command_for_the_dense_model_survives_a_shell():
    words = shlex.split(dense_command("my runs/a"))
    assert words[2:] == ["--config", "my runs/a/config.yaml", "--method", "none", "--output_dir", "my runs/a-dense"]
    assert dense_command("a/") == "attentrim train --config a/config.yaml --method none --output_dir a-dense"
    assert dense_command() == "attentrim train --config config.yaml --method none --output_dir dense"


def test_the_table_of_speeds():
    speeds = [
        {"asked": 3, "measured": None, "flops": None, "value": None, "directory": "c"},
        {"asked": 1.5, "measured": 1.52, "flops": 1.55, "value": 0.91, "directory": "b"},
    ]
    columns, rows = speeds_table({**RESULT, **BEFORE, "speeds": speeds})
    assert columns == ["asked", "measured", "by FLOPs", "accuracy", "directory"]
    assert rows == [
        ["dense", "1.00 ×", "1.00 ×", ".912", ""],
        ["1.50 ×", "1.52 ×", "1.55 ×", ".910", "b"],
        ["3.00 ×", "not timed", "", "", "c"],
    ]
    assert speeds_table({**RESULT, **BEFORE})[1] == []


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"value": 0.68, "removed": ["3 heads"]}, "(.680 against .496)"),
        ({"value": 0.51, "removed": ["3 heads"]}, None),
        ({"value": 0.68, "removed": []}, None),
        ({"value": None, "removed": ["3 heads"]}, None),
        ({"value": 0.68, "removed": ["3 heads"], "metric": "perplexity"}, None),
        ({"value": 0.68, "removed": ["3 heads"], "before": None}, None),
    ],
)
def test_a_dense_model_that_its_smaller_copy_surpasses_is_no_reference(result, said):
    found = _weak_reference({"metric": "matthews", "before": {"value": 0.496}, **result})
    assert found is said is None or said in found
