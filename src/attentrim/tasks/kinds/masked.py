"""Masked language modelling: predict hidden words from the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import TaskError
from ..examples import Example
from .base import EncodedDataset, Encoding, Kind, chunks, gather

IGNORED = -100
SHARE_MASKED, SHARE_REPLACED, SHARE_RANDOM = 0.15, 0.8, 0.1
"""Of the tokens; of those, how many the mask stands for, and how many another token."""
SEED = 0
"""Of the masks of data that models are compared on."""


class MaskedLanguage(Kind):
    name = "mlm"
    head = "ForMaskedLM"
    default_metrics = ("perplexity", "accuracy")
    predicts = False

    def fits(self, architectures: Sequence[str] | None) -> bool:
        """An encoder-decoder that fills masks, such as BART, has another name."""
        return any(name.endswith((self.head, "ForConditionalGeneration")) for name in architectures or ())

    def refusal(self, config: Any) -> str:
        import transformers

        found = super().refusal(config)
        causal = found and type(config) in transformers.AutoModelForCausalLM._model_mapping
        return f"{found}: it is a decoder: use --task clm" if causal else found

    def model_settings(self, labels: Sequence[str]) -> dict[str, Any]:
        return {}

    def encode(self, examples: Sequence[Example], encoding: Encoding) -> EncodedDataset:
        tokenizer = encoding.tokenizer
        if tokenizer.mask_token is None:
            raise TaskError("This model's tokenizer has no mask token: masked language modelling needs one.")
        examples = [example for example in examples if str(example.text).strip()]
        if not examples:
            raise TaskError("There is no text: all rows are blank.")
        parts, truncated = [], 0
        for part in chunks(examples):
            texts = [example.text for example in part]
            lengths = [len(ids) for ids in tokenizer(texts, verbose=False)["input_ids"]]
            truncated += sum(length > encoding.max_length for length in lengths)
            parts.append(dict(tokenizer(texts, truncation=True, max_length=encoding.max_length)))
        columns = gather(parts)
        labels = None
        if encoding.fixed:
            columns["input_ids"], labels = _masked_once(columns["input_ids"], tokenizer)
        return EncodedDataset(columns, labels, truncated, len(examples))

    def collator(self, tokenizer: Any) -> Any:
        return MaskingCollator(tokenizer)

    def reduce(self, logits: Any, labels: Any) -> Any:
        """Of each token: its negative log-likelihood, and whether it would have been guessed."""
        import torch

        scores = super().reduce(logits, labels).float()
        judged = labels.clamp(min=0)
        losses = torch.nn.functional.cross_entropy(scores.transpose(1, 2), judged, reduction="none")
        return torch.stack([losses, (scores.argmax(-1) == judged).float()], dim=-1)

    def score(self, metrics: Sequence[str], outputs: Any, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        loss, right = outputs[truth != IGNORED].astype(float).mean(0)
        values = {"perplexity": math.exp(min(loss, 700.0)), "accuracy": float(right)}
        return {name: values[name] for name in metrics}


def mask(ids: Any, tokenizer: Any, generator: Any = None) -> tuple[Any, Any]:
    """Token ids with some hidden, and labels that are IGNORED at all others. At least one token is hidden."""
    import torch

    special = torch.isin(ids, torch.tensor(sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})))
    chances = torch.rand(ids.shape, generator=generator).masked_fill(special, 2.0)
    chosen = chances < SHARE_MASKED
    if not chosen.any():
        chosen.view(-1)[chances.argmin()] = bool(chances.min() < 1)
    draw = torch.rand(ids.shape, generator=generator)
    others = torch.randint(len(tokenizer), ids.shape, generator=generator)
    hidden = torch.where(chosen & (draw < SHARE_REPLACED), tokenizer.mask_token_id, ids)
    swapped = chosen & (draw >= SHARE_REPLACED) & (draw < SHARE_REPLACED + SHARE_RANDOM)
    return torch.where(swapped, others, hidden), ids.masked_fill(~chosen, IGNORED)


def _masked_once(rows: Sequence[Sequence[int]], tokenizer: Any) -> tuple[list[Any], list[Any]]:
    import torch

    generator = torch.Generator().manual_seed(SEED)
    pairs = [mask(torch.tensor(row), tokenizer, generator) for row in rows]
    return [ids.tolist() for ids, _ in pairs], [labels.tolist() for _, labels in pairs]


@dataclass
class MaskingCollator:
    """Masks rows that are not masked yet, again in each batch."""

    tokenizer: Any

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        from transformers import DataCollatorForTokenClassification

        if "labels" in rows[0]:
            return dict(DataCollatorForTokenClassification(self.tokenizer)(rows))
        batch = dict(self.tokenizer.pad(rows, return_tensors="pt"))
        batch["input_ids"], batch["labels"] = mask(batch["input_ids"], self.tokenizer)
        return batch
