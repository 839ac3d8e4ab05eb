"""What a kind of structure is: units of a model that can be found, gated and removed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..errors import PlanError
from ..plugins import PlugIns
from ..registry import Registry
from ..shapes import Shape

if TYPE_CHECKING:
    from .live import LiveGate

Removed = Mapping[int, tuple[int, ...]]
"""The removed units by place (site, block or layer), or () if the place itself is the unit."""
Shapes = Mapping[str, tuple[Any, ...]]
"""The places of a model by their plural name: 'sites', 'blocks', 'layers'."""


@dataclass(frozen=True)
class Left:
    """How much a plan leaves of one kind, for reports."""

    label: str
    """'attention heads kept'"""
    kept: int
    total: int
    key: str
    """The entry in results that the number comes from."""
    apart: int = 0
    """Units that are neither kept nor removed; `remark` says where they are."""
    remark: str = ""

    @property
    def note(self) -> str:
        """The text beside the numbers: '16.7% removed, 36 in uniform sites'."""
        removed = self.total - self.kept - self.apart
        share = f"{removed / self.total:.1%} removed" if removed else "none removed"
        return f"{share}, {self.apart} {self.remark}" if self.apart else self.remark or share


class Place(Protocol):
    """A part of a model that contains units or is one: a site, a block or a layer."""

    @property
    def index(self) -> int: ...
    @property
    def name(self) -> str:
        """Module path in the model that was searched."""

    @property
    def path(self) -> str:
        """Module path below the base model: the same for every task head."""

    @property
    def shape(self) -> Any: ...


class Structure(ABC):
    """One kind of part that can be removed. Everything about a kind is in its own module."""

    name: ClassVar[str]
    """The name in plans and on the command line: 'heads'."""
    unit: ClassVar[str]
    """The word for one unit: 'head'."""
    plural: ClassVar[str] = ""
    """The word for several units, if it is not the name."""
    places: ClassVar[str]
    """The parts that contain the units: 'sites'. Kinds with the same places share their numbering."""
    place: ClassVar[str]
    shape: ClassVar[type[Shape]]
    block: ClassVar[str] = ""
    """The name of the places in tables of times: 'attention'."""
    most_units: ClassVar[int] = 2**23
    """More than any model has. A file that claims more is damaged, and would fill the memory."""
    within: ClassVar[bool] = False
    """Whether units are numbered within their place; otherwise the place itself is the unit."""
    renumbers: ClassVar[bool] = False
    """Whether removing a unit also removes other places and renumbers those that follow."""
    in_config: ClassVar[bool] = False
    """Whether a stock model built from the trimmed model's config already lacks the units."""
    traced: ClassVar[bool] = True
    """Whether the history of a run records single units; otherwise it counts them by place."""

    # Where they are

    @abstractmethod
    def find(self, model: Any) -> Sequence[Any]:
        """The places of a model, in order, each a `Place`."""

    def units(self, shape: Any) -> int:
        """The number of units in a place of this shape that can be removed one by one."""
        return 1

    def group(self, shape: Any, unit: int) -> tuple[int, ...]:
        """The units that are removed together when this gate is closed."""
        return (unit,)

    def gates(self, shape: Any) -> int:
        """The number of gates in a place of this shape."""
        return self.units(shape)

    def count(self, shapes: Sequence[Any]) -> int | None:
        """The number of units in places of these shapes; None if that says nothing about a model's size."""
        return sum(self.units(shape) for shape in shapes)

    def refuse(self, model: Any, removed: Removed) -> None:
        """Raise an error if these units of this model cannot be removed."""
        return

    # What a plan says of them

    def check(self, index: int, shape: Any, removed: Sequence[int]) -> None:
        """Raise an error if these units of a place, in ascending order, cannot be removed."""
        if not self.within:
            return
        count = self.units(shape)
        for unit in (*removed[:1], *removed[-1:]):
            if not 0 <= unit < count:
                had = f"{self.name} 0 to {count - 1}" if count else f"no {self.name} left"
                raise PlanError(f"{self.place.capitalize()} {index} has no {self.unit} {unit}: it has {had}.")
        for unit, following in pairwise(removed):
            if unit == following:
                raise PlanError(f"The plan names a {self.unit} of {self.place} {index} twice: {unit}.")

    def check_all(self, shapes: Shapes, removed: Removed) -> None:
        """Raise an error if these units cannot all be removed together."""
        return

    def shape_after(self, shape: Any, removed: Sequence[int]) -> Any:
        """The shape of a place without these units."""
        return shape

    def after(self, shapes: Shapes, removed: Removed) -> Shapes:
        """The shapes of a model without these units."""
        here = tuple(
            self.shape_after(shape, removed[index]) if index in removed else shape
            for index, shape in enumerate(shapes[self.places])
        )
        return {**shapes, self.places: here}

    def vanished(self, shapes: Shapes, removed: Removed) -> dict[str, set[int]]:
        """The places, of any kind, that are removed together with these units."""
        return {}

    @abstractmethod
    def facts(self, plan: Any) -> dict[str, Any]:
        """Numbers about this kind in a plan, under the names used in results."""

    @abstractmethod
    def left(self, plan: Any) -> Left | None:
        """How much a plan leaves of this kind; None if reports should not mention it."""

    @abstractmethod
    def describe(self, plan: Any) -> str:
        """What a plan removes of this kind, in words: '72 of 144 heads'. Empty if nothing."""

    # On a live model, and for good

    @abstractmethod
    def gate(self, place: Any) -> LiveGate:
        """The gate for the units of a place on a live model."""

    @abstractmethod
    def remove(self, model: Any, removed: Removed) -> None:
        """Remove units from a model, in place. Weights may be on any device, including the meta device."""

    def freeze(self, model: Any) -> None:
        """Freeze parameters that no forward uses any more: data parallelism must not wait for their gradients."""
        return

    def refuse_portable(self, model: Any, removed: Removed) -> None:
        """Raise an error if stock classes can neither drop these units nor set them to zero."""
        return

    @abstractmethod
    def make_portable(self, model: Any, removed: Removed) -> None:
        """Remove units as far as stock classes allow, and write the rest into the weights."""

    def unshrunk(self, model: Any, removed: Removed) -> str:
        """What stays in a portable model without having any effect, in words; empty if nothing does."""
        return ""

    # What it costs

    def cost(self, place: Any, length: int) -> tuple[float, float]:
        """(parameters, FLOPs per token) of the units of one gate, for sequences of this length."""
        raise NotImplementedError(f"What {self.name} cost is not known.")


STRUCTURES: Registry[Structure] = Registry(
    "kind of structure",
    PlugIns(
        "attentrim.structures",
        "an object of a subclass of attentrim.structures.Structure",
        lambda entry: isinstance(entry, Structure),
    ),
)


def kinds() -> list[Structure]:
    """All kinds, in the order in which they are removed: units within places, places, what renumbers the rest."""
    return sorted(
        (STRUCTURES[name] for name in STRUCTURES), key=lambda kind: (kind.renumbers, not kind.within, kind.name)
    )


def places_of(model: Any) -> dict[str, Sequence[Any]]:
    """All places of a model by their plural name."""
    found: dict[str, Sequence[Any]] = {}
    for kind in kinds():
        if kind.places not in found:
            found[kind.places] = kind.find(model)
    return found


def kept_units(count: int, removed: Sequence[int]) -> list[int]:
    """The numbers of the units that stay."""
    gone = set(removed)
    return [unit for unit in range(count) if unit not in gone]
