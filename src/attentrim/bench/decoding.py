"""Generation: the prompt in one forward pass, then token by token with the cache that it left."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .backends import place, rounded_products, with_attention
from .batches import Inputs, make_prompt
from .candidates import Pair, in_one_line
from .rivals import refuse_setting
from .rows import Row
from .timing import Turn, calls_per_repeat, clock_of, interleave, median_and_quartiles, paired_ratios
from .turns import Answer, Turns


@dataclass
class DecodingTurns(Turns):
    """Prompts and steps are timed apart: each candidate has two turns in a repeat."""

    new_tokens: int

    def measure(self, batch: int, length: int) -> list[Row]:
        own = self.candidates
        expected = {name: self._expected(name, batch, length) for name in own.models}
        rows: dict[Pair, Row] = {}
        turns: dict[tuple[Pair, str], Turn] = {}
        with rounded_products(own.dtype == "tf32"):
            for pair in own.decoding_pairs:
                rows[pair] = self._make_ready(pair, batch, length, expected, turns)
                self.bar.update()
            self._describe(batch, length, f"{len(turns)} in turn, generating")
            seconds = interleave(list(turns.values()), self.repeats, clock_of(own.device), self.bar.update)
        times = dict(zip(turns, seconds, strict=True))
        return [self._timed(row, pair, times) for pair, row in rows.items()]

    def _make_ready(
        self,
        pair: Pair,
        batch: int,
        length: int,
        expected: dict[str, Answer],
        turns: dict[tuple[Pair, str], Turn],
    ) -> Row:
        own, (backend, name) = self.candidates, pair
        self._describe(batch, length, f"{backend} of {name}, generating")
        row = Row(batch, length, own.dtype, own.device, backend, name, own.parameters(name))
        row = replace(row, new_tokens=self.new_tokens)
        try:
            refuse_setting(name, own.device, own.dtype)
            prompt, steps, found = self._calls(own.placed[name], backend, name, batch, length)
            clock = clock_of(own.device)
            row = self._compared(row, found, expected[name])
            turns[pair, "prompt"] = (prompt, calls_per_repeat(prompt, clock, own.device))
            turns[pair, "steps"] = (steps, calls_per_repeat(steps, clock, own.device))
        except Exception as error:
            row = replace(row, remark=in_one_line(error))
        return row

    def _calls(
        self, model: Any, backend: str, name: str, batch: int, length: int
    ) -> tuple[Callable[[], Tensor], Callable[[], Tensor], Tensor]:
        """What takes in the prompt, what decodes after it, both warm; and the answer at the prompt's end."""
        inputs = self._inputs(name, batch, length, self.candidates.weights)
        decoder = Decoder(with_attention(model, backend), inputs, self.new_tokens)
        logits, cache = decoder.prompt()
        steps = partial(decoder.steps, logits, cache)
        steps()
        return lambda: decoder.prompt()[0], steps, logits.clone()

    def _expected(self, name: str, batch: int, length: int) -> Answer:
        own = self.candidates
        model = with_attention(place(own.models[name], own.device, torch.float32), "eager")
        inputs = self._inputs(name, batch, length, torch.float32)
        return inputs, Decoder(model, inputs, 0).prompt()[0]

    def _inputs(self, name: str, batch: int, length: int, dtype: torch.dtype) -> Inputs:
        return make_prompt(self.candidates.source(name), batch, length, self.padding, self.candidates.device)

    def _timed(self, row: Row, pair: Pair, times: dict[tuple[Pair, str], list[float]]) -> Row:
        if (pair, "steps") not in times:
            return row
        prompt, steps = times[pair, "prompt"], [seconds / self.new_tokens for seconds in times[pair, "steps"]]
        step, quartiles = median_and_quartiles(steps)
        reference = self.candidates.reference(pair[0])
        if (reference, "steps") in times:
            speedup, spread = median_and_quartiles(paired_ratios(times[reference, "steps"], times[pair, "steps"]))
            row = replace(
                row,
                speedup=speedup,
                speedup_quartiles=spread,
                prefill_speedup=median_and_quartiles(paired_ratios(times[reference, "prompt"], prompt))[0],
                reference_backend=reference[0],
            )
        return replace(
            row,
            milliseconds_median=1e3 * step,
            milliseconds_quartiles=(1e3 * quartiles[0], 1e3 * quartiles[1]),
            prefill_milliseconds=1e3 * median_and_quartiles(prompt)[0],
            tokens_per_second=row.batch / step,
        )


class Decoder:
    """Greedy decoding after one prompt, as often as is wanted."""

    def __init__(self, model: Any, inputs: Inputs, new_tokens: int) -> None:
        self.model, self.inputs, self.new_tokens = model, inputs, new_tokens
        self.seq2seq = bool(model.config.is_encoder_decoder)
        mask = inputs["attention_mask"]
        self.mask = torch.cat([mask, mask.new_ones(len(mask), 0 if self.seq2seq else new_tokens)], 1)
        self.positions = (self.mask.cumsum(1) - 1).clamp(min=0)
        self.accepted = inspect.signature(type(model).forward).parameters
        self.encoded: Any = None

    def prompt(self) -> tuple[Tensor, Any]:
        """The answer at the end of the prompt, [batch, 1, vocabulary], and the cache."""
        if self.seq2seq:
            self.encoded = self.model.get_encoder()(**{**self.inputs, "return_dict": True})
            start = self.model.config.decoder_start_token_id or 0
            return self._run(torch.full_like(self.mask[:, :1], start), None, self.mask.shape[1])
        return self._run(self.inputs["input_ids"], None, self.mask.shape[1] - self.new_tokens)

    def steps(self, logits: Tensor, cache: Any) -> Tensor:
        """The tokens that were decoded one after the other; the cache that is handed in stays as it is."""
        cache, length = twin_of_cache(cache), self.mask.shape[1] - (0 if self.seq2seq else self.new_tokens)
        tokens = []
        for step in range(1, self.new_tokens + 1):
            tokens.append(logits.argmax(-1))
            logits, cache = self._run(tokens[-1], cache, length + step)
        return torch.cat(tokens, 1)

    def _run(self, tokens: Tensor, cache: Any, length: int) -> tuple[Tensor, Any]:
        settings: dict[str, Any] = {"attention_mask": self.mask[:, :length], "past_key_values": cache}
        if "logits_to_keep" in self.accepted:
            settings["logits_to_keep"] = 1  # as `generate` asks for
        if self.seq2seq:
            settings |= {"decoder_input_ids": tokens, "encoder_outputs": self.encoded}
        else:
            settings["input_ids"] = tokens
            if "position_ids" in self.accepted:
                settings["position_ids"] = self.positions[:, length - tokens.shape[1] : length]
        output = self.model(**settings, use_cache=True)
        return output.logits[:, -1:], output.past_key_values


def twin_of_cache(cache: Any) -> Any:
    """A cache of its own that holds the same tensors: dynamic caches grow by making new ones."""
    twin = copy.copy(cache)
    if hasattr(cache, "self_attention_cache"):
        twin.self_attention_cache = twin_of_cache(cache.self_attention_cache)
        twin.cross_attention_cache = twin_of_cache(cache.cross_attention_cache)
        twin.is_updated = dict(cache.is_updated)
    else:
        twin.layers = [copy.copy(layer) for layer in cache.layers]
    return twin
