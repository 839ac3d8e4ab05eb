"""What a method is: its own settings, and the way to put it to work on a model. Imports no torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from ..distillation import FLAGS, OF_EMBEDDINGS, Distillation
from ..errors import MethodError
from ..options import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    SHARE_OR_ALL,
    Options,
    check_options,
    current_fields,
    from_text,
    one_of,
    option,
    renamed,
)
from ..plugins import PlugIns
from ..registry import Registry

if TYPE_CHECKING:
    from ..calibration import HeldOut
    from ..plan import Plan
    from .session import Session

METHODS: Registry[type[Method]] = Registry(
    "method",
    PlugIns(
        "attentrim.methods",
        "a subclass of attentrim.methods.Method",
        lambda entry: isinstance(entry, type) and issubclass(entry, Method),
    ),
)
TRAINING_DEFAULTS = {"num_train_epochs": 4, "learning_rate": 3e-5, "per_device_train_batch_size": 32}
"""Epochs and learning rate are those of the AutoAttention paper; no paper names a batch size."""
REWARD_SOURCES = ("train_split", "dev", "noisy_train")


@dataclass(frozen=True)
class DataNeeds:
    """The data that a method needs besides the training batches. The Trainer provides it."""

    calibration: int = 0
    """How many training examples, with labels, to pass as `calibration` of `attach`."""
    holdout: float = 0.0
    """The share of the training data to hold out; `evaluate` returns the metric on it."""
    rewards: str | None = None
    """What `held_out` draws from: the held-out share (train_split), the evaluation data (dev), or corrupted training
    data (noisy_train)."""
    noise: float = 0.0
    """noisy_train: the share of tokens to replace."""

    def __post_init__(self) -> None:
        if self.rewards is not None and self.rewards not in REWARD_SOURCES:
            raise MethodError(f"rewards must be one of {', '.join(REWARD_SOURCES)}. Got {self.rewards!r} instead.")


@dataclass(kw_only=True)
class Method(Options):
    """Base class of all methods. A method is its own config: its fields are settings, checked when it is created."""

    name: ClassVar[str]
    """The name on the command line and in plans."""
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    searches: ClassVar[bool] = False
    """Whether it can choose a plan for a model without training the model (`attentrim plan`)."""

    distill_logits: float | None = renamed("Distillation(logits=...)", NOT_NEGATIVE)
    distill_hidden: float | None = renamed("Distillation(hidden=...)", NOT_NEGATIVE)
    distill_temperature: float | None = renamed("Distillation(temperature=...)", POSITIVE)
    distill_noise: float | None = renamed("Distillation(noise=...)", SHARE)
    label_weight: float | None = renamed("Distillation(label_weight=...)", NOT_NEGATIVE)

    def __post_init__(self) -> None:
        check_options(self)
        for entry in fields(self):
            if entry.name in FLAGS and getattr(self, entry.name) is not None:
                warnings.warn(_moved(entry), FutureWarning, stacklevel=4)
        Distillation.from_flags(self._old_settings)  # raises where they contradict each other

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Method:
        """From `k=v` pairs of a command line or a YAML mapping."""
        return cls(**from_text(cls, settings))

    @classmethod
    def setting_fields(cls) -> list[Field[Any]]:
        """The settings, with default, help text and rule."""
        return current_fields(cls)

    @classmethod
    def setting_names(cls) -> list[str]:
        return [entry.name for entry in cls.setting_fields()]

    @classmethod
    def accepted_names(cls) -> list[str]:
        """The settings and their old names, which still work."""
        return [entry.name for entry in fields(cls)]

    @property
    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.setting_names()}

    @property
    def distillation(self) -> Distillation | None:
        """What the old settings of distillation ask for; None without them."""
        return Distillation.from_flags(self._old_settings)

    @property
    def _old_settings(self) -> dict[str, Any]:
        return {name: getattr(self, name, None) for name in FLAGS}

    @property
    def training_defaults(self) -> dict[str, Any]:
        """Default TrainingArguments of the command line for this method."""
        return dict(TRAINING_DEFAULTS)

    @property
    def dense(self) -> float:
        """The share of the steps before anything is removed. The model after them is the teacher for the rest."""
        return 0.0

    @property
    def restarts(self) -> list[float]:
        """The shares of the steps at which the learning rate schedule restarts."""
        return [self.dense] if self.dense else []

    @property
    def default_distillation(self) -> Distillation | None:
        """The distillation that attentrim's Trainer uses by default."""
        return None

    def starting_from(self, trained: bool) -> Method:
        """The method to use for a model that is already trained for its task, or is not."""
        return self

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of structure that it removes."""
        return ()

    @property
    def whole_weights(self) -> str:
        """Why the method needs all weights in each process while it trains; empty if it does not.

        If it does, engines that shard weights (FSDP2, DeepSpeed) raise an error.
        """
        return ""

    @property
    def no_adapters(self) -> str:
        """Why the method cannot train a model with adapters (LoRA); empty if it can."""
        return self.whole_weights

    @property
    def data(self) -> DataNeeds:
        """The data that the method needs besides the training batches."""
        return DataNeeds()

    @property
    def reason(self) -> str:
        """How the method chooses what to remove, in one sentence for the report."""
        return "This method removes nothing: it changes how the model is trained."

    def attach(
        self,
        model: Any,
        *,
        steps: int | None = None,
        calibration: Iterable[Mapping[str, Any]] | None = None,
        evaluate: Callable[[], float] | None = None,
        held_out: HeldOut | None = None,
        seed: int = 0,
    ) -> Session:
        """Put the method to work on a live model.

            session = method.attach(model, steps=1000)
            session.follow(optimizer)          # each optimizer.step() is then a step of the method too
            ...                                # the usual loop: forward, backward, optimizer.step()
            session.finish()
            plan = session.plan()

        Args:
            steps: The number of optimiser steps of the training; needed by methods that follow a schedule.
            calibration: Batches with labels, for methods that score heads; iterated from the start each time.
            held_out: Random batches of data that is not trained on.
            evaluate: Returns the metric of the current model (higher is better) on data that is not trained on.
            seed: Seed of the method's own random numbers; torch's are not touched.
        """
        session = self.session(model, calibration=calibration, evaluate=evaluate, held_out=held_out, seed=seed)
        try:
            if steps is not None:
                session.begin(steps)
        except MethodError:
            session.detach()
            raise
        return session

    def session(self, model: Any, **surroundings: Any) -> Session:
        raise NotImplementedError

    def check_search(self) -> None:
        """Raise if it cannot choose without training."""
        if not self.searches:
            able = [name for name in METHODS if METHODS[name].searches]
            raise MethodError(
                f"The method {self.name!r} learns what to remove while the model trains: use a Trainer, or "
                f"`attentrim train`. Without training: {', '.join(able)}."
            )

    def search(self, model: Any, calibration: Iterable[Mapping[str, Any]] | None = None, seed: int = 0) -> Plan:
        """A plan for `model` without training it. Some methods train parameters of their own."""
        self.check_search()
        if self.data.calibration and calibration is None:
            raise MethodError(
                f"{type(self).__name__} looks at data: search(model, calibration=...) takes an iterable of batches, "
                "such as a DataLoader."
            )
        session = self.attach(model, calibration=calibration, seed=seed)
        try:
            session.search()
            return session.plan()
        finally:
            session.detach()


def _moved(entry: Field[Any]) -> str:
    return (
        f"{entry.name} is no longer a setting of a method: use Trainer(distillation={entry.metadata['renamed']}), or "
        f"--{entry.name} on the command line (in YAML: {entry.name}, beside method_config)."
    )


def distillation_for(
    method: Method | None, distillation: Distillation | None, embeds: bool = False
) -> Distillation | None:
    """The distillation of a run: what it was given, or else what the method's settings ask for.

    Args:
        embeds: Whether the model embeds sentences: it learns from embeddings then, with any method.
    """
    old = method.distillation if method is not None else None
    if old is not None and distillation is not None and old != distillation:
        raise MethodError("Distillation is set twice: remove distill_logits and similar settings from the method.")
    if embeds:
        return distillation or old or OF_EMBEDDINGS
    return distillation or old or (method.default_distillation if method is not None else None)


SHARES_OF = ("heads", "parameters", "flops")


@dataclass(kw_only=True)
class GateMethod(Method):
    """Base of the methods that gate units, heads unless told otherwise, and remove some."""

    dense_share: float | None = option(
        None, "share of the steps for plain fine-tuning first; the learning rate schedule then restarts", SHARE
    )

    @property
    def dense(self) -> float:
        return self.dense_share or 0.0

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of structure that it gates."""
        return ("heads",)

    @property
    def measure(self) -> str | None:
        """What units are weighed by: parameters or flops; None: each counts as one."""
        return None

    @property
    def subject(self) -> str:
        """What a target is a share of, in words."""
        units = f"all {' and '.join(self.kinds)}"
        named = {"parameters": f"the parameters of {units}", "flops": f"the FLOPs of {units}"}
        return units if self.measure is None else named[self.measure]


@dataclass(kw_only=True)
class SparsityMethod(GateMethod):
    """Base of the methods that can remove a given share."""

    target_sparsity: float | None = option(None, "remove exactly this share (of what: see share_of)", SHARE)


@dataclass(kw_only=True)
class PruneMethod(SparsityMethod):
    """Base of the methods that can prune any kind of units that can be gated one by one."""

    prune: str = option("heads", "what to prune, comma-separated: heads, neurons")
    share_of: str | None = option(
        None,
        "what target_sparsity is a share of: heads, parameters or flops; scores and penalties are then per parameter "
        "or FLOP (default: heads if only heads are pruned, otherwise flops)",
        one_of(SHARES_OF),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise MethodError(f"prune names kinds of structure, each once, such as heads,neurons. Got {self.prune!r}.")
        if self.share_of == "heads" and self.kinds != ("heads",):
            raise MethodError(
                f"With prune={self.prune}, set share_of to parameters or flops: a share of the heads would leave out "
                "the rest."
            )

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.prune.split(",") if part.strip())

    @property
    def measure(self) -> str | None:
        if self.share_of is None:
            return None if self.kinds == ("heads",) else "flops"
        return None if self.share_of == "heads" else self.share_of


@dataclass(kw_only=True)
class LearnedMethod(PruneMethod):
    """Base of the methods whose gates learn beside the weights."""

    penalty: float | None = option(1e-3, "what each open gate adds to the loss", NOT_NEGATIVE)
    gate_lr: float = option(1.0, "learning rate of the gates' own optimiser", NOT_NEGATIVE)
    ramp_share: float = option(
        0.6,
        "with a target: share of the search during which the number of closed gates rises to the target",
        SHARE_OR_ALL,
    )
    settle_share: float = option(
        0.2, "with a target: share of all steps, at the end, during which the set of closed gates is fixed", SHARE
    )

    @property
    def pressure(self) -> float:
        """The penalty in force."""
        assert self.penalty is not None
        return self.penalty

    @property
    def reason(self) -> str:
        if self.target_sparsity is None:
            return (
                f"Removed the {' and '.join(self.kinds)} whose gates were closed when training ended: under a "
                "penalty of "
                f"{self.pressure:g} for each open gate, their parameters sank to where the gate is 0."
            )
        return (
            f"Removed {self.target_sparsity:.0%} of {self.subject}: those whose gate parameters were the lowest "
            f"when the set was fixed, {self.settle_share:.0%} of the steps before the end."
        )


@dataclass(kw_only=True)
class ScoringMethod(SparsityMethod):
    """Base of the methods that choose units in one go, and do not learn gates."""

    target_sparsity: float = option(0.5, "remove exactly this share (of what: see share_of)", SHARE)
    searches: ClassVar[bool] = True
    chosen_by: ClassVar[str]
    """Which units are removed, as the continuation of 'Removed 50% of all heads: those'."""

    @property
    def reason(self) -> str:
        return f"Removed {self.target_sparsity:.0%} of {self.subject}: those {self.chosen_by}."


@dataclass(kw_only=True)
class Regulariser(Method):
    """Base of the methods that drop attention at random while training, and remove nothing in the end."""
