"""Imports go one way, those inside functions included."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_graph import back_edges, cycles, graph_of, knowledge, strangers

import attentrim

GRAPH = graph_of(Path(attentrim.__file__).parent)
LAYERS = (
    "version errors atomic gguf guarded plugins registry options machine modes masks indices sharding projections "
    "shapes in_order",
    "tasks",
    "attention routed",
    "architectures",
    "sites",
    "routing",
    "structures",
    "plan plan_files breakdown",
    "checkpoint.stored",
    "control",
    "duplicate",
    "inputs flops",
    "surgery kv_cache",
    "cost checkpoint fitting vocabulary",
    "overview export",
    "bench",
    "speed",
    "distillation noise calibration schedules",
    "sentences",
    "methods resuming counters engines",
    "trainer",
    "runs.reader runs.headline",
    "plots",
    "report card",
    "runs",
    "compare",
    "cli __main__",
    "__init__",
)
"""Modules, and packages with all that is in them unless a longer name says otherwise. Each imports from its own line
and from those above it."""
KNOW_NO_METHOD = "surgery checkpoint control structures bench speed plots report card"
METHODS = "methods trainer"
KNOW_LITTLE = {"tasks": "errors plugins registry", "runs.reader": "errors guarded plan"}


def listed(lines: list[str]) -> str:
    return "\n".join(["", *lines])


def test_no_modules_import_each_other():
    found = cycles(GRAPH)
    assert not found, listed(found)


def test_imports_follow_the_layers():
    found = back_edges(GRAPH, LAYERS)
    assert not found, listed(found)


def test_the_table_names_what_is_there():
    named = {name for layer in LAYERS for name in layer.split()} - {"__init__"}
    found = sorted(name for name in named if name not in GRAPH)
    assert not found, listed(found)


@pytest.mark.parametrize("who", KNOW_NO_METHOD.split())
def test_what_works_without_methods_imports_none(who):
    found = knowledge(GRAPH, who, METHODS)
    assert not found, listed(found)


@pytest.mark.parametrize("who", KNOW_LITTLE)
def test_leaves_know_little(who):
    found = strangers(GRAPH, who, KNOW_LITTLE[who])
    assert not found, listed(found)


# The checker itself


@pytest.fixture
def package(tmp_path):
    """high -> middle -> low -> bottom, and one import of each kind that leads back up."""
    files = {
        "__init__.py": "import importlib\n\ndef load():\n    return importlib.import_module('.high', __name__)\n",
        "bottom.py": "import os\nimport pkgother.high\n",
        "low.py": "import typing\nif typing.TYPE_CHECKING:\n    from .high import High\nfrom . import bottom\n",
        "middle/__init__.py": "from ..low import thing\n",
        "middle/part.py": "from . import thing\nfrom ..low import thing\n",
        "high.py": "import pkg.middle.part\n",
    }
    for name, text in files.items():
        path = tmp_path / "pkg" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "pkg"


ORDER = ("bottom", "low", "middle", "high", "__init__")


def test_a_graph_without_fault(package):
    graph = graph_of(package)
    assert graph == {
        "": {"high": 4},
        "bottom": {},
        "low": {"bottom": 4},
        "middle": {"low": 1},
        "middle.part": {"middle": 1, "low": 2},
        "high": {"middle.part": 1},
    }
    assert cycles(graph) == back_edges(graph, ORDER) == []
    assert knowledge(graph, "bottom low", "high") == []
    assert strangers(graph, "low", "bottom") == []


@pytest.mark.parametrize(
    "line",
    [
        "def f():\n    from .high import x\n",
        "def f():\n    from . import high\n",
        "def f():\n    import pkg.high\n",
        "def f():\n    from pkg.high import x\n",
        "import importlib\ndef f(): importlib.import_module('.high', 'pkg')\n",
        "from importlib import import_module\nx = import_module('pkg.high')\n",
        "if False:\n    pass\nelse:\n    from . import high\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    from . import high\n",
        "class A:\n    try:\n        from .high import x\n    except ImportError:\n        pass\n",
    ],
)
def test_a_back_edge_is_found_however_it_is_written(package, line):
    (package / "bottom.py").write_text(line)
    graph = graph_of(package)
    number = line[: line.index("high")].count("\n") + 1
    assert cycles(graph) == [f"bottom:{number} -> high:1 -> middle.part:2 -> low:4 -> bottom"]
    assert back_edges(graph, ORDER) == [f"bottom:{number} -> high"]
    assert knowledge(graph, "low", "high") == [f"low:4 -> bottom:{number} -> high"]
    assert strangers(graph, "bottom", "low") == [f"bottom:{number} -> high"]


def test_the_package_itself_is_a_module_too(package):
    (package / "middle" / "part.py").write_text("from .. import version\n")
    graph = graph_of(package)
    assert graph["middle.part"] == {"": 1}
    assert back_edges(graph, ORDER) == ["middle.part:1 -> __init__"]
    assert cycles(graph) == ["__init__:4 -> high:1 -> middle.part:1 -> __init__"]


def test_a_module_without_a_layer_is_named(package):
    assert back_edges(graph_of(package), ORDER[1:]) == ["bottom has no layer"]
    assert back_edges(graph_of(package), ("middle.part", *ORDER)) == [
        "middle.part:1 -> middle",
        "middle.part:2 -> low",
    ]
