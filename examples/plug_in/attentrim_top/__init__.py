from dataclasses import dataclass
from typing import ClassVar

from attentrim.methods.base import ScoringMethod
from attentrim.options import option


@dataclass(kw_only=True)
class TopHeads(ScoringMethod):
    """Close the heads of the last layers, then fine-tune without them."""

    name: ClassVar[str] = "top-heads"
    summary: ClassVar[str] = "heads of the last layers, from the top down"
    chosen_by: ClassVar[str] = "that are nearest to the output"
    from_top: bool = option(True, "from the last layer down; false: from the first layer up")

    def session(self, model, **surroundings):
        from .session import TopSession

        return TopSession(self, model, **surroundings)
