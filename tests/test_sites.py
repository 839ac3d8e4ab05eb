"""Finding sites: order, shapes, task heads, wrappers, and clear answers to what is not supported."""

from __future__ import annotations

import pytest
import torch
import transformers as tf
import zoo

from attentrim import Plan, find_sites, trim
from attentrim.architectures import ARCHITECTURES
from attentrim.errors import UnsupportedModelError
from attentrim.structures.layers import find_layers
from attentrim.structures.neurons import find_blocks


def test_the_matrix_covers_the_table():
    covered = set(zoo.CONFIGS) | {"clip_text_model", "clip_vision_model"}
    assert set(ARCHITECTURES) == covered


def test_places_show_themselves_in_one_line():
    bert = zoo.build("bert")
    model = trim(bert, Plan.of(bert, heads={0: [1]}, uniform=[1]))
    first, second = find_sites(model)
    assert repr(first) == "<Site 0, encoder.layer.0.attention.self: 3 heads of size 6>"
    assert repr(second) == "<Site 1, encoder.layer.1.attention.self: uniform attention>"
    assert repr(find_blocks(model)[0]) == "<Block 0, encoder.layer.0: 32 neurons>"
    assert repr(find_layers(model)[1]) == "<Layer 1, encoder.layer.1>"
    windowed = find_sites(zoo.build("mistral"))[0]
    assert repr(windowed).endswith(f" in 2 groups, causal, window of {windowed.window}>")


@pytest.mark.parametrize("name", list(zoo.CONFIGS))
def test_every_site_is_found_once(name):
    sites = find_sites(zoo.build(name))
    expected = 4 if name in (*zoo.SEQ2SEQ, "clip") else 2
    assert [site.index for site in sites] == list(range(expected))
    assert len({id(site.module) for site in sites}) == expected
    grouped = name in zoo.GENERATIVE - {"gpt2"}
    assert {(site.heads, site.key_heads) for site in sites} == {(4, 2 if grouped else 4)}
    assert {site.groups for site in sites} == {1 if name == "olmo2" else sites[0].key_heads}


def test_encoder_before_decoder_and_text_before_vision():
    for name, first in (("bart", "encoder"), ("t5", "encoder"), ("clip", "text_model")):
        starts = [site.path.split(".")[0] for site in find_sites(zoo.build(name))]
        assert starts[:2] == [first, first]
        assert starts[2] == starts[3] != first


def test_what_each_query_may_see():
    def kinds(name: str) -> list[tuple[bool, int | None]]:
        return [(site.causal, site.window) for site in find_sites(zoo.build(name))]

    assert kinds("bert") == [(False, None)] * 2
    assert kinds("gpt2") == [(True, None)] * 2
    assert kinds("mistral") == [(True, 5)] * 2
    assert kinds("qwen2") == [(True, None), (True, 5)]
    assert kinds("modernbert") == [(False, None), (False, 4)]
    assert kinds("bart") == kinds("t5") == kinds("clip")[::-1] == [(False, None)] * 2 + [(True, None)] * 2


def test_a_decoder_bert_is_causal_and_its_cross_attention_is_no_site():
    config = zoo.CONFIGS["bert"]()
    config.is_decoder = config.add_cross_attention = True
    sites = find_sites(tf.BertLMHeadModel(config))
    assert [site.causal for site in sites] == [True, True]
    assert len(sites) == 2


def test_albert_has_one_site_a_parameter_group():
    config = zoo.CONFIGS["albert"]()
    config.num_hidden_layers, config.num_hidden_groups = 6, 1
    assert len(find_sites(tf.AlbertModel(config))) == 1


def test_paths_do_not_depend_on_the_task_head():
    config = zoo.CONFIGS["bert"]()
    heads = [tf.BertModel, tf.BertForSequenceClassification, tf.BertForTokenClassification, tf.BertForMaskedLM]
    assert len({tuple(site.path for site in find_sites(head(config))) for head in heads}) == 1


def test_wrappers_are_looked_through():
    model = zoo.build("bert")
    assert len(find_sites(torch.compile(model))) == 2
    assert len(find_sites(torch.nn.DataParallel(model))) == 2


def test_near_names_are_offered():
    model = tf.MobileBertModel(tf.MobileBertConfig(num_hidden_layers=1))
    with pytest.raises(UnsupportedModelError, match=r"Unknown model type 'mobilebert'. Did you mean .*bert"):
        find_sites(model)


def test_other_objects_are_refused():
    with pytest.raises(UnsupportedModelError, match=r"Linear has no config\.model_type"):
        find_sites(torch.nn.Linear(2, 2))
