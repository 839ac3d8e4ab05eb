"""Files that are there whole or not at all: written under another name, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import AttentrimError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A name to write to, beside `path`, which takes its place when the block ends well.

    What a link under the final name leads to is not overwritten.
    """
    path = Path(path)
    if path.parent == Path("/dev") or (path.exists() and not path.is_file()):
        yield path  # a pipe or a terminal has no other name to write to
        return
    if path.is_symlink():
        raise AttentrimError(f"Cannot write {path}: it is a symbolic link, and what it leads to is not overwritten.")
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield scratch
        os.replace(scratch, path)
    except OSError as error:
        raise AttentrimError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        scratch.unlink(missing_ok=True)


def write_text(path: str | Path, text: str, errors: str = "strict") -> None:
    """In UTF-8; lines end as they do in the text."""
    with replacing(path) as scratch:
        scratch.write_bytes(text.encode("utf-8", errors))
