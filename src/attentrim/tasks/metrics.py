"""Metrics, from scikit-learn, SciPy and seqeval. Each is imported when it is used."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import MissingExtraError

LOWER_IS_BETTER = ("perplexity", "word_perplexity")


def score(metric: str, value: float) -> float:
    """Higher is better; differences are points of the metric, or shares of a perplexity."""
    return -math.log(value) if metric in LOWER_IS_BETTER else value


def _matthews(truth: Any, guess: Any) -> float:
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(truth, guess))


def _accuracy(truth: Any, guess: Any) -> float:
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(truth, guess))


def _f1(truth: Any, guess: Any) -> float:
    """Of class 1."""
    from sklearn.metrics import f1_score

    return float(f1_score(truth, guess, zero_division=0.0))


def _f1_macro(truth: Any, guess: Any) -> float:
    """The mean over the classes."""
    from sklearn.metrics import f1_score

    classes = sorted({*truth, *guess} - {-1})  # -1 is no answer
    return float(f1_score(truth, guess, labels=classes, average="macro", zero_division=0.0))


def _correlation(name: str) -> Callable[[Any, Any], float]:
    def compute(truth: Any, guess: Any) -> float:
        from scipy import stats

        if len(truth) < 2:
            return 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of constant numbers, which are correlated with nothing
            value = float(getattr(stats, name)(truth, guess).statistic)
        return 0.0 if math.isnan(value) else value

    return compute


METRICS: dict[str, Callable[[Any, Any], float]] = {
    "matthews": _matthews,
    "accuracy": _accuracy,
    "f1": _f1,
    "f1_macro": _f1_macro,
    "pearson": _correlation("pearsonr"),
    "spearman": _correlation("spearmanr"),
}
"""Of classes, numbers or tags: all that are true, and all that were answered."""


def _entity(name: str) -> Callable[[Any, Any], float]:
    def compute(truth: Any, guess: Any) -> float:
        try:
            from seqeval import metrics
        except ImportError as error:
            raise MissingExtraError("seqeval", "seqeval", "Scoring named entities") from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes that were never predicted
            return float(getattr(metrics, f"{name}_score")(truth, guess))

    return compute


ENTITY_METRICS: dict[str, Callable[[Any, Any], float]] = {
    "entity_f1": _entity("f1"),
    "entity_precision": _entity("precision"),
    "entity_recall": _entity("recall"),
}
"""Of sentences: lists of tags such as B-PER; an entity counts if both its ends and its type are right."""


def compute(names: Sequence[str], truth: Any, guess: Any) -> dict[str, float]:
    return {name: METRICS[name](truth, guess) for name in names}
