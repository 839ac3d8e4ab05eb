"""Causal language modelling: predict each token of a running text from those before it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import TaskError
from ..examples import Example
from .base import SHOWN_EXAMPLES, SHOWN_TOKENS, EncodedDataset, Encoding, Kind
from .masked import IGNORED

PIECE = 10_000_000
"""Characters that are tokenised at a time, up to the end of a line."""


class CausalLanguage(Kind):
    name = "clm"
    head = "ForCausalLM"
    default_metrics = ("perplexity", "word_perplexity")
    predicts = False
    packs = True
    max_length = 512
    most_rows = 8

    def fits(self, architectures: Sequence[str] | None) -> bool:
        """GPT-2's class has an older name."""
        return any(name.endswith((self.head, "LMHeadModel")) for name in architectures or ())

    def refusal(self, config: Any) -> str:
        """An encoder would see the token that it is to predict."""
        import transformers

        masked = type(config) in transformers.AutoModelForMaskedLM._model_mapping
        if masked and not getattr(config, "is_decoder", False):
            return (
                f"a {config.model_type} model sees later tokens too: causal language modelling needs a decoder, such "
                "as "
                "gpt2 or llama (for this one use --task mlm)"
            )
        return super().refusal(config)

    def model_settings(self, labels: Sequence[str]) -> dict[str, Any]:
        return {}

    def encode(self, examples: Sequence[Example], encoding: Encoding) -> EncodedDataset:
        """All texts as one, in blocks of `max_length` tokens; the last one may be shorter.

        Each token but the first of all is predicted once: a block begins with the token that the tokenizer puts in
        front of texts or, where it puts none there, with the last token of the block before.
        """
        import numpy

        tokenizer = encoding.tokenizer
        if not tokenizer.is_fast:
            raise TaskError("Packing a text needs a fast tokenizer; this model has a slow one.")
        text = running_text(examples)
        ids, starts, ends = _tokens(text, tokenizer)
        first = _first_token(tokenizer)
        if len(ids) < (1 if first else 2):
            raise TaskError("There is no text: all rows are blank." if not text.strip() else "The text is one token.")
        step = encoding.max_length - 1
        cuts = range(0, len(ids) if first else len(ids) - 1, step)
        rows = [
            first + ids[cut : cut + step].tolist() if first else ids[cut : cut + step + 1].tolist() for cut in cuts
        ]
        last = [min(cut + step - bool(first), len(ids) - 1) for cut in cuts]
        begun = numpy.searchsorted([word.start() for word in re.finditer(r"\S+", text)], ends[last])
        columns = {"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]}
        labels = [[IGNORED, *row[1:]] for row in rows]
        shown = [
            text[starts[cut] : ends[min(end, cut + SHOWN_TOKENS - 1)]] for cut, end in zip(cuts, last, strict=True)
        ]
        words = numpy.diff(begun, prepend=0).tolist()
        return EncodedDataset(columns, labels, 0, len(rows), texts=shown[:SHOWN_EXAMPLES], words=words)

    def collator(self, tokenizer: Any) -> Any:
        from transformers import DataCollatorForTokenClassification

        return DataCollatorForTokenClassification(tokenizer)

    def reduce(self, logits: Any, labels: Any) -> Any:
        """Of each token: its negative log-likelihood. One sequence at a time, since each has much to sum over."""
        import torch

        scores, losses = super().reduce(logits, labels), torch.zeros(labels.shape, device=labels.device)
        for row, (own, wanted) in enumerate(zip(scores, labels, strict=True)):
            losses[row, 1:] = torch.nn.functional.cross_entropy(
                own[:-1].float(), wanted[1:], ignore_index=IGNORED, reduction="none"
            )
        return losses

    def judge(
        self, metrics: Sequence[str], outputs: Any, truth: Any, data: EncodedDataset, labels: Sequence[str]
    ) -> dict[str, float]:
        """By the word only where it is known how many words there are: of `data`, and of no other set."""
        losses = outputs[truth != IGNORED].astype(float)
        values = {"perplexity": _exp(losses.mean())}
        if data.words is not None and len(outputs) == len(data):
            values["word_perplexity"] = _exp(losses.sum() / max(1, sum(data.words)))
        return {name: values[name] for name in metrics if name in values}


def _exp(loss: float) -> float:
    return math.exp(min(loss, 700.0))


def running_text(examples: Sequence[Example]) -> str:
    """The texts one after the other, each on lines of its own."""
    texts = (str(example.text) for example in examples)
    return "".join(text if text.endswith("\n") else f"{text}\n" for text in texts)


def _tokens(text: str, tokenizer: Any) -> tuple[Any, Any, Any]:
    """Token ids, and where in the text each begins and ends."""
    import numpy
    from tqdm import tqdm

    found: list[tuple[Any, Any]] = []
    with tqdm(total=len(text), desc="tokenising", disable=None if len(text) > PIECE else True, leave=False) as bar:
        for start, piece in _pieces(text):
            encoded = tokenizer(piece, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            places = numpy.array(encoded["offset_mapping"], dtype=numpy.int64).reshape(-1, 2) + start
            found.append((numpy.array(encoded["input_ids"], dtype=numpy.int64), places))
            bar.update(len(piece))
    ids = numpy.concatenate([part for part, _ in found])
    places = numpy.concatenate([part for _, part in found])
    return ids, places[:, 0], numpy.maximum.accumulate(places[:, 1])


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """(where it begins, a part of the text that ends with a line)"""
    start = 0
    while start < len(text):
        end = text.find("\n", start + PIECE - 1) + 1 or len(text)
        yield start, text[start:end]
        start = end


def _first_token(tokenizer: Any) -> list[int]:
    """What the tokenizer puts in front of a text: one token, or none."""
    found = tokenizer("a")["input_ids"]
    return found[:1] if found and found[0] == tokenizer.bos_token_id else []
