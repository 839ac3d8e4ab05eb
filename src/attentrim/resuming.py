"""Checkpoints to resume from: which one is complete, and whether it belongs to the same run."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .atomic import write_text
from .errors import TrainingError

FINGERPRINT_FILE = "attentrim_run.json"
STATE, CHECKPOINT = "trainer_state.json", re.compile(r"^checkpoint-(\d+)$")
OF_ENGINES = ("pytorch_model_fsdp*", "global_step*")
"""Where FSDP2 keeps its weights, and DeepSpeed everything but random states."""
PARTS = (
    ("*.safetensors", *OF_ENGINES),
    ("optimizer*", OF_ENGINES[1]),
    ("scheduler.pt", OF_ENGINES[1]),
    ("rng_state*.pth",),
)
"""The files that a checkpoint needs to be gone on from: of each line, one."""
THAT_MATTER = (
    *("seed", "data_seed", "learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size"),
    *("gradient_accumulation_steps", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio"),
    *("weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "optim", "optim_args"),
    *("label_smoothing_factor", "bf16", "fp16", "tf32", "train_sampling_strategy", "neftune_noise_alpha"),
    *("dataloader_drop_last", "world_size"),
)
"""Fields of TrainingArguments that change what a run ends with."""
NOT_THE_MODEL = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache")
ROWS = 64
"""Of the training data, looked at to tell it from other data."""


# Which is whole


def steps_in(checkpoint: Path) -> int | None:
    """The step of a checkpoint that is whole; None if it is not.

    The Trainer writes its state last, so what lacks it, or has half of it, was cut off.
    """
    named = CHECKPOINT.match(checkpoint.name)
    try:
        step = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))["global_step"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return step if isinstance(step, int) and (named is None or int(named[1]) == step) else None


def last_complete(directory: str | Path) -> str | None:
    """The last checkpoint of a run that is whole."""
    found = {path: steps_in(path) for path in checkpoints_in(directory)}
    whole = {path: step for path, step in found.items() if step is not None}
    return str(max(whole, key=lambda path: whole[path])) if whole else None


def nothing_to_resume(directory: str | Path) -> str:
    return (
        f"There is no checkpoint to resume from: {directory} holds none that is complete. To train from the start, "
        "leave resume_from_checkpoint out."
    )


def checkpoints_in(directory: str | Path) -> list[Path]:
    place = Path(directory)
    return [path for path in place.iterdir() if CHECKPOINT.match(path.name)] if place.is_dir() else []


def check_whole(checkpoint: str | Path) -> None:
    """Raise an error unless a checkpoint has everything that training needs to resume."""
    place = Path(checkpoint)
    if not place.is_dir():
        raise TrainingError(f"Cannot resume from {checkpoint}: there is no such directory.")
    if steps_in(place) is None:
        raise TrainingError(f"Cannot resume from {checkpoint}: it was not saved completely ({STATE} is damaged).")
    missing = [names[0] for names in PARTS if not any(list(place.glob(pattern)) for pattern in names)]
    if missing:
        raise TrainingError(f"Cannot resume from {checkpoint}: it lacks {' and '.join(missing)}.")


# Whether it is of the same run


def fingerprint(trainer: Any) -> dict[str, Any]:
    """What two parts of one run have in common: model, data, method and settings."""
    method, distillation, args = trainer.method, trainer.distillation, trainer.args
    found = {
        "model": _of_model(trainer.model),
        "training data": _of_data(trainer.train_dataset),
        "method": method.name if method is not None else "none",
        **{f"method_config {name}": value for name, value in (method.settings if method is not None else {}).items()},
        **(distillation.flags if distillation is not None else {}),
        **{name: getattr(args, name) for name in THAT_MATTER if hasattr(args, name)},
        **({"engine": trainer.engine} if trainer.engine else {}),
        **trainer.origin,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def write_fingerprint(checkpoint: str | Path, found: Mapping[str, Any]) -> None:
    write_text(Path(checkpoint) / FINGERPRINT_FILE, json.dumps(dict(found), indent=1) + "\n")


def check_same_run(checkpoint: str | Path, now: Mapping[str, Any]) -> None:
    """Raise if a checkpoint is of a run with another model, other data or other settings."""
    file = Path(checkpoint) / FINGERPRINT_FILE
    if not file.is_file():
        warnings.warn(f"{checkpoint} does not record what it was trained with, so that is not checked.", stacklevel=3)
        return
    try:
        then = json.loads(file.read_text(encoding="utf-8"))
        names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        raise TrainingError(f"Cannot resume from {checkpoint}: {FINGERPRINT_FILE} is damaged.") from None
    if names:
        other = "; ".join(_difference(name, then.get(name), now.get(name)) for name in names[:3])
        raise TrainingError(
            f"Cannot resume from {checkpoint}: it belongs to another run ({other}). Use another output_dir, or start "
            "over."
        )


def _difference(name: str, then: Any, now: Any) -> str:
    if name in ("model", "training data") or name.endswith(" weights"):
        return f"another {name}" if name == "model" else f"other {name}"
    return f"{name} was {_short(then)}, is {_short(now)}"


def _short(value: Any) -> str:
    text = "none" if value is None else json.dumps(value)
    return text if len(text) < 60 else f"{text[:57]}..."


def _of_model(model: Any) -> str:
    config = {key: value for key, value in model.config.to_dict().items() if key not in NOT_THE_MODEL}
    shapes = [[name, list(parameter.shape)] for name, parameter in model.named_parameters()]
    return _digest(json.dumps([config, shapes], sort_keys=True, default=str).encode())


def _of_data(data: Any) -> str | None:
    """Of how many rows, and what is in some of them; None where rows cannot be looked at."""
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__") or not len(data):
        return None
    numbers = sorted({round(place * (len(data) - 1) / (ROWS - 1)) for place in range(ROWS)})
    rows = [repr(_plain(data[number])) for number in numbers]
    if rows[0] != repr(_plain(data[numbers[0]])):
        return str(len(data))  # drawn again each time
    return _digest("\n".join([str(len(data)), *rows]).encode())


def _plain(value: Any) -> Any:
    """Tensors and arrays as lists: their own text leaves numbers out."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def weights_digest(model: str) -> str:
    """Of the weights in a model's directory, by their sizes and ends; of a model on the hub its name."""
    place = Path(model)
    files = sorted([*place.glob("*.safetensors"), *place.glob("*.bin")]) if place.is_dir() else []
    parts = [model.encode()] if not files else []
    for file in files:
        size = file.stat().st_size
        with file.open("rb") as opened:
            head = opened.read(ENDS)
            opened.seek(max(0, size - ENDS))
            parts += [f"{file.name} {size} ".encode(), head, opened.read(ENDS)]
    return _digest(b"".join(parts))


ENDS = 1 << 16
"""Bytes at both ends of a file that are read to tell it from another."""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
