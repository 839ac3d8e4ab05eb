"""Load and save models as directories that a user can go on using."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import AttentrimError

COMPANIONS = ("*.json", "*.txt", "*.model", "*.spm", "*.jinja", "*/config.json")
"""Files beside the weights that belong to the model: tokenizers, processors, sentence-transformers' modules."""
WRITTEN_ANEW = ("config.json", "generation_config.json", "plan.json")


def load_model(name: str) -> Any:
    """The model in a directory, or under a hub name, as the class that it was saved as."""
    import transformers

    with explain(f"Cannot load the model {name!r}"):
        check_model_name(name)
        config = transformers.AutoConfig.from_pretrained(name)
        return _saved_as(config).from_pretrained(name).eval()


def check_model_name(name: str) -> None:
    if not Path(name).is_dir() and (Path(name).exists() or name.startswith((".", "/", "~"))):
        raise AttentrimError(f"There is no model directory {name}.")


@contextmanager
def explain(what: str) -> Iterator[None]:
    """One clear line for whatever the readers of damaged files raise."""
    try:
        yield
    except AttentrimError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise AttentrimError(f"{what}: {reason}") from error


def calm() -> None:
    """No bars for work of a second, and no warning about a GPU feature where there is no GPU."""
    import warnings

    from transformers.utils import logging

    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message=".*pin_memory.*")


@contextmanager
def quiet(when: bool = True) -> Iterator[None]:
    """Without transformers' warnings: a fresh task head is what training is for."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    if when:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _saved_as(config: Any) -> Any:
    """The class that the config names; without a name, the bare model."""
    import transformers

    if not config.architectures:
        return transformers.AutoModel
    known = getattr(transformers, config.architectures[0], None)
    if not isinstance(known, type) or not issubclass(known, transformers.PreTrainedModel):
        raise AttentrimError(
            f"The model's config names {config.architectures[0]!r}, which is no model of transformers."
        )
    return known


def check_output_dir(output_dir: str, model: str) -> Path:
    """Refuse early, before anything is computed, what could not or should not be written."""
    if not output_dir:
        raise AttentrimError("--output_dir is empty.")
    path = Path(output_dir)
    if path.resolve() == Path(model).resolve():
        raise AttentrimError(f"--output_dir is the directory of the model {model}: choose another, so that it stays.")
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
            if output_dir.resolve() in path.resolve().parents:
                continue
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
