"""A few examples to look at beside the training: of the training data, or kept out of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, Subset

from .noise import disturbed


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
            batch = dict(self._collate([self.data[row] for row in rows[start : start + size]]))
            if self.noise:
                special = getattr(self.trainer.processing_class, "all_special_ids", ())
                batch = disturbed(batch, self.noise, special, self.random)
            batches.append(dict(self.trainer._prepare_inputs(batch)))
        return batches

    def state(self) -> Tensor:
        """Where its random numbers stand."""
        return self.random.get_state()

    def go_to(self, state: Tensor) -> None:
        self.random.set_state(state)
