"""How much each block turns the residual stream: 1 - cosine(x, x + what the block adds to x)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...errors import MethodError, UnsupportedModelError
from ...modes import evaluating
from ..processes import average, processes

Key = tuple[str, int]
"""Kind of structure and place."""
ADDITIONS = ("add", "__add__", "__radd__", "add_", "__iadd__")


@torch.inference_mode(False)
@torch.no_grad()
def turns(
    model: Any, batches: Iterable[Mapping[str, Any]], blocks: Mapping[Key, Any], layers: Mapping[Key, Any]
) -> dict[Key, float]:
    """The mean over valid tokens, for places with an output projection (`blocks`) and for whole `layers`."""
    watch = _Watch([*blocks, *layers])
    handles = [place.output.register_forward_hook(watch.projected(key)) for key, place in blocks.items()]
    handles += [
        place.module.register_forward_hook(watch.passed(key), with_kwargs=True) for key, place in layers.items()
    ]
    if blocks:
        handles += [module.register_forward_hook(watch.handed_on) for module in model.modules()]
    try:
        with evaluating(model), watch:
            for batch in batches:
                watch.batches += 1
                watch.mask = batch.get("attention_mask")
                model(**batch)
    finally:
        for handle in handles:
            handle.remove()
    return watch.means(next(model.parameters()).device)


class _Watch(TorchFunctionMode):
    """Sees what an output projection gave, follows it through norms, and catches the addition that takes it in."""

    def __init__(self, keys: Sequence[Key]) -> None:
        super().__init__()
        self.keys = keys
        self.sums = torch.zeros(len(keys), 2, dtype=torch.float64)
        """Of each: the sum over tokens, and how many."""
        self.batches = 0
        self.mask: Tensor | None = None
        self._given: dict[Key, Tensor] = {}

    def projected(self, key: Key) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            self._given[key] = output

        return hook

    def handed_on(self, module: nn.Module, args: Any, output: Any) -> None:
        """A module that takes what a block gave, and nothing else, is a norm or a dropout behind the block."""
        for key, given in self._given.items():
            if args and args[0] is given and isinstance(output, Tensor):
                self._given[key] = output

    def passed(self, key: Key) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            before = args[0] if args else kwargs["hidden_states"]
            self._count(key, before, output if isinstance(output, Tensor) else output[0])

        return hook

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if len(args) == 2 and self._given and getattr(func, "__name__", "") in ADDITIONS:
            for key, given in list(self._given.items()):
                for mine, other in (args, args[::-1]):
                    if mine is given and isinstance(other, Tensor) and other.shape == given.shape:
                        del self._given[key]
                        self._count(key, other, other.float() + given.float())
                        break
        return func(*args, **(kwargs or {}))

    def _count(self, key: Key, before: Tensor, after: Tensor) -> None:
        turn = 1 - nn.functional.cosine_similarity(before.float(), after.float(), dim=-1)
        if self.mask is not None and self.mask.flatten(0, -2).shape == turn.shape:
            turn = turn[self.mask.flatten(0, -2).bool()]
        row = self.sums[self.keys.index(key)]
        row += torch.stack([turn.sum().cpu().double(), torch.tensor(float(turn.numel()))])

    def means(self, device: torch.device) -> dict[Key, float]:
        """Over the tokens that all processes saw. `device`: where processes exchange tensors."""
        sums = average(self.sums.to(device)) if processes() > 1 else self.sums
        for (kind, place), (_, count) in zip(self.keys, sums.tolist(), strict=True):
            if not self.batches:
                raise MethodError("There is no calibration data.")
            if not count:
                raise UnsupportedModelError(
                    f"Nothing adds what place {place} of {kind} gives to a residual stream: order=similarity cannot "
                    "rank this model's blocks. order=last and order=greedy can."
                )
        if not sums.isfinite().all():
            raise MethodError("The hidden states are not finite on the calibration data: no ranking is possible.")
        return {key: total / count for key, (total, count) in zip(self.keys, sums.tolist(), strict=True)}
