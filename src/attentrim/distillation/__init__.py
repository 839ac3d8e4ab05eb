"""Distillation: a model learns from a teacher's outputs, beside the labels or in their place. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import MethodError
from ..options import NOT_NEGATIVE, POSITIVE, SHARE, Options, check_options, option

__all__ = ["FLAGS", "IGNORED", "OF_EMBEDDINGS", "Distillation", "flag_help"]

IGNORED = -100
"""The label of positions that have none."""
FLAGS = {
    "distill_logits": "logits",
    "distill_hidden": "hidden",
    "distill_embedding": "embedding",
    "distill_similarity": "similarity",
    "distill_temperature": "temperature",
    "distill_noise": "noise",
    "label_weight": "label_weight",
}
"""The settings by their names on the command line and in YAML, where nothing else says what they belong to."""
DISTANCES = ("distill_logits", "distill_hidden", "distill_embedding", "distill_similarity")
"""Those of them of which one is needed at least."""


@dataclass(kw_only=True)
class Distillation(Options):
    """What to learn from a teacher, and with what weight. Works with any method and with none.

    trainer = attentrim.Trainer(model=model, teacher=teacher, distillation=attentrim.Distillation(logits=1.0), ...)
    """

    logits: float = option(0.0, "weight of the distance to the teacher's logits in the loss", NOT_NEGATIVE)
    hidden: float = option(0.0, "weight of the distance to the teacher's hidden states in the loss", NOT_NEGATIVE)
    embedding: float = option(
        0.0,
        "weight of the distance to the teacher's sentence embeddings (1 - cosine) in the loss",
        NOT_NEGATIVE,
    )
    similarity: float = option(
        0.0, "weight of the squared error in the similarities between the texts of a batch in the loss", NOT_NEGATIVE
    )
    temperature: float = option(2.0, "temperature of the logits when distilling", POSITIVE)
    noise: float = option(
        0.0, "distil on a corrupted copy of each batch, with this share of the words replaced at random", SHARE
    )
    label_weight: float = option(
        1.0, "weight of the loss on the labels when distilling; 0: learn only from the teacher", NOT_NEGATIVE
    )

    def __post_init__(self) -> None:
        check_options(self)
        if not (self.logits or self.hidden or self.embedding or self.similarity):
            raise MethodError(
                "Distillation learns from the teacher's logits, hidden states or sentence embeddings: set logits, "
                "hidden, embedding or similarity."
            )

    @classmethod
    def from_flags(cls, values: Mapping[str, Any]) -> Distillation | None:
        """From a mapping with the names in `FLAGS`, None where one was not given; None if it asks for nothing."""
        given = {name: values[name] for name in FLAGS if values.get(name) is not None}
        if any(given.get(name) for name in DISTANCES):
            return cls(**{FLAGS[name]: value for name, value in given.items()})
        for name, default in (("distill_noise", 0.0), ("label_weight", 1.0)):
            if given.get(name, default) != default:
                raise MethodError(f"{name} is for distillation: set distill_logits or distill_hidden too.")
        return None

    @property
    def flags(self) -> dict[str, float]:
        """As `from_flags` takes them."""
        return {flag: getattr(self, name) for flag, name in FLAGS.items()}

    @property
    def outputs_needed(self) -> dict[str, bool]:
        """Arguments with which model and teacher give what is compared."""
        return {"output_hidden_states": True} if self.hidden else {}

    def trains_head(self, dense_first: bool = False) -> bool:
        """Whether anything is learned about a task's answers, or of hidden states alone.

        Args:
            dense_first: Whether the teacher is what dense steps leave, which learn from the labels.
        """
        of_answers = self.logits or self.embedding or self.similarity
        return self.label_weight > 0 or of_answers > 0 or dense_first


OF_EMBEDDINGS = Distillation(embedding=10.0, similarity=10.0, hidden=1.0)
"""What a model that embeds sentences learns from, unless told otherwise."""


def flag_help(flag: str) -> str:
    """The help text of one of `FLAGS`."""
    (entry,) = (entry for entry in fields(Distillation) if entry.name == FLAGS[flag])
    return f"{entry.metadata['help']} (default: {entry.default:g})"
