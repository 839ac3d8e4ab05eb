"""Similarity at work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from ...errors import AttentrimError, MethodError
from ...plan import Plan
from ...structures import STRUCTURES
from ..processes import rank
from ..session import Session
from .blocks import BLOCKS, in_words
from .losses import Judge
from .streams import turns

if TYPE_CHECKING:
    from . import Similarity

Chosen = dict[str, list[int]]
"""Places by type of block, in order of removal."""


class SimilaritySession(Session):
    """Chooses when the dense steps are done; from then on the model runs without the chosen blocks."""

    method: Similarity
    dense_until = 0
    """The first so many steps are plain fine-tuning."""

    def __init__(self, method: Similarity, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        self.chosen: Chosen | None = None
        """What goes, once it is chosen."""
        self.scores: dict[str, list[float | None]] = {}
        """order=similarity: by sort and place, 1 - cosine; None for places with nothing to remove."""
        self.losses: list[float] = []
        """order=greedy: on the calibration data, dense and then without each block that went."""
        self._tried: Chosen | None = None
        """What is left out while blocks are chosen; None: what is due."""
        self._left_out: Chosen = {}
        self._finished = False
        try:
            self.counts = method.counts or {"attention": max(1, len(self._places("attention")) // 4)}
            for name in self.counts:
                self._check_count(name)
        except AttentrimError:
            self.detach()
            raise

    def _places(self, name: str) -> list[int]:
        """The blocks of a sort that have something to remove."""
        kind = STRUCTURES[BLOCKS[name]]
        return [place.index for place in self.control.places[kind.places] if kind.gates(place.shape)]

    def _check_count(self, name: str) -> None:
        asked, there = self.counts[name], self._places(name)
        able, reason = [], ""
        for index in there:
            try:
                self._plan({name: [index]})
                able.append(index)
            except AttentrimError as error:
                reason = str(error)
        if not able and reason:
            raise MethodError(reason)
        if asked > len(able) or (name == "layers" and asked == len(there)):
            limit = len(able) - (name == "layers" and len(able) == len(there))
            raise MethodError(
                f"{asked} {in_words(name, asked)} should be removed; at most {limit} of this model's can be."
            )

    # The life of a session

    def begin(self, steps: int) -> None:
        super().begin(steps)
        self._finished = False
        self.dense_until = round(self.method.dense * steps)
        if self.dense_until >= steps:
            raise MethodError(f"No step is left to train without blocks: all {steps} are dense. Lower dense_share.")

    def start_step(self) -> None:
        super().start_step()
        if self.method.dense:
            self.require_steps()
        if self.chosen is None and self.steps_done >= self.dense_until:
            self.chosen = self.choose()

    def before_forward(self, training: bool) -> None:
        wanted = self.removed if self._tried is None else self._tried
        if self._left_out != wanted:
            self.control.apply(self._plan(wanted))
            self._left_out = {name: list(places) for name, places in wanted.items()}

    def search(self) -> None:
        self.finish()

    def finish(self) -> None:
        """Training that ended early leaves the blocks out all the same."""
        if self.chosen is None:
            self.chosen = self.choose()
        self._finished = True
        self.before_forward(training=False)

    # The choice

    def choose(self) -> Chosen:
        self._tried = {}
        try:
            if self.method.order == "greedy":
                return self._greedily()
            ranked = self._by_similarity() if self.method.order == "similarity" else self._from_the_end()
        finally:
            self._tried = None
        chosen: Chosen = {}
        for name, places in ranked.items():
            for place in places:
                more = _with(chosen, name, place)
                if len(chosen.get(name, ())) < self.counts[name] and self._can_go(more):
                    chosen = more
        return self._complete(chosen)

    def _from_the_end(self) -> Chosen:
        return {name: self._places(name)[::-1] for name in self.counts}

    def _by_similarity(self) -> Chosen:
        keys = {(name, index): self._place(name, index) for name in self.counts for index in self._places(name)}
        whole = {key: place for key, place in keys.items() if key[0] == "layers"}
        blocks = {key: place for key, place in keys.items() if key not in whole}
        found = turns(self.model, self._bar(list(self.batches()), "similarity"), blocks, whole)
        for name in self.counts:
            places = self.control.places[STRUCTURES[BLOCKS[name]].places]
            self.scores[name] = [found.get((name, place.index)) for place in places]
        return {name: sorted(self._places(name), key=lambda place: found[name, place]) for name in self.counts}

    def _greedily(self) -> Chosen:
        """Each candidate is tried in turn, over all calibration data."""
        judge, chosen = Judge(self.model, list(self.batches())), Chosen()
        self.losses = [judge.loss()]
        sizes = {name: len(self._places(name)) for name in self.counts}
        passes = sum(size - gone for name, size in sizes.items() for gone in range(self.counts[name]))
        with self._bar(total=passes, desc="greedy") as bar:
            for _ in range(sum(self.counts.values())):
                trials = list(self._candidates(chosen))
                losses = []
                for trial in trials:
                    self._tried = trial
                    losses.append(judge.loss())
                    bar.update()
                if not trials:
                    break
                self.losses.append(min(losses))
                chosen = trials[losses.index(min(losses))]
        return self._complete(chosen)

    def _candidates(self, chosen: Chosen) -> Iterator[Chosen]:
        """What is chosen and one block more. Layers go before blocks: a block of a removed layer is nothing to try."""
        for name, count in self.counts.items():
            if len(chosen.get(name, ())) < count:
                for place in self._places(name):
                    more = _with(chosen, name, place)
                    if place not in chosen.get(name, ()) and self._can_go(more):
                        yield more
                return

    def _complete(self, chosen: Chosen) -> Chosen:
        for name, count in self.counts.items():
            if len(chosen.get(name, ())) < count:
                found = len(chosen.get(name, ()))
                raise MethodError(
                    f"{count} {in_words(name, count)} should be removed; besides the others only {found} can be."
                )
        return chosen

    def _can_go(self, removed: Chosen) -> bool:
        try:
            self._plan(removed)
        except AttentrimError:
            return False
        return True

    def _place(self, name: str, index: int) -> Any:
        return self.control.places[STRUCTURES[BLOCKS[name]].places][index]

    def _bar(self, batches: Iterable[Any] | None = None, desc: str = "", total: int | None = None) -> Any:
        hidden = None if self.shows_progress and rank() == 0 else True
        return tqdm(batches, desc=desc, total=total, disable=hidden, leave=False)

    # What it knows

    @property
    def removed(self) -> Chosen:
        """What the model runs without now."""
        due = self._finished or self.steps_done >= self.dense_until
        return self.chosen if self.chosen is not None and due else {}

    @property
    def removed_layers(self) -> tuple[int, ...]:
        return tuple(self.removed.get("layers", ()))

    @property
    def settled(self) -> bool:
        return bool(self.removed)

    def plan(self) -> Plan:
        return self._plan(self.removed)

    def _plan(self, removed: Chosen) -> Plan:
        whole: dict[str, Any] = {}
        for name, places in removed.items():
            kind = STRUCTURES[BLOCKS[name]]
            if kind.within:
                whole[kind.name] = {place: range(kind.units(self._place(name, place).shape)) for place in places}
            else:
                whole[kind.name] = places
        return self.planned(whole)

    def metrics(self) -> dict[str, float]:
        return {"blocks_removed": sum(len(places) for places in self.removed.values())}

    def record(self) -> dict[str, Any]:
        return {"layers_removed": sorted(self.removed_layers)} if "layers" in self.counts else {}

    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = {"blocks_removed": self.chosen or {}}
        if self.scores:
            found["scores"] = {
                name: [None if score is None else round(score, 6) for score in scores]
                for name, scores in self.scores.items()
            }
        return {**found, **({"calibration_losses": self.losses} if self.losses else {})}

    def remarks(self) -> list[str]:
        named = [f"{in_words(name, len(places))} {_listed(places)}" for name, places in (self.chosen or {}).items()]
        return [f"Removed, in this order: {'; '.join(named)}."] if named else []

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "chosen": self.chosen, "scores": self.scores, "losses": self.losses}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.chosen, self.scores, self.losses = state["chosen"], state["scores"], state["losses"]
        self._finished = False


def _with(chosen: Chosen, name: str, place: int) -> Chosen:
    return {**chosen, name: [*chosen.get(name, ()), place]}


def _listed(places: Sequence[int]) -> str:
    return ", ".join(map(str, places))
