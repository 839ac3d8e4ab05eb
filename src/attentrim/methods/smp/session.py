"""SMP at work."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from ...errors import MethodError
from ...modes import evaluating
from ..processes import average
from ..scored import ScoredGates, lowest
from .scorer import MapScorer, distance, draw, fit

if TYPE_CHECKING:
    from . import SMP


class SMPSession(ScoredGates):
    method: SMP

    def choose(self, count: int) -> Tensor:
        self.judged = scores = self.scores()
        budgets = self.shares(scores, count)
        parts = zip(scores.split(self.units.sizes), budgets, strict=True)
        starts = [sum(self.units.sizes[:index]) for index in range(len(self.units.sizes))]
        return torch.cat([start + lowest(part, gone) for start, (part, gone) in zip(starts, parts, strict=True)])

    def shares(self, scores: Tensor, count: int) -> list[int]:
        """How many gates each site loses: as even as can be, the rest where the next head matters least."""
        gone = [count * size // self.count for size in self.units.sizes]
        ordered = [part.sort().values for part in scores.split(self.units.sizes)]
        spread = [values.std(unbiased=False).clamp_min(1e-9) for values in ordered]
        able = [index for index, size in enumerate(self.units.sizes) if gone[index] < size]
        able.sort(key=lambda index: float((ordered[index][gone[index]] - ordered[index].mean()) / spread[index]))
        for index in able[: count - sum(gone)]:
            gone[index] += 1
        return gone

    def scores(self) -> Tensor:
        """Train the scorer on the frozen model; the mean score of each head over the calibration data."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            scorer = MapScorer(self.method.map_length, self.method.base_width).to(self.device)
        with evaluating(self.model):
            with torch.enable_grad():
                self._train(scorer)
            scorer.eval()
            with torch.no_grad():
                totals = [self._scores(scorer, *self._maps(batch)[:2]) for batch in self._unlabelled()]
        return average(torch.stack(totals).mean(0))

    def _train(self, scorer: MapScorer) -> None:
        method, parameters = self.method, list(scorer.parameters())
        generator = torch.Generator().manual_seed(self.seed)
        optimizer = torch.optim.Adam(parameters, lr=method.search_lr)
        hidden = not self.shows_progress
        progress = tqdm(total=method.search_steps, desc="SMP: training the scorer", leave=False, disable=hidden)
        for _, batch in zip(range(method.search_steps), self._endless(), strict=False):
            loss, gradients = self._loss(scorer, batch, generator)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = average(gradient)
            optimizer.step()
            if self.shows_progress:  # to read a number is to wait for the GPU
                progress.set_postfix(distance=f"{float(loss):.4f}")
            progress.update()
        progress.close()

    def _loss(
        self, scorer: MapScorer, batch: dict[str, Any], generator: torch.Generator
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """How far relaxed gates, drawn by the scores, move the representations; and its gradient in the scorer."""
        with torch.no_grad():
            maps, valid, before = self._maps(batch)
        # half of the sites, chosen at random in each step, stay whole
        sites = len(self.units.sites)
        whole = torch.randperm(sites, generator=generator)[: sites // 2].tolist()
        scores = self._scores(scorer, maps, valid, whole)
        kept = 1 - self.method.target_sparsity
        gates = [
            torch.ones_like(part)
            if index in whole
            else draw(part, max(1, round(kept * len(part))), self.method.temperature, generator)
            for index, part in enumerate(scores.split(self.units.sizes))
        ]
        with self.gates_set(torch.cat(gates)):
            after = self._states(batch)
            loss = sum(
                (distance(b, a) for b, a in zip(_pooled(before, valid), _pooled(after, valid), strict=True)),
                after.new_zeros(()),
            )
            return loss.detach(), torch.autograd.grad(loss, list(scorer.parameters()))

    def _maps(self, batch: dict[str, Any]) -> tuple[list[Tensor], Tensor | None, Tensor]:
        """The attention maps by site with all gates open, the valid positions, and the last hidden states."""
        with self.gates_set(None), self.control.recording() as recorded:
            states = self._states(batch)
        mask = batch.get("attention_mask")
        fits = mask is not None and mask.dim() == 2 and mask.shape[1] == states.shape[1]
        valid = mask.bool() if mask is not None and fits else None
        return [torch.stack(recorded[site.index]).mean(0) for site in self.units.sites], valid, states

    def _scores(
        self, scorer: MapScorer, maps: list[Tensor], valid: Tensor | None, whole: Sequence[int] = ()
    ) -> Tensor:
        """One score per gate: the mean over the batch, and over the heads of a group.

        Nothing is learned from sites that stay whole; the scorer sees them for its running means.
        """
        means = []
        for index, (site, found) in enumerate(zip(self.units.sites, maps, strict=True)):
            with torch.set_grad_enabled(torch.is_grad_enabled() and index not in whole):
                fitted = fit(found.float(), valid, self.method.map_length)
                scores = scorer(fitted.flatten(0, 1)).view(fitted.shape[:2]).mean(0)
                means.append(scores.view(site.groups, site.heads_per_group).mean(-1))
        return torch.cat(means)

    def _states(self, batch: Mapping[str, Any]) -> Tensor:
        """The last hidden states of the bare model: no labels, no task head."""
        bare = self.model.base_model
        known = inspect.signature(bare.forward).parameters
        refusal = (
            f"SMP compares the hidden states of one stack of layers; {type(self.model).__name__} has none to give."
        )
        if getattr(self.model.config, "is_encoder_decoder", False):
            raise MethodError(refusal)
        try:
            states: Tensor = bare(**{key: value for key, value in batch.items() if key in known}).last_hidden_state
        except (AttributeError, TypeError, ValueError) as error:
            raise MethodError(refusal) from error
        return states

    def _unlabelled(self) -> Iterator[dict[str, Any]]:
        """Batches without labels; where samples have several choices, each is a row of its own."""
        for batch in self.batches():
            batch.pop("labels", None)
            several = batch["input_ids"].dim() == 3 if "input_ids" in batch else False
            yield {key: value.flatten(0, 1) if several else value for key, value in batch.items()}

    def _endless(self) -> Iterator[dict[str, Any]]:
        while True:
            seen = False
            for batch in self._unlabelled():
                seen = True
                yield batch
            if not seen:
                raise MethodError("The calibration data is empty.")


def _pooled(states: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """First token, and mean over tokens."""
    if valid is None:
        return states[:, 0].float(), states.mean(1).float()
    weights = valid[..., None].to(states)
    return states[:, 0].float(), ((states * weights).sum(1) / weights.sum(1)).float()
