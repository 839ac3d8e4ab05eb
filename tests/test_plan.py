"""Plans: arithmetic, composition, files, and every error a bad one must get."""

from __future__ import annotations

import json
import math
from pathlib import Path

import plans
import pytest
import torch
import transformers as tf
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st

from attentrim import Plan, find_sites, trim
from attentrim.breakdown import breakdown, change
from attentrim.checkpoint.stored import TrimmedConfig, stored_plan
from attentrim.cost import cost as cost_of
from attentrim.cost import most_speedup, plan_cost
from attentrim.errors import AttentrimError, PlanError
from attentrim.indices import from_text, to_text

FIXTURES = Path(__file__).parent / "fixtures" / "version-0.1.0"


@pytest.fixture(scope="module")
def bert():
    return zoo.build("bert")


@pytest.fixture(scope="module")
def llama():
    return zoo.build("llama")


def test_counts(bert):
    plan = Plan.of(bert, heads={0: [3, 1]}, uniform=[1])
    assert plan.heads == {0: (1, 3)}
    assert plan.heads_total == 8
    assert plan.heads_removed == 2
    assert plan.heads_kept == [2, 0]
    assert plan.kept("heads", 0) == [0, 2]
    assert plan.sparsity == 2 / 8


def test_uniform_sites_do_not_count_as_removed_heads(bert):
    assert Plan.of(bert, uniform=[0, 1]).sparsity == 0.0


def test_empty_plan_is_false(bert):
    assert not Plan.of(bert, heads={0: []})
    assert Plan.of(bert, uniform=[0])


def test_cost_before_and_after_matches_the_models(bert):
    plan = Plan.of(bert, heads={0: [0]}, uniform=[1])
    before, after = plan_cost(bert, plan, batch=2, length=16)
    small = trim(bert, plan)
    for cost, model in ((before, bert), (after, small)):
        assert cost.parameters == sum(p.numel() for p in model.parameters())
        assert cost.bytes == 4 * cost.parameters
        assert cost.units["heads"] == sum(site.heads for site in find_sites(model))
    # one head: 4 projections of 24x6, 3 biases of 6; a folded site: 3 of 24x24 with biases
    assert before.parameters - after.parameters == (4 * 24 * 6 + 3 * 6) + 3 * (24 * 24 + 24)


def test_flops_of_a_layer_by_hand(bert):
    tokens, width, inner = 16, 24, 32
    projections = 4 * 2 * tokens * width * width
    attention = 2 * 2 * tokens * tokens * width
    feed_forward = 2 * 2 * tokens * width * inner
    pooler = 2 * width * width
    before, after = plan_cost(bert, Plan.of(bert, uniform=[0, 1]), batch=1, length=tokens)
    assert before.flops == 2 * (projections + attention + feed_forward) + pooler
    assert after.flops == 2 * (2 * width * width + feed_forward) + pooler


@pytest.mark.parametrize("name", list(zoo.CONFIGS))
def test_cost_counts_every_architecture(name):
    model = zoo.build(name)
    before, after = plan_cost(model, plans.corner_plans(model)["every site uniform"], batch=1, length=16)
    assert 0 < after.flops < before.flops
    assert 0 < after.parameters < before.parameters


@pytest.mark.parametrize("head", [tf.BartForSequenceClassification, tf.GPT2ForSequenceClassification])
def test_cost_of_classifiers_that_look_for_the_last_token(head):
    torch.manual_seed(0)
    model = head(zoo.CONFIGS["bart" if "Bart" in head.__name__ else "gpt2"]())
    before, after = plan_cost(model, Plan.of(model, uniform=[0]), batch=2, length=16)
    assert 0 < after.flops < before.flops


def test_cost_keeps_to_the_positions_a_model_has():
    config = zoo.CONFIGS["bert"]()
    config.max_position_embeddings = 40
    before, after = plan_cost(tf.BertModel(config), Plan.of(tf.BertModel(config), uniform=[0]), length=128)
    assert before.length == after.length == 40


def test_how_a_plan_was_made_does_not_tell_plans_apart(bert):
    assert Plan.of(bert, heads={0: [1]}, made_by={"seed": 1}) == Plan.of(bert, heads={0: [1]})


def test_round_trip(bert, tmp_path):
    plan = Plan.of(bert, heads={0: [1]}, uniform=[1], made_by={"method": "by hand", "seed": 3})
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert json.loads((tmp_path / "plan.json").read_text())["version"] == 2


def test_union(bert):
    one, other = Plan.of(bert, heads={0: [1]}), Plan.of(bert, heads={0: [2], 1: [0]}, uniform=[0])
    both = one | other
    assert both.heads == {0: (1, 2), 1: (0,)}
    assert both.uniform == (0,)


def test_union_needs_the_same_model(bert, llama):
    with pytest.raises(PlanError, match="two plans for the same model"):
        Plan.of(bert) | Plan.of(llama)


def test_composition_speaks_the_first_numbering(bert):
    first = Plan.of(bert, heads={0: [0, 2]})
    second = Plan.of(trim(bert, first), heads={0: [1]}, uniform=[1])
    assert first.then(second) == Plan.of(bert, heads={0: [0, 2, 3]}, uniform=[1])


def test_composition_refuses_a_plan_for_the_full_model(bert):
    with pytest.raises(PlanError, match="was not made for the model that the first one leaves"):
        Plan.of(bert, heads={0: [0]}).then(Plan.of(bert, heads={0: [3]}))


@pytest.mark.parametrize("name", ["bert", "llama", "t5", "mpnet", "gpt2"])
@settings(max_examples=8)
@given(data=st.data())
def test_trimming_twice_is_trimming_once_by_the_composition(name, data):
    model, batch = zoo.build(name, layers=3), zoo.inputs(name)
    first = data.draw(plans.random_plans(model))
    once = trim(model, first)
    second = data.draw(plans.random_plans(once))
    twice = trim(once, second)
    direct = trim(model, first.then(second))
    composed = stored_plan(twice)
    assert composed == (first.then(second) if first.then(second) else None)
    with torch.no_grad():
        expected, actual = zoo.output(name, direct, batch), zoo.output(name, twice, batch)
    assert (expected - actual).abs().max() <= 1e-5 * max(1.0, expected.abs().max().item())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heads": {0: [4]}}, "Site 0 has no head 4: it has heads 0 to 3"),
        ({"heads": {0: [-1]}}, "Site 0 has no head -1"),
        ({"heads": {2: [0]}}, "There is no site 2: the model has sites 0 to 1"),
        ({"heads": {0: [1, 1]}}, "names a head of site 0 twice"),
        ({"heads": {0: [1.5]}}, "must be a whole number. Got 1.5"),
        ({"heads": {"a": [1]}}, "must be a whole number. Got 'a'"),
        ({"heads": {0: [True]}}, "must be a whole number. Got True"),
        ({"heads": {0: torch.tensor([1.7])}}, "must be a whole number"),
        ({"heads": {0: torch.tensor([True, False])}}, "must be a whole number"),
        ({"made_by": {"seed": {1, 2}}}, "'made_by' goes into a JSON file"),
        ({"uniform": [5]}, "There is no site 5"),
        ({"uniform": [0, 0]}, "names site 0 twice under 'uniform'"),
        ({"uniform": 3}, "'uniform' is given as a list of sites. Got 3"),
        ({"heads": [3]}, "'heads' is given as a mapping from sites to heads"),
        ({"neurons": {0: [32]}}, "Block 0 has no neuron 32: it has neurons 0 to 31"),
        ({"neurons": {0: [3, 3]}}, "names a neuron of block 0 twice"),
        ({"neurons": {2: [0]}}, "There is no block 2: the model has blocks 0 to 1"),
        ({"layers": [2]}, "There is no layer 2: the model has layers 0 to 1"),
        ({"layers": [0, 1]}, "removes all layers, 0 to 1: encoder would have none left"),
        ({"layers": [1], "heads": {1: [0]}}, r"names site 1 \(encoder.layer.1.attention.self\) under 'heads' and"),
        ({"layers": [1], "neurons": {1: [0]}}, "names block 1 .* under 'neurons' and removes the layer"),
        ({"layers": [1], "uniform": [1]}, "names site 1 .* under 'uniform' and removes the layer"),
    ],
)
def test_wrong_plans(bert, wrong, message):
    with pytest.raises(PlanError, match=message):
        Plan.of(bert, **wrong)


def test_part_of_a_group_is_refused(llama):
    with pytest.raises(PlanError, match=r"Heads \[0, 1\] of site 1 share keys and values.*Got \[1\] only"):
        Plan.of(llama, heads={1: [1]})


def test_a_site_is_made_uniform_once(bert):
    small = trim(bert, Plan.of(bert, uniform=[0], heads={1: range(4)}))
    with pytest.raises(PlanError, match="Site 0 is uniform already"):
        Plan.of(small, uniform=[0])
    with pytest.raises(PlanError, match="Site 1 has no heads left"):
        Plan.of(small, uniform=[1])
    with pytest.raises(PlanError, match="Site 0 has no head 0: it has no heads left"):
        Plan.of(small, heads={0: [0]})


def test_plan_for_another_model(bert, llama):
    with pytest.raises(PlanError, match="This plan is for a bert model; the model is a llama"):
        trim(llama, Plan.of(bert, heads={0: [0]}))


def test_plan_for_another_shape(bert):
    once = trim(bert, Plan.of(bert, heads={1: [0]}))
    with pytest.raises(PlanError, match=r"whose site 1 .* has 4 heads of size 6; in this model it .* has 3 heads"):
        trim(once, Plan.of(bert, heads={0: [0]}))


def test_not_a_plan(bert):
    with pytest.raises(PlanError, match="Got dict instead"):
        trim(bert, {"heads": {0: [1]}})


def test_an_unknown_kind_is_answered_with_the_nearest(bert):
    with pytest.raises(AttentrimError, match=r"Unknown kind of structure 'neuron'\. Did you mean 'neurons'"):
        Plan.of(bert, neuron={0: [1]})


def _file(bert, **changes):
    return {**Plan.of(bert, heads={0: [1]}, neurons={1: [0, 1, 2, 9]}).to_dict(), **changes}


def _removed(**changes):
    return {"removed": {"heads": {"0": "1"}, **changes}}


def _sites(**changes):
    return {"places": {"sites": [{"path": "x", "heads": 4, "head_size": 2, **changes}]}, "removed": {}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is not an attentrim plan"),
        ({"version": 3}, "has version 3; this attentrim reads up to 2: pip install --upgrade"),
        ({"version": "1"}, "has no valid version"),
        ({"version": True}, "has no valid version"),
        (_removed(heads={"0": "9"}), "'9' is not a range of numbers below 4"),
        (_removed(heads={"00": "1"}), "a place must be a whole number, not '00'"),
        (_removed(heads={"7": "1"}), "there is no site 7: it lists 2 sites"),
        (_removed(heads={"0": 1}), "numbers are written like '0-3,7'. Got 1"),
        (_removed(heads={"0": "1,1"}), "names a head of site 0 twice"),
        (_removed(heads=None), "is damaged"),
        (_removed(uniform=3), "numbers are written like"),
        (_removed(neurons={"0": "mask:!"}), "is not a base64 bit mask"),
        (_removed(neurons={"0": "mask://///////w=="}), "names 55, and there are 32 only"),
        (_removed(neurons={"0": "0-999999999999"}), "is not a range of numbers below 32"),
        (_removed(neurons={"0": "5-2"}), "is not a range of numbers"),
        (_removed(tails={"0": "1"}), "mentions 'tails': this version of attentrim knows no such kind of structure"),
        ({"places": {"sites": [{"path": "x"}]}}, "is damaged"),
        ({"places": {"rooms": []}}, "mentions 'rooms': this version of attentrim knows no such places"),
        (_sites(groups=3), "cannot have"),
        (_sites(heads="4"), "has '4' heads, groups or features, which is not a possible count"),
        (_sites(heads=10**8), "which is not a possible count"),
        (_sites(extra=1), "unknown field 'extra'"),
        (_sites(path=7), "a place is named by its path"),
    ],
)
def test_damaged_files(bert, tmp_path, change, message):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(_file(bert, **change)))
    with pytest.raises(PlanError, match=message) as error:
        Plan.load(path)
    assert str(path) in str(error.value)
    assert len(str(error.value)) < 400


def test_a_plan_of_version_1_is_filled_in_from_the_model():
    folder = FIXTURES / "bert"
    plan = Plan.load(folder / "plan.json")
    assert (plan.heads, plan.uniform, plan.sparsity) == ({0: (1, 2)}, (1,), 0.25)
    assert plan.shapes.keys() == {"sites"}
    dense = tf.BertForSequenceClassification(
        tf.BertConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=4, intermediate_size=8, vocab_size=20)
    )
    assert plan.fitted(dense) == Plan.of(dense, heads={0: [1, 2]}, uniform=[1])
    assert stored_plan(trim(dense, plan)).shapes.keys() == {"sites", "blocks", "layers"}


def test_a_plan_of_a_base_model_is_small(tmp_path):
    """Half of the neurons of BERT-base at random, which no run of numbers shortens."""
    with torch.device("meta"):
        model = tf.BertModel(tf.BertConfig())
    generator = torch.Generator().manual_seed(0)
    neurons = {block: torch.randperm(3072, generator=generator)[:1536].tolist() for block in range(12)}
    plan = Plan.of(model, neurons=neurons, heads={site: range(0, 12, 2) for site in range(12)})
    plan.save(tmp_path / "plan.json")
    assert (tmp_path / "plan.json").stat().st_size < 100_000
    assert Plan.load(tmp_path / "plan.json") == plan
    model.config.quantization_config = TrimmedConfig(plan.to_dict())
    model.config.save_pretrained(tmp_path)
    assert (tmp_path / "config.json").stat().st_size < 20_000


@given(numbers=st.sets(st.integers(0, 300)))
def test_numbers_as_text(numbers):
    ordered = tuple(sorted(numbers))
    text = to_text(ordered)
    assert from_text(text, 301) == ordered
    runs = ",".join(str(number) for number in ordered)
    assert len(text) <= len(runs) + 1
    assert len(text) <= len("mask:") + 4 * (301 // 24 + 1)


def test_layers_that_go_take_their_heads_and_neurons_with_them(bert):
    plan = Plan.of(bert, heads={0: [1]}, layers=[1])
    assert plan.heads_kept == [3, 0]
    assert plan.neurons_kept == [32, 0]
    assert plan.sparsity == 5 / 8
    assert [shape.path for shape in plan.after()["layers"]] == ["encoder.layer.0"]
    assert plan.describe() == ["5 of 8 attention heads", "32 of 64 neurons", "1 of 2 layers"]


def test_a_union_names_what_goes_with_a_layer_once(bert):
    both = Plan.of(bert, heads={1: [0]}, neurons={1: [3], 0: [4]}) | Plan.of(bert, layers=[1])
    assert both == Plan.of(bert, neurons={0: [4]}, layers=[1])


def test_numbers_after_a_layer_is_gone():
    model = zoo.build("bert", layers=4)
    first = Plan.of(model, heads={2: [0]}, neurons={3: [5]}, layers=[1])
    small = trim(model, first)
    second = Plan.of(small, heads={1: [0]}, neurons={2: [5]}, uniform=[2], layers=[0])
    assert first.then(second) == Plan.of(model, heads={2: [0, 1]}, neurons={3: [5, 6]}, uniform=[3], layers=[0, 1])


def test_unreadable_files(tmp_path):
    with pytest.raises(PlanError, match="Cannot read the plan"):
        Plan.load(tmp_path / "none.json")
    (tmp_path / "cut.json").write_text('{"format": "attentrim-pl')
    with pytest.raises(PlanError, match="is not valid JSON"):
        Plan.load(tmp_path / "cut.json")
    (tmp_path / "twice.json").write_text('{"heads": {"0": [1], "0": [2]}}')
    with pytest.raises(PlanError, match="a key appears twice"):
        Plan.load(tmp_path / "twice.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(PlanError, match="is not valid JSON"):
        Plan.load(tmp_path / "deep.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(PlanError, match="is not a text file"):
        Plan.load(tmp_path / "binary.json")
    with pytest.raises(PlanError, match="Cannot read the plan"):
        Plan.load(tmp_path)


@pytest.mark.parametrize("names", [("heads",), ("neurons",), ("heads", "neurons"), ("uniform",)])
def test_no_plan_is_faster_than_the_most_that_its_kinds_can_give(bert, names):
    removed = {"heads": {0: [0, 2]}, "neurons": {1: range(5)}, "uniform": [1]}
    most = most_speedup(bert, names)
    before, after = plan_cost(bert, Plan.of(bert, **{name: removed[name] for name in names}))
    assert most > before.flops / after.flops > 1


def test_the_most_that_heads_can_give_is_a_model_without_them(bert):
    without = trim(bert, Plan.of(bert, heads={0: range(4), 1: range(4)}))
    assert (
        most_speedup(bert, ["heads"], length=16) == cost_of(bert, length=16).flops / cost_of(without, length=16).flops
    )
    assert most_speedup(without, ["heads"]) == 1
    assert most_speedup(zoo.build("llama").base_model, ["heads", "neurons"]) == math.inf
    half = trim(bert, Plan.of(bert, uniform=[0]))
    assert 1 < most_speedup(half, ["uniform"]) < most_speedup(bert, ["uniform"])


def test_a_plan_shows_what_it_removes_in_one_line(bert):
    plan = Plan.of(bert, heads={0: [0]}, neurons={1: range(5)}, made_by={"method": "fisher"})
    assert repr(plan) == "<Plan for bert: removes 1 of 8 attention heads, 5 of 64 neurons; made by fisher>"
    assert str(plan) == repr(plan)
    assert repr(Plan.of(bert)) == "<Plan for bert: removes nothing>"


def test_heads_of_uniform_sites_are_neither_kept_nor_removed(bert):
    plan = Plan.of(bert, heads={0: [0]}, uniform=[1])
    before, after = plan_cost(bert, plan)
    assert (before.units["heads"], after.units["heads"]) == (8, 3)
    assert change("heads", 8, 3, plan) == "12.5% removed, 4 in uniform sites"
    left = next(left for left in plan.left() if left.key == "heads_kept")
    assert left.note == "12.5% removed, 4 in uniform sites"
    assert plan.sparsity == 0.125
    assert breakdown(plan).kept()["heads"] == ["3", "uniform"]
    assert change("heads", 6, 3, plan) == "", "counts of other models say nothing of what this plan removes"
    assert change("heads", 8, 7, Plan.of(bert, heads={0: [0]})) == "-12.5%"
    assert change("parameters", 8, 3, plan) == "-62.5%"
