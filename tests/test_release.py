"""What a release needs agrees with itself: version, changelog, citation, hooks, workflows, packages."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import attentrim

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RECIPES = dict(re.findall(r"^([\w-]+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def test_the_version_is_the_newest_of_the_changelog():
    versions = re.findall(r"^## \[(\S+)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert versions[0] == (attentrim.__version__, citation["date-released"])
    assert citation["version"] == attentrim.__version__
    assert citation["license"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]


def test_the_changelog_keeps_its_form():
    kinds = set(re.findall(r"^### (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_commits_are_checked_as_make_lint_checks():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    checks = [line.strip().replace("$(BIN)", ".venv/bin") for line in RECIPES["lint"].splitlines()]
    assert [hook["entry"] for hook in hooks] == checks


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_what_is_there(path):
    workflow = yaml.safe_load(path.read_text())
    for job in workflow["jobs"].values():
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()
        for step in job.get("steps", ()):
            words = step.get("run", "").split()
            assert "run" in step or "@" in step["uses"]
            if words[:1] == ["make"]:
                assert words[1] in RECIPES
            named = [word for word in words if re.match(r"(\.ci|tests|src)/", word)]
            assert all((ROOT / word.rstrip(')"')).is_file() for word in named)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


def test_the_wheel_holds_the_package_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"attentrim-{attentrim.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    sources = {path.relative_to(ROOT / "src").as_posix() for path in tracked("src")}
    assert {name for name in names if ".dist-info/" not in name} == sources
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_source_distribution_holds_what_tests_and_docs_need(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    wanted = {path.relative_to(ROOT).as_posix() for path in tracked("src", "tests", "docs", "examples")}
    wanted |= {"mkdocs.yml", "Makefile", "constraints.txt", "pyproject.toml", "LICENSE", "CITATION.cff"}
    wanted |= {path.name for path in tracked("*.md") if path.parent == ROOT}
    assert wanted - names == set()
    more = {name for name in names - wanted if not name.startswith(("docs/", "examples/", "tests/"))}
    assert more <= {"PKG-INFO", ".gitignore"}


def tracked(*places):
    listed = subprocess.run(["git", "ls-files", *places], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a Git checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
