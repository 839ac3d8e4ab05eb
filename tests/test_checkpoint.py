"""Trimmed checkpoints among the tools people use: task heads, pipelines, shards, PEFT, Trainer and others."""

from __future__ import annotations

import json

import plans
import pytest
import torch
import transformers as tf
import zoo
from close import assert_apart, assert_close, assert_same_weights

from attentrim import Plan, find_sites, trim
from attentrim.checkpoint.stored import stored_plan
from attentrim.errors import UnsupportedModelError

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "a",
    "cat",
    "dog",
    "sees",
    "likes",
    "him",
    "her",
    "itself",
    "and",
]


def mixed_plan(model) -> Plan:
    sites = find_sites(model)
    return Plan.of(model, heads={0: sites[0].group(1)}, uniform=[len(sites) - 1])


def trimmed_bert(head=tf.BertForSequenceClassification, **config):
    torch.manual_seed(0)
    settings = zoo.CONFIGS["bert"]()
    for name, value in config.items():
        setattr(settings, name, value)
    model = head(settings).eval()
    zoo.liven(model)
    return trim(model, mixed_plan(model))


def save(model, path, **more):
    model.save_pretrained(path, **more)
    return path


def logits(model, seed: int = 1) -> torch.Tensor:
    with torch.no_grad():
        return model(**zoo.inputs("bert", "right", seed=seed))[0]


def assert_same_model(loaded, saved) -> None:
    """Weights to the bit, answers up to rounding."""
    assert_same_weights(loaded, saved)
    assert_close(logits(loaded), logits(saved))


HEADS = [
    ("bert", tf.AutoModelForSequenceClassification),
    ("bert", tf.AutoModelForTokenClassification),
    ("bert", tf.AutoModelForQuestionAnswering),
    ("bert", tf.AutoModelForMultipleChoice),
    ("bert", tf.AutoModelForMaskedLM),
    ("bert", tf.AutoModelForNextSentencePrediction),
    ("bert", tf.AutoModelForPreTraining),
    ("roberta", tf.AutoModelForSequenceClassification),
    ("electra", tf.AutoModelForSequenceClassification),
    ("distilbert", tf.AutoModelForTokenClassification),
    ("albert", tf.AutoModelForSequenceClassification),
    ("mpnet", tf.AutoModelForSequenceClassification),
    ("deberta-v2", tf.AutoModelForSequenceClassification),
    ("modernbert", tf.AutoModelForSequenceClassification),
    ("gpt2", tf.AutoModelForSequenceClassification),
    ("llama", tf.AutoModelForSequenceClassification),
    ("qwen3", tf.AutoModelForTokenClassification),
    ("vit", tf.AutoModelForImageClassification),
    ("clip", tf.AutoModelForImageClassification),
    ("wav2vec2", tf.AutoModelForCTC),
    ("wav2vec2", tf.AutoModelForAudioClassification),
    ("bart", tf.AutoModelForSequenceClassification),
    ("t5", tf.AutoModelForSequenceClassification),
    ("t5", tf.AutoModelForTokenClassification),
]


def head_inputs(name: str, head) -> dict[str, torch.Tensor]:
    batch = zoo.inputs(name)
    batch.pop("decoder_input_ids", None)
    if head is tf.AutoModelForMultipleChoice:
        return {key: value.unsqueeze(1) for key, value in batch.items()}
    if name == "clip":
        batch = {"pixel_values": batch["pixel_values"]}
    if name in ("bart", "t5"):
        batch["input_ids"][:, -1] = tf.AutoConfig.for_model(name).eos_token_id
    return batch


@pytest.mark.parametrize(("name", "head"), HEADS, ids=lambda value: getattr(value, "__name__", value))
def test_every_task_head_loads_with_its_auto_class(name, head, tmp_path, no_grad):
    torch.manual_seed(0)
    model = head.from_config(zoo.CONFIGS[name]()).eval()
    zoo.liven(model)
    small = trim(model, mixed_plan(model))
    loaded = head.from_pretrained(save(small, tmp_path))
    assert type(loaded) is type(model)
    batch = head_inputs(name, head)
    expected, actual = small(**batch), loaded(**batch)
    assert expected.keys() == actual.keys()
    assert_same_weights(loaded, small)
    assert_close(actual[0], expected[0])
    assert_apart(expected[0], model(**batch)[0])


def test_another_head_on_the_same_trimmed_body(tmp_path, no_grad):
    small = trimmed_bert()
    body = tf.AutoModel.from_pretrained(save(small, tmp_path))
    assert_same_model(body, small.bert)
    assert stored_plan(body) == stored_plan(small)


@pytest.mark.parametrize(("name", "part"), [("t5", tf.T5EncoderModel), ("bart", tf.BartForCausalLM)])
def test_a_part_of_a_trimmed_model_loads_by_path(name, part, tmp_path, no_grad):
    model = zoo.build(name)
    small = trim(model, plans.corner_plans(model)["first uniform, last thinned"])
    loaded = part.from_pretrained(save(small, tmp_path))
    side = "encoder" if name == "t5" else "decoder"
    own = [(site.path, site.heads, site.uniform) for site in find_sites(small) if site.path.startswith(side)]
    assert [(site.path, site.heads, site.uniform) for site in find_sites(loaded)] == own
    again = trim(loaded, Plan.of(loaded, heads={1: [0]}))
    assert find_sites(again)[1].heads == find_sites(loaded)[1].heads - 1


def test_only_safetensors_are_written_and_no_code(tmp_path):
    save(trimmed_bert(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    config = json.loads((tmp_path / "config.json").read_text())
    assert "auto_map" not in config
    # tools that do not know it quote it in what they print
    assert config["quantization_config"]["quant_method"] == "attentrim (import attentrim before loading)"


def test_a_plan_that_removes_nothing_leaves_a_stock_checkpoint(tmp_path):
    model = zoo.build("bert")
    save(trim(model, Plan.of(model)), tmp_path)
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())


def test_the_file_is_smaller(tmp_path):
    model = zoo.build("bert")
    small = trim(model, mixed_plan(model))
    sizes = [(save(m, tmp_path / n) / "model.safetensors").stat().st_size for m, n in ((model, "a"), (small, "b"))]
    saved = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in small.parameters())
    # headers differ by a few bytes
    assert sizes[0] - sizes[1] == pytest.approx(4 * saved, abs=200)


def test_shards(tmp_path):
    small = trimmed_bert()
    save(small, tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_same_model(type(small).from_pretrained(tmp_path), small)


def test_device_map_and_disk_offload(tmp_path):
    small = trimmed_bert()
    save(small, tmp_path / "model")
    whole = type(small).from_pretrained(tmp_path / "model", device_map="auto")
    assert_same_model(whole, small)
    parts = {"bert.embeddings": "cpu", "bert.encoder.layer.0": "cpu", "bert.encoder.layer.1": "disk"}
    parts |= {"bert.pooler": "cpu", "classifier": "cpu"}
    offloaded = type(small).from_pretrained(tmp_path / "model", device_map=parts, offload_folder=tmp_path / "off")
    assert_close(logits(offloaded), logits(small))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_both_ways(dtype, tmp_path):
    small = trimmed_bert()
    save(small, tmp_path / "full")
    loaded = type(small).from_pretrained(tmp_path / "full", dtype=dtype)
    assert {parameter.dtype for parameter in loaded.parameters()} == {dtype}
    save(loaded, tmp_path / "half")
    again = type(small).from_pretrained(tmp_path / "half", dtype="auto")
    expected = small.to(dtype).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in again.state_dict().items())
    assert again.float().dtype is torch.float32


def tokenizer(path):
    (path / "vocab.txt").write_text("\n".join(WORDS))
    return tf.BertTokenizer(str(path / "vocab.txt"))


def test_pipeline(tmp_path):
    small = trimmed_bert(vocab_size=90)
    save(small, tmp_path)
    tokenizer(tmp_path).save_pretrained(tmp_path)
    answer = tf.pipeline("text-classification", model=str(tmp_path))("the cat likes itself")
    inputs = tokenizer(tmp_path)("the cat likes itself", return_tensors="pt")
    with torch.no_grad():
        scores = small(**inputs).logits.softmax(-1)[0]
    assert answer[0]["score"] == pytest.approx(scores.max().item(), abs=1e-6)
    assert answer[0]["label"] == small.config.id2label[scores.argmax().item()]


def test_trainer_trains_and_saves_a_loaded_checkpoint(tmp_path):
    loaded = tf.BertForSequenceClassification.from_pretrained(save(trimmed_bert(), tmp_path / "model"))
    rows = [{"input_ids": zoo.inputs("bert", seed=n)["input_ids"][0], "labels": n % 2} for n in range(8)]
    before = {name: value.clone() for name, value in loaded.state_dict().items()}
    arguments = tf.TrainingArguments(
        tmp_path / "run", max_steps=2, report_to="none", learning_rate=1e-2, use_cpu=True, disable_tqdm=True
    )
    tf.Trainer(model=loaded, args=arguments, train_dataset=rows).train()
    changed = {name for name, value in loaded.state_dict().items() if not torch.equal(value, before[name])}
    assert "bert.encoder.layer.0.attention.self.query.weight" in changed
    assert "bert.encoder.layer.1.attention.output.dense.weight" in changed
    again = type(loaded).from_pretrained(tmp_path / "run" / "checkpoint-2")
    assert_same_model(again, loaded.eval())


def test_lora_trains_on_a_trimmed_model_and_merges(tmp_path):
    peft = pytest.importorskip("peft")
    loaded = tf.BertForSequenceClassification.from_pretrained(save(trimmed_bert(), tmp_path))
    config = peft.LoraConfig(
        task_type="SEQ_CLS", r=2, target_modules=["query", "value", "dense"], init_lora_weights=False
    )
    adapted = peft.get_peft_model(loaded, config)
    batch = zoo.inputs("bert", "right")
    adapted(**batch, labels=torch.tensor([0, 1, 0])).loss.backward()
    reached = [
        name for name, p in adapted.named_parameters() if "lora_B" in name and p.grad is not None and p.grad.any()
    ]
    assert any("layer.0.attention.self.query" in name for name in reached)
    assert any("layer.1.attention.output.dense" in name for name in reached)
    adapted.eval()
    with torch.no_grad():
        apart = adapted(**batch).logits
        merged = adapted.merge_and_unload()
        torch.testing.assert_close(merged(**batch).logits, apart, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("target", ["query", "intermediate.dense"])
def test_trimming_with_adapters_on_is_refused(target):
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    model = tf.BertForSequenceClassification(zoo.CONFIGS["bert"]())
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=[target]))
    with pytest.raises(UnsupportedModelError, match="carries adapters: merge them first"):
        trim(adapted, Plan.of(adapted, heads={0: [0]}))


def test_inside_sentence_transformers(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    small = trimmed_bert(tf.BertModel)
    save(small, tmp_path / "body")
    tokenizer(tmp_path / "body").save_pretrained(tmp_path / "body")
    encoder = sentence_transformers.SentenceTransformer(str(tmp_path / "body"), device="cpu")
    encoder.save(str(tmp_path / "whole"))
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "whole"), device="cpu")
    sentences = ["the cat sees him", "a dog likes the cat and her"]
    assert_same_weights(again, encoder)
    assert_close(again.encode(sentences, convert_to_tensor=True), encoder.encode(sentences, convert_to_tensor=True))
    assert [site.heads for site in find_sites(again[0].auto_model)] == [3, 0]


def test_real_quantisation_on_top_is_refused(tmp_path):
    save(trimmed_bert(), tmp_path)
    config = tf.utils.quantization_config.QuantoConfig(weights="int8")
    with pytest.raises(ValueError, match="TrimmedConfig but you are passing a QuantoConfig"):
        tf.BertForSequenceClassification.from_pretrained(tmp_path, quantization_config=config)


def test_dynamic_int8_quantisation_composes():
    small = trimmed_bert()
    quantised = torch.ao.quantization.quantize_dynamic(small, {torch.nn.Linear}, dtype=torch.qint8)
    torch.testing.assert_close(logits(quantised), logits(small), atol=0.5, rtol=0.1)


def test_resized_embeddings_and_a_second_save(tmp_path):
    small = trimmed_bert()
    small.resize_token_embeddings(100)
    loaded = type(small).from_pretrained(save(small, tmp_path))
    assert loaded.get_input_embeddings().weight.shape[0] == 100
    assert_same_model(loaded, small)


def test_a_damaged_plan_in_the_config_is_named(tmp_path):
    path = save(trimmed_bert(), tmp_path) / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"]["plan"]["version"] = 99
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"The plan stored in config\.json has version 99"):
        tf.AutoModel.from_pretrained(tmp_path)


def test_a_head_for_other_labels_is_made_anew_or_refused(tmp_path, no_grad):
    """transformers compares no shapes for quantised models: we must."""
    small = trimmed_bert()
    save(small, tmp_path)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        tf.BertForSequenceClassification.from_pretrained(tmp_path, num_labels=7)
    other, report = tf.BertForSequenceClassification.from_pretrained(
        tmp_path, num_labels=7, ignore_mismatched_sizes=True, output_loading_info=True
    )
    assert logits(other).shape == (3, 7)
    assert {name for name, *_ in report["mismatched_keys"]} == {"classifier.weight", "classifier.bias"}
    assert_same_model(other.bert, small.bert)


def test_full_weights_under_a_trimmed_config_are_refused(tmp_path):
    small = trimmed_bert()
    save(small, tmp_path / "small")
    torch.manual_seed(0)
    save(tf.BertForSequenceClassification(zoo.CONFIGS["bert"]()), tmp_path / "full")
    (tmp_path / "full" / "config.json").write_text((tmp_path / "small" / "config.json").read_text())
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        tf.BertForSequenceClassification.from_pretrained(tmp_path / "full")


def test_loading_with_the_config_of_a_model_at_hand(tmp_path):
    small = trimmed_bert()
    loaded = type(small).from_pretrained(save(small, tmp_path), config=small.config)
    assert_same_model(loaded, small)


@pytest.mark.parametrize("name", ["bert", "mpnet", "llama"])
def test_models_with_accelerate_hooks_can_be_trimmed(name, no_grad):
    hooks = pytest.importorskip("accelerate.hooks")
    model, batch = zoo.build(name), zoo.inputs(name)
    expected = trim(model, mixed_plan(model))
    for module in list(model.modules()):
        hooks.add_hook_to_module(module, hooks.ModelHook())
    small = trim(model, mixed_plan(model))
    assert_same_weights(small, expected)
    assert_close(zoo.output(name, small, batch), zoo.output(name, expected, batch))


def test_a_model_trimmed_in_inference_mode_can_be_trained():
    model = zoo.build("bert")
    with torch.inference_mode():
        small = trim(model, mixed_plan(model))
    zoo.output("bert", small.train(), zoo.inputs("bert")).sum().backward()
    assert find_sites(small)[0].output.weight.grad is not None
