"""Load and save models as directories that a user can go on using."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ..errors import AttentrimError

COMPANIONS = ("*.json", "*.txt", "*.model", "*.spm", "*.jinja", "*/config.json")
"""Files beside the weights that belong to the model: tokenizers, processors, sentence-transformers' modules."""
WRITTEN_ANEW = ("config.json", "generation_config.json", "plan.json")


def load_model(name: str) -> Any:
    """The model in a directory, or under a hub name, as the class that it was saved as."""
    import transformers

    if not Path(name).is_dir() and (Path(name).exists() or name.startswith((".", "/", "~"))):
        raise AttentrimError(f"There is no model directory {name}.")
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        saved_as = getattr(transformers, (config.architectures or [""])[0], None)
        return (saved_as or transformers.AutoModel).from_pretrained(name).eval()
    except AttentrimError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise AttentrimError(f"Cannot load the model {name!r}: {reason}") from error


def check_output_dir(output_dir: str, model: str) -> Path:
    """Refuse early, before anything is computed, what could not or should not be written."""
    path = Path(output_dir)
    if path.resolve() == Path(model).resolve():
        raise AttentrimError("--output_dir is the model's own directory: choose another, so that the model stays.")
    if path.exists() and not path.is_dir():
        raise AttentrimError(f"--output_dir {output_dir} is a file.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AttentrimError(f"Cannot make the directory {output_dir}: {error.strerror}.") from error
    return path


def copy_companions(model: str, output_dir: Path) -> list[str]:
    """Copy what lies beside a local model's weights and is not written anew; the names copied."""
    source = Path(model)
    if not source.is_dir():
        return _save_processor(model, output_dir)
    copied = []
    for pattern in COMPANIONS:
        for path in sorted(source.glob(pattern)):
            relative = path.relative_to(source)
            if str(relative) in WRITTEN_ANEW or path.name.endswith(".index.json"):
                continue
            (output_dir / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, output_dir / relative)
            copied.append(str(relative))
    return copied


def _save_processor(model: str, output_dir: Path) -> list[str]:
    import transformers

    processors: Any = transformers.AutoProcessor
    try:
        saved = processors.from_pretrained(model).save_pretrained(output_dir)
    except (OSError, ValueError):
        return []
    return [Path(path).name for path in saved or []]
