"""One shape: every candidate is made ready and compared with its model, then all are timed in turn."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .backends import Call, UnavailableError, place, plain_call, prepare, rounded_products, with_attention
from .batches import Inputs, largest_difference, make_batch
from .candidates import Candidates, Pair, in_one_line
from .rivals import refuse_setting
from .rows import Row
from .timing import Turn, calls_per_repeat, clock_of, interleave, median_and_quartiles, paired_ratios

WARM_UP_CALLS = 3
Answer = tuple[Inputs, Tensor]
"""Inputs, and the first output of a model on them."""


@dataclass
class Turns:
    candidates: Candidates
    repeats: int
    padding: float
    folder: Path
    """For ONNX files."""
    bar: Any

    def measure(self, batch: int, length: int) -> list[Row]:
        expected = {name: self._expected(name, batch, length) for name in self.candidates.models}
        with rounded_products(self.candidates.dtype == "tf32"):
            rows, turns = self._prepare(batch, length, expected)
            self._time(rows, turns, batch, length)
        return list(rows.values())

    def _prepare(
        self, batch: int, length: int, expected: dict[str, Answer]
    ) -> tuple[dict[Pair, Row], dict[Pair, Turn]]:
        """A row for each candidate, and a turn for each that can be timed."""
        own = self.candidates
        clock = clock_of(own.device)
        rows: dict[Pair, Row] = {}
        turns: dict[Pair, Turn] = {}
        for backend, name in own.pairs:
            self._describe(batch, length, f"{backend} of {name}")
            row = Row(batch, length, own.dtype, own.device, backend, name, own.parameters(name))
            try:
                call, found = self._ready(backend, name, batch, length)
                turns[backend, name] = (call, calls_per_repeat(call, clock, own.device))
                rows[backend, name] = self._compared(row, found, expected.get(name, expected[own.dense]))
            except Exception as error:
                rows[backend, name] = replace(row, remark=in_one_line(error))
            self.bar.update()
        return rows, turns

    def _time(self, rows: dict[Pair, Row], turns: dict[Pair, Turn], batch: int, length: int) -> None:
        own = self.candidates
        self._describe(batch, length, f"{len(turns)} in turn")
        times = interleave(list(turns.values()), self.repeats, clock_of(own.device), self.bar.update)
        seconds = dict(zip(turns, times, strict=True))
        has_tokens = own.models[own.dense].main_input_name != "pixel_values"
        flops = own.flops(batch, length)
        for (backend, name), taken in seconds.items():
            reference = own.reference(backend)
            row = _timed(rows[backend, name], taken, seconds.get(reference), has_tokens)
            rows[backend, name] = replace(
                row,
                flop_ratio=flops[own.dense] / flops[name],
                reference_backend=reference[0] if reference in seconds else None,
            )

    def _ready(self, backend: str, name: str, batch: int, length: int) -> tuple[Call, Tensor]:
        """A warm call, and its first output."""
        own = self.candidates
        if name in own.refused:
            raise UnavailableError(own.refused[name])
        refuse_setting(name, own.device, own.dtype)
        inputs = self._inputs(name, batch, length, own.weights)
        model = own.placed[name]
        call = plain_call(model, inputs) if name in own.made else prepare(model, backend, inputs, self.folder / name)
        output = call().clone()
        for _ in range(WARM_UP_CALLS - 1):
            call()
        return call, output

    def _expected(self, name: str, batch: int, length: int) -> Answer:
        """The model's output in eager float32."""
        own = self.candidates
        model = with_attention(place(own.models[name], own.device, torch.float32), "eager")
        inputs = self._inputs(name, batch, length, torch.float32)
        return inputs, model(**inputs)[0]

    def _inputs(self, name: str, batch: int, length: int, dtype: torch.dtype) -> Inputs:
        return make_batch(self.candidates.source(name), batch, length, self.padding, self.candidates.device, dtype)

    def _compared(self, row: Row, found: Tensor, expected: Answer) -> Row:
        inputs, output = expected
        difference = largest_difference(self.candidates.source(row.name), inputs, found, output)
        if not math.isfinite(difference):
            return replace(row, remark="its outputs are not finite numbers")
        return replace(row, max_abs_difference=difference)

    def _describe(self, batch: int, length: int, what: str) -> None:
        self.bar.set_description(f"{self.candidates.device} {self.candidates.dtype} {batch}x{length}: {what}")


def _timed(row: Row, taken: list[float], reference: list[float] | None, has_tokens: bool) -> Row:
    median, quartiles = median_and_quartiles(taken)
    speedup, spread = (None, None) if reference is None else median_and_quartiles(paired_ratios(reference, taken))
    return replace(
        row,
        milliseconds_median=1e3 * median,
        milliseconds_quartiles=(1e3 * quartiles[0], 1e3 * quartiles[1]),
        speedup=speedup,
        speedup_quartiles=spread,
        sequences_per_second=row.batch / median,
        tokens_per_second=row.batch * row.length / median if has_tokens else None,
    )
