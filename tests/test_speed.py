"""Latency tables: what they say, how they are made, kept, read and refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
import training as tr
import zoo
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans import random_plans
from tables import TARGET, made_up

from attentrim import Plan, find_sites, trim
from attentrim.errors import AttentrimError
from attentrim.flops import flops
from attentrim.speed import measuring, obtain
from attentrim.speed.fingerprint import described_model, this_machine
from attentrim.speed.layers import LayerPlaces
from attentrim.speed.measuring import flops_table, measured_table
from attentrim.speed.obtain import obtain_table, read_table, table_file
from attentrim.speed.table import GroupCosts, Table, never_falling
from attentrim.speed.target import Target, complete_target
from attentrim.structures.layers import find_layers
from attentrim.structures.neurons import find_blocks

# Costs that do not fall

NUMBERS = st.lists(st.floats(-10, 10).map(lambda value: round(value, 2)), min_size=1, max_size=9)


@given(NUMBERS, st.data())
def test_costs_that_do_not_fall_are_the_nearest_ones(costs, data):
    """The closed form of isotonic regression: the max over starts of the min over ends of the mean between them."""
    weights = data.draw(st.lists(st.integers(1, 5), min_size=len(costs), max_size=len(costs)))

    def mean(start, end):
        part = list(zip(costs, weights, strict=True))[start : end + 1]
        return sum(cost * weight for cost, weight in part) / sum(weight for _, weight in part)

    count = len(costs)
    wanted = [max(min(mean(a, b) for b in range(i, count)) for a in range(i + 1)) for i in range(count)]
    found = never_falling(costs, [float(weight) for weight in weights])
    assert found == pytest.approx(wanted, abs=1e-9)
    assert found == sorted(found)
    total = sum(cost * weight for cost, weight in zip(costs, weights, strict=True))
    assert sum(cost * weight for cost, weight in zip(found, weights, strict=True)) == pytest.approx(total, abs=1e-6)
    assert never_falling(found, [float(weight) for weight in weights]) == pytest.approx(found, abs=1e-9)


@given(NUMBERS.map(sorted))
def test_costs_that_rise_already_stay(costs):
    assert never_falling(costs) == pytest.approx(costs, abs=1e-12)


# What a table says


def test_between_two_widths_costs_are_in_proportion():
    costs = GroupCosts((), 1.0, {"neurons": {0: 0.0, 8: 4.0, 32: 10.0}})
    found = [costs.of_place(("neurons", kept)) for kept in (0, 2, 8, 20, 32, 1 << 30)]
    assert found == [0.0, 1.0, 4.0, 7.0, 10.0, 10.0]


def test_the_cost_of_a_plan_is_the_sum_of_what_it_leaves():
    model = tr.classifier(num_hidden_layers=4)
    table = made_up(model, fixed=5.0, rest=3.0, head=4.0, neuron=1.0, uniform=6.0)
    assert table.dense == table.cost(Plan.of(model)) == 5 + 4 * (3 + 4 * 4 + 32)
    plan = Plan.of(
        model, layers=[2], heads={0: [1, 3], 1: [0, 1, 2, 3]}, uniform=[3], neurons={0: range(10), 3: range(32)}
    )
    layer_0, layer_1, layer_3 = 3 + 2 * 4 + 22, 3 + 0 + 32, 3 + 6 + 0
    assert table.cost(plan) == 5 + layer_0 + layer_1 + layer_3
    assert table.layer_parts(plan, 0) == {"sites": 8.0, "blocks": 22.0, "rest": 3.0}
    assert table.layer_parts(plan, 3) == {"sites": 6.0, "blocks": 0.0, "rest": 3.0}


def test_checks_say_what_to_ask_of_a_table():
    table = made_up(tr.classifier())
    assert table.corrected(2.0) == 2.0
    table = replace(table, checks=((2.2, 2.0), (5.0, 4.0)))
    assert [table.corrected(asked) for asked in (1.0, 2.0, 4.0)] == pytest.approx([1.0, 2.2, 5.0])
    assert table.corrected(3.0) == pytest.approx(3.0 * (1.1 + 1.25) / 2), "between two checks, the mean factor"
    assert table.corrected(8.0) == pytest.approx(8.0 * 1.25), "beyond the last one, its factor"


# On disk


def test_a_table_comes_back_from_disk_as_it_was(tmp_path):
    model = tr.classifier()
    table = made_up(model, machine=this_machine("cpu"), checks=((2.1, 2.0),))
    table.save(tmp_path / "deep" / "table.json")
    again = Table.load(tmp_path / "deep" / "table.json")
    assert again == table
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["table.json"]
    assert read_table(str(tmp_path / "deep" / "table.json"), model, elsewhere=False) == table


def one_line(path, model=None, elsewhere=False):
    with pytest.raises(AttentrimError) as error:
        read_table(str(path), model or tr.classifier(), elsewhere=elsewhere)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is not valid JSON"),
        ("[" * 100_000, "it is not valid JSON"),
        ('{"groups": ' + "9" * 5000 + "}", "it is not valid JSON"),
        ("[1]", "is not a latency table."),
        ('{"heads": {}}', "is not a latency table."),
        ('{"groups": [], "version": 99}', "of version 99; this attentrim reads 1"),
        ('{"groups": []}', "of version None"),
        ('{"groups": [], "version": 1}', "is damaged"),
    ],
    ids=["empty", "nested", "long number", "list", "plan", "newer", "no version", "incomplete"],
)
def test_what_is_no_table_is_refused(text, message, tmp_path):
    path = tmp_path / "table.json"
    path.write_text(text)
    assert message in one_line(path)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    assert "Cannot read the latency table" in one_line(tmp_path / "none.json")
    assert "Cannot read the latency table" in one_line(tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00\x80")
    assert "it is not a text file" in one_line(tmp_path / "bytes.json")


DAMAGE = {
    "fixed is text": lambda data: data.update(fixed="fast"),
    "fixed is nothing": lambda data: data.update(fixed=None),
    "fixed is negative": lambda data: data.update(fixed=-1),
    "fixed is not a number": lambda data: data.update(fixed=math.nan),
    "a huge number": lambda data: data.update(fixed=10**400),
    "an infinite rest": lambda data: data["groups"][0].update(rest=math.inf),
    "a negative cost": lambda data: data["groups"][0]["levels"]["heads"].update({"4": -2.0}),
    "a cost as a list": lambda data: data["groups"][0]["levels"]["heads"].update({"4": [1]}),
    "a width as text": lambda data: data["groups"][0]["levels"]["heads"].update({"wide": 1.0}),
    "levels as a list": lambda data: data["groups"][0].update(levels=[1, 2]),
    "no neurons": lambda data: data["groups"][0]["levels"].pop("neurons"),
    "no width": lambda data: data["groups"][0]["levels"].update(neurons={}),
    "groups as text": lambda data: data.update(groups="all"),
    "no groups": lambda data: data.update(groups=[]),
    "a layer too few": lambda data: data["groups"][0]["layers"].pop(),
    "a layer that is not there": lambda data: data["groups"][0]["layers"].append([7, {"sites": [7]}]),
    "places as text": lambda data: data["groups"][0]["layers"].__setitem__(0, [0, "sites"]),
    "a site as text": lambda data: data["groups"][0]["layers"].__setitem__(
        0, [0, {"sites": ["first"], "blocks": [0]}]
    ),
    "no target": lambda data: data.pop("target"),
    "an unknown target": lambda data: data["target"].update(colour="red"),
    "a device nobody knows": lambda data: data["target"].update(device="abacus"),
    "a batch as text": lambda data: data["target"].update(batch="8"),
    "a batch of none": lambda data: data["target"].update(batch=0),
    "an unknown unit": lambda data: data.update(unit="parsec"),
    "checks of one": lambda data: data.update(checks=[[2.0]]),
    "a check of nothing": lambda data: data.update(checks=[[2.0, 0.0]]),
    "machine as a number": lambda data: data.update(machine=3),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_tables_that_were_edited_by_hand_are_refused_in_one_line(damage, tmp_path):
    model = tr.classifier()
    data = made_up(model, machine=this_machine("cpu")).to_dict()
    damage(data)
    (tmp_path / "table.json").write_text(json.dumps(data))
    said = one_line(tmp_path / "table.json", model)
    assert "is damaged" in said or "digits" in said


def test_tables_of_other_models_and_machines_are_refused(tmp_path, monkeypatch):
    model, path = tr.classifier(), tmp_path / "table.json"
    here = this_machine("cpu")
    made_up(model, machine=here).save(path)
    read_table(str(path), tr.classifier(num_labels=5), elsewhere=False)  # the task head does not count
    for other in (tr.classifier(intermediate_size=40), tr.classifier(num_hidden_layers=3)):
        for elsewhere in (False, True):
            assert "is for another model (bert, other shapes" in one_line(path, other, elsewhere)
    made_up(model, machine={**here, "torch": "1.0"}).save(path)
    found = one_line(path, model)
    assert f"torch '1.0' there, {here['torch']!r} here" in found
    assert "set speed_elsewhere" in found
    assert read_table(str(path), model, elsewhere=True).machine["torch"] == "1.0"
    table = replace(made_up(model), target=replace(TARGET, device="cuda"))
    table.save(path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "is for a GPU, and there is none here" in one_line(path, model)
    assert read_table(str(path), model, elsewhere=True) == table


# Targets


def test_a_target_is_completed_by_what_there_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = tr.classifier()
    assert complete_target(model) == Target(8, 128, "float32", "sdpa", "cpu")
    assert complete_target(tr.classifier(max_position_embeddings=42)).length == 42
    given = complete_target(model, 2, 7, "bfloat16", "eager", "cpu")
    assert (given, str(given)) == (Target(2, 7, "bfloat16", "eager", "cpu"), "2 x 7 tokens on cpu (bfloat16, eager)")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"device": "cuda"}, "torch finds no CUDA device here: use cpu, or give a table"),
        ({"device": "gpu"}, "Unknown device 'gpu'"),
        ({"dtype": "float8"}, "Unknown dtype 'float8'"),
        ({"backend": "sdp"}, "Unknown backend 'sdp'. Did you mean 'sdpa'"),
        ({"backend": "cudagraph"}, "needs speed_device cuda"),
        ({"dtype": "tf32"}, "is a mode of CUDA devices"),
        ({"length": 1000}, "speed_length is 1000; this model has positions for 512 tokens"),
    ],
)
def test_targets_that_cannot_be(asked, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(AttentrimError, match=message):
        complete_target(tr.classifier(), **asked)


# Tables of FLOPs

EXACT = ("bert", "mpnet", "distilbert", "gpt2", "llama", "t5", "bart", "albert", "modernbert", "vit", "phi3")


@pytest.mark.parametrize("name", EXACT)
def test_a_table_of_flops_is_exact(name):
    """For any mixture of heads, uniform sites, neurons and layers."""
    model = zoo.build(name, layers=3)
    target = Target(2, 12, "float32", "eager", "cpu")
    table = flops_table(model, target)

    def counted(plan):
        return flops(trim(model, plan), 2, 12) / 1e6

    assert table.dense == pytest.approx(flops(model, 2, 12) / 1e6, rel=1e-9)
    assert table.unit == "MFLOPs"

    @given(random_plans(model))
    @settings(max_examples=6, suppress_health_check=list(HealthCheck))
    def check(plan):
        assert table.cost(plan) == pytest.approx(counted(plan), rel=1e-9)

    check()


def test_a_table_of_flops_of_a_model_that_was_trimmed_before():
    full = tr.classifier(num_hidden_layers=4)
    model = trim(full, Plan.of(full, layers=[1], heads={0: [0], 2: range(4)}, uniform=[3], neurons={0: range(8)}))
    table = flops_table(model, TARGET)
    for plan in (Plan.of(model), Plan.of(model, heads={0: [1]}, neurons={2: range(32)}), Plan.of(model, layers=[2])):
        assert table.cost(plan) == pytest.approx(flops(trim(model, plan), 8, 16) / 1e6, rel=1e-9)


def test_uniform_sites_cost_the_same_with_fewer_heads():
    """Values and output are one product there."""
    model = tr.classifier()
    table = flops_table(model, TARGET)
    alone, thinned = Plan.of(model, uniform=[1]), Plan.of(model, uniform=[1], heads={1: [0, 1]})
    for plan in (alone, thinned):
        assert table.cost(plan) == pytest.approx(flops(trim(model, plan), 8, 16) / 1e6, rel=1e-9)


# Measured tables


def stairs(model):
    """A made-up time that no straight line fits: sites pay by the pair of heads, blocks by eight neurons."""
    heads = sum(2.5 * math.ceil(site.heads / 2) + 1.5 * (site.heads > 0) for site in find_sites(model))
    neurons = sum(1.25 * math.ceil(block.neurons / 8) for block in find_blocks(model))
    uniform = sum(-1.0 for site in find_sites(model) if site.uniform and site.heads)
    return 7.0 + 0.75 * len(find_layers(model)) + heads + neurons + uniform


@pytest.mark.parametrize("enough", [0.0, 1.5e10], ids=["few layers", "all layers"])
def test_a_measured_table_finds_what_each_part_takes(enough, monkeypatch):
    asked = []

    def timed(models, target, seconds, tick, source=None):
        asked.append([len(find_layers(model)) for model in models])
        return [[stairs(model) + drift for drift in (0.0, 100.0, -3.0)] for model in models]

    monkeypatch.setattr(measuring, "time_models", timed)
    monkeypatch.setattr(measuring, "ENOUGH_FLOPS", enough)
    model = tr.classifier(num_hidden_layers=5, intermediate_size=64)
    table = measured_table(model, TARGET, progress=False)
    assert table.dense == pytest.approx(stairs(model))
    assert [table.fixed, *(group.rest for group in table.groups)] == pytest.approx([7.0, 0.75])
    assert max(asked[0][3:-2]) == (2 if enough == 0.0 else 5), "all but the whole models have few layers"
    for plan in (
        Plan.of(model, heads={0: [0], 1: [0, 1], 2: [1, 2, 3], 3: range(4)}),
        Plan.of(model, neurons={0: range(16), 1: range(32), 2: range(48), 3: range(64)}),
        Plan.of(model, layers=[1, 4], heads={0: [2]}, uniform=[2], neurons={3: range(40)}),
    ):
        assert table.cost(plan) == pytest.approx(stairs(trim(model, plan)))
    for by_table, whole in table.checks:
        assert by_table == pytest.approx(whole, rel=0.05)


def test_a_layer_that_is_like_no_other_has_its_own_rest(monkeypatch):
    """A model that was trimmed before: every layer is a group."""
    full = tr.classifier(num_hidden_layers=3)
    model = trim(full, Plan.of(full, heads={0: [0], 1: [0, 1]}))
    monkeypatch.setattr(measuring, "time_models", lambda models, *_, **__: [[stairs(model)] * 3 for model in models])
    table = measured_table(model, TARGET, progress=False)
    assert [group.rest for group in table.groups] == pytest.approx([0.75] * 3)
    plan = Plan.of(model, layers=[0, 2], heads={1: [0]})
    assert table.cost(plan) == pytest.approx(stairs(trim(model, plan)))


def test_noise_does_not_make_wider_blocks_cheaper(monkeypatch):
    generator = torch.Generator().manual_seed(0)

    def timed(models, target, seconds, tick, source=None):
        return [(stairs(model) + 3 * torch.randn(5, generator=generator)).tolist() for model in models]

    monkeypatch.setattr(measuring, "time_models", timed)
    model = tr.classifier(num_hidden_layers=3)
    table = measured_table(model, TARGET, progress=False)
    for group in table.groups:
        for costs in group.levels.values():
            assert all(cost >= 0 for cost in costs.values())
            rising = [costs[kept] for kept in sorted(costs)]
            assert rising == sorted(rising)
        assert group.levels["heads"][0] == pytest.approx(0, abs=1e-3)


def hooks_of(model):
    return [
        len(getattr(module, name))
        for module in model.modules()
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    ]


def test_measuring_leaves_the_model_as_it_is():
    model = tr.classifier().train()
    model.set_attn_implementation("sdpa")
    before, hooks, grads = tr.weights(model), hooks_of(model), [p.requires_grad for p in model.parameters()]
    table = measured_table(model, Target(1, 4, "float32", "eager", "cpu"), progress=False, seconds=0.0)
    assert table.dense > 0
    flops_table(model, TARGET)
    assert tr.same(before, tr.weights(model))
    assert hooks_of(model) == hooks
    assert [p.requires_grad for p in model.parameters()] == grads
    assert (model.training, model.config._attn_implementation) == (True, "sdpa")
    assert all(not parameter.is_inference() for parameter in model.parameters())
    model(**tr.batches(1)[0]).loss.backward()


# Kept for the next time


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """How often a table was measured; tables are kept in tmp_path."""
    calls = []

    def measure(model, target, progress):
        calls.append(target)
        return replace(made_up(model, machine=this_machine("cpu")), target=target)

    monkeypatch.setattr(obtain, "measured_table", measure)
    monkeypatch.setenv("ATTENTRIM_CACHE", str(tmp_path / "cache"))
    return calls


def test_a_table_is_measured_once(counted, tmp_path):
    model = tr.classifier()
    first = obtain_table(model, TARGET)
    again = obtain_table(tr.classifier(seed=3, num_labels=4), TARGET)
    assert again == first
    assert len(counted) == 1
    (file,) = (tmp_path / "cache" / "latency").iterdir()
    assert file == table_file(model, TARGET)
    assert file.name.startswith("bert-")
    obtain_table(model, replace(TARGET, batch=2))
    obtain_table(tr.classifier(intermediate_size=40), TARGET)
    assert len(counted) == 3
    assert len(list((tmp_path / "cache" / "latency").iterdir())) == 3


def test_where_tables_are_kept(monkeypatch, tmp_path):
    monkeypatch.delenv("ATTENTRIM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert obtain.cache_directory() == tmp_path / "attentrim"
    monkeypatch.setenv("ATTENTRIM_CACHE", str(tmp_path / "own"))
    assert obtain.cache_directory() == tmp_path / "own"


def test_other_software_or_threads_give_another_file(monkeypatch):
    model, here = tr.classifier(), this_machine("cpu")
    files = {table_file(model, TARGET)}
    for changed in ({"torch": "1.0"}, {"threads": 77}, {"cpu": "abacus"}):
        monkeypatch.setattr(obtain, "this_machine", lambda device, changed=changed: {**here, **changed})
        files.add(table_file(model, TARGET))
    assert len(files) == 4


def test_what_cannot_be_kept_is_used_all_the_same(counted, monkeypatch, tmp_path):
    """A table takes a minute: a cache that cannot be written, or was damaged, must not cost the run."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ATTENTRIM_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="cannot be kept"):
        assert obtain_table(tr.classifier(), TARGET).dense > 0
    monkeypatch.setenv("ATTENTRIM_CACHE", str(tmp_path / "cache"))
    first = obtain_table(tr.classifier(), TARGET)
    table_file(tr.classifier(), TARGET).write_text("{")
    assert obtain_table(tr.classifier(), TARGET) == first
    assert len(counted) == 3
    assert Table.load(table_file(tr.classifier(), TARGET)) == first


def test_a_fingerprint_is_of_shapes():
    model = tr.classifier()
    assert described_model(model) == described_model(tr.classifier(seed=1, num_labels=3))
    assert described_model(model) != described_model(trim(model, Plan.of(model, heads={0: [1]})))
    assert LayerPlaces(0, {"sites": (0,), "blocks": (0,)}) == made_up(model).layers[0][0]
