"""Models that embed sentences, as runs need them: made from a directory, with the embeddings to keep."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cost import most_tokens
from ..errors import TaskError
from ..sentences.answers import embeddings_of
from ..sentences.model import LONGEST, as_embedding_model, check_embeds, embeds
from ..sentences.reading import find_modules
from ..sentences.writing import default_modules
from ..tasks.kinds import EncodedDataset
from ..tasks.similarity import NEIGHBOURS, neighbours_of
from .files import read_config
from .reader import CONFIG
from .remarks import Say, ignore

if TYPE_CHECKING:
    from .loading import Loaded

DEFAULTS = {"learning_rate": 2e-4, "per_device_train_batch_size": 48}
"""Of training on texts alone, over those of a method."""
DROPOUT = 0.0
"""What a model without noise puts out is what it is to keep."""
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1000, 1, 20
"""About how many steps lead to a speed: epochs are counted by them."""


def prepared(model: Any, name: str, max_length: int | None, say: Say = ignore) -> Any:
    """The model with the modules in its directory, or with the usual ones, which is said."""
    modules = find_modules(name)
    check_embeds(model, name, modules is not None)
    if modules is None:
        say(f"{name} has no modules.json: a text's embedding is the mean over its tokens, normalised")
        modules = default_modules(model.config.hidden_size, max_length or min(LONGEST, most_tokens(model)))
    return as_embedding_model(model, modules)


def usual_length(model: Any, otherwise: int) -> int:
    """Tokens of the longest text that the model reads whole."""
    if not embeds(model):
        return otherwise
    longest = min(LONGEST, most_tokens(model))
    return min(model.sentence_modules.max_length or longest, longest)


def check_teacher(teacher: Any, model: Any, name: str, tokenizers: tuple[Any, Any]) -> None:
    """Raise for one whose embeddings cannot be compared with the model's."""
    widths = [found.sentence_modules.width(found.config.hidden_size) for found in (teacher, model)]
    if widths[0] != widths[1]:
        raise TaskError(
            f"The teacher {name} embeds a text in {widths[0]} numbers, the model in {widths[1]}: they must be as many."
        )
    if tokenizers[0].get_vocab() != tokenizers[1].get_vocab():
        raise TaskError(f"The teacher {name} has another vocabulary: teacher and model must read the same tokens.")


def same_shape(teacher: Any, model: Any) -> bool:
    """Whether all hidden states can be compared."""
    return all(
        getattr(teacher.config, name, None) == getattr(model.config, name, None)
        for name in ("hidden_size", "num_hidden_layers")
    )


def epochs_for(texts: int, batch: int, speeds: int) -> int:
    """So many that each speed gets about the usual number of steps, or as few texts allow."""
    wanted = math.ceil(STEPS * max(1, speeds) / math.ceil(texts / batch))
    return min(max(FEWEST_EPOCHS, wanted), MOST_EPOCHS * max(1, speeds))


def trained_from(directory: str) -> str | None:
    """The model whose embeddings a finished run was to keep, if the run says and it is there."""
    file = Path(directory) / CONFIG
    found = read_config(file, follow=False) if file.is_file() else {}
    names = [found.get("teacher"), found.get("model")]
    name = next((str(name) for name in names if name), None)
    return None if name is None or (Path(name).is_absolute() and not Path(name).is_dir()) else name


def answer(loaded: Loaded, data: EncodedDataset) -> None:
    """Add the teacher's embeddings to the data as targets; without a teacher it needs scores."""
    if data.labels is not None:
        return
    if loaded.teacher is None:
        if data.scores is None:
            raise TaskError(
                "There is nothing to compare the embeddings with: give the original model with --teacher, or scored "
                "pairs (--text_column, --text_pair_column, --label_column)."
            )
        return
    teacher = loaded.teacher.to(loaded.device)
    data.labels = list(embeddings_of(teacher, data, loaded.task.kind.collator(loaded.tokenizer)))
    if len(data) <= NEIGHBOURS:
        loaded.say(f"only {len(data)} texts to evaluate on, so neighbours are the {neighbours_of(len(data))} nearest")
