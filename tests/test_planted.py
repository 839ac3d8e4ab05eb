"""A model whose answer passes through known heads: the methods that look must find them, chance must not."""

from __future__ import annotations

import pytest
import torch
import training as tr
import transformers as tf

from attentrim import HISP, L0, AutoAttention, Control, RandomHeads

HEADS, SIZE = 8, 3
PLANTED = {1: 11, 4: 12, 6: 13}
"""Head and the key token that it alone can read. The label tells which of the three keys the sequence holds."""
TARGET = 1 - len(PLANTED) / HEADS


def examples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(20, 80, (count, 9), generator=generator)
    ids[:, 0] = 2
    labels = torch.randint(0, 8, (count,), generator=generator)
    for row in range(count):
        places = 1 + torch.randperm(8, generator=generator)
        for bit, key in enumerate(PLANTED.values()):
            if labels[row] >> bit & 1:
                ids[row, places[bit]] = key
    return [{"input_ids": row, "labels": int(label)} for row, label in zip(ids, labels, strict=True)]


def model_of_one_site():
    return tr.classifier(num_hidden_layers=1, num_attention_heads=HEADS, num_labels=8)


@pytest.fixture(scope="module")
def planted():
    """Trained with the planted heads alone open, each reading one feature, which only its own key has."""
    model = model_of_one_site()
    words, value = (
        model.bert.embeddings.word_embeddings.weight,
        model.bert.encoder.layer[0].attention.self.value.weight,
    )
    allowed = torch.zeros_like(value)
    with torch.no_grad():
        words[:, : len(PLANTED)] = 0.0
        for feature, (head, key) in enumerate(PLANTED.items()):
            words[key, feature] = 1.0
            allowed[head * SIZE : (head + 1) * SIZE, feature] = 1.0
    untouched = [head * SIZE + row for head in range(HEADS) if head not in PLANTED for row in range(SIZE)]
    start = value.detach().clone()
    words.requires_grad_(False)
    data = [tf.default_data_collator(examples(128, seed)) for seed in range(6)]
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    with Control(model) as control:
        control.set("heads", 0, [float(head in PLANTED) for head in range(HEADS)])
        for step in range(250):
            optimizer.zero_grad()
            model(**data[step % 6]).loss.backward()
            optimizer.step()
            with torch.no_grad():
                value *= allowed
                value[untouched] = start[untouched]
        test = tf.default_data_collator(examples(256, seed=99))
        model.eval()
        assert accuracy(model, test) > 0.97
        for head in PLANTED:
            control.set("heads", 0, [float(other in PLANTED and other != head) for other in range(HEADS)])
            assert accuracy(model, test) < 0.7, f"the answer does not pass through head {head}"
    return model.state_dict()


def accuracy(model, batch):
    with torch.no_grad():
        return float((model(**batch).logits.argmax(-1) == batch["labels"]).float().mean())


def kept(planted, method, directory, seed=0, steps=150):
    model = model_of_one_site()
    model.load_state_dict(planted)
    trainer = tr.trainer(directory, method, model, learning_rate=1e-4, seed=seed, max_steps=steps)
    trainer.train_dataset = examples(256, seed=50)
    trainer.train()
    plan = trainer.plan()
    assert plan.heads_removed == HEADS - len(PLANTED)
    return plan.kept("heads", 0)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("method", "steps"),
    [
        (AutoAttention(target_sparsity=TARGET), 150),
        (L0(target_sparsity=TARGET), 400),  # sampled gates tell the heads apart later than binary ones
        (HISP(target_sparsity=TARGET, dense_share=0.0), 20),
        (HISP(target_sparsity=TARGET, dense_share=0.0, rounds=5), 50),
    ],
    ids=["autoattention", "l0", "hisp", "hisp-rounds"],
)
def test_methods_that_look_keep_the_planted_heads(planted, method, steps, seed, tmp_path):
    assert kept(planted, method, tmp_path, seed, steps) == list(PLANTED)


def test_chance_does_not(planted, tmp_path):
    """Of the 56 ways to keep three heads of eight one is right: ten draws must not all hit it."""
    found = [kept(planted, RandomHeads(target_sparsity=TARGET), tmp_path, seed, steps=1) for seed in range(10)]
    assert sum(heads == list(PLANTED) for heads in found) <= 2
