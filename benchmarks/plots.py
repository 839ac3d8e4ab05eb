"""Draw the figures of RESULTS.md from the files under benchmarks/results, into docs/results.

python benchmarks/plots.py
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib import pyplot
from matplotlib.axes import Axes
from tables import results_of

from attentrim import plots
from attentrim.plots.style import BLUE, GREY, below, look, tidy

HERE = Path(__file__).parent
OUT = HERE.parent / "docs" / "results"
MODEL = "mpnet-base"
ORDERS = {
    "top first": r"top-(\d+)",
    "greedy": r"greedy-(\d+)",
    "generator's": r"generator-(\d+)",
    "top first, distill_noise": r"top-(\d+)-noise",
    "top first, hidden states": r"top-(\d+)-states",
    "top first, 18 epochs at 1e-4": r"top-(\d+)-18-epochs-rate",
}
"""Of layers made uniform, and the rows that are of each."""


def heads(ax: Axes) -> None:
    """Table 1 and Figure 2 of AutoAttention in one."""
    first, second = (
        results_of(f"autoattention-table-1/{MODEL}-cola"),
        results_of(f"autoattention-figure-2/{MODEL}-cola"),
    )
    runs = [run for run in first["runs"] if run["name"] not in ("dense", "hisp-no-retraining")]
    runs += [run for run in second["runs"] if "target_sparsity" in run["name"]]
    plots.metric_against_sparsity({**first, "runs": runs}, ax)
    ax.set_title("CoLA, MPNet-base", loc="left", fontsize="medium")


def layers(ax: Axes, task: str) -> None:
    """What is lost by the number of uniform layers, one line an order, with 95% intervals."""
    found = results_of(f"ours-layers/{MODEL}-{task}")
    ax.axhline(0, color=GREY, linestyle="--", linewidth=1.5)
    for number, (label, pattern) in enumerate(ORDERS.items()):
        entries = [entry for entry in found["summary"] if re.fullmatch(pattern, entry["name"])]
        if entries:
            # beside each other, so that all intervals can be seen
            counts = [entry["uniform"] + 0.09 * (number - len(ORDERS) / 2) for entry in entries]
            means = [100 * entry["difference"] for entry in entries]
            halves = [
                100 * (entry["interval"][1] - entry["difference"]) if entry["interval"] else 0 for entry in entries
            ]
            ax.errorbar(counts, means, yerr=halves, capsize=2, elinewidth=0.8, label=label, **look(number))
    below(ax)
    title = "CoLA" if task == "cola" else "MRPC"
    tidy(ax, "uniform layers of 12", f"{found['metric']} above {found['baseline']}, points", title)


def differences(ax: Axes, name: str, rows: Sequence[str], title: str) -> None:
    """Rows against their baseline, with 95% intervals."""
    found = results_of(name)
    entries = {entry["name"]: entry for entry in found["summary"]}
    shown = [entries[row] for row in rows if row in entries and entries[row]["interval"] is not None]
    ax.axvline(0, color=GREY, linestyle="--", linewidth=1)
    for place, entry in enumerate(reversed(shown)):
        ax.plot([100 * end for end in entry["interval"]], [place, place], color=BLUE, linewidth=2)
        ax.plot(100 * entry["difference"], place, "o", color=BLUE)
    ax.set_yticks(range(len(shown)), [entry["name"] for entry in reversed(shown)])
    tidy(ax, f"{found['metric']} above {found['baseline']}, points", "", title)


LONGER = {
    "CoLA, disturbed data": (f"ours-layers/{MODEL}-cola", "top-8-18-epochs-noise"),
    "SST-2": (f"ours-tasks/{MODEL}-sst2", "top-8-6-epochs"),
    "WNUT-17": (f"ours-tasks/{MODEL}-wnut17", "top-8-24-epochs"),
    "tags": (f"ours-tasks/{MODEL}-pos", "top-8-6-epochs"),
}
"""Eight layers, three times as long: where each task has it."""


def by_epoch(ax: Axes, task: str, key: str) -> None:
    """One figure of each epoch over training: a thin line a seed, a thick one their mean."""
    name, row = LONGER[task]
    found = results_of(name)
    runs = [run for run in found["runs"] if run["name"] == row]
    epochs = [epoch["epoch"] for epoch in runs[0]["epochs"]]
    lines = [[epoch[key] for epoch in run["epochs"]] for run in runs]
    all_uniform = next(epoch["epoch"] for epoch in runs[0]["epochs"] if epoch["uniform"] == 8)
    ax.axvspan(all_uniform, epochs[-1], color=GREY, alpha=0.15, linewidth=0, label="eight layers uniform")
    for line in lines:
        ax.plot(epochs, line, color=BLUE, linewidth=0.7, alpha=0.6)
    ax.plot(epochs, [statistics.fmean(values) for values in zip(*lines, strict=True)], color=BLUE, linewidth=2)
    if key == "value":
        seeds = {run["seed"] for run in runs}
        dense = [run["value"] for run in found["runs"] if run["name"] == "dense-longer" and run["seed"] in seeds]
        ax.axhline(statistics.fmean(dense), color=GREY, linestyle="--", linewidth=1.5, label="dense-longer")
        if task == [*LONGER][-1]:
            ax.legend(frameon=False, loc="lower right", fontsize="small")
        tidy(ax, "", f"{found['metric'].replace('_', ' ')} on dev", task)
    else:
        tidy(ax, "epoch", "training loss")


REGULARISERS = (
    "vanilla-0.1",
    "vanilla-0.2",
    "layerdrop",
    "attention-layerdrop",
    "drophead",
    "scheduler-falling",
    "attendout",
    "attendout-train-split",
    "attendout-prior-3",
    "attendout-default",
    "dense-95",
)


def draw(name: str, panels: Sequence[Callable[[Axes], Any]], rows: int, size: tuple[float, float]) -> None:
    figure, axes = pyplot.subplots(rows, len(panels) // rows, figsize=size, layout="constrained", squeeze=False)
    for ax, panel in zip(axes.flat, panels, strict=True):
        panel(ax)
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / f"{name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def regularisers(task: str, title: str) -> Callable[[Axes], None]:
    return lambda ax: differences(ax, f"ours-regularisers/{MODEL}-{task}", REGULARISERS, title)


FIGURES: dict[str, tuple[list[Callable[[Axes], Any]], int, tuple[float, float]]] = {
    "heads": ([heads], 1, (6, 4.5)),
    "layers": ([lambda ax: layers(ax, "cola"), lambda ax: layers(ax, "mrpc")], 1, (9, 4)),
    "longer": (
        [partial(by_epoch, task=task, key=key) for key in ("value", "train_loss") for task in LONGER],
        2,
        (11, 4.5),
    ),
    "regularisers": ([regularisers("cola", "CoLA"), regularisers("mrpc", "MRPC")], 1, (10, 4)),
    "sweeps": (
        [
            lambda ax: plots.sweep(results_of(f"autoattention-figure-6/{MODEL}-cola"), "gate_lr", ax),
            lambda ax: plots.sweep(results_of(f"autoattention-figure-7/{MODEL}-cola"), "penalty", ax),
        ],
        1,
        (9, 3.5),
    ),
}
"""Panels, in how many rows, and the size."""


def main() -> None:
    pyplot.rcParams["svg.hashsalt"] = "attentrim"
    for name, (panels, rows, size) in FIGURES.items():
        try:
            draw(name, panels, rows, size)
        except FileNotFoundError as error:
            print(f"{name}: not run ({Path(error.filename).relative_to(HERE)})")


if __name__ == "__main__":
    main()
