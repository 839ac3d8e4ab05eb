"""Who imports whom in a package, by its source. Imports inside functions count; those for type checkers do not."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

Graph = dict[str, dict[str, int]]
"""By module: the modules of the same package that it imports, and the line of the first such import."""


def graph_of(package: Path) -> Graph:
    """Names are relative to the package: 'methods.base'; '' is the package itself."""
    files = {_name(path.relative_to(package)): path for path in sorted(package.rglob("*.py"))}
    graph: Graph = {}
    for name, path in files.items():
        found: dict[str, int] = {}
        home = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for target, line in _imports(ast.parse(path.read_text()), home, package.name, files.keys()):
            if target != name:
                found.setdefault(target, line)
        graph[name] = found
    return graph


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree: ast.AST, home: str, package: str, modules: Iterable[str]) -> Iterator[tuple[str, int]]:
    """`home` is the package that relative imports start from."""
    for node in _walk(tree):
        names: list[str | None] = []
        if isinstance(node, ast.Import):
            names = [_inside(alias.name, package) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _inside(_absolute("." * node.level + (node.module or ""), home, package), package)
            if base is not None:
                inner = [f"{base}.{alias.name}".lstrip(".") for alias in node.names]
                names = [name if name in modules else base for name in inner]
        elif isinstance(node, ast.Call) and (text := _import_module(node)) is not None:
            names = [_inside(_absolute(text, home, package), package)]
        for name in names:
            if name is not None and name in modules:
                yield name, node.lineno


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Like ast.walk, without what only type checkers read."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in child.orelse:
                yield from _walk(other)
        else:
            yield from _walk(child)


def _import_module(call: ast.Call) -> str | None:
    """The literal that importlib.import_module is called with."""
    named = ast.unparse(call.func) in ("importlib.import_module", "import_module")
    first = call.args[0] if named and call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _absolute(name: str, home: str, package: str) -> str:
    level = len(name) - len(name.lstrip("."))
    if not level:
        return name
    parts = [package, *filter(None, home.split("."))]
    parts = parts[: len(parts) - (level - 1)]
    return ".".join([*parts, *filter(None, [name[level:]])])


def _inside(name: str, package: str) -> str | None:
    """Relative to the package; None for the modules of others."""
    return name[len(package) + 1 :] if name == package or name.startswith(f"{package}.") else None


# What is wrong with a graph


def cycles(graph: Graph) -> list[str]:
    """One line for each set of modules that import each other, with a shortest way round."""
    found, done = [], set()
    for start in graph:
        way = _path(graph, start, start)
        if way and start not in done:
            done.update(name for name in graph if _path(graph, start, name) and _path(graph, name, start))
            found.append(_shown(graph, way))
    return found


def back_edges(graph: Graph, layers: Iterable[str]) -> list[str]:
    """Imports of a module in a later layer. A layer is a line of names, each a module or a package with all in it."""
    order = {name: number for number, layer in enumerate(layers) for name in layer.split()}
    lines = []
    for module, targets in graph.items():
        own = _layer(module, order)
        if own is None:
            lines.append(f"{module} has no layer")
            continue
        for target in targets:
            other = _layer(target, order)
            if other is not None and order[other] > order[own]:
                lines.append(_shown(graph, [module, target]))
    return lines


def knowledge(graph: Graph, who: str, whom: str) -> list[str]:
    """Ways, through others too, from modules of the packages `who` to those of the packages `whom`."""
    lines = []
    for module in graph:
        ways = [_path(graph, module, target) for target in graph if _within(target, whom)]
        if _within(module, who) and any(ways):
            lines.append(_shown(graph, min(filter(None, ways), key=len)))
    return lines


def strangers(graph: Graph, module: str, known: str) -> list[str]:
    """Imports of a package that go to others than itself and those it may know."""
    return [
        _shown(graph, [name, target])
        for name in graph
        if _within(name, module)
        for target in graph[name]
        if not _within(target, f"{module} {known}")
    ]


def _layer(module: str, order: Mapping[str, int]) -> str | None:
    """The name in the table that stands for a module: the longest of those that it is, or lies in."""
    return max((name for name in order if _within(module, name)), key=len, default=None)


def _within(module: str, names: str) -> bool:
    return any(module == ("" if name == ROOT else name) or module.startswith(f"{name}.") for name in names.split())


ROOT = "__init__"
"""The package itself in a table."""


def _path(graph: Graph, start: str, end: str) -> list[str] | None:
    """A shortest chain of imports, of at least one; breadth first."""
    ways = [[start]]
    seen = set()
    for way in ways:
        for target in graph[way[-1]]:
            if target == end:
                return [*way, target]
            if target not in seen:
                seen.add(target)
                ways.append([*way, target])
    return None


def _shown(graph: Graph, way: list[str]) -> str:
    """'surgery:12 -> checkpoint:7 -> surgery': each with the line on which it imports the next."""
    parts = [f"{name or ROOT}:{graph[name][after]}" for name, after in pairwise(way)]
    return " -> ".join([*parts, way[-1] or ROOT])
