"""Load models by name, with one clear line where that fails."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from transformers.utils import CONFIG_NAME, logging

from ..errors import AttentrimError
from ..gguf import forget_gguf, where_to_load
from ..guarded import read_json
from ..sentences.listing import MODULES
from ..sentences.model import encoder_class

STOCK_CODE = {"trust_remote_code": False}
"""Code that comes with a model is never run, and transformers does not ask whether it may be."""


def load_model(name: str) -> Any:
    """The model in a directory, or under a hub name, as the class that it was saved as."""
    with explain(f"Cannot load the model {name!r}"):
        source, more = where_to_load(name, weights=True)
        config = _config(name)
        # what sentence-transformers loads is the bare model, whatever class it was once saved as
        bare = (Path(name) / MODULES).is_file()
        model_class = encoder_class(config) if bare else _saved_as(config)
        model = model_class.from_pretrained(source, **more, **STOCK_CODE).eval()
        forget_gguf(model)
        return model


def load_config(name: str) -> Any:
    with explain(f"Cannot load the model {name!r}"):
        return _config(name)


def _config(name: str) -> Any:
    source, more = where_to_load(name)
    if more:
        config = transformers.AutoConfig.from_pretrained(source, **more, **STOCK_CODE)
        config.architectures = config.architectures or _language_models(config)
        return config
    if not Path(name).is_dir() and (Path(name).exists() or name.startswith((".", "/", "~"))):
        raise AttentrimError(f"There is no model directory {name}.")
    if (Path(name) / CONFIG_NAME).exists():  # transformers would read any length, and copy it many times
        read_json(Path(name) / CONFIG_NAME, "the model's config", follow=True)
    return transformers.AutoConfig.from_pretrained(name, **STOCK_CODE)


def _language_models(config: Any) -> list[str]:
    """What a GGUF file holds: it does not name the class."""
    heads: list[Any] = [transformers.AutoModelForCausalLM, transformers.AutoModelForSeq2SeqLM]
    return [head._model_mapping[type(config)].__name__ for head in heads if type(config) in head._model_mapping]


def _saved_as(config: Any) -> Any:
    """The class that the config names; without a name the bare model."""
    if not config.architectures:
        return transformers.AutoModel
    known = getattr(transformers, config.architectures[0], None)
    if not isinstance(known, type) or not issubclass(known, transformers.PreTrainedModel):
        raise AttentrimError(
            f"The model's config names {config.architectures[0]!r}, which is not a transformers model."
        )
    return known


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


def silence_libraries() -> None:
    """No bars for work of a second, and no warning about a GPU feature where there is no GPU."""
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message=".*pin_memory.*")


@contextmanager
def without_warnings(when: bool = True) -> Iterator[None]:
    """Without transformers' warnings: a fresh task head is what training is for."""
    before = logging.get_verbosity()
    if when:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
