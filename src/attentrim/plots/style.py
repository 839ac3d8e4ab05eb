"""What all figures share: axes, colours that colour-blind people can tell apart, and marks beside colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import AttentrimError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

BLUE, ORANGE, GREEN, PINK, SKY, BROWN, GREY = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#a6761d",
    "#8c8c8c",
)
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, BROWN, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")


def axes(ax: Axes | None, size: tuple[float, float] = (5.0, 3.2)) -> Axes:
    """The given axes, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError("matplotlib", "report", "Plotting") from error
    made: Axes = pyplot.subplots(figsize=size, layout="constrained")[1]
    return made


def tidy(ax: Axes, x: str, y: str, title: str = "") -> Axes:
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if title:
        ax.set_title(title, loc="left", fontsize="medium")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def look(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of the n-th line: no two lines differ by colour alone."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[(number // len(COLOURS) + number) % len(DASHES)],
    }


def layers_colours(count: int) -> list[tuple[float, float, float, float]]:
    """From dark (first site) to light (last)."""
    scale = _scale("viridis")
    return [scale(0.9 * index / max(1, count - 1)) for index in range(count)]


def diverging() -> Colormap:
    """Orange below zero, pale at it, blue above."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("gates", [ORANGE, "#f4f1ec", BLUE])


def _scale(name: str) -> Colormap:
    from matplotlib import colormaps

    return colormaps[name]


def nothing(what: str, where: object) -> AttentrimError:
    return AttentrimError(f"There is nothing to draw: {where} has no {what}.")


def whole_ticks(ax: Axes, x: Sequence[int] | None = None, y: Sequence[int] | None = None, most: int = 16) -> None:
    """Ticks at sites and heads, thinned where there are many."""
    for numbers, setter in ((x, ax.set_xticks), (y, ax.set_yticks)):
        if numbers is not None:
            setter(list(numbers)[:: max(1, -(-len(numbers) // most))])
