"""The generator's masks on a live model: whether forwards are under masks, under which, and how they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...control import Control
from ...sites import Site
from .draws import Draw, Round, logits_again
from .networks import Networks


class Masks:
    """Makes masks for the forwards within a context; outside of all contexts the model runs without any.

    Args:
        random: The generator's own random numbers.
        shared_noise: Whether all sites of an input are drawn with the same ones.
    """

    def __init__(
        self,
        control: Control,
        sites: Mapping[int, Site],
        networks: Networks,
        *,
        random: torch.Generator,
        shared_noise: bool,
    ) -> None:
        self.control, self.sites, self.networks = control, sites, networks
        self.random, self.shared_noise = random, shared_noise
        self.current: Draw | None = None
        """The masks of the current forward, or of the last one within a context."""
        self._make: Callable[[], Draw] | None = None
        self._in_eval = False
        for entrance in networks.entrances.values():
            entrance.on_input(self._on_input)

    @property
    def active(self) -> bool:
        """Whether a context holds."""
        return self._make is not None

    def apply(self, training: bool) -> None:
        """Put the masks of the next forward onto the sites."""
        self.current = None
        if self._make is None or not (training or self._in_eval):
            return
        self.current = draw = self._make()
        set_mask = self.control.set_soft_mask if draw.soft else self.control.set_score_mask
        for index, site in self.sites.items():
            set_mask(index, partial(draw.mask, site))

    def _on_input(self, stack: str, seen: Any) -> None:
        if self.current is not None:
            self.current.on_input(stack, seen)

    # Contexts

    @contextmanager
    def _made_by(self, make: Callable[[], Draw], in_eval: bool = True) -> Iterator[None]:
        self._make, self._in_eval = make, in_eval
        try:
            yield
        finally:
            self._make = self.current = None

    @contextmanager
    def for_training(self) -> Iterator[Draw]:
        """One training batch under sampled masks; forwards in eval mode stay without."""
        draw = Draw(self.networks, self.sample, soft=False)
        with self._made_by(lambda: draw, in_eval=False):
            yield draw

    @contextmanager
    def sampled(self) -> Iterator[Draw]:
        """One forward under masks drawn by the generator."""
        draw = Draw(self.networks, self.sample, soft=False)
        with self._made_by(lambda: draw):
            yield draw

    @contextmanager
    def soft(self) -> Iterator[Draw]:
        """One forward under masks that gradients pass straight through, into the generator."""
        draw = Draw(self.networks, self._straight_through, soft=True)
        with self._made_by(lambda: draw):
            yield draw

    def likely(self) -> AbstractContextManager[None]:
        """Forwards under the masks that the generator finds likeliest, sample by sample."""
        return self._made_by(lambda: Draw(self.networks, lambda _, logits: logits > 0, soft=False))

    # Decisions

    def sample(self, draw: Draw, logits: Tensor) -> Tensor:
        """Kept or dropped: the score and logistic noise against 0, which is a uniform number against P(keep)."""
        noise = draw.noise
        if noise is None or noise.shape != logits.shape:
            noise = torch.rand(logits.shape, generator=self.random, device=logits.device)
            draw.noise = noise if self.shared_noise else None
        return noise < torch.sigmoid(logits)

    def _straight_through(self, draw: Draw, logits: Tensor) -> Tensor:
        """The same decisions as numbers; backward is that of P(keep)."""
        chance = torch.sigmoid(logits)
        return self.sample(draw, logits.detach()) + chance - chance.detach()

    def logits_of(self, decided: Round) -> dict[int, Tensor]:
        """The logits of a round once more, by site, with gradients into the generators."""
        return logits_again(decided, self.networks, self.sites)
