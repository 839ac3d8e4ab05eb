"""A model with the head that a task needs, its tokenizer, and the teacher to distil from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from ..errors import AttentrimError, TaskError
from ..gguf import forget_gguf, load_gguf_tokenizer, where_to_load
from ..sentences.model import encoder_class
from ..tasks import Task
from .heads import check_head, class_names, put_in_order
from .models import STOCK_CODE, explain, load_config, load_model, without_warnings
from .sentences import prepared

VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "*.spm")
"""Files that a tokenizer can be made of."""


def load_with_tokenizer(name: str, task: Task, fresh_head: bool, changes: Mapping[str, Any]) -> tuple[Any, Any, bool]:
    """Model and tokenizer, and whether any of the model's weights had to be reinitialised."""
    model, fresh = _load(name, task, fresh_head, changes)
    tokenizer = load_tokenizer(name, task.kind.words)
    if tokenizer.pad_token is None:
        # decoders come without one; their classifiers read the last token that is not padding
        if tokenizer.eos_token is None:
            raise TaskError(f"The tokenizer of {name} has no padding token and no end token to pad with.")
        tokenizer.pad_token = tokenizer.eos_token
        model.config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer, fresh


def load_teacher(name: str, task: Task, bare: bool = False) -> Any:
    """The model to distil from, with the classes of the task in its order; of a bare one no answers are needed."""
    if task.kind.embeds:
        return prepared(_load(name, task, fresh_head=True)[0], name, None)
    if bare:
        return _load(name, task, fresh_head=True)[0]
    check_head(task, load_config(name), name)
    teacher = load_model(name)
    if task.kind.classes:
        known = class_names(teacher.config)
        if len(known) != len(task.named_labels):
            raise TaskError(f"The teacher {name} has {len(known)} classes; the data has {len(task.named_labels)}.")
        put_in_order(teacher, known, task.named_labels, name)
    return teacher


def dropout_settings(config: Any, rate: float | None) -> dict[str, float]:
    """All settings of a model's config that are rates of dropout, at the rate that is wanted."""
    if rate is None:
        return {}
    if not 0 <= rate < 1:
        raise AttentrimError(f"--dropout must be in [0, 1). Got {rate:g}.")
    known = {name for name, value in config.to_dict().items() if isinstance(value, float | int) and value is not False}
    return {name: rate for name in sorted(known) if re.search("dropout|pdrop", name)}


def _load(name: str, task: Task, fresh_head: bool, changes: Mapping[str, Any] | None = None) -> tuple[Any, bool]:
    with explain(f"Cannot load the model {name!r}"), without_warnings(fresh_head):
        # weights that are stored in half precision are trained in full: mixed precision is what --bf16 is for
        settings = {**task.kind.model_settings(task.named_labels), "dtype": "float32"} if fresh_head else {}
        source, more = where_to_load(name, weights=True)
        kind = encoder_class(load_config(name)) if task.kind.embeds else task.kind.model_class
        model, found = kind.from_pretrained(
            source,
            **more,
            **settings,
            **(changes or {}),
            **STOCK_CODE,
            ignore_mismatched_sizes=fresh_head,
            output_loading_info=True,
        )
    forget_gguf(model)
    anew = [*found["missing_keys"], *found["mismatched_keys"]]
    return model, bool([key for key in anew if "pooler" not in str(key)] if task.kind.embeds else anew)


def load_tokenizer(name: str, words: bool = False) -> Any:
    """For texts, or for lists of words. Without its files transformers would make an empty one."""
    place = Path(name)
    if place.is_dir() and not any(any(place.glob(file)) for file in VOCABULARIES):
        raise AttentrimError(f"{name} has no tokenizer: there is no {', '.join(VOCABULARIES)} in it.")
    with explain(f"Cannot load the tokenizer of {name!r}"):
        return _tokenizer(name, words)


def _tokenizer(name: str, words: bool) -> Any:
    source, more = where_to_load(name)
    load = load_gguf_tokenizer if more else AutoTokenizer.from_pretrained
    tokenizer = load(source, **more, **STOCK_CODE)
    try:
        if words:
            tokenizer(["a", "b"], is_split_into_words=True)
    except (AssertionError, ValueError):
        # byte-level tokenizers take single words only so
        return load(source, add_prefix_space=True, **more, **STOCK_CODE)
    return tokenizer
