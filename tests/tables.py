"""Latency tables with made-up numbers."""

from __future__ import annotations

from typing import Any

from attentrim.speed.fingerprint import described_model
from attentrim.speed.layers import gates_in, groups_of
from attentrim.speed.table import TIME, GroupCosts, Table
from attentrim.speed.target import Target

TARGET = Target(8, 16, "float32", "sdpa", "cpu")


def made_up(
    model: Any,
    *,
    fixed: float = 5.0,
    rest: float = 3.0,
    head: float = 4.0,
    neuron: float = 1.0,
    uniform: float = 6.0,
    **more: Any,
) -> Table:
    """Whole numbers: heads and neurons cost so much each, a layer `rest` beside what is in it."""
    gates = gates_in(model)
    groups = []
    for group in groups_of(model):
        levels: dict[str, dict[int, float]] = {}
        for places, here in group.layers[0].places.items():
            full = gates[places][here[0]]
            each = {"sites": head, "blocks": neuron}[places]
            levels["heads" if places == "sites" else "neurons"] = {0: 0.0, full: each * full}
        levels["uniform"] = {0: uniform}
        groups.append(GroupCosts(group.layers, rest, levels))
    return Table(TIME, fixed, tuple(groups), TARGET, described_model(model), **more)
