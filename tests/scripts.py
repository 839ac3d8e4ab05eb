"""Scripts of benchmarks/, run as from a shell."""

from __future__ import annotations

import contextlib
import io
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@contextlib.contextmanager
def modules_of(folder):
    """Its modules can be imported, and are forgotten after: a copy elsewhere has others of the same names."""
    known = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        try:
            yield
        finally:
            for name in set(sys.modules) - known:
                if (getattr(sys.modules[name], "__file__", None) or "").startswith(f"{folder}/"):
                    del sys.modules[name]


def run_script(script, *words, cwd="."):
    """As from a shell, but in this process: most of a script's time is to import what is here already."""
    said, complained = io.StringIO(), io.StringIO()
    with (
        modules_of(script.parent),
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(complained),
    ):
        patch.setattr(sys, "argv", [str(word) for word in (script, *words)])
        try:
            runpy.run_path(str(script), run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code or 0
            if isinstance(code, str):  # a last word is an error
                complained.write(code)
                code = 1
    return SimpleNamespace(returncode=code, stdout=said.getvalue(), stderr=complained.getvalue())


def copy_of_benchmarks(tmp_path):
    """Without results: what keep.py keeps goes beside it."""
    return shutil.copytree(BENCHMARKS, tmp_path / "benchmarks", ignore=shutil.ignore_patterns("results"))
