"""Models from GGUF files: trimmed, saved and trained as any other, in Python and on the command line."""

from __future__ import annotations

import pytest
import torch
import transformers as tf
import zoo
from close import assert_close, assert_same_weights
from commands import run_json

import attentrim.gguf
from attentrim import Control, Plan, Trainer, portable, trim
from attentrim.errors import AttentrimError, MissingExtraError, UnsupportedModelError

gguf = pytest.importorskip("gguf")
TOKENS = [chr(letter) for letter in range(33, 121)] + ["Ġ", "ab", "<start>", "<end>"]
NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A tiny Llama with tied embeddings, weights of linear layers in 8 bits, and a byte-level tokenizer."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.Q8_0.gguf"
    model = zoo.build("llama")
    writer = gguf.GGUFWriter(str(path), "llama")
    config = model.config
    writer.add_context_length(64)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(2)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(len(TOKENS) - 2)
    writer.add_eos_token_id(len(TOKENS) - 1)
    writer.add_add_bos_token(True)
    writer.add_tensor(
        "token_embd.weight", model.model.embed_tokens.weight.detach().repeat(2, 1)[: len(TOKENS)].numpy()
    )
    writer.add_tensor("output_norm.weight", model.model.norm.weight.detach().numpy())
    for number, layer in enumerate(model.model.layers):
        for short, name in NAMES.items():
            weight = layer.get_submodule(name).weight.detach().numpy()
            kind = gguf.GGMLQuantizationType.Q8_0
            data = weight if weight.ndim == 1 else gguf.quants.quantize(weight, kind)
            writer.add_tensor(f"blk.{number}.{short}.weight", data, raw_dtype=None if weight.ndim == 1 else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def model(file):
    return tf.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name).eval()


PLAN = {"heads": {0: range(4), 1: [0, 1]}, "neurons": {1: range(8)}}


def test_transformers_would_not_save_it(model, tmp_path):
    """If it does one day, most of what is tested here can go."""
    with pytest.raises(ValueError, match="not serializable"):
        model.save_pretrained(tmp_path)


@pytest.mark.parametrize("operation", [trim, portable])
def test_it_is_trimmed_and_saved(operation, model, tmp_path, no_grad):
    batch = zoo.inputs("llama", "left")
    plan = Plan.of(model, **PLAN)
    with Control(model) as control:
        control.apply(plan)
        masked = zoo.output("llama", model, batch)
    small = operation(model, plan)
    assert model.is_quantized  # what was given stays as it was
    small.save_pretrained(tmp_path)
    assert "gguf" not in (tmp_path / "config.json").read_text()
    loaded = tf.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_same_weights(loaded, small)
    assert_close(zoo.output("llama", loaded.half().float(), batch), masked, 1e-2)
    assert_close(zoo.output("llama", small, batch), masked)


def test_it_is_trained(model, tmp_path):
    rows = [{"input_ids": row, "labels": row} for row in zoo.inputs("llama")["input_ids"]]
    arguments = tf.TrainingArguments(str(tmp_path), max_steps=1, report_to=[], use_cpu=True)
    trainer = Trainer(model, arguments, train_dataset=rows, method="random-heads")
    trainer.train()
    trainer.save_model(str(tmp_path / "trained"))
    assert (tmp_path / "trained" / "model.safetensors").exists()


def test_weights_that_stayed_in_blocks_are_refused(model):
    class GgufLinear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = torch.nn.Parameter(torch.zeros(32, 32)), None

    model.model.layers[0].self_attn.q_proj = GgufLinear()
    plan = Plan.of(zoo.build("llama"), heads={0: [0, 1]})
    with pytest.raises(UnsupportedModelError, match=r"load it with quantization_config=GgufConfig\(dequantize=True\)"):
        trim(model, plan)


def test_the_command_line_takes_the_file(file, tmp_path, capsys):
    out = str(tmp_path / "small")
    trimmed = run_json(capsys, "trim", "--model", file, "--heads", "0:0-3", "1:0,1", "--output_dir", out)
    assert trimmed["heads_kept"] == [0, 2]
    for name, heads in ((str(file), [4, 4]), (out, [0, 2])):
        shown = run_json(capsys, "show", "--model", name)
        assert (shown["heads_kept"], shown["name"]) == (heads, "LlamaForCausalLM")
    tokens = tf.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)("Hello").input_ids
    start = TOKENS.index("<start>")
    assert start not in tokens, "transformers now reads from the file that texts begin with it"
    assert tf.AutoTokenizer.from_pretrained(out)("Hello").input_ids == [start, *tokens]


def test_the_command_line_trains_on_the_file(file, tmp_path, capsys):
    data = tmp_path / "train.csv"
    data.write_text("text,label\n" + "abc,yes\nxyz,no\n" * 8)
    settings = ["--max_steps", 2, "--no_bench", "--use_cpu", "--output_dir", tmp_path / "run"]
    result = run_json(capsys, "train", "--model", file, "--train_file", data, *settings)
    assert result["metric"] == "accuracy"


def test_a_language_model_is_evaluated_and_planned_for_from_the_file(file, tmp_path, capsys):
    for split in ("train", "validation"):
        (tmp_path / f"{split}.txt").write_text("ab cd ef gh ij\n" * 37)  # 481 tokens
    model = ["--model", file, "--task", "clm", "--max_length", 16, "--use_cpu"]
    files = [flag for split in ("train", "validation") for flag in (f"--{split}_file", tmp_path / f"{split}.txt")]
    for data in (["--data_dir", tmp_path], files):
        found = run_json(capsys, "evaluate", *model, *data)
        assert (found["metric"], found["examples"]) == ("perplexity", 33)  # blocks of 15 tokens after <start>
    search = ["--method", "similarity", "--method_config", "remove=attention:1", "--no_bench"]
    found = run_json(capsys, "plan", *model, *files, *search, "--output_dir", tmp_path / "small")
    assert len(found["blocks_removed"]["attention"]) == 1


@pytest.mark.parametrize(("name", "message"), [("nothing.gguf", "no GGUF file"), ("", "name the file itself, .*Q8_0")])
def test_what_is_no_model(name, message, file):
    with pytest.raises(AttentrimError, match=message):
        attentrim.gguf.where_to_load(str(file.parent / name))


def test_without_the_package(file, monkeypatch):
    monkeypatch.setattr(attentrim.gguf.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "attentrim\[gguf\]"'):
        attentrim.gguf.where_to_load(str(file))
