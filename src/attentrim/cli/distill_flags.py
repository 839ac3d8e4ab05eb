"""The flags of distillation. A run reads them with `Distillation.from_flags`."""

from __future__ import annotations

import argparse

from ..distillation import FLAGS, flag_help

DISTILLATION_FLAGS = dict.fromkeys(FLAGS, float)
"""Flags that a config file can hold too."""


def add_distillation_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("distillation: learning from a dense model, with any method or none")
    group.add_argument("--teacher", help="the dense model, trained (default: what the method's dense steps leave)")
    for flag in FLAGS:
        group.add_argument(f"--{flag}", type=float, metavar="X", help=flag_help(flag))
