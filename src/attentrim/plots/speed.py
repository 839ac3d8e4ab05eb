"""What a trimmed model costs beside the one that it was cut from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AttentrimError
from ..guarded import read_json
from ..runs.reader import BENCH, Recorded, measured_pairs, sound_bench
from .style import AS_WRITTEN, BLUE, GREY, axes, below, nothing, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def latency_and_flops(bench: str | Path | Recorded | Mapping[str, Any], ax: Axes | None = None) -> Axes:
    """Milliseconds at each measured setting, and FLOPs, before and after, as shares of before.

    `bench` is what `attentrim bench --out` wrote (or its content), or a run that was timed.
    """
    data = _content(bench)
    pairs = [(_milliseconds(before), _milliseconds(after), _setting(after)) for before, after in measured_pairs(data)]
    if data.get("flops") and data.get("flops_against"):
        length = data.get("flops_length")
        pairs.append((data["flops_against"] / 1e9, data["flops"] / 1e9, f"GFLOPs\n1 x {length}"))
    if not pairs:
        raise nothing("pair of timed models", "the measurement")
    ax = axes(ax, (max(4.0, 1.4 * len(pairs)), 3.2))
    befores, afters, settings = zip(*pairs, strict=True)
    for offset, colour, name, values in ((-0.2, GREY, "before", befores), (0.2, BLUE, "after", afters)):
        places = [number + offset for number in range(len(pairs))]
        shares = [value / before for value, before in zip(values, befores, strict=True)]
        bars = ax.bar(places, shares, 0.38, color=colour, label=name)
        ax.bar_label(bars, [f"{value:.3g}" for value in values], padding=1)
    ax.set_xticks(range(len(pairs)), settings, **AS_WRITTEN)
    ax.set_ylim(0, 1.15)
    below(ax)
    return tidy(ax, "", "share of before")


def _content(bench: str | Path | Recorded | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(bench, Recorded):
        return bench.bench
    if not isinstance(bench, Mapping):
        path = Path(bench) / BENCH if Path(bench).is_dir() else Path(bench)
        bench = read_json(path, "what `attentrim bench --out` wrote in", follow=not Path(bench).is_dir())
        if not isinstance(bench, dict):
            raise AttentrimError(f"{path} is not what `attentrim bench --out` writes.")
    return sound_bench(bench)


def _milliseconds(row: Mapping[str, Any]) -> float:
    return float(row["milliseconds_median"])


def _setting(row: Mapping[str, Any]) -> str:
    return f"ms, {row['batch']} x {row['length']}\n{row['device']}, {row['dtype']}"
