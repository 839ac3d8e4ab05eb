"""The kinds of task: how examples become tensors, which head a model needs, how its answers are read and judged."""

from __future__ import annotations

from .base import SHOWN_EXAMPLES, SHOWN_TOKENS, EncodedDataset, Encoding, Kind
from .causal import CausalLanguage
from .choice import Choice
from .embedding import Embedding
from .masked import MaskedLanguage
from .sequences import Classification, Regression
from .tokens import Tokens

__all__ = ["KINDS", "SHOWN_EXAMPLES", "SHOWN_TOKENS", "EncodedDataset", "Encoding", "Kind"]

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Classification(),
        Regression(),
        Tokens(),
        Choice(),
        MaskedLanguage(),
        CausalLanguage(),
        Embedding(),
    )
}
