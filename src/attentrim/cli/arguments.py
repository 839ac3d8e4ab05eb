"""Flags of the commands that train: ours, those of TrainingArguments, and a YAML file below both."""

from __future__ import annotations

import argparse
import dataclasses
import json
import typing
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import AttentrimError, MethodError, did_you_mean, unknown_name
from ..methods import METHODS, Method
from ..tasks import TASKS
from ..tasks.own import TYPES
from ..tasks.tables import FORMATS

NO_METHOD = "none"


DATA_FLAGS = {
    "task": str,
    "data_dir": str,
    "dataset": str,
    "dataset_config": str,
    "train_file": str,
    "validation_file": str,
    "test_file": str,
    "task_type": str,
    "text_column": str,
    "text_pair_column": str,
    "label_column": str,
    "choice_columns": str,
    "max_length": int,
    "window_stride": int,
    "skip_bad_rows": bool,
    "max_eval_samples": int,
}
"""Flags that say what the data is, which a config file can hold too."""


def add_task_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a model directory or hub name (with --task acceptability: MiniLM-L6)")
    data = parser.add_argument_group("the data: a published task, or your own")
    data.add_argument("--task", metavar="NAME", help=f"one of: {', '.join(TASKS.names())}")
    data.add_argument("--data_dir", help="a local copy of the task in its published layout (else: from the hub)")
    data.add_argument("--dataset", help="a hub name or a directory of `datasets`: your own, or a mirror of the task")
    data.add_argument("--dataset_config", metavar="NAME", help="which part of the dataset")
    data.add_argument("--train_file", metavar="FILE", help=f"your own training data: {', '.join(FORMATS)}")
    data.add_argument("--validation_file", metavar="FILE", help="(without it: a tenth of the training rows)")
    data.add_argument("--test_file", metavar="FILE", help="for evaluate --split test")
    data.add_argument(
        "--task_type", help=f"one of: {', '.join(TYPES)} (default: by the look of the data, or of the trained model)"
    )
    data.add_argument("--text_column", metavar="NAME", help="the column with the text, or with words to tag")
    data.add_argument("--text_pair_column", metavar="NAME", help="the column with the second text of a pair")
    data.add_argument("--label_column", metavar="NAME", help="the column with the label")
    data.add_argument("--choice_columns", metavar="A,B,C", help="the columns with the choices")
    data.add_argument("--max_length", type=int, help="longest input in tokens; longer ones are cut (default: 128)")
    data.add_argument(
        "--window_stride",
        type=int,
        help="read long texts in windows of max_length that share so many tokens; their scores are averaged",
    )
    data.add_argument("--skip_bad_rows", action="store_true", help="leave rows out that cannot be read, and say so")
    data.add_argument("--max_eval_samples", type=int, help="evaluate on the first so many examples only")


def add_training_arguments(parser: argparse.ArgumentParser) -> None:
    """What training takes besides the fields of TrainingArguments."""
    parser.add_argument("--max_train_samples", type=int, help="use the first so many training examples only")
    parser.add_argument(
        "--dropout", type=float, help="the model's own dropout, all of it, if not as its config says; 0: none"
    )


def add_method_arguments(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """With a default, all methods; without, those that can plan without training."""
    # a help text imports no plug-in, so whether one can plan is not known here
    planning = [n for n in METHODS.names() if n not in METHODS.loaded or METHODS.loaded[n].searches]
    names = [*METHODS.names(), NO_METHOD] if default else planning
    shown = f" (default: {default})" if default else ""
    parser.add_argument("--method", help=f"one of: {', '.join(names)}{shown}")
    parser.add_argument(
        "--method_config",
        nargs="+",
        action="extend",
        metavar="K=V",
        help="settings of the method, such as target_sparsity=0.5; `attentrim methods NAME` lists them",
    )


def read_method(name: str, settings: Mapping[str, Any]) -> Method | None:
    """The method under a name; None for plain fine-tuning."""
    if name == NO_METHOD:
        if settings:
            raise MethodError("The method 'none' has no settings: leave --method_config out.")
        return None
    if name not in METHODS:
        raise MethodError(unknown_name("method", name, [*METHODS.names(), NO_METHOD]))
    return METHODS[name].from_settings(settings)


def parse_settings(pairs: Sequence[str]) -> dict[str, str]:
    """['a=1', 'b=x'] -> {'a': '1', 'b': 'x'}"""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name or not value:
            raise AttentrimError(f"--method_config takes K=V, such as target_sparsity=0.5. Got {pair!r}.")
        if name in settings:
            raise AttentrimError(f"--method_config names {name!r} twice.")
        settings[name] = value
    return settings


def read_config(path: str) -> dict[str, Any]:
    """A YAML mapping of flags without their dashes."""
    import yaml

    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise AttentrimError(f"Cannot read the config {path}: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AttentrimError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if data is None:
        return {}
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise AttentrimError(f"{path} must be a mapping of flags to values, such as 'task: cola'.")
    return data


def merge_config(args: argparse.Namespace, own: Mapping[str, type]) -> dict[str, Any]:
    """Fill flags of ours that were not given from the YAML file; what is left is for TrainingArguments."""
    if not args.config:
        return {}
    data = read_config(args.config)
    settings = data.pop("method_config", None) or {}
    if not isinstance(settings, dict):
        raise AttentrimError(f"{args.config}: method_config must be a mapping, such as 'target_sparsity: 0.5'.")
    if args.method is None or data.get("method", args.method) == args.method:
        args.method_config = {**settings, **args.method_config}
    for name, kind in own.items():
        value = data.pop(name, None)
        if value is not None and not given(getattr(args, name)):
            setattr(args, name, _converted(name, value, kind))
    return data


def given(value: Any) -> bool:
    """Whether a flag was given; 0 is a value."""
    return value is not None and value is not False


def _converted(name: str, value: Any, kind: type) -> Any:
    """A value of one of our own flags as YAML gives it: 1e3 arrives as text, and a name may look like a number."""
    try:
        if isinstance(value, dict | list):
            raise ValueError
        if kind is bool:
            return {"true": True, "false": False}[str(value).lower()]
        if kind is str:
            return str(value)
        number = float(value)
        if kind is int and number % 1:
            raise ValueError
        return kind(number)
    except (KeyError, ValueError):
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        raise AttentrimError(f"{name} in the config must be {words[kind]}. Got {value!r}.") from None


def training_arguments(
    defaults: Mapping[str, Any], config: Mapping[str, Any], flags: Sequence[str], output_dir: str
) -> Any:
    """TrainingArguments from the command line, over a YAML file, over the defaults."""
    parser, names = _training_parser()
    for name in config:
        if name not in names:
            raise AttentrimError(
                f"{name!r} in the config is no flag and no field of TrainingArguments.{did_you_mean(name, names)}"
            )
    lower = [flag for name, value in {**defaults, **config}.items() for flag in _as_flags(name, value)]
    found, rest = parser.parse_known_args([*lower, *flags, "--output_dir", output_dir])
    if rest:
        unknown = rest[0].partition("=")[0]
        raise AttentrimError(
            unknown_name("flag", unknown, [f"--{name}" for name in names]).partition(" Available:")[0]
            if unknown.startswith("-")
            else f"Unexpected argument {unknown!r}."
        )
    from transformers import TrainingArguments

    try:
        return TrainingArguments(**{name: getattr(found, name) for name in names})
    except (ValueError, ImportError) as error:
        raise AttentrimError(str(error)) from error


def training_names() -> list[str]:
    return _training_parser()[1]


def given_training_arguments(flags: Sequence[str]) -> dict[str, Any]:
    """Those fields of TrainingArguments that the flags name, with their values."""
    if not flags:
        return {}
    found = training_arguments({}, {}, flags, "unused")
    named = {flag[2:].partition("=")[0].replace("-", "_") for flag in flags if flag.startswith("--")}
    return {name: value for name, value in found.to_dict().items() if name in named}


def comma_separated(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _training_parser() -> tuple[argparse.ArgumentParser, list[str]]:
    from transformers import HfArgumentParser, TrainingArguments

    def refuse(message: str) -> typing.NoReturn:
        raise AttentrimError(f"{message[:1].upper()}{message[1:]}.")

    fields: Any = TrainingArguments
    made = HfArgumentParser(fields)
    made.error = refuse  # type: ignore[method-assign]
    made.allow_abbrev = False
    return made, [entry.name for entry in dataclasses.fields(TrainingArguments) if entry.init]


def training_help() -> str:
    return _training_parser()[0].format_help()


def telling_arguments(args: Any, defaults: Collection[str]) -> dict[str, Any]:
    """The TrainingArguments that another run needs to be the same: those with a default of ours, and changed ones."""
    from ..run_files import changed_arguments

    mine, changed = args.to_dict(), changed_arguments(args)
    left_out = ("output_dir", "resume_from_checkpoint", "logging_dir")
    told = {name: value for name, value in mine.items() if name in defaults or name in changed}
    return {name: value for name, value in told.items() if name not in left_out}


def _as_flags(name: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [f"--{name}", json.dumps(value)]
    if value is False and name.endswith("_strategy"):
        return [f"--{name}", "no"]  # YAML's no
    if isinstance(value, list | tuple):
        return [f"--{name}", *(str(item) for item in value)] if value else []
    return [f"--{name}", str(value)]
