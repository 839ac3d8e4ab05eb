"""Models from GGUF files: transformers unpacks their weights, but still treats the models as quantised."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from .errors import AttentrimError, MissingExtraError

SUFFIX = ".gguf"


def where_to_load(name: str, weights: bool = False) -> tuple[str, dict[str, Any]]:
    """What `from_pretrained` takes: a name and, where that is a GGUF file, its directory and more arguments.

    Args:
        weights: Whether a model is loaded; otherwise its config or its tokenizer.
    """
    path = Path(name)
    if path.suffix.lower() != SUFFIX or path.is_dir():
        if path.is_dir() and not (path / "config.json").exists() and (files := sorted(path.glob(f"*{SUFFIX}"))):
            raise AttentrimError(f"{name} holds a GGUF file: name the file itself, {files[0]}.")
        return name, {}
    if not path.is_file():
        raise AttentrimError(f"There is no GGUF file {name}.")
    if importlib.util.find_spec("gguf") is None:
        raise MissingExtraError("gguf", "gguf", f"Reading {name}")
    return str(path.parent), {"gguf_file": path.name, **(_whole() if weights else {})}


def _whole() -> dict[str, Any]:
    """Some files' weights could stay in blocks, which nothing can be cut out of."""
    import transformers

    config = getattr(transformers, "GgufConfig", None)
    return {"quantization_config": config(dequantize=True)} if config else {}


def load_gguf_tokenizer(directory: str, *, gguf_file: Any, **settings: Any) -> Any:
    """The tokenizer of a GGUF file. It begins texts as the file says, which transformers does not read."""
    from gguf import GGUFReader
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(directory, gguf_file=gguf_file, **settings)
    said = GGUFReader(Path(directory) / gguf_file).fields.get("tokenizer.ggml.add_bos_token")
    if said is not None and said.contents():
        tokenizer.add_bos_token = True
    return tokenizer


def forget_gguf(model: Any) -> None:
    """Have a model whose weights were unpacked from a GGUF file be a plain one, which can be saved and trained."""
    stored = getattr(getattr(model, "config", None), "quantization_config", None)
    method = stored.get("quant_method") if isinstance(stored, dict) else getattr(stored, "quant_method", None)
    if getattr(method, "value", method) != "gguf":
        return
    for name in ("hf_quantizer", "quantization_method"):
        if hasattr(model, name):
            delattr(model, name)
    model.is_quantized = False
    del model.config.quantization_config
    for module in model.modules():
        if hasattr(getattr(module, "config", None), "_is_quantized"):
            del module.config._is_quantized
