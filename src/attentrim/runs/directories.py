"""Output directories that are usable: checked before anything is written, with all that belongs to a model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..errors import AttentrimError
from ..gguf import load_gguf_tokenizer, where_to_load
from ..guarded import belongs
from ..sentences.listing import module_folders
from .remarks import Say, ignore

COMPANIONS = ("*.json", "*.txt", "*.model", "*.spm", "*.jinja", "*/config.json")
"""Files beside the weights that belong to the model: tokenizers, processors, sentence-transformers' modules."""
WRITTEN_ANEW = ("config.json", "generation_config.json", "plan.json")
OF_A_RUN = ("metrics.json", "bench.json", "results.json", "trainer_state.json", "settings.json", "attentrim_run.json")
"""What was measured of the model, and is not true of what is made from it."""
OF_A_VOCABULARY = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "*.model", "*.spm"),
)
"""Where tokens and their ids are written: not true of a model with fewer tokens."""


_MADE: list[Path] = []


def remove_empty() -> None:
    """Take away directories that were made for what then failed, if nothing was written there."""
    for path in _MADE:
        with suppress(OSError):
            path.rmdir()
    _MADE.clear()


def check_output_dir(output_dir: str, model: str) -> Path:
    """Refuse early, before anything is computed, what could not or should not be written."""
    if not output_dir:
        raise AttentrimError("--output_dir is empty.")
    path = Path(output_dir)
    if path.resolve() == Path(model).resolve():
        raise AttentrimError(
            f"--output_dir is the directory of the model {model}: choose another, so that the model is not "
            "overwritten."
        )
    if path.exists() and not path.is_dir():
        raise AttentrimError(f"--output_dir {output_dir} is a file.")
    try:
        if not path.exists():
            path.mkdir(parents=True)
            _MADE.append(path)
    except OSError as error:
        raise AttentrimError(f"Cannot make the directory {output_dir}: {error.strerror}.") from error
    _check_writable(path)
    for pattern in ("*", "*/config.json"):
        for entry in sorted(path.glob(pattern)):
            if entry.is_symlink():
                raise AttentrimError(
                    f"--output_dir {output_dir} holds the symbolic link {entry.relative_to(path)}: nothing is written "
                    "through links. Remove it, or choose another directory."
                )
    return path


def check_output_file(path: str | Path) -> None:
    """Refuse early what could not be written."""
    place = Path(path)
    if place.is_dir() or not place.resolve().parent.is_dir():
        raise AttentrimError(f"Cannot write {path}: it must be a file in a directory that exists.")
    _check_writable(place if place.exists() and not place.is_file() else place.resolve().parent)


def _check_writable(place: Path) -> None:
    if not os.access(place, os.W_OK):
        raise AttentrimError(f"Cannot write to {place}: it is read-only.")


def copy_companions(
    model: str, stage: Path, say: Say = ignore, output_dir: Path | None = None, leave_out: Sequence[str] = ()
) -> list[str]:
    """Copy what lies beside a local model's weights and is not written again. Returns the names copied.

    They go to `stage`, without those that match one of `leave_out`. What `output_dir` holds is no part of the model,
    though it may lie in the model's directory. Links that lead out of the model's directory are not followed: a model
    from elsewhere could name any file here.
    """
    source = Path(model)
    if not source.is_dir():
        return _save_processor(model, stage, say)
    copied = []
    for pattern in (*COMPANIONS, *(f"{folder}/*" for folder in module_folders(source))):
        for path in sorted(source.glob(pattern)):
            relative = path.relative_to(source)
            if (output_dir or stage).resolve() in path.resolve().parents:
                continue
            if str(relative) in copied or not path.is_file():
                continue
            if str(relative) in (*WRITTEN_ANEW, *OF_A_RUN) or path.name.endswith(".index.json"):
                continue
            if any(fnmatchcase(str(relative), name) for name in leave_out):
                continue
            if not belongs(path, source):
                say(f"{relative} is a link out of {model}: not copied")
                continue
            (stage / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, stage / relative)
            copied.append(str(relative))
    return copied


def _save_processor(model: str, output_dir: Path, say: Say) -> list[str]:
    import transformers

    from .models import STOCK_CODE

    source, more = where_to_load(model)
    load = load_gguf_tokenizer if more else transformers.AutoProcessor.from_pretrained
    try:
        processor: Any = load(source, **more, **STOCK_CODE)
    except (OSError, ValueError):
        return []
    except Exception as error:  # tokenizers raise nothing more precise
        say(f"the tokenizer of {model} could not be read, and is left out: {error}")
        return []
    saved = processor.save_pretrained(output_dir)
    return [Path(path).name for path in saved or []]
