"""The files that make a model's directory one of sentence-transformers, for a model that has none."""

from __future__ import annotations

import json
from typing import Any

from .listing import MODULES
from .modules import Normalize, SentenceModules
from .reading import LENGTHS, OLD_MODES, SETTINGS

TYPES = "sentence_transformers.models."
"""The names that all versions read."""
POOLING = "1_Pooling"


def default_modules(width: int, max_length: int) -> SentenceModules:
    """The mean over the tokens, normalised: for a model with so many numbers per token, and texts up to a length."""
    folders = {"Transformer": "", "Pooling": POOLING, "Normalize": "2_Normalize"}
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": TYPES + kind}
        for index, (kind, path) in enumerate(folders.items())
    ]
    pooling = {"word_embedding_dimension": width, **{name: mode == "mean" for name, mode in OLD_MODES.items()}}
    files: dict[str, Any] = {
        MODULES: listed,
        f"{POOLING}/config.json": pooling,
        LENGTHS[0]: {"max_seq_length": max_length, "do_lower_case": False},
        SETTINGS: {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    }
    written = {name: (json.dumps(content, indent=2) + "\n").encode() for name, content in files.items()}
    return SentenceModules(("mean",), (Normalize(),), max_length, files=written)
