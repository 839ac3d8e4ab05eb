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
    assert len(str(found).splitlines()) == len(found.sites) + 2


def test_a_trimmed_model_says_what_it_lost():
    model = zoo.build("bert")
    plan = Plan.of(model, heads={0: [0, 1, 2]}, uniform=[1], made_by={"method": "by hand"})
    found = attentrim.summary(trim(model, plan))
    lines = str(found).splitlines()
    assert lines[0] == "BertModel: 1 of 8 heads in 2 sites, 37.5% removed (by by hand), 1 uniform sites"
    assert lines[1].split() == ["0", "encoder.layer.0.attention.self", "###.........", "1", "of", "4", "full"]
    assert lines[2].split() == ["1", "encoder.layer.1.attention.self", "------------", "uniform", "uniform", "(full)"]
    assert (found.sparsity, found.uniform_sites, found.trimmed) == (0.375, 1, True)


def test_a_site_without_heads():
    model = zoo.build("bert")
    found = attentrim.summary(trim(model, Plan.of(model, heads={0: range(4)})))
    assert found.sites[0].kind == "none (bias only)"
    assert "............" in str(found)


def test_a_notebook_gets_a_table():
    html = attentrim.summary(zoo.build("bert"))._repr_html_()
    assert html.count("<tr>") == 3
    assert "aria-label='4 of 4'" in html
    assert "<code>encoder.layer.1.attention.self</code>" in html


def test_wrapped_models_are_unwrapped():
    peft = pytest.importorskip("peft")
    model = zoo.build("bert")
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["query"]))
    assert attentrim.summary(wrapped).name == "BertModel"
