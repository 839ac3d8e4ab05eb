"""The models that one training left on its way, each in a directory of its own: evaluated and timed like the last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..checkpoint.stored import stored_plan
from ..cost import flops
from ..plan import Plan
from ..sharding import loading_whole, shape_of
from ..sites import unwrap
from .evaluation import Evaluation

FOLDER = "speedup-{:g}"
SHAPE = ("heads_kept", "neurons_kept", "layers_removed")
"""What is told of a model's shape."""


def speeds_left(
    trainer: Any,
    directory: Path,
    evaluation: Evaluation,
    asked: Sequence[float],
    speed_of: Callable[[Any], float | None],
) -> list[dict[str, Any]]:
    """What each of them is worth, slowest first; the last one is the run's own checkpoint and not among them."""
    found = []
    for speedup in asked[:-1]:
        folder = directory / FOLDER.format(speedup)
        if not (folder / "config.json").is_file():
            continue
        model = saved_model(trainer, folder)
        result, _ = evaluation.of_model(model, trainer.args)
        found.append(
            {
                "asked": speedup,
                "measured": speed_of(model),
                "flops": flops(trainer.model) / flops(model),
                "value": result["value"],
                "metrics": result["metrics"],
                "directory": folder.name,
                **_left(stored_plan(model)),
            }
        )
    return found


def saved_model(trainer: Any, folder: Path) -> Any:
    """What a Trainer's model became, as it loads from a directory."""
    with loading_whole():
        return type(shape_of(unwrap(trainer.model))).from_pretrained(folder).eval()


def own_speed(asked: float, result: Mapping[str, Any]) -> dict[str, Any]:
    """The same of the run's own checkpoint."""
    return {
        "asked": asked,
        "measured": result["speedup_measured"],
        "flops": result["speedup_flops"],
        "value": result["value"],
        "metrics": result["metrics"],
        "directory": ".",
        **{name: result[name] for name in SHAPE if name in result},
    }


def _left(plan: Plan | None) -> dict[str, Any]:
    facts = plan.facts() if plan is not None else {}
    return {name: facts[name] for name in SHAPE if name in facts}
