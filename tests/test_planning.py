"""attentrim plan --speedup: what it writes, and what it says of it. Costs are FLOPs: nothing depends on a clock."""

from __future__ import annotations

import pytest
import torch
import transformers as tf
from commands import fails, run_json

import attentrim
from attentrim import Plan
from attentrim.flops import flops
from attentrim.runs import planning

LENGTH = 16


@pytest.fixture
def trained(home, tmp_path):
    """A model that tells the classes apart by chance only: what counts here is that figures agree."""
    torch.manual_seed(0)
    model = tf.AutoModelForSequenceClassification.from_pretrained(home / "tiny")
    model.save_pretrained(tmp_path / "trained")
    tf.AutoTokenizer.from_pretrained(home / "tiny").save_pretrained(tmp_path / "trained")
    return tmp_path / "trained"


def data(home):
    return ("--task", "cola", "--data_dir", home / "data", "--use_cpu")


def words(home, trained, *more):
    fast = ("--method_config", "cost=flops", "--speed_length", LENGTH, "--no_bench")
    return ("plan", "--model", trained, *data(home), *fast, *more)


def ratio(trained, small):
    load = tf.AutoModelForSequenceClassification.from_pretrained
    return flops(load(trained), 8, LENGTH) / flops(load(small), 8, LENGTH)


def test_the_smaller_model_is_what_was_measured(home, trained, tmp_path, capsys):
    out = tmp_path / "plan.json"
    small = ("--output_dir", tmp_path / "small", "--out", out)
    result = run_json(capsys, *words(home, trained, "--speedup", 1.4, *small))
    assert (result["method"], result["speedup_asked"], result["speedup_measured"]) == ("fisher", 1.4, None)
    assert ratio(trained, tmp_path / "small") == pytest.approx(1.4, rel=0.03)
    assert Plan.load(out) == Plan.load(tmp_path / "small" / "plan.json")
    for name, key in (("trained", "value_before"), ("small", "value")):
        found = run_json(capsys, "evaluate", "--model", tmp_path / name, *data(home))
        assert found["value"] == pytest.approx(result[key], abs=1e-6)


def test_without_fitting_the_weights_that_stay_are_the_models_own(home, trained, tmp_path, capsys):
    run_json(capsys, *words(home, trained, "--speedup", 1.4, "--no_fit", "--output_dir", tmp_path / "plain"))
    run_json(capsys, *words(home, trained, "--speedup", 1.4, "--output_dir", tmp_path / "fitted"))
    load = tf.AutoModelForSequenceClassification.from_pretrained
    dense, plain, fitted = (load(place) for place in (trained, tmp_path / "plain", tmp_path / "fitted"))
    own = attentrim.trim(dense, Plan.load(tmp_path / "plain" / "plan.json")).state_dict()
    assert all(torch.equal(value, own[name]) for name, value in plain.state_dict().items())
    assert not all(torch.equal(value, own[name]) for name, value in fitted.state_dict().items())


def test_labels_are_not_needed(home, trained, tmp_path, capsys):
    """Nothing is learned from them: other labels give the same plan."""
    plans = []
    for number, swapped in enumerate((False, True)):
        folder = tmp_path / f"data-{number}"
        folder.mkdir()
        for name in ("train.tsv", "dev.tsv"):
            lines = [line.split("\t") for line in (home / "data" / name).read_text().splitlines()]
            if swapped and name == "train.tsv":
                lines = [[cells[0], str(1 - int(cells[1])), *cells[2:]] for cells in lines]
            (folder / name).write_text("".join("\t".join(cells) + "\n" for cells in lines))
        out = tmp_path / f"{number}.json"
        command = ["plan", "--model", trained, "--task", "cola", "--data_dir", folder, "--use_cpu", "--no_bench"]
        settings = ("--method_config", "cost=flops", "use_labels=false", "--speed_length", LENGTH, "--speedup", 1.4)
        run_json(capsys, *command, *settings, "--out", out)
        plans.append(Plan.load(out))
    assert plans[0] == plans[1]
    assert plans[0]


@pytest.mark.parametrize(
    ("values", "kept"),
    [([0.9, 0.85, 0.84, 0.1], 1.4), ([0.9, 0.5], None), ([0.9, 0.89, 0.88, 0.87], 1.6)],
    ids=["second", "none", "all"],
)
def test_the_fastest_within_a_drop(home, trained, tmp_path, capsys, monkeypatch, values, kept):
    """The dense model is judged first, then one speed after the other, until one falls too far."""
    judged = iter([*values, 0.0, 0.0])  # at last both on validation data
    monkeypatch.setattr(planning, "_value", lambda *_: next(judged))
    small = tmp_path / "small"
    more = ("--max_drop", 0.1, "--speedup", "1.2,1.4,1.6", "--output_dir", small)
    result = run_json(capsys, *words(home, trained, *more))
    if kept is None:
        assert "Nothing was removed: none of the speeds tried stayed within 0.1" in result["remarks"][0]
        assert "1.2 x 0.5000" in result["remarks"][0]
        assert not Plan.load(small / "plan.json")
    else:
        assert "Kept the fastest model within 0.1" in result["remarks"][0]
        assert ratio(trained, small) == pytest.approx(kept, rel=0.03)


def test_what_cannot_be_planned(home, trained, capsys, tmp_path):
    for more, said in (
        (("--speedup", 2), "Nothing to write: give --out"),
        (("--speedup", "1.2,1.4", "--out", tmp_path / "p.json"), "one speed at a time"),
        (("--speedup", 2, "--method", "hisp", "--out", tmp_path / "p.json"), "does not know"),
        (("--max_drop", 0.1, "--method_config", "use_labels=false", "--out", tmp_path / "p.json"), "by the labels"),
        (("--speedup", 1, "--out", tmp_path / "p.json"), "above 1"),
        (("--speedup", 2, "--output_dir", trained), "the directory of the model"),
    ):
        assert said in fails(capsys, *words(home, trained, *more))


def test_methods_that_learn_while_training_are_sent_there(home, trained, capsys, tmp_path):
    out = ("--out", tmp_path / "p.json")
    said = fails(capsys, "plan", "--model", trained, *data(home), "--method", "l0", *out)
    assert "learns what to remove while the model trains" in said
    assert "fisher" in said
