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
AS_WRITTEN: dict[str, Any] = {"parse_math": False}
"""Names with dollar signs are names, not formulas."""
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
    ax.set_xlabel(x, **AS_WRITTEN)
    ax.set_ylabel(y, **AS_WRITTEN)
    if title:
        ax.set_title(title, loc="left", fontsize="medium", **AS_WRITTEN)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def look(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of the n-th line: no two lines differ by colour alone, and none hides another."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 5,
        "markerfacecolor": "none",
        "linestyle": DASHES[(number // len(COLOURS) + number) % len(DASHES)],
    }


def plain_look() -> dict[str, Any]:
    """Of what others are compared with."""
    return {"color": GREY, "linestyle": "--", "marker": "."}


def below(ax: Axes, columns: int = 2) -> None:
    """A legend under the axes, where it covers nothing."""
    legend = ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=columns)
    for text in legend.get_texts():
        text.set(**AS_WRITTEN)


def layers_look(count: int) -> list[dict[str, Any]]:
    """One line per layer: looks of their own, or from dark to light where there are many."""
    if count <= len(COLOURS):
        return [{**look(number), "marker": ""} for number in range(count)]
    scale = _scale("viridis")
    return [
        {"color": scale(0.2 + 0.6 * index / (count - 1)), "linestyle": DASHES[index % len(DASHES)]}
        for index in range(count)
    ]


def diverging() -> Colormap:
    """Orange below zero, nothing at it, blue above, so that it goes with any background."""
    from matplotlib.colors import LinearSegmentedColormap

    ends = [(0.0, f"{ORANGE}c8"), (0.5, f"{ORANGE}08"), (0.5, f"{BLUE}08"), (1.0, f"{BLUE}c8")]
    return LinearSegmentedColormap.from_list("gates", ends)


def _scale(name: str) -> Colormap:
    from matplotlib import colormaps

    return colormaps[name]


def ink() -> str:
    """The colour of text, for marks."""
    from matplotlib import rcParams

    return str(rcParams["text.color"])


def nothing(what: str, where: object) -> AttentrimError:
    return AttentrimError(f"There is nothing to draw: {where} has no {what}.")


def whole_ticks(ax: Axes, x: Sequence[int] | None = None, y: Sequence[int] | None = None, most: int = 16) -> None:
    """Ticks at sites and heads, thinned where there are many."""
    for numbers, setter in ((x, ax.set_xticks), (y, ax.set_yticks)):
        if numbers is not None:
            setter(list(numbers)[:: max(1, -(-len(numbers) // most))])
