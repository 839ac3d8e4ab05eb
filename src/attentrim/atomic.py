"""Files that are there whole or not at all: written under another name, then renamed."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import AttentrimError, WriteError

SCRATCH = ".*.part"
"""What is being written, or was when its process died."""
OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
OF_RUST = re.compile(r"\(os error (\d+)\)")
"""How safetensors and tokenizers quote the system."""
WEIGHTS = "model.safetensors"
OF_TORCH = ("inline_container", "PytorchStreamWriter", "iostream error")
"""What torch.save says where it noticed; why, it does not say."""


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A name to write to, beside `path`, which takes its place when the block ends well.

    What a link under the final name leads to is not overwritten.
    """
    path = Path(path)
    if path.parent == Path("/dev") or (path.exists() and not path.is_file()):
        with explaining(path):
            yield path  # a pipe or a terminal has no other name to write to
        return
    if path.is_symlink():
        raise AttentrimError(f"Cannot write {path}: it is a symbolic link, and what it leads to is not overwritten.")
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with explaining(scratch, path):
            yield scratch
            os.replace(scratch, path)
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)


@contextmanager
def staged(
    directory: str | Path, *, copied: Sequence[str] = (), stale: Sequence[str] = (), last: str = ""
) -> Iterator[Path]:
    """A directory to write files to, which take their places in `directory` when the block ends well.

    Args:
        copied: Files of `directory` that the block reads or changes.
        stale: Patterns of files in `directory` that are gone then, unless the block wrote them.
        last: The file that takes its place after all others: where it is, they are.
    """
    directory = Path(directory)
    with explaining(directory):
        directory.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=directory, prefix=".", suffix=".part"))
    stage = scratch / directory.resolve().name  # a model's card has the name of its directory
    try:
        with explaining(stage, directory):
            stage.mkdir()
            for name in copied:
                if (directory / name).is_file() and not (directory / name).is_symlink():
                    shutil.copyfile(directory / name, stage / name)
            yield stage
            _move(stage, directory, stale, last)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _move(stage: Path, directory: Path, stale: Sequence[str], last: str) -> None:
    written = [path.relative_to(stage) for path in stage.rglob("*") if path.is_file()]
    for name in sorted(written, key=lambda name: str(name) == last):
        (directory / name).parent.mkdir(exist_ok=True)
        os.replace(stage / name, directory / name)
    for pattern in stale:
        for path in directory.glob(pattern):
            if path.relative_to(directory) not in written:
                path.unlink()


def write_text(path: str | Path, text: str, errors: str = "strict") -> None:
    """In UTF-8; lines end as they do in the text."""
    with replacing(path) as scratch:
        scratch.write_bytes(text.encode("utf-8", errors))


# Why something could not be written


@contextmanager
def explaining(place: Path, final: Path | None = None) -> Iterator[None]:
    """Say what a full disk, or one that cannot be written to, says: in one line, with the file and the cause.

    Args:
        place: What is written: a file, or a directory.
        final: What it will be called.
    """
    try:
        yield
    except Exception as error:
        found = explained(error, place, final or place)
        if found is None:
            raise
        raise found from error


def explained(error: BaseException, place: Path, final: Path) -> WriteError | None:
    """The same as a WriteError; None where no disk is to blame."""
    chain = _chain(error)
    for link in chain:
        cause = link.cause if isinstance(link, WriteError) else _cause(link, place, outermost=link is error)
        if cause is not None:
            return WriteError(_called(chain, place, final), cause)
    return None


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _cause(error: BaseException, place: Path, outermost: bool) -> str | None:
    if isinstance(error, OSError) and (error.errno in OF_THE_DISK or (outermost and error.strerror)):
        return error.strerror or str(error)
    by_rust = OF_RUST.search(str(error))
    if by_rust:
        return os.strerror(int(by_rust[1]))
    if isinstance(error, RuntimeError) and any(words in str(error) for words in OF_TORCH):
        there = next(path for path in (place, *place.parents) if path.exists())
        return f"it could not be written to its end ({shutil.disk_usage(there).free / 1e6:,.1f} MB are free)"
    return None


def _called(chain: Sequence[BaseException], place: Path, final: Path) -> Path:
    """The file that was being written: the one that an error names, or else the last one."""
    named = [Path(str(name)) for error in chain for name in _names(error)]
    below = [path for path in named if path.is_relative_to(place)]
    if not below and any(type(error).__name__ == "SafetensorError" for error in chain) and place.is_dir():
        return final / WEIGHTS  # it leaves no trace of the file
    if not below and place.is_dir():
        files = [path for path in place.rglob("*") if path.is_file()]
        below = sorted(files, key=lambda path: path.stat().st_mtime_ns)[-1:]
    return final / below[0].relative_to(place) if below else final


def _names(error: BaseException) -> list[object]:
    own = error.path if isinstance(error, WriteError) else getattr(error, "filename", None)
    return [] if own is None else [own]
