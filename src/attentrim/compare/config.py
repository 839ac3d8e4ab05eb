"""An experiment from what a config file and flags say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import AttentrimError, did_you_mean
from ..runs.settings import DATA_SETTINGS, EMBEDDED_TASK, RUN_SETTINGS, comma_separated
from ..runs.training import training_names
from .experiment import (
    DENSE,
    MOST_RUNS,
    Entry,
    Experiment,
    chosen_entries,
    entries_of_config,
    entries_of_methods,
    entries_of_sweep,
)

DEFAULTS = {
    "num_train_epochs": 4,
    "learning_rate": 3e-5,
    "per_device_train_batch_size": 32,
    "save_strategy": "no",
    "report_to": "none",
}
"""For all runs alike, so that all take the same steps."""
OF_ITS_OWN = ("about", "baseline", "runs", "seeds", "sweep")
"""Keys of a config file that a run does not know."""
SEEDS = 5


def make_experiment(
    config: Mapping[str, Any],
    flags: Mapping[str, Any],
    *,
    methods: Sequence[str] = (),
    method_config: Mapping[str, str] | None = None,
    target_sparsity: str | None = None,
    speedup: float | None = None,
    seeds: Any = None,
    only: Sequence[str] = (),
) -> Experiment:
    """Flags win over the config; what is compared is either `methods`, or `runs` and `sweep` of the config."""
    config = dict(config)
    own = {key: config.pop(key) for key in OF_ITS_OWN if key in config}
    common = {**DEFAULTS, **config, **flags}
    _check_common(common)
    if bool(methods) == bool(own.keys() & {"runs", "sweep"}):
        raise AttentrimError("Nothing to compare: give --methods, or --config with runs or sweep.")
    if methods:
        entries = entries_of_methods(methods, method_config or {}, parse_budget(target_sparsity, speedup), common)
    else:
        if method_config or target_sparsity or speedup:
            raise AttentrimError(
                "--method_config, --target_sparsity and --speedup go with --methods; a config file sets its own."
            )
        for key, value in {**own, "method_config": common.get("method_config")}.items():
            if key in ("runs", "sweep", "method_config") and not isinstance(value or {}, dict):
                raise AttentrimError(f"{key} in the config must be a mapping. Got {value!r}.")
        entries = entries_of_config(own.get("runs") or {}, common)
        if own.get("sweep"):
            entries += entries_of_sweep(own["sweep"], common, [*RUN_SETTINGS, *training_names()])
    _check_settings(entries)
    names = [entry.name for entry in entries]
    baseline = own.get("baseline", DENSE if DENSE in names else None)
    if not isinstance(baseline or "", str):
        raise AttentrimError(f"baseline in the config must be the name of a run. Got {baseline!r}.")
    if only:
        entries = chosen_entries(entries, [*only, *([baseline] if baseline else [])])
    wanted = parse_seeds(seeds or own.get("seeds", SEEDS))
    return Experiment(tuple(entries), wanted, baseline, own.get("about", ""))


def _check_common(common: Mapping[str, Any]) -> None:
    if not common.get("model") and common.get("task") != EMBEDDED_TASK:
        raise AttentrimError("--model is missing.")
    if not any(common.get(name) for name in DATA_SETTINGS):
        raise AttentrimError("No data given: use --task NAME, --train_file FILE or --dataset NAME.")


def _check_settings(entries: Sequence[Entry]) -> None:
    known = {*RUN_SETTINGS, "method_config", *training_names()} - {"output_dir"}
    for entry in entries:
        for key in sorted(entry.settings.keys() - known):
            raise AttentrimError(f"The run {entry.name!r} has no setting {key!r}.{did_you_mean(key, known)}")


def parse_budget(target_sparsity: str | None, speedup: float | None) -> dict[str, str]:
    """What the methods are held to."""
    if speedup is None:
        share = parse_sparsity(target_sparsity)
        return {} if share is None else {"target_sparsity": str(share)}
    if target_sparsity is not None:
        raise AttentrimError("Give --target_sparsity or --speedup, not both.")
    if not speedup > 1:
        raise AttentrimError(f"--speedup must be above 1. Got {speedup:g}.")
    return {"speedup": f"{speedup:g}"}


def parse_sparsity(text: str | None) -> float | None:
    if text == "own":
        return None
    try:
        value = float(text or 0.5)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise AttentrimError(f"--target_sparsity must be a share in [0, 1), or 'own'. Got {text}.")
    return value


def parse_seeds(wanted: Any) -> tuple[int, ...]:
    """How many, or which: 5, '5', '3,4' or [3, 4]."""
    try:
        text = ",".join(str(seed) for seed in wanted) + "," if isinstance(wanted, list) else str(wanted)
        found = (
            [int(part) for part in comma_separated(text)]
            if "," in text
            else list(range(min(int(text), MOST_RUNS + 1)))
        )
        if len(found) > MOST_RUNS:
            raise ValueError
    except ValueError:
        found = []
    if not found or len(set(found)) < len(found) or min(found) < 0:
        raise AttentrimError(
            f"--seeds must be a number of seeds, or a list of different seeds such as 3,4. Got {wanted}."
        )
    return tuple(found)
