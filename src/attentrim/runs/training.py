"""TrainingArguments of a run: made from names and values, over defaults of ours; and which of them to record."""

from __future__ import annotations

import argparse
import dataclasses
import json
import typing
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from transformers import HfArgumentParser, TrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig

from ..engines import check_launched
from ..errors import AttentrimError, MissingExtraError, did_you_mean, unknown_name

DEFAULTS = {
    "per_device_eval_batch_size": 64,
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 1,
    "logging_steps": 10,
    "report_to": "none",
    "metric_for_best_model": None,
}
"""Over those of TrainingArguments; the metric is the task's own."""
OF_ONE_RUN = ("output_dir", "resume_from_checkpoint", "logging_dir")
"""What differs between a run and its repetition."""


def training_arguments(defaults: Mapping[str, Any], values: Mapping[str, Any], output_dir: str) -> TrainingArguments:
    """TrainingArguments from values (typed, or text as YAML gives it), over defaults."""
    known = training_names()
    for name in values:
        if name not in known:
            raise AttentrimError(
                f"{name!r} in the config is neither a flag nor a TrainingArguments field.{did_you_mean(name, known)}"
            )
    words = [word for name, value in {**defaults, **values}.items() for word in _as_flags(name, value)]
    return _made(_parse(training_parser(), [*words, f"--output_dir={output_dir}"]))


def given_flags(flags: Sequence[str]) -> dict[str, Any]:
    """Those fields of TrainingArguments that flags name, with their values."""
    parser = training_parser()
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return _parse(parser, flags)


def check_flags(flags: Sequence[str]) -> None:
    """Raise for flags that TrainingArguments would refuse."""
    _made(_parse(training_parser(), [*flags, "--output_dir=unused"]))


def training_parser() -> argparse.ArgumentParser:
    """A parser of all fields as flags, which raises where others exit."""

    def refuse(message: str) -> typing.NoReturn:
        raise AttentrimError(f"{message[:1].upper()}{message[1:]}.")

    made = HfArgumentParser(typing.cast("Any", TrainingArguments))
    made.error = refuse  # type: ignore[method-assign]
    made.allow_abbrev = False
    (resume,) = (action for action in made._actions if action.dest == "resume_from_checkpoint")
    resume.nargs, resume.const = "?", "true"  # without a value: from the last one
    return made


def training_names() -> list[str]:
    return [entry.name for entry in dataclasses.fields(TrainingArguments) if entry.init]


def _parse(parser: argparse.ArgumentParser, flags: Sequence[str]) -> dict[str, Any]:
    found, rest = parser.parse_known_args(list(flags))
    if rest:
        unknown = rest[0].partition("=")[0]
        raise AttentrimError(
            unknown_name("flag", unknown, [f"--{name}" for name in training_names()]).partition(" Available:")[0]
            if unknown.startswith("-")
            else f"Unexpected argument {unknown!r}."
        )
    return vars(found)


def _made(values: Mapping[str, Any]) -> TrainingArguments:
    if values.get("deepspeed") and find_spec("deepspeed") is None:
        raise MissingExtraError("deepspeed", "deepspeed", "--deepspeed")
    check_launched(SimpleNamespace(**values))  # with ddp_backend, TrainingArguments asks for a group of processes
    try:
        return TrainingArguments(**values)
    except (ValueError, ImportError) as error:
        raise AttentrimError(str(error)) from error


def _as_flags(name: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [f"--{name}={json.dumps(value)}"]
    if name == "fsdp" and str(value).lower() in ("true", "false"):
        return ["--fsdp"] if str(value).lower() == "true" else []  # a switch that takes an old name, too
    if value is False and name.endswith("_strategy"):
        return [f"--{name}=no"]  # YAML's no
    if isinstance(value, list | tuple):
        return [f"--{name}", *(str(item) for item in value)] if value else []
    return [f"--{name}={value}"]


def arguments_to_record(args: TrainingArguments, defaults: Collection[str]) -> dict[str, Any]:
    """The TrainingArguments that another run needs to be the same: those with a default of ours, and changed ones."""
    changed = changed_arguments(args)
    recorded = {name: value for name, value in args.to_dict().items() if name in defaults or name in changed}
    return {name: value for name, value in recorded.items() if name not in OF_ONE_RUN}


def changed_arguments(args: TrainingArguments) -> dict[str, Any]:
    """The TrainingArguments that are not at their defaults.

    Without making others to compare with: that would reset what accelerate knows of the processes at work.
    """
    accelerate = AcceleratorConfig().to_dict()
    filled_in: dict[str, Any] = {
        "disable_tqdm": args.disable_tqdm,  # a matter of looks
        "report_to": [],
        "debug": [],
        "hub_token": "<HUB_TOKEN>",
        "accelerator_config": {name: value for name, value in accelerate.items() if name != "use_configured_state"},
        "dataloader_pin_memory": not args.use_cpu,
    }
    stock = {entry.name: getattr(entry.default, "value", entry.default) for entry in dataclasses.fields(args)}
    stock |= filled_in
    return {
        name: value
        for name, value in args.to_dict().items()
        if value != stock.get(name) and not (value in (None, {}, []) and stock.get(name) is dataclasses.MISSING)
    }
