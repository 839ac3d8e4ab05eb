"""Settings for the Python API, the command line and YAML alike: dataclass fields with a help text and a rule."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any

from .errors import MethodError, unknown_name


@dataclass(frozen=True)
class Rule:
    """What a value must be, in words and as a test, with a guess at what a wrong value meant."""

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
    """A field under an old name, checked as before. `now` is what stands in its place; nothing lists it any more."""
    return field(default=None, repr=False, metadata={"help": f"now {now}", "rule": rule, "renamed": now})


def current_fields(config: Any) -> list[Field[Any]]:
    """The fields of a dataclass without those that have been renamed."""
    return [entry for entry in fields(config) if "renamed" not in entry.metadata]


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
            available = [entry.name for entry in current_fields(config)]
            raise MethodError(unknown_name(f"setting of {config.__name__}", name, available))
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
