"""Models that embed sentences: what a sentence-transformers directory says, and a transformers model that does it.

sentence-transformers itself is not needed: its directories are read and written here.
"""

from __future__ import annotations

from .answers import Answered, embeddings_of
from .model import as_embedding_model, embedding_model, embeds, encoder_class
from .modules import SentenceModules
from .reading import find_modules, module_folders
from .writing import default_modules

__all__ = [
    "Answered",
    "SentenceModules",
    "as_embedding_model",
    "default_modules",
    "embedding_model",
    "embeddings_of",
    "embeds",
    "encoder_class",
    "find_modules",
    "module_folders",
]
