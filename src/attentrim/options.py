"""Settings for the Python API, the command line and YAML: dataclass fields with a help text and a rule."""

from __future__ import annotations

import inspect
import math
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, Self

from .errors import MethodError, unknown_name


@dataclass(frozen=True)
class Rule:
    """What a value must be, in words and as a test, and a guess at what a wrong value was meant to be."""

    text: str
    test: Callable[[Any], bool]
    guess: Callable[[Any], Any] = lambda value: None


def _as_share(value: Any) -> Any:
    return value / 100 if 1 < value < 100 else None


def _as_share_or_all(value: Any) -> Any:
    return 1.0 if value == 100 else _as_share(value)


SHARE = Rule("in [0, 1)", lambda value: 0 <= value < 1, _as_share)
NONE_TO_ALL = Rule("in [0, 1]", lambda value: 0 <= value <= 1, _as_share_or_all)
SHARE_OR_ALL = Rule("in (0, 1]", lambda value: 0 < value <= 1, _as_share_or_all)
NOT_NEGATIVE = Rule("0 or more", lambda value: value >= 0)
POSITIVE = Rule("above 0", lambda value: value > 0)
ABOVE_ONE = Rule("above 1", lambda value: value > 1)
AT_LEAST_TWO = Rule("2 or more", lambda value: value >= 2)
AT_LEAST_ONE = Rule("1 or more", lambda value: value >= 1)


def one_of(names: Sequence[str]) -> Rule:
    return Rule(f"one of {', '.join(names)}", lambda value: value in names)


def option(default: Any, help: str, rule: Rule | None = None) -> Any:
    """A dataclass field with a help text and a rule. `None` is allowed where it is the default."""
    return field(default=default, metadata={"help": help, "rule": rule})


def renamed(now: str, rule: Rule | None = None) -> Any:
    """A field under an old name, checked as before. `now` is its replacement; lists leave it out."""
    return field(default=None, repr=False, metadata={"help": f"now {now}", "rule": rule, "renamed": now})


def current_fields(config: Any) -> list[Field[Any]]:
    """The fields of a dataclass without those that have been renamed."""
    return [entry for entry in fields(config) if "renamed" not in entry.metadata]


class Options:
    """Base of the dataclasses whose fields are made by `option`.

    Their docstrings list the parameters, with the help text of each. An unknown parameter is answered with the
    nearest name.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        described = (inspect.cleandoc(cls.__dict__.get("__doc__") or ""), _parameters(cls))
        cls.__doc__ = "\n\n".join(filter(None, described))

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        known = inspect.signature(cls.__init__).parameters
        sorts = {parameter.kind for parameter in known.values()}
        for name in kwargs:
            if name not in known and inspect.Parameter.VAR_KEYWORD not in sorts:
                raise MethodError(_unknown(cls, name))
        if args and sorts == {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}:
            first = current_fields(cls)[0].name
            raise MethodError(f"Name the settings of {cls.__name__}, as in {cls.__name__}({first}=...).")
        return super().__new__(cls)


def _parameters(config: type) -> str:
    """The 'Args:' section of a docstring. The class is not a dataclass yet, but what it inherits from is one."""
    found: dict[str, tuple[Any, Field[Any]]] = {}
    for owner in reversed(config.__mro__):
        own = owner.__dict__.get("__dataclass_fields__") or owner.__dict__
        hints = inspect.get_annotations(owner)
        for name, entry in own.items():
            if isinstance(entry, Field) and "help" in entry.metadata:
                found[name] = (hints.get(name) or entry.type, entry)
    lines = [_described(name, *found[name]) for name in found if "renamed" not in found[name][1].metadata]
    return "\n".join(["Args:", *lines]) if lines else ""


def _described(name: str, kind: Any, entry: Field[Any]) -> str:
    """'target_sparsity (float | None, default None): remove exactly this share. Must be in [0, 1).'"""
    rule: Rule | None = entry.metadata["rule"]
    text = str(entry.metadata["help"]).rstrip(".")
    must_be = f" Must be {rule.text}." if rule and rule.text.removeprefix("one of ") not in text else ""
    shown = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    line = f"{name} ({shown}, default {entry.default!r}): {text}.{must_be}"
    return textwrap.fill(line, 100, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False)


def _unknown(config: type, name: str) -> str:
    return unknown_name(f"setting of {config.__name__}", name, [entry.name for entry in current_fields(config)])


def check_options(config: Any) -> None:
    """Raise for the first field whose value breaks its type or its rule."""
    hints = typing.get_type_hints(type(config))
    for entry in fields(config):
        value = getattr(config, entry.name)
        if value is None and entry.default is None:
            continue
        kind = _plain_type(hints[entry.name])
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value) if abs(value) < 1e300 else math.inf
            setattr(config, entry.name, value)
        rule: Rule | None = entry.metadata.get("rule")
        where = f"The {entry.name!r} parameter of {type(config).__name__} must be"
        wrong = not isinstance(value, kind) or (kind is not bool and isinstance(value, bool))
        if wrong or (kind is float and not math.isfinite(value)):
            raise MethodError(f"{where} {_NAMES[kind]}{f' {rule.text}' if rule else ''}. Got {value!r} instead.")
        if rule is not None and not rule.test(value):
            guess = rule.guess(value)
            hint = "" if guess is None else f" Did you mean {guess:g}?"
            shown = f"{value:g}" if isinstance(value, float) else repr(value)
            raise MethodError(f"{where} {rule.text}. Got {shown} instead.{hint}")


def from_text(config: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as typed on a command line or in YAML ('0.5', '1e-3', 'true', 'none'), as the fields' own types."""
    known = {entry.name: entry for entry in fields(config)}
    hints = typing.get_type_hints(config)
    result = {}
    for name, value in settings.items():
        if name not in known:
            raise MethodError(_unknown(config, name))
        optional = known[name].default is None
        result[name] = _converted(config.__name__, name, value, _plain_type(hints[name]), optional)
    return result


_NAMES: dict[type, str] = {float: "a number", int: "a whole number", bool: "true or false", str: "a name"}
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _plain_type(hint: Any) -> type:
    """float from `float | None`"""
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    return hint  # type: ignore[no-any-return]


def _converted(owner: str, name: str, value: Any, kind: type, optional: bool) -> Any:
    if not isinstance(value, str):
        return value
    if optional and value.lower() in ("none", "null"):
        return None
    try:
        return _WORDS[value.lower()] if kind is bool else kind(value)
    except (KeyError, ValueError):
        raise MethodError(
            f"The {name!r} parameter of {owner} must be {_NAMES[kind]}. Got {value!r} instead."
        ) from None
