"""`--task embedding` from the command line and in Python: training, plans, evaluation, and what is wrong with data."""

from __future__ import annotations

import json
import random

import pytest
import tiny_sentences as ts
import torch
import training as tr
from close import assert_close
from commands import fails, run_json

import attentrim
from attentrim.cost import most_tokens
from attentrim.methods import METHODS as METHOD_REGISTRY
from attentrim.sentences.model import embedding_model
from attentrim.tasks.kinds.embedding import EmbeddingCollator

MEASURES = {"similarity_spearman", "cosine", "neighbours"}
SMALL = ["--max_steps", 12, "--per_device_train_batch_size", 8, "--no_bench", "--use_cpu", "--disable_tqdm", "true"]


def sentences(count, seed=0):
    drawn = random.Random(seed)
    return [" ".join(drawn.choices(ts.WORDS, k=drawn.randint(3, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    place = tmp_path_factory.mktemp("texts")
    (place / "train.txt").write_text("\n".join(sentences(60)) + "\n\n")
    (place / "valid.txt").write_text("\n".join(sentences(30, 1)) + "\n")
    rows = [f"{a},{b},{score}" for score, (a, b) in enumerate(zip(sentences(20, 2), sentences(20, 3), strict=True))]
    (place / "pairs.csv").write_text("\n".join(["a,b,score", *rows]) + "\n")
    return place


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return ts.directory(tmp_path_factory.mktemp("model"), normalize=True)


def data(files, validation="valid.txt"):
    return ["--task", "embedding", "--train_file", files / "train.txt", "--validation_file", files / validation]


def rows(count=48, seed=0):
    return [dict(ts.tokenizer()(text)) for text in sentences(count, seed)]


def trainer(directory, model, method, **more):
    """Of attentrim, in Python: no labels, no teacher, no distillation is given."""
    arguments = tr.arguments(directory, max_steps=12, per_device_train_batch_size=8, metric_for_best_model=None)
    return attentrim.Trainer(
        model=embedding_model(str(model)),
        args=arguments,
        method=method,
        train_dataset=rows(),
        data_collator=EmbeddingCollator(ts.tokenizer()),
        **more,
    )


def test_a_run_ends_with_a_directory_of_sentence_transformers(capsys, tmp_path, files, model):
    flags = ["--speedup", 1.3, "--method_config", "cost=flops", "width_step=8", "--output_dir", tmp_path / "run"]
    found = run_json(capsys, "train", "--model", model, *data(files), *SMALL, *flags)
    assert found["metric"] == "similarity_spearman"
    assert found["metrics"].keys() == MEASURES
    assert found["before"]["value"] == pytest.approx(1)
    assert found["value"] == pytest.approx(found["masked_value"], abs=1e-3)
    assert found["speedup_flops"] > 1.25
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "distill_embedding: 10.0" in config
    assert "dropout: 0.0" in config
    card = (tmp_path / "run" / "README.md").read_text()
    for line in (
        "library_name: sentence-transformers",
        "pipeline_tag: sentence-similarity",
        "- feature-extraction",
        'model = SentenceTransformer("run")',
    ):
        assert line in card
    own = ts.embed(tmp_path / "run")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    loaded = sentence_transformers.SentenceTransformer(str(tmp_path / "run"), device="cpu")
    assert_close(loaded.encode(ts.TEXTS, convert_to_tensor=True), own)
    # measured against the model that it was trained from, which config.yaml names
    again = run_json(
        capsys,
        "evaluate",
        "--model",
        tmp_path / "run",
        "--task",
        "embedding",
        "--validation_file",
        files / "valid.txt",
    )
    assert again["metrics"] == pytest.approx(found["metrics"], abs=1e-5)


def test_several_speeds_leave_whole_directories(capsys, tmp_path, files, model):
    flags = ["--speedup", "1.2,1.5", "--method_config", "cost=flops", "width_step=8", "--output_dir", tmp_path / "run"]
    found = run_json(capsys, "train", "--model", model, *data(files), *SMALL, *flags)
    assert [point["directory"] for point in found["speeds"]] == ["speedup-1.2", "."]
    assert found["speeds"][0]["metrics"].keys() == MEASURES
    for name in ("modules.json", "1_Pooling/config.json", "tokenizer.json"):
        assert (tmp_path / "run" / "speedup-1.2" / name).is_file()


METHODS = [
    attentrim.AutoAttention(target_sparsity=0.25),
    attentrim.L0(target_sparsity=0.25),
    attentrim.HISP(target_sparsity=0.25),
    attentrim.HISP(target_sparsity=0.25, rounds=2),
    attentrim.SMP(target_sparsity=0.25, search_steps=2),
    attentrim.RandomHeads(target_sparsity=0.25),
    attentrim.UniformSites(count=1),
    attentrim.UniformSites(count=1, order="greedy", holdout_share=0.2),
    attentrim.FewerLayers(),
    attentrim.AttendOut(window=3, prune_count=1),
    attentrim.Fisher(speedup=1.3, cost="flops", width_step=8),
    None,
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_each_method_trains_without_labels_and_is_trimmed(tmp_path, model, method):
    made = trainer(tmp_path, model, method)
    start = {name: value.clone() for name, value in made.teacher.state_dict().items()}
    made.train()
    plan = made.plan()
    small = attentrim.trim(made.model, plan).eval()
    made.model.eval()
    with torch.no_grad():
        assert_close(small(**ts.inputs()).sentence_embedding, made.model(**ts.inputs()).sentence_embedding)
    assert bool(plan) == (method is not None)
    assert all(torch.equal(value, start[name]) for name, value in made.teacher.state_dict().items())


def test_training_brings_embeddings_back(tmp_path, model):
    """Two heads gone from each layer: learning from the teacher mends much of what that breaks."""

    def distance(found):
        with torch.no_grad():
            mine, theirs = (one(**ts.inputs()).sentence_embedding for one in (found, made.teacher))
        return float((1 - (mine * theirs).sum(-1)).mean())

    made = trainer(tmp_path, model, attentrim.RandomHeads(target_sparsity=0.5))
    made.args.max_steps = 60
    made.train()
    broken = distance(attentrim.trim(made.teacher, made.plan()))
    assert distance(attentrim.trim(made.model, made.plan()).eval()) < 0.5 * broken


@pytest.mark.parametrize("method", ["fisher", "hisp"])
def test_a_plan_without_training_takes_the_heads_that_do_nothing(tmp_path, model, method):
    planted = embedding_model(str(model))
    with torch.no_grad():  # heads of size 6 whose outputs are not read
        for layer, heads in enumerate([(0, 3), (1, 2)]):
            weight = planted.encoder.layer[layer].attention.output.dense.weight
            for head in heads:
                weight[:, 6 * head : 6 * head + 6] = 0
    batches = [ts.inputs(sentences(16, seed)) for seed in range(2)]
    settings = {"fisher": {"speedup": 1.15, "cost": "flops", "prune": "heads"}, "hisp": {"target_sparsity": 0.5}}
    plan = METHOD_REGISTRY[method](**settings[method]).search(planted, batches)
    gone = {(place, head) for place, heads in plan.removed_of("heads").items() for head in heads}
    assert gone
    assert gone <= {(0, 0), (0, 3), (1, 1), (1, 2)}


def test_plan_writes_a_model_that_is_measured(capsys, tmp_path, files, model):
    flags = ["--speedup", 1.2, "--method_config", "cost=flops", "width_step=8", "--no_bench", "--use_cpu"]
    found = run_json(capsys, "plan", "--model", model, *data(files), *flags, "--output_dir", tmp_path / "small")
    assert found["value_before"] == pytest.approx(1)
    assert 0 < found["value"] < 1
    assert (tmp_path / "small" / "modules.json").is_file()
    teacher = ["--teacher", model, "--validation_file", files / "valid.txt"]
    again = run_json(capsys, "evaluate", "--model", tmp_path / "small", "--task", "embedding", *teacher)
    assert again["value"] == pytest.approx(found["value"], abs=1e-5)


PAIRS = ["--text_column", "a", "--text_pair_column", "b", "--label_column", "score"]


def test_scored_pairs_are_the_measure_where_they_are_given(capsys, tmp_path, files, model):
    scored = [*data(files, "pairs.csv"), *PAIRS]
    alone = run_json(
        capsys, "evaluate", "--model", model, "--task", "embedding", "--validation_file", files / "pairs.csv", *PAIRS
    )
    assert alone["metric"] == "pairs_spearman"
    assert alone["metrics"].keys() == {"pairs_spearman"}
    assert alone["examples"] == 20
    flags = [*SMALL, "--method", "random-heads", "--output_dir", tmp_path / "run"]
    found = run_json(capsys, "train", "--model", model, *scored, *flags)
    assert found["metrics"].keys() == {"pairs_spearman", *MEASURES}
    assert found["before"]["value"] == pytest.approx(alone["value"], abs=1e-6)


@pytest.mark.parametrize("command", ["train", "plan"])
def test_a_limit_on_the_drop_is_judged_by_the_teacher_where_people_scored_pairs(
    capsys, tmp_path, files, model, command
):
    """Held-out training texts have no scores."""
    flags = ["--method", "fisher", "--speedup", "1.1,1.2", "--max_drop", 0.99, "--use_cpu", "--no_bench"]
    flags += ["--method_config", "cost=flops", "width_step=8", "--output_dir", tmp_path / "run"]
    steps = SMALL[:4] if command == "train" else []
    found = run_json(capsys, command, "--model", model, *data(files, "pairs.csv"), *PAIRS, *steps, *flags)
    assert found["metric"] == "pairs_spearman"
    assert "held-out training data" in " ".join(found["remarks"])
    assert found["speedup_flops"] > 1.05


@pytest.mark.parametrize("pairs", [False, True])
def test_adapters_are_on_the_layers_of_an_encoder_alone(capsys, tmp_path, files, model, pairs):
    """A bare encoder has no task head: its embeddings are not trained whole."""
    pytest.importorskip("peft")
    flags = [*SMALL, "--method", "none", "--lora_rank", 2, "--learning_rate", 0.01, "--output_dir", tmp_path / "run"]
    scored = [*data(files, "pairs.csv"), *PAIRS] if pairs else data(files)
    run_json(capsys, "train", "--model", model, *scored, *flags)
    before, after = (embedding_model(str(place)).state_dict() for place in (model, tmp_path / "run"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(".layer." in name and name.endswith("weight") for name in changed)


def test_another_teacher_may_be_deeper(capsys, tmp_path, files, model):
    deep = ts.directory(tmp_path / "deep", normalize=True, layers=3, seed=1)
    flags = [*SMALL, "--method", "random-heads", "--output_dir", tmp_path / "run", "--teacher", deep]
    found = run_json(capsys, "train", "--model", model, *data(files), *flags)
    assert found["before"]["value"] < 0.9
    assert "distill_hidden: 0.0" in (tmp_path / "run" / "config.yaml").read_text()
    wide = ts.directory(tmp_path / "wide", dense={"activation_function": "torch.nn.modules.activation.Tanh"})
    line = fails(capsys, "train", "--model", model, *data(files), *flags[:-1], wide, "--overwrite_output_dir")
    assert line == f"The teacher {wide} embeds a text in 8 numbers, the model in 24: they must be as many."


def test_what_was_left_out_and_cut_is_said(capsys, tmp_path, files, model):
    bare = ts.directory(tmp_path / "bare", modules=False)
    (tmp_path / "few.txt").write_text("the dog runs\n\na cat sleeps here\n   \n" + "very " * 40 + "old\nthe tree\n")
    found = run_json(
        capsys, "train", "--model", bare, "--task", "embedding", "--train_file", files / "train.txt",
        "--validation_file", tmp_path / "few.txt", "--max_length", 16, *SMALL, "--method", "random-heads",
        "--output_dir", tmp_path / "run",
    )  # fmt: skip
    assert found["examples"] == 4
    capsys.readouterr()
    flags = ["--task", "embedding", "--validation_file", tmp_path / "few.txt", "--teacher", model]
    assert attentrim.cli.main(["evaluate", "--model", str(bare), *map(str, flags), "--max_length", "16"]) == 0
    said = capsys.readouterr().out
    assert "has no modules.json: a text's embedding is the mean over its tokens, normalised" in said
    assert "few.txt: 2 blank lines are left out" in said
    assert "1 of 4 validation examples are longer than 16 tokens: cut" in said
    assert "only 4 texts to evaluate on, so neighbours are the 3 nearest" in said


@pytest.mark.parametrize("length", [4, None])
def test_texts_are_read_as_far_as_sentence_transformers_reads_them(capsys, tmp_path, length):
    """Newer directories have the longest input in their tokenizer's settings; without any, positions are the limit."""
    place = ts.directory(tmp_path, lengths={}, tokenizer_length=length)
    read = length or most_tokens(embedding_model(str(place)))
    (tmp_path / "few.txt").write_text("a dog\nthe cat\n" + "very " * (read - 2) + "\n" + "very " * (read - 1))
    flags = ["--task", "embedding", "--validation_file", tmp_path / "few.txt", "--teacher", place]
    assert attentrim.cli.main(["evaluate", "--model", str(place), *map(str, flags)]) == 0
    assert f"1 of 4 validation examples are longer than {read} tokens: cut" in capsys.readouterr().out


def test_bad_input_is_one_clear_line(capsys, tmp_path, files, model):
    evaluate = ["evaluate", "--model", model, "--task", "embedding", "--validation_file"]
    assert "There is nothing to compare the embeddings with" in fails(capsys, *evaluate, files / "valid.txt")
    (tmp_path / "blank.csv").write_text("text\n \n  \n")
    assert "all rows are blank" in fails(capsys, *evaluate, tmp_path / "blank.csv", "--teacher", model)
    (tmp_path / "empty.txt").write_text("\n\n")
    assert "holds no examples" in fails(capsys, *evaluate, tmp_path / "empty.txt", "--teacher", model)
    (tmp_path / "two.txt").write_text("the dog\nthe cat\n")
    assert "of 2 texts are not meaningful" in fails(capsys, *evaluate, tmp_path / "two.txt", "--teacher", model)
    line = fails(capsys, *evaluate, files / "pairs.csv", "--text_pair_column", "b")
    assert "Scored pairs need --text_column, --text_pair_column and --label_column" in line
    decoder = ts.directory(tmp_path / "gpt2", model="gpt2", modules=False)
    line = fails(capsys, "train", "--model", decoder, *data(files), *SMALL, "--output_dir", tmp_path / "run")
    assert "is a decoder (gpt2)" in line
    line = fails(capsys, *evaluate, files / "valid.txt", "--teacher", model, "--predictions", tmp_path / "out")
    assert line == "There are no predictions of embedding to write: leave --predictions out."


def test_a_run_goes_on_where_it_was_stopped(tmp_path, model):
    def made(directory, **more):
        found = trainer(directory, model, attentrim.Fisher(speedup=1.3, cost="flops", width_step=8), **more)
        found.args.save_strategy, found.args.save_steps = "steps", 6
        return found

    whole = made(tmp_path)
    whole.train()
    again = made(tmp_path)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert json.dumps(again.plan().removed_of("heads")) == json.dumps(whole.plan().removed_of("heads"))
    for name, value in whole.model.state_dict().items():
        assert_close(again.model.state_dict()[name], value)
    assert (tmp_path / "checkpoint-6" / "modules.json").is_file()


def test_epochs_are_counted_by_steps():
    from attentrim.runs.sentences import epochs_for

    assert epochs_for(5000, 48, 1) == 10  # 105 steps each
    assert epochs_for(100_000, 48, 1) == 1
    assert epochs_for(5000, 48, 2) == 20
    assert epochs_for(50, 48, 1) == 20
