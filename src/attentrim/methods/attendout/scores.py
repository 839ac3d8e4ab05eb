"""How well a network does on a batch, sample by sample: minus its loss, or the share of right answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...distillation import IGNORED, OF_EMBEDDINGS
from ...distillation.embeddings import by_text
from ...errors import MethodError

CLOSE = 1e-2
"""How close the losses computed here must be to the model's own to be used."""


@torch.no_grad()
def scores(model: Any, batch: Mapping[str, Any], reward: str) -> Tensor:
    """[samples], higher is better. The model must be in eval mode."""
    return -sample_losses(model, batch) if reward == "loss" else correctness(model, batch)


def scores_of(model: Any, batches: Sequence[Mapping[str, Any]], reward: str) -> list[Tensor]:
    """The scores of each batch, [samples]; batches of the same shape go through the model together."""
    alike: dict[Any, list[int]] = {}
    for place, batch in enumerate(batches):
        shapes = [(name, value.shape[1:] if isinstance(value, Tensor) else value) for name, value in batch.items()]
        alike.setdefault(repr(shapes), []).append(place)
    found: dict[int, Tensor] = {}
    for places in alike.values():
        group = [batches[place] for place in places]
        sizes = [batch_size(batch) for batch in group]
        whole = {
            name: torch.cat([batch[name] for batch in group]) if is_batched(value, sizes[0]) else value
            for name, value in group[0].items()
        }
        found.update(zip(places, scores(model, whole, reward).split(sizes), strict=True))
    return [found[place] for place in range(len(batches))]


def sample_losses(model: Any, batch: Mapping[str, Any]) -> Tensor:
    """The loss of each sample, [batch]: from the logits where these explain the model's loss, else one at a time."""
    outputs = model(**batch)
    found = _explain(outputs, batch)
    if found is not None:
        return found.losses
    if outputs.get("loss") is None:
        raise MethodError(
            "Rewards are differences of a loss, and these batches have no labels: set reward_source to train_split."
        )
    if outputs.get("sentence_embedding") is not None:
        weights = OF_EMBEDDINGS
        return by_text(outputs["sentence_embedding"], batch["labels"], weights.embedding, weights.similarity)
    return torch.stack([model(**row)["loss"].float() for row in _rows(batch)])


def correctness(model: Any, batch: Mapping[str, Any]) -> Tensor:
    """The share of each sample's labels that the model gets right, [batch]."""
    found = _explain(model(**batch), batch)
    if found is None or found.labels.is_floating_point():
        raise MethodError("Rewards by correctness need one class per label; for other tasks leave reward at 'loss'.")
    right = (found.logits.argmax(-1) == found.labels).reshape(len(found.labels), -1)
    return right.sum(1) / found.counts.clamp(min=1)


class _Explained(NamedTuple):
    """Logits and labels that belong together, each sample's loss, and how many labels it has."""

    logits: Tensor
    labels: Tensor
    losses: Tensor
    counts: Tensor


def _explain(outputs: Any, batch: Mapping[str, Any]) -> _Explained | None:
    """Logits and labels that give the model's loss, if it is one of the common losses: that is checked."""
    logits, labels = outputs.get("logits"), batch.get("labels")
    if "start_logits" in outputs and "start_positions" in batch:
        logits = torch.stack([outputs["start_logits"], outputs["end_logits"]], 1)
        labels = torch.stack([batch["start_positions"], batch["end_positions"]], 1)
    if not isinstance(logits, Tensor) or not isinstance(labels, Tensor):
        return None
    logits = logits.float()
    candidates = (
        [_regression(logits, labels)]
        if labels.is_floating_point()
        else [
            _classes(logits, labels),
            _classes(logits[:, :-1], labels[:, 1:]) if labels.dim() > 1 else None,  # next-token prediction
        ]
    )
    for found in candidates:
        if found is not None:
            mean = (found.losses * found.counts).sum() / found.counts.sum().clamp(min=1)
            if torch.isclose(mean, outputs["loss"].float(), rtol=CLOSE, atol=CLOSE):
                return found
    return None


def _regression(logits: Tensor, labels: Tensor) -> _Explained | None:
    if labels.numel() != logits.numel():
        return None
    losses = (logits.reshape(labels.shape) - labels).square().reshape(len(labels), -1).mean(1)
    return _Explained(logits, labels, losses, torch.ones_like(losses))


def _classes(logits: Tensor, labels: Tensor) -> _Explained | None:
    if labels.shape != logits.shape[:-1]:
        return None
    losses = nn.functional.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), reduction="none", ignore_index=IGNORED
    )
    counts = (labels != IGNORED).reshape(len(labels), -1).sum(1)
    return _Explained(logits, labels, losses.reshape(len(labels), -1).sum(1) / counts.clamp(min=1), counts)


def _rows(batch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The samples of a batch, one by one."""
    return [by_sample(batch, itemgetter(slice(row, row + 1))) for row in range(batch_size(batch))]


def first_samples(batch: Mapping[str, Any], samples: int) -> dict[str, Any]:
    """The first `samples` samples of a batch."""
    return by_sample(batch, lambda value: value[:samples])


def by_sample(batch: Mapping[str, Any], change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """A batch in which every tensor that has one row per sample is changed."""
    size = batch_size(batch)
    return {name: change(value) if is_batched(value, size) else value for name, value in batch.items()}


def batch_size(batch: Mapping[str, Any]) -> int:
    return next(len(value) for value in batch.values() if isinstance(value, Tensor) and value.dim())


def is_batched(value: Any, size: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and len(value) == size


def check_correctness(model: Any) -> None:
    """Refuse tasks without right and wrong answers before training starts."""
    config = model.config
    regression = getattr(config, "num_labels", None) == 1 and "Classification" in type(model).__name__
    if regression or getattr(config, "problem_type", None) in ("regression", "multi_label_classification"):
        raise MethodError("Rewards by correctness need one class per label; for regression leave reward at 'loss'.")
