"""A plan says what to remove: heads by site, and sites to make uniform. Versioned JSON, checked on every way in."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import PlanError

if TYPE_CHECKING:
    from .cost import Cost
    from .sites import Site

FORMAT = "attentrim-plan"
VERSION = 1


@dataclass(frozen=True)
class SiteShape:
    """The shape of one site that a plan was made for."""

    path: str
    heads: int
    groups: int
    head_size: int
    uniform: bool = False

    def __str__(self) -> str:
        kind = "uniform" if self.uniform else f"{self.heads} heads of size {self.head_size}"
        return kind if self.groups == self.heads else f"{kind} in {self.groups} groups"


@dataclass(frozen=True)
class Plan:
    """Heads to remove and sites to make uniform, for models of one architecture and shape."""

    model_type: str
    sites: tuple[SiteShape, ...]
    heads: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The removed heads by site. Sites that lose none are left out."""
    uniform: tuple[int, ...] = ()
    made_by: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """How the plan came about: method, settings, seed. Free form; not compared."""

    def __post_init__(self) -> None:
        heads = {
            _number(site, "site"): tuple(sorted(_number(head, "head") for head in removed))
            for site, removed in self.heads.items()
            if len(removed)
        }
        object.__setattr__(self, "heads", dict(sorted(heads.items())))
        object.__setattr__(self, "uniform", tuple(sorted(_number(site, "site") for site in self.uniform)))
        object.__setattr__(self, "sites", tuple(self.sites))
        try:
            json.dumps(dict(self.made_by))
        except (TypeError, ValueError) as error:
            raise PlanError(f"'made_by' goes into a JSON file: {error}.") from None
        for site, removed in self.heads.items():
            self._check_heads(site, removed)
        for site in self.uniform:
            if self._shape(site).uniform:
                raise PlanError(f"Site {site} is uniform already.")
            if not self._shape(site).heads:
                raise PlanError(f"Site {site} has no heads left: there is nothing to make uniform.")
        if len(set(self.uniform)) < len(self.uniform):
            raise PlanError(f"The plan names a uniform site twice: {list(self.uniform)}.")

    @classmethod
    def of(
        cls,
        model: Any,
        heads: Mapping[int, Iterable[int]] | None = None,
        uniform: Iterable[int] = (),
        made_by: Mapping[str, Any] | None = None,
    ) -> Plan:
        """A plan for `model` as it is now (a trimmed model has its own, smaller numbering)."""
        from .sites import find_sites, unwrap

        return cls(
            model_type=unwrap(model).config.model_type,
            sites=shapes(find_sites(model)),
            heads={site: tuple(removed) for site, removed in (heads or {}).items()},
            uniform=tuple(uniform),
            made_by=dict(made_by or {}),
        )

    # What it amounts to

    @property
    def heads_total(self) -> int:
        return sum(site.heads for site in self.sites)

    @property
    def heads_removed(self) -> int:
        return sum(len(removed) for removed in self.heads.values())

    @property
    def heads_kept(self) -> list[int]:
        """One integer a site. A uniform site attends with none of its heads."""
        return [
            0 if index in self.uniform else site.heads - len(self.heads.get(index, ()))
            for index, site in enumerate(self.sites)
        ]

    @property
    def sparsity(self) -> float:
        """Removed heads as a share of all heads. Uniform sites do not count as removed heads."""
        return self.heads_removed / self.heads_total if self.heads_total else 0.0

    def __bool__(self) -> bool:
        """Whether the plan removes anything."""
        return bool(self.heads or self.uniform)

    def kept(self, site: int) -> list[int]:
        """The heads of a site that stay."""
        removed = set(self.heads.get(site, ()))
        return [head for head in range(self._shape(site).heads) if head not in removed]

    def cost(self, model: Any, batch: int = 1, length: int = 128) -> tuple[Cost, Cost]:
        """Parameters, bytes and FLOPs of `model` before and after this plan, counted without touching its weights."""
        from .cost import cost_of_plan

        return cost_of_plan(model, self, batch=batch, length=length)

    # Putting plans together

    def union(self, other: Plan) -> Plan:
        """Everything that either of two plans for the same model removes."""
        if (self.model_type, self.sites) != (other.model_type, other.sites):
            raise PlanError("A union needs two plans for the same model; `then` follows one by the other.")
        sites = {*self.heads, *other.heads}
        heads = {site: (*{*self.heads.get(site, ()), *other.heads.get(site, ())},) for site in sites}
        return Plan(self.model_type, self.sites, heads, (*{*self.uniform, *other.uniform},), dict(self.made_by))

    __or__ = union

    def then(self, later: Plan) -> Plan:
        """This plan followed by one made for the model that it leaves, in this plan's numbering."""
        if later.model_type != self.model_type or later.sites != self.after():
            raise PlanError("The second plan was not made for the model that the first one leaves.")
        heads = {index: set(removed) for index, removed in self.heads.items()}
        for index, removed in later.heads.items():
            kept = self.kept(index)
            heads.setdefault(index, set()).update(kept[head] for head in removed)
        made_by = {**self.made_by, "then": dict(later.made_by)} if later.made_by else dict(self.made_by)
        final = {index: tuple(removed) for index, removed in heads.items()}
        return Plan(self.model_type, self.sites, final, (*self.uniform, *later.uniform), made_by)

    def after(self) -> tuple[SiteShape, ...]:
        """The shape of the model that this plan leaves."""
        return tuple(self._after(index) for index in range(len(self.sites)))

    def _after(self, index: int) -> SiteShape:
        site, kept = self.sites[index], len(self.kept(index))
        if not kept or index in self.uniform:
            return SiteShape(site.path, 0, 0, site.head_size, site.uniform or bool(kept))
        return SiteShape(site.path, kept, kept * site.groups // site.heads, site.head_size)

    # Fitting a model

    def check(self, sites: Sequence[Site]) -> None:
        """Raise unless this plan was made for a model with just these sites."""
        model_type, found = sites[0].model_type, shapes(sites)
        if model_type != self.model_type:
            raise PlanError(f"This plan is for a {self.model_type} model; the model is a {model_type}.")
        if len(found) != len(self.sites):
            raise PlanError(f"This plan is for a model with {len(self.sites)} sites; the model has {len(found)}.")
        for index, (mine, theirs) in enumerate(zip(self.sites, found, strict=True)):
            if mine != theirs:
                raise PlanError(
                    f"This plan is for a model whose site {index} ({mine.path}) has {mine}; "
                    f"in this model it ({theirs.path}) has {theirs}."
                )

    def restricted(self, sites: Sequence[Site]) -> Plan:
        """The part of this plan that concerns the sites of a smaller model (an encoder on its own, say), by path."""
        wanted = {shape.path: index for index, shape in enumerate(self.sites)}
        missing = [site.path for site in sites if site.path not in wanted]
        if missing:
            raise PlanError(f"The plan stored with this checkpoint does not know the site {missing[0]}.")
        chosen = [wanted[site.path] for site in sites]
        return Plan(
            self.model_type,
            tuple(self.sites[index] for index in chosen),
            {new: self.heads[old] for new, old in enumerate(chosen) if old in self.heads},
            tuple(new for new, old in enumerate(chosen) if old in self.uniform),
            dict(self.made_by),
        )

    # On disk

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "model_type": self.model_type,
            "sites": [asdict(site) for site in self.sites],
            "heads": {str(site): list(removed) for site, removed in self.heads.items()},
            "uniform": list(self.uniform),
            "made_by": dict(self.made_by),
        }

    @classmethod
    def from_dict(cls, data: Any, source: str = "This plan") -> Plan:
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise PlanError(f'{source} is not an attentrim plan (no "format": "{FORMAT}").')
        version = data.get("version")
        if not isinstance(version, int) or version < 1:
            raise PlanError(f"{source} has no valid version. Got {version!r}.")
        if version > VERSION:
            raise PlanError(
                f"{source} has version {version}; this attentrim reads up to {VERSION}: "
                "pip install --upgrade attentrim"
            )
        try:
            known = {entry.name for entry in fields(SiteShape)}
            return cls(
                model_type=str(data["model_type"]),
                sites=tuple(_shape_from(entry, known) for entry in data["sites"]),
                heads={_site_key(site): tuple(removed) for site, removed in data["heads"].items()},
                uniform=tuple(data["uniform"]),
                made_by=dict(data.get("made_by", {})),
            )
        except PlanError as error:
            raise PlanError(f"{source}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"{source} is damaged: {type(error).__name__}: {error}") from error

    def save(self, path: str | Path) -> None:
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False)
        Path(path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise PlanError(f"Cannot read the plan {path}: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise PlanError(f"{path} is not a text file.") from error
        try:
            data = json.loads(text, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise PlanError(f"{path} is not valid JSON: {error}.") from error
        return cls.from_dict(data, source=str(path))

    # Details

    def _shape(self, site: int) -> SiteShape:
        if not 0 <= site < len(self.sites):
            raise PlanError(f"There is no site {site}: the model has sites 0 to {len(self.sites) - 1}.")
        return self.sites[site]

    def _check_heads(self, site: int, removed: Sequence[int]) -> None:
        shape = self._shape(site)
        for head in removed:
            if not 0 <= head < shape.heads:
                had = f"heads 0 to {shape.heads - 1}" if shape.heads else "no heads left"
                raise PlanError(f"Site {site} has no head {head}: it has {had}.")
        if len(set(removed)) < len(removed):
            raise PlanError(f"The plan names a head of site {site} twice: {list(removed)}.")
        size = shape.heads // shape.groups
        for group in {head // size for head in removed}:
            members = set(range(group * size, (group + 1) * size))
            if not members <= set(removed):
                raise PlanError(
                    f"Heads {sorted(members)} of site {site} share keys and values: they go together or not at all. "
                    f"Got {sorted(members & set(removed))} only."
                )


def shapes(sites: Iterable[Site]) -> tuple[SiteShape, ...]:
    return tuple(SiteShape(site.path, site.heads, site.groups, site.head_size, site.uniform) for site in sites)


def _shape_from(entry: Any, known: set[str]) -> SiteShape:
    unknown = set(entry) - known
    if unknown:
        raise PlanError(f"a site has the unknown field {sorted(unknown)[0]!r}")
    shape = SiteShape(**entry)
    numbers = (shape.heads, shape.groups, shape.head_size)
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise PlanError(f"the site {shape.path!r} has counts that are not whole numbers: {list(numbers)}")
    if (shape.heads % shape.groups if shape.groups else shape.heads) or not shape.head_size:
        raise PlanError(f"the site {shape.path!r} cannot have {shape}")
    return shape


def _number(value: Any, what: str) -> int:
    try:
        if isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise PlanError(f"A {what} is named by a whole number. Got {value!r} instead.") from None


def _site_key(text: str) -> int:
    if not text.isascii() or not text.isdigit() or str(int(text)) != text:
        raise PlanError(f"a site is named by a whole number, not by {text!r}")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON lets a key stand twice and keeps the last; a plan says what it means once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
