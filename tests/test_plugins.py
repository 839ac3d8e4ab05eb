"""Plug-ins: what other packages announce is found, used in every command, and refused in one clear line."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest
from distributions import install

import attentrim
from attentrim.errors import AttentrimError
from attentrim.methods import METHODS
from attentrim.plugins import PlugIns
from attentrim.registry import PlugInWarning, Registry
from attentrim.tasks import Task

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "plug-ins.md"
GROUP = "attentrim.things"
THING = "class Thing:\n    def __init__(self, name):\n        self.name = name\n"


def registry() -> Registry:
    table = Registry("thing", PlugIns(GROUP, "a Thing", lambda entry: type(entry).__name__ == "Thing"))
    table.register("built-in", object())
    return table


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A directory on sys.path, and modules that are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def names(table: Registry) -> list[str]:
    """All names of a registry, none of which may be a cause for a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlugInWarning)
        return list(table)


# The registry


def test_a_plug_in_is_found_by_name_and_in_lists(site):
    install(site, "one", {GROUP: {"first": "one:FIRST"}}, {"one.py": f"{THING}\nFIRST = Thing('first')"})
    table = registry()
    assert table["first"].name == "first"
    assert names(table) == ["built-in", "first"]
    assert "first" in table
    assert "second" not in table


def test_a_plug_in_is_imported_only_when_it_is_needed(site):
    marker = site / "imported"
    code = f"{THING}\nFIRST = Thing('first')\nopen({str(marker)!r}, 'a').write('x')"
    install(site, "one", {GROUP: {"first": "one:FIRST"}}, {"one.py": code})
    table = registry()
    table["built-in"]
    assert table.names() == ["built-in", "first"]
    assert "first" in table
    assert list(table.loaded) == ["built-in"]
    with pytest.raises(AttentrimError, match=r"Unknown thing 'frist'\. Did you mean 'first'\?"):
        table["frist"]
    assert not marker.exists()
    names(table)
    names(table)
    assert table["first"] is table["first"]
    assert marker.read_text() == "x", "once"


def test_built_in_names_look_for_no_entry_points(site, monkeypatch):
    def fail(self):
        raise AssertionError("the metadata of all packages was read")

    monkeypatch.setattr(PlugIns, "announced", fail)
    table = registry()
    table["built-in"]
    assert "built-in" in table
    with pytest.raises(AssertionError):
        table["other"]


BROKEN = {
    "an import that fails": (
        {"broken": "one:FIRST"},
        "import no_such_module",
        "The thing 'broken' of one (one:FIRST) cannot be imported: ModuleNotFoundError: No module named "
        "'no_such_module'",
    ),
    "an error of several lines": (
        {"broken": "one:FIRST"},
        "raise ValueError('a\\n  b')",
        "The thing 'broken' of one (one:FIRST) cannot be imported: ValueError: a b",
    ),
    "an object that is not there": (
        {"broken": "one:FIRST"},
        "",
        "The thing 'broken' of one (one:FIRST) cannot be imported: AttributeError: module 'one' has no attribute "
        "'FIRST'",
    ),
    "the wrong type": ({"broken": "one:FIRST"}, "FIRST = 7", "The thing 'broken' of one (one:FIRST) is not a Thing."),
    "another name": (
        {"broken": "one:FIRST"},
        f"{THING}\nFIRST = Thing('other')",
        "The thing 'broken' of one (one:FIRST) has the name 'other' itself: it must be that of the entry point.",
    ),
    "no name": (
        {"Broken Thing": "one:FIRST"},
        f"{THING}\nFIRST = Thing('Broken Thing')",
        "The thing 'Broken Thing' of one (one:FIRST) is not used: 'Broken Thing' is not a valid name for "
        "a thing: use lower-case words joined by '-'.",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plug_in_is_named_and_harms_no_other(case, site):
    entries, code, message = BROKEN[case]
    install(site, "one", {GROUP: entries}, {"one.py": code})
    install(site, "two", {GROUP: {"second": "two:SECOND"}}, {"two.py": f"{THING}\nSECOND = Thing('second')"})
    table = registry()
    (name,) = entries
    for _ in range(2):
        with pytest.raises(AttentrimError) as caught:
            table[name]
        assert str(caught.value) == message
    for table_before in (table, registry()):
        with pytest.warns(PlugInWarning) as listed:
            assert list(table_before) == ["built-in", "second"]
        assert [str(warning.message) for warning in listed] == [message]


def test_a_built_in_name_stays_built_in(site):
    files = {"one.py": f"{THING}\nFIRST = Thing('built-in')"}
    install(site, "one", {GROUP: {"built-in": "one:FIRST"}}, files)
    table = registry()
    built_in = table["built-in"]
    message = "The thing 'built-in' of one (one:FIRST) is not used: There is a thing 'built-in' already."
    with pytest.warns(PlugInWarning, match=re.escape(message)):
        assert list(table) == ["built-in"]
    assert table["built-in"] is built_in


def test_two_packages_with_one_name_are_both_named(site):
    for name in ("one", "two"):
        install(site, name, {GROUP: {"first": f"{name}:FIRST"}}, {f"{name}.py": f"{THING}\nFIRST = Thing('first')"})
    with pytest.raises(
        AttentrimError, match="The thing 'first' comes from one and two: uninstall all of them but one"
    ):
        registry()["first"]


def test_a_plug_in_may_register_itself_and_look_around_while_it_is_imported(site, monkeypatch):
    table = registry()
    code = f"{THING}\nFIRST = Thing('first')\nlist(sys.table)\nsys.table.register('first', FIRST)"
    install(site, "one", {GROUP: {"first": "one:FIRST"}}, {"one.py": f"import sys\n{code}"})
    monkeypatch.setattr(sys, "table", table, raising=False)
    assert names(table) == ["built-in", "first"]
    assert table["first"].name == "first"


# Public names


def test_public_names_come_from_the_registry_and_one_table():
    classes = {METHODS[name].__name__ for name in METHODS}
    assert classes | set(attentrim._HOMES) == set(attentrim.__all__)
    assert not classes & set(attentrim._HOMES)
    assert attentrim.__all__ == sorted(attentrim.__all__)
    assert set(attentrim.__all__) <= set(dir(attentrim))
    scope: dict[str, object] = {}
    exec("from attentrim import *", scope)
    assert all(scope[name] is getattr(attentrim, name) for name in attentrim.__all__)
    for name in ("Nothing", "nothing", "_nothing"):
        with pytest.raises(AttributeError, match=f"module 'attentrim' has no attribute '{name}'"):
            getattr(attentrim, name)


def test_type_checkers_see_the_public_names():
    """What is imported for them alone is what there is, from where it is."""
    tree = ast.parse(Path(attentrim.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.asname == alias.name, "else a type checker takes it for private"
                seen[alias.name] = f"attentrim.{node.module}"
    assert seen.keys() == set(attentrim.__all__)
    for name, module in seen.items():
        assert getattr(attentrim, name).__module__ == module or attentrim._HOMES.get(name) == module[10:], name


def test_a_plug_in_class_is_public(site):
    code = (
        "from attentrim.methods import Method\n"
        "class Mine(Method):\n    name = 'mine'\n"
        "class HISP(Method):\n    name = 'my-hisp'\n"
    )
    methods = {"mine": "one:Mine", "my-hisp": "one:HISP"}
    install(site, "one", {"attentrim.methods": methods}, {"one.py": code})
    script = (
        "import attentrim, sys; print(attentrim.HISP.name, 'one' in sys.modules, attentrim.Mine.name,"
        " 'Mine' in attentrim.__all__, 'Mine' in dir(attentrim), attentrim.list_methods(), 'torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", script], env=environment(site), capture_output=True, text=True)
    assert shown.stdout.startswith("hisp False mine True True ["), shown.stderr
    assert "'mine', 'my-hisp'" in shown.stdout
    assert shown.stdout.endswith("] False\n")


def test_a_plug_in_adds_a_kind_of_structure(site):
    pytest.importorskip("attentrim.structures")
    code = (
        "from attentrim.structures.neurons import Neurons\n"
        "class Features(Neurons):\n    name = 'features'\n"
        "FEATURES, WRONG = Features(), Features\n"
    )
    kinds = {"features": "one:FEATURES", "wrong": "one:WRONG"}
    install(site, "one", {"attentrim.structures": kinds}, {"one.py": code})
    script = (
        "from attentrim.structures import STRUCTURES; print(STRUCTURES['features'].name, list(STRUCTURES))\n"
        "try: STRUCTURES['wrong']\nexcept ValueError as error: print(error)"
    )
    shown = subprocess.run([sys.executable, "-c", script], env=environment(site), capture_output=True, text=True)
    assert shown.stdout.splitlines() == [
        "features ['features', 'heads', 'layers', 'neurons', 'uniform']",
        "The kind of structure 'wrong' of one (one:WRONG) is not an object of a subclass of "
        "attentrim.structures.Structure.",
    ], shown.stderr


# A package in all commands


def environment(*paths: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), *sys.path])}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The package that the page shows, and one that is broken."""
    files = {}
    for block in blocks("python"):
        name = re.match(r"# (\S+\.py)\n", block)
        if name:
            files[name[1]] = block
    project = tomllib.loads(blocks("toml")[0])["project"]
    directory = install(tmp_path_factory.mktemp("site"), project["name"], project["entry-points"], files)
    entries = {
        "attentrim.methods": {"broken": "no_such_module:Broken", "numbered": "math:pi"},
        "attentrim.tasks": {"top": "attentrim_top:TopHeads"},
    }
    return install(directory, "broken-ones", entries, {})


def command(published: Path, *words: object) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-m", "attentrim", *map(str, words)]
    return subprocess.run(start, env=environment(published), capture_output=True, text=True)


def result(published: Path, *words: object) -> dict:
    done = command(published, *words, "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_methods_lists_plug_ins_and_warns_of_broken_ones(published):
    done = command(published, "methods")
    assert done.returncode == 0, done.stderr
    assert "top-heads" in done.stdout
    assert "autoattention" in done.stdout
    lines = done.stdout.splitlines()
    assert "The method 'numbered' of broken-ones (math:pi) is not a subclass of attentrim.methods.Method." in lines
    assert "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'" in done.stdout
    assert done.stderr == ""
    shown = result(published, "methods", "top-heads")
    assert any(setting["name"] == "from_top" for setting in shown["settings"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("methods", "broken"), "The method 'broken' of broken-ones (no_such_module:Broken) cannot be imported: "),
        (("train", "--method", "numbered"), "The method 'numbered' of broken-ones (math:pi) is not a subclass of "),
        (("train", "--method", "top-head"), "Unknown method 'top-head'. Did you mean 'top-heads'"),
        (("train", "--task", "top"), "The task 'top' of broken-ones (attentrim_top:TopHeads) is not an attentrim."),
        (("evaluate", "--task", "complaint"), "Unknown task 'complaint'. Did you mean 'complaints'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_broken_plug_ins_are_refused_in_one_line(published, home, tmp_path, words, message):
    if words[0] == "train":
        more = () if "--task" in words else ("--task", "cola", "--data_dir", home / "data")
        words = (*words, "--model", home / "tiny", *more, "--output_dir", tmp_path / "run")
    elif words[0] == "evaluate":
        words = (*words, "--model", home / "tiny")
    done = command(published, *words)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("attentrim: error: ")]
    assert message in line


def test_help_names_plug_ins_and_imports_none(published):
    script = (
        "import sys; from attentrim.cli import main\n"
        "try: main(['train', '--help'])\n"
        "finally: print('IMPORTED', 'attentrim_top' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment(published), capture_output=True, text=True)
    shown = " ".join(done.stdout.split())
    assert "top-heads" in shown
    assert "complaints" in shown
    assert shown.endswith("IMPORTED False False")
    assert done.stderr == ""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    path = tmp_path_factory.mktemp("complaints")
    for name, count in (("train.csv", 48), ("dev.csv", 16)):
        rows = [f"the {'dog' if n % 2 else 'cat'} sees {n},{('no', 'yes')[n % 2]}" for n in range(count)]
        (path / name).write_text("\n".join(["message,complaint", *rows]) + "\n")
    return path


FEW = ("--num_train_epochs", 1, "--per_device_train_batch_size", 16, "--use_cpu")


def test_train_evaluate_and_plan_with_a_method_and_a_task_of_a_plug_in(published, home, complaints, tmp_path):
    data = ("--model", home / "tiny", "--task", "complaints", "--data_dir", complaints)
    words = ("--method", "top-heads", "--method_config", "target_sparsity=0.25", "--no_bench", *FEW)
    run = result(published, "train", *data, "--output_dir", tmp_path / "run", *words)
    assert (run["task"], run["metric"], run["heads_kept"]) == ("complaints", "accuracy", [4, 2])
    data = ("--model", tmp_path / "run", "--task", "complaints", "--data_dir", complaints, "--use_cpu")
    assert result(published, "evaluate", *data)["value"] == pytest.approx(run["value"], abs=1e-6)
    words = ("--method", "top-heads", "--method_config", "from_top=false", "target_sparsity=0.5")
    assert result(published, "plan", *data, *words, "--out", tmp_path / "plan.json")["heads_kept"] == [1, 2]


def test_compare_knows_plug_ins_in_its_worker_processes(published, home, complaints, tmp_path):
    data = ("--model", home / "tiny", "--task", "complaints", "--data_dir", complaints)
    words = ("--methods", "top-heads", "--seeds", 1, "--target_sparsity", 0.5, "--output_dir", tmp_path / "all")
    found = result(published, "compare", *data, *words, *FEW)
    assert {entry["name"] for entry in found["summary"]} == {"dense", "top-heads"}
    (run,) = [run for run in found["runs"] if run["name"] == "top-heads"]
    assert run["heads_kept"] == [4, 0]


def test_a_task_of_another_kind_is_refused_where_it_is_made():
    with pytest.raises(
        AttentrimError, match=r"The kind of the task 'mine' must be one of KINDS\. Got 'classification'"
    ):
        Task("mine", "", "classification", ("accuracy",))
