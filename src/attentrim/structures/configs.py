"""The configs of a model: parts of it may have their own, and some hold copies."""

from __future__ import annotations

from typing import Any


def all_configs(model: Any) -> list[Any]:
    """Every config object in a model, its own first."""
    found: dict[int, Any] = {}

    def add(config: Any) -> None:
        if config is None or id(config) in found or not hasattr(config, "model_type"):
            return
        found[id(config)] = config
        for name in getattr(config, "sub_configs", {}):
            add(getattr(config, name, None))

    add(model.config)
    for module in model.modules():
        add(getattr(module, "config", None))
    return list(found.values())


def config_of(model: Any, path: str) -> Any:
    """The config of the smallest part around a module that has one."""
    while path:
        path = path.rpartition(".")[0]
        config = getattr(model.get_submodule(path), "config", None)
        if config is not None:
            return config
    return model.config


def configs_of(model: Any, path: str) -> list[Any]:
    """All configs that describe the part around a module: its own, the same in the whole model's, and copies."""
    own = config_of(model, path)
    return [config for config in all_configs(model) if config.model_type == own.model_type]
