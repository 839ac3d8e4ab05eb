"""Smaller vocabularies: texts whose tokens are kept are tokenised and answered as before."""

from __future__ import annotations

import copy
import itertools
import json
import random
from functools import cache

import pytest
import torch
import transformers as tf
from close import assert_close, assert_same_weights
from commands import fails, run_json
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from zoo import CONFIGS, liven

import attentrim
from attentrim.errors import AttentrimError, UnsupportedModelError
from attentrim.vocabulary import check_texts, closure, trim_vocabulary
from attentrim.vocabulary.ids import ids_in, renumber

SYLLABLES = tuple("ba be bi do du ka ke lo lu ma mi na no pa ra re sa se ta ti éa ön".split())  # noqa: SIM905


def words(seed=0, count=400):
    draw = random.Random(seed)
    return ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(count)]


def sentences(seed=0, count=120):
    """Words of unequal frequency, some written in another case, with numbers and punctuation."""
    draw, known = random.Random(seed), words()
    weights = [1 / (rank + 1) for rank in range(len(known))]
    found = []
    for _ in range(count):
        chosen = draw.choices(known, weights, k=draw.randint(1, 9))
        chosen = [word.title() if draw.random() < 0.2 else word for word in chosen]
        found.append(" ".join(chosen) + draw.choice(["", ".", " !", ", 7", " 12?"]))
    return found


TEXTS = sentences()
FEW = TEXTS[:25]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def wordpiece():
    base = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    base.normalizer, base.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    marks = [*["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]]
    base.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=marks))
    return tf.BertTokenizer(vocab=base.get_vocab())


def pieces(marks):
    """A Unigram model's pieces with their scores."""
    base = Tokenizer(models.Unigram())
    base.pre_tokenizer = pre_tokenizers.Metaspace()
    base.train_from_iterator(TEXTS, trainers.UnigramTrainer(vocab_size=260, special_tokens=marks, unk_token="<unk>"))
    state = json.loads(base.to_str())["model"]["vocab"]
    scored = [(piece, score) for piece, score in state if piece not in marks]
    return [*((mark, 0.0) for mark in marks), *scored]


def xlm_roberta():
    found = pieces(SPECIAL[:4])
    return tf.XLMRobertaTokenizer(vocab=[*found, ("<mask>", 0.0)])


def t5():
    found = pieces(["<pad>", "</s>", "<unk>"])
    extra = [(f"<extra_id_{number}>", 0.0) for number in range(9, -1, -1)]
    return tf.T5Tokenizer(vocab=[*found, *extra], extra_ids=10)


def unigram_bytes():
    """A piece for each byte, for what no other piece can write."""
    marks = ["<unk>", "<pad>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    base = Tokenizer(models.Unigram(pieces(marks), unk_id=0, byte_fallback=True))
    base.pre_tokenizer = pre_tokenizers.Metaspace()
    base.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return tf.PreTrainedTokenizerFast(tokenizer_object=base, unk_token="<unk>", pad_token="<pad>", eos_token="</s>")


def byte_level(**more):
    base = Tokenizer(models.BPE(**more))
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    base.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, special_tokens=["<s>", "<pad>"])
    )
    return base


def gpt2():
    state = json.loads(byte_level().to_str())["model"]
    merges = [tuple(pair) for pair in state["merges"]]
    return tf.GPT2Tokenizer(vocab=state["vocab"], merges=merges, bos_token="<s>", eos_token="<s>", pad_token="<pad>")


def roberta():
    """Special tokens at the start, a mask at the end, and a post-processor of its own kind."""
    base = Tokenizer(models.BPE())
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    base.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, special_tokens=SPECIAL[:4])
    )
    base.add_special_tokens(["<mask>"])
    base.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = {
        "bos": "<s>",
        "eos": "</s>",
        "sep": "</s>",
        "cls": "<s>",
        "unk": "<unk>",
        "pad": "<pad>",
        "mask": "<mask>",
    }
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=base, **{f"{name}_token": token for name, token in names.items()}
    )


def llama3():
    """Whole words are looked up before anything is merged."""
    base = byte_level()
    state = json.loads(base.to_str())
    state["model"]["ignore_merges"] = True
    number = len(state["model"]["vocab"])
    state["model"]["vocab"] |= {"Ġbabadoonly": number, "ĠMidoon!": number + 1}  # no merges lead here
    base = Tokenizer.from_str(json.dumps(state))
    base.add_special_tokens(["<|eot|>"])
    return tf.PreTrainedTokenizerFast(tokenizer_object=base, eos_token="<|eot|>", pad_token="<pad>", bos_token="<s>")


def llama2():
    """Characters and bytes, no words, and every way to make a token of two others is a merge."""
    base = Tokenizer(models.BPE())
    base.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    base.train_from_iterator([text[:12] for text in TEXTS], trainers.BpeTrainer(vocab_size=300))
    learnt = json.loads(base.to_str())["model"]["vocab"]
    marks = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocab = {token: number for number, token in enumerate([*marks, *learnt])}
    ways = [(token[:cut], token[cut:]) for token in learnt for cut in range(1, len(token))]
    merges = [pair for pair in ways if pair[0] in learnt and pair[1] in learnt]
    whole = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    whole.normalizer = base.normalizer
    whole.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return tf.PreTrainedTokenizerFast(tokenizer_object=whole, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def word_level():
    vocab = {token: number for number, token in enumerate([*SPECIAL, *dict.fromkeys(" ".join(TEXTS).split())])}
    base = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    base.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tf.PreTrainedTokenizerFast(tokenizer_object=base, unk_token="<unk>", pad_token="<pad>")


KINDS = (wordpiece, xlm_roberta, t5, unigram_bytes, gpt2, roberta, llama3, llama2, word_level)


def tiny(vocab_size, **more):
    config = tf.BertConfig(
        vocab_size=vocab_size,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=64,
        **more,
    )
    torch.manual_seed(0)
    return tf.BertModel(config).eval()


@cache
def pair_of(make):
    """A tokenizer with an added token, the same for a few texts, and the new id of each old one that is kept."""
    tokenizer = make()
    tokenizer.add_tokens(["<added word>"])
    model = tiny(max(tokenizer.get_vocab().values()) + 4)
    small = trim_vocabulary(model, tokenizer, FEW)[1]
    new = small.get_vocab()
    return tokenizer, small, {old: new[token] for token, old in tokenizer.get_vocab().items() if token in new}


def encoded(tokenizer, *texts, **more):
    return tokenizer(*texts, return_offsets_mapping=True, **more)


def check_text(make, *text):
    """The promise: whether all tokens of these texts were kept."""
    tokenizer, small, numbers = pair_of(make)
    before, after = encoded(tokenizer, *text), encoded(small, *text)
    whole = all(number in numbers for number in before["input_ids"])
    if whole:
        assert after["input_ids"] == [numbers[number] for number in before["input_ids"]]
        assert {k: v for k, v in after.items() if k != "input_ids"} == {
            k: v for k, v in before.items() if k != "input_ids"
        }
    else:
        assert all(number < len(small) for number in after["input_ids"])
    return whole


@pytest.mark.parametrize("make", KINDS)
def test_texts_whose_tokens_are_kept_are_tokenised_as_before(make):
    tokenizer, small, _ = pair_of(make)
    assert len(small) < 0.97 * len(tokenizer)
    assert all(check_text(make, text) for text in FEW)
    found = [check_text(make, text) for text in sentences(1, 200)]
    assert any(found)
    assert not all(found)
    assert all(check_text(make, first, second) for first, second in itertools.pairwise(FEW))
    for text in ("", "  ", "ω", "🙂 naïve", "<added word> " + FEW[0], f"{FEW[1]} <s></s> [SEP]<mask>"):
        check_text(make, text)


fragments = st.lists(
    st.one_of(st.sampled_from(words(0, 60)), st.sampled_from(SYLLABLES), st.text("abdkloméö 7.!ω▁<", max_size=3)),
    max_size=8,
)


@pytest.mark.parametrize("make", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=fragments, glue=st.sampled_from(["", " "]))
def test_any_text_whose_tokens_are_kept_is_tokenised_as_before(make, parts, glue):
    check_text(make, glue.join(parts))


@pytest.mark.parametrize("make", KINDS)
def test_batches_are_padded_and_cut_as_before(make):
    tokenizer, small, numbers = pair_of(make)
    if tokenizer.pad_token is None:
        tokenizer, small = copy.deepcopy(tokenizer), copy.deepcopy(small)
        tokenizer.pad_token = small.pad_token = tokenizer.eos_token
    for more in ({"padding": True}, {"padding": True, "truncation": True, "max_length": 6}):
        before, after = tokenizer(FEW, **more), small(FEW, **more)
        assert after["input_ids"] == [[numbers[number] for number in ids] for ids in before["input_ids"]]
        assert after["attention_mask"] == before["attention_mask"]


@pytest.mark.parametrize("make", KINDS)
def test_saved_and_loaded_it_is_the_same(make, tmp_path):
    tokenizer, small, _ = pair_of(make)
    small.save_pretrained(tmp_path)
    again = tf.AutoTokenizer.from_pretrained(tmp_path)
    assert type(again) is type(small) is type(tokenizer)
    assert again.get_vocab() == small.get_vocab()
    assert sorted(again.get_vocab().values()) == list(range(len(again)))
    assert {name: str(token) for name, token in again.special_tokens_map.items()} == {
        name: str(token) for name, token in tokenizer.special_tokens_map.items()
    }
    for text in [*FEW, *sentences(1, 40)]:
        assert encoded(again, text, text[:9]) == encoded(small, text, text[:9])
        assert again.decode(small(text)["input_ids"]) == small.decode(small(text)["input_ids"])


def test_the_arguments_are_not_changed():
    tokenizer = wordpiece()
    tokenizer.backend_tokenizer.enable_padding(length=12)
    model, state = tiny(len(tokenizer)), tokenizer.backend_tokenizer.to_str()
    before = copy.deepcopy(model)
    small, fewer = attentrim.trim_vocabulary(model, tokenizer, FEW)
    assert tokenizer.backend_tokenizer.to_str() == state
    assert_same_weights(model, before)
    assert model.config.to_dict() == before.config.to_dict()
    assert fewer.backend_tokenizer.padding == tokenizer.backend_tokenizer.padding
    assert not {p.data_ptr() for p in model.parameters()} & {p.data_ptr() for p in small.parameters()}


def test_special_tokens_keep_their_ids_where_there_is_room():
    for make in (wordpiece, xlm_roberta, t5, roberta):
        tokenizer, _small, numbers = pair_of(make)
        low = [number for number in tokenizer.all_special_ids if number < 10]
        assert len(low) >= 3
        assert all(numbers[number] == number for number in low)


def test_unknown_words_are_written_with_characters():
    tokenizer, small, _ = pair_of(wordpiece)
    gone = [word for word in words() if word in tokenizer.get_vocab() and word not in small.get_vocab()]
    assert gone
    for word in gone:
        assert small.unk_token not in small.tokenize(word)
        assert "".join(piece.removeprefix("##") for piece in small.tokenize(word)) == word


# What is needed is needed


def test_unigram_keeps_the_lowest_piece(monkeypatch):
    """Unknown characters cost what the lowest piece costs, and more: without it they would be cheaper."""
    scores = {"x": -5.0, "xza": -30.0, "bc": -30.0, "abc": -8.0, "a": -20.0, "b": -20.0, "c": -20.0, "ω": -40.0}
    base = Tokenizer(models.Unigram([("<unk>", 0.0), *scores.items()], unk_id=0))
    tokenizer = tf.PreTrainedTokenizerFast(tokenizer_object=base, unk_token="<unk>")
    texts = ["xzabc", "x", "abc"]
    assert tokenizer.tokenize("xzabc") == ["xza", "bc"]
    small = trim_vocabulary(tiny(9), tokenizer, texts)[1]
    assert small.tokenize("xzabc") == ["xza", "bc"]
    assert "ω" in small.get_vocab()
    monkeypatch.setattr(closure, "_by_number", lambda model: {0})
    with pytest.raises(UnsupportedModelError, match="splits texts differently"):
        trim_vocabulary(tiny(9), tokenizer, texts)


@pytest.mark.parametrize("make", [gpt2, llama2])
def test_bpe_keeps_what_its_tokens_are_made_of(make, monkeypatch):
    tokenizer, _, _ = pair_of(make)
    monkeypatch.setattr(closure.Merges, "parts", lambda self, token: set(token))
    with pytest.raises(UnsupportedModelError, match="splits texts differently"):
        trim_vocabulary(tiny(len(tokenizer)), tokenizer, FEW)


def test_bpe_keeps_no_more_than_one_way_to_make_a_token():
    """Of "abc", either "ab" or "bc", whichever was learnt first."""
    vocab = {token: number for number, token in enumerate(["δ", "λ", "ω", "λω", "δλ", "δλω", "δω"])}
    merges = [("λ", "ω"), ("δ", "λ"), ("δλ", "ω"), ("δ", "λω"), ("δ", "ω")]
    tokenizer = tf.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocab, merges)))
    assert tokenizer.tokenize("δλω") == ["δλω"]
    assert set(trim_vocabulary(tiny(7), tokenizer, ["δλω"])[1].get_vocab()) == {"δ", "λ", "ω", "λω", "δλω"}


# Models


HEADS = {
    "bert": tf.AutoModelForMaskedLM,
    "roberta": tf.AutoModelForMaskedLM,
    "xlm-roberta": tf.AutoModel,
    "camembert": tf.AutoModelForSequenceClassification,
    "electra": tf.AutoModelForMaskedLM,
    "distilbert": tf.AutoModelForMaskedLM,
    "albert": tf.AutoModelForMaskedLM,
    "mpnet": tf.AutoModelForMaskedLM,
    "deberta-v2": tf.AutoModelForMaskedLM,
    "modernbert": tf.AutoModelForMaskedLM,
    "gpt2": tf.AutoModelForCausalLM,
    "llama": tf.AutoModelForCausalLM,
    "mistral": tf.AutoModelForSequenceClassification,
    "qwen2": tf.AutoModelForCausalLM,
    "qwen3": tf.AutoModelForCausalLM,
    "bart": tf.AutoModelForSeq2SeqLM,
    "t5": tf.AutoModelForSeq2SeqLM,
}
LETTERS = [chr(97 + number // 10) + str(number % 10) for number in range(80)]


def lettered():
    """80 words beside special tokens; the models have 90 embeddings."""
    vocab = {token: number for number, token in enumerate([*SPECIAL, *LETTERS])}
    base = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    base.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=base, unk_token="<unk>", pad_token="<pad>", mask_token="<mask>", eos_token="</s>"
    )


def built(name, tie=None):
    torch.manual_seed(0)
    config = CONFIGS[name]()
    config.pad_token_id = 1
    if tie is not None:
        config.tie_word_embeddings = tie
    model = HEADS[name].from_config(config, attn_implementation="eager").eval()
    liven(model, 2.0)
    return model


def answers(model, tokenizer, texts):
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    if model.config.is_encoder_decoder:
        batch["decoder_input_ids"] = batch["input_ids"]
    with torch.no_grad():
        output = model(**batch)
    return output.logits if "logits" in output else output.last_hidden_state


CASES = [*((name, None) for name in HEADS), ("gpt2", False), ("llama", True), ("t5", False), ("bert", False)]


@pytest.mark.parametrize(("name", "tie"), CASES)
def test_models_answer_as_before(name, tie, tmp_path):
    model, tokenizer = built(name, tie), lettered()
    texts = [" ".join(LETTERS[3 * place : 3 * place + 2 + place]) for place in range(1, 6)]
    small, fewer = trim_vocabulary(model, tokenizer, texts)
    assert len(fewer) == small.config.vocab_size == small.get_input_embeddings().num_embeddings < 30
    small.save_pretrained(tmp_path)
    fewer.save_pretrained(tmp_path)
    loaded, found = type(model).from_pretrained(tmp_path, attn_implementation="eager", output_loading_info=True)
    assert not any(found[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_same_weights(loaded, small)
    before = answers(model, tokenizer, texts)
    if before.shape[-1] == 90:
        kept = sorted(fewer.get_vocab(), key=fewer.get_vocab().get)
        before = before[..., tokenizer.convert_tokens_to_ids(kept)]
    assert_close(answers(small, fewer, texts), before)
    assert_close(answers(loaded, type(fewer).from_pretrained(tmp_path), texts), before)
    assert len({p.data_ptr() for p in small.parameters()}) == len({p.data_ptr() for p in model.parameters()})
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())


def test_a_decoder_writes_the_same_words():
    model, tokenizer = built("llama", True), lettered()
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = 2, 1
    texts = [" ".join(LETTERS)]
    for keep in (texts, [" ".join(LETTERS[:70])]):
        small, fewer = trim_vocabulary(model, tokenizer, keep)
        batch, other = (made([" ".join(LETTERS[5:9])], return_tensors="pt") for made in (tokenizer, fewer))
        gone = [n for n in range(90) if tokenizer.convert_ids_to_tokens(n) not in fewer.get_vocab()]
        more = {"max_new_tokens": 12, "do_sample": False}
        wanted = model.generate(**batch, **more, suppress_tokens=gone)
        assert fewer.batch_decode(small.generate(**other, **more)) == tokenizer.batch_decode(wanted)


def test_a_trimmed_model_can_lose_tokens_and_the_other_way_round(tmp_path):
    model, tokenizer = built("bert"), lettered()
    texts = [" ".join(LETTERS[:9]), " ".join(LETTERS[4:20])]
    plan = attentrim.Plan.of(model, heads={0: [1]}, neurons={1: range(9)})
    trimmed = attentrim.trim(model, plan)
    small, fewer = trim_vocabulary(trimmed, tokenizer, texts)
    small.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, attn_implementation="eager")
    assert_same_weights(loaded, small)
    other = attentrim.trim(trim_vocabulary(model, tokenizer, texts)[0], plan)
    stock = attentrim.portable(trim_vocabulary(model, tokenizer, texts)[0], plan)
    kept = sorted(fewer.get_vocab(), key=fewer.get_vocab().get)
    wanted = answers(trimmed, tokenizer, texts)[..., tokenizer.convert_tokens_to_ids(kept)]
    for one in (small, loaded, other, stock):
        assert_close(answers(one, fewer, texts), wanted)


def test_nothing_to_remove():
    tokenizer = lettered()
    model = built("bert")
    model.resize_token_embeddings(len(tokenizer))
    small, fewer = trim_vocabulary(model, tokenizer, [*LETTERS, "<s>"])
    assert fewer.get_vocab() == tokenizer.get_vocab()
    assert_same_weights(small, model)


# Ids in configs


def test_ids_in_configs_are_found_and_renumbered():
    config = tf.BartConfig(
        vocab_size=90,
        pad_token_id=1,
        bos_token_id=10,
        eos_token_id=[20, 21],
        decoder_start_token_id=30,
        forced_eos_token_id=20,
    )
    config.task_specific_params = {"summarisation": {"bos_token_id": 11, "max_length": 10}}
    generation = tf.GenerationConfig(
        suppress_tokens=[40, 41],
        begin_suppress_tokens=[42],
        bad_words_ids=[[43], [44, 45]],
        sequence_bias=[[[46, 47], -1.0]],
        pad_token_id=None,
        max_length=50,
    )
    generation.forced_decoder_ids = [[1, 48]]
    assert ids_in(config) >= {1, 10, 20, 21, 30, 11}
    assert ids_in(generation) == {40, 41, 42, 43, 44, 45, 46, 47, 48}
    numbers = {old: old // 2 for old in range(90)}
    renumber(config, numbers, 90)
    renumber(generation, numbers, 90)
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (0, 5, [10, 10])
    assert (config.decoder_start_token_id, config.forced_eos_token_id) == (15, 10)
    assert config.task_specific_params == {"summarisation": {"bos_token_id": 5, "max_length": 10}}
    assert generation.bad_words_ids == [[21], [22, 22]]
    assert generation.sequence_bias == [[[23, 23], -1.0]]
    assert generation.forced_decoder_ids == [[1, 24]]
    assert generation.max_length == 50


def test_what_the_config_names_is_kept():
    model, tokenizer = built("bart"), lettered()
    model.config.decoder_start_token_id, model.config.forced_bos_token_id = 70, 88
    model.generation_config.suppress_tokens = [60]
    small, fewer = trim_vocabulary(model, tokenizer, ["a1 a2"])
    table, rows = model.get_input_embeddings().weight, small.get_input_embeddings().weight
    assert fewer.convert_ids_to_tokens(small.config.decoder_start_token_id) == tokenizer.convert_ids_to_tokens(70)
    assert fewer.convert_ids_to_tokens(small.generation_config.suppress_tokens) == [
        tokenizer.convert_ids_to_tokens(60)
    ]
    last = small.config.forced_bos_token_id  # an embedding that no token has
    assert last == len(fewer)
    assert torch.equal(rows[last], table[88])


# What cannot be


def test_wrong_arguments():
    tokenizer = wordpiece()
    model = tiny(len(tokenizer))
    for texts, words in (
        ([], "There are no texts"),
        ("one text", "put it in a list"),
        ([1], "Got int among them"),
        (["", " "], "no tokens but special ones"),
    ):
        with pytest.raises(AttentrimError, match=words):
            trim_vocabulary(model, tokenizer, texts)
    with pytest.raises(UnsupportedModelError, match="embeddings for 50"):
        trim_vocabulary(tiny(50), tokenizer, FEW)
    with pytest.raises(UnsupportedModelError, match="Got Linear"):
        trim_vocabulary(torch.nn.Linear(2, 2), tokenizer, FEW)
    with pytest.raises(UnsupportedModelError, match="no embeddings of tokens"):
        trim_vocabulary(tf.ViTModel(CONFIGS["vit"]()), tokenizer, FEW)
    with pytest.raises(UnsupportedModelError, match="tokenizers of the library"):
        trim_vocabulary(model, tf.ByT5Tokenizer(), FEW)
    model.config.vocab_size = 7
    with pytest.raises(UnsupportedModelError, match="vocab_size 7"):
        trim_vocabulary(model, tokenizer, FEW)


def test_positions_that_count_from_the_padding_token():
    """RoBERTa's first position is the id of its padding token, and one more."""
    tokenizer = lettered()
    tokenizer.pad_token = "f0"
    torch.manual_seed(0)
    config = CONFIGS["roberta"]()
    config.pad_token_id, config.max_position_embeddings = 55, 90
    model = tf.RobertaModel(config).eval()
    with pytest.raises(UnsupportedModelError, match="counts from the id of the padding token, 55"):
        trim_vocabulary(model, tokenizer, ["a1 a2"])
    small, fewer = trim_vocabulary(model, tokenizer, [" ".join(LETTERS[:60])])
    assert fewer.pad_token_id == 55
    text = [" ".join(LETTERS[2:9]), "a4"]
    assert_close(answers(small, fewer, text), answers(model, tokenizer, text))


def test_texts_are_checked():
    tokenizer, small, _ = pair_of(wordpiece)
    found = check_texts(tokenizer, small, FEW)
    assert (found.texts, found.others, found.gone) == (25, 0, 0)
    gone = next(word for word in words() if word in tokenizer.get_vocab() and word not in small.get_vocab())
    found = check_texts(tokenizer, small, [*FEW[:3], f"{gone} {gone}"])
    assert (found.texts, found.others, found.gone) == (4, 1, 2)


# The command


@pytest.fixture
def model_dir(tmp_path):
    """A sentence-transformers directory with all the files that older versions wrote."""
    place = tmp_path / "model"
    tokenizer = wordpiece()
    tokenizer.save_pretrained(place)
    tiny(len(tokenizer)).save_pretrained(place)
    (place / "vocab.txt").write_text("old")
    (place / "special_tokens_map.json").write_text("{}")
    (place / "1_Pooling").mkdir()
    (place / "1_Pooling" / "config.json").write_text("{}")
    (place / "config_sentence_transformers.json").write_text('{"prompts": {"query": "ὦ: "}}')
    return place


def test_the_command(model_dir, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n".join(FEW), encoding="utf-8")
    (tmp_path / "more.csv").write_text(f"label,phrase,id\n0,{words()[40]},z\n", encoding="utf-8")
    (tmp_path / "dev.txt").write_text("\n".join([FEW[0], "zzqyw zx", words()[40]]), encoding="utf-8")
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "vocab.txt").write_text("of another model")
    result = run_json(
        capsys,
        *("trim", "--model", model_dir, "--output_dir", tmp_path / "small"),
        *("--vocabulary", tmp_path / "texts.txt", tmp_path / "more.csv"),
        *("--vocabulary_check", tmp_path / "dev.txt", "--text_column", "phrase"),
    )
    before, after = (tf.AutoTokenizer.from_pretrained(place) for place in (model_dir, tmp_path / "small"))
    assert (result["tokens_before"], result["tokens"]) == (len(before), len(after))
    assert result["vocabulary_texts"] == 26
    assert result["vocabulary_check"]["texts"] == 3
    assert result["vocabulary_check"]["texts_with_other_tokens"] == 0
    assert result["parameters"] == result["parameters_before"] - 8 * (len(before) - len(after))
    assert after.tokenize(words()[40]) == before.tokenize(words()[40])
    for name in ("vocab.txt", "special_tokens_map.json", "plan.json"):
        assert not (tmp_path / "small" / name).exists()
    assert (tmp_path / "small" / "1_Pooling" / "config.json").is_file()
    assert f"{len(after):,}" in (tmp_path / "small" / "README.md").read_text()
    for text in FEW:
        old, new = (
            tf.AutoModel.from_pretrained(place)(**made(text, return_tensors="pt")).last_hidden_state
            for place, made in ((model_dir, before), (tmp_path / "small", after))
        )
        assert_close(new, old)


def test_the_command_with_heads_and_a_task(model_dir, tmp_path, capsys):
    (tmp_path / "SST-2").mkdir()
    rows = "".join(f"{text}\t0\n" for text in FEW)
    (tmp_path / "SST-2" / "train.tsv").write_text("sentence\tlabel\n" + rows, encoding="utf-8")
    result = run_json(
        capsys,
        *("trim", "--model", model_dir, "--output_dir", tmp_path / "small", "--heads", "0:1"),
        *("--vocabulary_task", "sst2", "--data_dir", tmp_path / "SST-2"),
    )
    assert result["heads_kept"] == [1]
    assert result["tokens"] < result["tokens_before"]
    assert (tmp_path / "small" / "plan.json").is_file()
    small = tf.AutoModel.from_pretrained(tmp_path / "small")
    assert small.config.vocab_size == result["tokens"]


def test_wrong_flags(model_dir, tmp_path, capsys):
    trim = ("trim", "--model", model_dir, "--output_dir", tmp_path / "out")
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "texts.txt").write_text("ba be")
    assert "--vocabulary" in fails(capsys, *trim)
    assert "goes with --vocabulary" in fails(capsys, *trim, "--heads", "0:1", "--vocabulary_check", "x.txt")
    assert "goes with --vocabulary_task" in fails(capsys, *trim, "--vocabulary", "x.txt", "--data_dir", "x")
    assert "There is no file" in fails(capsys, *trim, "--vocabulary", tmp_path / "none.txt")
    assert "holds no" in fails(capsys, *trim, "--vocabulary", tmp_path / "empty.txt")
    assert "Did you mean 'sst2'" in fails(capsys, *trim, "--vocabulary_task", "sst3", "--data_dir", "x")
    for name in ("tokenizer.json", "vocab.txt"):
        (model_dir / name).unlink()
    assert "has no tokenizer" in fails(capsys, *trim, "--vocabulary", tmp_path / "texts.txt")
    assert not (tmp_path / "out").exists()
