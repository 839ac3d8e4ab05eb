"""ONNX export: every architecture answers in onnxruntime as in PyTorch, and the check that says so can fail."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers as tf
import zoo
from close import assert_close
from torch import nn

from attentrim import Control, Plan, find_sites, trim
from attentrim.errors import MissingExtraError, UnsupportedModelError
from attentrim.export import ExportError, checking, export_onnx, quantizing, refusals, writing
from attentrim.inputs import example_inputs
from attentrim.structures.layers import find_layers

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

THINNED = {"bart", "bert", "clip", "mistral", "mpnet", "phi3", "t5", "wav2vec2"}
"""Architectures whose even sites lose some of their heads here; those of the others lose all."""
EAGER_ONLY = {"deberta-v2", "mpnet"}
STACKS = {"bart": "layers", "t5": "block"}
TOKENS = {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "sequence"}}
TYPED = {**TOKENS, "token_type_ids": {0: "batch", 1: "sequence"}}
DECODED = {**TOKENS, "decoder_input_ids": {0: "batch", 1: "decoder_sequence"}}
SPEECH = {"input_values": {0: "batch", 1: "samples"}, "attention_mask": {0: "batch", 1: "samples"}}
AXES = {
    **dict.fromkeys(zoo.CONFIGS, TOKENS),
    **dict.fromkeys(["albert", "bert", "camembert", "electra", "roberta", "xlm-roberta"], TYPED),
    **dict.fromkeys(["bart", "t5"], DECODED),
    "clip": {**TOKENS, "pixel_values": {0: "image_batch"}},
    "vit": {"pixel_values": {0: "batch"}},
    "wav2vec2": SPEECH,
}
POOLED = ("last_hidden_state", "pooler_output")
OUTPUTS = {
    **dict.fromkeys([*zoo.GENERATIVE, *zoo.SEQ2SEQ], ("logits",)),
    **dict.fromkeys(["deberta-v2", "distilbert", "electra", "modernbert"], ("last_hidden_state",)),
    **dict.fromkeys(["albert", "bert", "camembert", "mpnet", "roberta", "vit", "xlm-roberta"], POOLED),
    "clip": ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds"),
    "wav2vec2": ("last_hidden_state", "extract_features"),
}
BY_POSITION = ("logits", "last_hidden_state", "extract_features")


def trimmed(name):
    """Thinned (or headless) and uniform sites in turn, narrow and empty blocks too, and layers that are gone.

    Gentle weights keep rounding far below the tolerance. One layer is left in each stack of an encoder-decoder, two in
    others: tracing takes seconds per layer.
    """
    layers = 2 if name in (*zoo.SEQ2SEQ, "albert") else 3
    model = zoo.build(name, attn="eager" if name in EAGER_ONLY else "sdpa", scale=2.0, layers=layers)
    gone = (
        [] if name == "albert" else [layer.index for layer in find_layers(model) if layer.index % layers == layers - 1]
    )
    kept = [site for site in find_sites(model) if site.index not in gone]
    heads = {site.index: site.group(0) if name in THINNED else range(site.heads) for site in kept[::2]}
    uniform = [site.index for site in kept[1::2]]
    neurons = {site.index: range(1 if site in kept[::2] else 0, 32) for site in kept}
    return trim(model, Plan.of(model, heads=heads, uniform=uniform, neurons=neurons, layers=gone))


def feed(name, names, padding):
    """Inputs made without `example_inputs`, of shapes that the export has not seen."""
    inputs = zoo.inputs(name, padding, batch=4, length=23)
    if "token_type_ids" in names:
        inputs["token_type_ids"] = torch.randint(0, 2, (4, 23), generator=torch.Generator().manual_seed(2))
    return {key: inputs[key] for key in names}


def run(path, inputs):
    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    results = session.run(names, {name: value.numpy() for name, value in inputs.items()})
    return {name: torch.from_numpy(result) for name, result in zip(names, results, strict=True)}


def at_tokens(name, model, inputs, key, output):
    if key not in BY_POSITION or "attention_mask" not in inputs or name in zoo.SEQ2SEQ:
        return output
    mask = inputs["attention_mask"]
    if name == "wav2vec2":
        mask = model._get_feature_vector_attention_mask(output.shape[1], mask)
    return output[mask.bool()]


def settings(model):
    return model.config.to_dict(), model.config._attn_implementation, model.training


@pytest.mark.parametrize("name", zoo.CONFIGS)
def test_every_architecture_answers_the_same_in_onnxruntime(name, tmp_path, capfd, no_grad):
    model = trimmed(name).train()
    before = settings(model)
    report = export_onnx(model, tmp_path)
    assert capfd.readouterr().out == ""
    assert settings(model) == before
    assert report.model_type == name
    assert report.dynamic_axes == AXES[name]
    assert (report.inputs, report.outputs) == (tuple(AXES[name]), OUTPUTS[name])
    assert 0 < report.max_abs_difference < 2e-5 * max(1, report.largest_output)
    assert report.largest_output > 0.1
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert report.bytes == (tmp_path / "model.onnx").stat().st_size
    model.eval()
    for padding in ("none",) if name in zoo.WITHOUT_PADDING else ("right", "left"):
        inputs = feed(name, report.inputs, padding)
        expected, found = model(**inputs), run(report.path, inputs)
        for key in report.outputs:
            wanted = at_tokens(name, model, inputs, key, expected[key])
            error = (at_tokens(name, model, inputs, key, found[key]) - wanted).abs().max()
            assert error < 2e-5 * max(1, wanted.abs().max()), (key, padding)
    int8 = tmp_path / "int8.onnx"
    quantizing.quantize_file(model, Path(report.path), int8)
    assert "MatMulInteger" in {node.op_type for node in onnx.load(int8).graph.node}
    found = run(int8, inputs)
    for key in report.outputs:
        wanted = at_tokens(name, model, inputs, key, expected[key])
        assert (at_tokens(name, model, inputs, key, found[key]) - wanted).abs().max() < 0.15 * wanted.abs().max(), key


@pytest.fixture(scope="module")
def folded(tmp_path_factory):
    """A full encoder, every site uniform, under a head whose inputs have three axes; and the report of its export."""
    return fold(seed=0), export_onnx(fold(seed=0), tmp_path_factory.mktemp("folded"), batch=3, length=10)


def fold(seed):
    torch.manual_seed(seed)
    model = tf.DistilBertForMultipleChoice(zoo.CONFIGS["distilbert"]()).eval()
    zoo.liven(model)
    return trim(model, Plan.of(model, uniform=range(len(find_sites(model)))))


def test_a_folded_encoder_compares_no_pairs_of_tokens(folded):
    model, report = folded
    graph = onnx.load(report.path).graph
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in graph.value_info
    }
    products = [node.output[0] for node in graph.node if node.op_type == "MatMul"]
    # per layer: the mean over tokens, the folded matrix, and two of the feed-forward block
    assert len(products) == 4 * model.config.n_layers
    assert all(shapes[product].count("sequence") <= 1 for product in products)
    assert not {"Softmax", "Einsum", "Attention"} & {node.op_type for node in graph.node}
    # with these transformers makes the mask, outside the sites; nothing else is as large
    pairs = {node.op_type for node in graph.node for out in node.output if shapes.get(out, []).count("sequence") > 1}
    assert pairs <= {"And", "Expand"}


def test_choices_are_a_third_dynamic_axis(folded, no_grad):
    model, report = folded
    assert report.dynamic_axes["input_ids"] == {0: "batch", 1: "choices", 2: "sequence"}
    ids = torch.randint(5, 80, (4, 5, 9), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert_close(run(report.path, inputs)["logits"], model(**inputs).logits, 1e-4)


def test_the_report_tells_the_traced_shapes_from_the_checked_ones(folded):
    _, report = folded
    shapes = [(3, 2, 10), (4, 4, 13), (4, 4, 13), (1, 4, 5)]
    traced, *checked = [dict.fromkeys(["input_ids", "attention_mask"], shape) for shape in shapes]
    assert (report.traced_shapes, report.checked_shapes) == (traced, tuple(checked))
    assert report.opset == onnx.load(report.path).opset_import[0].version


def test_the_file_does_not_tell_where_it_was_made(folded):
    _, report = folded
    assert writing.__file__.encode() not in Path(report.path).read_bytes()


# Task heads


def tokenizer(folder):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    (folder / "vocab.txt").write_text("\n".join(words))
    return tf.BertTokenizer.from_pretrained(folder)


def test_a_classifier_takes_what_its_tokenizer_makes(monkeypatch, tmp_path, no_grad):
    monkeypatch.setattr(writing, "LARGEST_FILE", 0)
    torch.manual_seed(0)
    model = tf.BertForSequenceClassification(zoo.CONFIGS["bert"]()).eval()
    zoo.liven(model, 2.0)
    model.bert.embeddings.token_type_embeddings.weight.mul_(20)
    model = trim(model, Plan.of(model, heads={0: [1, 2]}, uniform=[1]))
    report = export_onnx(model, tmp_path / "new" / "folder")
    assert report.outputs == ("logits",)
    files = sorted(Path(report.path).parent.iterdir())
    assert [file.name for file in files] == ["model.onnx", "model.onnx.data"]
    assert report.bytes == sum(file.stat().st_size for file in files)
    tokens = tokenizer(tmp_path)(["a b c d", "e"], ["f g", "h i j k l m"], padding=True, return_tensors="np")
    session = onnxruntime.InferenceSession(report.path)
    (logits,) = session.run(None, dict(tokens))
    expected = model(**{name: torch.from_numpy(value) for name, value in tokens.items()}).logits
    assert_close(torch.from_numpy(logits), expected, 1e-4)
    (untyped,) = session.run(None, {**tokens, "token_type_ids": 0 * tokens["token_type_ids"]})
    assert abs(untyped - logits).max() > 1e-3


# The check of the file can fail


class Runtime:
    """Stands in for onnxruntime: runs the model itself, with a fault."""

    def __init__(self, model, fault):
        self.graph, self.fault = writing.Graph(writing.twin_of(model), ("input_ids", "attention_mask")), fault

    def get_inputs(self):
        return [SimpleNamespace(name=name, shape=["batch", "sequence"]) for name in self.graph.names]

    def get_outputs(self):
        return [SimpleNamespace(name="last_hidden_state")]

    def run(self, names, inputs):
        ids, mask = (torch.from_numpy(inputs[name]) for name in self.graph.names)
        if self.fault == "mask ignored":
            return [self.graph(ids, torch.ones_like(mask))["last_hidden_state"].numpy()]
        states = self.graph(ids, mask)["last_hidden_state"]
        return [self.faulty(states, mask).numpy()]

    def faulty(self, states, mask):
        rows, tokens = mask.shape
        scale = max(1, states[mask.bool()].abs().max())
        return {
            "none": states,
            "padding garbled": states.masked_fill(mask[..., None] == 0, torch.nan),
            "just within": states + 0.9e-4 * scale,
            "just outside": states + 1.1e-4 * scale,
            "not a number": states * torch.nan,
            "single row": states + (rows == 1),
            "left padding": states + (mask[:, 0].min() == 0),
            "right padding": states + (mask[:, -1].min() == 0),
            "longer than traced": states + (tokens > 16),
            "last token": states + (torch.arange(tokens) == tokens - 1)[:, None],
            "shape": states[:, :-1],
        }[self.fault]


@pytest.fixture
def export_with(monkeypatch, tmp_path, no_grad):
    model = zoo.build("distilbert", scale=1.0)

    def run_export(fault):
        monkeypatch.setattr(writing, "write", lambda graph, inputs, path: path.write_bytes(b"new"))
        monkeypatch.setattr(writing, "opset_of", lambda path: 20)
        monkeypatch.setattr(checking, "open_session", lambda path: Runtime(model, fault))
        return export_onnx(model, tmp_path)

    return run_export


@pytest.mark.parametrize("fault", ["none", "padding garbled", "just within"])
def test_a_right_file_passes(fault, export_with, tmp_path):
    report = export_with(fault)
    expected = 0.9e-4 * max(1, report.largest_output) if fault == "just within" else 0
    assert report.max_abs_difference == pytest.approx(expected, rel=1e-2)
    assert (tmp_path / "model.onnx").read_bytes() == b"new"


@pytest.mark.parametrize(
    "fault",
    [
        "just outside",
        "last token",
        "left padding",
        "longer than traced",
        "mask ignored",
        "not a number",
        "right padding",
        "shape",
        "single row",
    ],
)
def test_a_wrong_file_is_refused_and_not_written(fault, export_with, tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"old")
    with pytest.raises(ExportError, match="'last_hidden_state'"):
        export_with(fault)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("model.onnx", b"old")]


def test_the_file_of_another_model_is_refused(folded, monkeypatch, tmp_path):
    model, report = folded
    monkeypatch.setattr(writing, "write", lambda graph, inputs, path: shutil.copy(report.path, path))
    assert export_onnx(model, tmp_path).max_abs_difference < 1e-4
    message = r"DistilBertForMultipleChoice \(distilbert\) is wrong: its output 'logits'.*the tolerance is 0\.0001"
    with pytest.raises(ExportError, match=message):
        export_onnx(fold(seed=1), tmp_path)


def test_a_fixed_axis_is_refused():
    session = SimpleNamespace(get_inputs=lambda: [SimpleNamespace(name="input_ids", shape=["batch", 16])])
    with pytest.raises(ExportError, match="made the sequence size of the input 'input_ids' a constant"):
        checking.checked_axes(session, {"input_ids": {0: "batch", 1: "sequence"}})


# Refusals


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch": 1}, "'batch' parameter of export_onnx must be at least 2.*Got 1"),
        ({"length": 3}, "'length' parameter of export_onnx must be at least 4.*Got 3"),
        ({"length": 62}, "'length' parameter of export_onnx must be at most 61.*Got 62"),
        ({"tolerance": 0.0}, "'tolerance' parameter of export_onnx must be a positive number.*Got 0.0"),
    ],
)
def test_wrong_arguments_are_named(wrong, message, tmp_path):
    with pytest.raises(ExportError, match=message):
        export_onnx(zoo.build("gpt2"), tmp_path, **wrong)


def test_a_file_is_no_output_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match=r"'output_dir' parameter.*must be a directory"):
        export_onnx(zoo.build("bert"), tmp_path / "file")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 2), "a Linear has no config.model_type"),
        (tf.GPTNeoXModel(tf.GPTNeoXConfig(**zoo.TEXT)), "Unknown model type 'gpt_neox'"),
    ],
    ids=["not transformers", "not supported"],
)
def test_unknown_models_are_refused_by_name(model, message, tmp_path):
    with pytest.raises(UnsupportedModelError, match=message):
        export_onnx(model, tmp_path)


def test_half_precision_is_refused(tmp_path):
    with pytest.raises(ExportError, match=r"float32 weights. Got torch.bfloat16: call model.float\(\)"):
        export_onnx(zoo.build("bert").bfloat16(), tmp_path)


def test_weights_elsewhere_are_refused(tmp_path):
    with pytest.raises(ExportError, match="offloaded"):
        export_onnx(zoo.build("bert").to("meta"), tmp_path)


def test_a_controlled_model_is_refused(tmp_path):
    model = zoo.build("bert")
    with Control(model), pytest.raises(ExportError, match=r"A Control is attached.*attentrim\.trim"):
        export_onnx(model, tmp_path)


def test_a_model_that_cannot_take_a_batch_is_refused_by_name(tmp_path):
    config = zoo.CONFIGS["gpt2"]()
    config.pad_token_id = None
    message = r"GPT2ForSequenceClassification \(gpt2\) cannot be exported: .*no padding token"
    with pytest.raises(ExportError, match=message):
        export_onnx(tf.GPT2ForSequenceClassification(config).eval(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_exporter_that_gives_up_is_quoted_in_one_line(monkeypatch, tmp_path):
    def give_up(*args, **kwargs):
        raise torch.onnx.OnnxExporterError("a page of advice") from TypeError("the real\nreason")

    monkeypatch.setattr(torch.onnx, "export", give_up)
    with pytest.raises(ExportError, match=r"BertModel \(bert\) cannot be exported: the real reason$"):
        export_onnx(zoo.build("bert"), tmp_path)


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_names_the_extra(package, monkeypatch, tmp_path):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else found(name))
    message = f'ONNX export needs {package}, which is not installed: pip install "attentrim\\[onnx\\]"'
    with pytest.raises(MissingExtraError, match=message):
        export_onnx(zoo.build("bert"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_importing_the_module_imports_no_onnx():
    code = "import sys, attentrim.export; print(*{name.split('.')[0] for name in sys.modules})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    assert "torch" in loaded
    assert not loaded & set(refusals.PACKAGES)


# Example inputs


@pytest.mark.parametrize("padding", ["none", "right", "left"])
@pytest.mark.parametrize("name", zoo.CONFIGS)
def test_every_model_runs_on_its_example_inputs(name, padding, no_grad):
    inputs = example_inputs(zoo.build(name), 4, 12, padding=padding)
    assert set(inputs) == set(AXES[name])
    assert all(len(value) == 4 for value in inputs.values())
    result = zoo.build(name)(**inputs)
    output = result[OUTPUTS[name][0]]
    assert output.isfinite().all()
    assert output.shape[1] == {"clip": 4, "vit": 5}.get(name, 12)


@pytest.mark.parametrize(("padding", "side"), [("right", -1), ("left", 0)])
def test_padded_rows_differ_in_length_and_end_alike(padding, side):
    model = zoo.build("clip")
    inputs = example_inputs(model, 4, 12, padding=padding)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    assert mask.sum(1).tolist() == [12, 11, 9, 8]
    assert mask[:, side].tolist() == [1, 0, 0, 0]
    config = model.config.text_config
    assert (ids[mask == 0] == config.pad_token_id).all()
    assert ((ids == config.eos_token_id).sum(1) == 1).all()
    assert all(row[kept.bool()][-1] == config.eos_token_id for row, kept in zip(ids, mask, strict=True))


def test_a_sequence_classifier_feeds_its_own_decoder(no_grad):
    model = tf.BartForSequenceClassification(zoo.CONFIGS["bart"]()).eval()
    inputs = example_inputs(model, 2, 8, padding="right")
    assert set(inputs) == {"input_ids", "attention_mask"}
    assert model(**inputs).logits.shape[0] == 2
