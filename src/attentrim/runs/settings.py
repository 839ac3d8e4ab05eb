"""What a run is made from: one dataclass for the Python API, the flags of `train` and YAML. Imports no torch."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..distillation import flag_help
from ..errors import AttentrimError, MethodError, unknown_name
from ..methods import METHODS, Method
from ..tasks import TASKS
from ..tasks.own import TYPES
from ..tasks.tables import FORMATS

NO_METHOD = "none"
"""Plain fine-tuning."""
DEFAULT_METHOD = "autoattention"
SPEED_METHOD = "fisher"
"""What `--speedup` asks for, unless a method is named."""
EMBEDDED_TASK = "acceptability"
"""The task that needs no files, and has a default model."""
PLACES = ("model", "teacher", "data_dir", "dataset", "train_file", "validation_file", "test_file")
"""Settings that may name a file or directory: a config has the whole path, so that it works from any directory."""


def setting(default: Any, help: str, metavar: str | None = None) -> Any:
    """A field that is a flag, too."""
    return field(default=default, metadata={"help": help, "metavar": metavar})


def speed_help(name: str) -> str:
    """The help text of a setting of the method that works to a speed, which is a flag of its own too."""
    (entry,) = (entry for entry in METHODS[SPEED_METHOD].setting_fields() if entry.name == name)
    return str(entry.metadata["help"])


@dataclass(kw_only=True)
class TaskSettings:
    """A model, and the data to train or evaluate it on."""

    model: str | None = setting(
        None, "a model directory, GGUF file or hub name (with --task acceptability: MiniLM-L6)"
    )
    task: str | None = setting(None, f"one of: {', '.join(TASKS.names())}", "NAME")
    data_dir: str | None = setting(
        None, "a local copy of the task in its published layout (default: download it from the hub)"
    )
    dataset: str | None = setting(
        None, "a hub name or a directory saved by `datasets`: your own data, or a mirror of the task"
    )
    dataset_config: str | None = setting(None, "the configuration (subset) of the dataset", "NAME")
    train_file: str | None = setting(None, f"your own training data: {', '.join(FORMATS)}", "FILE")
    validation_file: str | None = setting(
        None, "your own validation data (default: a tenth of the training rows, held out)", "FILE"
    )
    test_file: str | None = setting(None, "your own test data, for evaluate --split test", "FILE")
    task_type: str | None = setting(
        None, f"one of: {', '.join(TYPES)} (default: inferred from the data, or from the trained model)"
    )
    text_column: str | None = setting(None, "the column with the text, or with words to tag", "NAME")
    text_pair_column: str | None = setting(None, "the column with the second text of a pair", "NAME")
    label_column: str | None = setting(None, "the column with the label", "NAME")
    choice_columns: str | None = setting(None, "the columns with the choices", "A,B,C")
    max_length: int | None = setting(
        None, "longest input in tokens; longer ones are cut (default: 128; imdb: 512; clm: blocks of 512)"
    )
    window_stride: int | None = setting(
        None, "read long texts in windows of max_length that overlap by this many tokens; their scores are averaged"
    )
    skip_bad_rows: bool = setting(False, "skip rows that cannot be read, and print how many")
    max_eval_samples: int | None = setting(None, "evaluate only on the first N examples", "N")


@dataclass(kw_only=True)
class RunSettings(TaskSettings):
    """The settings of a run: `attentrim.runs.pipeline.run(RunSettings(...))`.

    `training` holds fields of TrainingArguments by name; the others have the defaults of `attentrim train`.
    `method_config` holds the settings of the method.
    """

    max_train_samples: int | None = setting(None, "train only on the first N examples", "N")
    dropout: float | None = setting(
        None, "the rate of all of the model's own dropout (default: as in its config; for embedding 0)", "RATE"
    )
    method: str | None = setting(
        None,
        f"one of: {', '.join([*METHODS.names(), NO_METHOD])} (default: {DEFAULT_METHOD}; with --speedup or --max_drop "
        f"{SPEED_METHOD})",
    )
    speedup: str | None = setting(None, speed_help("speedup"), "X")
    max_drop: float | None = setting(None, speed_help("max_drop"), "X")
    speed_batch: int | None = setting(None, speed_help("speed_batch"), "N")
    speed_length: int | None = setting(None, speed_help("speed_length"), "N")
    speed_dtype: str | None = setting(None, speed_help("speed_dtype"), "NAME")
    speed_backend: str | None = setting(None, speed_help("speed_backend"), "NAME")
    speed_device: str | None = setting(None, speed_help("speed_device"), "NAME")
    speed_table: str | None = setting(None, speed_help("speed_table"), "FILE")
    speed_elsewhere: bool = setting(False, speed_help("speed_elsewhere"))
    teacher: str | None = setting(
        None,
        "the trained dense model to distil from (default: the model after the method's dense steps; for embedding, "
        "the model at the start)",
    )
    distill_logits: float | None = setting(None, flag_help("distill_logits"), "X")
    distill_hidden: float | None = setting(None, flag_help("distill_hidden"), "X")
    distill_embedding: float | None = setting(None, flag_help("distill_embedding"), "X")
    distill_similarity: float | None = setting(None, flag_help("distill_similarity"), "X")
    distill_temperature: float | None = setting(None, flag_help("distill_temperature"), "X")
    distill_noise: float | None = setting(None, flag_help("distill_noise"), "X")
    label_weight: float | None = setting(None, flag_help("label_weight"), "X")
    lora_rank: int | None = setting(
        None, "train LoRA adapters of this rank on the linear layers, merged at the end (needs peft)", "N"
    )
    lora_alpha: float | None = setting(
        None, "LoRA's alpha: adapters are scaled by alpha / rank (default: 2 x lora_rank)", "X"
    )
    lora_targets: str | None = setting(
        None, "linear layers that get adapters, such as q_proj,v_proj (default: all inside the model's layers)", "A,B"
    )
    output_dir: str = setting("", "directory of the run: final checkpoint, plan, metrics, history and config")
    overwrite_output_dir: bool = setting(
        False, "start over if the directory holds a run; without it, an interrupted run resumes"
    )
    keep_checkpoints: bool = setting(
        False,
        "keep the last training checkpoint when the run has finished; --save_total_limit N keeps the last N",
    )
    no_trim: bool = setting(False, "do not trim: save the model in its full shape, with the plan beside it")
    no_bench: bool = setting(False, "do not time the trimmed model at the end")
    method_config: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Flags about speed are settings of the method."""
        flags = {name: value for name in SPEED_SETTINGS if given(value := getattr(self, name))}
        if self.method is None:
            self.method = SPEED_METHOD if flags.keys() & {"speedup", "max_drop"} else DEFAULT_METHOD
        if flags:
            self.method_config = {**self.method_config, **flags_of_method(self.method, flags)}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> RunSettings:
        """From names and values as YAML gives them. What is no setting of ours goes to TrainingArguments."""
        rest = dict(values)
        method_config = rest.pop("method_config", None) or {}
        if not isinstance(method_config, Mapping):
            raise AttentrimError("method_config must be a mapping, such as 'target_sparsity: 0.5'.")
        own = {
            name: _converted(name, value, kind)
            for name, kind in setting_types(cls).items()
            if (value := rest.pop(name, None)) is not None
        }
        return cls(**own, method_config=dict(method_config), training=rest)

    def to_mapping(self) -> dict[str, Any]:
        """The settings of ours that were given, with whole paths."""
        # those about speed are in method_config; what repeats a run does not take its place
        names = [name for name in RUN_SETTINGS if name not in (*SPEED_SETTINGS, "overwrite_output_dir")]
        own = {name: value for name in names if given(value := getattr(self, name)) and value != ""}
        for name in own.keys() & set(PLACES):
            own[name] = str(Path(own[name]).resolve()) if Path(own[name]).exists() else own[name]
        return own

    @property
    def embedded(self) -> bool:
        """Whether the model is the default one of the task that needs no files."""
        return self.task == EMBEDDED_TASK and not self.model

    def check(self) -> None:
        """Raise if something is missing that every run needs."""
        for name in ("model", "output_dir"):
            if not getattr(self, name) and not (name == "model" and self.embedded):
                raise AttentrimError(f"--{name} is missing: give it on the command line or in --config.")


def setting_types(settings: type[TaskSettings]) -> dict[str, type]:
    """The fields that are flags, with their types."""
    hints = typing.get_type_hints(settings)
    return {entry.name: _plain(hints[entry.name]) for entry in fields(settings) if "help" in entry.metadata}


def _plain(hint: Any) -> type:
    """int from `int | None`"""
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    return parts[0] if parts else hint  # type: ignore[no-any-return]


DATA_SETTINGS = tuple(name for name in setting_types(TaskSettings) if name != "model")
"""What the data is."""
RUN_SETTINGS = tuple(setting_types(RunSettings))
"""All of ours that `attentrim train` takes as flags and in a config file, besides method_config."""


SPEED_SETTINGS = (
    "speedup",
    "max_drop",
    "speed_batch",
    "speed_length",
    "speed_dtype",
    "speed_backend",
    "speed_device",
    "speed_table",
    "speed_elsewhere",
)
"""Flags that are settings of the method."""


def flags_of_method(method: str | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags about speed, if the method works to one; raises otherwise."""
    known = METHODS[method].accepted_names() if method and method in METHODS else []
    for name in flags:
        if name not in known:
            able = [other for other in METHODS if name in METHODS[other].accepted_names()]
            raise MethodError(f"The method {method!r} does not know --{name}: use {' or '.join(able)}.")
    return dict(flags)


def given(value: Any) -> bool:
    """Whether a flag was given; 0 is a value."""
    return value is not None and value is not False


def _converted(name: str, value: Any, kind: type) -> Any:
    """A value of one of our own settings as YAML gives it: 1e3 arrives as text, and a name may look like a number."""
    try:
        if isinstance(value, dict | list):
            raise ValueError
        if kind is bool:
            return {"true": True, "false": False}[str(value).lower()]
        if kind is str:
            return str(value)
        number = float(value)
        if kind is int and number % 1:
            raise ValueError
        return kind(number)
    except (KeyError, ValueError, TypeError, OverflowError):
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        raise AttentrimError(f"{name} in the config must be {words[kind]}. Got {value!r}.") from None


def read_method(name: str | None, settings: Mapping[str, Any]) -> Method | None:
    """The method under a name; None for plain fine-tuning."""
    if name == NO_METHOD:
        if settings:
            raise MethodError("The method 'none' has no settings: leave --method_config out.")
        return None
    if name is None or name not in METHODS:
        raise MethodError(unknown_name("method", name, [*METHODS.names(), NO_METHOD]))
    return METHODS[name].from_settings(settings)


def comma_separated(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
