"""A model's embeddings of a dataset, computed once: what another model is to come near to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor
from tqdm.auto import tqdm

from ..modes import evaluating

FEW = 1000
"""Rows that are embedded without a bar."""


def embeddings_of(
    model: Any, data: Any, collate: Callable[[Sequence[Any]], Any], batch_size: int = 64, *, progress: bool = True
) -> numpy.ndarray[Any, Any]:
    """[rows, width] in float32, on the device that the model is on. Rows of like length go together."""
    rows = [{name: value for name, value in data[index].items() if name != "labels"} for index in range(len(data))]
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]["input_ids"]))
    device = next(model.parameters()).device
    found: Tensor | None = None
    starts = range(0, len(order), batch_size)
    with evaluating(model), torch.no_grad():
        for start in tqdm(
            starts, desc="embedding", disable=None if progress and len(rows) > FEW else True, leave=False
        ):
            chosen = order[start : start + batch_size]
            batch = collate([rows[row] for row in chosen])
            part = model(**{name: value.to(device) for name, value in batch.items()}).sentence_embedding.float().cpu()
            found = part.new_empty(len(rows), part.shape[1]) if found is None else found
            found[chosen] = part
    assert found is not None
    return found.numpy()


class Answered(torch.utils.data.Dataset[Any]):
    """Rows of a dataset with the embeddings that a model should give for them as labels."""

    def __init__(self, data: Any, answers: numpy.ndarray[Any, Any]) -> None:
        self.data, self.answers = data, answers

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.data[index], "labels": self.answers[index]}
