"""Plans as JSON: version 2 as written, version 1 as read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import AttentrimError, PlanError
from .guarded import check_data, parse_json, read_text
from .indices import from_text, is_index, to_text
from .structures import STRUCTURES, Removed, Shapes, Structure, kinds

FORMAT = "attentrim-plan"
VERSION = 2
MOST_PLACES = 2**12
"""Of one sort, more than any model has: a file that claims more is damaged."""
FIRST_KINDS = ("heads", "uniform")
"""The kinds of version 1, which had a field each, and whose places were called sites."""


def write_plan(
    model_type: str, shapes: Shapes, removed: Mapping[str, Removed], made_by: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "model_type": model_type,
        "places": {places: [shape.to_dict() for shape in found] for places, found in shapes.items()},
        "removed": {name: _written(STRUCTURES[name], units) for name, units in removed.items()},
        "made_by": dict(made_by),
    }


def _written(kind: Structure, removed: Removed) -> Any:
    if kind.within:
        return {str(place): to_text(units) for place, units in removed.items()}
    return to_text(tuple(removed))


def read_plan(data: Any, source: str, plan: Any) -> Any:
    """A plan (an object of the class `plan`) from the data of a file; `source` names the file in complaints."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise PlanError(f'{source} is not an attentrim plan (no "format": "{FORMAT}").')
    try:
        check_data(data)  # a plan in a config was not read by us
    except AttentrimError as error:
        raise PlanError(f"{source} is damaged: {error}.") from error
    version = data.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise PlanError(f"{source} has no valid version. Got {version!r}.")
    if version > VERSION:
        raise PlanError(
            f"{source} has version {version}; this attentrim reads up to {VERSION}: pip install --upgrade attentrim"
        )
    try:
        shapes, removed = (_version_1 if version == 1 else _version_2)(data)
        return plan(str(data["model_type"]), shapes, removed, dict(data.get("made_by", {})))
    except PlanError as error:
        raise PlanError(f"{source}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlanError(f"{source} is damaged: {type(error).__name__}: {error}") from error


def _version_1(data: Mapping[str, Any]) -> tuple[Shapes, dict[str, Removed]]:
    within, whole = (STRUCTURES[name] for name in FIRST_KINDS)
    sites = _shapes(within, data["sites"])
    removed: dict[str, Removed] = {
        within.name: {_index(site): tuple(units) for site, units in data[within.name].items()},
        whole.name: _once(dict.fromkeys(data[whole.name], ()), data[whole.name]),
    }
    return {within.places: sites}, removed


def _version_2(data: Mapping[str, Any]) -> tuple[Shapes, dict[str, Removed]]:
    by_places = {kind.places: kind for kind in kinds()}
    shapes = {
        places: _shapes(by_places[places], found)
        for places, found in data["places"].items()
        if _known(places, by_places, "places")
    }
    removed = {
        name: _read(STRUCTURES[name], found, shapes)
        for name, found in data["removed"].items()
        if _known(name, STRUCTURES, "kind of structure")
    }
    return shapes, removed


def _shapes(kind: Structure, entries: list[Any]) -> tuple[Any, ...]:
    """The places of a model; raises where there are more, or more units in them, than any model has."""
    if len(entries) > MOST_PLACES:
        raise PlanError(f"it claims {len(entries)} {kind.places}, more than any model has")
    found = tuple(kind.shape.from_dict(entry) for entry in entries)
    for other in kinds():
        if other.places == kind.places and sum(map(other.units, found)) > other.most_units:
            raise PlanError(f"it claims more than {other.most_units} {other.name}, more than any model has")
    return found


def _known(name: str, names: Any, what: str) -> bool:
    if name not in names:
        raise PlanError(f"it mentions {name!r}: this version of attentrim knows no such {what}")
    return True


def _read(kind: Structure, written: Any, shapes: Shapes) -> Removed:
    here = shapes.get(kind.places, ())
    if not kind.within:
        return dict.fromkeys(from_text(written, len(here)), ())
    found = {}
    for key, text in written.items():
        place = _index(key)
        if place >= len(here):
            raise PlanError(f"there is no {kind.place} {place}: it lists {len(here)} {kind.places}")
        found[place] = from_text(text, kind.units(here[place]))
    return found


def _index(text: str) -> int:
    if not is_index(text) or str(int(text)) != text:
        raise PlanError(f"a place must be a whole number, not {text[:40]!r}")
    return int(text)


def _once(found: dict[int, tuple[int, ...]], given: list[int]) -> dict[int, tuple[int, ...]]:
    if len(found) < len(given):
        raise PlanError(f"the plan names a place twice: {given}")
    return found


def read_file(path: str | Path) -> Any:
    """The data of a plan file; one clear line for whatever is wrong with the file."""
    try:
        return parse_json(read_text(path, follow=True), unique=True)
    except OSError as error:
        raise PlanError(f"Cannot read the plan {path}: {error.strerror}.") from error
    except AttentrimError as error:
        raise PlanError(f"Cannot read the plan {path}: {error}.") from error
