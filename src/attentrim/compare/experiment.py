"""What is compared: named runs, each a set of settings of `attentrim train`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import AttentrimError, MethodError, did_you_mean, unknown_name
from ..methods import METHODS
from ..runs.settings import NO_METHOD

MOST_RUNS = 10_000
"""Of one sweep, and seeds: more are a slip, or an attempt to fill memory."""
DENSE = "dense"
"""The run without a method, which the others are measured by."""
NAME = re.compile(r"[\w.=+-]+", re.ASCII)
REFERENCE = re.compile(r"\{([\w.=+-]+)\}", re.ASCII)
"""A value that stands for the directory of another run."""


@dataclass(frozen=True)
class Entry:
    """One thing that is compared, over all seeds."""

    name: str
    settings: Mapping[str, Any]
    """Flags of `train` without their dashes; `method_config` is a mapping."""

    @property
    def needs(self) -> set[str]:
        """Names of runs whose directories stand in the settings, in braces."""
        values = [*self.settings.values(), *(self.settings.get("method_config") or {}).values()]
        return {found[1] for value in values if isinstance(value, str) and (found := REFERENCE.fullmatch(value))}

    def filled(self, directories: Mapping[str, str]) -> dict[str, Any]:
        """The settings with directories in place of names."""

        def fill(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: fill(inner) for name, inner in value.items()}
            found = REFERENCE.fullmatch(value) if isinstance(value, str) else None
            return directories[found[1]] if found else value

        return {name: fill(value) for name, value in self.settings.items()}


@dataclass(frozen=True)
class Experiment:
    """Entries in an order in which each finds what it needs."""

    entries: tuple[Entry, ...]
    seeds: tuple[int, ...]
    baseline: str | None = DENSE
    about: str = ""

    def __post_init__(self) -> None:
        before: set[str] = set()
        for entry in self.entries:
            if not NAME.fullmatch(entry.name):
                raise AttentrimError(
                    f"{entry.name!r} is not a valid name for a run: use letters, digits and -_.=+ only."
                )
            if entry.name in before:
                raise AttentrimError(f"There are two runs with the name {entry.name!r}.")
            for name in sorted(entry.needs - before):
                raise AttentrimError(f"The run {entry.name!r} needs {name!r}, which is not an earlier run.")
            before.add(entry.name)
        if self.baseline is not None and self.baseline not in before:
            raise AttentrimError(
                f"The baseline {self.baseline!r} is not one of the runs: {', '.join(sorted(before))}."
            )


def entries_of_methods(
    names: Sequence[str], settings: Mapping[str, str], budget: Mapping[str, str], common: Mapping[str, Any]
) -> list[Entry]:
    """One entry per method, the dense one first. A setting goes to each method that knows it, or to METHOD.setting.

    Args:
        budget: What all methods that prune are held to: `target_sparsity`, or `speedup`. Nothing: as each sees fit.
    """
    wanted = list(dict.fromkeys(name for name in names if name != NO_METHOD))
    entries = [Entry(DENSE, {**common, "method": NO_METHOD})]
    used: set[str] = set()
    for name in wanted:
        known = METHODS[name].accepted_names()
        own = {}
        for key, value in settings.items():
            method, _, field = key.rpartition(".")
            if method in ("", name) and field in known:
                own[field] = value
                used.add(key)
        own = {**within(budget, known), **own}
        METHODS[name].from_settings(own)
        entries.append(Entry(name, {**common, "method": name, "method_config": own}))
    for key in settings.keys() - used:
        raise MethodError(f"--method_config: none of the methods compared has the setting {key!r}.")
    return entries


def within(budget: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """The settings that hold a method to a budget. Methods that know no speed-up are given that share of the FLOPs."""
    if "speedup" in budget and "speedup" not in known and {"prune", "share_of"} <= {*known}:
        share = 1 - 1 / float(budget["speedup"])
        return {"prune": "heads,neurons", "share_of": "flops", "target_sparsity": f"{share:.6g}"}
    return {name: value for name, value in budget.items() if name in known}


def entries_of_config(runs: Mapping[str, Any], common: Mapping[str, Any]) -> list[Entry]:
    """Entries as a config file names them, each a mapping of overrides."""
    entries = []
    for name, overrides in runs.items():
        own = {**common, **overrides} if isinstance(overrides, Mapping) else {}
        if not own or not isinstance(own.get("method_config") or {}, Mapping):
            raise AttentrimError(f"runs: {name!r} must be a mapping of settings, such as 'method: hisp'.")
        entries.append(_checked(Entry(str(name), own)))
    return entries


def entries_of_sweep(sweep: Mapping[str, Any], common: Mapping[str, Any], flags: Sequence[str]) -> list[Entry]:
    """All combinations of values, named by what varies. A key that is no flag of `train` is one of the method."""
    if not all(isinstance(values, list) and values for values in sweep.values()):
        raise AttentrimError("sweep: each key needs a list of values, such as 'gate_lr: [0.1, 1, 5]'.")
    if math.prod(map(len, sweep.values())) > MOST_RUNS:
        raise AttentrimError(f"sweep: these are more than {MOST_RUNS:,} combinations.")
    entries = []
    varied = [key for key, values in sweep.items() if len(values) > 1] or list(sweep)
    for values in itertools.product(*sweep.values()):
        chosen = dict(zip(sweep, values, strict=True))
        own = {key: value for key, value in chosen.items() if key in flags}
        method = {key: value for key, value in chosen.items() if key not in flags}
        settings = {**common, **own, "method_config": {**(common.get("method_config") or {}), **method}}
        parts = [str(value) if key == "method" else f"{key}={value}" for key, value in chosen.items() if key in varied]
        entries.append(_checked(Entry("-".join(parts), settings)))
    return entries


def chosen_entries(entries: Sequence[Entry], names: Sequence[str]) -> list[Entry]:
    """Those with these names, and those that they start from."""
    found = {entry.name: entry for entry in entries}
    wanted: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            raise AttentrimError(unknown_name("run", name, found))
        wanted.add(name)
        left += found[name].needs - wanted
    return [entry for entry in entries if entry.name in wanted]


def _checked(entry: Entry) -> Entry:
    """An entry whose method and settings can be. What stands in for directories is not looked at."""
    if "method" not in entry.settings:
        raise MethodError(f"The run {entry.name!r} names no method: for plain fine-tuning set 'method: none'.")
    name, settings = entry.settings["method"], entry.settings.get("method_config") or {}
    if name == NO_METHOD:
        return Entry(entry.name, {key: value for key, value in entry.settings.items() if key != "method_config"})
    known = METHODS[name].accepted_names()
    for key in settings:
        if key not in known:
            raise MethodError(f"The run {entry.name!r}: {name} has no setting {key!r}.{did_you_mean(key, known)}")
    plain = {
        key: value for key, value in settings.items() if not (isinstance(value, str) and REFERENCE.fullmatch(value))
    }
    try:
        METHODS[name].from_settings(plain)
    except MethodError as error:
        raise MethodError(f"The run {entry.name!r}: {error}") from None
    return entry
