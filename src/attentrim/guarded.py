"""Read files that anyone may have written: sizes are checked before memory is taken, links out of the directory that a
file was found in are not followed. Imports no torch.
"""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .errors import AttentrimError

MOST_BYTES = 2**24
"""Of a JSON file: parsed, empty lists take twenty times the room that they have in the file."""
MOST_YAML_BYTES = 2**19
MOST_HISTORY_BYTES = 2**26
"""Of a history, which is parsed line by line."""
DEEPEST = 64
"""Levels of nesting: what is written with a few dozen can be copied, printed and compared without overflow."""
MOST_DIGITS = 18
MOST_YAML_NODES = 200_000
"""With what aliases stand for written out: a few lines of YAML can stand for billions of values."""
LARGEST = 1e30
"""Of numbers that pages and plots compute with: far from where floats overflow."""


def belongs(path: Path, directory: Path) -> bool:
    """Whether a file is in a directory, links followed. In the hub's cache, files are links to `blobs` beside it."""
    try:
        root, target = directory.resolve(), path.resolve()
    except (OSError, RuntimeError):  # links in a circle
        return False
    homes = [root, *(place.parents[1] / "blobs" for place in (root, *root.parents) if _is_snapshot(place))]
    return any(target.is_relative_to(home) for home in homes)


def _is_snapshot(place: Path) -> bool:
    """.../models--google-bert--bert-base-uncased/snapshots/86b5e0934494bd15c9632b12f734a8a67f723594"""
    return place.parent.name == "snapshots" and place.parents[1].name.startswith("models--")


def read_text(path: str | Path, most: int = MOST_BYTES, *, follow: bool = False) -> str:
    """The text of a file. Raises OSError, or an AttentrimError where it is too long or no text.

    A link that leads out of the file's directory is followed only if told so: where a user has named the file itself.
    What was only found in a directory from elsewhere could stand for any file here.
    """
    try:
        if not follow and not belongs(Path(path), Path(path).parent):
            raise AttentrimError("it is a link out of its directory")
        with Path(path).open("rb") as file:
            if not stat.S_ISREG(Path(path).stat().st_mode):  # a pipe may never end
                raise AttentrimError("it is not a regular file")
            content = file.read(most + 1)
    except (TypeError, ValueError) as error:  # no path, or one with a null character
        raise (
            error if isinstance(error, AttentrimError) else AttentrimError(f"it is not a valid path ({error})")
        ) from error
    if len(content) > most:
        raise AttentrimError(f"it is longer than {most / 2**20:g} MiB")
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise AttentrimError("it is not a text file in UTF-8") from error


def parse_json(text: str, *, unique: bool = False) -> Any:
    """With `unique`, a key that stands twice in an object is refused; JSON keeps the last."""
    try:
        data = json.loads(text, parse_int=_whole_number, object_pairs_hook=_unique if unique else None)
    except (ValueError, RecursionError) as error:
        raise AttentrimError(f"it is not valid JSON: {error}") from error
    check_data(data)
    return data


def read_json(path: str | Path, what: str, *, follow: bool = False) -> Any:
    """The data of a file, or one clear line if it cannot be read. `what` names it: 'the latency table'."""
    try:
        return parse_json(read_text(path, follow=follow))
    except OSError as error:
        raise AttentrimError(f"Cannot read {what} {path}: {error.strerror}.") from error
    except AttentrimError as error:
        raise AttentrimError(f"Cannot read {what} {path}: {error}.") from error


def parse_yaml(text: str) -> Any:
    import yaml

    if len(text) > MOST_YAML_BYTES:
        raise AttentrimError(f"it is longer than {MOST_YAML_BYTES / 2**20:g} MiB")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _check_nodes(node)
        data = None if node is None else loader.construct_document(node)
    except AttentrimError:
        raise
    except Exception as error:  # constructors raise whatever they meet: '!!bool x' is a KeyError
        raise AttentrimError(f"it is not valid YAML: {' '.join(str(error).split())}") from error
    check_data(data)
    return data


def check_data(data: Any) -> None:
    """Raise where data is nested too deeply, or has whole numbers that no file of ours has."""
    level = [data]
    for _ in range(DEEPEST):
        if any(isinstance(value, int) and abs(value) >= 10**MOST_DIGITS for value in level):
            raise AttentrimError(f"it has a number of more than {MOST_DIGITS} digits")
        level = [child for value in level for child in _children(value)]
        if not level:
            return
    raise AttentrimError(f"it is nested more than {DEEPEST} levels deep")


def is_number(value: Any) -> bool:
    """Whether pages and plots can compute with a value."""
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) <= LARGEST


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple | set) else ()


def _whole_number(text: str) -> int:
    if len(text) > MOST_DIGITS + 1:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice in one object")
    return found


def _check_nodes(root: Any) -> None:
    """Before YAML is made into objects: merging what aliases stand for takes memory for each time that they do."""
    count, level = 1, [root]
    for _ in range(2 * DEEPEST):
        level = [child for node in level for child in _parts(node)]
        count += len(level)
        if count > MOST_YAML_NODES:
            raise AttentrimError(f"it expands to more than {MOST_YAML_NODES:,} values")
        if not level:
            return
    raise AttentrimError(f"it is nested more than {DEEPEST} levels deep")


def _parts(node: Any) -> list[Any]:
    """Of a YAML node; a scalar has none."""
    value = getattr(node, "value", None)
    if not isinstance(value, list):
        return []
    return [part for entry in value for part in (entry if isinstance(entry, tuple) else (entry,))]
