"""Metrics, from scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def _matthews(truth: Any, guess: Any) -> float:
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(truth, guess))


def _accuracy(truth: Any, guess: Any) -> float:
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(truth, guess))


def _f1(truth: Any, guess: Any) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(truth, guess, zero_division=0.0))


CLASSIFICATION: dict[str, Callable[[Any, Any], float]] = {"matthews": _matthews, "accuracy": _accuracy, "f1": _f1}


def classification_metrics(names: Sequence[str], truth: Any, guess: Any) -> dict[str, float]:
    return {name: CLASSIFICATION[name](truth, guess) for name in names}
