"""Read a sentence-transformers directory, as older and newer versions of it write one. Code in it is never run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.utils.hub import cached_file

from ..errors import AttentrimError, UnsupportedModelError, unknown_name
from ..guarded import MOST_BYTES, belongs, parse_json
from .listing import MODULES, is_entry
from .modules import Dense, Normalize, SentenceModules, Truncate, activation_named
from .pooling import MODES

SETTINGS = "config_sentence_transformers.json"
LENGTHS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Where the longest input stands: the name is the first model that it was written for, whatever the model is."""
TOKENIZER = "tokenizer_config.json"
"""Where it stands since version 6: as model_max_length."""
WHOLE = "SentenceTransformer"
"""The kind of model that is read here. Directories of others say so."""
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
MOST_WEIGHTS = 2**28
"""Bytes of a projection."""
UNLIMITED = 1e9
OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""How versions before 5 say what newer ones call `pooling_mode`."""
KNOWN = ("Transformer", "Pooling", "Dense", "Normalize")
TOKENS, SENTENCE = "token_embeddings", "sentence_embedding"
"""What modules read and write."""


def find_modules(name: str) -> SentenceModules | None:
    """What the directory of a model, or its place on the hub, says; None where it is not one of sentence-transformers.

    Whatever cannot be done as it says is refused by name.
    """
    files = _Files(name)
    listed = files.json(MODULES)
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(is_entry(entry) for entry in listed):
        raise AttentrimError(f"{name}: {MODULES} must be a list of modules, each with a type and a path.")
    settings = files.mapping(SETTINGS)
    if settings.get("model_type") not in (None, WHOLE):
        raise UnsupportedModelError(
            f"{name} is a {settings['model_type']} of sentence-transformers: only a {WHOLE} gives each text one "
            "embedding."
        )
    kinds = [_kind(entry["type"], name) for entry in listed]
    if kinds[:2] != ["Transformer", "Pooling"] or "Transformer" in kinds[1:] or "Pooling" in kinds[2:]:
        raise UnsupportedModelError(
            f"{name}: its modules are {', '.join(kinds) or 'none'}; attentrim knows Transformer, Pooling, and then "
            "any of Dense and Normalize."
        )
    if listed[0]["path"]:
        raise UnsupportedModelError(
            f"{name}: its transformer lies in {listed[0]['path']}, as old versions of sentence-transformers wrote it. "
            "Save it again: SentenceTransformer(old).save_pretrained(new)."
        )
    lengths: Mapping[str, Any] = next((found for file in LENGTHS if (found := files.mapping(file))), {})
    if lengths.get("transformer_task", "feature-extraction") != "feature-extraction":
        raise UnsupportedModelError(f"{name}: its transformer is used for {lengths['transformer_task']}.")
    prompt = _default_prompt(settings, name)
    pooling = files.mapping(f"{listed[1]['path']}/config.json")
    if prompt and not pooling.get("include_prompt", True):
        raise UnsupportedModelError(f"{name}: its pooling leaves out the default prompt (include_prompt: false).")
    steps = [
        _dense(files, entry["path"]) if kind == "Dense" else _normalize(files, entry["path"])
        for entry, kind in list(zip(listed, kinds, strict=True))[2:]
    ]
    truncated = _whole(settings.get("truncate_dim"))
    return SentenceModules(
        _modes(pooling, name),
        (*steps, *([Truncate(truncated)] if truncated else [])),
        _whole(lengths.get("max_seq_length")) or _tokenizer_length(files),
        bool(lengths.get("do_lower_case")),
        prompt,
        files.read,
    )


def _default_prompt(settings: Mapping[str, Any], model: str) -> str:
    prompts, named = settings.get("prompts") or {}, settings.get("default_prompt_name")
    found = prompts.get(named) if isinstance(prompts, dict) and isinstance(named, str) else None
    if named is not None and not isinstance(found, str):
        raise AttentrimError(f"{model}: {SETTINGS} names the prompt {named!r}, and holds no text under that name.")
    return found or ""


def _kind(name: str, model: str) -> str:
    """Pooling, of sentence_transformers.models.Pooling; newer versions have longer names for the same."""
    package, _, kind = name.partition(".")[0], "", name.rpartition(".")[2]
    if package != "sentence_transformers":
        raise UnsupportedModelError(f"{model}: the module {name} is code of its own, which is not run.")
    if kind not in KNOWN:
        raise UnsupportedModelError(f"{model}: " + unknown_name("module of sentence-transformers", kind, KNOWN))
    return kind


def _modes(config: Mapping[str, Any], model: str) -> tuple[str, ...]:
    found = config.get("pooling_mode")
    if found is None:
        found = [mode for name, mode in OLD_MODES.items() if config.get(name)] or ["mean"]
    modes = tuple([found] if isinstance(found, str) else found)
    for mode in modes:
        if mode not in MODES:
            raise UnsupportedModelError(f"{model}: " + unknown_name("way of pooling", mode, MODES))
    return modes


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _tokenizer_length(files: _Files) -> int | None:
    """None where there is no limit, which the tokenizer's settings say with a number of 31 digits."""
    content = files.content(TOKENIZER, MOST_BYTES, keep=False)
    try:
        settings = json.loads(content or b"{}", parse_int=float)
    except (ValueError, RecursionError):
        return None  # who reads the tokenizer will say so
    found = settings.get("model_max_length") if isinstance(settings, dict) else None
    return int(found) if isinstance(found, float) and 0 < found < UNLIMITED else None


def _check_wiring(config: Mapping[str, Any], path: str, model: str) -> None:
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, SENTENCE):
            raise UnsupportedModelError(f"{model}: the module {path} works on {config[key]}, not on {SENTENCE}.")


def _normalize(files: _Files, path: str) -> Normalize:
    _check_wiring(files.mapping(f"{path}/config.json"), path, files.name)
    return Normalize()


def _dense(files: _Files, path: str) -> Dense:
    config = files.mapping(f"{path}/config.json")
    if not config:
        raise AttentrimError(f"{files.name}: {path}/config.json is missing.")
    _check_wiring(config, path, files.name)
    if config.get("use_residual"):
        raise UnsupportedModelError(f"{files.name}: the module {path} adds its input to its output (use_residual).")
    named = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    activation = activation_named(str(named))
    if activation is None:
        raise UnsupportedModelError(f"{files.name}: {path} has the activation {named}, which is none of torch.nn.")
    weights = files.weights(path)
    weight, bias = weights.get("linear.weight"), weights.get("linear.bias")
    if weight is None or weight.shape != (config.get("out_features"), config.get("in_features")):
        raise AttentrimError(f"{files.name}: the weights in {path} do not match its config.json.")
    return Dense(weight, bias, activation)


class _Files:
    """The files of a model, in a directory or in the hub's cache; remembers what it read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.read: dict[str, bytes] = {}

    def json(self, file: str) -> Any:
        """None where there is no such file."""
        content = self.content(file, MOST_BYTES)
        if content is None:
            return None
        try:
            return parse_json(content.decode("utf-8"))
        except (AttentrimError, UnicodeDecodeError) as error:
            raise AttentrimError(f"Cannot read {file} of {self.name}: {error}.") from error

    def mapping(self, file: str) -> dict[str, Any]:
        """Settings by name; none where there is no such file."""
        found = self.json(file)
        if found is not None and not isinstance(found, dict):
            raise AttentrimError(f"{self.name}: {file} must hold settings by name.")
        return found or {}

    def weights(self, folder: str) -> dict[str, Tensor]:
        from io import BytesIO

        from safetensors.torch import load

        for file in WEIGHTS:
            content = self.content(f"{folder}/{file}", MOST_WEIGHTS)
            if content is None:
                continue
            try:
                if file.endswith(".safetensors"):
                    return dict(load(content))
                return dict(torch.load(BytesIO(content), map_location="cpu", weights_only=True))
            except Exception as error:
                raise AttentrimError(f"Cannot read {folder}/{file} of {self.name}: {error}") from error
        raise AttentrimError(f"{self.name}: {folder} holds no weights ({' or '.join(WEIGHTS)}).")

    def content(self, file: str, most: int, keep: bool = True) -> bytes | None:
        """`keep`: the file belongs to the modules, and is written with them."""
        path = self._path(file)
        if path is None:
            return None
        with path.open("rb") as opened:
            content = opened.read(most + 1)
        if len(content) > most:
            raise AttentrimError(f"{file} of {self.name} is longer than {most / 2**20:g} MiB.")
        if keep:
            self.read[file] = content
        return content

    def _path(self, file: str) -> Path | None:
        directory = Path(self.name)
        if not directory.is_dir():
            try:
                found = cached_file(
                    self.name,
                    file,
                    _raise_exceptions_for_missing_entries=False,
                    _raise_exceptions_for_connection_errors=False,
                    _raise_exceptions_for_gated_repo=False,
                )
            except OSError:
                return None
            return Path(found) if found else None
        path = directory / file
        if not path.is_file():
            return None
        if not belongs(path, directory):
            raise AttentrimError(f"{file} is a link out of {self.name}: not read.")
        return path
