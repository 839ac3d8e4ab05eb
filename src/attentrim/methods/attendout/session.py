"""AttendOut at work: attacker, defender and generator. Equations are those of the second version of the paper.

The model that is trained is the attacker: it learns under the generator's masks. The defender learns from the same
batches, with the same dropout noise, without masks. After a window of steps, in a dropout step, both are judged, the
generator learns from it, and both go on from the weights of one of them.
"""

from __future__ import annotations

import resource
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ...errors import MethodError, TrainingError, UnsupportedModelError
from ...modes import evaluating
from ...plan import Plan
from ..session import Session, average, rank
from . import AttendOut
from .draws import Draw, Entrance, Round, replayed
from .estimators import Baseline, contrast, held_out_gradient, look_ahead, policy_gradient
from .generator import Generator, Valid, mean_over
from .players import Player, RandomState
from .pruning import choose, uniform_at
from .rewards import check_correctness, first_samples, worths

LONGEST_GRADIENT = 1.0
"""The norm to which the generator's gradient is clipped."""
REMEMBERED = 0.9
"""Decay of the win rate that is recorded."""

Batch = dict[str, Any]


@dataclass
class Step:
    """What a dropout step needs to know of an optimiser step."""

    rounds: list[Round] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)


class AttendOutSession(Session):
    method: AttendOut

    def __init__(self, method: AttendOut, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        self.sites = {site.index: site for site in self.control.sites if site.heads}
        try:
            self._check_model()
            with torch.random.fork_rng(devices=[]):  # what modules draw when they are made is not the model's noise
                self.entrances, self.generators = self._make_generators() if method.plays else ({}, {})
        except (MethodError, UnsupportedModelError):
            self.detach()
            raise
        self.networks = nn.ModuleList([*self.generators.values(), *self.entrances.values()])
        self.generator_optimizer = torch.optim.Adam(
            [{"params": list(self.networks.parameters())}], lr=method.generator_lr
        )
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.random = torch.Generator(self.device).manual_seed(self.seed + rank())
        """The generator's own random numbers."""
        self.choices = torch.Generator().manual_seed(self.seed)
        """For what all processes decide alike."""
        self.baseline = Baseline(method.baseline, method.baseline_decay)
        self.defender: Player | None = None
        self.plain: Player | None = None
        self.game_until = 0
        """The step at which the game is over; what is left is for fine-tuning the pruned model."""
        self.chosen: list[int] | None = None
        """The sites to make uniform, first to go first, once they are chosen."""
        self.rates: dict[int, float] = {}
        """The drop probability of each site, as of the last dropout step."""
        self.numbers: dict[str, float] = {}
        """Of the last dropout step, for the log."""
        self._masks: Callable[[], Draw] | None = None
        """What makes the masks of the next forward, where there are to be any."""
        self._masks_in_eval = False
        self._draw: Draw | None = None
        """The masks of the forward that is under way."""
        self._step = Step()
        self._window: list[Step] = []
        self._replays: list[tuple[Callable[[], Any], RandomState]] = []
        self._played = False
        self._last_draw: Draw | None = None
        self._gradient: list[Tensor] = []
        self._past_rewards: list[float] = []
        self._trial: list[int] | None = None
        """Sites to make uniform while pruning looks what that costs."""

    def _check_model(self) -> None:
        if not self.sites:
            raise UnsupportedModelError(f"This {type(self.model).__name__} has no attention left to drop.")
        if self.method.reward == "correctness":
            check_correctness(self.model)
        rates = [module.p for module in self.model.modules() if isinstance(module, nn.Dropout)]
        if self.method.needs_defender and not any(rates):
            warnings.warn(
                "The model's own dropout is 0: the defender trains without noise, and only the generator's masks "
                "make a difference between the two.",
                stacklevel=2,
            )

    def _make_generators(self) -> tuple[dict[str, Entrance], dict[str, Generator]]:
        """One generator a stack of layers, each with its view of what enters the stack."""
        method, random = self.method, torch.Generator().manual_seed(self.seed)
        entrances: dict[str, Entrance] = {}
        generators: dict[str, Generator] = {}
        for site in self.sites.values():
            if site.stack in entrances:
                continue
            inside = [other for other in self.sites.values() if other.stack == site.stack]
            entrance = Entrance(self.control, site.stack, inside, own=method.embedding == "own")
            entrance.on_arrival(self._arrive)
            generator = Generator(
                entrance.features,
                width=method.generator_width,
                prior=method.prior,
                unit=method.unit,
                residual=method.residual,
                random=random,
            )
            entrances[site.stack], generators[site.stack] = entrance.to(self.device), generator.to(self.device)
        return entrances, generators

    # Steps

    def begin(self, steps: int) -> None:
        super().begin(steps)
        method = self.method
        self.game_until = round(method.dense * steps) if method.tune_share else steps
        if method.plays:
            self._check_game()
        self.networks.to(self.device)
        self.defender = Player(self.parameters) if method.needs_defender else None
        self.plain = Player(self.parameters) if method.plain_run else None

    def _check_game(self) -> None:
        method = self.method
        if method.window > self.game_until:
            raise MethodError(f"The window is {method.window} steps; the game has {self.game_until} only.")
        if method.reward_source == "cached":
            return
        if self.held_out is None:
            raise MethodError(
                f"AttendOut is rewarded on {method.reward_source!r}, and got no such data: give the Trainer its "
                "train_dataset and eval_dataset."
            )
        wanted = method.window * method.reward_samples if method.needs_defender else 1
        if wanted > len(self.held_out):
            raise MethodError(
                f"A dropout step draws {wanted} examples; {method.reward_source!r} has {len(self.held_out)}. Lower "
                "window or reward_samples, or give it more data."
            )

    @property
    def in_game(self) -> bool:
        return self.taken < self.game_until

    def play(self, run: Callable[[], Any], inputs: Mapping[str, Any]) -> Any:
        """The attacker's forward and backward of one batch, by `run`; the others' turn comes after the step."""
        if not self.in_game:
            if self._undecided:
                self.chosen = self._choose()
            return run()
        others = self.defender is not None or self.plain is not None
        noise = RandomState(self.device) if others else None
        draw = Draw(self.generators, self.entrances, self._sampled, soft=False)
        with self._under(lambda: draw, in_eval=False):
            result = run()
        self._played = True
        self._remember(draw, inputs)
        if noise is not None:
            self._replays.append((run, noise))
        return result

    def _remember(self, draw: Draw, inputs: Mapping[str, Any]) -> None:
        """Of this batch, what the dropout step will need."""
        method = self.method
        last = len(self._window) == method.window - 1 or self.taken == self.game_until - 1
        if method.estimator == "policy":
            self._step.rounds.append(draw.close().first(method.cache_samples))
        if last and method.estimator == "lookahead":
            self._step.batches.append(dict(inputs))
        elif method.reward_source == "cached":
            self._step.batches.append(first_samples(inputs, method.cache_samples))
        if last:
            self._last_draw = draw

    def step(self, scale: float = 1.0) -> None:
        if self._undecided or (self.in_game and not self._played):
            raise MethodError("AttendOut trains several networks on each batch: it needs attentrim.Trainer.")
        super().step(scale)

    def after_step(self, optimizer: Any, clip: Callable[[], Any]) -> None:
        """The attacker has taken its step: the others take theirs; at the end of a window comes the dropout step."""
        if not self._played:
            return
        self._played = False
        closes = len(self._window) == self.method.window - 1 or not self.in_game
        if closes and self.method.estimator == "lookahead":
            self._gradient = [_gradient_of(parameter) for parameter in self.parameters]
        for player in (self.defender, self.plain):
            if player is not None:
                self._take_turn(player, optimizer, clip)
        self._replays.clear()
        self._window.append(self._step)
        self._step = Step()
        if len(self._window) == self.method.window or not self.in_game:
            self._dropout_step(optimizer)

    def _take_turn(self, player: Player, optimizer: Any, clip: Callable[[], Any]) -> None:
        """The batches of this step again, with the same noise, without masks."""
        self.model.zero_grad()
        with player.playing(optimizer):
            for run, noise in self._replays:
                noise.restore()
                run()
            clip()
            optimizer.step()
            self.model.zero_grad()

    # The dropout step

    def _dropout_step(self, optimizer: Any) -> None:
        window, self._window = self._window, []
        rewards = self._rewards(window)
        if self.taken > self.method.generator_warmup * self.game_until:
            self._teach(window, rewards)
        self._note_rates()
        if self.defender is not None and rewards is not None:
            self._restart(self.defender, float(average(rewards.sum())), optimizer)

    def _rewards(self, window: Sequence[Step]) -> Tensor | None:
        """r_t for each step of the window: how much better the attacker is than the defender, [steps]."""
        if self.defender is None:
            return None
        if self.method.reward_source == "cached":
            batches = [step.batches for step in window]
        else:
            assert self.held_out is not None
            batches = [self.held_out.draw(len(window) * self.method.reward_samples)]
        with evaluating(self.model):
            attacker = self._worth(batches)
            with self.defender.playing():
                rewards = attacker - self._worth(batches)
        rewards = rewards.reshape(len(window), -1).mean(1)
        if not rewards.isfinite().all():
            raise TrainingError(f"The rewards of step {self.taken} are not finite: the loss turned NaN or infinite.")
        return rewards

    def _worth(self, groups: Sequence[Sequence[Batch]]) -> Tensor:
        """Of the network in the model: by sample where there is one group of batches, else by group."""
        found = iter(worths(self.model, [batch for group in groups for batch in group], self.method.reward))
        parts = [torch.cat([next(found) for _ in group]) for group in groups]
        return parts[0] if len(parts) == 1 else torch.stack([part.mean() for part in parts])

    def _teach(self, window: Sequence[Step], rewards: Tensor | None) -> None:
        """One step of the generator."""
        method = self.method
        self.generator_optimizer.zero_grad()
        if method.estimator == "policy":
            assert rewards is not None
            advantages = self.baseline.advantages(
                self._drawn_from_past(rewards) if method.shuffle_rewards else rewards
            )
            policy_gradient(self, [step.rounds for step in window], advantages)
        else:
            batches = self._estimate_batches()
            if method.estimator == "heldout":
                held_out_gradient(self, batches)
            elif method.estimator == "contrast":
                contrast(self, batches)
            else:
                look_ahead(self, window[-1].batches, batches, self._gradient)
        parameters = list(self.networks.parameters())
        for parameter in parameters:
            if parameter.grad is not None:
                average(parameter.grad)
        nn.utils.clip_grad_norm_(parameters, LONGEST_GRADIENT)
        self.generator_optimizer.step()
        self.generator_optimizer.zero_grad()

    def _estimate_batches(self) -> list[Batch]:
        assert self.held_out is not None
        batches = self.held_out.draw(min(self.method.estimate_samples, len(self.held_out)))
        if self.method.shuffle_rewards and self.method.estimator != "contrast":
            for batch in batches:
                batch["labels"] = self.shuffled(batch["labels"])
        return batches

    def shuffled(self, values: Tensor) -> Tensor:
        """The control experiment: in random order."""
        return values[torch.randperm(len(values), generator=self.choices).to(values.device)]

    def _drawn_from_past(self, rewards: Tensor) -> Tensor:
        """The control experiment for rewards of whole steps: as many, drawn from all that there were so far."""
        self._past_rewards += rewards.tolist()
        drawn = torch.randint(len(self._past_rewards), (len(rewards),), generator=self.choices)
        return torch.tensor([self._past_rewards[place] for place in drawn.tolist()], device=rewards.device)

    def _restart(self, defender: Player, total: float, optimizer: Any) -> None:
        """Both go on from the weights and the optimiser state of one."""
        chance = float(torch.sigmoid(torch.tensor(total / self.method.restart_temperature)))
        drawn = float(torch.rand((), generator=self.choices))
        attacker = {"attacker": True, "better": total >= 0, "sampled": drawn < chance}[self.method.restart]
        if attacker:
            defender.take(optimizer)
        else:
            defender.give(optimizer)
        for name, value in (("win_rate", total > 0), ("attacker_kept", attacker)):
            before = self.numbers.get(name)
            share = float(value) if before is None else REMEMBERED * before + (1 - REMEMBERED) * value
            self.numbers[name] = share
        self.numbers["reward"] = total

    # Masks

    def arm(self, training: bool) -> None:
        self.control.clear()
        for index in self.uniform:
            self.control.set("uniform", index)
        self._draw = None
        if self._masks is None or not (training or self._masks_in_eval):
            return
        self._draw = draw = self._masks()
        ask = self.control.set_soft_mask if draw.soft else self.control.set_score_mask
        for index, site in self.sites.items():
            ask(index, partial(draw.mask, site))

    def _arrive(self, stack: str, seen: Any) -> None:
        if self._draw is not None:
            self._draw.arrive(stack, seen)

    @contextmanager
    def _under(self, masks: Callable[[], Draw], in_eval: bool = True) -> Iterator[None]:
        self._masks, self._masks_in_eval = masks, in_eval
        try:
            yield
        finally:
            self._masks = self._draw = None

    @contextmanager
    def sampled_masks(self) -> Iterator[Draw]:
        """One forward under masks drawn by the generator."""
        draw = Draw(self.generators, self.entrances, self._sampled, soft=False)
        with self._under(lambda: draw):
            yield draw

    @contextmanager
    def soft_masks(self) -> Iterator[Draw]:
        """One forward under masks that gradients pass straight through, into the generator."""
        draw = Draw(self.generators, self.entrances, self._straight_through, soft=True)
        with self._under(lambda: draw):
            yield draw

    def likely_masks(self) -> AbstractContextManager[None]:
        """Forwards under the masks that the generator finds likeliest, sample by sample."""
        return self._under(lambda: Draw(self.generators, self.entrances, lambda _, logits: logits > 0, soft=False))

    def _sampled(self, draw: Draw, logits: Tensor) -> Tensor:
        """Kept or dropped: the score and logistic noise against 0, which is a uniform number against P(keep)."""
        noise = draw.noise
        if noise is None or noise.shape != logits.shape:
            noise = torch.rand(logits.shape, generator=self.random, device=logits.device)
            draw.noise = noise if self.method.shared_noise else None
        return noise < torch.sigmoid(logits)

    def _straight_through(self, draw: Draw, logits: Tensor) -> Tensor:
        """The same decisions as numbers; backward is that of P(keep)."""
        chance = torch.sigmoid(logits)
        return self._sampled(draw, logits.detach()) + chance - chance.detach()

    def replayed(self, played: Round) -> dict[int, Tensor]:
        return replayed(played, self.generators, self.entrances, self.sites)

    # Pruning

    @property
    def uniform(self) -> list[int]:
        """The sites that are uniform now."""
        if self._trial is not None:
            return self._trial
        if not self.chosen or self._masks is not None:
            return []
        if self.steps is None or self.taken >= self.steps:
            return self.chosen
        return uniform_at(self.chosen, (self.taken - self.game_until) / (self.steps - self.game_until))

    @property
    def _undecided(self) -> bool:
        """Whether sites are to be uniform by now, and nobody has said which."""
        return self.method.tune_share > 0 and not self.in_game and self.chosen is None

    @property
    def settled(self) -> bool:
        return not self.method.tune_share or (self.chosen is not None and len(self.uniform) == len(self.chosen))

    def finish(self) -> None:
        if self.method.prunes and self.chosen is None:
            self.chosen = self._choose()
        self.taken = max(self.taken, self.steps or 0)

    def _choose(self) -> list[int]:
        method = self.method
        if method.judges_by_metric and self.evaluate is None:
            raise MethodError("max_drop and a greedy order are judged by a metric: attach(model, evaluate=...).")
        return choose(
            self.drop_rates() if method.plays else dict.fromkeys(self.sites, 0.0),
            order=method.prune_order,
            count=method.prune_count,
            threshold=method.prune_threshold,
            max_drop=method.max_drop,
            metric=self._metric_with,
        )

    def _metric_with(self, uniform: Sequence[int]) -> float:
        assert self.evaluate is not None
        self._trial = list(uniform)
        try:
            return float(self.evaluate())
        finally:
            self._trial = None

    @torch.no_grad()
    def drop_rates(self) -> dict[int, float]:
        """How likely the generator drops a pair of each site, over the calibration data."""
        totals: list[Tensor] = []
        with evaluating(self.model), self.likely_masks():
            for batch in self.calibration or ():
                self.model(**batch)
                assert self._draw is not None
                totals.append(self._chances(self._draw)[0])
        if not totals:
            raise MethodError("Pruning by the generator looks at training data: attach(model, calibration=...).")
        rates = torch.stack(totals).mean(0)
        self.rates = dict(zip(self.sites, average(rates).tolist(), strict=True))
        return self.rates

    # What it has to say

    @staticmethod
    def _chances(draw: Draw) -> tuple[Tensor, Tensor]:
        """Of one forward, by site: the mean drop probability and the mean entropy of a decision, in nats."""
        rates, entropies = [], []
        for index, logits in draw.logits.items():
            logits = logits.detach()
            counted = Valid(draw.round.valid[index]).decided(draw.unit)
            chance = torch.sigmoid(-logits)
            each = nn.functional.softplus(-logits) + logits * chance
            rates.append(mean_over(chance, counted).mean())
            entropies.append(mean_over(each, counted).mean())
        return torch.stack(rates), torch.stack(entropies)

    def _note_rates(self) -> None:
        if self._last_draw is None:
            return
        rates, entropies = self._chances(self._last_draw)
        self.rates.update(zip(self._last_draw.logits, rates.tolist(), strict=True))
        self.numbers["drop_rate"] = sum(self.rates.values()) / len(self.rates)
        self.numbers["entropy"] = float(entropies.mean())
        self._last_draw = None

    def plan(self) -> Plan:
        rates = {str(index): round(rate, 4) for index, rate in self.rates.items()}
        return self.planned({}, uniform=self.chosen or (), drop_rates=rates)

    def metrics(self) -> dict[str, float]:
        return {**self.numbers, "peak_memory_mb": peak_memory(self.device)}

    def record(self) -> dict[str, Any]:
        rates = [round(self.rates[index], 4) for index in self.sites if index in self.rates]
        return {"drop_rates": rates, "uniform_sites": sorted(self.uniform)}

    def remarks(self) -> list[str]:
        leaks = self.method.plays and self.method.reward_source == "dev"
        leak = "Rewarded on dev: this figure is of data that the generator was trained on."
        return [*super().remarks(), *([leak] if leaks else [])]

    def companions(self) -> dict[str, AbstractContextManager[None]]:
        return {} if self.plain is None else {"plain": self.plain.playing()}

    def note(self, numbers: Mapping[str, float]) -> None:
        self.numbers.update(numbers)

    def alternatives(self) -> dict[str, AbstractContextManager[None]]:
        return {"generator_masks": self.likely_masks()} if self.method.plays else {}

    # On disk

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "networks": self.networks.state_dict(),
            "generator_optimizer": self.generator_optimizer.state_dict(),
            "random": self.random.get_state(),
            "choices": self.choices.get_state(),
            "held_out": None if self.held_out is None else self.held_out.state(),
            "baseline": self.baseline.average,
            "defender": self.defender and self.defender.state_dict(),
            "plain": self.plain and self.plain.state_dict(),
            "window": [
                {"rounds": [vars(played) for played in step.rounds], "batches": step.batches} for step in self._window
            ],
            "past_rewards": self._past_rewards,
            "chosen": self.chosen,
            "rates": self.rates,
            "numbers": self.numbers,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.networks.load_state_dict(state["networks"])
        self.generator_optimizer.load_state_dict(state["generator_optimizer"])
        self.random.set_state(state["random"])
        self.choices.set_state(state["choices"])
        if self.held_out is not None and state["held_out"] is not None:
            self.held_out.go_to(state["held_out"])
        self.baseline.average = state["baseline"]
        for player, saved in ((self.defender, state["defender"]), (self.plain, state["plain"])):
            if player is not None and saved is not None:
                player.load_state_dict(saved)
        window = tree_map_only(Tensor, lambda tensor: tensor.to(self.device), state["window"])
        self._window = [Step([Round(**played) for played in step["rounds"]], step["batches"]) for step in window]
        self._past_rewards, self.chosen = state["past_rewards"], state["chosen"]
        self.rates, self.numbers = state["rates"], state["numbers"]


def _gradient_of(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()


def peak_memory(device: torch.device) -> float:
    """The most memory used so far, in MiB: of the GPU, or of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
