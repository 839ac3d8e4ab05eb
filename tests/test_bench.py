"""attentrim bench: who is timed in which order, and what is made of the times. No test asks for speed."""

from __future__ import annotations

import importlib.util
import itertools
import json
import subprocess
import sys
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import torch
import transformers as tf
import zoo
from plans import corner_plans

from attentrim import Plan, find_sites, trim
from attentrim.bench import BACKENDS, Row, backends, batches, decoding, magnitude, measure, onednn, timing, turns
from attentrim.bench.candidates import Candidates
from attentrim.bench.timing import calls_per_repeat, interleave, median_and_quartiles, paired_ratios
from attentrim.cli import main
from attentrim.cli.output import Output
from attentrim.cli.speed_table import show_rows
from attentrim.cost import cost
from attentrim.errors import AttentrimError
from attentrim.flops import flops, most_tokens
from attentrim.runs.reader import measured_pairs

SHAPES = [(1, 8), (3, 12)]


@pytest.fixture(autouse=True)
def short_repeats(monkeypatch):
    monkeypatch.setattr(timing, "LEAST_SECONDS", {"cpu": 0.0})


@pytest.fixture(scope="module")
def dense():
    return zoo.build("bert", attn="sdpa")


@pytest.fixture(scope="module")
def small(dense):
    return trim(dense, Plan.of(dense, heads={0: [1, 2]}, uniform=[1]))


@pytest.fixture(scope="module")
def places(dense, small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    dense.save_pretrained(folder / "dense")
    small.save_pretrained(folder / "small")
    zoo.build("mpnet").save_pretrained(folder / "mpnet")
    return {name: str(folder / name) for name in ("dense", "small", "mpnet")}


def missing(monkeypatch, package):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == package else found(name))


def by_name(rows):
    return {(row.backend, row.name): row for row in rows}


# Turns and statistics


class Clock:
    """Time passes only while a candidate runs, for as long as was planted."""

    def __init__(self):
        self.now, self.order = 0.0, []

    def __call__(self):
        return self.now

    def candidate(self, name, seconds):
        planted = itertools.cycle(seconds)

        def call():
            self.order.append(name)
            self.now += next(planted)

        return call


def test_candidates_take_turns_within_each_repeat():
    clock = Clock()
    ticks = []
    turns = [(clock.candidate("a", [1.0]), 1), (clock.candidate("b", [1.0]), 2)]
    interleave(turns, 3, clock, lambda: ticks.append(len(clock.order)))
    # the first call of each turn is not timed
    assert "".join(clock.order) == "aabbb" * 3
    assert ticks == [5, 10, 15]


def test_times_are_those_of_one_call_without_the_first_of_a_turn():
    clock = Clock()
    turns = [(clock.candidate("a", [50.0, 2.0, 50.0, 4.0]), 1), (clock.candidate("b", [70.0, 1.0, 3.0]), 2)]
    assert interleave(turns, 2, clock) == [[2.0, 4.0], [2.0, 2.0]]


def test_statistics_of_planted_times():
    assert median_and_quartiles([5.0, 1.0, 4.0, 2.0, 3.0]) == (3.0, (2.0, 4.0))
    assert median_and_quartiles([7.0]) == (7.0, (7.0, 7.0))
    # a disturbance that hits both candidates leaves their ratio alone
    assert paired_ratios([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == [2.0, 2.0, 2.0]


def test_the_number_of_calls_makes_a_repeat_long_enough(monkeypatch):
    monkeypatch.setattr(timing, "LEAST_SECONDS", {"cpu": 0.02, "cuda": 0.1})
    clock = Clock()
    assert calls_per_repeat(clock.candidate("a", [0.003]), clock) == 7
    assert calls_per_repeat(clock.candidate("a", [0.003]), clock, "cuda") == 34
    assert calls_per_repeat(clock.candidate("a", [5.0]), clock) == 1


def test_rows_are_made_from_the_times_of_their_own_candidate(dense, small, monkeypatch):
    planted = iter([[[0.004, 0.040, 0.006], [0.002, 0.010, 0.002]]])
    monkeypatch.setattr(turns, "interleave", lambda *arguments: next(planted))
    against, own = measure(small, dense, shapes=[(2, 10)], repeats=3)
    assert (against.name, own.name) == ("against", "model")
    assert (against.speedup, against.speedup_quartiles) == (1.0, (1.0, 1.0))
    assert own.milliseconds_median == pytest.approx(2.0)
    assert own.milliseconds_quartiles == pytest.approx((2.0, 6.0))
    assert own.speedup == pytest.approx(3.0)
    assert own.speedup_quartiles == pytest.approx((2.5, 3.5))
    assert own.sequences_per_second == pytest.approx(1000)
    assert own.tokens_per_second == pytest.approx(10000)


# What is measured


def test_rows_cover_what_was_asked_for(dense, small):
    rows = measure(small, dense, shapes=SHAPES, dtypes=["float32", "float16"], backends=["sdpa", "eager"], repeats=2)
    asked = itertools.product(["float32", "float16"], SHAPES, ["sdpa", "eager"], ["against", "model"])
    assert [(row.dtype, (row.batch, row.length), row.backend, row.name) for row in rows] == list(asked)
    for row in rows:
        assert (row.device, row.remark) == ("cpu", None)
        assert row.milliseconds_quartiles[0] <= row.milliseconds_median <= row.milliseconds_quartiles[1]
        models = {"model": small, "against": dense}
        flops = {name: cost(model, row.batch, row.length).flops for name, model in models.items()}
        assert row.flop_ratio == flops["against"] / flops[row.name]
        assert row.parameters == cost(models[row.name]).parameters
        assert row.max_abs_difference < (1e-4 if row.dtype == "float32" else 0.1)
        assert row.max_abs_difference > 0 or row.dtype == "float32"


def test_alone_a_model_is_compared_with_itself_in_the_first_backend(small, monkeypatch):
    monkeypatch.setattr(turns, "interleave", lambda *arguments: [[0.002], [0.001]])
    rows = measure(small, shapes=[(1, 8)], backends=["eager", "sdpa"], repeats=1)
    assert [(row.backend, row.name, row.speedup, row.flop_ratio) for row in rows] == [
        ("eager", "model", 1.0, 1.0),
        ("sdpa", "model", 2.0, 1.0),
    ]


def test_the_models_stay_as_they_are(dense, small):
    before = dense.config.to_dict(), dense.dtype, dense.config._attn_implementation
    measure(small, dense, shapes=[(1, 8)], dtypes=["float16"], backends=["eager"], repeats=1)
    assert (dense.config.to_dict(), dense.dtype, dense.config._attn_implementation) == before


@pytest.mark.parametrize("name", ["bert", "bart", "clip", "gpt2", "mistral", "vit", "wav2vec2"])
def test_texts_images_speech_and_decoders(name):
    model = zoo.build(name)
    (row,) = measure(model, shapes=[(2, 12)], repeats=1)
    assert row.remark is None
    assert 0 <= row.max_abs_difference < 1e-4
    assert (row.tokens_per_second is None) == (name == "vit")


def test_the_last_row_is_padded(dense):
    padded = batches.make_batch(dense, 2, 16, 0.25, "cpu", torch.float32)
    assert padded["attention_mask"].sum(1).tolist() == [16, 12]
    assert padded["input_ids"][1, 12:].tolist() == [0] * 4
    assert batches.make_batch(dense, 2, 16, 0.0, "cpu", torch.float32)["attention_mask"].all()
    speech = batches.make_batch(zoo.build("wav2vec2"), 1, 16, 0.5, "cpu", torch.float16)
    assert speech["input_values"].dtype is torch.float16
    assert not speech["input_values"][0, speech["attention_mask"][0] == 0].any()


def test_a_sequence_of_the_last_position(dense):
    (row,) = measure(dense, shapes=[(1, 512)], repeats=1)
    assert row.remark is None


# Backends


def test_onnx_answers_like_the_model(small):
    pytest.importorskip("onnxruntime")
    rows = measure(small, shapes=SHAPES, dtypes=["float32", "float16"], backends=["onnx"], repeats=1)
    for row in rows:
        if row.dtype == "float32":
            assert row.max_abs_difference < 1e-4
            assert row.speedup == 1
        else:
            assert row.remark == "ONNX export takes float32 only"
            assert row.milliseconds_median is row.speedup is row.max_abs_difference is row.flop_ratio is None


@pytest.fixture(scope="module")
def in_int8(dense, small):
    pytest.importorskip("onnxruntime")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "LEAST_SECONDS", {"cpu": 0.0})
        patch.setattr(turns, "interleave", lambda *arguments: [[0.008], [0.004], [0.002], [0.001]])
        return measure(small, dense, shapes=[(2, 12)], backends=["onnx", "onnx-int8"], repeats=1)


def test_int8_is_compared_with_the_dense_model_in_float(in_int8):
    assert [(row.backend, row.name, row.speedup, row.reference_backend, row.remark) for row in in_int8] == [
        ("onnx", "against", 1.0, "onnx", None),
        ("onnx", "model", 2.0, "onnx", None),
        ("onnx-int8", "against", 4.0, "onnx", None),
        ("onnx-int8", "model", 8.0, "onnx", None),
    ]


def test_int8_answers_nearly_like_the_model(in_int8):
    for row in in_int8[:2]:
        assert row.max_abs_difference < 1e-4
    for row in in_int8[2:]:
        assert 1e-3 < row.max_abs_difference < 0.5


def test_a_reader_pairs_int8_with_the_dense_model_in_float(in_int8):
    rows = [asdict(row) for row in in_int8]
    pairs = measured_pairs({"rows": rows})
    assert pairs == [(rows[0], rows[1]), (rows[0], rows[3])]
    older = [{name: value for name, value in row.items() if name != "reference_backend"} for row in rows[:2]]
    assert measured_pairs({"rows": older}) == [tuple(older)]
    assert measured_pairs({"rows": [*rows[2:3], {**rows[3], "speedup": None, "reference_backend": None}]}) == []


@pytest.mark.parametrize(
    ("asked", "reference"),
    [
        (["sdpa", "onnx", "onnx-int8"], "onnx"),
        (["onnx-int8", "onnx"], "onnx"),
        (["onnx-int8", "eager"], "eager"),
        (["onnx-int8"], "onnx-int8"),
    ],
)
def test_what_int8_refers_to(asked, reference):
    both = Candidates({"against": None, "model": None}, asked, [])
    assert both.reference("onnx-int8") == (reference, "against")
    assert Candidates({"model": None}, asked, []).reference("onnx-int8") == (asked[0], "model")


def test_int8_stays_on_the_cpu(tmp_path):
    model = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32)
    with pytest.raises(AttentrimError, match="run on the CPU only"):
        backends.prepare(model, "onnx-int8", {}, tmp_path)


def test_compiled_once_for_each_shape(dense, monkeypatch):
    compiled = []

    def compile_(model, **settings):
        compiled.append(settings)
        return model

    monkeypatch.setattr(torch, "compile", compile_)
    rows = measure(dense, shapes=SHAPES, backends=["compile"], repeats=1)
    assert compiled == [{"mode": "default", "dynamic": False}] * 2
    assert all(row.remark is None for row in rows)


def test_a_compiler_that_fails_costs_its_rows_only(dense, monkeypatch):
    def broken(model, **settings):
        raise RuntimeError("no compiler\nfound")

    monkeypatch.setattr(torch, "compile", broken)
    rows = measure(dense, shapes=[(1, 8)], backends=["sdpa", "compile", "cudagraph"], repeats=1)
    assert [row.remark for row in rows] == [None, "RuntimeError: no compiler", "CUDA graphs need a CUDA device"]


def test_architectures_without_sdpa_say_so():
    rows = measure(zoo.build("mpnet"), shapes=[(1, 8)], backends=["sdpa", "eager"], rivals=["int8"], repeats=1)
    assert [(row.backend, row.name, row.remark) for row in rows] == [
        ("sdpa", "model", "mpnet has no SDPA attention in transformers: use eager"),
        ("eager", "model", None),
        ("eager", "int8", None),
    ]


def test_without_onnxruntime_the_row_names_the_extra(dense, monkeypatch):
    missing(monkeypatch, "onnxruntime")
    for row in measure(dense, shapes=[(1, 8)], backends=["onnx", "onnx-int8"], repeats=1):
        assert row.remark.startswith(f"The backend {row.backend} needs onnxruntime")
        assert 'pip install "attentrim[onnx]"' in row.remark


def test_outputs_that_are_not_numbers_are_no_difference(dense, monkeypatch):
    monkeypatch.setattr(turns, "largest_difference", lambda *arguments: float("nan"))
    (row,) = measure(dense, shapes=[(1, 8)], repeats=1)
    assert (row.max_abs_difference, row.remark) == (None, "its outputs are not finite numbers")


# Rivals


def test_rivals_are_timed_and_answer_differently(dense, small):
    pytest.importorskip("torch_pruning")
    rivals = ["int8", "torch-pruning"]
    rows = by_name(measure(small, dense, shapes=[(2, 12)], backends=["sdpa", "eager"], rivals=rivals, repeats=1))
    int8, pruned = rows["sdpa", "int8"], rows["sdpa", "torch-pruning"]
    assert int8.max_abs_difference > 1e-3
    assert pruned.max_abs_difference > 1e-2
    assert (int8.flop_ratio, int8.parameters) == (1.0, cost(dense).parameters)
    assert pruned.flop_ratio > 1
    assert abs(pruned.parameters - cost(small).parameters) < 0.05 * cost(dense).parameters


def test_rivals_where_they_cannot_run(small, dense):
    (_, _, row) = measure(small, dense, shapes=[(1, 8)], dtypes=["float16"], rivals=["int8"], repeats=1)
    assert row.remark == "dynamic int8 quantisation starts from float32 and runs on the CPU only"
    pytest.importorskip("torch_pruning")
    (_, row) = measure(dense, shapes=[(1, 8)], rivals=["torch-pruning"], repeats=1)
    assert "give the dense one as --against" in row.remark


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_rivals_that_cannot_handle_an_architecture(name):
    pytest.importorskip("torch_pruning")
    model = zoo.build(name)
    smaller = trim(model, Plan.of(model, uniform=[0]))
    rows = measure(smaller, model, shapes=[(1, 8)], rivals=["int8", "torch-pruning"], repeats=1)
    assert [row.remark for row in rows[:2]] == [None, None]
    assert rows[2].remark == (
        "its layers are Conv1D, which dynamic quantisation leaves as they are" if name == "gpt2" else None
    )
    assert rows[3].remark == f"Torch-Pruning cannot follow the attention of {name}"


def test_without_torch_pruning_the_row_says_how_to_get_it(dense, small, monkeypatch):
    missing(monkeypatch, "torch_pruning")
    row = measure(small, dense, shapes=[(1, 8)], rivals=["torch-pruning"], repeats=1)[-1]
    assert row.remark.endswith('which is not installed: pip install "attentrim[torch-pruning]"')
    assert row.milliseconds_median is None


def test_pruning_keeps_the_shape_of_the_outputs():
    pytest.importorskip("torch_pruning")
    model = tf.BertForTokenClassification(tf.BertConfig(**zoo.TEXT, num_labels=40)).eval()
    pruned = magnitude.prune_to_size(model, 17_000)
    assert pruned.classifier.out_features == 40
    assert all(site.heads < 4 for site in find_sites(pruned))


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_pruning_to_a_share_of_the_flops(name):
    pytest.importorskip("torch_pruning")
    model = zoo.build(name, layers=3)
    for share in (0.7, 0.4):
        pruned = magnitude.prune_to_flops(model, share)
        # one of four heads, and the neurons that go with it, is a quarter: no target is further off than half of that
        assert flops(pruned) / flops(model) == pytest.approx(share, abs=0.13)


def test_heads_with_a_shared_bias_are_pruned_with_their_part_of_it():
    """The same heads and neurons, found by their weights, removed by attentrim."""
    pytest.importorskip("torch_pruning")
    model, batch = zoo.build("mpnet", layers=3), zoo.inputs("mpnet", "right")
    pruned = magnitude.prune_to_flops(model, 0.5)

    def rows_gone(path):
        before, after = (part.get_submodule(path).weight for part in (model, pruned))
        return [row for row in range(len(before)) if not (before[row] == after).all(-1).any()]

    heads, neurons = {}, {}
    for layer in range(3):
        size = model.config.hidden_size // model.config.num_attention_heads
        heads[layer] = sorted({row // size for row in rows_gone(f"encoder.layer.{layer}.attention.attn.q")})
        neurons[layer] = rows_gone(f"encoder.layer.{layer}.intermediate.dense")
    assert [len(gone) for gone in heads.values()] == [2, 2, 2]
    expected = trim(model, Plan.of(model, heads=heads, neurons=neurons)).eval()
    with torch.no_grad():
        found, wanted = (zoo.output("mpnet", part, batch) for part in (pruned, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shapes": [(1, 513)]}, "--lengths 513 is too long for --model, which has positions for 512 tokens"),
        ({"shapes": [(1, 4000)]}, "--lengths 4000 is too long for --model"),
        ({"shapes": [(0, 8)]}, "must be 1 or more"),
        ({"backends": ["sdp"]}, "Unknown backend 'sdp'. Did you mean 'sdpa'?"),
        ({"backends": ["sdpa", "sdpa"]}, "names something twice"),
        ({"backends": []}, "Give at least one backend"),
        ({"dtypes": ["float64"]}, "Unknown dtype 'float64'"),
        ({"rivals": ["int4"]}, "Unknown rival 'int4'. Did you mean 'int8'?"),
        ({"rivals": ["int8"], "backends": ["onnx"]}, "add sdpa or eager to --backends onnx"),
        ({"padding": 1.0}, "Got 1.0"),
        ({"repeats": 0}, "must be 1 or more"),
    ],
)
def test_bad_settings(settings, message, dense):
    with pytest.raises(AttentrimError) as caught:
        measure(dense, **settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(("name", "most"), [("roberta", 62), ("mpnet", 62), ("bert", 512), ("llama", 64)])
def test_positions_are_used_to_the_last_and_not_overrun(name, most, no_grad):
    """RoBERTa-style models number them from the one after padding's."""
    model = zoo.build(name)
    assert most_tokens(model) == most
    model(input_ids=torch.full((1, most), 7))
    with pytest.raises(AttentrimError, match=f"--lengths {most + 1} is too long"):
        measure(model, shapes=[(1, most + 1)])


# Generation

DECODERS = (*sorted(zoo.GENERATIVE), "bart", "t5")


@pytest.mark.parametrize("name", DECODERS)
def test_decoded_are_the_tokens_of_generate(name, no_grad):
    """Of a trimmed model, after prompts of two lengths; twice, because no call may use up the cache."""
    model = zoo.build(name, attn="sdpa", layers=3)
    small = trim(model, corner_plans(model)["first headless, last uniform"])
    small.generation_config.forced_bos_token_id = None
    inputs = batches.make_prompt(small, 3, 9, 0.4, "cpu")
    assert inputs["attention_mask"].sum(1).tolist() == [9, 9, 6]
    decoder = decoding.Decoder(small, inputs, 6)
    logits, cache = decoder.prompt()
    settings = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    expected = small.generate(**inputs, **settings)[:, -6:]
    for _ in range(2):
        assert torch.equal(decoder.steps(logits, cache), expected)


def test_rows_of_generation_are_made_from_the_times_of_their_own_candidate(monkeypatch):
    dense = zoo.build("llama", attn="sdpa")
    small = trim(dense, Plan.of(dense, heads={0: range(4)}))
    against, own = [[0.040, 0.400, 0.060], [0.8, 4.0, 0.8]], [[0.020, 0.100, 0.020], [0.2, 1.0, 0.2]]
    monkeypatch.setattr(decoding, "interleave", lambda *arguments: [*against, *own])
    rows = measure(small, dense, shapes=[(2, 10)], backends=["cudagraph", "sdpa"], repeats=3, new_tokens=4)
    assert [(row.name, row.backend) for row in rows if row.new_tokens] == [("against", "sdpa"), ("model", "sdpa")]
    reference, row = (row for row in rows if row.new_tokens)
    assert (reference.speedup, reference.prefill_speedup) == (1.0, 1.0)
    assert (row.batch, row.length, row.new_tokens) == (2, 10, 4)
    assert row.milliseconds_median == pytest.approx(50)  # of a step
    assert row.tokens_per_second == pytest.approx(40)
    assert row.prefill_milliseconds == pytest.approx(20)
    assert (row.speedup, row.prefill_speedup) == pytest.approx((4.0, 3.0))
    assert row.speedup_quartiles == pytest.approx((4.0, 4.0))
    assert 0 < row.max_abs_difference < 1e-4
    assert (row.sequences_per_second, row.flop_ratio) == (None, None)


def test_readers_tell_generation_from_forward_passes():
    dense = zoo.build("gpt2", attn="sdpa")
    small = trim(dense, Plan.of(dense, heads={0: [0]}))
    rows = [asdict(row) for row in measure(small, dense, shapes=[(1, 8)], repeats=1, new_tokens=2)]
    bench = {"rows": rows}
    assert [after["new_tokens"] for _, after in measured_pairs(bench)] == [None]
    assert [after["new_tokens"] for _, after in measured_pairs(bench, decoding=True)] == [2]
    damaged = {"rows": [{**row, "prefill_milliseconds": "5"} for row in rows]}
    assert measured_pairs(damaged, decoding=True) == []


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bert", {}, "--decode is for models that generate text with a cache; --model is a BertModel"),
        ("llama", {"backends": ["onnx"]}, "--decode runs in plain PyTorch: add sdpa or eager to --backends onnx"),
        ("llama", {"shapes": [(1, 62)]}, "--lengths 62 with --decode 4 is too long for --model"),
        ("llama", {"new_tokens": 0}, "1 or more. Got 0"),
    ],
)
def test_generation_that_cannot_be(name, settings, message):
    with pytest.raises(AttentrimError) as caught:
        measure(zoo.build(name), **{"new_tokens": 4, **settings})
    assert message in str(caught.value)


def test_the_command_shows_generation(tmp_path, capsys):
    model = zoo.build("llama", attn="sdpa")
    model.save_pretrained(tmp_path / "dense")
    plan = Plan.of(model, heads={0: range(4)})
    trim(model, plan).save_pretrained(tmp_path / "small")
    plan.save(tmp_path / "small" / "plan.json")
    where = ("--model", str(tmp_path / "small"), "--against", str(tmp_path / "dense"))
    arguments = (*where, "--batch_sizes", "2", "--lengths", "8", "--decode", "3", "--repeats", "1", "--devices", "cpu")
    data = run_json(capsys, *arguments)
    assert [row["new_tokens"] for row in data["rows"]] == [None, None, 3, 3]
    assert (data["cache_bytes_per_token"], data["cache_bytes_per_token_against"]) == (128 + 8, 256)
    assert main(["bench", *arguments, "--card"]) == 0
    printed = capsys.readouterr().out
    assert "cpu, float32, 2 x 8, then 3 new tokens each" in printed
    assert "prompt ms" in printed
    assert "3 new tokens after 2 x 8" in (tmp_path / "small" / "README.md").read_text()


# The command


def run_json(capsys, *arguments):
    capsys.readouterr()
    assert main(["bench", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_command(places, dense, small, tmp_path, capsys):
    arguments = ("--model", places["small"], "--against", places["dense"], "--lengths", "8", "12", "--repeats", "2")
    data = run_json(capsys, *arguments, "--devices", "cpu", "--out", str(tmp_path / "bench.json"))
    assert json.loads((tmp_path / "bench.json").read_text()) == data
    assert (data["model"], data["against"]) == (places["small"], places["dense"])
    assert data["machine"]["torch"] == torch.__version__
    assert (data["parameters"], data["parameters_against"]) == (cost(small).parameters, cost(dense).parameters)
    assert data["bytes"] == 4 * data["parameters"]
    assert (data["heads"], data["heads_against"]) == (2, 8)
    assert [(row["batch"], row["length"], row["name"]) for row in data["rows"]] == [
        (batch, length, name) for length in (8, 12) for batch in (1, 8) for name in ("against", "model")
    ]
    assert set(data["rows"][0]) == set(Row.__dataclass_fields__)


def test_command_prints_tables(places, capsys):
    arguments = ["--model", places["small"], "--against", places["mpnet"], "--batch_sizes", "2", "--lengths", "12"]
    arguments += ["--backends", "sdpa", "eager", "--rivals", "int8", "--devices", "cpu", "--repeats", "1"]
    assert main(["bench", *arguments, "--threads", "1"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 CPU threads" in printed
    assert "cpu, float32, 2 x 12" in printed
    assert "model_type is bert here and mpnet in --against" in printed
    assert "before, sdpa (cpu, float32): mpnet has no SDPA attention" in printed
    assert "before, eager" in printed
    assert "after, eager" in printed
    assert "int8 (12,648 parameters) was not retrained" in printed


def test_the_tables_say_what_int8_refers_to(in_int8, capsys):
    show_rows(Output(), in_int8)
    printed = capsys.readouterr().out
    assert "after, onnx-int8" in printed
    assert "speed-ups of onnx-int8 refer to onnx, so quantisation is part of them" in printed
    show_rows(Output(), [replace(row, reference_backend="onnx-int8") for row in in_int8[2:]])
    assert "refer to" not in capsys.readouterr().out


def test_default_backend_is_one_that_the_model_has(places, capsys):
    alone = ["--model", places["mpnet"], "--batch_sizes", "1", "--lengths", "8", "--repeats", "1"]
    assert main(["bench", *alone]) == 0
    assert not {"before", "after", "model"} & set(capsys.readouterr().out.replace(",", " ").split())
    data = run_json(capsys, *alone)
    assert [(row["backend"], row["remark"]) for row in data["rows"]] == [("eager", None)]
    assert data["against"] is data["parameters_against"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lengths", "4000"], "--lengths 4000 is too long"),
        (["--devices", "cuda"], "torch finds no CUDA device"),
        (["--padding", "2"], "--padding is the share"),
        (["--out", "/no/such/place/bench.json"], "it must be a file in a directory that exists"),
        (["--against", "/no/such/model"], "There is no model directory"),
        (["--backends", "cudagraph"], "Nothing could be measured. cudagraph: CUDA graphs need a CUDA device"),
    ],
)
def test_bad_input_gets_one_clear_line(arguments, message, places, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    capsys.readouterr()
    assert main(["bench", "--model", places["dense"], *arguments]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("attentrim: error: ")
    assert message in line


def test_unknown_backends_are_answered_with_the_known(places, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "--model", places["dense"], "--backends", "tensorrt"])
    printed = capsys.readouterr().err
    assert all(backend in printed for backend in BACKENDS)


def test_help_imports_no_torch():
    script = "import sys, attentrim.bench, attentrim.cli; attentrim.cli.build_parser(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(("died", "limit"), [(-4, "AVX512_CORE_BF16"), (0, None)])
def test_onednn_is_limited_only_where_bfloat16_kills(died, limit, monkeypatch):
    environment: dict[str, str] = {}
    monkeypatch.setattr(onednn.os, "environ", environment)
    monkeypatch.setattr(onednn.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess([], died))
    onednn.avoid_illegal_instructions()
    assert environment.get(onednn.LIMIT) == limit


def test_twins_share_weights(dense):
    twin = backends.with_attention(dense, "eager")
    assert twin.embeddings.word_embeddings.weight.data_ptr() == dense.embeddings.word_embeddings.weight.data_ptr()
    assert twin.config._attn_implementation == "eager"
