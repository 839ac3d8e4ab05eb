"""attentrim methods: what there is."""

from __future__ import annotations

import argparse
import warnings
from typing import Any

from ..methods import METHODS, Method
from ..registry import PlugInWarning
from .output import Output

HELP = "list the methods, or the settings of one"
EXAMPLES = """  attentrim methods
  attentrim methods autoattention"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="a method whose settings to list")


def run(args: argparse.Namespace, output: Output) -> None:
    if args.name is None:
        methods, remarks = _all()
        rows = [(method.name, method.summary, "yes" if method.searches else "no") for method in methods]
        output.table("methods", ("name", "what it does", "plans without training"), rows)
        for remark in remarks:
            output.say(remark)
        output.say("attentrim methods NAME lists the settings of one")
        output.result({"methods": [_describe(method) for method in methods]})
        return
    method = METHODS[args.name]
    settings = _describe(method)["settings"]
    output.say(f"{method.name}: {method.summary}\n{method.paper}")
    output.table(
        "settings", ("name", "default", "help"), [(s["name"], _shown(s["default"]), s["help"]) for s in settings]
    )
    output.result(_describe(method))


def _all() -> tuple[list[type[Method]], list[str]]:
    """The methods that can be used, and why plug-ins among them cannot."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PlugInWarning)
        methods = [METHODS[name] for name in METHODS]
    return methods, [str(warning.message) for warning in caught if issubclass(warning.category, PlugInWarning)]


def _describe(method: type[Method]) -> dict[str, Any]:
    settings = [
        {"name": entry.name, "default": entry.default, "help": entry.metadata["help"]}
        for entry in method.setting_fields()
    ]
    return {
        "name": method.name,
        "summary": method.summary,
        "paper": method.paper,
        "searches": method.searches,
        "settings": settings,
    }


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
