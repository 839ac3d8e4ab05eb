"""A Trainer that evaluates in the order of the data."""

from __future__ import annotations

from typing import Any

import transformers
from torch.utils.data import SequentialSampler
from transformers.trainer_pt_utils import LengthGroupedSampler


class OrderedTrainer(transformers.Trainer):
    """The stock Trainer shuffles evaluation data too, where training groups by length; here the order stays."""

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        sampler = super()._get_eval_sampler(eval_dataset)
        return SequentialSampler(eval_dataset) if isinstance(sampler, LengthGroupedSampler) else sampler
