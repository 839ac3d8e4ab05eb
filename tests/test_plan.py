"""Plans: arithmetic, composition, files, and every error a bad one must get."""

from __future__ import annotations

import json

import plans
import pytest
import torch
import transformers as tf
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st

from attentrim import Plan, find_sites, trim
from attentrim.checkpoint import stored_plan
from attentrim.errors import PlanError


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
    assert plan.kept(0) == [0, 2]
    assert plan.sparsity == 2 / 8


def test_uniform_sites_do_not_count_as_removed_heads(bert):
    assert Plan.of(bert, uniform=[0, 1]).sparsity == 0.0


def test_empty_plan_is_false(bert):
    assert not Plan.of(bert, heads={0: []})
    assert Plan.of(bert, uniform=[0])


def test_cost_before_and_after_matches_the_models(bert):
    plan = Plan.of(bert, heads={0: [0]}, uniform=[1])
    before, after = plan.cost(bert, batch=2, length=16)
    small = trim(bert, plan)
    for cost, model in ((before, bert), (after, small)):
        assert cost.parameters == sum(p.numel() for p in model.parameters())
        assert cost.bytes == 4 * cost.parameters
        assert cost.heads == sum(site.heads for site in find_sites(model))
    # one head: 4 projections of 24x6, 3 biases of 6; a folded site: 3 of 24x24 with biases
    assert before.parameters - after.parameters == (4 * 24 * 6 + 3 * 6) + 3 * (24 * 24 + 24)


def test_flops_of_a_layer_by_hand(bert):
    tokens, width, inner = 16, 24, 32
    projections = 4 * 2 * tokens * width * width
    attention = 2 * 2 * tokens * tokens * width
    feed_forward = 2 * 2 * tokens * width * inner
    pooler = 2 * width * width
    before, after = Plan.of(bert, uniform=[0, 1]).cost(bert, batch=1, length=tokens)
    assert before.flops == 2 * (projections + attention + feed_forward) + pooler
    assert after.flops == 2 * (2 * width * width + feed_forward) + pooler


@pytest.mark.parametrize("name", list(zoo.CONFIGS))
def test_cost_counts_every_architecture(name):
    model = zoo.build(name)
    before, after = plans.corner_plans(model)["every site uniform"].cost(model, batch=1, length=16)
    assert 0 < after.flops < before.flops
    assert 0 < after.parameters < before.parameters


@pytest.mark.parametrize("head", [tf.BartForSequenceClassification, tf.GPT2ForSequenceClassification])
def test_cost_of_classifiers_that_look_for_the_last_token(head):
    torch.manual_seed(0)
    model = head(zoo.CONFIGS["bart" if "Bart" in head.__name__ else "gpt2"]())
    before, after = Plan.of(model, uniform=[0]).cost(model, batch=2, length=16)
    assert 0 < after.flops < before.flops


def test_cost_keeps_to_the_positions_a_model_has():
    config = zoo.CONFIGS["bert"]()
    config.max_position_embeddings = 40
    before, after = Plan.of(tf.BertModel(config), uniform=[0]).cost(tf.BertModel(config), length=128)
    assert before.length == after.length == 38


def test_how_a_plan_was_made_does_not_tell_plans_apart(bert):
    assert Plan.of(bert, heads={0: [1]}, made_by={"seed": 1}) == Plan.of(bert, heads={0: [1]})


def test_round_trip(bert, tmp_path):
    plan = Plan.of(bert, heads={0: [1]}, uniform=[1], made_by={"method": "by hand", "seed": 3})
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert json.loads((tmp_path / "plan.json").read_text())["version"] == 1


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
    model, batch = zoo.build(name), zoo.inputs(name)
    first = data.draw(plans.random_plans(model))
    once = trim(model, first)
    second = data.draw(_second_plans(once))
    twice = trim(once, second)
    direct = trim(model, first.then(second))
    composed = stored_plan(twice)
    assert composed == (first.then(second) if first.then(second) else None)
    with torch.no_grad():
        expected, actual = zoo.output(name, direct, batch), zoo.output(name, twice, batch)
    assert (expected - actual).abs().max() <= 1e-5 * max(1.0, expected.abs().max().item())


def _second_plans(model):
    alive = [site for site in find_sites(model) if site.heads]
    choices = [st.tuples(st.sets(st.integers(0, site.groups - 1)), st.booleans()) for site in alive]

    def build(drawn):
        heads = {site.index: plans.heads_of(site, groups) for site, (groups, _) in zip(alive, drawn, strict=True)}
        uniform = [site.index for site, (_, flat) in zip(alive, drawn, strict=True) if flat]
        return Plan.of(model, heads=heads, uniform=uniform)

    return st.tuples(*choices).map(build)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heads": {0: [4]}}, "Site 0 has no head 4: it has heads 0 to 3"),
        ({"heads": {0: [-1]}}, "Site 0 has no head -1"),
        ({"heads": {2: [0]}}, "There is no site 2: the model has sites 0 to 1"),
        ({"heads": {0: [1, 1]}}, "names a head of site 0 twice"),
        ({"heads": {0: [1.5]}}, "named by a whole number. Got 1.5"),
        ({"heads": {"a": [1]}}, "named by a whole number. Got 'a'"),
        ({"heads": {0: [True]}}, "named by a whole number. Got True"),
        ({"heads": {0: torch.tensor([1.7])}}, "named by a whole number"),
        ({"heads": {0: torch.tensor([True, False])}}, "named by a whole number"),
        ({"made_by": {"seed": {1, 2}}}, "'made_by' goes into a JSON file"),
        ({"uniform": [5]}, "There is no site 5"),
        ({"uniform": [0, 0]}, "names a uniform site twice"),
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


def _file(bert, **changes):
    return {**Plan.of(bert, heads={0: [1]}).to_dict(), **changes}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is not an attentrim plan"),
        ({"version": 2}, "has version 2; this attentrim reads up to 1: pip install --upgrade"),
        ({"version": "1"}, "has no valid version"),
        ({"heads": {"0": [9]}}, "Site 0 has no head 9"),
        ({"heads": {"00": [1]}}, "not by '00'"),
        ({"heads": {"0": 1}}, "is damaged"),
        ({"heads": None}, "is damaged"),
        ({"uniform": 3}, "is damaged"),
        ({"sites": [{"path": "x"}]}, "is damaged"),
        ({"sites": [{"path": "x", "heads": 4, "groups": 3, "head_size": 2}]}, "cannot have"),
        ({"sites": [{"path": "x", "heads": "4", "groups": 4, "head_size": 2}]}, "not whole numbers"),
        ({"sites": [{"path": "x", "heads": 4, "groups": 4, "head_size": 2, "extra": 1}]}, "unknown field 'extra'"),
    ],
)
def test_damaged_files(bert, tmp_path, change, message):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(_file(bert, **change)))
    with pytest.raises(PlanError, match=message) as error:
        Plan.load(path)
    assert str(path) in str(error.value)


def test_unreadable_files(tmp_path):
    with pytest.raises(PlanError, match="Cannot read the plan"):
        Plan.load(tmp_path / "none.json")
    (tmp_path / "cut.json").write_text('{"format": "attentrim-pl')
    with pytest.raises(PlanError, match="is not valid JSON"):
        Plan.load(tmp_path / "cut.json")
    (tmp_path / "twice.json").write_text('{"heads": {"0": [1], "0": [2]}}')
    with pytest.raises(PlanError, match="a key stands twice"):
        Plan.load(tmp_path / "twice.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(PlanError, match="is not valid JSON"):
        Plan.load(tmp_path / "deep.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(PlanError, match="is not a text file"):
        Plan.load(tmp_path / "binary.json")
    with pytest.raises(PlanError, match="Cannot read the plan"):
        Plan.load(tmp_path)
