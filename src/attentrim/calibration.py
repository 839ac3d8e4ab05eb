"""Data that a method looks at beside the training: a few training examples, or a part kept out of training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, Subset, random_split

from .errors import MethodError
from .noise import corrupted


class Calibration:
    """The same few training examples of a Trainer, in batches, each time it is iterated."""

    def __init__(self, trainer: Any, samples: int) -> None:
        self.trainer = trainer
        self.samples = samples

    def __iter__(self) -> Iterator[dict[str, Any]]:
        data, batches = self.trainer.train_dataset, None
        if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
            batches = -(-self.samples // self.trainer.args.eval_batch_size)
        else:
            generator = torch.Generator().manual_seed(self.trainer.args.seed)
            data = Subset(data, torch.randperm(len(data), generator=generator)[: self.samples].tolist())
        for batch in islice(self.trainer.get_test_dataloader(data), batches):
            yield dict(self.trainer._prepare_inputs(batch))


class HeldOut:
    """Random examples of a dataset, in batches as a Trainer would make them, by random numbers of its own.

    Args:
        noise: The share of tokens to replace at random, where the data is trained on.
    """

    def __init__(self, trainer: Any, data: Any, noise: float = 0.0) -> None:
        self.trainer, self.data, self.noise = trainer, data, noise
        self.random = torch.Generator().manual_seed(trainer.args.seed + trainer.args.process_index)
        self._collate = trainer._get_collator_with_removed_columns(trainer.data_collator)

    def __len__(self) -> int:
        return len(self.data)

    def draw(self, count: int) -> list[dict[str, Any]]:
        """That many different examples."""
        rows = torch.randperm(len(self.data), generator=self.random)[:count].tolist()
        size = max(self.trainer.args.eval_batch_size, self.trainer.args.train_batch_size)
        batches = []
        for start in range(0, count, size):
            with torch.random.fork_rng(devices=[]):  # a collator may draw masks: training's are not to change
                batch = dict(self._collate([self.data[row] for row in rows[start : start + size]]))
            if self.noise:
                batch = corrupted(batch, self.noise, special_ids(self.trainer), self.random)
            batches.append(dict(self.trainer._prepare_inputs(batch)))
        return batches

    def state(self) -> Tensor:
        """Where its random numbers stand."""
        return self.random.get_state()

    def go_to(self, state: Tensor) -> None:
        self.random.set_state(state)


def special_ids(trainer: Any) -> tuple[int, ...]:
    """The special tokens of a Trainer's tokenizer, if it has one."""
    return tuple(getattr(trainer.processing_class, "all_special_ids", ()))


def hold_out(data: Any, share: float, seed: int, classes: int = 0) -> tuple[Any, Any]:
    """Split a dataset at random into (what to train on, what is held out).

    Args:
        classes: How many classes there are, where examples have one each: a rare one must not go missing unnoticed.
    """
    if not hasattr(data, "__len__"):
        raise MethodError("Holding out training data needs a dataset with a length.")
    rows = len(data)
    held = max(1, round(share * rows))
    if held >= rows:
        raise MethodError(f"Holding out {share:g} of {rows} training examples leaves none to train on.")
    train, holdout = _split(data, held, torch.Generator().manual_seed(seed))
    _check_classes(train, holdout, classes)
    return train, holdout


def _split(data: Any, held: int, generator: torch.Generator) -> tuple[Any, Any]:
    """Rows that are parts of one example (`data.groups`) stay together."""
    groups = getattr(data, "groups", None)
    if groups is None:
        train, holdout = random_split(data, [len(data) - held, held], generator)
        return train, holdout
    order = torch.randperm(max(groups) + 1, generator=generator).tolist()
    chosen = set(order[: max(1, round(held / len(data) * len(order)))])
    sides: tuple[list[int], list[int]] = ([], [])
    for row, group in enumerate(groups):
        sides[group in chosen].append(row)
    return Subset(data, sides[0]), Subset(data, sides[1])


def _check_classes(train: Any, holdout: Any, classes: int) -> None:
    """A random split can leave a rare class on one side only."""
    held, trained = set(_labels(holdout)), set()
    for label in _labels(train):
        trained.add(label)
        if held <= trained and len(trained) >= classes:
            break
    lost, unseen = sorted(held - trained), sorted(trained - held)
    if held and lost:
        raise MethodError(
            f"Holding out {len(holdout)} training examples leaves none of class {lost[0]} to train on: lower "
            "holdout_share, or use another seed."
        )
    if held and unseen:
        warnings.warn(
            f"None of the {len(holdout)} held-out training examples is of class {unseen[0]}, so what is judged on "
            "them ignores that class.",
            stacklevel=2,
        )


def _labels(data: Any) -> Iterator[int]:
    """The classes of examples that have one each; nothing for other data."""
    for row in data:
        label = row.get("labels", row.get("label")) if isinstance(row, Mapping) else None
        if isinstance(label, bool) or not isinstance(label, int):
            return
        yield label
