"""Plans as JSON: version 2 as written, version 1 as read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import PlanError
from .indices import from_text, to_text
from .structures import STRUCTURES, Removed, Shapes, Structure, kinds

FORMAT = "attentrim-plan"
VERSION = 2
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
    sites = tuple(within.shape.from_dict(entry) for entry in data["sites"])
    removed: dict[str, Removed] = {
        within.name: {_index(site): tuple(units) for site, units in data[within.name].items()},
        whole.name: _once(dict.fromkeys(data[whole.name], ()), data[whole.name]),
    }
    return {within.places: sites}, removed


def _version_2(data: Mapping[str, Any]) -> tuple[Shapes, dict[str, Removed]]:
    by_places = {kind.places: kind for kind in kinds()}
    shapes = {
        places: tuple(by_places[places].shape.from_dict(entry) for entry in found)
        for places, found in data["places"].items()
        if _known(places, by_places, "places")
    }
    removed = {
        name: _read(STRUCTURES[name], found, shapes)
        for name, found in data["removed"].items()
        if _known(name, STRUCTURES, "kind of structure")
    }
    return shapes, removed


def _known(name: str, names: Any, what: str) -> bool:
    if name not in names:
        raise PlanError(f"it speaks of {name!r}, which is no {what} that this attentrim knows")
    return True


def _read(kind: Structure, written: Any, shapes: Shapes) -> Removed:
    here = shapes.get(kind.places, ())
    if not kind.within:
        return dict.fromkeys(from_text(written, len(here)), ())
    found = {}
    for key, text in written.items():
        place = _index(key)
        if place >= len(here):
            raise PlanError(f"there is no {kind.place} {place}: it speaks of {len(here)} {kind.places}")
        found[place] = from_text(text, kind.units(here[place]))
    return found


def _index(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or str(int(text)) != text:
        raise PlanError(f"a place is named by a whole number, not by {text[:40]!r}")
    return int(text)


def _once(found: dict[int, tuple[int, ...]], given: list[int]) -> dict[int, tuple[int, ...]]:
    if len(found) < len(given):
        raise PlanError(f"the plan names a place twice: {given}")
    return found


def parse_json(path: str | Path) -> Any:
    """The data of a plan file; one clear line for whatever is wrong with the file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(f"Cannot read the plan {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path} is not a text file.") from error
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path} is not valid JSON: {error}.") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON lets a key stand twice and keeps the last; a plan says what it means once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
