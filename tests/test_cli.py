"""The command line, run as a user would."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
import torch
import transformers as tf
import zoo

from attentrim import Plan, find_sites
from attentrim.cli import COMMANDS, main


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    zoo.build("bert").save_pretrained(path)
    (path / "vocab.txt").write_text("[PAD]\n[UNK]\nthe\n")
    (path / "pytorch_model.bin").write_bytes(b"old weights")
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text("{}")
    return path


@pytest.fixture
def plan_file(model_dir, tmp_path):
    Plan.of(tf.BertModel.from_pretrained(model_dir), heads={0: [1]}, uniform=[1]).save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


def run_json(capsys, *arguments) -> dict:
    capsys.readouterr()
    assert run(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_show(model_dir, capsys):
    data = run_json(capsys, "show", "--model", model_dir)
    assert data["model_type"] == "bert"
    assert [(site["heads"], site["head_size"], site["uniform"]) for site in data["sites"]] == [(4, 6, False)] * 2
    parameters = sum(p.numel() for p in tf.BertModel.from_pretrained(model_dir).parameters())
    assert (data["parameters"], data["bytes"]) == (parameters, 4 * parameters)


def test_show_prints_a_table(model_dir, capsys):
    assert run("show", "--model", model_dir) == 0
    printed = capsys.readouterr().out
    assert "encoder.layer.1" in printed
    assert "4 of 4" in printed
    assert "23,320 parameters" in printed


def test_trim_then_show(model_dir, plan_file, tmp_path, capsys):
    small = tmp_path / "small"
    data = run_json(capsys, "trim", "--model", model_dir, "--plan", plan_file, "--output_dir", small)
    assert data["heads_kept"] == [3, 0]
    assert data["uniform_sites"] == [1]
    assert data["sparsity"] == 1 / 8
    assert data["parameters"] < data["parameters_before"]
    assert data["flops"] < data["flops_before"]
    files = {str(path.relative_to(small)) for path in small.rglob("*") if path.is_file()}
    assert files == {
        "README.md",
        "config.json",
        "model.safetensors",
        "plan.json",
        "vocab.txt",
        "1_Pooling/config.json",
    }
    shown = run_json(capsys, "show", "--model", small)
    assert [(site["heads"], site["heads_before"], site["uniform"]) for site in shown["sites"]] == [
        (3, 4, False),
        (0, 4, True),
    ]
    assert shown["parameters"] == data["parameters"]


def test_trim_twice_keeps_the_whole_plan(model_dir, tmp_path, capsys):
    run("trim", "--model", model_dir, "--heads", "0:1", "--output_dir", tmp_path / "one")
    data = run_json(
        capsys,
        "trim",
        "--model",
        tmp_path / "one",
        "--heads",
        "0:0,2",
        "--uniform",
        "1",
        "--output_dir",
        tmp_path / "two",
    )
    assert Plan.load(tmp_path / "two" / "plan.json").heads == {0: (0, 1, 3)}
    assert data["heads_kept"] == [1, 0]


def test_portable_is_a_stock_checkpoint(model_dir, plan_file, tmp_path):
    assert run("trim", "--model", model_dir, "--plan", plan_file, "--output_dir", tmp_path / "p", "--portable") == 0
    assert "quantization_config" not in json.loads((tmp_path / "p" / "config.json").read_text())
    assert [site.heads for site in find_sites(tf.BertModel.from_pretrained(tmp_path / "p"))] == [4, 4]


def test_export(model_dir, plan_file, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    run("trim", "--model", model_dir, "--plan", plan_file, "--output_dir", tmp_path / "small")
    arguments = ("--model", tmp_path / "small", "--format", "onnx", "--output_dir", tmp_path / "onnx")
    data = run_json(capsys, "export", *arguments)
    assert data["max_abs_difference"] <= 1e-4 * max(1.0, data["largest_output"])
    assert (tmp_path / "onnx" / "model.onnx").exists()
    assert data["traced_shapes"]["input_ids"] not in [shapes["input_ids"] for shapes in data["checked_shapes"]]


def test_env(capsys):
    data = run_json(capsys, "env")
    assert data["packages"]["torch"] == torch.__version__
    assert "bert" in data["architectures"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "--model", "/no/such/place"], "There is no model directory /no/such/place"),
        (["show", "--model", "no-such-model-name"], "Cannot load the model 'no-such-model-name'"),
        (["show", "--model", "DAMAGED"], "Cannot load the model"),
        (["show", "--model", "UNKNOWN"], "names 'MyOwnModel', which is not a transformers model"),
        (["trim", "--model", "MODEL", "--plan", "PLAN", "--output_dir", ""], "--output_dir is empty"),
        (["trim", "--model", "MODEL", "--output_dir", "OUT"], "Nothing to remove: give --plan"),
        (
            ["trim", "--model", "MODEL", "--plan", "PLAN", "--uniform", "0", "--output_dir", "OUT"],
            "Nothing to remove: give --plan",
        ),
        (["trim", "--model", "MODEL", "--plan", "/none.json", "--output_dir", "OUT"], "Cannot read the plan"),
        (["trim", "--model", "MODEL", "--plan", "PLAN", "--output_dir", "MODEL"], "directory of the model"),
        (["trim", "--model", "MODEL", "--plan", "PLAN", "--output_dir", "PLAN"], "is a file"),
        (["trim", "--model", "MODEL", "--heads", "0", "--output_dir", "OUT"], "--heads takes SITE:HEADS"),
        (["trim", "--model", "MODEL", "--heads", "0:x", "--output_dir", "OUT"], "--heads takes SITE:HEADS"),
        (["trim", "--model", "MODEL", "--heads", "0:1", "0:2", "--output_dir", "OUT"], "each site once"),
        (["trim", "--model", "MODEL", "--heads", "9:1", "--output_dir", "OUT"], "There is no site 9"),
    ],
)
def test_bad_input_gets_one_clear_line(arguments, message, model_dir, plan_file, tmp_path, capsys):
    places = {"MODEL": model_dir, "PLAN": plan_file, "OUT": tmp_path / "out"}
    for name in ("DAMAGED", "UNKNOWN"):
        places[name] = shutil.copytree(model_dir, tmp_path / name)
    (tmp_path / "DAMAGED" / "model.safetensors").write_bytes(b"not tensors")
    config = json.loads((model_dir / "config.json").read_text())
    (tmp_path / "UNKNOWN" / "config.json").write_text(json.dumps({**config, "architectures": ["MyOwnModel"]}))
    capsys.readouterr()
    assert run(*[places.get(argument, argument) for argument in arguments]) == 1
    printed = capsys.readouterr()
    (line,) = printed.err.strip().splitlines()
    assert line.startswith("attentrim: error: ")
    assert message in line
    assert printed.out == ""


def test_a_length_below_one_is_refused(model_dir, capsys):
    with pytest.raises(SystemExit, match="2"):
        run("show", "--model", model_dir, "--length", "0")
    assert "must be 1 or more" in capsys.readouterr().err


def test_an_output_directory_inside_the_models_own(model_dir, tmp_path, capsys):
    inside = shutil.copytree(model_dir, tmp_path / "model") / "small"
    for _ in range(2):
        assert run("trim", "--model", inside.parent, "--heads", "0:1", "--output_dir", inside) == 0
    assert not (inside / "small").exists()


def test_help_lists_every_command_with_examples(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        assert f"attentrim {command}" in capsys.readouterr().out.split("examples:")[1]


def modules_after(code: str) -> set[str]:
    script = f"import sys; {code}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_and_help_stay_light():
    """Counted rather than timed: nothing heavy is imported."""
    for code in ("import attentrim", "from attentrim.cli import build_parser; build_parser().format_help()"):
        loaded = modules_after(code)
        assert not loaded & {"torch", "transformers", "numpy", "onnx", "onnxruntime", "safetensors"}


def test_the_package_is_a_command_too():
    """Where scripts are not on the path."""
    done = subprocess.run([sys.executable, "-m", "attentrim", "--version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("attentrim ")
    refused = subprocess.run([sys.executable, "-m", "attentrim", "show", "--model", "nowhere"], capture_output=True)
    assert refused.returncode == 1
