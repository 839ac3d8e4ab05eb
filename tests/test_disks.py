"""A full disk and a directory that cannot be written to: every command says so in one line, and spoils nothing."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys

import pytest
from commands import fails, run
from disks import content, disk, read_only, small_files, used

from attentrim.atomic import replacing, staged
from attentrim.cli import COMMANDS
from attentrim.errors import WriteError
from attentrim.resuming import check_whole, last_complete
from attentrim.runs import embedded, pipeline

FEW = ("--num_train_epochs", 2, "--per_device_train_batch_size", 16, "--learning_rate", "1e-3", "--use_cpu")
QUICK = ("--repeats", 2, "--batch_sizes", 1, "--lengths", 8)
SPEEDS = ("--method", "fisher", "--method_config", "cost=flops", "dense_share=0.3", "speed_length=8", "width_step=4")
CAUSES = ("No space left on device", "could not be written to its end", "File too large")
SIZES = 20
SMALL = ("plan --out", "evaluate", "bench --out", "bench --card", "report")
LIMITS = {**dict.fromkeys(SMALL, (0, 200)), "export": (600_000,)}
"""Where files are small, or the command is slow."""


def words(name, home, place):
    """A command that writes to a place, and one that had written there before; None: nothing had."""
    data = ("--task", "cola", "--data_dir", home / "data")
    model = ("--model", home / "trained")
    tiny = ("--model", home / "tiny", *data, *FEW)
    train = ("train", *tiny, "--no_bench")
    plan = ("plan", *model, *data, "--use_cpu", "--no_bench")
    trim = ("trim", *model, "--output_dir", place / "model")
    bench = ("bench", *model, *QUICK)
    export = ("export", *model, "--output_dir", place / "onnx")
    compare = ("compare", *tiny, "--methods", "hisp", "--output_dir", place / "all")
    return {
        "train": ((*train, "--output_dir", place / "new"), (*train, "--output_dir", place / "run")),
        "train --speedup": ((*train, *SPEEDS, "speedup=1.2,1.5", "--output_dir", place / "run"), None),
        "plan --out": (
            (*plan, "--method", "hisp", "--out", place / "plan.json"),
            (*plan, "--method", "random-heads", "--out", place / "plan.json"),
        ),
        "plan --output_dir": ((*plan, "--method", "hisp", "--output_dir", place / "model"), (*trim, "--heads", "1:0")),
        "trim": ((*trim, "--heads", "0:1"), (*trim, "--heads", "1:0")),
        "trim --portable": ((*trim, "--heads", "0:1", "--portable"), (*trim, "--heads", "1:0")),
        "evaluate": (
            ("evaluate", *model, *data, "--use_cpu", "--predictions", place / "answers.tsv"),
            ("evaluate", *model, *data, "--use_cpu", "--predictions", place / "answers.tsv", "--max_eval_samples", 9),
        ),
        "bench --out": ((*bench, "--out", place / "bench.json"), (*bench, "--out", place / "bench.json")),
        "bench --card": (
            ("bench", "--model", place / "model", "--against", home / "trained", *QUICK, "--card"),
            (*trim, "--heads", "1:0"),
        ),
        "bench --latency_table": (
            (*bench, "--latency_table", place / "table.json"),
            (*bench, "--out", place / "table.json"),
        ),
        "export": (export, export),
        "export --quantize": ((*export, "--quantize", "int8"), export),
        "report": (("report", "--run", place / "run"), (*train, "--output_dir", place / "run")),
        "compare": ((*compare, "--seeds", 2), (*compare, "--seeds", 1)),
        "demo": (("demo", "--max_steps", 3, "--max_eval_samples", 20, "--output_dir", place / "demo"), None),
    }[name]


ALL = [
    *("train", "train --speedup", "plan --out", "plan --output_dir", "trim", "trim --portable", "evaluate"),
    *("bench --out", "bench --card", "bench --latency_table", "export", "export --quantize", "report", "compare"),
    "demo",
]
MANY_PROCESSES = ("compare",)
"""Limits of this process are not those of its workers."""
SLOW = ("bench --latency_table", "export --quantize", "demo", *MANY_PROCESSES)
WRITE_NOTHING = {"show", "methods", "env"}


def test_every_command_that_writes_is_here():
    assert {name.split()[0] for name in ALL} == set(COMMANDS) - WRITE_NOTHING


@pytest.fixture(scope="module", autouse=True)
def tiny_demo(home):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "embedded_model", lambda say: str(home / "tiny"))
        patch.setattr(pipeline, "embedded_model", lambda say: str(home / "tiny"))
        patch.setenv("ATTENTRIM_CACHE", str(home / "cache"))
        yield


@pytest.fixture(scope="module")
def trained(home):
    """Home, with a model that was trained."""
    command, _ = words("train", home, home)
    assert run(*command, "--method", "none", "--output_dir", home / "trained") == 0
    return home


def prepare(name, home, place):
    """What an earlier command left, with words of a user in its card."""
    command, earlier = words(name, home, place)
    if earlier is not None:
        assert run(*earlier) == 0
        for card in place.rglob("README.md"):
            card.write_text(card.read_text() + "\n## Mine\n\nwords of a user\n")
    return command


def check(line, place, causes=CAUSES):
    assert any(cause in line for cause in causes), line
    assert f"Cannot write {place}/" in line, line
    assert ".part" not in line


@pytest.mark.parametrize("name", [name for name in ALL if name not in SLOW])
def test_files_that_cannot_grow(trained, tmp_path, capsys, name):
    command = prepare(name, trained, tmp_path)
    before = content(tmp_path)
    for size in LIMITS.get(name, (0, 10_000, 600_000)):
        with small_files(size):
            line = fails(capsys, *command)
        check(line, tmp_path)
        after = content(tmp_path)
        assert {file: after.get(file) for file in before} == before, size
        assert not list(tmp_path.rglob("*.part"))
        if name.startswith("train"):
            assert "checkpoint" not in line or "No checkpoint was saved yet" in line
            shutil.rmtree(tmp_path / ("new" if name == "train" else "run"), ignore_errors=True)
        else:
            assert after.keys() == before.keys(), size  # nor is there half a file where none was


@pytest.mark.parametrize("name", ["train", "plan --out", "trim", "evaluate", "bench --card", "report"])
def test_directories_that_cannot_be_written_to(trained, tmp_path, capsys, name):
    command = prepare(name, trained, tmp_path)
    before = content(tmp_path)
    with read_only(tmp_path):
        line = fails(capsys, *command)
    assert str(tmp_path) in line
    assert "read-only" in line.lower() or "Permission denied" in line
    assert "ATTENTRIM_DEBUG" not in line
    assert content(tmp_path) == before


def test_a_run_that_a_full_disk_stopped_goes_on(trained, tmp_path, capsys):
    """Its last good checkpoint is named and kept."""
    saves = ("--save_strategy", "steps", "--save_steps", 4, "--keep_checkpoints")
    command, _ = words("train", trained, tmp_path)
    assert run(*command, *saves) == 0
    shutil.move(tmp_path / "new", tmp_path / "whole")
    need = sum(path.stat().st_size for path in (tmp_path / "whole" / "checkpoint-12").iterdir())
    with disk(tmp_path / "disk", int(1.6 * need)) as place:
        there, _ = words("train", trained, place)
        line = fails(capsys, *there, *saves)
        check(line, place)
        assert f"The last good checkpoint is {place}/new/checkpoint-4." in line
        assert last_complete(place / "new") == str(place / "new" / "checkpoint-4")
        check_whole(place / "new" / "checkpoint-4")
        shutil.copytree(place / "new", tmp_path / "new")
    assert run(*command, *saves) == 0
    ended = [content(tmp_path / name)["model.safetensors"] for name in ("whole", "new")]
    assert ended[0] == ended[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_full_disks_of_many_sizes(trained, tmp_path, capsys, name):
    """From one without any room to one that lacks a twentieth of what the command writes."""
    place, earlier = tmp_path / "disk", tmp_path / "earlier"
    with disk(place):
        command = prepare(name, trained, place)
        shutil.copytree(place, earlier)
        base = used(place)
        assert run(*command, *(["--keep_checkpoints"] if name.startswith("train") else [])) == 0
        need = used(place) - base
    if need <= 0 or name in ("plan --output_dir", "trim", "trim --portable", "export", "export --quantize"):
        need = base  # what is there is replaced, and stays until all of the new is written
    for number in range(SIZES):
        with disk(place, base + need * number // SIZES):
            shutil.copytree(earlier, place, dirs_exist_ok=True)
            before = content(place)
            line = fails(capsys, *command)
            check(line, place) if name != "compare" else check_comparison(line, place)
            after = content(place)
            results = ("all/results.json", "all/table.md") if name == "compare" else ()
            assert {file: after.get(file) for file in before if file not in results} == {
                file: before[file] for file in before if file not in results
            }
            assert not list(place.rglob("*.part"))
    with disk(place):
        shutil.copytree(earlier, place, dirs_exist_ok=True)
        before = content(place)
        with read_only(place):
            line = fails(capsys, *command)
        assert "read-only" in line.lower()
        assert content(place) == before


def check_comparison(line, place):
    """One run's line, within that of all."""
    assert str(place) in line
    assert any(cause in line for cause in CAUSES), line


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_output_that_goes_to_a_full_disk(more):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "attentrim", "methods", *more]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert "attentrim: error: Cannot write standard output: No space left on device.\n" in ended.stderr


# The seam


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_half(path, error):
    path.write_text("half")
    raise error


def test_an_older_file_stays_until_the_new_one_is_whole(tmp_path):
    file = tmp_path / "plan.json"
    file.write_text("old")
    with pytest.raises(WriteError, match=rf"^Cannot write {file}: No space left on device\.$"), replacing(file) as new:
        write_half(new, FULL)
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_files_take_their_places_together(tmp_path):
    def write(stage):
        (stage / "a").write_text("new")
        write_half(stage / "b", FULL)

    (tmp_path / "a").write_text("old")
    with pytest.raises(WriteError, match=rf"^Cannot write {tmp_path}/b: No space left"), staged(tmp_path) as stage:
        write(stage)
    assert content(tmp_path).keys() == {"a"}
    assert (tmp_path / "a").read_text() == "old"
    (tmp_path / "model-1.safetensors").write_text("of an older model")
    with staged(tmp_path, copied=["a", "c"], stale=["*.safetensors"]) as stage:
        assert (stage / "a").read_text() == "old"
        assert stage.name == tmp_path.name
        (stage / "sub").mkdir()
        (stage / "sub" / "model.safetensors").write_text("new")
    assert content(tmp_path).keys() == {"a", "sub/model.safetensors"}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Exception("No space left on device (os error 28)"), "No space left on device"),
        (RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"), "MB are free"),
        (RuntimeError("basic_ios::clear: iostream error"), "MB are free"),
    ],
)
def test_what_libraries_say_of_a_full_disk_is_understood(tmp_path, error, said):
    with pytest.raises(WriteError, match=rf"^Cannot write {tmp_path}/file: .*{said}"), staged(tmp_path) as stage:
        write_half(stage / "file", error)


@pytest.mark.parametrize(
    "error", [RuntimeError("mat1 and mat2 cannot be multiplied"), ValueError("odd"), OSError("odd")]
)
def test_what_is_not_the_disks_fault_is_not_blamed_on_it(tmp_path, error):
    with pytest.raises(type(error), match=str(error)) as found, staged(tmp_path):
        raise error
    assert not isinstance(found.value, WriteError)
