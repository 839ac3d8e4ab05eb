"""Find the self-attention sites of a model, whatever its architecture or task head."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from .architectures import ARCHITECTURES, Layout
from .errors import PlanError, UnsupportedModelError, unknown_name
from .projections import features
from .shapes import Shape, check_count

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""What the configs of mixture-of-experts models have."""


@dataclass(frozen=True)
class SiteShape(Shape):
    """The shape of one site."""

    column: ClassVar[str] = "heads"
    heads: int
    head_size: int
    groups: int = -1
    """Sets of heads that go or stay together; by default as many as heads."""
    uniform: bool = False
    key_heads: int = -1
    """Key/value heads; by default one for each group."""

    def __post_init__(self) -> None:
        if self.groups == -1:
            object.__setattr__(self, "groups", self.heads)
        if self.key_heads == -1:
            object.__setattr__(self, "key_heads", self.groups)

    def to_dict(self) -> dict[str, Any]:
        found = super().to_dict()
        usual = {"groups": self.heads, "key_heads": self.groups}
        return {name: value for name, value in found.items() if name not in usual or value != usual[name]}

    def check(self) -> None:
        super().check()
        for number in (self.heads, self.groups, self.key_heads, self.head_size):
            check_count(number, "heads, groups or features", self.path)
        uneven = any(self.heads % count if count else self.heads for count in (self.groups, self.key_heads))
        if uneven or not self.head_size:
            raise PlanError(f"the site {self.path!r} cannot have {self}")

    def left_of(self, before: SiteShape) -> str:
        return "uniform" if self.uniform else f"{self.heads} of {before.heads}"

    def share_of(self, before: SiteShape) -> float | None:
        return None if self.uniform else self.heads / before.heads if before.heads else 0.0

    def __str__(self) -> str:
        kind = "uniform attention" if self.uniform else f"{self.heads} heads of size {self.head_size}"
        return kind if self.groups == self.heads else f"{kind} in {self.groups} groups"


@dataclass(frozen=True)
class Site:
    """One self-attention module with its projections, as it is now (a trimmed model has fewer heads)."""

    index: int
    model_type: str
    path: str
    """Module path below the base model: the same for every task head."""
    name: str
    """Module path in the model that was searched."""
    module: nn.Module
    parent: nn.Module
    layout: Layout
    heads: int
    groups: int
    """Sets of heads that go or stay together: those that share keys and values, or all where one norm spans them."""
    key_heads: int
    """Key/value heads."""
    head_size: int
    width: int
    """Features of the site's input."""
    causal: bool
    window: int | None
    uniform: bool

    def __repr__(self) -> str:
        """'<Site 0, encoder.layer.0.attention.self: 12 heads of size 32>'"""
        causal = ", causal" if self.causal else ""
        window = f", window of {self.window}" if self.window else ""
        return f"<Site {self.index}, {self.name}: {self.shape}{causal}{window}>"

    @property
    def shape(self) -> SiteShape:
        return SiteShape(self.path, self.heads, self.head_size, self.groups, self.uniform, self.key_heads)

    @property
    def layer(self) -> str:
        """The path, in the model that was searched, of the layer that this site is in."""
        return layer_of(self.name)

    @property
    def stack(self) -> str:
        """The path of the module that holds the list of layers this site is in."""
        return stack_of(self.layer)

    @property
    def heads_per_group(self) -> int:
        return self.heads // self.groups if self.groups else 1

    @property
    def heads_per_key(self) -> int:
        return self.heads // self.key_heads if self.key_heads else 1

    def group(self, index: int) -> range:
        """The heads of group `index`."""
        return range(index * self.heads_per_group, (index + 1) * self.heads_per_group)

    def child(self, path: str) -> nn.Module:
        if path.startswith(".."):
            return self.parent.get_submodule(path[2:])
        return self.module.get_submodule(path)

    @property
    def output(self) -> nn.Module:
        return self.child(self.layout.output)

    @property
    def projections(self) -> tuple[nn.Module, ...]:
        """Fused: one. Otherwise query, key and value."""
        return tuple(self.child(path) for path in self.layout.projections)

    @property
    def positions(self) -> tuple[nn.Module, ...]:
        return tuple(self.child(path) for path in self.layout.positions if hasattr(self.module, path))


def unwrap(model: Any) -> Any:
    """The transformers model inside a compiled, data-parallel or PEFT wrapper."""
    while True:
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif hasattr(model, "get_base_model"):
            model = model.get_base_model()
        elif hasattr(model, "module") and isinstance(model.module, nn.Module):
            model = model.module
        else:
            return model


def layer_of(path: str) -> str:
    """The path of the layer that holds a module: the first item of a numbered list on the way to it."""
    found = re.match(r".*?\.?\w+\.\d+(?=\.|$)", path)
    return found[0] if found else ""


def stack_of(layer: str) -> str:
    """The path of the module that holds the list that a layer is in."""
    return layer.rpartition(".")[0].rpartition(".")[0]


def layout_of(model: Any) -> Layout:
    """The table entry for a model; an error that names near ones if there is none."""
    config = getattr(model, "config", None)
    model_type = getattr(config, "model_type", None)
    if model_type is None:
        raise UnsupportedModelError(
            f"attentrim works on transformers models; a {type(model).__name__} has no config.model_type. "
            "Give it the transformers model inside (for sentence-transformers: model[0].auto_model)."
        )
    if model_type not in ARCHITECTURES and any(getattr(config, name, None) for name in EXPERTS):
        raise UnsupportedModelError(
            f"A {model_type} model is a mixture of experts, whose feed-forward blocks attentrim cannot take apart."
        )
    if model_type not in ARCHITECTURES:
        raise UnsupportedModelError(unknown_name("model type", model_type, ARCHITECTURES))
    return ARCHITECTURES[model_type]


def path_below_base(model: Any, name: str) -> str:
    """A module's path as it is for every task head."""
    prefix = f"{model.base_model_prefix}." if hasattr(model, model.base_model_prefix) else ""
    return name.removeprefix(prefix)


def find_sites(model: Any) -> list[Site]:
    """All self-attention sites of `model`, numbered from 0: encoder before decoder, CLIP's text before vision."""
    model = unwrap(model)
    layout = layout_of(model)
    modules = dict(model.named_modules())
    names = [name for name in modules if f".{name}".endswith(f".{layout.site}")]
    names = [name for name in names if hasattr(modules[name], layout.projections[0].split(".")[0])]
    if not names:
        raise UnsupportedModelError(f"No self-attention site found in this {type(model).__name__}.")
    return [
        _describe(index, model.config.model_type, name, path_below_base(model, name), modules, layout)
        for index, name in enumerate(names)
    ]


def _describe(
    index: int, model_type: str, name: str, path: str, modules: dict[str, nn.Module], layout: Layout
) -> Site:
    module = modules[name]
    head_size = int(getattr(module, layout.head_size))
    state = getattr(module, "attends", "with heads")
    parent = modules[name.rpartition(".")[0]]
    first = module.get_submodule(layout.projections[0])
    width, rows = features(first)
    if state != "with heads":
        heads = key_heads = 0
    elif layout.fused:
        heads = features(module.get_submodule(layout.output))[0] // head_size
        key_heads = (rows // head_size - heads) // 2
    else:
        heads = rows // head_size
        key_heads = features(module.get_submodule(layout.value))[1] // head_size
    return Site(
        index=index,
        model_type=model_type,
        path=path,
        name=name,
        module=module,
        parent=parent,
        layout=layout,
        heads=heads,
        groups=min(1, heads) if layout.joint_norm else key_heads,
        key_heads=key_heads,
        head_size=head_size,
        width=width,
        causal=layout.causal(module),
        window=layout.window(module),
        uniform=state == "uniformly",
    )
