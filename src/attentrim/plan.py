"""A plan says what to remove from a model, by kind of structure. Versioned JSON, checked on every way in."""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .atomic import write_text
from .errors import PlanError
from .plan_files import read_file, read_plan, write_plan
from .sites import unwrap
from .structures import STRUCTURES, Left, Removed, Shapes, Structure, kinds, places_of


@dataclass(frozen=True)
class Plan:
    """What to remove from models of one architecture and shape.

    What it removes is available by kind: `plan.heads` and `plan.neurons` map each site or block to the removed units,
    `plan.uniform` and `plan.layers` are lists. The entries of `facts()` are attributes too: `plan.sparsity`,
    `plan.heads_kept` and so on.
    """

    model_type: str
    shapes: Shapes
    """The shapes of the sites, blocks and layers of the model that the plan was made for."""
    removed: Mapping[str, Removed] = field(default_factory=dict)
    """The removed units by kind. Sites and blocks that lose nothing are left out."""
    made_by: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """How the plan was made: method, settings, seed. Free form, and ignored when plans are compared."""

    def __post_init__(self) -> None:
        ordered = {kind.places: self.shapes[kind.places] for kind in kinds() if kind.places in self.shapes}
        object.__setattr__(self, "shapes", ordered)
        found = {kind.name: _checked(kind, self.shapes, self.removed.get(kind.name, {})) for kind in kinds()}
        for name in self.removed.keys() - found.keys():
            raise PlanError(f"There is no kind of structure {name!r}: there are {', '.join(found)}.")
        object.__setattr__(self, "removed", {name: units for name, units in found.items() if units})
        self._check_overlap()
        try:
            json.dumps(dict(self.made_by))
        except (TypeError, ValueError) as error:
            raise PlanError(f"'made_by' goes into a JSON file: {error}.") from None

    def _check_overlap(self) -> None:
        """What goes with a layer need not, and may not, be named on its own."""
        gone = self.vanished()
        for kind in kinds():
            for index in () if kind.renumbers else self.removed_of(kind.name):
                if index in gone.get(kind.places, ()):
                    path = self.shapes[kind.places][index].path
                    raise PlanError(
                        f"The plan names {kind.place} {index} ({path}) under {kind.name!r} and removes the layer "
                        "that it is in: name it once."
                    )

    @classmethod
    def of(cls, model: Any, made_by: Mapping[str, Any] | None = None, **removed: Any) -> Plan:
        """A plan for `model` as it is now (a trimmed model has its own, smaller numbering).

        Plan.of(model, heads={0: [1, 2]}, uniform=[3], neurons={0: [5, 6, 7]}, layers=[11])
        """
        inner = unwrap(model)
        plan = cls(inner.config.model_type, shapes_of(inner), {}, dict(made_by or {}))
        for name in removed:
            STRUCTURES[name]  # an unknown kind is answered with the nearest one
        given = {name: _as_mapping(STRUCTURES[name], units) for name, units in removed.items() if units is not None}
        plan = cls(plan.model_type, plan.shapes, given, plan.made_by)
        plan.refuse(inner)
        return plan

    # What it amounts to

    def removed_of(self, kind: str) -> Removed:
        """The removed units of a kind, by site or block; empty tuples for whole sites and layers."""
        return self.removed.get(kind, {})

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and "removed" in self.__dict__:
            if name in STRUCTURES:
                found = self.removed_of(name)
                return found if STRUCTURES[name].within else tuple(found)
            facts = self.facts()
            if name in facts:
                return facts[name]
        raise AttributeError(f"a plan has no {name!r}")

    def facts(self) -> dict[str, Any]:
        """Numbers about every kind, under the names used in results: heads_kept, uniform_sites, ..."""
        return {
            name: value for kind in kinds() if kind.places in self.shapes for name, value in kind.facts(self).items()
        }

    def describe(self) -> list[str]:
        """What is removed, in words, by kind: '72 of 144 attention heads'."""
        return [text for kind in kinds() if kind.places in self.shapes and (text := kind.describe(self))]

    def left(self) -> list[Left]:
        """How much the plan leaves of each kind."""
        return [left for kind in kinds() if kind.places in self.shapes and (left := kind.left(self))]

    def __repr__(self) -> str:
        """'<Plan for bert: removes 2 of 72 attention heads, 700 of 9,216 neurons>'"""
        by = f"; made by {method}" if (method := self.made_by.get("method")) else ""
        return f"<Plan for {self.model_type}: removes {', '.join(self.describe()) or 'nothing'}{by}>"

    def __bool__(self) -> bool:
        """Whether the plan removes anything."""
        return bool(self.removed)

    def kept(self, kind: str, index: int) -> list[int]:
        """The units that a site or block keeps."""
        structure = STRUCTURES[kind]
        shape = _place(structure, self.shapes, index)
        removed = set(self.removed_of(kind).get(index, ()))
        return [unit for unit in range(structure.units(shape)) if unit not in removed]

    def vanished(self) -> dict[str, set[int]]:
        """The sites and blocks that are removed together with a layer."""
        gone: dict[str, set[int]] = {}
        for kind in kinds():
            if self.removed_of(kind.name):
                for places, indices in kind.vanished(self.shapes, self.removed_of(kind.name)).items():
                    gone.setdefault(places, set()).update(indices)
        return gone

    def after(self) -> Shapes:
        """The shapes of the model after this plan."""
        shapes = self.shapes
        for kind in kinds():
            if self.removed_of(kind.name):
                shapes = kind.after(shapes, self.removed_of(kind.name))
        return shapes

    def final(self, places: str) -> list[Any]:
        """The shape of each site or block of the full model after this plan; None if it is removed."""
        gone, left = self.vanished().get(places, set()), iter(self.after().get(places, ()))
        return [None if index in gone else next(left) for index in range(len(self.shapes.get(places, ())))]

    # Putting plans together

    def union(self, other: Plan) -> Plan:
        """Everything that either of two plans for the same model removes."""
        if (self.model_type, self.shapes) != (other.model_type, other.shapes):
            raise PlanError("A union needs two plans for the same model; use `then` to apply one after the other.")
        return self._with(_added(self.removed, other.removed), self.made_by)

    __or__ = union

    def then(self, later: Plan) -> Plan:
        """This plan combined with one made for the model that it leaves, in the numbering of this plan."""
        if later.model_type != self.model_type or later.shapes != self.after():
            raise PlanError("The second plan was not made for the model that the first one leaves.")
        places = self._survivors()
        moved: dict[str, dict[int, tuple[int, ...]]] = {}
        for name, removed in later.removed.items():
            kind = STRUCTURES[name]
            for index, units in removed.items():
                before = places[kind.places][index]
                kept = self.kept(name, before) if kind.within else []
                moved.setdefault(name, {})[before] = tuple(kept[unit] for unit in units)
        made_by = {**self.made_by, "then": dict(later.made_by)} if later.made_by else dict(self.made_by)
        return self._with(_added(self.removed, moved), made_by)

    def remainder(self, done: Iterable[str]) -> Plan:
        """What remains to be removed after the kinds `done`, in the numbering of the model at that point."""
        first = Plan(self.model_type, self.shapes, {name: self.removed_of(name) for name in done})
        places = first._survivors()
        rest = {
            name: {new: removed[old] for new, old in enumerate(places[STRUCTURES[name].places]) if old in removed}
            for name, removed in self.removed.items()
            if name not in first.removed
        }
        return Plan(self.model_type, first.after(), rest, self.made_by)

    def _survivors(self) -> dict[str, list[int]]:
        """By kind of place, the numbers in this plan of the places that stay."""
        gone = self.vanished()
        return {
            places: [index for index in range(len(found)) if index not in gone.get(places, ())]
            for places, found in self.shapes.items()
        }

    def _with(self, removed: Mapping[str, Removed], made_by: Mapping[str, Any]) -> Plan:
        """The same plan with this removed; what goes with a layer is no longer named on its own."""
        gone: dict[str, set[int]] = {}
        for kind in kinds():
            for places, indices in kind.vanished(self.shapes, removed.get(kind.name, {})).items():
                gone.setdefault(places, set()).update(indices)
        left = {
            name: {
                index: units
                for index, units in found.items()
                if STRUCTURES[name].renumbers or index not in gone.get(STRUCTURES[name].places, ())
            }
            for name, found in removed.items()
        }
        return Plan(self.model_type, self.shapes, left, made_by)

    # Fitting a model

    def fitted(self, model: Any) -> Plan:
        """This plan, if it was made for a model of exactly this shape; raises an error otherwise.

        Shapes that are missing in an older file are filled in.
        """
        inner = unwrap(model)
        if inner.config.model_type != self.model_type:
            raise PlanError(f"This plan is for a {self.model_type} model; the model is a {inner.config.model_type}.")
        found = shapes_of(inner)
        for places, mine in self.shapes.items():
            _compare(places, mine, found.get(places, ()))
        plan = self if self.shapes.keys() == found.keys() else Plan(self.model_type, found, self.removed, self.made_by)
        plan.refuse(inner)
        return plan

    def refuse(self, model: Any) -> None:
        """Raise if the model's architecture does not allow what the plan removes."""
        for kind in kinds():
            if self.removed_of(kind.name):
                kind.refuse(model, self.removed_of(kind.name))

    def restricted(self, model: Any) -> Plan:
        """The part of this plan that belongs to a part of the model, such as its encoder."""
        found = shapes_of(model)
        removed: dict[str, dict[int, tuple[int, ...]]] = {}
        for places, here in found.items():
            wanted = {shape.path: index for index, shape in enumerate(self.shapes.get(places, here))}
            missing = [shape.path for shape in here if shape.path not in wanted]
            if missing:
                raise PlanError(f"The plan stored with this checkpoint does not know {missing[0]}.")
            for kind in kinds():
                if kind.places == places:
                    mine = self.removed_of(kind.name)
                    pairs = ((new, wanted[shape.path]) for new, shape in enumerate(here))
                    removed[kind.name] = {new: mine[old] for new, old in pairs if old in mine}
        return Plan(self.model_type, found, removed, dict(self.made_by))

    # On disk

    def to_dict(self) -> dict[str, Any]:
        return write_plan(self.model_type, self.shapes, self.removed, self.made_by)

    @classmethod
    def from_dict(cls, data: Any, source: str = "This plan") -> Plan:
        plan: Plan = read_plan(data, source, cls)
        return plan

    def save(self, path: str | Path) -> None:
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False)
        write_text(path, text + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        return cls.from_dict(read_file(path), source=str(path))


def shapes_of(model: Any) -> Shapes:
    """The shapes of all places of a model."""
    return {places: tuple(place.shape for place in found) for places, found in places_of(model).items()}


def _as_mapping(kind: Structure, units: Any) -> dict[int, tuple[int, ...]]:
    """What a caller gave: units by place, or places."""
    try:
        if kind.within:
            return {place: tuple(within) for place, within in units.items() if len(tuple(within))}
        places = tuple(units)
    except (TypeError, AttributeError):
        wanted = f"a mapping from {kind.places} to {kind.name}" if kind.within else f"a list of {kind.places}"
        raise PlanError(f"{kind.name!r} is given as {wanted}. Got {units!r} instead.") from None
    for place, count in Counter(map(str, places)).items():
        if count > 1:
            raise PlanError(f"The plan names {kind.place} {place} twice under {kind.name!r}: {list(places)}.")
    return dict.fromkeys(places, ())


def _checked(kind: Structure, shapes: Shapes, removed: Mapping[Any, Sequence[Any]]) -> dict[int, tuple[int, ...]]:
    """What a plan removes of one kind, with plain numbers in ascending order; raises where it cannot be."""
    found: dict[int, tuple[int, ...]] = {}
    for place, units in removed.items():
        index = _number(place, kind.place)
        shape = _place(kind, shapes, index)
        numbers = tuple(sorted(_number(unit, kind.unit) for unit in units))
        kind.check(index, shape, numbers)
        if numbers or not kind.within:
            found[index] = numbers
    if found:
        kind.check_all(shapes, found)
    return dict(sorted(found.items()))


def _place(kind: Structure, shapes: Shapes, index: int) -> Any:
    here = shapes.get(kind.places, ())
    if not 0 <= index < len(here):
        had = f"the model has {kind.places} 0 to {len(here) - 1}" if here else f"the model has no {kind.places}"
        raise PlanError(f"There is no {kind.place} {index}: {had}.")
    return here[index]


def _number(value: Any, what: str) -> int:
    if type(value) is int:  # there may be millions
        return value
    try:
        if isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise PlanError(f"A {what} must be a whole number. Got {value!r} instead.") from None


def _added(first: Mapping[str, Removed], second: Mapping[str, Removed]) -> dict[str, dict[int, tuple[int, ...]]]:
    return {
        name: {
            index: tuple({*first.get(name, {}).get(index, ()), *second.get(name, {}).get(index, ())})
            for index in {*first.get(name, {}), *second.get(name, {})}
        }
        for name in {*first, *second}
    }


def _compare(places: str, mine: Sequence[Any], theirs: Sequence[Any]) -> None:
    if len(theirs) != len(mine):
        raise PlanError(f"This plan is for a model with {len(mine)} {places}; the model has {len(theirs)}.")
    for index, (own, other) in enumerate(zip(mine, theirs, strict=True)):
        if own != other:
            raise PlanError(
                f"This plan is for a model whose {places.removesuffix('s')} {index} ({own.path}) has {own}; "
                f"in this model it ({other.path}) has {other}."
            )
