"""Flags: those of settings, those of TrainingArguments, and a YAML file below both. Imports no torch."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import AttentrimError
from ..methods import METHODS
from ..runs.files import read_config
from ..runs.settings import DATA_SETTINGS, RUN_SETTINGS, SPEED_METHOD, RunSettings, TaskSettings, given, setting_types


def add_settings(parser: Any, names: Sequence[str], settings: type[TaskSettings] = RunSettings) -> None:
    """Flags for these fields. One that was not given is None (or False), whatever its default is."""
    kinds = setting_types(settings)
    for entry in dataclasses.fields(settings):
        if entry.name not in names:
            continue
        help, metavar = entry.metadata["help"], entry.metadata["metavar"]
        if kinds[entry.name] is bool:
            parser.add_argument(f"--{entry.name}", action="store_true", help=help)
        else:
            parser.add_argument(f"--{entry.name}", type=kinds[entry.name], metavar=metavar, help=help)


def add_task_arguments(parser: argparse.ArgumentParser) -> None:
    """The model and the data."""
    add_settings(parser, ["model"])
    add_settings(parser.add_argument_group("the data: a published task, or your own"), DATA_SETTINGS)


def task_settings(args: argparse.Namespace) -> TaskSettings:
    """What the flags of `add_task_arguments` say."""
    return TaskSettings(**{name: getattr(args, name) for name in ("model", *DATA_SETTINGS)})


def add_method_config(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--method_config", nargs="+", action="extend", metavar="K=V", help=help)


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """A method that can plan without training, and its settings."""
    # a help text imports no plug-in, so whether one can plan is not known here
    names = [n for n in METHODS.names() if n not in METHODS.loaded or METHODS.loaded[n].searches]
    parser.add_argument("--method", help=f"one of: {', '.join(names)}")
    add_method_config(parser, OF_ONE_METHOD)


OF_ONE_METHOD = "settings of the method, such as target_sparsity=0.5; `attentrim methods NAME` lists them"
SPEED_GROUP = f"a requested speed (selects the method {SPEED_METHOD} unless --method is given)"


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


def run_settings(args: argparse.Namespace) -> RunSettings:
    """What the flags of `train` say, over a YAML file."""
    config = read_config(args.config) if args.config else {}
    method_config = config.pop("method_config", None) or {}
    if not isinstance(method_config, dict):
        raise AttentrimError(f"{args.config}: method_config must be a mapping, such as 'target_sparsity: 0.5'.")
    if args.method is not None and config.get("method", args.method) != args.method:
        method_config = {}  # of another method
    method_config |= parse_settings(args.method_config or [])
    flags = {**given_settings(args), **training_flags(args.more)}
    return RunSettings.from_mapping({**config, **flags, "method_config": method_config})


def given_settings(args: argparse.Namespace, names: Sequence[str] = RUN_SETTINGS) -> dict[str, Any]:
    """Those of our own flags that were given."""
    return {name: value for name in names if given(value := getattr(args, name, None))}


def training_flags(flags: Sequence[str]) -> Mapping[str, Any]:
    """Those fields of TrainingArguments that the other flags name."""
    if not flags:
        return {}
    from ..runs.training import given_flags

    return given_flags(flags)
