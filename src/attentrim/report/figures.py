"""Figures for a page: SVG that takes the page's colours, with words and numbers beside it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import AttentrimError
from ..plots.style import BLUE, BROWN, GREEN, GREY, ORANGE, PINK, SKY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#010203"
"""Stands for the page's own colour of text, which differs by day and by night."""
MOST_ROWS = 16
SIZE = (3.7, 2.8)
"""Inches: about the width of a phone, so that text keeps its size."""
COLOURS = {BLUE: "blue", ORANGE: "orange", GREEN: "green", PINK: "pink", SKY: "sky", BROWN: "brown", GREY: "grey"}


@dataclass(frozen=True)
class Numbers:
    """What a figure shows, as a table."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    title: str
    svg: str
    words: str
    """What the figure shows, in words."""
    numbers: Numbers | None = None
    wide: bool = False


def figure(
    title: str,
    draw: Callable[[Axes], object],
    words: str,
    numbers: Numbers | None = None,
    size: tuple[float, float] = SIZE,
) -> Figure | None:
    """None where there is nothing to draw."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    look: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": title,
        "font.family": "sans-serif",
        "font.size": 10,
        "legend.fontsize": 9,
        "text.parse_math": False,  # names with dollar signs are names
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.facecolor": "none",
        "hatch.color": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
    }
    with rc_context(look):
        canvas = Canvas(figsize=size, layout="constrained")
        ax = canvas.add_subplot()
        try:
            draw(ax)
        except AttentrimError:
            return None
        file = io.StringIO()
        canvas.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return Figure(title, _for_page(file.getvalue(), title, words), words, numbers, wide=size[0] > SIZE[0])


def _for_page(svg: str, title: str, words: str) -> str:
    from markupsafe import escape

    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = svg.replace(INK, "var(--ink)")
    for colour, name in COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    svg = re.sub(r"(font(?:-family)?: (?:[0-9.]+px )?)'[^;\"]*", r"\1var(--font)", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}: {escape(words)}" ', 1)


def curve_words(name: str, places: Sequence[float], values: Sequence[float], along: str = "step") -> str:
    """'loss: 0.69 at step 10, 0.31 at step 400; lowest 0.30 at step 390.'"""
    if not values:
        return ""
    last = len(values) - 1
    low = min(range(len(values)), key=values.__getitem__)
    high = max(range(len(values)), key=values.__getitem__)

    def at(index: int) -> str:
        return f"{short(values[index])} at {along} {short(places[index])}"

    ends = [at(0)] if not last else [at(0), at(last)]
    extremes = [
        f"{word} {at(index)}" for word, index in (("lowest", low), ("highest", high)) if index not in (0, last)
    ]
    return f"{name}: {', '.join(ends)}{'; ' if extremes else ''}{', '.join(extremes)}."


def curve_numbers(
    along: str, names: Sequence[str], places: Sequence[float], columns: Sequence[Sequence[float]]
) -> Numbers:
    rows = [[short(place), *(short(column[index]) for column in columns)] for index, place in enumerate(places)]
    return Numbers([along, *names], thinned(rows))


def thinned(rows: Sequence[Any], most: int = MOST_ROWS) -> list[Any]:
    """At most so many, evenly, the first and the last among them."""
    if len(rows) <= most:
        return list(rows)
    return [rows[round(index * (len(rows) - 1) / (most - 1))] for index in range(most)]


def short(value: float | None) -> str:
    if value is None:
        return ""
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{int(value)}"
    return f"{value:.4g}"


def present(figures: Iterable[Figure | None]) -> list[Figure]:
    return [entry for entry in figures if entry is not None]
