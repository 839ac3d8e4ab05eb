"""Task heads of trained models: whether they fit a task, and the order of their classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import TaskError
from ..tasks import Task
from .remarks import Say


def check_head(task: Task, config: Any, name: str) -> None:
    """Otherwise a fresh, random head would silently be evaluated or distilled from."""
    heads = config.architectures or []
    if not task.kind.fits(heads):
        saved = heads[0] if heads else "a bare model"
        raise TaskError(f"{name} has no head for {task.kind.name} (it is {saved}): train it on {task.name} first.")


def as_trained(task: Task, config: Any, name: str, say: Say) -> Task:
    """The task, if the model was trained for it."""
    check_head(task, config, name)
    if not task.kind.classes:
        return task
    known = class_names(config)
    if task.labels is None:
        return task.with_labels(known)
    if len(known) != len(task.labels):
        raise TaskError(f"{name} has {len(known)} classes; {task.name} has {len(task.labels)}.")
    if not _same_classes(known, task.labels) and not all(label.startswith("LABEL_") for label in known):
        say(f"{name} calls its classes {', '.join(known)}; they are taken for {', '.join(task.labels)}, in this order")
    return task


def class_names(config: Any) -> list[str]:
    return [str(config.id2label[index]) for index in sorted(config.id2label)]


def put_in_order(model: Any, known: Sequence[str], labels: Sequence[str], name: str) -> None:
    """Turn the head of a model that knows the same classes in another order."""
    folded, wanted = [label.casefold() for label in known], [label.casefold() for label in labels]
    if folded == wanted or not _same_classes(known, labels):
        return
    order = [folded.index(label) for label in wanted]
    heads = [
        module
        for module in model.modules()
        if isinstance(module, torch.nn.Linear) and module.out_features == len(known)
    ]
    if len(heads) != 1:
        raise TaskError(f"{name} has its classes in another order ({', '.join(known)}), and its head was not found.")
    with torch.no_grad():
        for parameter in heads[0].parameters():
            parameter.copy_(parameter[order].clone())
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {label: index for index, label in enumerate(labels)}


def _same_classes(known: Sequence[str], labels: Sequence[str]) -> bool:
    return sorted(name.casefold() for name in known) == sorted(name.casefold() for name in labels)
