"""Templates: everything that is not ours is escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render(name: str, **content: Any) -> str:
    return _environment().get_template(name).render(**content)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("attentrim.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    loader: Any = environment.loader
    # our own files, as they are
    environment.globals["own"] = lambda file: Markup(loader.get_source(environment, file)[0])
    environment.filters["svg"] = Markup
    return environment
