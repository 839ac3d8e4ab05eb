"""int8 export: which weights the file holds, how far its answers are off, and what it costs on a task."""

from __future__ import annotations

import importlib.util
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf
import zoo
from commands import fails, run, run_json
from torch import nn

from attentrim import Plan, trim
from attentrim.errors import AttentrimError
from attentrim.export import ExportError, export_onnx, outliers, quantizing, writing
from attentrim.runs.exported import ExportedModel

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")


@pytest.fixture(scope="module", autouse=True)
def trace_once(tmp_path_factory):
    """Tracing takes seconds, and these tests begin where it ends."""
    traced, trace = {}, writing.write

    def write(graph, inputs, path):
        key = float(sum(value.double().abs().sum() for value in graph.parameters())), writing.LARGEST_FILE
        if key not in traced:
            traced[key] = tmp_path_factory.mktemp("traced")
            trace(graph, inputs, traced[key] / path.name)
        shutil.copytree(traced[key], path.parent, dirs_exist_ok=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "write", write)
        yield


@pytest.fixture(scope="module")
def classifier():
    """Sites with some heads, with none, and uniform; blocks narrow and empty; a layer that is gone."""
    torch.manual_seed(0)
    model = tf.BertForSequenceClassification(zoo.CONFIGS["bert"](4)).eval()
    zoo.liven(model, 2.0)
    neurons = {0: range(20), 1: range(32)}
    return trim(model, Plan.of(model, heads={0: [1, 2], 1: range(4)}, uniform=[2], neurons=neurons, layers=[3]))


@pytest.fixture(scope="module")
def exported(classifier, tmp_path_factory):
    return export_onnx(classifier, tmp_path_factory.mktemp("int8"), quantize="int8")


def stored(path):
    return {entry.name: onnx.numpy_helper.to_array(entry) for entry in onnx.load(path).graph.initializer}


# The file


def test_the_answers_of_a_trimmed_model_in_int8(classifier, exported, no_grad):
    assert 1e-4 < exported.max_abs_difference < 0.05 * exported.largest_output
    assert 0 < exported.mean_abs_difference < exported.max_abs_difference
    assert exported.largest_output > 0.1
    inputs = zoo.inputs("bert", "right", batch=5, length=21)
    inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    feed = {name: value.numpy() for name, value in inputs.items()}
    (found,) = onnxruntime.InferenceSession(exported.path).run(None, feed)
    wanted = classifier(**inputs).logits.numpy()
    assert 1e-4 < abs(found - wanted).max() < 0.05 * abs(wanted).max()


def test_only_the_int8_file_is_left(exported):
    (file,) = Path(exported.path).parent.iterdir()
    assert (file.name, file.stat().st_size) == ("model.onnx", exported.bytes)
    assert (exported.quantize, exported.bytes < exported.bytes_float) == ("int8", True)


def test_every_weight_is_within_half_a_step_of_the_model(classifier, exported):
    """Scales by hand: each output channel reaches ±127."""
    found = stored(exported.path)
    matrices = [value.astype(np.float32) for value in found.values() if value.dtype == np.int8 and value.ndim == 2]
    linear = [module for module in classifier.modules() if isinstance(module, nn.Linear) and module.weight.numel()]
    assert len(linear) > 8
    for module in linear:
        weight = module.weight.detach().numpy().T
        step = abs(weight).max(0) / 127
        errors = [abs(weight - step * value) / step for value in matrices if value.shape == weight.shape]
        assert min(error.max() for error in errors) < 0.5 + 1e-3
        assert np.median(min(errors, key=np.max)) > 0.1
    floats = [value for value in found.values() if value.dtype == np.float32]
    assert not [value.shape for value in floats if value.ndim == 2 and value.size > 48]


def test_embeddings_are_within_half_a_step(classifier, exported):
    found = stored(exported.path)
    words = classifier.bert.embeddings.word_embeddings.weight.detach().numpy()
    (name,) = [name for name, value in found.items() if value.shape == words.shape]
    base = name.removesuffix("_quantized")
    step = found[f"{base}_scale"]
    values = step * (found[name].astype(np.float32) - found[f"{base}_zero_point"].astype(np.float32))
    assert abs(values - words).max() < (0.5 + 1e-3) * step
    assert step < 2.01 * abs(words).max() / 254


@pytest.fixture(scope="module")
def with_outlier():
    """A neuron of the last layer that is always 10,000 and that nothing listens to: in float it changes nothing."""
    torch.manual_seed(0)
    model = tf.BertModel(zoo.CONFIGS["bert"](3)).eval()
    zoo.liven(model, 2.0)
    layer = model.encoder.layer[2]
    with torch.no_grad():
        layer.intermediate.dense.bias[0] = 1e4
        layer.output.dense.weight[:, 0] = 0.0
    return model


def test_linear_layers_whose_inputs_do_not_fit_into_8_bits_stay_in_float(with_outlier, tmp_path, monkeypatch):
    report = export_onnx(with_outlier, tmp_path / "kept", quantize="int8")
    assert report.linear_in_float == 1
    assert report.max_abs_difference < 0.05 * report.largest_output
    weight = with_outlier.encoder.layer[2].output.dense.weight.detach().numpy().T
    assert any(np.array_equal(value, weight) for value in stored(report.path).values())
    monkeypatch.setattr(quantizing, "too_coarse", lambda *_: [])
    spoilt = export_onnx(with_outlier, tmp_path / "spoilt", quantize="int8")
    assert (spoilt.linear_in_float, spoilt.mean_abs_difference > 4 * report.mean_abs_difference) == (0, True)


def test_how_far_rounded_inputs_move_outputs():
    """By hand: steps of 255 / 255 = 1 leave whole numbers alone, and move .4 to 0 and .6 to 1."""
    weight = np.eye(2, dtype=np.float32)
    assert outliers._moved(np.array([[255.0, 0.0], [3.0, 4.0], [0.0, 1.0]]), weight) == 0
    rows = np.array([[0.0, 0.4], [0.0, 0.4], [0.6, 0.0], [0.0, 0.4], [255.0, 0.0]])
    assert outliers._moved(rows, weight) == pytest.approx(1.0)
    assert outliers._moved(np.zeros((3, 2)), weight) == 0


def test_products_of_activations_stay_in_float(exported):
    """Queries times keys and scores times values in the one site with heads; the mean in the uniform one."""
    graph = onnx.load(exported.path).graph
    constant = {entry.name for entry in graph.initializer}
    free = [node for node in graph.node if node.op_type == "MatMul" and node.input[1] not in constant]
    assert len(free) == 3


def test_a_quarter_of_the_size_where_weights_dominate(tmp_path):
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 256}
    model = tf.BertModel(tf.BertConfig(vocab_size=4000, max_position_embeddings=64, **sizes)).eval()
    report = export_onnx(model, tmp_path, quantize="int8")
    assert report.bytes < 0.4 * report.bytes_float
    assert report.bytes_float > 4 * sum(parameter.numel() for parameter in model.parameters())


def test_weights_beside_the_graph(classifier, monkeypatch, tmp_path):
    monkeypatch.setattr(writing, "LARGEST_FILE", 0)
    report = export_onnx(classifier, tmp_path, quantize="int8")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert report.bytes == sum(file.stat().st_size for file in tmp_path.iterdir())
    assert onnxruntime.InferenceSession(report.path)


def test_the_log_stays_as_it_was(classifier, tmp_path, capfd):
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    export_onnx(classifier, tmp_path, quantize="int8")
    assert (root.level, root.handlers) == before
    assert capfd.readouterr() == ("", "")


# What goes wrong


def test_a_quantiser_that_gives_up_is_quoted_in_one_line(classifier, monkeypatch, tmp_path):
    def give_up(*args, **settings):
        raise RuntimeError("no such\noperator")

    monkeypatch.setattr(quantization, "quantize_dynamic", give_up)
    message = r"BertForSequenceClassification \(bert\) cannot be quantised to int8: no such operator$"
    with pytest.raises(ExportError, match=message):
        export_onnx(classifier, tmp_path, quantize="int8")
    assert not list(tmp_path.iterdir())


def test_answers_that_are_not_numbers_are_refused(classifier, monkeypatch, tmp_path):
    def spoil(model, source, target):
        graph = onnx.load(source)
        (bias,) = [entry for entry in graph.graph.initializer if entry.name.endswith("classifier.bias")]
        bias.CopyFrom(onnx.numpy_helper.from_array(np.full(2, np.nan, np.float32), bias.name))
        onnx.save(graph, target)

    monkeypatch.setattr(quantizing, "quantize_file", spoil)
    with pytest.raises(ExportError, match=r"\(bert\) has no usable answers in int8: its output 'logits'"):
        export_onnx(classifier, tmp_path, quantize="int8")
    assert not list(tmp_path.iterdir())


def test_unknown_values_are_named(classifier, tmp_path, capsys):
    with pytest.raises(ExportError, match=r"'quantize' parameter .* must be None or one of: int8\. Got 'int4'"):
        export_onnx(classifier, tmp_path, quantize="int4")
    with pytest.raises(SystemExit, match="2"):
        run("export", "--model", "m", "--output_dir", "d", "--quantize", "int4")
    assert "int8" in capsys.readouterr().err


# The command, and the metric of the file


@pytest.fixture(scope="module")
def trained(home):
    """Knows the task of `home`, as far as two layers can."""
    data = ("--task", "cola", "--data_dir", home / "data", "--output_dir", home / "run")
    training = ("--num_train_epochs", 8, "--per_device_train_batch_size", 8, "--learning_rate", 3e-3, "--use_cpu")
    method = ("--method", "random-heads", "--method_config", "target_sparsity=0.5", "--no_bench")
    assert run("train", "--model", home / "tiny", *data, *training, *method, "--quiet") == 0
    return home / "run"


def test_the_metric_of_the_model_and_of_its_file(trained, home, tmp_path, capsys):
    data = ("--task", "cola", "--data_dir", home / "data")
    wanted = run_json(capsys, "evaluate", "--model", trained, *data, "--use_cpu")
    assert wanted["value"] != 0
    arguments = ("export", "--model", trained, "--output_dir", tmp_path / "out", *data)
    for more in ((), ("--quantize", "int8")):
        found = run_json(capsys, *arguments, *more)
        assert (found["metric"], found["examples"]) == (wanted["metric"], wanted["examples"])
        assert found["value"] == pytest.approx(wanted["value"])
        assert found["value_exported"] == pytest.approx(wanted["value"], abs=0.15 if more else 1e-6)
        assert found["quantize"] == (more[1] if more else None)


def test_the_metric_is_that_of_the_file(trained, home, monkeypatch, tmp_path, capsys):
    """A file that answers 1 for every text is right as often as the label is 1."""
    plain = ExportedModel.forward

    def always_one(self, labels=None, **batch):
        outputs = plain(self, labels, **batch)
        return {**outputs, "logits": torch.tensor([[0.0, 1.0]]).expand(len(outputs["logits"]), 2)}

    monkeypatch.setattr(ExportedModel, "forward", always_one)
    file = tmp_path / "rows.csv"
    file.write_text("text,label\nthe dog runs,1\na dog likes fish,1\na cat runs,0\na cat,0\n")
    data = ("--validation_file", file, "--max_eval_samples", 3)
    found = run_json(capsys, "export", "--model", trained, "--output_dir", tmp_path / "out", *data)
    assert (found["metric"], found["examples"]) == ("accuracy", 3)
    assert found["value_exported"] == pytest.approx(2 / 3)


def test_sizes_and_differences_are_printed(trained, home, tmp_path, capsys):
    arguments = ("export", "--model", trained, "--quantize", "int8", "--output_dir", tmp_path / "int8")
    assert run(*arguments) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "MB → " in printed
    assert "in the mean" in printed
    assert f"--output_dir {tmp_path / 'int8'} --task NAME --data_dir DIR" in printed
    assert run(*arguments, "--task", "cola", "--data_dir", home / "data") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "in int8 (40 validation examples of cola)" in printed
    assert "--task NAME" not in printed


def test_data_that_cannot_be_read_is_refused_before_the_export(trained, tmp_path, capsys):
    output_dir = tmp_path / "out"
    arguments = ("export", "--model", trained, "--output_dir", output_dir, "--max_eval_samples", 3)
    assert "--task" in fails(capsys, *arguments)
    assert not output_dir.exists()


def test_without_onnxruntime_the_extra_is_named(trained, monkeypatch, tmp_path, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else found(name))
    arguments = ("export", "--model", trained, "--output_dir", tmp_path / "out", "--quantize", "int8")
    assert 'pip install "attentrim[onnx]"' in fails(capsys, *arguments)


def test_an_input_that_the_data_has_not(exported):
    with pytest.raises(AttentrimError, match="takes the input 'attention_mask', which this task's data has not"):
        ExportedModel(exported.path)(input_ids=torch.ones(1, 4, dtype=torch.long))
