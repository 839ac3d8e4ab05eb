"""The flags of distillation. A run reads them with `Distillation.from_flags`."""

from __future__ import annotations

import argparse
from dataclasses import fields

from ..distillation import FLAGS, Distillation

DISTILLATION_FLAGS = dict.fromkeys(FLAGS, float)
"""Flags that a config file can hold too."""


def add_distillation_arguments(parser: argparse.ArgumentParser) -> None:
    settings = {entry.name: entry for entry in fields(Distillation)}
    group = parser.add_argument_group("distillation: learning from a dense model, with any method or none")
    group.add_argument("--teacher", help="the dense model, trained (default: what the method's dense steps leave)")
    for flag, name in FLAGS.items():
        shown = f"{settings[name].metadata['help']} (default: {settings[name].default:g})"
        group.add_argument(f"--{flag}", type=float, metavar="X", help=shown)
