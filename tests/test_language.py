"""Causal language modelling: packing, perplexity by brute force, commands, what is refused."""

from __future__ import annotations

import math
import re
import sys

import numpy as np
import pytest
import texts
import torch
import transformers as tf
import zoo
from commands import fails, run_json

import attentrim
from attentrim import Plan
from attentrim.errors import MethodError, MissingExtraError, TaskError
from attentrim.runs.adapters import merged, with_adapters
from attentrim.runs.loading import load_for_task
from attentrim.runs.remarks import ignore
from attentrim.runs.settings import RunSettings, TaskSettings
from attentrim.tasks import TASKS
from attentrim.tasks.examples import Example
from attentrim.tasks.kinds import KINDS, Encoding, causal
from attentrim.tasks.tables import read_running

FEW = ("--use_cpu", "--max_steps", 4, "--max_length", 16, "--no_bench", "--logging_steps", 1)


def encode(text, first=False, length=16):
    rows = text if isinstance(text, list) else [text]
    return KINDS["clm"].encode([Example(row, None) for row in rows], Encoding(texts.tokenizer(first), length))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    place = tmp_path_factory.mktemp("language")
    texts.save(place / "tiny")
    for name in ("train", "validation", "test"):
        texts.write(place / f"{name}.txt", 24 if name == "train" else 9)
    return place


def data(home):
    return ("--task", "clm", "--data_dir", home)


# Packing


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("length", [8, 16, 500])
def test_every_token_but_the_first_is_predicted_once(first, length, tmp_path):
    text = texts.write(tmp_path / "a.txt").read_text() + "\n"
    found, ids = encode(text, first, length), texts.tokenizer()(text)["input_ids"]
    rows = found.columns["input_ids"]
    predicted = [label for labels in found.labels for label in labels if label != -100]
    assert predicted == (ids if first else ids[1:])
    for row, labels, mask in zip(rows, found.labels, found.columns["attention_mask"], strict=True):
        assert len(row) == len(labels) == sum(mask) <= length
        assert row[1:] == labels[1:]
    assert {len(row) for row in rows[:-1]} <= {length}
    assert [row[0] for row in rows] == ([1] * len(rows) if first else [ids[0], *(row[-1] for row in rows[:-1])])
    assert (found.examples, found.truncated) == (len(rows), 0)


@pytest.mark.parametrize("first", [True, False])
def test_words_are_counted_where_they_begin(first):
    text = "one  two\nthree \n \nfour\n"
    found = encode(text, first, 8)
    assert sum(found.words) == 4
    begins = {match.start() for match in re.finditer(r"\S+", text)}
    end = 0
    for words, labels in zip(found.words, found.labels, strict=True):
        start, end = end, end + sum(label != -100 for label in labels) + (not first and not end)
        assert words == len(begins & set(range(start, end)))


def test_texts_are_tokenised_in_pieces_as_if_they_were_whole(monkeypatch, tmp_path):
    text = texts.write(tmp_path / "a.txt", 30).read_text()
    whole = encode(text)
    monkeypatch.setattr(causal, "PIECE", 40)
    again = encode(text)
    assert (again.columns, again.labels, again.words, again.texts) == (
        whole.columns, whole.labels, whole.words, whole.texts,
    )  # fmt: skip


def test_lines_are_one_text_as_the_file_has_them(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b" = Title = \n \n\nOne .\r\nTwo")
    rows = [row["text"] for row in read_running(path).rows]
    assert rows == [" = Title = \n", " \n", "\n", "One .\n", "Two\n"]
    assert causal.running_text([Example(row, None) for row in rows]) == " = Title = \n \n\nOne .\nTwo\n"
    # rows of other files, and of the hub, need no line end
    assert causal.running_text([Example(row, None) for row in (" = Title = \n", "", "One")]) == " = Title = \n\nOne\n"
    with pytest.raises(TaskError, match="There is no text: all rows are blank"):
        encode([""], first=False)


def test_limits_and_samples_are_of_blocks(home):
    settings = TaskSettings(model=str(home / "tiny"), task="clm", data_dir=str(home), max_length=16)
    loaded = load_for_task(settings, ["train", "validation"], ignore, fresh_head=False)
    whole, some = loaded.data("validation"), loaded.data("validation", 3)
    assert (len(some), some.examples, some.words) == (3, 3, whole.words[:3])
    assert some.columns["input_ids"] == whole.columns["input_ids"][:3]
    first, second = loaded.samples("train", [4, 2], seed=0)
    rows = [tuple(row) for part in (first, second) for row in part.columns["input_ids"]]
    blocks = [tuple(row) for row in loaded.data("train").columns["input_ids"]]
    assert len(set(rows)) == len(rows) == 6
    assert set(rows) <= set(blocks)
    usual = load_for_task(TaskSettings(**{**vars(settings), "max_length": None}), ["train"], ignore, fresh_head=False)
    assert usual.max_length == 64, "as many as the model has positions for, and 512 at most"


def test_without_validation_data_the_end_of_the_text_serves(home):
    said = []
    settings = TaskSettings(model=str(home / "tiny"), task="clm", train_file=str(home / "train.txt"), max_length=16)
    loaded = load_for_task(settings, ["train", "validation"], said.append, fresh_head=False)
    text = (home / "train.txt").read_text() + "\n"
    parts = [causal.running_text(loaded.examples(split)) for split in ("train", "validation")]
    assert "".join(parts) == text
    assert parts[1].count("\n") == round(0.1 * text.count("\n"))
    assert any("the last 10% of the training rows are held out for it" in remark for remark in said)


# Perplexity


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("first", [True, False])
def test_perplexity_equals_a_plain_loop(home, tmp_path, capsys, first, side):
    model = texts.save(tmp_path / "model", first=first)
    tokenizer = texts.tokenizer(first)
    tokenizer.padding_side = side
    tokenizer.save_pretrained(model)
    words = ("--model", model, *data(home), "--use_cpu", "--max_length", 16, "--per_device_eval_batch_size", 3)
    found = run_json(capsys, "evaluate", *words)

    text = (home / "validation.txt").read_text() + "\n"
    ids = torch.tensor(texts.tokenizer()(text)["input_ids"])
    decoder, total, count = texts.decoder(), 0.0, 0
    for start in range(0, len(ids), 15):
        block = torch.cat([torch.tensor([1]), ids[start : start + 15]]) if first else ids[start : start + 16]
        with torch.no_grad():
            scores = torch.log_softmax(decoder(input_ids=block[None]).logits[0].double(), -1)
        for place in range(1, len(block)):
            total -= float(scores[place - 1, block[place]])
            count += 1
    assert count == len(ids) - (not first)
    assert found["value"] == found["metrics"]["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)
    assert found["metrics"]["word_perplexity"] == pytest.approx(math.exp(total / len(text.split())), rel=1e-5)
    assert not TASKS["clm"].higher_is_better


def test_what_is_kept_of_a_batch_is_one_number_per_token():
    logits = torch.randn(3, 5, 300, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, 300, (3, 5), generator=torch.Generator().manual_seed(1))
    labels[:, 0], labels[2, 3:] = -100, -100
    reduced = KINDS["clm"].reduce((logits, None), labels)
    assert reduced.shape == labels.shape
    scores = torch.log_softmax(logits, -1)
    for row in range(3):
        for place in range(1, 5):
            expected = 0.0 if labels[row, place] == -100 else -float(scores[row, place - 1, labels[row, place]])
            assert float(reduced[row, place]) == pytest.approx(expected, abs=1e-5)
    other = KINDS["clm"].judge(("perplexity", "word_perplexity"), reduced.numpy(), labels.numpy(), encode("a b"), ())
    assert set(other) == {"perplexity"}, "how many words another set has is not known"
    assert np.isfinite(list(other.values())).all()


# Commands


@pytest.mark.parametrize(
    "method",
    [
        ("none",),
        ("none", "--lora_rank", 2),
        ("similarity", "--method_config", "remove=attention:1", "calibration_samples=4", "--lora_rank", 2),
        ("fisher", "--speedup", 1.2, "--method_config", "cost=flops", "prune=heads,neurons"),
    ],
    ids=lambda method: f"{method[0]}{'-lora' if '--lora_rank' in method else ''}",
)
def test_train_and_evaluate(home, tmp_path, capsys, method):
    words = ("--model", home / "tiny", *data(home), "--output_dir", tmp_path / "run", *FEW, "--learning_rate", 0.01)
    result = run_json(capsys, "train", *words, "--method", *method)
    assert result["value"] < result["before"]["value"]
    assert result["value"] == pytest.approx(result["masked_value"], rel=1e-4)
    again = run_json(capsys, "evaluate", "--model", tmp_path / "run", *data(home), "--use_cpu")
    assert again["metrics"] == pytest.approx(result["metrics"], rel=1e-5)
    loaded = tf.AutoModelForCausalLM.from_pretrained(tmp_path / "run")
    assert not any("lora" in name for name, _ in loaded.named_parameters())
    if method[0] == "similarity":
        assert sorted(result["heads_kept"]) == [0, 4]
    own = run_json(
        capsys, "evaluate", "--model", tmp_path / "run", "--test_file", home / "test.txt", "--split", "test"
    )
    assert own["value"] > 1, "the kind is that of the model"


def test_plan_and_compare(home, tmp_path, capsys):
    words = ("--model", home / "tiny", *data(home), "--max_length", 16, "--use_cpu")
    settings = ("--method", "similarity", "--method_config", "remove=attention:1", "--no_bench")
    result = run_json(capsys, "plan", *words, *settings, "--out", tmp_path / "plan.json")
    assert sorted(result["heads_kept"]) == [0, 4]
    assert result["blocks_removed"] == {"attention": [result["heads_kept"].index(0)]}
    assert len(result["scores"]["attention"]) == 2
    masked = run_json(capsys, "evaluate", *words, "--plan", tmp_path / "plan.json")
    assert masked["value"] == pytest.approx(result["value"], rel=1e-5)
    compared = (
        "--methods",
        "none,similarity",
        "--seeds",
        1,
        "--output_dir",
        tmp_path / "all",
        "--use_cpu",
        "--max_steps",
        4,
    )
    found = run_json(capsys, "compare", *words[:-1], *compared)
    assert "similarity" in [row["name"] for row in found["summary"]]
    assert len(found["summary"]) == 2
    assert not any(row["failed"] for row in found["summary"])


def test_a_drop_of_perplexity_is_a_rise(home, tmp_path, capsys):
    """The dense model is the best: what may lose nothing keeps all."""
    words = ("--model", home / "tiny", *data(home), "--max_length", 16, "--use_cpu", "--no_bench")
    settings = ("--max_drop", 0, "--speedup", 1.5, "--method_config", "cost=flops")
    trained = run_json(
        capsys, "train", "--model", home / "tiny", *data(home), "--output_dir", tmp_path / "run", *FEW[:1],
        "--max_steps", 40, "--max_length", 16, "--no_bench", "--method", "none", "--learning_rate", 0.01,
    )  # fmt: skip
    assert trained["value"] < 50
    words = ("--model", tmp_path / "run", *words[2:])
    result = run_json(capsys, "plan", *words, *settings, "--out", tmp_path / "plan.json")
    assert (result["removed"], result["value"]) == ([], result["value_before"])
    loose = run_json(capsys, "plan", *words, "--max_drop", 0.99, *settings[2:], "--out", tmp_path / "more.json")
    assert "Kept the fastest" in loose["remarks"][-1] or "Nothing was removed" in loose["remarks"][-1]


REFUSED = [
    ("bert", "clm", "a bert model sees later tokens too: causal language modelling needs a decoder"),
    ("mpnet", "clm", "a mpnet model sees later tokens too"),
    ("bart", "clm", "a bart model sees later tokens too"),
    ("t5", "clm", "transformers has no t5 model for clm"),
    ("llama", "mlm", "transformers has no llama model for mlm: it is a decoder: use --task clm"),
    ("gpt2", "mlm", "it is a decoder: use --task clm"),
]


@pytest.mark.parametrize(("name", "task", "words"), REFUSED, ids=lambda value: value if len(value) < 8 else "")
def test_encoders_and_decoders_are_told_apart(home, tmp_path, capsys, name, task, words):
    texts.save(tmp_path / "model", zoo.build(name))
    given = ("--model", tmp_path / "model", "--task", task, "--data_dir", home)
    assert words in fails(capsys, "train", *given, "--output_dir", tmp_path / "run", *FEW)
    assert words in fails(capsys, "evaluate", *given)
    assert words in fails(capsys, "evaluate", *given[:4], "--validation_file", home / "validation.txt")


def test_other_bad_input(home, tmp_path, capsys):
    words = ("--model", home / "tiny", *data(home))
    assert "no predictions of clm to write" in fails(capsys, "evaluate", *words, "--predictions", tmp_path / "a.tsv")
    assert "must be between 8 and 64" in fails(capsys, "evaluate", *words, "--max_length", 512)
    assert "number of validation examples must be 1 or more" in fails(
        capsys, "evaluate", *words, "--max_eval_samples", 0
    )
    (tmp_path / "blank.txt").write_text("\n")
    blank = ("--task", "clm", "--validation_file", tmp_path / "blank.txt")
    assert "There is no text" in fails(capsys, "evaluate", "--model", home / "tiny", *blank) or "holds no" in fails(
        capsys, "evaluate", "--model", home / "tiny", *blank
    )


# LoRA


def lora(**more):
    return RunSettings(model="m", output_dir="o", **{"lora_rank": 2, **more})


def test_adapters_are_on_the_linear_layers_of_all_layers_and_merge():
    pytest.importorskip("peft")
    model = texts.decoder()
    ids = torch.randint(5, 200, (2, 9), generator=torch.Generator().manual_seed(0))
    adapted = with_adapters(model, lora())
    trained = {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    assert len(trained) == 2 * 2 * 7
    assert not any("lm_head" in name or "embed" in name for name in trained)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.02)
        apart = adapted(input_ids=ids).logits
        plain = merged(adapted)
        assert type(plain) is type(model)
        torch.testing.assert_close(plain(input_ids=ids).logits, apart, rtol=1e-4, atol=1e-5)
    some = with_adapters(texts.decoder(), lora(lora_targets="q_proj,mlp.down_proj", lora_alpha=1.0))
    named = {name.split(".lora_")[0].rpartition(".")[2] for name, _ in some.named_parameters() if "lora_" in name}
    assert named == {"q_proj", "down_proj"}


def test_a_task_head_is_trained_whole():
    pytest.importorskip("peft")
    model = tf.BertForSequenceClassification(zoo.CONFIGS["bert"]())
    adapted = with_adapters(model, lora())
    trained = {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    assert {name for name in trained if "lora_" not in name} == {
        f"base_model.model.classifier.modules_to_save.default.{part}" for part in ("weight", "bias")
    }


def test_a_run_with_adapters_is_gone_on_with(home, tmp_path, capsys):
    words = ("--model", home / "tiny", *data(home), *FEW, "--method", "none", "--lora_rank", 2, "--save_strategy")
    whole = run_json(capsys, "train", *words, "steps", "--save_steps", 2, "--keep_checkpoints", "--output_dir",
                     tmp_path / "run")  # fmt: skip
    again = ("--output_dir", tmp_path / "run", "--resume_from_checkpoint", tmp_path / "run" / "checkpoint-4")
    found = run_json(capsys, "train", *words, "steps", "--save_steps", 2, *again)
    assert found["value"] == whole["value"]
    other = ("steps", "--lora_alpha", 1, "--save_steps", 2, *again)
    texts_of_error = fails(capsys, "train", *words, *other)
    assert "lora_alpha was none, is 1.0" in texts_of_error or "no such directory" in texts_of_error


def test_lora_that_cannot_be(home, tmp_path, capsys, monkeypatch):
    words = ("train", "--model", home / "tiny", *data(home), "--output_dir", tmp_path / "run", *FEW, "--method")
    found = fails(capsys, *words, "fisher", "--speedup", 1.5, "--lora_rank", 2)
    assert "The method 'fisher' cannot train with --lora_rank: it trims copies" in found
    assert "'attendout' cannot train with --lora_rank" in fails(capsys, *words, "attendout", "--lora_rank", 2)
    assert "--lora_alpha is for LoRA: set --lora_rank too" in fails(capsys, *words, "none", "--lora_alpha", 2)
    assert "--lora_rank must be 1 or more. Got 0" in fails(capsys, *words, "none", "--lora_rank", 0)
    found = fails(capsys, *words, "none", "--lora_rank", 2, "--lora_targets", "q_pro")
    assert "Unknown linear layer 'q_pro'. Did you mean 'q_proj'" in found
    monkeypatch.setitem(sys.modules, "peft", None)
    found = fails(capsys, *words, "none", "--lora_rank", 2)
    assert 'pip install "attentrim[peft]"' in found
    assert issubclass(MissingExtraError, attentrim.errors.AttentrimError)


def test_whole_attention_blocks_gone_give_the_masked_models_tokens():
    """The first ones too: caches ask them how long the text is."""
    model = zoo.build("llama", layers=3)
    prompt = zoo.inputs("llama", "left")
    plan = Plan.of(model, heads={0: range(4), 2: range(4)})
    more = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    with attentrim.Control(model) as control:
        control.apply(plan)
        masked = model.generate(**prompt, **more)
    small = attentrim.trim(model, plan)
    for cache in (True, False):
        assert torch.equal(small.generate(**prompt, **more, use_cache=cache), masked)
    with pytest.raises(MethodError, match="at most 3"):
        attentrim.Similarity(remove="attention:4", order="last").search(model)
