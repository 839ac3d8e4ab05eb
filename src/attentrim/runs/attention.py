"""The attention of a few sentences at several moments of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from ..atomic import replacing
from ..control import Control
from ..modes import evaluating

if TYPE_CHECKING:
    from ..methods.session import Session


class AttentionLog:
    """Records attention now, and writes all of it to one file at the end."""

    def __init__(self, tokenizer: Any, batches: Sequence[Mapping[str, Any]], texts: Sequence[str] = ()) -> None:
        """`batches` hold one example each; `texts` are the examples as people wrote them."""
        self.tokenizer = tokenizer
        self.batches = batches
        self.texts = list(texts)
        self.tensors: dict[str, torch.Tensor] = {}
        self.tokens: list[list[str]] = []

    @torch.no_grad()
    def take(self, model: Any, moment: str, session: Session | None = None) -> None:
        """Record each site's attention [heads, query, key]; sites without heads have none."""
        with evaluating(model), nullcontext(session.control) if session else Control(model) as control:
            self.tokens = []
            for number, batch in enumerate(self.batches):
                ids = batch["input_ids"].flatten(0, -2)[0]  # the first of several choices
                self.tokens.append([self._text(token) for token in ids.tolist()])
                with control.recording() as maps:
                    model(**{name: value.to(model.device) for name, value in batch.items()})
                for index, calls in maps.items():
                    name = f"{moment}.{number}.{index}"
                    self.tensors[name] = torch.stack(calls).mean(0)[0].half().cpu().contiguous()

    def _text(self, token: int) -> str:
        """As people write it, where tokenizers have signs of their own for spaces and for bytes."""
        text = self.tokenizer.decode([token], clean_up_tokenization_spaces=False).strip()
        return text or str(self.tokenizer.convert_ids_to_tokens(token))

    def write(self, path: Path) -> None:
        """Tensors are named moment.sentence.site; tokens and texts are in the file's metadata."""
        words = {"tokens": self.tokens, "texts": self.texts}
        metadata = {name: json.dumps(value, ensure_ascii=False) for name, value in words.items()}
        with replacing(path) as scratch:
            save_file(self.tensors, scratch, metadata=metadata)
