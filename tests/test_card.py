"""The model card: written with every saved model, kept up to date, and never at the expense of what people wrote."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import tiny_sentences
import transformers as tf
import yaml
import zoo
from commands import fails, run, run_json
from huggingface_hub import ModelCard
from recordings import bench_of, speed_facts, write_run

from attentrim import Plan, trim
from attentrim.card import known_as, write_card
from attentrim.runs.reader import CARD
from attentrim.sentences.model import embedding_model


def trimmed(**removed):
    model = zoo.build("bert")
    return trim(model, Plan.of(model, made_by={"method": "by hand"}, **(removed or {"heads": {0: [1, 2]}})))


def card_of(directory):
    return ModelCard((directory / CARD).read_text())


def flat(directory):
    return " ".join((directory / CARD).read_text().split())


def train(capsys, home, directory, *more):
    data = ("--model", home / "tiny", "--task", "cola", "--data_dir", home / "data")
    few = ("--max_steps", 4, "--per_device_train_batch_size", 16, "--use_cpu")
    return run_json(capsys, "train", *data, "--output_dir", directory, *few, *more)


def test_saving_a_trimmed_model_writes_a_card(tmp_path):
    trimmed(heads={0: [1, 2]}, uniform=[1]).save_pretrained(tmp_path / "small")
    card = card_of(tmp_path / "small")
    assert card.data.tags == ["attentrim"]
    assert card.data.library_name == "transformers"
    text = flat(tmp_path / "small")
    assert "Removed: 2 of 8 attention heads, the attention pattern of 1 of 2 sites (uniform now)" in text
    assert "| 0 | `encoder.layer.0` | 2 of 4 | 32 of 32 |" in text
    assert "| 1 | `encoder.layer.1` | uniform | 32 of 32 |" in text
    assert "import attentrim from transformers import BertModel" in text


def test_saving_a_dense_model_writes_none(tmp_path):
    zoo.build("bert").save_pretrained(tmp_path / "dense")
    assert not (tmp_path / "dense" / CARD).exists()


@pytest.mark.parametrize("order", ["attentrim, transformers", "transformers, attentrim"])
def test_in_either_order_of_imports(tmp_path, order):
    trimmed().save_pretrained(tmp_path / "small")
    (tmp_path / "small" / CARD).unlink()
    code = f"""
import {order}
model = transformers.AutoModel.from_pretrained({str(tmp_path / "small")!r})
model.save_pretrained({str(tmp_path / "again")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert "attention heads; " in flat(tmp_path / "again")


def test_what_people_wrote_stays(tmp_path):
    small = trimmed()
    small.save_pretrained(tmp_path)
    text = (tmp_path / CARD).read_text()
    mine = "\n\n## Intended use\n\nFor <!-- nothing --> in particular.\n"
    text = text.replace("tags:\n- attentrim", "tags:\n- attentrim\n- mine\nco2: 3").replace("# ", "# My ", 1) + mine
    (tmp_path / CARD).write_text(text)
    other = trimmed(heads={1: [0]})
    other.save_pretrained(tmp_path)
    card, text = card_of(tmp_path), (tmp_path / CARD).read_text()
    assert mine in text
    assert card.data.tags == ["attentrim", "mine"]
    assert card.data.to_dict()["co2"] == 3
    assert "Removed: 1 of 8 attention heads" in flat(tmp_path)
    assert "2 of 8" not in text
    assert text.count("<!-- attentrim: heads -->") == text.count("## What is left, by layer") == 1


def test_a_card_of_someone_elses_keeps_its_title(tmp_path):
    (tmp_path / CARD).write_text("---\nlicense: mit\n---\n\n# Their model\n\nTheir words.\n")
    trimmed().save_pretrained(tmp_path)
    text = (tmp_path / CARD).read_text()
    assert text.count("\n# ") == 1
    assert "# Their model\n\nTheir words." in text
    assert "attention heads; " in text
    assert card_of(tmp_path).data.license == "mit"


MARKS = """# Mine

A card has marks such as `<!-- attentrim: results -->` in it.

PRECIOUS

```
<!-- attentrim: heads -->
an example
<!-- /attentrim: heads -->
```

<!-- attentrim: about -->
half of a section

PRECIOUS TOO
"""


def test_marks_that_are_quoted_or_broken_cost_no_text(tmp_path):
    (tmp_path / CARD).write_text(MARKS)
    for removed in ([1], [1, 2]):
        trimmed(heads={0: removed}).save_pretrained(tmp_path)
        text = (tmp_path / CARD).read_text()
        assert text.count("## What is left, by layer") == 1
        assert [line for line in MARKS.splitlines() if line not in text.splitlines()] == []
        assert "an example" in text
    assert "Removed: 2 of 8 attention heads" in text


def test_a_header_keeps_comments_other_keys_and_results_of_others(tmp_path):
    header = """language: no  # Norwegian
# a remark
model-index:
- name: theirs
  results:
  - task: {type: text-classification}
    dataset: {name: imdb, type: imdb}
    metrics: [{type: accuracy, value: 0.91}]
tags: [one]
"""
    (tmp_path / CARD).write_text(f"---\n{header}---\n# Mine\n")
    write_run(tmp_path)
    write_card(tmp_path, trimmed(), measured=True)
    text = (tmp_path / CARD).read_text()
    assert text.startswith("---\nlanguage: no  # Norwegian\n# a remark\n")
    found = yaml.safe_load(text.split("---")[1])
    assert found["tags"] == ["one", "attentrim"]
    results = found["model-index"][0]["results"]
    assert [result["dataset"]["name"] for result in results] == ["imdb", "cola"]
    assert results[1]["metrics"][0]["value"] == 0.75
    assert ModelCard(text).data.eval_results[0].metric_value == 0.91
    # another model: its metrics are not known yet, and those of others are not ours to take away
    trimmed(heads={1: [0]}).save_pretrained(tmp_path)
    found = yaml.safe_load((tmp_path / CARD).read_text().split("---")[1])
    assert [result["dataset"]["name"] for result in found["model-index"][0]["results"]] == ["imdb"]
    assert "## Results" not in (tmp_path / CARD).read_text()


@pytest.mark.parametrize("before", ["---\n\nIntro\n\n---\n# Mine\n", "\ufeff# Mine\n", "---\n---\n# Mine\n", ""])
def test_headers_that_are_none(tmp_path, before):
    (tmp_path / CARD).write_text(before)
    trimmed().save_pretrained(tmp_path)
    text = (tmp_path / CARD).read_text()
    assert text.startswith("---\ntags:\n- attentrim\n")
    assert "# Mine" in text or not before
    assert card_of(tmp_path).data.tags == ["attentrim"]


def test_line_ends_stay(tmp_path):
    (tmp_path / CARD).write_bytes(b"---\r\nlicense: mit\r\n---\r\n# Mine\r\n")
    trimmed().save_pretrained(tmp_path)
    content = (tmp_path / CARD).read_bytes()
    assert content.count(b"\n") == content.count(b"\r\n")
    assert card_of(tmp_path).data.license == "mit"


def test_saving_again_changes_nothing(tmp_path):
    small = trimmed()
    small.save_pretrained(tmp_path)
    before = (tmp_path / CARD).read_text()
    small.save_pretrained(tmp_path)
    assert (tmp_path / CARD).read_text() == before


def test_a_damaged_header_costs_the_card_and_not_the_model(tmp_path):
    (tmp_path / CARD).write_text("---\nlicense: [mit\n---\n\nWords.\n")
    with pytest.warns(UserWarning, match="No model card was written"):
        trimmed().save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    assert "Words." in (tmp_path / CARD).read_text()


def test_a_run_has_data_method_metrics_speed_and_the_licence_of_its_base(home, tmp_path, capsys):
    base = tmp_path / "base"
    tf.AutoModel.from_pretrained(home / "tiny").save_pretrained(base)
    tf.AutoTokenizer.from_pretrained(home / "tiny").save_pretrained(base)
    (base / CARD).write_text(
        "---\nlicense: other\nlicense_name: ours\nlanguage: en\ndatasets: [x]\n---\n# Tiny-BERT\n"
    )
    more = ("--model", base, "--method_config", "target_sparsity=0.5", "--seed", 3)
    result = train(capsys, home, tmp_path / "run", *more)
    card, text = card_of(tmp_path / "run"), flat(tmp_path / "run")
    data = card.data.to_dict()
    assert (data["license"], data["license_name"], data["language"]) == ("other", "ours", "en")
    assert "datasets" not in data
    assert data["pipeline_tag"] == "text-classification"
    assert card.data.eval_results[0].metric_value == pytest.approx(result["value"], abs=1e-6)
    assert "# Tiny-BERT on cola, trained with autoattention" in text
    assert "Fine-tuned from `Tiny-BERT` on cola" in text
    assert f"| matthews | {result['value']:.4f} |" in text
    assert "On 40 validation examples of cola, seed 3." in text
    assert "| 8 x 128 | cpu, float32, sdpa |" in text
    assert str(tmp_path) not in text

    second = train(capsys, home, tmp_path / "second", "--model", tmp_path / "run", "--method", "none", "--no_bench")
    text = flat(tmp_path / "second")
    assert second["before"]["value"] == pytest.approx(result["value"])
    assert f"| matthews | {result['value']:.4f} | {second['value']:.4f} |" in text
    assert '"Before" is the model it started from.' in text
    assert "# Tiny-BERT on cola, fine-tuned" in text
    assert "## Speed" not in text
    assert card_of(tmp_path / "second").data.license == "other"

    assert (
        run("bench", "--model", tmp_path / "second", "--against", base, "--lengths", 16, "--repeats", 2, "--card") == 0
    )
    text = flat(tmp_path / "second")
    assert "| 1 x 16 | cpu, float32, sdpa |" in text
    assert "Before: Tiny-BERT." in text
    assert f"{second['value']:.4f}" in text
    train(capsys, home, tmp_path / "second", "--method", "none", "--no_bench", "--overwrite_output_dir")
    assert "## Speed" not in flat(tmp_path / "second"), "of the model that was here before"


def test_trimming_a_run_takes_over_none_of_its_figures(home, tmp_path, capsys):
    train(capsys, home, tmp_path / "run", "--method_config", "target_sparsity=0.25")
    assert (tmp_path / "run" / "bench.json").is_file()
    assert run("trim", "--model", tmp_path / "run", "--heads", "0:0", "--output_dir", tmp_path / "less") == 0
    assert not (tmp_path / "less" / "metrics.json").exists()
    assert not (tmp_path / "less" / "bench.json").exists()
    text = flat(tmp_path / "less")
    assert "## Results" not in text
    assert "model-index" not in text
    assert "from `tiny` trained with autoattention" in text


def test_a_card_that_cannot_be_written_costs_no_run(home, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / CARD).write_text("---\nlicense: [mit\n---\nWords.\n")
    with pytest.warns(UserWarning, match="No model card was written"):
        result = train(capsys, home, tmp_path / "run", "--method", "none", "--no_bench")
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["value"] == result["value"]
    assert "Words." in (tmp_path / "run" / CARD).read_text()


def test_bench_writes_into_a_card_only_what_compares(home, tmp_path, capsys):
    trimmed().save_pretrained(tmp_path / "small")
    before = (tmp_path / "small" / CARD).read_text()
    assert "--card needs --against" in fails(capsys, "bench", "--model", tmp_path / "small", "--card")
    assert (tmp_path / "small" / CARD).read_text() == before


def test_the_trim_command_writes_one_and_carries_the_licence(home, tmp_path, capsys):
    base = tmp_path / "base"
    zoo.build("bert").save_pretrained(base)
    (base / CARD).write_text("---\nlicense: apache-2.0\nbase_model: google/bert\n---\n# A model\n")
    for name, more in (("small", []), ("stock", ["--portable"])):
        assert run("trim", "--model", base, "--heads", "0:1", "--output_dir", tmp_path / name, *more) == 0
        data = card_of(tmp_path / name).data
        assert (data.license, data.base_model) == ("apache-2.0", "google/bert")
    assert "method by hand. Removed: 1 of 8 attention heads" in flat(tmp_path / "small")
    assert "import attentrim" in flat(tmp_path / "small")
    assert "import attentrim" not in flat(tmp_path / "stock")


def test_models_of_a_comparison_tell_how_all_seeds_did(home, tmp_path, capsys):
    data = ("--model", home / "tiny", "--task", "cola", "--data_dir", home / "data", "--use_cpu")
    few = ("--max_steps", 2, "--per_device_train_batch_size", 16, "--seeds", 2, "--methods", "random-heads")
    result = run_json(capsys, "compare", *data, *few, "--output_dir", tmp_path / "c", "--keep_models")
    found = {entry["name"]: entry for entry in result["summary"]}
    text = flat(tmp_path / "c" / "random-heads" / "seed-1")
    for name in ("dense", "random-heads"):
        assert f"| {name} | {found[name]['mean']:.4f} ± {found[name]['sd']:.4f} | 2 |" in text
    low, high = found["random-heads"]["interval"]
    assert (
        f"the difference is {found['random-heads']['difference']:+.4f}, 95% interval {low:+.4f} to {high:+.4f}" in text
    )
    assert "seed 1" in text


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({}, "folder"),
        ({"README.md": "# all-MiniLM-L6-v2\n"}, "all-MiniLM-L6-v2"),
        ({"README.md": "---\nlicense: mit\n---\nno title\n"}, "folder"),
        ({"README.md": f"# {'long ' * 20}\n"}, "folder"),
        ({"README.md": "# A run\n", "metrics.json": json.dumps({"model": "its base"})}, "its base"),
        ({"metrics.json": json.dumps({"f1": 0.3})}, "folder"),
        ({"metrics.json": "[]"}, "folder"),
    ],
)
def test_what_a_model_is_called(tmp_path, files, name):
    directory = tmp_path / "folder"
    directory.mkdir()
    for file, text in files.items():
        (directory / file).write_text(text)
    assert known_as(str(directory)) == name
    assert known_as("google-bert/bert-base-uncased") == "bert-base-uncased"


def test_a_run_begins_with_what_it_cost(tmp_path):
    write_run(tmp_path, metrics={**speed_facts(), "removed": ["1 of 6 attention heads"]}, bench=bench_of())
    (tmp_path / CARD).write_text("# Mine\n\n<!-- attentrim: about -->\nOld.\n<!-- /attentrim: about -->\n")
    write_card(tmp_path)
    text = flat(tmp_path)
    assert "**accuracy .760 → .750, 2.00 × at 8 × 128 on a chip**" in text
    assert text.index("**accuracy") < text.index("Old.")
    assert "was not measured" not in text
    assert "| 1.50 × | 1.52 × | 1.55 × | .740 | speedup-1.5 |" in text
    assert "| 0 | 1.00 → 0.50 | 2.00 → 1.00 | 0.50 → 0.25 |" in text
    assert "| 1 | 1.00 → 0.00 | 2.00 → 0.00 | 0.50 → 0.00 |" in text
    (tmp_path / "bench.json").write_text(json.dumps(bench_of(30.0)))
    write_card(tmp_path)
    assert "**accuracy .760 → .750, 3.00 × at 8 × 128 on a chip**" in flat(tmp_path)


@pytest.mark.parametrize(("config", "command"), [({}, True), ({"task": None}, False)])
def test_a_run_without_a_dense_model_says_how_to_measure_one(tmp_path, config, command):
    """Of a script there is no command."""
    write_run(tmp_path, metrics={"removed": ["1 of 6 attention heads"], "speedup_flops": 1.5}, config=config)
    write_card(tmp_path)
    text = flat(tmp_path)
    assert "**accuracy .750, 1.50 × by FLOPs (not timed)** The dense model was not evaluated" in text
    assert ("`attentrim train --config config.yaml --method none --output_dir dense`" in text) == command


def test_without_a_model_only_what_was_measured_is_brought_up_to_date(tmp_path):
    trimmed().save_pretrained(tmp_path)
    before = (tmp_path / CARD).read_text()
    entries = [{"name": "dense", "mean": 0.5, "sd": 0.1, "seeds": 3, "sparsity": 0.0}]
    write_card(tmp_path, seeds={"metric": "f1", "entries": entries, "difference": None, "interval": None})
    after = (tmp_path / CARD).read_text()
    assert "| dense | 0.5000 ± 0.1000 | 3 | 0% |" in after
    start, end = after.index("<!-- attentrim: seeds -->"), after.index("<!-- /attentrim: seeds -->")
    assert before.split() == (after[:start] + after[end + len("<!-- /attentrim: seeds -->") :]).split()


def test_the_snippet_names_the_directory_and_says_what_a_forgotten_import_looks_like(tmp_path):
    trimmed().save_pretrained(tmp_path / "small")
    text = (tmp_path / "small" / CARD).read_text()
    assert 'import attentrim\nfrom transformers import BertModel\n\nmodel = BertModel.from_pretrained("small")' in text
    assert "`unexpected keyword argument 'code_revision'`" in text
    assert "ignore_mismatched_sizes" in text
    write_card(tmp_path / "small", trimmed(), name="someone/small")
    assert 'BertModel.from_pretrained("someone/small")' in (tmp_path / "small" / CARD).read_text()


CACHED = "models--google-bert--bert-base-uncased/snapshots/0123"
SNIPPETS = "```python\nSentenceTransformer('other/thing')\nSentenceTransformer('someone/tiny-bert')\n```\n"
TITLED = f"# tiny-bert\n\n{SNIPPETS}"


@pytest.mark.parametrize(
    ("place", "card", "found"),
    [
        ("base", "---\nbase_model: google/bert\n---\n# A model\n", "google/bert"),
        ("base", TITLED, "someone/tiny-bert"),
        ("base", TITLED.replace("# tiny-bert", "# another"), None),
        (CACHED, "", "google-bert/bert-base-uncased"),
    ],
)
def test_the_base_model_is_found_in_its_directory_where_that_says_it(tmp_path, place, card, found):
    base = tmp_path / place
    base.mkdir(parents=True)
    (base / CARD).write_text(card)
    (tmp_path / "small").mkdir()
    write_card(tmp_path / "small", trimmed(), base=str(base))
    assert card_of(tmp_path / "small").data.base_model == found


@pytest.mark.parametrize(
    ("config", "task", "data"),
    [
        ({"task": "cola"}, "cola", {"name": "cola", "type": "nyu-mll/glue", "config": "cola"}),
        ({"task": None, "train_file": "/x/reviews.csv"}, "classification", {"name": "reviews.csv", "type": "csv"}),
        ({"task": None, "dataset": "org/films"}, "classification", {"name": "films", "type": "films"}),
        ({"task": "embedding", "train_file": "/x/texts.txt"}, "embedding", {"name": "texts.txt", "type": "text"}),
    ],
)
def test_the_model_index_speaks_of_the_data_as_the_hub_does(tmp_path, config, task, data):
    metrics = {"task": task, "metrics": {"accuracy": 0.75, "matthews": 0.5}}
    write_run(tmp_path, metrics=metrics, config=config)
    write_card(tmp_path, trimmed(), base="someone/tiny-bert", measured=True)
    header = yaml.safe_load((tmp_path / CARD).read_text().split("---")[1])
    (result,) = header["model-index"][0]["results"]
    assert result["dataset"] == {**data, "split": "validation"}
    assert [metric["type"] for metric in result["metrics"]] == ["accuracy", "matthews_correlation"]
    assert header["metrics"] == ["accuracy", "matthews_correlation"]
    known = card_of(tmp_path).data
    assert known.base_model == "someone/tiny-bert"
    assert {(found.task_type, found.dataset_name) for found in known.eval_results} == {
        ("text-classification", data["name"])
    }
    assert yaml.safe_load(known.to_yaml())["model-index"][0]["results"][0]["task"]["type"] == "text-classification"
    assert f"# tiny-bert on {data['name']}, trained with autoattention" in flat(tmp_path)


def embedding_directory(place):
    model = embedding_model(str(tiny_sentences.directory(place / "dense")))
    small = trim(model, Plan.of(model, heads={0: [1, 2]}, made_by={"method": "by hand"}))
    small.save_pretrained(place / "small")
    tiny_sentences.tokenizer().save_pretrained(place / "small")
    return place / "small"


def test_a_card_of_an_embedding_model_is_one_of_sentence_transformers(tmp_path):
    small = embedding_directory(tmp_path)
    data = card_of(small).data
    assert (data.library_name, data.pipeline_tag) == ("sentence-transformers", "sentence-similarity")
    assert {"attentrim", "sentence-transformers", "sentence-similarity", "feature-extraction"} == set(data.tags)
    assert "import attentrim\nfrom sentence_transformers import SentenceTransformer" in (small / CARD).read_text()
    assert 'SentenceTransformer("small")' in (small / CARD).read_text()


def test_what_sentence_transformers_saves_again_keeps_our_parts(tmp_path):
    api = pytest.importorskip("sentence_transformers")
    small = embedding_directory(tmp_path)
    before = (small / CARD).read_text()
    whole = api.SentenceTransformer(str(small), device="cpu")
    whole.save(str(tmp_path / "again"))
    assert (tmp_path / "again" / CARD).read_text() == before.replace('("small")', '("again")')
    # trained by sentence-transformers, which writes a card of its own
    whole.model_card_data.add_tags("generated_from_trainer")
    whole.save(str(tmp_path / "trained"))
    card, text = card_of(tmp_path / "trained"), flat(tmp_path / "trained")
    assert {"attentrim", "sentence-similarity", "generated_from_trainer"} <= set(card.data.tags)
    assert "## Training Details" in text
    assert "Removed: 2 of 8 attention heads" in text
    assert "import attentrim from sentence_transformers import SentenceTransformer" in text
    assert 'SentenceTransformer("trained")' in text
    # trimmed in its hands, with a card that knows nothing of it
    dense = api.SentenceTransformer(str(tmp_path / "dense"), device="cpu")
    dense._model_card_text = "---\nlicense: mit\n---\n# Theirs\n"
    dense[0].model = api.SentenceTransformer(str(small), device="cpu")[0].model
    dense.save(str(tmp_path / "theirs"))
    text = flat(tmp_path / "theirs")
    assert "# Theirs" in text
    assert "Removed: 2 of 8 attention heads" in text
    assert card_of(tmp_path / "theirs").data.pipeline_tag == "sentence-similarity"
