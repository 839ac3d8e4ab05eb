"""Models that embed sentences: directories read and written, pooling, and that they stay stock models underneath."""

from __future__ import annotations

import copy
import json

import pytest
import tiny_sentences as ts
import torch
import transformers as tf
import zoo
from close import assert_close, assert_same_weights

import attentrim
from attentrim import Control, Plan, portable, trim
from attentrim.cost import cost
from attentrim.distillation.embeddings import between_embeddings
from attentrim.errors import AttentrimError, MethodError, UnsupportedModelError
from attentrim.runs.directories import copy_companions
from attentrim.sentences.model import as_embedding_model, embedding_model, embeds
from attentrim.sentences.pooling import MODES, pooled
from attentrim.sentences.reading import find_modules
from attentrim.sentences.writing import default_modules


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return ts.directory(tmp_path_factory.mktemp("model"))


# Pooling


def by_hand(mode, tokens):
    """Of the valid tokens of one text."""
    rows = [row.tolist() for row in tokens]
    columns = list(zip(*rows, strict=True))
    weights = range(1, len(rows) + 1)
    found = {
        "cls": rows[0],
        "lasttoken": rows[-1],
        "max": [max(column) for column in columns],
        "mean": [sum(column) / len(rows) for column in columns],
        "mean_sqrt_len_tokens": [sum(column) / len(rows) ** 0.5 for column in columns],
        "weightedmean": [
            sum(w * value for w, value in zip(weights, column, strict=True)) / sum(weights) for column in columns
        ],
    }
    return found[mode]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mode", MODES)
def test_each_way_of_pooling_is_as_by_hand_wherever_padding_stands(mode, side):
    tokens = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(3, 6, dtype=torch.long)
    for row, cut in ((1, 2), (2, 5)):
        mask[row, slice(0, cut) if side == "left" else slice(6 - cut, 6)] = 0
    found = pooled(tokens, mask, [mode])
    for row in range(3):
        assert found[row].tolist() == pytest.approx(by_hand(mode, tokens[row][mask[row].bool()]), rel=1e-5)


def test_several_ways_of_pooling_stand_side_by_side():
    tokens, mask = torch.randn(2, 5, 3), torch.ones(2, 5, dtype=torch.long)
    parts = [pooled(tokens, mask, [mode]) for mode in ("max", "mean")]
    assert torch.equal(pooled(tokens, mask, ["max", "mean"]), torch.cat(parts, -1))


def test_long_texts_are_pooled_in_half_precision():
    """The sum of a thousand tokens of 100 is more than float16 holds."""
    tokens, mask = torch.full((1, 1000, 3), 100, dtype=torch.float16), torch.ones(1, 1000, dtype=torch.long)
    for mode in ("mean", "weightedmean"):
        found = pooled(tokens, mask, [mode])
        assert found.dtype == torch.float16
        assert found[0].tolist() == pytest.approx([100] * 3)


# Directories


WHOLE = "SentenceTransformer"
PARTS = {
    "mean": {},
    "cls": {"pooling": {"pooling_mode_cls_token": True}},
    "last": {"pooling": {"pooling_mode_lasttoken": True}},
    "two": {"pooling": {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}},
    "weighted": {"pooling": {"pooling_mode_weightedmean_tokens": True}},
    "root": {"pooling": {"pooling_mode_mean_sqrt_len_tokens": True}},
    "new names": {"pooling": {"embedding_dimension": 24, "pooling_mode": ["mean", "cls"]}, "new": True},
    "dense": {"dense": {"activation_function": "torch.nn.modules.activation.Tanh"}},
    "dense, then normalised": {
        "dense": {"activation_function": "torch.nn.modules.linear.Identity"},
        "normalize": True,
    },
    "prompt": {"prompt": "query: ", "normalize": True},
    "prompt, cut": {"prompt": "query: ", "normalize": True, "settings": {"truncate_dim": 7, "model_type": WHOLE}},
    "length of the tokenizer": {"lengths": {}, "tokenizer_length": 6},
    "lower case": {"lengths": {"max_seq_length": 5, "do_lower_case": True}},
}


def encoded(name, texts):
    """As sentence-transformers does it."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.SentenceTransformer(str(name), device="cpu").encode(texts, convert_to_tensor=True)


@pytest.mark.parametrize("parts", PARTS)
def test_embeddings_are_those_of_sentence_transformers(tmp_path, parts):
    directory = ts.directory(tmp_path, **PARTS[parts])
    assert_close(ts.embed(directory), encoded(directory, ts.TEXTS))


def test_a_padded_batch_gives_each_text_its_own_embedding(place):
    together = ts.embed(place)
    for row, text in enumerate(ts.TEXTS):
        assert_close(ts.embed(place, [text])[0], together[row])


def test_trimmed_and_portable_directories_are_whole(tmp_path):
    directory = ts.directory(tmp_path / "model", **PARTS["dense, then normalised"])
    model = embedding_model(str(directory)).eval()
    plan = Plan.of(model, heads={0: [1]}, neurons={1: range(8)})
    for name, small in (("small", trim(model, plan)), ("stock", portable(model, plan))):
        small.save_pretrained(tmp_path / name)
        ts.tokenizer().save_pretrained(tmp_path / name)
        with torch.no_grad():
            own = small(**ts.inputs()).sentence_embedding
        assert_close(encoded(tmp_path / name, ts.TEXTS), own)
        assert (own - ts.embed(directory)).abs().max() > 1e-3
        assert json.loads((tmp_path / name / "config.json").read_text())["architectures"] == ["BertModel"]
    assert "quantization_config" not in json.loads((tmp_path / "stock" / "config.json").read_text())


def test_what_lies_beside_a_model_is_copied_with_its_projections(tmp_path):
    directory = ts.directory(tmp_path / "model", **PARTS["dense, then normalised"])
    (tmp_path / "copy").mkdir()
    copied = copy_companions(str(directory), tmp_path / "copy")
    assert {"modules.json", "1_Pooling/config.json", "2_Dense/model.safetensors"} <= {*copied}
    assert len(copied) == len({*copied})


def test_a_model_without_modules_gets_the_mean_normalised(tmp_path):
    model = embedding_model(str(ts.directory(tmp_path / "bare", modules=False)))
    with torch.no_grad():
        found = model(**ts.inputs())
        states = model(**ts.inputs(), output_hidden_states=True).hidden_states[-1]
    mask = ts.inputs()["attention_mask"][..., None]
    mean = (states * mask).sum(1) / mask.sum(1)
    assert_close(found.sentence_embedding, mean / mean.norm(dim=1, keepdim=True))
    model.save_pretrained(tmp_path / "saved")
    ts.tokenizer().save_pretrained(tmp_path / "saved")
    assert find_modules(str(tmp_path / "saved")).pooling == ("mean",)
    assert_close(encoded(tmp_path / "saved", ts.TEXTS), found.sentence_embedding)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"types": ["Transformer", "Pooling", "LSTM"]}, "Unknown module of sentence-transformers 'LSTM'"),
        ({"types": ["Transformer", "Normalize"]}, "its modules are Transformer, Normalize"),
        ({"package": "my_code"}, "code of its own"),
        ({"pooling": {"pooling_mode": "median"}}, "Unknown way of pooling 'median'"),
        ({"pooling": {"include_prompt": False}, "prompt": "q: "}, "leaves out the default prompt"),
        ({"dense": {"activation_function": "os.system"}}, "none of torch.nn"),
        ({"dense": {"out_features": 5}}, "do not match its config.json"),
        ({"dense": {"use_residual": True}}, "use_residual"),
        ({"dense": {"module_input_name": "token_embeddings"}}, "works on token_embeddings"),
        ({"paths": {"Transformer": "0_Transformer"}}, "Save it again"),
        ({"paths": {"Pooling": "../other"}}, "must be a list of modules"),
        ({"lengths": {"transformer_task": "fill-mask"}}, "used for fill-mask"),
        ({"settings": {"model_type": "SparseEncoder"}}, "is a SparseEncoder of sentence-transformers"),
        ({"settings": {"default_prompt_name": "passage"}}, "names the prompt 'passage'"),
    ],
)
def test_what_cannot_be_done_as_a_directory_says_is_refused_by_name(tmp_path, change, says):
    with pytest.raises(AttentrimError, match=says):
        find_modules(str(ts.directory(tmp_path, **change)))


def test_links_out_of_a_directory_are_not_read(tmp_path):
    directory = ts.directory(tmp_path / "model")
    (tmp_path / "secret.json").write_text("[]")
    (directory / "modules.json").unlink()
    (directory / "modules.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(AttentrimError, match="link"):
        find_modules(str(directory))


@pytest.mark.parametrize(("name", "says"), [("gpt2", "decoder"), ("bart", "encoder-decoder"), ("clip", "text alone")])
def test_models_that_cannot_embed_are_refused_with_the_reason(tmp_path, name, says):
    tf.AutoModel.from_config(zoo.CONFIGS[name]()).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=says):
        embedding_model(str(tmp_path))


@pytest.mark.parametrize(
    "mark", [{"sentence_transformers": {"activation_fn": "x"}}, {"sbert_ce_default_activation_function": "x"}]
)
def test_a_cross_encoder_is_refused_by_what_its_config_says(tmp_path, mark):
    config = tf.BertConfig.from_dict({**zoo.CONFIGS["bert"]().to_dict(), **mark})
    tf.BertForSequenceClassification(config).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match="cross-encoder"):
        embedding_model(str(tmp_path))


def test_settings_that_are_none_are_one_clear_line(tmp_path):
    directory = ts.directory(tmp_path)
    ts.write(directory / "config_sentence_transformers.json", ["prompts"])
    with pytest.raises(AttentrimError, match="must hold settings by name"):
        find_modules(str(directory))


def test_the_length_of_the_tokenizer_is_no_part_of_what_is_written(tmp_path):
    """Another tokenizer may lie in the new directory."""
    modules = find_modules(str(ts.directory(tmp_path, lengths={}, tokenizer_length=6)))
    assert modules.max_length == 6
    assert "tokenizer_config.json" not in modules.files


def test_numbers_in_an_embedding_are_counted(tmp_path):
    dense = ts.directory(tmp_path / "dense", dense={}, settings={"truncate_dim": 5})
    assert find_modules(str(dense)).width(24) == 5
    both = ts.directory(
        tmp_path / "both", pooling={"pooling_mode": ["mean", "max"]}, settings={"truncate_dim": 99}, new=True
    )
    assert find_modules(str(both)).width(24) == 48


def test_a_decoder_embeds_if_its_modules_say_how(tmp_path):
    directory = ts.directory(tmp_path, model="gpt2", pooling={"pooling_mode_lasttoken": True}, normalize=True)
    assert_close(ts.embed(directory), encoded(directory, ts.TEXTS))


# A stock model underneath


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "mpnet", "deberta-v2", "modernbert", "electra"])
def test_masked_trimmed_portable_and_loaded_agree(tmp_path, name):
    model = as_embedding_model(zoo.build(name), default_modules(24, 64))
    plan = Plan.of(model, heads={0: [1], 1: [0, 2]}, neurons={1: range(10)})
    batch = zoo.inputs(name, "right")
    with torch.no_grad():
        with Control(model) as control:
            control.apply(plan)
            masked = model(**batch).sentence_embedding
        small = trim(model, plan)
        small.save_pretrained(tmp_path)
        for other in (small, portable(model, plan), type(model).from_pretrained(tmp_path).eval()):
            assert embeds(other)
            assert_close(other(**batch).sentence_embedding, masked)
        stock = tf.AutoModel.from_pretrained(tmp_path).eval()
    assert not embeds(stock)
    assert_same_weights(stock, small)
    assert cost(small).flops < cost(model).flops


def test_a_copy_is_a_model_of_its_own(place):
    model = embedding_model(str(place))
    other = copy.deepcopy(model)
    assert type(other) is type(model)
    assert type(model).__name__ == "BertModel"
    assert [name for name, _ in model.named_parameters()] == [
        name for name, _ in tf.AutoModel.from_pretrained(place).named_parameters()
    ]
    assert not any(parameter.requires_grad for parameter in model.pooler.parameters())


def test_the_output_begins_with_the_embedding_and_labels_give_a_loss(place):
    model, batch = embedding_model(str(place)).eval(), ts.inputs()
    with torch.no_grad():
        found = model(**batch)
        assert torch.equal(model(**batch, return_dict=False)[0], found.sentence_embedding)
        labels = torch.randn(found.sentence_embedding.shape)
        loss = model(**batch, labels=labels).loss
    assert found.get("loss") is None
    assert float(loss) == pytest.approx(float(between_embeddings(found.sentence_embedding, labels, 10, 10)))


# Distances


def test_the_distances_between_embeddings_are_as_by_hand():
    mine, theirs = (torch.randn(5, 3, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))

    def cosine(a, b):
        a, b = a.tolist(), b.tolist()
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5

    pairs = [(i, j) for i in range(5) for j in range(5)]
    apart = sum(1 - cosine(mine[i], theirs[i]) for i in range(5)) / 5
    squares = sum((cosine(mine[i], mine[j]) - cosine(theirs[i], theirs[j])) ** 2 for i, j in pairs) / len(pairs)
    assert float(between_embeddings(mine, theirs, 2.0, 0.0)) == pytest.approx(2 * apart, rel=1e-5)
    assert float(between_embeddings(mine, theirs, 0.0, 3.0)) == pytest.approx(3 * squares, rel=1e-5)
    output, goal = {"sentence_embedding": mine}, {"sentence_embedding": theirs}
    found = attentrim.distillation_loss(output, goal, {}, logits=0, embedding=2, similarity=3)
    assert float(found) == pytest.approx(2 * apart + 3 * squares, rel=1e-5)


def test_embeddings_of_another_width_are_compared_by_similarities_alone():
    mine, theirs = torch.randn(4, 3), torch.randn(4, 5)
    assert float(between_embeddings(mine, theirs, 0.0, 1.0)) > 0
    with pytest.raises(MethodError, match="have 3 numbers, the teacher's 5"):
        between_embeddings(mine, theirs, 1.0, 1.0)
    with pytest.raises(MethodError, match="that embed sentences"):
        attentrim.distillation_loss({}, {}, {}, logits=0, embedding=1)
