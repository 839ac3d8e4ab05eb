"""How numbers and tables are written."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from attentrim.compare.results import interval
from attentrim.tasks.metrics import LOWER_IS_BETTER

TASKS = {
    "cola": "CoLA",
    "mrpc": "MRPC",
    "sst2": "SST-2",
    "wnli": "WNLI",
    "pos": "tags",
    "wnut17": "WNUT-17",
    "wnut17_20": "WNUT-17, 20 epochs",
    "qnli": "QNLI",
    "rte": "RTE",
    "stsb": "STS-B",
    "mnli": "MNLI",
    "qqp": "QQP",
}
NO_VALUE = "-"
METRICS = {
    "matthews": "Matthews",
    "f1": "F1",
    "entity_f1": "entity F1",
    "similarity_spearman": "Spearman of similarities",
    "pairs_spearman": "Spearman on scored pairs",
    "neighbours": "neighbours kept",
}


def task_name(task: str) -> str:
    return TASKS.get(task, task)


def metric_name(metric: str) -> str:
    return METRICS.get(metric, metric.replace("_", " "))


def scale(metric: str) -> float:
    """Scores between 0 and 1 are written in points; perplexity is not."""
    return 1.0 if metric in LOWER_IS_BETTER else 100.0


def mean_and_spread(values: Sequence[float], by: float = 100.0) -> str:
    spread = f" ± {by * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{by * statistics.fmean(values):.1f}{spread}"


def difference(pairs: Sequence[float], by: float = 100.0) -> str:
    """The mean of paired differences, and its 95% interval."""
    if not pairs:
        return ""
    ends = interval(list(pairs))
    shown = f" ({by * ends[0]:+.1f} to {by * ends[1]:+.1f})" if ends else " (one seed)"
    return f"{by * statistics.fmean(pairs):+.1f}{shown}"


def counted(numbers: Sequence[int]) -> str:
    """ "5", or "3 to 5"."""
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


def rate(value: float | str) -> str:
    """3e-5, whatever the file has."""
    return f"{float(value):.0e}".replace("e-0", "e-")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown, without columns that are empty in all rows."""
    shown = [place for place in range(len(header)) if any(row[place] for row in rows)]
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line[place] for place in shown) + " |" for line in lines) + "\n"
