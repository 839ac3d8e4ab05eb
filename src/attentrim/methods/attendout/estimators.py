"""Ways to tell the generator what its masks are worth. Each adds gradients to it; the session takes the step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...modes import evaluating
from .draws import Round, merged
from .generator import log_probability, mean_over
from .rewards import by_sample, worth

if TYPE_CHECKING:
    from .session import AttendOutSession

STEP = 1e-2
"""Length of the look-ahead's steps to either side."""

Batch = Mapping[str, Any]


class Baseline:
    """What is taken off the rewards of a window, so that only better or worse than usual counts (b of eq. 5)."""

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


def policy_gradient(session: AttendOutSession, window: Sequence[Sequence[Round]], advantages: Tensor) -> None:
    """Ascends sum over t of (r_t - b) log P(a_t), log P averaged over sites and valid pairs (eq. 5, m = 1)."""
    played = merged([played for rounds in window for played in rounds])
    log_p = log_probabilities(played, session.replayed(played))
    samples = [len(next(iter(one.valid.values()))) for rounds in window for one in rounds]
    steps = [step for step, rounds in enumerate(window) for _ in rounds]
    sizes = torch.tensor(samples, device=log_p.device)
    # each batch counts by the mean over its samples, each step by the mean over its batches
    weights = [advantages[step] / len(window[step]) for step in steps]
    (-(torch.stack(weights) / sizes).repeat_interleave(sizes) * log_p).sum().backward()


def log_probabilities(played: Round, logits: Mapping[int, Tensor]) -> Tensor:
    """log P of what was decided for each sample of a batch, [batch]: the mean over sites and decisions."""
    each = [
        log_probability(logits[index], decision == 1, decision >= 0) for index, decision in played.decisions.items()
    ]
    return torch.stack(each).mean(0)


def contrast(session: AttendOutSession, batches: Sequence[Batch]) -> None:
    """Several masks for each held-out example: each is credited with how the example fared under it, against the rest.

    Unlike a reward for a whole step, an example's loss speaks of its own few decisions only; and as a mask is compared
    with others of the same example, what is hard about the example cancels out.
    """
    model, draws = session.model, session.method.draws
    for batch in batches:
        repeated = by_sample(batch, lambda value: value.repeat_interleave(draws, 0))
        with evaluating(model), torch.no_grad(), session.sampled_masks() as draw:
            worths = worth(model, repeated, session.method.reward)
        worths = (session.shuffled(worths) if session.method.shuffle_rewards else worths).reshape(-1, draws)
        advantages = worths - (worths.sum(1, keepdim=True) - worths) / (draws - 1)
        played = draw.close()
        logits = session.replayed(played)
        # where an example is several rows of a batch (multiple choice), its decisions are those of all of them
        log_p = log_probabilities(played, logits).reshape(advantages.numel(), -1).mean(1)
        gained = (advantages.flatten() * log_p).mean()
        ((cost_of_dropping(session, played, logits) - gained) / len(batches)).backward()


def held_out_gradient(session: AttendOutSession, batches: Sequence[Batch]) -> None:
    """Descends the held-out loss under the generator's masks, straight through their hard decisions."""
    model = session.model
    with evaluating(model), frozen(model):
        for batch in batches:
            with session.soft_masks() as draw:
                loss = model(**batch)["loss"]
                loss = loss + cost_of_dropping(session, draw.close(), draw.logits)
                (loss / len(batches)).backward()


def look_ahead(
    session: AttendOutSession, trained_on: Sequence[Batch], batches: Sequence[Batch], taken: Sequence[Tensor]
) -> None:
    """Ascends the cosine of the training gradient under the masks with the gradient on held-out data.

    Its derivative by a mask is that of the masked training loss along a direction: the held-out gradient less what the
    training gradient `taken` has of it. It is had from two points, one on either side of the weights.
    """
    model = session.model
    direction = _turn(_gradient(model, session.parameters, batches), taken)
    start = [parameter.detach().clone() for parameter in session.parameters]
    weights = [parameter.detach() for parameter in session.parameters]
    noise = session.random.get_state()
    with evaluating(model), frozen(model):
        for side in (1, -1):
            torch._foreach_copy_(weights, torch._foreach_add(start, direction, alpha=side * STEP))
            session.random.set_state(noise)
            for batch in trained_on:
                with session.soft_masks() as draw:
                    agreement = side * model(**batch)["loss"] / (2 * STEP)
                    loss = cost_of_dropping(session, draw.close(), draw.logits) / 2 - agreement
                    (loss / len(trained_on)).backward()
        torch._foreach_copy_(weights, start)


def cost_of_dropping(session: AttendOutSession, played: Round, logits: Mapping[int, Tensor]) -> Tensor:
    """What keeps attention whose absence makes no difference: a price on the chance of being dropped."""
    each = [mean_over(torch.sigmoid(-part), played.decisions[index] >= 0).mean() for index, part in logits.items()]
    return session.method.drop_cost * torch.stack(each).mean()


def _turn(wanted: Sequence[Tensor], taken: Sequence[Tensor]) -> list[Tensor]:
    """The unit vector in which `taken` would have to turn to point more towards `wanted`."""
    wanted, taken = _unit(wanted), _unit(taken)
    cosine = torch.stack([(one * other).sum() for one, other in zip(wanted, taken, strict=True)]).sum()
    return _unit([one - cosine * other for one, other in zip(wanted, taken, strict=True)])


def _unit(tensors: Sequence[Tensor]) -> list[Tensor]:
    length = torch.stack(torch._foreach_norm(list(tensors))).norm().clamp(min=1e-12)
    return [tensor / length for tensor in tensors]


def _gradient(model: Any, parameters: Sequence[nn.Parameter], batches: Sequence[Batch]) -> list[Tensor]:
    """Of the mean loss over the batches; the model's own gradients are left alone."""
    with evaluating(model), torch.enable_grad():
        loss = torch.stack([model(**batch)["loss"] for batch in batches]).mean()
        found = torch.autograd.grad(loss, list(parameters), allow_unused=True)
    pairs = zip(found, parameters, strict=True)
    return [torch.zeros_like(parameter) if part is None else part for part, parameter in pairs]


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No gradient into the weights for a while: what is wanted flows past them."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
