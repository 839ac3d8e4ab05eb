"""AttendOut's generator on a problem whose right masks are known: real rewards against shuffled ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location(
    "planted_rewards", Path(__file__).parents[1] / "benchmarks" / "planted_rewards.py"
)
assert spec is not None
planted = importlib.util.module_from_spec(spec)
spec.loader.exec_module(planted)  # type: ignore[union-attr]

SEEDS = range(5, 10)


@pytest.fixture(scope="module")
def plain():
    return [planted.run("plain fine-tuning", seed)["accuracy"] for seed in SEEDS]


@pytest.mark.slow
def test_real_rewards_find_the_right_masks_and_shuffled_ones_do_not(plain):
    real = [planted.run("default", seed) for seed in SEEDS]
    shuffled = [planted.run("shuffled", seed) for seed in SEEDS]
    assert min(one["spurious"] for one in real) > max(one["spurious"] for one in shuffled)
    assert min(one["accuracy_under_masks"] for one in real) > max(one["accuracy_under_masks"] for one in shuffled)
    assert sum(one["spurious"] > 0.9 and one["honest"] < 0.2 for one in real) >= 4
    gains = [one["accuracy"] - before for one, before in zip(real, plain, strict=True)]
    assert sum(gain > 0.05 for gain in gains) >= 4


def test_one_seed_finds_the_right_masks():
    found = planted.run("default", seed=0)
    assert found["spurious"] > 0.9
    assert found["honest"] < 0.2
    assert found["others"] < 0.2
    assert found["accuracy_under_masks"] > 0.8
