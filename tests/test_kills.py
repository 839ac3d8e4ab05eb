"""Runs that are killed, at whatever moment, go on by the same command to the end that they would have had."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time

import killed
import pytest
from safetensors import safe_open

from attentrim.resuming import last_complete
from attentrim.runs.pipeline import run
from attentrim.runs.settings import RunSettings

METHODS = {
    "autoattention": {"target_sparsity": 0.5},
    "fisher": {"speedup": 1.5, "cost": "flops", "dense_share": 0.2, "speed_length": 8, "width_step": 4},
    "attendout": {"preset": "v2", "window": 4},
}
TRAINING = {
    "num_train_epochs": 2,
    "per_device_train_batch_size": 16,
    "learning_rate": 1e-3,
    "use_cpu": True,
    "disable_tqdm": True,
    # an epoch has six steps: neither logs nor saves come at its end alone
    "logging_steps": 5,
    "save_strategy": "steps",
    "save_steps": 4,
}
OF_THE_MACHINE = ("runtime", "per_second", "preparation_time", "train_seconds", "peak_memory", "measured_with")
MOMENTS = {"save": 40, "step": 12, "evaluation": 4, "finish": 16}
"""How many of each there are in a run, at least."""
KILLS = int(os.environ.get("ATTENTRIM_KILLS", "4"))
"""For each method; half of them while it saves."""


def settings(home, directory, name):
    return RunSettings(
        model=str(home / "tiny"),
        task="cola",
        data_dir=str(home / "data"),
        output_dir=str(directory),
        method=name,
        method_config=METHODS[name],
        training=TRAINING,
        no_bench=True,
    )


def outcome(directory):
    """What a run ended with, but for times and places."""
    history = [json.loads(line) for line in (directory / "history.jsonl").read_text().splitlines()]
    metrics = json.loads((directory / "metrics.json").read_text())
    return {
        **{name: digest(directory / f"{name}.safetensors") for name in ("model", "attention")},
        "plan": json.loads((directory / "plan.json").read_text()),
        "card": (directory / "README.md").read_text().replace(directory.name, ""),
        "metrics": timeless({**metrics, "output_dir": None}),
        **{f"line {number}": timeless(line) for number, line in enumerate(history)},
    }


def digest(file):
    """Of all tensors; the order of a file's metadata is any."""
    with safe_open(file, "np") as opened:
        return hashlib.sha256(
            b"".join(opened.get_tensor(name).tobytes() for name in sorted(opened.keys()))
        ).hexdigest()


def timeless(found):
    if not isinstance(found, dict):
        return found
    kept = {name: value for name, value in found.items() if not any(part in name for part in OF_THE_MACHINE)}
    return {name: timeless(value) for name, value in kept.items()}


def moments(name):
    """Half of the kills in saves, the others in steps, evaluations and the end, spread over the run at random."""
    draw = random.Random(name)
    kinds = [("save", ("step", "evaluation", "finish")[number // 2 % 3])[number % 2] for number in range(KILLS)]
    return [(kind, draw.randint(1, MOMENTS[kind])) for kind in kinds]


def run_until_killed(made, moment, number):
    killed.die_at(moment, number)
    run(made)
    os._exit(0)


@pytest.fixture(scope="module")
def undisturbed(home, tmp_path_factory):
    """The outcome of each method's run without a kill."""
    found = {}

    def of(name):
        if name not in found:
            directory = tmp_path_factory.mktemp("undisturbed") / "run"
            run(settings(home, directory, name))
            found[name] = outcome(directory)
        return found[name]

    return of


@pytest.mark.parametrize("name", METHODS)
def test_a_run_that_is_killed_goes_on_to_the_same_end(home, tmp_path, undisturbed, name):
    expected = undisturbed(name)
    for case, (moment, number) in enumerate(moments(name)):
        directory = tmp_path / str(case) / "run"
        made = settings(home, directory, name)
        assert killed.in_process(run_until_killed, made, moment, number) == killed.KILLED, (moment, number)
        last, said = last_complete(directory), []
        run(made, say=said.append)
        assert any(remark.startswith(f"resuming from {last};") for remark in said) == (last is not None)
        assert outcome(directory) == expected, f"killed in {moment} {number}"
        left = [path.name for path in directory.iterdir() if path.name.startswith((".", "checkpoint-"))]
        assert not left


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_command_that_is_killed_again_and_again_goes_on_to_the_same_end(home, tmp_path, undisturbed, name):
    """By SIGKILL, at any time, as often as it takes."""
    directory = tmp_path / "run"
    made = settings(home, directory, name)
    config = {**{f"--{key}": value for key, value in TRAINING.items()}, "--model": made.model, "--task": made.task}
    config |= {"--data_dir": made.data_dir, "--output_dir": directory, "--method": name}
    words = [str(word) for pair in config.items() for word in pair]
    words += ["--no_bench", "--method_config", *(f"{key}={value}" for key, value in METHODS[name].items())]
    draw, kills, config_file = random.Random(name), 0, directory / "config.yaml"
    while not (directory / "metrics.json").is_file():
        before = config_file.stat().st_mtime_ns if config_file.is_file() else 0
        process = subprocess.Popen([sys.executable, "-m", "attentrim", "train", *words], stderr=subprocess.PIPE)
        while process.poll() is None and not (config_file.is_file() and config_file.stat().st_mtime_ns > before):
            time.sleep(0.01)  # until it has begun
        try:
            _, printed = process.communicate(timeout=draw.uniform(0, 0.7) if kills < 8 else None)
            assert process.returncode == 0, printed
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
    assert kills
    assert outcome(directory) == undisturbed(name)
