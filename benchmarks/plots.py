"""Draw the figures of the results pages from the files under benchmarks/results, into docs/results.

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
from pages.formats import metric_name, task_name
from pages.measured import speed_of
from pages.raw import BENCHMARKS, ROOT, Place, paired
from pages.rows import METHODS

from attentrim import plots
from attentrim.compare.results import interval
from attentrim.plots.style import BLUE, GREY, below, look, tidy

OUT = ROOT / "docs" / "results"
MODEL = "mpnet-base"
SPEEDS = {
    "Fisher, all epochs for one speed": ("fisher-2", "fisher-2.6", "fisher-3", "fisher-4", "fisher-5"),
    "Fisher, one training for three speeds": ("fisher@2", "fisher@2.6", "fisher@4"),
    "the six lowest layers": ("fewer-layers-6-lowest",),
    "every second layer": ("fewer-layers-6-second",),
    "AutoAttention, heads and neurons": ("autoattention-2",),
    "L0, heads and neurons": ("l0-2",),
    "Fisher, heads alone": ("fisher-heads",),
}
"""Ways to a faster model, and the rows of each."""
FASTER = ("cola", "mrpc", "sst2", "pos", "wnut17")
ORDERS = {
    "top first": r"top-(\d+)",
    "greedy": r"greedy-(\d+)",
    "by the generator": r"generator-(\d+)",
    "top first, corrupted inputs": r"top-(\d+)-noise",
    "top first, hidden states count": r"top-(\d+)-states",
    "the same, 18 epochs at 1e-4": r"top-(\d+)-18-epochs-rate",
}
"""How layers were made uniform, and the rows of each."""


def speed(ax: Axes, task: str) -> None:
    """Points lost by how much faster the model is: one line for each way to make it faster, with 95% intervals."""
    place = Place.read(f"ours-speed/{MODEL}-{task}")
    ax.axhline(0, color=GREY, linestyle="--", linewidth=1)
    for number, (label, names) in enumerate(SPEEDS.items()):
        points = []
        for name in names:
            pairs = [100 * value for value in paired([place], name, "dense-longer").values()]
            times = speed_of(place.rows[name], task) if pairs else None
            if times:
                ends = interval(pairs)
                mean = statistics.fmean(pairs)
                points.append((times[0], mean, ends[1] - mean if ends else 0))
        if points:
            xs, ys, halves = zip(*sorted(points), strict=True)
            ax.errorbar(xs, ys, yerr=halves, capsize=2, elinewidth=0.8, label=label, **look(number))
    ax.set_xlim(1.2, None)
    tidy(ax, "times as fast, two CPU cores", "", f"{task_name(task)}, {metric_name(place.metric)}")
    if task == FASTER[0]:
        ax.set_ylabel("points above the dense model")


def speeds_legend(ax: Axes) -> None:
    """In the place of a sixth panel."""
    ax.axis("off")
    found: dict[str, Any] = {}
    for other in ax.figure.axes:
        found |= {str(label): handle for handle, label in zip(*other.get_legend_handles_labels(), strict=True)}
    ax.legend(found.values(), found.keys(), loc="center left", frameon=False)


def heads(ax: Axes) -> None:
    """Table 1 and Figure 2 of AutoAttention in one."""
    first, second = (Place.read(f"autoattention-{name}/{MODEL}-cola").data for name in ("table-1", "figure-2"))
    runs = [run for run in first["runs"] if run["name"] not in ("dense", "hisp-no-retraining")]
    runs += [run for run in second["runs"] if "target_sparsity" in run["name"]]
    plots.metric_against_sparsity({**first, "runs": runs}, ax)
    for text in ax.get_legend().get_texts():
        text.set_text({"dense-longer (baseline)": "dense"}.get(text.get_text(), METHODS.get(text.get_text(), "")))
    ax.set_ylabel("Matthews")
    ax.set_title("MPNet-base on CoLA", loc="left", fontsize="medium")


def layers(ax: Axes, task: str) -> None:
    """What is lost by the number of uniform layers, one line for each order, with 95% intervals."""
    found = Place.read(f"ours-layers/{MODEL}-{task}").data
    ax.axhline(0, color=GREY, linestyle="--", linewidth=1.5)
    for number, (label, pattern) in enumerate(ORDERS.items()):
        entries = [entry for entry in found["summary"] if re.fullmatch(pattern, entry["name"])]
        if entries:
            # side by side, so that all intervals can be seen
            counts = [entry["uniform"] + 0.09 * (number - len(ORDERS) / 2) for entry in entries]
            means = [100 * entry["difference"] for entry in entries]
            halves = [
                100 * (entry["interval"][1] - entry["difference"]) if entry["interval"] else 0 for entry in entries
            ]
            ax.errorbar(counts, means, yerr=halves, capsize=2, elinewidth=0.8, label=label, **look(number))
    below(ax)
    title = f"{task_name(task)}, {metric_name(found['metric'])}"
    tidy(ax, "uniform layers of 12", "points above the dense model", title)


REGULARISERS = {
    "vanilla-0.1": "attention dropout, p = 0.1",
    "vanilla-0.2": "attention dropout, p = 0.2",
    "layerdrop": "LayerDrop",
    "attention-layerdrop": "Attention LayerDrop",
    "drophead": "DropHead",
    "scheduler-falling": "dropout from 0.6 down to 0",
    "attendout": "AttendOut, v2 preset",
    "attendout-train-split": "the same, rewarded on training data",
    "attendout-prior-3": "the same, fewer dropped at the start",
    "attendout-default": "AttendOut, our defaults",
    "dense-95": "plain, 95% of the data",
}
"""Rows, and what they are called in the figure."""


def regularisers(ax: Axes, task: str) -> None:
    """Each way to drop attention against plain fine-tuning, with 95% intervals."""
    place = Place.read(f"ours-regularisers/{MODEL}-{task}")
    shown = {name: paired([place], name, "dense") for name in REGULARISERS if name in place.rows}
    ax.axvline(0, color=GREY, linestyle="--", linewidth=1)
    for height, pairs in enumerate(reversed(list(shown.values()))):
        points = [100 * value for value in pairs.values()]
        ax.plot(interval(points) or (), [height, height] if interval(points) else (), color=BLUE, linewidth=2)
        ax.plot(statistics.fmean(points), height, "o", color=BLUE)
    ax.set_yticks(range(len(shown)), [REGULARISERS[name] for name in reversed(shown)])
    tidy(ax, "points above plain fine-tuning", "", f"{task_name(task)}, {metric_name(place.metric)}")


LONGER = {
    "CoLA, corrupted inputs": (f"ours-layers/{MODEL}-cola", "top-8-18-epochs-noise"),
    "SST-2": (f"ours-tasks/{MODEL}-sst2", "top-8-6-epochs"),
    "WNUT-17": (f"ours-tasks/{MODEL}-wnut17", "top-8-24-epochs"),
    "tags": (f"ours-tasks/{MODEL}-pos", "top-8-6-epochs"),
}
"""Eight layers, three times as long: where each task has it."""


def by_epoch(ax: Axes, task: str, key: str) -> None:
    """One figure of each epoch over training: a thin line for each seed, a thick one for their mean."""
    name, row = LONGER[task]
    found = Place.read(name).data
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
        ax.axhline(statistics.fmean(dense), color=GREY, linestyle="--", linewidth=1.5, label="dense model")
        if task == [*LONGER][-1]:
            ax.legend(frameon=False, loc="lower right", fontsize="small")
        tidy(ax, "", f"{metric_name(found['metric'])} on dev", task)
    else:
        tidy(ax, "epoch", "training loss")


def sweep(ax: Axes, figure: int, setting: str) -> None:
    plots.sweep(Place.read(f"autoattention-figure-{figure}/{MODEL}-cola").data, setting, ax)


def draw(name: str, panels: Sequence[Callable[[Axes], Any]], rows_of_panels: int, size: tuple[float, float]) -> None:
    figure, axes = pyplot.subplots(
        rows_of_panels, len(panels) // rows_of_panels, figsize=size, layout="constrained", squeeze=False
    )
    for ax, panel in zip(axes.flat, panels, strict=True):
        panel(ax)
    OUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT / f"{name}.svg", metadata={"Date": None}, facecolor="white")
    pyplot.close(figure)


FIGURES: dict[str, tuple[list[Callable[[Axes], Any]], int, tuple[float, float]]] = {
    "speed": ([*(partial(speed, task=task) for task in FASTER), speeds_legend], 2, (10, 5.5)),
    "heads": ([heads], 1, (6, 4.5)),
    "layers": ([partial(layers, task=task) for task in ("cola", "mrpc")], 1, (9, 4)),
    "longer": (
        [partial(by_epoch, task=task, key=key) for key in ("value", "train_loss") for task in LONGER],
        2,
        (11, 4.5),
    ),
    "regularisers": ([partial(regularisers, task=task) for task in ("cola", "mrpc")], 1, (10, 4)),
    "sweeps": (
        [partial(sweep, figure=6, setting="gate_lr"), partial(sweep, figure=7, setting="penalty")],
        1,
        (9, 3.5),
    ),
}
"""Panels, in how many rows, and the size."""


def main() -> None:
    pyplot.rcParams["svg.hashsalt"] = "attentrim"
    for name, (panels, rows_of_panels, size) in FIGURES.items():
        try:
            draw(name, panels, rows_of_panels, size)
        except FileNotFoundError as error:
            print(f"{name}: not run ({Path(error.filename).relative_to(BENCHMARKS)})")


if __name__ == "__main__":
    main()
