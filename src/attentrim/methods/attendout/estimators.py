"""Ways to credit the generator's decisions with what they led to. Each adds gradients; `learning` takes the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...modes import evaluating
from .draws import Round, merged
from .generator import log_probability, mean_over
from .gradients import frozen, gradient_of, turn
from .masks import Masks
from .scores import by_sample, scores

STEP = 1e-2
"""Length of the look-ahead's steps to either side."""

Batch = Mapping[str, Any]


class Baseline:
    """What is subtracted from the rewards of a window, so that only better or worse than usual counts (b of eq. 5)."""

    def __init__(self, kind: str, decay: float) -> None:
        self.kind, self.decay = kind, decay
        self.average: float | None = None
        """Of the moving average."""

    def advantages(self, rewards: Tensor) -> Tensor:
        if self.kind == "leave_one_out" and len(rewards) > 1:
            return rewards - (rewards.sum() - rewards) / (len(rewards) - 1)
        if self.kind != "moving_average":
            return rewards
        before = 0.0 if self.average is None else self.average
        mean = float(rewards.mean())
        self.average = mean if self.average is None else self.decay * before + (1 - self.decay) * mean
        return rewards - before


def policy_gradient(masks: Masks, window: Sequence[Sequence[Round]], advantages: Tensor) -> None:
    """Ascends sum over t of (r_t - b) log P(a_t), log P averaged over sites and valid pairs (eq. 5, m = 1)."""
    decided = merged([one for rounds in window for one in rounds])
    log_p = log_probabilities(decided, masks.logits_of(decided))
    samples = [one.samples for rounds in window for one in rounds]
    steps = [step for step, rounds in enumerate(window) for _ in rounds]
    sizes = torch.tensor(samples, device=log_p.device)
    # each batch counts by the mean over its samples, each step by the mean over its batches
    weights = [advantages[step] / len(window[step]) for step in steps]
    (-(torch.stack(weights) / sizes).repeat_interleave(sizes) * log_p).sum().backward()


def log_probabilities(decided: Round, logits: Mapping[int, Tensor]) -> Tensor:
    """log P of what was decided for each sample of a batch, [batch]: the mean over sites and decisions."""
    each = [
        log_probability(logits[index], decision == 1, decision >= 0) for index, decision in decided.decisions.items()
    ]
    return torch.stack(each).mean(0)


def contrast(
    model: Any,
    masks: Masks,
    batches: Sequence[Batch],
    *,
    draws: int,
    reward: str = "loss",
    drop_cost: float = 0.0,
    change: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Several masks for each held-out example: each is credited with the example's score under it, against the rest.

    Unlike a reward for a whole step, an example's loss depends on its own few decisions only; and as a mask is
    compared with others of the same example, what is hard about the example cancels out.

    Args:
        draws: Masks per example.
        change: Applied to the scores before they are compared: a control experiment shuffles them.
    """
    for batch in batches:
        repeated = by_sample(batch, lambda value: value.repeat_interleave(draws, 0))
        with evaluating(model), torch.no_grad(), masks.sampled() as draw:
            found = scores(model, repeated, reward)
        found = (change(found) if change is not None else found).reshape(-1, draws)
        advantages = found - (found.sum(1, keepdim=True) - found) / (draws - 1)
        decided = draw.close()
        logits = masks.logits_of(decided)
        # where an example is several rows of a batch (multiple choice), its decisions are those of all of them
        log_p = log_probabilities(decided, logits).reshape(advantages.numel(), -1).mean(1)
        gained = (advantages.flatten() * log_p).mean()
        ((cost_of_dropping(decided, logits, drop_cost) - gained) / len(batches)).backward()


def held_out_gradient(model: Any, masks: Masks, batches: Sequence[Batch], *, drop_cost: float = 0.0) -> None:
    """Descends the held-out loss under the generator's masks, straight through their hard decisions."""
    with evaluating(model), frozen(model):
        for batch in batches:
            with masks.soft() as draw:
                loss = model(**batch)["loss"]
                loss = loss + cost_of_dropping(draw.close(), draw.logits, drop_cost)
                (loss / len(batches)).backward()


def look_ahead(
    model: Any,
    masks: Masks,
    parameters: Sequence[nn.Parameter],
    trained_on: Sequence[Batch],
    batches: Sequence[Batch],
    training_gradient: Sequence[Tensor],
    *,
    drop_cost: float = 0.0,
) -> None:
    """Ascends the cosine of the training gradient under the masks with the gradient on held-out data.

    Its derivative by a mask is that of the masked training loss along a direction: the held-out gradient less what
    `training_gradient` has of it. It is taken from two points, one on either side of the weights.
    """
    direction = turn(gradient_of(model, parameters, batches), training_gradient)
    start = [parameter.detach().clone() for parameter in parameters]
    weights = [parameter.detach() for parameter in parameters]
    noise = masks.random.get_state()
    with evaluating(model), frozen(model):
        for side in (1, -1):
            torch._foreach_copy_(weights, torch._foreach_add(start, direction, alpha=side * STEP))
            masks.random.set_state(noise)
            for batch in trained_on:
                with masks.soft() as draw:
                    agreement = side * model(**batch)["loss"] / (2 * STEP)
                    loss = cost_of_dropping(draw.close(), draw.logits, drop_cost) / 2 - agreement
                    (loss / len(trained_on)).backward()
        torch._foreach_copy_(weights, start)


def cost_of_dropping(decided: Round, logits: Mapping[int, Tensor], price: float) -> Tensor:
    """What keeps attention whose absence makes no difference: a price on the chance of being dropped."""
    each = [mean_over(torch.sigmoid(-part), decided.decisions[index] >= 0).mean() for index, part in logits.items()]
    return price * torch.stack(each).mean()
