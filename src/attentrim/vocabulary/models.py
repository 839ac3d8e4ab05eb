"""All that a model has by token: found by comparing the empty model with one of another size, and cut to some rows.

Embeddings, heads, their biases and tied copies have no names in common. But they are just what a stock class makes in
another size when its config says so.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..errors import UnsupportedModelError
from .ids import renumber


def count_rows(model: Any) -> int:
    """How many tokens a model has embeddings for; raises if it is not a model whose vocabulary can be trimmed."""
    if not isinstance(model, PreTrainedModel):
        raise UnsupportedModelError(f"A model of transformers is needed. Got {type(model).__name__} instead.")
    if any(hasattr(module, "base_layer") or hasattr(module, "modules_to_save") for module in model.modules()):
        raise UnsupportedModelError("This model carries adapters: merge them first (merge_and_unload).")
    if any(parameter.is_meta for parameter in model.parameters()):
        raise UnsupportedModelError("Some weights are offloaded: load the model without offloading to trim it.")
    try:
        embeddings: Any = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        embeddings = None
    if not isinstance(embeddings, nn.Embedding):
        raise UnsupportedModelError(f"{type(model).__name__} has no embeddings of tokens.")
    rows = embeddings.weight.shape[0]
    told = getattr(model.config.get_text_config(), "vocab_size", None)
    if told != rows:
        raise UnsupportedModelError(f"The model has {rows} embeddings, and its config says vocab_size {told}.")
    return rows


def configs_of(model: Any) -> list[Any]:
    """All config objects of a model: its own, those that its parts have copies of, and the one for generation."""
    found = [getattr(module, "config", None) for module in model.modules()]
    found.append(getattr(model, "generation_config", None))
    return list({id(config): config for config in found if config is not None}.values())


def shrink(model: Any, order: Sequence[int], rows: int) -> None:
    """Keep these of the `rows` tokens, in this order, in place."""
    before = _empty(model)
    numbers = {old: new for new, old in enumerate(order)}
    for config in configs_of(model):
        renumber(config, numbers, rows)
    after = _empty(model)
    _cut(model, _axes(before, after), torch.tensor(order), rows)
    _set_numbers(model, before, after)


def _empty(model: Any) -> Any:
    """What the config makes, without weights."""
    with torch.device("meta"):
        return type(model)(copy.deepcopy(model.config))


def _tensors(model: Any) -> dict[str, Tensor]:
    """All parameters and buffers, tied ones under each of their names."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def _axes(before: Any, after: Any) -> dict[str, int]:
    """The tensors that have one slice per token, and along which axis."""
    others, found = _tensors(after), {}
    for name, tensor in _tensors(before).items():
        different = [axis for axis, size in enumerate(tensor.shape) if size != others[name].shape[axis]]
        if len(different) > 1:
            raise UnsupportedModelError(f"{type(before).__name__}: {name} depends on the vocabulary in two ways.")
        if different:
            found[name] = different[0]
    return found


def _cut(model: Any, axes: dict[str, int], index: Tensor, rows: int) -> None:
    done: dict[int, Tensor] = {}
    for name, tensor in _tensors(model).items():
        if name not in axes:
            continue
        if tensor.dim() <= axes[name] or tensor.shape[axes[name]] != rows:
            raise UnsupportedModelError(
                f"{name} has the shape {tuple(tensor.shape)}, and the vocabulary {rows} tokens: trim it before you "
                "quantise it."
            )
        if id(tensor) not in done:
            kept = tensor.detach().index_select(axes[name], index.to(tensor.device))
            is_parameter = isinstance(tensor, nn.Parameter)
            done[id(tensor)] = nn.Parameter(kept, tensor.requires_grad) if is_parameter else kept
        path, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(path), leaf, done[id(tensor)])


def _set_numbers(model: Any, before: Any, after: Any) -> None:
    """Sizes and ids that modules remember."""
    old, new = dict(before.named_modules()), dict(after.named_modules())
    for path, module in model.named_modules():
        if path not in old:
            continue
        for name, value in list(vars(module).items()):
            first, then = vars(old[path]).get(name), vars(new[path]).get(name)
            if type(value) is not int or value != first or first == then:
                continue
            if name == "padding_idx" and _same_size(old[path], new[path]):
                raise UnsupportedModelError(
                    f"{path} counts from the id of the padding token, {value}, for which there is no room among the "
                    "tokens kept: give more texts."
                )
            setattr(module, name, then)


def _same_size(before: Any, after: Any) -> bool:
    """Whether these are embeddings of something else than tokens."""
    return isinstance(before, nn.Embedding) and before.weight.shape == after.weight.shape
