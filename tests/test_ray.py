"""compare --engine ray: the table of --jobs 2, whatever is lost on the way; what is wrong is said in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from commands import fails, run_json

from attentrim.compare import on_ray
from attentrim.compare.making import DONE, LOG, SETTINGS
from attentrim.compare.on_ray import OnRay, divided, make_there
from attentrim.errors import AttentrimError

STEPS = 80
BY_THE_CLOCK = ("train_seconds", "peak_memory_bytes", "measured_with", "output_dir")


def words(home, directory, *more):
    data = ("--model", home / "tiny", "--task", "cola", "--data_dir", home / "data")
    size = ("--max_steps", STEPS, "--learning_rate", 1e-3, "--logging_steps", 1, "--use_cpu")
    return ("compare", *data, *size, "--methods", "random-heads", "--seeds", 1, "--output_dir", directory, *more)


def figures(directory):
    """All that a comparison and its runs found, but for what no two runs share."""
    results = json.loads((directory / "results.json").read_text())
    runs = {path.parent: json.loads(path.read_text()) for path in sorted(directory.glob("*/seed-*/metrics.json"))}
    lines = [line.split("|") for line in (directory / "table.md").read_text().splitlines() if line.startswith("|")]
    assert lines[0][-3].strip() == "seconds"
    return {
        "table": [line[:-3] + line[-2:] for line in lines],
        "values": [(run["name"], run["seed"], run["value"]) for run in results["runs"]],
        "runs": [{name: found[name] for name in found if name not in BY_THE_CLOCK} for found in runs.values()],
        "losses": [losses(place / "history.jsonl") for place in runs],
    }


def losses(path):
    return [json.loads(line).get("loss") for line in path.read_text().splitlines()]


# Where ray is installed


@pytest.fixture
def _own_ray(monkeypatch):
    """Not the cluster that a developer may have running."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "local")


@pytest.fixture(scope="module")
def local(home, tmp_path_factory):
    pytest.importorskip("ray")
    directory = tmp_path_factory.mktemp("local")
    command = [str(word) for word in words(home, directory, "--jobs", 2)]
    subprocess.run([sys.executable, "-m", "attentrim.cli", *command, "--quiet"], check=True)
    found = figures(directory)
    assert found["values"][0][2] not in (0, 1)  # equal figures are to say something
    assert len(found["losses"][0]) >= STEPS
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("_own_ray")
def test_the_table_is_that_of_one_machine(home, tmp_path, capsys, local):
    run_json(capsys, *words(home, tmp_path, "--engine", "ray", "--jobs", 2))
    assert figures(tmp_path) == local
    assert not list(tmp_path.rglob("model.safetensors"))


@pytest.mark.usefixtures("_own_ray")
@pytest.mark.skipif(sys.platform != "linux", reason="workers are found in /proc")
def test_a_lost_worker_costs_its_run_only(home, tmp_path, capsys, local):
    run = tmp_path / "random-heads" / "seed-0"
    killed = []

    def kill():
        worker = at_work_in(run)
        assert not (run / DONE).exists()
        os.kill(worker, signal.SIGKILL)
        killed.append(worker)

    thread = threading.Thread(target=kill)
    thread.start()
    run_json(capsys, *words(home, tmp_path, "--engine", "ray", "--jobs", 2))
    thread.join()
    assert killed
    assert figures(tmp_path) == local


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="workers are found in /proc")
def test_a_lost_machine_costs_its_runs_only(home, tmp_path, local):
    """Two machines of a cluster, as far as Ray can tell; the comparison is on the one that stays."""
    utilities = pytest.importorskip("ray.cluster_utils")
    cluster = utilities.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        other = cluster.add_node(num_cpus=1)
        command = [str(word) for word in words(home, tmp_path, "--engine", "ray")]
        process = subprocess.Popen(
            [sys.executable, "-m", "attentrim.cli", *command],
            env={**os.environ, "RAY_ADDRESS": cluster.address},
            stderr=subprocess.PIPE,
            text=True,
        )
        for run in (tmp_path / "dense" / "seed-0", tmp_path / "random-heads" / "seed-0"):
            at_work_in(run)
        cluster.remove_node(other, allow_graceful=False)
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    finally:
        cluster.shutdown()
    assert figures(tmp_path) == local


def at_work_in(run, seconds=600):
    """The process that has made some steps of a run; its output goes to the run's log."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (run / "history.jsonl").is_file() and len(losses_so_far(run)) > 2:
            for place in Path("/proc").glob("[0-9]*/fd/1"):
                try:
                    if place.readlink() == run / LOG:
                        return int(place.parts[2])
                except OSError:
                    continue
        time.sleep(0.005)
    raise AssertionError(f"nothing is at work in {run}")


def losses_so_far(run):
    return (run / "history.jsonl").read_text().splitlines()


# Anywhere


@pytest.mark.parametrize(
    ("nodes", "jobs", "expected"),
    [
        ([{"CPU": 2}], 2, (2, 1, 0)),
        ([{"CPU": 16}], None, (1, 16, 0)),
        ([{"CPU": 4}] * 3, None, (3, 4, 0)),
        ([{"CPU": 4}] * 3, 4, (4, 2, 0)),  # of three CPUs, only one run would fit into each machine
        ([{"CPU": 4}] * 3, 2, (2, 4, 0)),  # six CPUs would fit into none
        ([{"CPU": 2}], 8, (8, 1, 0)),  # Ray has the others wait
        ([{"CPU": 16, "GPU": 1}], 8, (8, 2, 0.125)),
        ([{"CPU": 16, "GPU": 1}], 6, (6, 2, 0.1666)),  # six times 0.1667 would be more than one
        ([{"CPU": 16, "GPU": 4}, {"CPU": 8, "GPU": 2}, {"CPU": 64}], None, (6, 4, 1)),
        ([{"GPU": 0}, {"CPU": 8, "GPU": 2}], 2, (2, 4, 1)),  # a head that runs nothing
        ([], None, (1, 1, 0)),
    ],
)
def test_what_each_run_gets(nodes, jobs, expected):
    assert divided(nodes, jobs) == expected


class AnotherMachine:
    """Ray, with a worker that shares no files."""

    def __init__(self, answer):
        self.answer = answer

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": 1}}, {"Alive": False, "Resources": {"CPU": 9}}]

    def remote(self, *args, **options):
        assert args or options == {"num_cpus": 1, "num_gpus": 0, "max_retries": 3, "max_calls": 1}
        return object() if args else lambda function: self

    def get(self, task):
        return self.answer

    class exceptions:  # noqa: N801
        RayError = RuntimeError


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (("far", None), "far made it, and its files are not here: --engine ray needs a file system that all"),
        (("far", "the loss is nan"), "the loss is nan (on far)"),
    ],
)
def test_what_a_worker_answers(tmp_path, monkeypatch, answer, expected):
    monkeypatch.setattr(on_ray, "_connect", lambda: (AnotherMachine(answer), False))
    monkeypatch.setattr(on_ray, "PATIENCE", 0.0)
    assert OnRay(None).run(tmp_path).startswith(expected)
    (tmp_path / DONE).touch()
    assert OnRay(None).run(tmp_path) == (answer[1] and expected)


def test_a_worker_that_does_not_see_the_files_says_so(tmp_path):
    assert "seed-0/settings.json there: --engine ray needs" in make_there(tmp_path / "seed-0", tmp_path)
    (tmp_path / SETTINGS).touch()
    assert "elsewhere there: --engine ray needs" in make_there(tmp_path, tmp_path / "elsewhere")
    (tmp_path / DONE).touch()
    assert make_there(tmp_path, tmp_path) is None  # what was done already is not done again


def test_clusters_that_do_not_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(AttentrimError, match=r"no Ray cluster at 127\.0\.0\.1:1 .*unset RAY_ADDRESS"):
        on_ray._check_address()
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr(on_ray, "LAST_CLUSTER", tmp_path / "last")
    on_ray._check_address()
    (tmp_path / "last").write_text("127.0.0.1:1")
    with pytest.raises(AttentrimError, match="start it again, or delete"):
        on_ray._check_address()


def test_wrong_input(home, tmp_path, capsys, monkeypatch):
    assert "Unknown engine 'rya'. Did you mean 'ray'?" in fails(
        capsys, *words(home, tmp_path / "a", "--engine", "rya")
    )
    monkeypatch.setitem(sys.modules, "ray", None)
    error = fails(capsys, *words(home, tmp_path / "b", "--engine", "ray"))
    assert error == '--engine ray needs ray, which is not installed: pip install "attentrim[ray]"'
    assert not list(tmp_path.iterdir())
