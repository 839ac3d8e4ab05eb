"""A few training examples to look at beside the training."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import IterableDataset, Subset


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
