"""attentrim train --speedup, run as a user would. Costs are FLOPs: nothing here depends on a clock."""

from __future__ import annotations

import json

import pytest
import transformers as tf
import yaml
from close import assert_same_metrics
from commands import fails, run_json
from tables import made_up

from attentrim import Plan
from attentrim.errors import MethodError
from attentrim.flops import flops
from attentrim.runs.settings import RunSettings

FEW = ("--per_device_train_batch_size", 16, "--learning_rate", "1e-3", "--use_cpu", "--no_bench", "--speed_length", 16)


def words(home, directory, *more):
    data = ("--model", home / "tiny", "--task", "cola", "--data_dir", home / "data")
    return ("train", *data, "--output_dir", directory, *FEW, *more)


FLOPS = ("--num_train_epochs", 3, "--method_config", "cost=flops")


def test_a_speed_is_asked_for_by_a_flag(home, tmp_path, capsys):
    result = run_json(capsys, *words(home, tmp_path / "run", "--speedup", 1.4, *FLOPS))
    assert (result["method"], result["speedup_asked"]) == ("fisher", 1.4)
    assert result["value"] == pytest.approx(result["masked_value"], abs=1e-6)
    dense = tf.AutoModelForSequenceClassification.from_pretrained(home / "tiny")
    small = tf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    assert flops(dense, 8, 16) / flops(small, 8, 16) == pytest.approx(1.4, rel=0.03)
    rows = result["layer_times"]["rows"]
    assert [row["layer"] for row in rows] == [0, 1]
    assert set(rows[0]["before"]) >= {"rest"}
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (config["method"], config["method_config"]["speedup"]) == ("fisher", "1.4")
    assert config["method_config"]["speed_length"] == 16
    again = run_json(
        capsys, "train", "--config", tmp_path / "run" / "config.yaml", "--output_dir", tmp_path / "again", "--no_bench"
    )
    assert again["value"] == result["value"]
    assert Plan.load(tmp_path / "again" / "plan.json") == Plan.load(tmp_path / "run" / "plan.json")


def test_several_speeds_leave_a_model_each(home, tmp_path, capsys):
    result = run_json(capsys, *words(home, tmp_path / "run", "--speedup", "1.2,1.6", *FLOPS))
    assert [(entry["asked"], entry["directory"]) for entry in result["speeds"]] == [(1.2, "speedup-1.2"), (1.6, ".")]
    data = ("--task", "cola", "--data_dir", home / "data", "--use_cpu")
    for entry in result["speeds"]:
        found = run_json(capsys, "evaluate", "--model", tmp_path / "run" / entry["directory"], *data)
        assert found["value"] == pytest.approx(entry["value"], abs=1e-6)
    assert_same_metrics(result, run_json(capsys, "evaluate", "--model", tmp_path / "run", *data))
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["speeds"] == result["speeds"]


def test_a_drop_that_is_allowed(home, tmp_path, capsys):
    result = run_json(capsys, *words(home, tmp_path / "run", "--max_drop", 0.9, "--speedup", "1.2,1.5", *FLOPS))
    assert result["method"] == "fisher"
    assert any("on held-out training data" in remark for remark in result["remarks"])
    assert "speeds" not in result


def test_a_table_of_another_machine_is_planned_for(home, tmp_path, capsys):
    model = tf.AutoModelForSequenceClassification.from_pretrained(home / "tiny")
    made_up(model).save(tmp_path / "there.json")
    given = ("--speed_table", tmp_path / "there.json", "--num_train_epochs", 3)
    result = run_json(capsys, *words(home, tmp_path / "run", "--speedup", 1.5, "--speed_elsewhere", *given))
    assert result["speedup_measured"] is None
    assert any("was not measured: run attentrim bench there" in remark for remark in result["remarks"])
    table = made_up(model)
    assert table.dense / table.cost(Plan.load(tmp_path / "run" / "plan.json")) == pytest.approx(1.5, rel=0.03)
    assert "set speed_elsewhere" in fails(capsys, *words(home, tmp_path / "other", "--speedup", 1.5, *given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--speedup", 0.5), "The 'speedup' parameter of Fisher must be a number above 1"),
        (("--speedup", "fast"), "must be a number above 1"),
        (("--speedup", "3,2"), "in rising order"),
        (
            ("--speedup", 2, "--method", "autoattention"),
            "The method 'autoattention' does not know --speedup: use fewer-layers or fisher",
        ),
        (
            ("--speedup", 2, "--method", "none"),
            "The method 'none' does not know --speedup: use fewer-layers or fisher",
        ),
        (("--speed_batch", 2), "The method 'autoattention' does not know --speed_batch: use fisher"),
        (("--max_drop", 2, "--method", "fisher"), "The 'max_drop' parameter of Fisher must be in [0, 1)"),
        (("--speedup", 2, "--speed_elsewhere"), "set speed_table too"),
        (("--speedup", 2, "--speed_device", "tpu"), "'speed_device' parameter of Fisher must be one of"),
        (("--speedup", 2, "--speed_table", "none.json"), "Cannot read the latency table none.json"),
        (("--speedup", 2, "--method_config", "prune=nerves"), "Unknown kind of structure 'nerves'"),
        (("--speedup", 2, "--method_config", "ramp=1"), "Unknown setting of Fisher 'ramp'"),
        (("--speedup", 2, "--max_steps", 3, "--method_config", "cost=flops"), "3 steps are too few"),
        (
            ("--speedup", 900, "--max_steps", 9, "--method_config", "cost=flops"),
            "cannot be made 900 times as fast: without all",
        ),
    ],
    ids=lambda value: "-".join(str(part) for part in value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_one_line(given, message, home, tmp_path, capsys):
    assert message in fails(capsys, *words(home, tmp_path / "run", *given))


def test_flags_about_speed_are_settings_of_the_method():
    settings = RunSettings(speedup="2", speed_batch=4, method_config={"cost": "flops"})
    assert settings.method == "fisher"
    assert settings.method_config == {"cost": "flops", "speedup": "2", "speed_batch": 4}
    assert RunSettings(max_drop=0.0).method == "fisher", "0 is a drop too"
    assert RunSettings(max_drop=0.1, method="autoattention").method_config == {"max_drop": 0.1}
    assert RunSettings().method == "autoattention"
    assert RunSettings.from_mapping({"speedup": 2, "speed_length": 64}).method_config == {
        "speedup": "2",
        "speed_length": 64,
    }
    with pytest.raises(MethodError, match="does not know --speedup: use fewer-layers or fisher"):
        RunSettings(method="hisp", speedup="2")
