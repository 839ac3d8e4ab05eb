"""Time models, backends and rivals in turn: `measure` loops over settings, and each setting is one heat."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from ..cost import flops
from ..errors import AttentrimError
from ..sites import unwrap
from .backends import (
    Call,
    UnavailableError,
    has_sdpa,
    place,
    plain_call,
    prepare,
    rounded_products,
    with_attention,
)
from .batches import Inputs, largest_difference, make_batch
from .checks import check
from .rivals import make_rival, refuse_setting
from .rows import Row
from .timing import Clock, calls_a_repeat, clock_of, interleave, median_and_quartiles, paired_ratios

WARM_UP_CALLS = 3


def measure(
    model: Any,
    against: Any = None,
    *,
    shapes: Sequence[tuple[int, int]] = ((1, 128), (8, 128)),
    dtypes: Sequence[str] = ("float32",),
    devices: Sequence[str] = ("cpu",),
    backends: Sequence[str] = ("sdpa",),
    rivals: Sequence[str] = (),
    repeats: int = 15,
    padding: float = 0.125,
) -> list[Row]:
    """Time `model`, and the model to compare it with, at all `shapes` (batch, length), dtypes, devices and backends.

    Rivals are made from `against` (or else `model`) and run in the first of `backends` that is sdpa or eager. What
    cannot be measured gets a row with a remark. The models stay as they are.
    """
    models = {} if against is None else {"against": unwrap(against)}
    models["model"] = unwrap(model)
    check(models, shapes, dtypes, devices, backends, rivals, repeats, padding)
    contest = _Contest(models, backends, rivals, repeats, padding)
    heats = len(devices) * len(dtypes) * len(shapes)
    rows: list[Row] = []
    with contest.opened(heats), torch.inference_mode():
        for device, dtype in product(devices, dtypes):
            contest.move(device, dtype)
            for batch, length in shapes:
                rows += contest.heat(batch, length)
    return rows


@dataclass
class _Contest:
    models: dict[str, Any]
    backends: Sequence[str]
    rivals: Sequence[str]
    repeats: int
    padding: float
    made: dict[str, Any] = field(default_factory=dict)
    """Rivals, on the CPU."""
    refused: dict[str, str] = field(default_factory=dict)
    """Rivals that could not be made, and why."""

    @property
    def dense(self) -> str:
        """The model that rivals are made from and speed-ups refer to."""
        return next(iter(self.models))

    @property
    def plain(self) -> str:
        """The backend of the rivals: the first that is plain PyTorch, and that the model has."""
        plain = ("sdpa", "eager") if has_sdpa(self.models[self.dense]) else ("eager",)
        return next((backend for backend in self.backends if backend in plain), "sdpa")

    @property
    def entrants(self) -> list[tuple[str, str]]:
        """(backend, name), in the order of their turns."""
        return [*product(self.backends, self.models), *((self.plain, rival) for rival in self.rivals)]

    def reference(self, backend: str) -> tuple[str, str]:
        """Whom the speed-up of an entrant refers to."""
        return (backend, "against") if "against" in self.models else (self.backends[0], "model")

    @contextmanager
    def opened(self, heats: int) -> Iterator[None]:
        """Make the rivals, a folder for ONNX files and a bar."""
        total = len(self.rivals) + heats * (len(self.entrants) + self.repeats)
        with tempfile.TemporaryDirectory() as folder, tqdm(total=total, disable=None, leave=False) as self.bar:
            self.folder = Path(folder)
            for name in self.rivals:
                self.bar.set_description(f"making {name}")
                try:
                    self.made[name] = make_rival(name, self.models[self.dense], self.models["model"], self.plain)
                except Exception as error:
                    self.refused[name] = _reason(error)
                self.bar.update()
            yield

    def move(self, device: str, dtype: str) -> None:
        """All that is timed next runs on this device, in this dtype."""
        self.device, self.dtype = device, dtype
        self.placed = {name: place(model, device, self.weights) for name, model in self.models.items()}
        for name, rival in self.made.items():
            self.placed[name] = rival if name == "int8" else place(rival, device, self.weights)

    @property
    def weights(self) -> torch.dtype:
        return torch.float32 if self.dtype == "tf32" else getattr(torch, self.dtype)

    def heat(self, batch: int, length: int) -> list[Row]:
        """One shape: all contestants are made ready, then timed in turn."""
        clock = clock_of(self.device)
        wanted = {name: self._answer(name, batch, length) for name in self.models}
        with rounded_products(self.dtype == "tf32"):
            return self._compete(batch, length, clock, wanted)

    def _compete(self, batch: int, length: int, clock: Clock, wanted: dict[str, tuple[Inputs, Tensor]]) -> list[Row]:
        rows: dict[tuple[str, str], Row] = {}
        turns = {}
        for backend, name in self.entrants:
            self.bar.set_description(f"{self.device} {self.dtype} {batch}x{length}: {backend} of {name}")
            row = Row(batch, length, self.dtype, self.device, backend, name, self._parameters(name))
            try:
                call, found = self._ready(backend, name, batch, length)
                turns[backend, name] = (call, calls_a_repeat(call, clock, self.device))
                rows[backend, name] = self._compared(row, found, wanted.get(name, wanted[self.dense]))
            except Exception as error:
                rows[backend, name] = replace(row, remark=_reason(error))
            self.bar.update()
        self.bar.set_description(f"{self.device} {self.dtype} {batch}x{length}: {len(turns)} in turn")
        seconds = dict(zip(turns, interleave(list(turns.values()), self.repeats, clock, self.bar.update), strict=True))
        has_tokens = self.models[self.dense].main_input_name != "pixel_values"
        counted = {name: flops(model, batch, length) for name, model in self._countable().items()}
        for (backend, name), own in seconds.items():
            row = _timed(rows[backend, name], own, seconds.get(self.reference(backend)), has_tokens)
            ratio = counted[self.dense] / counted.get(name, counted[self.dense])
            rows[backend, name] = replace(row, flop_ratio=ratio)
        return list(rows.values())

    def _ready(self, backend: str, name: str, batch: int, length: int) -> tuple[Call, Tensor]:
        """A warm call, and its first answer."""
        if name in self.refused:
            raise UnavailableError(self.refused[name])
        refuse_setting(name, self.device, self.dtype)
        model = self.placed[name]
        inputs = self._inputs(name, batch, length, self.weights)
        call = plain_call(model, inputs) if name in self.made else prepare(model, backend, inputs, self.folder / name)
        answer = call().clone()
        for _ in range(WARM_UP_CALLS - 1):
            call()
        return call, answer

    def _answer(self, name: str, batch: int, length: int) -> tuple[Inputs, Tensor]:
        """What the model says in eager float32, and to what."""
        model = with_attention(place(self.models[name], self.device, torch.float32), "eager")
        inputs = self._inputs(name, batch, length, torch.float32)
        return inputs, model(**inputs)[0]

    def _inputs(self, name: str, batch: int, length: int, dtype: torch.dtype) -> Inputs:
        source = self.models.get(name, self.models[self.dense])
        return make_batch(source, batch, length, self.padding, self.device, dtype)

    def _compared(self, row: Row, found: Tensor, wanted: tuple[Inputs, Tensor]) -> Row:
        source = self.models.get(row.name, self.models[self.dense])
        difference = largest_difference(source, wanted[0], found, wanted[1])
        if not math.isfinite(difference):
            return replace(row, remark="its outputs are not finite numbers")
        return replace(row, max_abs_difference=difference)

    def _countable(self) -> dict[str, Any]:
        """Whose FLOPs are counted; int8 makes as many products as the dense model."""
        return {**self.models, **{name: rival for name, rival in self.made.items() if name != "int8"}}

    def _parameters(self, name: str) -> int | None:
        model = self._countable().get(name)
        model = self.models[self.dense] if name == "int8" else model
        return None if model is None else sum(parameter.numel() for parameter in model.parameters())


def _timed(row: Row, own: list[float], reference: list[float] | None, has_tokens: bool) -> Row:
    median, quartiles = median_and_quartiles(own)
    speedup, spread = (None, None) if reference is None else median_and_quartiles(paired_ratios(reference, own))
    return replace(
        row,
        milliseconds_median=1e3 * median,
        milliseconds_quartiles=(1e3 * quartiles[0], 1e3 * quartiles[1]),
        speedup=speedup,
        speedup_quartiles=spread,
        sequences_per_second=row.batch / median,
        tokens_per_second=row.batch * row.length / median if has_tokens else None,
    )


def _reason(error: Exception) -> str:
    """One line, without the name of our own errors, which explain themselves."""
    text = (str(error).strip().splitlines() or [""])[0]
    return text if isinstance(error, AttentrimError) else f"{type(error).__name__}: {text}"
