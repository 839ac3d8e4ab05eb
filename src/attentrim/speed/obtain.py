"""Get the latency table of a model: from a file that fits, or by measuring; kept for the next time."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import AttentrimError
from .fingerprint import described_model, differences, this_machine
from .layers import gates_in, layers_of, place_kinds, unit_kind
from .measuring import measured_table
from .table import VERSION, Table
from .target import Target

CACHE = "ATTENTRIM_CACHE"
"""The environment variable that says where tables are kept; else they are in the user's cache directory."""


def cache_directory() -> Path:
    given = os.environ.get(CACHE)
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attentrim"


def table_file(model: Any, target: Target) -> Path:
    """Where the table of this model, target, machine and software is kept."""
    key = [VERSION, described_model(model), target.as_dict(), this_machine(target.device)]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return cache_directory() / "latency" / f"{described_model(model)['type']}-{digest[:16]}.json"


def obtain_table(model: Any, target: Target, *, progress: bool = True) -> Table:
    """The table that was kept, or a new one, which is."""
    file = table_file(model, target)
    if file.is_file():
        with suppress(AttentrimError):  # a damaged one is measured again
            return Table.load(file)
    table = measured_table(model, target, progress=progress)
    try:
        table.save(file)
    except (OSError, AttentrimError) as error:
        warnings.warn(f"The latency table cannot be kept for the next time: {error}", stacklevel=2)
    return table


def read_table(path: str, model: Any, *, elsewhere: bool) -> Table:
    """A table that the user names; raises unless it is of this model, and of this machine or on purpose of another."""
    table = Table.load(path)
    here = described_model(model)
    if dict(table.model) != here:
        raise AttentrimError(
            f"The latency table {path} is for another model ({table.model.get('type')}, other shapes than this "
            f"{here['type']} model). Measure this one: attentrim bench --model M --latency_table FILE."
        )
    _check_layers(path, table, model)
    if elsewhere:
        return table
    import torch

    if table.target.device == "cuda" and not torch.cuda.is_available():
        raise AttentrimError(f"The latency table {path} is for a GPU, and there is none here{_on_purpose()}")
    apart = differences(dict(table.machine), this_machine(table.target.device))
    if apart:
        raise AttentrimError(f"The latency table {path} is from another machine ({'; '.join(apart)}){_on_purpose()}")
    return table


def _check_layers(path: str, table: Table, model: Any) -> None:
    """Raise unless a table has the layers of this model, and costs for all that is in them."""
    known = {layer.index: layer.places for layer in layers_of(model)}
    if {index: layer.places for index, (layer, _) in table.layers.items()} != known:
        raise AttentrimError(f"The latency table {path} is damaged: its layers are not those of the model.")
    gates = gates_in(model)
    for layer, group in table.layers.values():
        for places, here in layer.places.items():
            others = place_kinds(places) if gates[places][here[0]] else []
            for kind in (unit_kind(places), *others):
                if not group.levels.get(kind.name):
                    raise AttentrimError(f"The latency table {path} is damaged: it has no costs of {kind.name}.")


def _on_purpose() -> str:
    return ": measure it here, or set speed_elsewhere to plan for that machine without timing the result."
