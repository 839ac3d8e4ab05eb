"""Let what stays make up for what goes, without training: output projections fitted by least squares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .control import Control
from .duplicate import duplicate
from .modes import evaluating
from .plan import Plan
from .projections import is_conv1d, weight_and_bias
from .sites import unwrap
from .structures import kinds
from .structures.layers import find_layers

RIDGE = 1e-2
"""How strongly weights are held where they are, as a share of the mean square of a feature."""


HEAD_RIDGE = 0.3
"""The same for a task head, which sees one vector per text where blocks see one per token."""
ROUNDS = 2


@dataclass
class _Fit:
    """The output projection of one place, which of its features stay, and what is known of them."""

    projection: Any
    kept: Tensor
    """Bool, by feature."""
    squares: Tensor
    """Sums over tokens of products of the features that stay, a constant among them."""
    products: Tensor
    """Sums of products of those with the outputs that are wanted."""

    @classmethod
    def empty(cls, projection: Any, kept: Tensor) -> _Fit:
        """Before any data."""
        weight, _ = weight_and_bias(projection)
        size, device = int(kept.sum()) + 1, weight.device
        sums = torch.zeros(size, size, device=device), torch.zeros(size, weight.shape[0], device=device)
        return cls(projection, kept.to(device), *sums)


@torch.inference_mode(False)
@torch.no_grad()
def fit_outputs(
    model: Any, plan: Plan, batches: Iterable[Mapping[str, Any]], *, rounds: int = ROUNDS, ridge: float = RIDGE
) -> Any:
    """A copy of `model` in its full shape, whose output projections are fitted to make up for what `plan` removes.

    In each block that loses units, the weights of the remaining units and the bias are fitted by least squares, so
    that the output of the block is as close as possible to that of the full model on the valid tokens of `batches`.
    The inputs of a block come from the trimmed model, so each block also makes up for errors of earlier ones. Each
    round fits all blocks again. The projections of the task head follow, one by one. Trim the copy by the same plan:

        small = attentrim.trim(attentrim.fit_outputs(model, plan, loader), plan)
    """
    inner = unwrap(model)
    plan = plan.fitted(inner)
    fitted = duplicate(inner, Tensor.clone)
    device = next(inner.parameters()).device
    batches = [{name: _moved(value, device) for name, value in batch.items()} for batch in batches]
    with evaluating(inner), Control(fitted) as control:
        fitted.eval()
        control.apply(plan)
        for _ in range(rounds):
            fits = _fits(inner, fitted, plan)
            for batch in batches if fits else ():
                _take(inner, fitted, fits, batch)
            for _, fit in fits:
                _solve(fit, ridge)
        for pair in _head_fits(inner, fitted):
            for batch in batches:
                _take(inner, fitted, [pair], batch)
            _solve(pair[1], HEAD_RIDGE)
    for module, other in zip(fitted.modules(), inner.modules(), strict=True):
        module.training = other.training
    return fitted


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def _fits(dense: Any, fitted: Any, plan: Plan) -> list[tuple[Any, _Fit]]:
    """(output projection of the dense model, fit) for each place that loses some of its units and keeps some."""
    found = []
    gone = plan.vanished()
    for kind in (kind for kind in kinds() if kind.within):
        for place, own in zip(kind.find(dense), kind.find(fitted), strict=True):
            removed = set(plan.removed_of(kind.name).get(place.index, ()))
            changed = any(place.index in plan.removed_of(other.name) for other in kinds() if _whole(other, kind))
            if place.index in gone.get(kind.places, ()) or changed or not removed:
                continue
            gate: Any = kind.gate(own)
            closed = [removed.issuperset(kind.group(own.shape, number)) for number in range(gate.units)]
            kept = ~torch.tensor(closed).repeat_interleave(gate.size)
            if kept.any():
                found.append((place.output, _Fit.empty(own.output, kept)))
    return found


def _head_fits(dense: Any, fitted: Any) -> Iterator[tuple[Any, _Fit]]:
    """The projections behind all layers (of a pooler, of a classifier), each when it is its turn."""
    if not fitted.can_generate():  # a language model's head is its embeddings
        inside = tuple(f"{layer.name}." for layer in find_layers(fitted))
        others = dict(dense.named_modules())
        for name, module in fitted.named_modules():
            if isinstance(module, nn.Linear) and not name.startswith(inside) and _has_own_weight(fitted, module):
                yield others[name], _Fit.empty(module, torch.ones(module.in_features, dtype=torch.bool))


def _has_own_weight(model: Any, module: nn.Linear) -> bool:
    """Not that of the embeddings."""
    shared = model.get_input_embeddings()
    return shared is None or module.weight is not getattr(shared, "weight", None)


def _whole(other: Any, kind: Any) -> bool:
    """Whether a kind changes the places of another as a whole."""
    return other.places == kind.places and not other.within


def _take(dense: Any, fitted: Any, fits: list[tuple[Any, _Fit]], batch: Mapping[str, Any]) -> None:
    """Add what a batch says: what the dense model's projections put out, and what goes into those of the other."""
    wanted = [projection for projection, _ in fits]
    with _recorded(wanted, inputs=False) as outputs:
        dense(**batch)
    with _recorded([fit.projection for _, fit in fits], inputs=True) as features:
        fitted(**batch)
    for (_, fit), ours, theirs in zip(fits, features, outputs, strict=True):
        for own, other in zip(ours, theirs, strict=True):
            kept, goal = _valid(own[..., fit.kept], batch), _valid(other, batch)
            known = torch.cat([kept, kept.new_ones(len(kept), 1)], 1).float()
            fit.squares += known.T @ known
            fit.products += known.T @ goal.float()


@contextmanager
def _recorded(modules: list[Any], inputs: bool) -> Iterator[list[list[Tensor]]]:
    """What goes into modules, or comes out of them, by module and call."""
    found: list[list[Tensor]] = [[] for _ in modules]
    handles = [
        module.register_forward_hook(
            lambda _, args, output, into=into: into.append((args[0] if inputs else output).detach())
        )
        for module, into in zip(modules, found, strict=True)
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _valid(values: Tensor, batch: Mapping[str, Any]) -> Tensor:
    """[tokens, features] without padding, where the batch's mask fits."""
    mask = batch.get("attention_mask")
    if mask is not None and mask.shape == values.shape[:-1]:
        return values[mask.bool()]
    return values.flatten(0, -2)


def _solve(fit: _Fit, ridge: float) -> None:
    """The weights and the bias nearest to the ones there are, as strongly as `ridge` says, of those that fit best."""
    weight, bias = weight_and_bias(fit.projection)
    old = torch.cat([weight.T[fit.kept], (torch.zeros_like(weight[:, 0]) if bias is None else bias)[None]]).double()
    squares, products = fit.squares.double(), fit.products.double()
    hold = ridge * squares.diagonal()[:-1].mean().clamp_min(torch.finfo(torch.float32).tiny)
    holds = torch.full_like(squares.diagonal(), float(hold))
    if bias is None:
        # the constant is not fitted: what it would say of the others is left out
        squares[-1], squares[:, -1], products[-1] = 0.0, 0.0, 0.0
        holds[-1] = 1.0
    else:
        holds[-1] = 0.0
    squares.diagonal().add_(holds)
    new = torch.linalg.solve(squares, products + holds[:, None] * old).to(weight.dtype)
    target = fit.projection.weight if is_conv1d(fit.projection) else fit.projection.weight.T
    target[fit.kept] = new[:-1]
    if bias is not None:
        bias.copy_(new[-1])
