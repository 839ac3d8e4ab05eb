"""summary(model), for terminals and notebooks."""

from __future__ import annotations

import pytest
import zoo

import attentrim
from attentrim import Plan, trim


@pytest.mark.parametrize("name", zoo.CONFIGS)
def test_every_architecture(name):
    model = zoo.build(name)
    found = attentrim.summary(model, length=16)
    assert [site.heads for site in found.sites] == [site.heads for site in attentrim.find_sites(model)]
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert f"{found.parameters:,} parameters" in str(found)
    assert len(str(found).splitlines()) == len(found.layers.rows) + 2


def test_a_trimmed_model_says_what_it_lost():
    model = zoo.build("bert")
    plan = Plan.of(model, heads={0: [0, 1, 2]}, uniform=[1], made_by={"method": "by hand"})
    found = attentrim.summary(trim(model, plan))
    lines = str(found).splitlines()
    assert lines[0] == (
        "BertModel: removed (by by hand): 3 of 8 attention heads, the attention pattern of 1 of 2 sites (uniform now)"
    )
    assert lines[1] == "   0  encoder.layer.0  heads ###.........  1 of 4  neurons ############ 32 of 32"
    assert lines[2] == "   1  encoder.layer.1  heads ------------ uniform  neurons ############ 32 of 32"
    assert (found.facts["sparsity"], found.facts["uniform_sites"]) == (0.375, [1])
    assert found.flops_ratio > 1.2


def test_neurons_and_layers_that_are_gone():
    model = zoo.build("bert", layers=3)
    small = trim(model, Plan.of(model, neurons={0: range(24), 2: range(32)}, layers=[1]))
    found = attentrim.summary(small)
    assert [[cell.text for cell in row.cells] for row in found.layers.rows] == [
        ["4 of 4", "8 of 32"],
        ["removed", "removed"],
        ["4 of 4", "0 of 32"],
    ]
    assert found.facts["neurons_kept"] == [8, 0, 0]
    assert found.facts["layers_removed"] == [1]
    assert found.flops_ratio == attentrim.summary(model).flops / found.flops


def test_a_site_without_heads():
    model = zoo.build("bert")
    found = attentrim.summary(trim(model, Plan.of(model, heads={0: range(4)})))
    assert found.sites[0].kind == "none (bias only)"
    assert "............" in str(found)


def test_a_notebook_gets_a_table():
    html = attentrim.summary(zoo.build("bert"))._repr_html_()
    assert html.count("<tr>") == 3
    assert "aria-label='4 of 4'" in html
    assert "aria-label='32 of 32'" in html
    assert "<code>encoder.layer.1</code>" in html


def test_wrapped_models_are_unwrapped():
    peft = pytest.importorskip("peft")
    model = zoo.build("bert")
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["query"]))
    assert attentrim.summary(wrapped).name == "BertModel"
