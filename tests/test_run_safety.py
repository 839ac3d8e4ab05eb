"""Runs that cannot be lost or mixed up: fingerprints, half-written checkpoints, finished runs, signals, locks."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import killed
import pytest
import training as tr
from commands import fails, run, run_json

from attentrim import AttendOut, AutoAttention, Distillation, Fisher, Trainer
from attentrim.compare import comparison
from attentrim.errors import AttentrimError, TrainingError
from attentrim.resuming import last_complete
from attentrim.runs import pipeline
from attentrim.runs.occupied import locked

METHODS = {
    "autoattention": lambda: AutoAttention(target_sparsity=0.5),
    "fisher": lambda: Fisher(speedup=1.5, cost="flops", dense_share=0.0, speed_length=8, width_step=4),
    "attendout": lambda: AttendOut(preset="v2", window=4),
}
SAVES = {"save_strategy": "steps", "save_steps": 5, "save_total_limit": 2}


def trainer_in(directory, name="autoattention", **more):
    return tr.trainer(directory, METHODS[name](), **{**SAVES, **more})


def content(directory):
    """Every file with its hash, but for the times at which they were made."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# Other runs


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 7}, "seed was 42, is 7"),
        ({"learning_rate": 1e-4}, "learning_rate was 0.001, is 0.0001"),
        ({"max_steps": 30}, "max_steps was 20, is 30"),
        ({"per_device_train_batch_size": 8}, "per_device_train_batch_size was 16, is 8"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_by_what_differs(tmp_path, change, said):
    trainer_in(tmp_path).train()
    with pytest.raises(TrainingError, match=f"belongs to another run .{said}"):
        trainer_in(tmp_path, **change).train(resume_from_checkpoint=True)


def test_another_method_setting_model_teacher_or_data_is_refused(tmp_path):
    trainer_in(tmp_path).train()
    sparser = tr.trainer(tmp_path, AutoAttention(target_sparsity=0.25), **SAVES)
    with pytest.raises(TrainingError, match=r"method_config target_sparsity was 0\.5, is 0\.25"):
        sparser.train(resume_from_checkpoint=True)
    with pytest.raises(TrainingError, match='method was "autoattention", is "none"'):
        tr.trainer(tmp_path, None, **SAVES).train(resume_from_checkpoint=True)
    wider = tr.trainer(tmp_path, METHODS["autoattention"](), tr.classifier(intermediate_size=48), **SAVES)
    with pytest.raises(TrainingError, match="another model"):
        wider.train(resume_from_checkpoint=True)
    taught = tr.trainer(tmp_path, METHODS["autoattention"](), distillation=Distillation(logits=1.0),
                        teacher=tr.classifier(1), **SAVES)  # fmt: skip
    with pytest.raises(TrainingError, match=r"distill_logits was none, is 1\.0"):
        taught.train(resume_from_checkpoint=True)
    other = trainer_in(tmp_path)
    other.train_dataset = tr.examples(64, seed=5)
    with pytest.raises(TrainingError, match="other training data"):
        other.train(resume_from_checkpoint=True)


def test_what_does_not_change_a_run_may_change(tmp_path):
    trainer_in(tmp_path).train()
    shutil.rmtree(tmp_path / "checkpoint-20")
    again = trainer_in(tmp_path, logging_steps=1, save_total_limit=5, eval_strategy="steps", eval_steps=5)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 20


# Checkpoints that are not whole


@pytest.mark.parametrize("damage", ["no state", "half a state", "another step's state"])
def test_a_checkpoint_that_is_not_whole_is_passed_by(tmp_path, damage):
    whole = trainer_in(tmp_path)
    whole.train()
    state = tmp_path / "checkpoint-20" / "trainer_state.json"
    text = state.read_text()
    state.unlink()
    if damage != "no state":
        state.write_text(
            text[: len(text) // 2] if damage == "half a state" else text.replace('step": 20', 'step": 15')
        )
    assert last_complete(tmp_path) == str(tmp_path / "checkpoint-15")
    again = trainer_in(tmp_path)
    again.train(resume_from_checkpoint=True)
    assert tr.same(tr.weights(whole.model), tr.weights(again.model))


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("optimizer.pt", "optimizer"),
        ("scheduler.pt", "scheduler"),
        ("rng_state.pth", "rng_state"),
        ("model.safetensors", "safetensors"),
    ],
)
def test_a_checkpoint_without_a_part_is_refused(tmp_path, part, named):
    trainer_in(tmp_path).train()
    (tmp_path / "checkpoint-20" / part).unlink()
    with pytest.raises(TrainingError, match=f"it lacks .*{named}"):
        trainer_in(tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-20"))


def test_nothing_to_go_on_from(tmp_path):
    with pytest.raises(TrainingError, match="no checkpoint to resume from"):
        trainer_in(tmp_path).train(resume_from_checkpoint=True)
    with pytest.raises(TrainingError, match="no such directory"):
        trainer_in(tmp_path).train(resume_from_checkpoint=str(tmp_path / "nowhere"))


def test_a_checkpoint_that_is_saved_anew_is_not_whole_meanwhile(tmp_path, monkeypatch):
    """Over an older one of the same step: its state would tell that the new weights are whole."""
    trainer_in(tmp_path).train()
    again, seen = trainer_in(tmp_path), []
    save = again._save_optimizer_and_scheduler

    def look_and_save(directory):
        seen.append(last_complete(tmp_path))
        save(directory)

    monkeypatch.setattr(again, "_save_optimizer_and_scheduler", look_and_save)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-15"))
    assert seen == [str(tmp_path / "checkpoint-15")]


def test_a_checkpoint_of_the_last_step_has_none_left(tmp_path):
    """In the middle of an epoch, where the stock Trainer takes one step more."""
    whole = trainer_in(tmp_path, max_steps=18, save_steps=6)
    whole.train()
    again = trainer_in(tmp_path, max_steps=18, save_steps=6)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 18
    assert tr.same(tr.weights(whole.model), tr.weights(again.model))


def test_a_resumed_run_reports_as_one_run(tmp_path):
    """Losses that are logged over several steps, and in all; the seconds of all parts."""
    settings = {"save_steps": 4, "save_total_limit": 9, "logging_steps": 5}
    whole, again = trainer_in(tmp_path, **settings), trainer_in(tmp_path, **settings)
    output = whole.train()
    state = tmp_path / "checkpoint-8" / "trainer_state.json"
    kept = json.loads(state.read_text())
    kept["stateful_callbacks"]["attentrim"]["seconds"] = 1000.0
    state.write_text(json.dumps(kept))
    resumed = again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert [line["loss"] for line in again.state.log_history if "loss" in line] == [
        line["loss"] for line in whole.state.log_history if "loss" in line
    ]
    assert resumed.training_loss == output.training_loss
    assert 1000 < resumed.metrics["train_runtime"] < 2000


def test_an_evaluation_that_ends_an_epoch_is_made_up_for(tmp_path):
    """The stock Trainer saves the checkpoint of an epoch's last step before the epoch is evaluated."""
    settings = {"save_steps": 4, "save_total_limit": 9, "eval_strategy": "epoch"}
    model = {"hidden_dropout_prob": 0.1}
    whole = tr.trainer(tmp_path, METHODS["autoattention"](), tr.classifier(**model), **{**SAVES, **settings})
    whole.train()
    again = tr.trainer(tmp_path, METHODS["autoattention"](), tr.classifier(**model), **{**SAVES, **settings})
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert tr.same(tr.weights(whole.model), tr.weights(again.model))

    def logged(trainer):
        lines = [{name: value for name, value in line.items() if "runtime" not in name and "per_second" not in name}
                 for line in trainer.state.log_history if "eval_accuracy" in line]  # fmt: skip
        return sorted(json.dumps(line, sort_keys=True) for line in lines)

    assert len(logged(whole)) == 5
    assert logged(again) == logged(whole)


# Directories of finished runs


def words(home, directory, *more):
    data = ("train", "--model", home / "tiny", "--task", "cola", "--data_dir", home / "data")
    few = ("--num_train_epochs", 2, "--per_device_train_batch_size", 16, "--learning_rate", "1e-3", "--use_cpu")
    return (*data, *few, "--no_bench", "--output_dir", directory, *more)


def test_a_finished_run_stays_unless_it_is_to_be_replaced(home, tmp_path, capsys):
    directory = tmp_path / "run"
    run_json(capsys, *words(home, directory, "--keep_checkpoints"))
    (directory / "report.html").write_text("of the first run")
    before = content(directory)
    assert "holds a finished run" in fails(capsys, *words(home, directory, "--seed", 1))
    assert "seed was 42, is 1" in fails(
        capsys, *words(home, directory, "--seed", 1, "--resume_from_checkpoint", "true")
    )
    assert content(directory) == before
    # what fails on the way, with leave to replace the run, has not touched it
    wrong = ("--overwrite_output_dir", "--data_dir", tmp_path / "nowhere")
    fails(capsys, *words(home, directory, *wrong))
    assert content(directory) == before
    result = run_json(capsys, *words(home, directory, "--seed", 1, "--overwrite_output_dir"))
    assert result["seed"] == 1
    assert not (directory / "report.html").exists()


def test_an_older_run_is_not_passed_off_as_the_new_one(home, tmp_path, capsys):
    """A finished run; a second one, in its place, that dies before its first checkpoint; and then `resume`."""
    directory = tmp_path / "run"
    run_json(capsys, *words(home, directory, "--keep_checkpoints"))
    second = [str(word) for word in words(home, directory, "--seed", 1, "--overwrite_output_dir")]
    assert killed.in_process(train_until_the_first_step, second) == killed.KILLED
    assert not (directory / "model.safetensors").exists()
    for value in (["true"], []):
        resume = words(home, directory, "--seed", 1, "--resume_from_checkpoint", *value)
        assert "no checkpoint to resume from" in fails(capsys, *resume)
    result = run_json(capsys, *words(home, directory, "--seed", 1))
    assert result["seed"] == 1
    alone = run_json(capsys, *words(home, tmp_path / "alone", "--seed", 1))
    assert result["train_loss"] == alone["train_loss"]


def train_until_the_first_step(command):
    from attentrim.cli import main

    killed.die_at("step", 1)
    main(command)


def test_a_second_run_that_dies_in_training_leaves_nothing_of_the_first_beside_it(home, tmp_path, capsys):
    directory = tmp_path / "run"
    run_json(capsys, *words(home, directory))
    run("report", "--run", directory)
    diverges = ("--overwrite_output_dir", "--learning_rate", "1e30", "--max_grad_norm", 0)
    assert "training stopped" in fails(capsys, *words(home, directory, *diverges))
    left = {path.name for path in directory.iterdir()}
    assert not left & {"metrics.json", "report.html", "model.safetensors", "plan.json", "attention.safetensors"}


def test_a_finished_run_keeps_its_model_and_not_its_checkpoints(home, tmp_path, capsys):
    """Which hold the optimizer's state, twice as large as the model."""
    whole = run_json(capsys, *words(home, tmp_path / "kept", "--keep_checkpoints"))
    assert list((tmp_path / "kept").glob("checkpoint-*"))
    assert run(*words(home, tmp_path / "run")) == 0
    assert "--keep_checkpoints keeps the last one" in capsys.readouterr().out
    assert not list((tmp_path / "run").glob("checkpoint-*"))
    size = sum(path.stat().st_size for path in (tmp_path / "run").iterdir())
    assert size < 1.3 * (tmp_path / "run" / "model.safetensors").stat().st_size + 2**20
    run_json(capsys, *words(home, tmp_path / "two", "--save_total_limit", 2))
    assert len(list((tmp_path / "two").glob("checkpoint-*"))) == 2
    assert content(tmp_path / "run")["model.safetensors"] == content(tmp_path / "two")["model.safetensors"]
    finished = ("--resume_from_checkpoint", "true")
    assert "holds a finished run" in fails(capsys, *words(home, tmp_path / "run", *finished))
    assert whole["value"] == json.loads((tmp_path / "run" / "metrics.json").read_text())["value"]


def test_a_model_that_is_no_run_is_not_replaced_either(home, tmp_path, capsys):
    shutil.copytree(home / "tiny", tmp_path / "model")
    assert "holds a model" in fails(capsys, *words(home, tmp_path / "model"))


def test_the_same_command_goes_on(home, tmp_path, capsys):
    whole = run_json(capsys, *words(home, tmp_path / "whole", "--save_total_limit", 5))
    run_json(capsys, *words(home, tmp_path / "run", "--save_total_limit", 5))
    (tmp_path / "run" / "metrics.json").unlink()
    last = last_complete(tmp_path / "run")
    shutil.rmtree(last)
    assert "seed was 42, is 3" in fails(capsys, *words(home, tmp_path / "run", "--seed", 3))
    assert "give only one of them" in fails(
        capsys, *words(home, tmp_path / "run", "--overwrite_output_dir", "--resume_from_checkpoint", "true")
    )
    again = run_json(capsys, *words(home, tmp_path / "run", "--save_total_limit", 5))
    assert again["value"] == whole["value"]
    kept = content(tmp_path / "run")
    assert kept["model.safetensors"] == content(tmp_path / "whole")["model.safetensors"]


# Signals


def stop(command, history, number):
    """What a command that is told to stop, after a few steps, printed; and its exit code."""
    process = subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while time.monotonic() < until and (not history.is_file() or history.read_text().count("\n") < 5):
        time.sleep(0.05)
    process.send_signal(number)
    return process.communicate(timeout=120)[0], process.returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_stop_saves_and_says_how_to_go_on(home, tmp_path, number):
    directory = tmp_path / "run"
    command = [str(word) for word in words(home, directory, "--logging_steps", 1, "--num_train_epochs", 40)]
    history = directory / "history.jsonl"
    printed, code = stop([sys.executable, "-m", "attentrim", *command], history, number)
    assert code == 128 + number, printed
    assert "to resume: attentrim train" in printed
    assert last_complete(directory) is not None
    assert not (directory / "metrics.json").exists()
    assert json.loads(history.read_text().splitlines()[-1])["step"] < 300


def stop_two_processes(home, directory):
    """The command, what it printed when it was stopped, and the checkpoint that it left."""
    train = [str(word) for word in words(home, directory, "--logging_steps", 1, "--num_train_epochs", 12)]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [*launcher, "-m", "attentrim", *train]
    printed, _ = stop(command, directory / "history.jsonl", signal.SIGTERM)
    checkpoint = last_complete(directory)
    assert checkpoint is not None, printed
    return command, printed, Path(checkpoint)


def test_several_processes_stop_after_the_same_step(home, tmp_path):
    _, printed, checkpoint = stop_two_processes(home, tmp_path / "run")
    assert (
        printed.count(f"stopped after step {checkpoint.name.removeprefix('checkpoint-')} of 36, which is saved") == 1
    )
    assert printed.count("to resume: torchrun --nproc_per_node 2 -m attentrim train") == 1
    assert len(list(checkpoint.glob("rng_state_*.pth"))) == 2


@pytest.mark.slow
def test_several_processes_that_were_stopped_go_on(home, tmp_path):
    command, _, checkpoint = stop_two_processes(home, tmp_path / "run")
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr
    assert f"resuming from {checkpoint}" in again.stdout
    logged = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged if "loss" in line] == list(range(1, 37))


# One at a time


def hold(directory, seconds):
    with locked(directory):
        (directory / "held").touch()
        time.sleep(seconds)


def test_two_processes_cannot_write_to_one_directory(home, tmp_path, capsys):
    directory = tmp_path / "run"
    directory.mkdir()
    process = killed.CONTEXT.Process(target=hold, args=(directory, 60))
    process.start()
    while not (directory / "held").exists():
        time.sleep(0.05)
    assert "is in use" in fails(capsys, *words(home, directory))
    comparison = ("compare", "--methods", "hisp", "--seeds", 1, *words(home, directory)[1:])
    assert "is in use" in fails(capsys, *[word for word in comparison if word != "--no_bench"])
    process.kill()
    process.join()
    with locked(directory):
        pass  # the lock died with the process that held it
    assert not (directory / ".attentrim.lock").exists()


def test_a_run_and_a_comparison_hold_their_directories_while_they_work(home, tmp_path, capsys, monkeypatch):
    def refuse_a_second(name, then):
        def looked(*args, **kwargs):
            with pytest.raises(AttentrimError, match="is in use"), locked(tmp_path / name):
                pass
            seen.append(name)
            return then(*args, **kwargs)

        return looked

    def stop(*args):
        raise AttentrimError("seen enough")

    seen = []
    monkeypatch.setattr(Trainer, "training_step", refuse_a_second("run", Trainer.training_step))
    monkeypatch.setattr(pipeline, "finish", refuse_a_second("run", pipeline.finish))
    run_json(capsys, *words(home, tmp_path / "run"))
    monkeypatch.setattr(comparison, "run_all", refuse_a_second("all", stop))
    data = [word for word in words(home, tmp_path / "all")[1:] if word != "--no_bench"]
    assert fails(capsys, "compare", "--methods", "hisp", "--seeds", 1, *data) == "seen enough"
    assert seen == ["run"] * 13 + ["all"]  # twelve steps, and what comes after them


# Sharded weights, and what failed commands leave


@pytest.mark.parametrize(
    ("flag", "named"), [({"fsdp": "full_shard"}, "FSDP"), ({"deepspeed": "zero.json"}, "DeepSpeed")]
)
def test_weights_that_are_spread_over_processes_are_refused_by_name(flag, named):
    class Arguments:
        pass

    arguments = Arguments()
    vars(arguments).update(flag)
    with pytest.raises(AttentrimError, match=f"^{named} spreads weights"):
        Trainer(model=tr.classifier(), args=arguments, method=AutoAttention())


def test_a_command_that_fails_leaves_no_empty_directory(home, tmp_path, capsys):
    fails(capsys, *words(home, tmp_path / "run", "--data_dir", tmp_path / "nowhere"))
    assert not (tmp_path / "run").exists()
    (tmp_path / "there").mkdir()
    fails(capsys, *words(home, tmp_path / "there", "--data_dir", tmp_path / "nowhere"))
    assert (tmp_path / "there").is_dir()


@pytest.mark.parametrize(
    "command", ["trim --heads 0:1", "trim --heads 9:0", "export", "plan --method hisp --no_bench"]
)
def test_other_commands_that_fail_leave_no_empty_directory_either(home, tmp_path, capsys, command):
    model = home / "tiny" if "9:0" in command else tmp_path / "nowhere"
    data = ("--task", "cola", "--data_dir", home / "data") if command.startswith("plan") else ()
    fails(capsys, *command.split(), "--model", model, *data, "--output_dir", tmp_path / "out")
    assert not (tmp_path / "out").exists()
