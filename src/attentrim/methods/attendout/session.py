"""AttendOut at work: attacker, defender and generator. Equations are those of the second version of the paper.

The model that is trained is the attacker: it learns under the generator's masks. The defender learns from the same
batches, with the same dropout noise, without masks. After a window of steps there is a dropout step: both are
evaluated, the generator learns, and both continue from the weights of one of them. After the game, sites can be
pruned.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...errors import MethodError, TrainingError, UnsupportedModelError
from ...machine import peak_memory
from ...modes import evaluating
from ...plan import Plan
from ..processes import average, rank
from ..progressive_session import ProgressiveSession
from .game import Game, Step
from .learning import GeneratorLearning
from .masks import Masks
from .networks import Networks
from .parked import ParkedNetwork
from .records import Records, rates_and_entropies
from .restart import Restart
from .rewards import step_rewards
from .scores import check_correctness

if TYPE_CHECKING:
    from . import AttendOut


class AttendOutSession(ProgressiveSession):
    method: AttendOut

    def __init__(self, method: AttendOut, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        try:
            self._check_model()
            with torch.random.fork_rng(devices=[]):  # what modules draw when they are made is not the model's noise
                self.networks = Networks.of(method, self.control, list(self.sites.values()), self.seed)
        except (MethodError, UnsupportedModelError):
            self.detach()
            raise
        self.networks.to(self.device)
        self.choices = torch.Generator().manual_seed(self.seed)
        """For what all processes decide alike."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.masks = Masks(
            self.control,
            self.sites,
            self.networks,
            random=torch.Generator(self.device).manual_seed(self.seed + rank()),
            shared_noise=method.shared_noise,
        )
        self.game = Game(method, self.model, parameters, self.masks)
        self.learning = GeneratorLearning(
            method, self.model, parameters, self.masks, held_out=self.held_out, choices=self.choices
        )
        self.restart = Restart(method, self.choices)
        self.records = Records()

    def _check_model(self) -> None:
        if self.method.reward == "correctness":
            check_correctness(self.model)
        rates = [module.p for module in self.model.modules() if isinstance(module, nn.Dropout)]
        if self.method.needs_defender and not any(rates):
            warnings.warn(
                "The model's own dropout is 0: the defender trains without noise, and only the generator's masks "
                "make a difference between the two.",
                stacklevel=2,
            )

    # Steps

    def begin(self, steps: int) -> None:
        super().begin(steps)
        self._check_game()
        self.networks.to(self.device)
        self.game.begin(self.prune_from)

    def _check_game(self) -> None:
        method = self.method
        if method.window > self.prune_from:
            raise MethodError(f"The window is {method.window} steps; the game has {self.prune_from} only.")
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
        return self.steps_done < self.prune_from

    def before_forward(self, training: bool) -> None:
        if self.masks.active:
            self.control.clear()
            self.masks.apply(training)
        else:
            super().before_forward(training)

    def run_batch(self, run: Callable[[], Any], inputs: Mapping[str, Any]) -> Any:
        return self.game.run_batch(run, inputs, self.steps_done) if self.in_game else run()

    def before_optimizer_step(self, scale: float = 1.0) -> None:
        if self.in_game and not self.game.step_under_way:
            raise MethodError("AttendOut trains several networks on each batch: it needs attentrim.Trainer.")
        super().before_optimizer_step(scale)

    def after_optimizer_step(self, optimizer: Any, clip: Callable[[], Any] | None = None) -> None:
        """The attacker has taken its step: the others take theirs; at the end of a window comes the dropout step."""
        if self.game.step_under_way and self.game.after_optimizer_step(optimizer, clip):
            self._dropout_step(optimizer)

    def _dropout_step(self, optimizer: Any) -> None:
        window, draw = self.game.take_window()
        rewards = self._rewards(window)
        if self.steps_done > self.method.generator_warmup * self.prune_from:
            self.learning.step(window, rewards, self.game.gradient)
        if draw is not None:
            self.records.note_draw(draw)
        if self.game.defender is not None and rewards is not None:
            self._restart(self.game.defender, float(rewards.sum()), optimizer)

    def _rewards(self, window: Sequence[Step]) -> Tensor | None:
        """r_t for each step of the window, over all processes, [steps]; None where there is no defender."""
        method, defender = self.method, self.game.defender
        if defender is None:
            return None
        if method.reward_source == "cached":
            batches = [step.batches for step in window]
        else:
            assert self.held_out is not None
            batches = [self.held_out.draw(len(window) * method.reward_samples)]
        rewards = average(step_rewards(self.model, defender, batches, len(window), method.reward))
        if not rewards.isfinite().all():
            raise TrainingError(
                f"The rewards of step {self.steps_done} are not finite: the loss turned NaN or infinite."
            )
        return rewards

    def _restart(self, defender: ParkedNetwork, total: float, optimizer: Any) -> None:
        """Both continue from the weights and the optimiser state of one."""
        kept = self.restart.attacker_is_kept(total)
        if kept:
            defender.copy_from_module(optimizer)
        else:
            defender.copy_to_module(optimizer)
        self.records.note_restart(total, kept)
        self.records.numbers.update(self.restart.numbers)

    # Pruning

    def ranked(self) -> list[int]:
        rates = self.drop_rates()
        return _most_dropped_first(rates) if self.method.prune_order == "generator" else super().ranked()

    def choose(self) -> list[int]:
        threshold = self.method.prune_threshold
        if threshold is None:
            return super().choose()
        rates = self.drop_rates()
        return [site for site in _most_dropped_first(rates) if rates[site] >= threshold]

    @torch.no_grad()
    def drop_rates(self) -> dict[int, float]:
        """How likely the generator drops a pair of each site, over the calibration data."""
        totals: list[Tensor] = []
        with evaluating(self.model), self.masks.likely():
            for batch in self.calibration or ():
                self.model(**batch)
                assert self.masks.current is not None
                totals.append(rates_and_entropies(self.masks.current)[0])
        if not totals:
            raise MethodError("Pruning by the generator looks at training data: attach(model, calibration=...).")
        rates = torch.stack(totals).mean(0)
        self.records.rates = dict(zip(self.sites, average(rates).tolist(), strict=True))
        return self.records.rates

    # Results

    def plan(self) -> Plan:
        rates = {str(index): round(rate, 4) for index, rate in self.records.rates.items()}
        return self.planned({"uniform": self.chosen or ()}, drop_rates=rates)

    def metrics(self) -> dict[str, float]:
        memory = peak_memory()
        sites = super().metrics() if self.method.pruning is not None else {}
        return {**self.records.numbers, **sites, **({} if memory is None else {"peak_memory_mb": memory / 2**20})}

    def record(self) -> dict[str, Any]:
        rates = self.records.rates
        return {"drop_rates": [round(rates[index], 4) for index in self.sites if index in rates], **super().record()}

    def remarks(self) -> list[str]:
        leak = "Rewarded on dev: the generator was trained on the data that this metric was measured on."
        return [*super().remarks(), *([leak] if self.method.reward_source == "dev" else [])]

    def companions(self) -> dict[str, AbstractContextManager[None]]:
        return {} if self.game.plain is None else {"plain": self.game.plain.swapped_in()}

    @property
    def judges_holdout(self) -> bool:
        return self.method.holdout_curve

    def note(self, numbers: Mapping[str, float]) -> None:
        self.records.numbers.update(numbers)

    def alternatives(self) -> dict[str, AbstractContextManager[None]]:
        return {"generator_masks": self.masks.likely()}

    # On disk

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "game": self.game.state_dict(),
            "learning": self.learning.state_dict(),
            "restart": self.restart.state_dict(),
            "records": self.records.state_dict(),
            "random": self.masks.random.get_state(),
            "choices": self.choices.get_state(),
            "held_out": None if self.held_out is None else self.held_out.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.game.load_state_dict(state["game"], self.device)
        self.learning.load_state_dict(state["learning"])
        if "restart" in state:  # version 0.1 did not keep it, and had no scale but the fixed one
            self.restart.load_state_dict(state["restart"])
        self.records.load_state_dict(state["records"])
        self.masks.random.set_state(state["random"])
        self.choices.set_state(state["choices"])
        if self.held_out is not None and state["held_out"] is not None:
            self.held_out.go_to(state["held_out"])


def _most_dropped_first(rates: Mapping[int, float]) -> list[int]:
    """Of sites that are dropped as often, the upper one first."""
    return sorted(rates, key=lambda site: (-rates[site], -site))
