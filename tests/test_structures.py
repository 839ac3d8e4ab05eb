"""What is true of every kind of structure, and of neurons and layers in particular."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import plans
import pytest
import torch
import transformers as tf
import zoo
from close import assert_close
from safetensors.torch import load_file, save_file

from attentrim import Control, Plan, find_sites, portable, trim
from attentrim.checkpoint.stored import STAMP, stored_plan
from attentrim.cost import cost, plan_cost
from attentrim.errors import PlanError, UnsupportedModelError
from attentrim.projections import is_conv1d
from attentrim.structures import STRUCTURES, kinds, places_of
from attentrim.structures.layers import find_layers
from attentrim.structures.neurons import find_blocks
from attentrim.surgery import unshrunk

FIXTURES = Path(__file__).parent / "fixtures" / "version-0.1.0"


def test_every_kind_has_its_line_in_the_shared_suite():
    assert set(plans.REMOVALS) == set(STRUCTURES)


@pytest.mark.parametrize("name", [*zoo.CONFIGS, *zoo.VARIANTS])
def test_places_are_numbered_alike(name):
    """One block and one layer per site, in the same order, encoder before decoder."""
    model = zoo.build(name, layers=3)
    sites, blocks, layers = (places_of(model)[kind] for kind in ("sites", "blocks", "layers"))
    assert len(sites) == len(blocks) == len(layers) == (6 if name in (*zoo.SEQ2SEQ, "clip") else 3)
    for site, block, layer in zip(sites, blocks, layers, strict=True):
        assert site.layer == layer.name
        assert f"{block.name}.".startswith(f"{layer.name}.")
        assert block.neurons == (96 if name == "gpt2" else 32)


@pytest.mark.parametrize("name", [*zoo.CONFIGS, *zoo.VARIANTS])
def test_a_neuron_is_an_input_feature_of_the_projection_out_of_its_block(name, no_grad):
    """Brute force: a closed gate is a zero column, whatever the block is made of."""
    model, batch = zoo.build(name), zoo.inputs(name)
    block = find_blocks(model)[0]
    gates = torch.ones(block.neurons)
    gates[[1, 5]] = 0.0
    with Control(model) as control:
        control.set("neurons", 0, gates)
        masked = zoo.output(name, model, batch)
    columns = block.output.weight if is_conv1d(block.output) else block.output.weight.t()
    columns[[1, 5]] = 0.0
    torch.testing.assert_close(zoo.output(name, model, batch), masked, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama", "modernbert", "gpt2", "t5-gated"])
def test_gradients_of_neuron_gates_are_those_of_finite_differences(name):
    model, batch = zoo.build(name).double(), zoo.inputs(name)
    batch = {key: value.double() if value.is_floating_point() else value for key, value in batch.items()}
    generator = torch.Generator().manual_seed(0)
    gates = torch.rand(find_blocks(model)[1].neurons, generator=generator, dtype=torch.float64).requires_grad_()

    def value(values):
        with Control(model) as control:
            control.set("neurons", 1, values)
            result = zoo.output(name, model, batch).square().sum()
            if values.requires_grad:
                result.backward()
            return float(result.detach())

    value(gates)
    for neuron in (0, 7):
        step = torch.zeros_like(gates)
        step[neuron] = 3e-2  # not less: some norms compute in float32 whatever they are given
        slope = (value((gates + step).detach()) - value((gates - step).detach())) / 6e-2
        assert float(gates.grad[neuron]) == pytest.approx(slope, rel=2e-2, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "kind", "gates"), [("bert", "neurons", 64), ("bert", "heads", 8), ("llama", "heads", 4)]
)
def test_all_gates_at_once_are_the_gates_one_by_one(name, kind, gates):
    """Values and gradients: the gates of all places are spread over their features in one tensor."""
    model, batch = zoo.build(name), zoo.inputs(name)

    def run(place_gates):
        values = torch.rand(gates, generator=torch.Generator().manual_seed(0)).requires_grad_()
        with Control(model) as control:
            place_gates(control, values)
            result = zoo.output(name, model, batch)
            result.square().sum().backward()
        return result.detach(), values.grad

    def one_by_one(control, values):
        for place, part in enumerate(values.split(gates // 2)):
            control.set(kind, place, part)

    together, gradient = run(lambda control, values: control.set_all(kind, values))
    apart, gradient_apart = run(one_by_one)
    assert torch.equal(together, apart)
    assert gradient.count_nonzero() == gates
    assert_close(gradient, gradient_apart)


def test_gates_are_converted_once_for_all_places(no_grad):
    """After the first pass has shown the dtype, places get their gates in it."""
    model, batch = zoo.build("bert").bfloat16(), zoo.inputs("bert")
    with Control(model) as control:
        control.set_all("heads", torch.ones(8))
        model(**batch)
        control.set_all("heads", torch.ones(8))
        dtypes = {control._gates["heads", site].values.dtype for site in (0, 1)}
    assert dtypes == {torch.bfloat16}


def test_gates_per_sample(no_grad):
    model, batch = zoo.build("llama"), zoo.inputs("llama")
    gates = torch.ones(3, 32)
    gates[1, :20] = 0.0
    with Control(model) as control:
        control.set("neurons", 0, gates)
        mixed = zoo.output("llama", model, batch)
        control.set("neurons", 0, gates[1])
        closed = zoo.output("llama", model, batch)
    torch.testing.assert_close(mixed[1], closed[1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(mixed[0], zoo.output("llama", model, batch)[0], atol=1e-5, rtol=1e-5)


# Layers


@pytest.mark.parametrize("name", ["modernbert", "qwen2", "mistral"])
def test_layers_keep_their_own_window_when_others_go(name):
    model = zoo.build(name, layers=4)
    windows = [site.window for site in find_sites(model)]
    small = trim(model, Plan.of(model, layers=[1]))
    kept = [windows[index] for index in (0, 2, 3)]
    assert [site.window for site in find_sites(small)] == kept
    assert [site.module.layer_idx for site in find_sites(small)] == [0, 1, 2]
    if name != "mistral":
        assert len(small.config.layer_types) == 3
        assert ["sliding" in kind for kind in small.config.layer_types] == [window is not None for window in kept]


def test_the_position_table_of_t5_moves_to_the_block_that_comes_first():
    model = zoo.build("t5", layers=3)
    table = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    small = trim(model, Plan.of(model, layers=[0, 3]))
    first = small.encoder.block[0].layer[0].SelfAttention
    assert torch.equal(first.relative_attention_bias.weight, table)
    assert first.has_relative_attention_bias
    assert (small.config.num_layers, small.config.num_decoder_layers) == (2, 2)
    assert small.decoder.config.num_layers == 2


def test_configs_of_parts_say_how_deep_they_are(tmp_path):
    model = zoo.build("clip", layers=3)
    small = trim(model, Plan.of(model, layers=[0, 1, 5]))
    assert small.config.text_config.num_hidden_layers == 1
    assert small.config.vision_config.num_hidden_layers == 2
    assert small.text_model.encoder.config.num_hidden_layers == 1
    assert model.config.text_config.num_hidden_layers == 3


@pytest.mark.parametrize(
    ("name", "layer", "reason"),
    [
        ("albert", 1, r"Layer 1 .* of a albert model cannot be removed: all layers of a group share their weights"),
        ("modernbert", 0, "the first layer is the one without a norm"),
    ],
)
def test_layers_that_cannot_go_are_refused_by_name(name, layer, reason):
    with pytest.raises(UnsupportedModelError, match=reason):
        Plan.of(zoo.build(name, layers=3), layers=[layer])


def test_a_convolution_after_the_first_layer_keeps_it():
    config = zoo.CONFIGS["deberta-v2"](3)
    config.conv_kernel_size = 3
    model = tf.AutoModel.from_config(config)
    with pytest.raises(UnsupportedModelError, match="a convolution follows the first layer"):
        Plan.of(model, layers=[0])
    assert Plan.of(model, layers=[1])


def test_attention_scaled_by_the_number_of_its_layer_keeps_all_layers():
    config = zoo.CONFIGS["gpt2"](3)
    config.scale_attn_by_inverse_layer_idx = True
    with pytest.raises(UnsupportedModelError, match="scale_attn_by_inverse_layer_idx"):
        Plan.of(tf.AutoModel.from_config(config), layers=[1])


def test_mixtures_of_experts_are_refused_by_name():
    config = tf.MixtralConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=16)
    with torch.device("meta"):
        model = tf.MixtralModel(config)
    with pytest.raises(UnsupportedModelError, match="A mixtral model is a mixture of experts"):
        Plan.of(model, neurons={0: [0]})


# What it costs


@pytest.mark.parametrize("name", ["bert", "llama", "modernbert", "gpt2"])
def test_what_a_gate_costs_is_what_removing_its_units_saves(name):
    model = zoo.build(name)
    for kind in (STRUCTURES["heads"], STRUCTURES["neurons"]):
        place = kind.find(model)[1]
        units = kind.group(place.shape, 0)
        before, after = plan_cost(model, Plan.of(model, **{kind.name: {1: units}}), length=12)
        parameters, flops = kind.cost(place, 12)
        biases = {"bert": {"heads": 18, "neurons": 1}, "gpt2": {"heads": 18, "neurons": 1}}.get(name, {})
        assert before.parameters - after.parameters == parameters + biases.get(kind.name, 0)
        # eager attention computes all pairs, windows or not
        if not getattr(place, "window", None):
            assert before.flops - after.flops == 12 * flops


def test_a_cost_counts_the_units_of_every_kind():
    model = zoo.build("bert", layers=3)
    small = trim(model, Plan.of(model, heads={0: [0]}, uniform=[1], neurons={0: range(10)}, layers=[2]))
    assert cost(model).units == {"heads": 12, "neurons": 96, "layers": 3}
    assert cost(small).units == {"heads": 3, "neurons": 54, "layers": 2}


# Portable models


def test_a_portable_model_of_one_width_and_fewer_layers_loses_nothing(tmp_path):
    model = zoo.build("bert", layers=4)
    plan = Plan.of(model, neurons={block: range(block, block + 20) for block in range(3)}, layers=[3])
    stock, small = portable(model, plan), trim(model, plan)
    assert unshrunk(model, plan) == []
    assert sum(p.numel() for p in stock.parameters()) == sum(p.numel() for p in small.parameters())
    assert (stock.config.intermediate_size, stock.config.num_hidden_layers) == (12, 3)
    assert {type(module) for module in stock.modules()} == {type(module) for module in model.modules()}


def test_a_portable_model_says_what_could_not_shrink():
    model = zoo.build("bert")
    plan = Plan.of(model, heads={0: [1, 2]}, uniform=[1], neurons={0: range(30), 1: range(20)})
    assert unshrunk(model, plan) == [
        "2 of the removed heads stay as zeros",
        "10 neurons are padding: all blocks are as wide as the widest",
        "1 uniform sites keep their projections",
    ]
    assert portable(model, plan).config.intermediate_size == 12


def test_heads_of_a_portable_model_shrink_where_the_config_has_a_head_size(no_grad):
    model = zoo.build("llama", layers=3)
    plan = Plan.of(model, heads={site: [2, 3] for site in range(3)})
    stock = portable(model, plan)
    assert (stock.config.num_attention_heads, stock.config.num_key_value_heads, stock.config.head_dim) == (2, 1, 8)
    assert unshrunk(model, plan) == []
    assert sum(p.numel() for p in stock.parameters()) == sum(p.numel() for p in trim(model, plan).parameters())


# Checkpoints


def logits(model):
    ids = torch.arange(3, 15).reshape(2, 6)
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    with torch.no_grad():
        return model.eval()(input_ids=ids, attention_mask=mask).logits


@pytest.mark.parametrize("name", ["bert", "mpnet", "llama"])
def test_checkpoints_of_version_0_1_0_load_and_can_be_trimmed_again(name, tmp_path):
    head = tf.AutoModelForCausalLM if name == "llama" else tf.AutoModelForSequenceClassification
    model = head.from_pretrained(FIXTURES / name)
    expected = torch.tensor(json.loads((FIXTURES / name / "expected.json").read_text())["logits"])
    torch.testing.assert_close(logits(model), expected, atol=1e-5, rtol=1e-5)
    assert stored_plan(model).heads == Plan.load(FIXTURES / name / "plan.json").heads
    again = trim(model, Plan.of(model, neurons={0: [1, 2]}))
    again.save_pretrained(tmp_path)
    loaded = head.from_pretrained(tmp_path)
    torch.testing.assert_close(logits(loaded), logits(again), atol=1e-5, rtol=1e-5)
    assert stored_plan(loaded).neurons == {0: (1, 2)}


def save(model, plan, path):
    small = trim(model, plan)
    small.save_pretrained(path)
    return small


EDITS = {
    "heads": ({0: [0, 1]}, {"0": "2-3"}),
    "neurons": ({0: [0, 1]}, {"0": "2-3"}),
    "uniform": ([0], "1"),
    "layers": ([1], "2"),
}


@pytest.mark.parametrize("kind", EDITS)
def test_a_plan_that_was_edited_is_refused(kind, tmp_path):
    """Other units, as many as before: all shapes fit, and the answers would be wrong."""
    model = zoo.build("bert", layers=3)
    removed, edited = EDITS[kind]
    save(model, Plan.of(model, **{kind: removed}), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"]["plan"]["removed"][kind] = edited
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises((PlanError, RuntimeError), match=r"does not match these weights|mismatch"):
        tf.AutoModel.from_pretrained(tmp_path)


def test_weights_without_a_stamp_are_refused(tmp_path):
    model = zoo.build("bert")
    save(model, Plan.of(model, heads={0: [0]}), tmp_path)
    file = tmp_path / "model.safetensors"
    weights = {name: tensor for name, tensor in load_file(file).items() if not name.endswith(STAMP)}
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(PlanError, match="does not match these weights"):
        tf.AutoModel.from_pretrained(tmp_path)


def test_how_a_plan_was_made_may_be_edited(tmp_path):
    model = zoo.build("bert")
    small = save(model, Plan.of(model, heads={0: [0]}), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"]["plan"]["made_by"] = {"method": "someone else"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded = tf.AutoModel.from_pretrained(tmp_path)
    assert all(torch.equal(value, small.state_dict()[name]) for name, value in loaded.state_dict().items())


PLAIN = """
import sys, torch, transformers
assert "attentrim" not in sys.modules
for path in sys.argv[1:]:
    try:
        model = transformers.AutoModel.from_pretrained(path)
        print("loaded", sum(p.numel() for p in model.parameters()))
    except Exception as error:
        print("refused", type(error).__name__)
"""


def test_without_attentrim_a_trimmed_checkpoint_is_refused_unless_stock_classes_give_the_same(tmp_path):
    """A checkpoint that lacks whole layers only is a stock checkpoint."""
    model = zoo.build("bert", layers=3)
    removals = {
        "heads": {"heads": {0: [1]}},
        "uniform": {"uniform": [0]},
        "neurons": {"neurons": {2: [1]}},
        "mixed": {"layers": [1], "neurons": {0: [4]}},
        "layers": {"layers": [1]},
    }
    for name, removed in removals.items():
        small = save(model, Plan.of(model, **removed), tmp_path / name)
    places = [str(tmp_path / name) for name in removals]
    done = subprocess.run([sys.executable, "-c", PLAIN, *places], capture_output=True, text=True, check=True)
    answers = [line.split()[0] for line in done.stdout.splitlines()]
    assert answers == ["refused"] * 4 + ["loaded"]
    assert done.stdout.split()[-1] == str(sum(p.numel() for p in small.parameters()))


def test_a_part_of_a_model_that_lost_layers(tmp_path, no_grad):
    model = zoo.build("t5", layers=3)
    small = save(model, Plan.of(model, heads={1: [0]}, neurons={4: [0]}, layers=[0, 5]), tmp_path)
    part = tf.T5EncoderModel.from_pretrained(tmp_path)
    batch = zoo.inputs("t5")
    expected = small.encoder(input_ids=batch["input_ids"]).last_hidden_state
    found = part(input_ids=batch["input_ids"]).last_hidden_state
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert [layer.path for layer in find_layers(part)] == ["encoder.block.0", "encoder.block.1"]


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2", "t5", "bart"])
@pytest.mark.parametrize("cache", [True, False])
def test_generation_without_some_layers_and_neurons(name, cache):
    model = zoo.build(name, layers=3)
    batch = zoo.inputs(name, "right" if name in zoo.SEQ2SEQ else "left")
    batch.pop("decoder_input_ids", None)
    settings = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "use_cache": cache}
    plan = plans.corner_plans(model)["some of everything"]
    with Control(model) as control:
        control.apply(plan)
        masked = model.generate(**batch, **settings)
    assert torch.equal(trim(model, plan).generate(**batch, **settings), masked)


def test_kinds_are_carried_out_from_the_inside_out():
    assert [kind.name for kind in kinds()] == ["heads", "neurons", "uniform", "layers"]
