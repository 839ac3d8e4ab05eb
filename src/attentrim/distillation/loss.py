"""The loss of a model that has a teacher, and how far its outputs are from the teacher's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import MethodError
from ..noise import corrupted
from . import IGNORED, Distillation
from .embeddings import between_embeddings

LEAST = 1e-6
"""Of a teacher's squares, so that nothing is divided by zero."""
MANY, AT_A_TIME = 2**24, 2**22
"""Logits beyond which their distance is computed in parts, and how many a part has."""


def loss_with_teacher(
    distillation: Distillation,
    label_loss: Tensor | None,
    output: Any,
    *,
    model: nn.Module,
    teacher: nn.Module,
    inputs: Mapping[str, Any],
    special_ids: Sequence[int] = (),
    batches: int = 1,
    removed_layers: Collection[int] = (),
) -> Tensor:
    """The labels' loss times its weight, plus the distance to the teacher.

    Args:
        label_loss: Of the labels, on the batch as it is; None without labels.
        output: What the model gave for the batch, with `outputs_needed`.
        special_ids: Tokens that stay where inputs are corrupted.
        batches: How many batches of a step the label loss is a share of; the distance is divided by it.
        removed_layers: Those that the model skips now.
    """
    needed = distillation.outputs_needed
    if distillation.noise:
        inputs = corrupted(inputs, distillation.noise, special_ids)
        output = model(**inputs, **needed)
    with torch.no_grad():
        # labels too: an encoder-decoder makes its decoder's inputs from them
        teacher_output = teacher(**inputs, **needed)
    distance = distillation_loss(
        output,
        teacher_output,
        inputs,
        logits=distillation.logits,
        hidden=distillation.hidden,
        embedding=distillation.embedding,
        similarity=distillation.similarity,
        temperature=distillation.temperature,
        removed_layers=removed_layers,
    )
    distance = distance if batches == 1 else distance / batches
    return distance if label_loss is None else distillation.label_weight * label_loss + distance


def distillation_loss(
    student: Any,
    teacher: Any,
    batch: Mapping[str, Any],
    *,
    logits: float = 1.0,
    hidden: float = 0.0,
    embedding: float = 0.0,
    similarity: float = 0.0,
    temperature: float = 2.0,
    removed_layers: Collection[int] = (),
) -> Tensor:
    """The weighted sum of the distances between two outputs of the same batch.

    Logits: KL divergence at a temperature (times its square), or squared error where there is one output; at positions
    with a label where every token has one. Hidden states: squared error as a share of the teacher's own squares, over
    valid tokens, the mean over layers; so 1 is as far as from nothing, whatever the scale of a model's states.
    Embedding and similarity: of sentence embeddings and of the cosines between them (`between_embeddings`).

    Args:
        removed_layers: Layers that the student skips, numbered as in plans (an encoder's before a decoder's). Its
            states before and after such a layer are the same and cannot match the teacher's at both places: only the
            state behind a run of skipped layers is compared, so that the layer before the run learns their work too.
    """
    parts: list[Tensor] = []
    if logits:
        names = [name for name in student if "logits" in name]
        if not names or any(name not in teacher or teacher[name].shape != student[name].shape for name in names):
            raise MethodError("Distillation of logits needs a model and a teacher whose logits have the same shape.")
        by_name = [_between_logits(student[name], teacher[name], batch, temperature) for name in names]
        parts.append(logits * torch.stack(by_name).mean())
    if embedding or similarity:
        own, goal = (output.get("sentence_embedding") for output in (student, teacher))
        if own is None or goal is None:
            raise MethodError("Distillation of embeddings needs a model and a teacher that embed sentences.")
        parts.append(between_embeddings(own, goal, embedding, similarity))
    if hidden:
        mine, theirs = (_states(output, removed_layers) for output in (student, teacher))
        if not mine or [state.shape for state in mine] != [state.shape for state in theirs]:
            raise MethodError("Distillation of hidden states needs a teacher with as many layers of the same width.")
        parts.append(hidden * _between_states(mine, theirs, batch))
    return torch.stack(parts).sum()


def _between_logits(student: Tensor, teacher: Tensor, batch: Mapping[str, Any], temperature: float) -> Tensor:
    labels = batch.get("labels")
    judged = None if labels is None or labels.shape != student.shape[:-1] else labels != IGNORED
    if judged is None and student.dim() == 3:
        judged = _mask(student, batch)
    if student.numel() > MANY and student.shape[-1] > 1:
        rows = torch.arange(student[..., 0].numel(), device=student.device)
        rows = rows if judged is None else rows[judged.flatten()]
        divergence: Any = _Divergence.apply
        total: Tensor = divergence(student.flatten(0, -2), teacher.flatten(0, -2), rows, temperature)
        return temperature**2 * total / len(rows)
    student, teacher = (part.float() if judged is None else part.float()[judged] for part in (student, teacher))
    if student.shape[-1] == 1:
        return nn.functional.mse_loss(student, teacher)
    mine, theirs = (torch.log_softmax(scores / temperature, dim=-1).flatten(0, -2) for scores in (student, teacher))
    return temperature**2 * nn.functional.kl_div(mine, theirs, log_target=True, reduction="batchmean")


class _Divergence(torch.autograd.Function):
    """The sum of the KL divergences of some rows, where a large vocabulary makes rows long.

    A few rows at a time, and their gradient with them: what softmax leaves of all rows for a backward would be several
    times the logits themselves.
    """

    @staticmethod
    def forward(ctx: Any, student: Tensor, teacher: Tensor, rows: Tensor, temperature: float) -> Tensor:
        total, gradient = torch.zeros((), device=student.device), torch.zeros_like(student)
        for some in rows.split(max(1, AT_A_TIME // student.shape[-1])):
            mine, theirs = (torch.log_softmax(part[some].float() / temperature, -1) for part in (student, teacher))
            share = theirs.exp()
            total += (share * (theirs - mine)).sum()
            gradient[some] = mine.exp_().sub_(share).div_(temperature).to(gradient.dtype)
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *above: Any) -> Any:
        (gradient,) = ctx.saved_tensors
        return gradient * above[0].to(gradient.dtype), None, None, None


def _between_states(student: Sequence[Tensor], teacher: Sequence[Tensor], batch: Mapping[str, Any]) -> Tensor:
    """The mean over all layers. Those of one shape go together: one by one they are many small operations."""
    shapes = [state.shape for state in student]
    shares = []
    for shape in dict.fromkeys(shapes):
        mine, theirs = (
            torch.stack([state for state in states if state.shape == shape]).float() for states in (student, teacher)
        )
        apart, whole, mask = mine - theirs, theirs, _mask(mine[0], batch)
        if mask is not None:
            apart, whole = (torch.where(mask[..., None], part, 0.0) for part in (apart, whole))
        apart, whole = (part.square().flatten(1).sum(1) for part in (apart, whole))
        shares.append(apart / whole.clamp(min=LEAST))
    return torch.cat(shares).mean()


def _states(output: Any, removed_layers: Collection[int]) -> list[Tensor]:
    """The hidden states of an output, those of both halves of an encoder-decoder, but for those before removed layers.

    A stack of n layers has n + 1 states: the one at place i goes into its layer i, and the last into none.
    """
    found: list[Tensor] = []
    first = 0
    for name in ("hidden_states", "encoder_hidden_states", "decoder_hidden_states"):
        states = output.get(name)
        if states:
            *inputs, last = states
            found += [state for layer, state in enumerate(inputs, first) if layer not in removed_layers]
            found.append(last)
            first += len(inputs)
    return found


def _mask(values: Tensor, batch: Mapping[str, Any]) -> Tensor | None:
    """The valid ones of [batch, tokens, width], where the batch's mask fits."""
    mask = batch.get("attention_mask")
    if mask is None or mask.dim() < 2:
        return None
    mask = mask.flatten(0, -2).bool()
    return mask if mask.shape == values.shape[:-1] else None
