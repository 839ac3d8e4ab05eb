"""The distance to a teacher against a computation by hand, and the disturbed batches that it can be taken on."""

from __future__ import annotations

import pytest
import torch
import training as tr

from attentrim import HISP, RandomHeads, distillation_loss
from attentrim.errors import MethodError
from attentrim.noise import disturbed

SPECIAL = [0, 1, 2]


def states(*shapes, seed):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


@pytest.mark.parametrize("masked", [True, False])
def test_the_distance_of_hidden_states_is_a_share_of_the_teachers_at_valid_tokens_the_mean_over_layers(masked):
    shapes = [(2, 5, 8)] * 3 + [(2, 4, 8)] * 2
    mine, theirs = states(*shapes, seed=0), states(*shapes, seed=1)
    theirs = tuple(scale * state for scale, state in zip((1, 2, 3, 4, 5), theirs, strict=True))
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])

    def output(values):
        return {"encoder_hidden_states": values[:3], "decoder_hidden_states": values[3:]}

    batch = {"attention_mask": mask} if masked else {}
    found = distillation_loss(output(mine), output(theirs), batch, logits=0.0, hidden=0.5)
    layers = []
    for student, teacher in zip(mine, theirs, strict=True):
        fits = masked and student.shape[1] == mask.shape[1]
        places = [(row, token) for row in range(2) for token in range(student.shape[1])]
        valid = [place for place in places if not fits or mask[place]]
        apart = sum(float((student[place] - teacher[place]).square().sum()) for place in valid)
        layers.append(apart / sum(float(teacher[place].square().sum()) for place in valid))
    assert float(found) == pytest.approx(0.5 * sum(layers) / len(layers), rel=1e-5)


def test_the_scale_of_the_hidden_states_does_not_matter():
    (mine,), (theirs,) = states((2, 5, 8), seed=0), states((2, 5, 8), seed=1)

    def distance(scale):
        outputs = ({"hidden_states": (scale * value,)} for value in (mine, theirs))
        return float(distillation_loss(*outputs, {}, logits=0, hidden=1))

    assert distance(0.1) == pytest.approx(distance(1.0), rel=1e-5)
    zeros = {"hidden_states": (torch.zeros_like(theirs),)}
    assert float(distillation_loss(zeros, {"hidden_states": (theirs,)}, {}, logits=0, hidden=1)) == pytest.approx(1.0)


def test_padding_has_no_gradient_whatever_stands_there():
    student = torch.randn(1, 3, 4, requires_grad=True)
    teacher = torch.randn(1, 3, 4)
    teacher[0, 2] = torch.nan
    batch = {"attention_mask": torch.tensor([[1, 1, 0]])}
    distillation_loss(
        {"hidden_states": (student,)}, {"hidden_states": (teacher,)}, batch, logits=0, hidden=1
    ).backward()
    assert student.grad[0, :2].abs().min() > 0
    assert torch.equal(student.grad[0, 2], torch.zeros(4))


def test_words_are_replaced_by_other_words_of_the_batch_and_special_tokens_stay():
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 60, (64, 40), generator=random)
    ids[:, 0], ids[:, -1], ids[:, 20:25] = 1, 2, 0
    before = ids.clone()
    found = disturbed({"input_ids": ids, "labels": torch.ones(64)}, 0.3, SPECIAL, random)["input_ids"]
    assert torch.equal(ids, before)
    fixed = torch.isin(ids, torch.tensor(SPECIAL))
    assert torch.equal(found[fixed], ids[fixed])
    assert not torch.isin(found[~fixed], torch.tensor(SPECIAL)).any()
    changed = (found != ids)[~fixed].float().mean()
    assert 0.27 < changed < 0.32  # a fiftieth of what is drawn is the same word
    again = disturbed({"input_ids": ids}, 0.3, SPECIAL, torch.Generator().manual_seed(1))["input_ids"]
    assert torch.equal(
        again, disturbed({"input_ids": ids}, 0.3, SPECIAL, torch.Generator().manual_seed(1))["input_ids"]
    )
    assert not torch.equal(again, found)


def test_a_batch_of_special_tokens_alone_and_one_without_words_stay():
    ids = torch.tensor([[1, 2, 0]])
    assert torch.equal(disturbed({"input_ids": ids}, 0.9, SPECIAL)["input_ids"], ids)
    sound = torch.zeros(4, 1000)
    assert float(disturbed({"input_values": sound}, 0.5)["input_values"].std()) == pytest.approx(0.5, rel=0.05)
    assert disturbed({"scores": sound}, 0.5)["scores"] is sound


def test_an_equal_teacher_is_no_distance_on_disturbed_batches_either(tmp_path):
    model = tr.classifier(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    teacher = tr.classifier(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    method = RandomHeads(target_sparsity=0.0, distill_logits=1.0, distill_hidden=1.0, distill_noise=0.4)
    trainer = tr.trainer(tmp_path, method, model, teacher=teacher)
    model.train()
    batch = tr.batches(1, seed=2)[0]
    plain = float(model(**batch).loss.detach())
    assert float(trainer.compute_loss(model, dict(batch)).detach()) == pytest.approx(plain, rel=1e-5)


def test_the_teacher_is_asked_about_disturbed_batches_and_the_labels_are_of_clean_ones(tmp_path):
    """The teacher sees other words than the model's own loss is taken on; the distance is that of both there."""
    model, teacher = tr.classifier(), tr.classifier(seed=3)
    method = RandomHeads(target_sparsity=0.0, distill_logits=1.0, distill_noise=0.4)
    trainer = tr.trainer(tmp_path, method, model, teacher=teacher)
    seen = {"model": [], "teacher": []}
    for name, part in (("model", model), ("teacher", teacher)):
        part.register_forward_pre_hook(
            lambda module, args, kwargs, name=name: seen[name].append(kwargs["input_ids"].clone()), with_kwargs=True
        )
    model.train()
    batch = tr.batches(1, seed=2)[0]
    trainer.compute_loss(model, dict(batch))
    clean, noisy = seen["model"]
    assert torch.equal(clean, batch["input_ids"])
    assert not torch.equal(noisy, clean)
    assert torch.equal(seen["teacher"][0], noisy)


def test_the_weight_of_the_labels(tmp_path):
    """The loss is that of the labels, weighed, and the distance; without a teacher in sight, the labels' own."""
    model, teacher = tr.classifier(), tr.classifier(seed=3)
    batch = tr.batches(1, seed=2)[0]
    losses = {}
    for weight in (0.0, 1.0, 3.0):
        method = RandomHeads(target_sparsity=0.0, distill_hidden=1.0, label_weight=weight)
        trainer = tr.trainer(tmp_path, method, model, teacher=teacher)
        model.train()
        losses[weight] = float(trainer.compute_loss(model, dict(batch)).detach())
        trainer.session.detach()
    outputs = [part(**batch, output_hidden_states=True) for part in (model, teacher.eval())]
    own = float(outputs[0].loss.detach())
    apart = float(distillation_loss(*outputs, batch, logits=0, hidden=1).detach())
    assert losses == pytest.approx({0.0: apart, 1.0: own + apart, 3.0: 3 * own + apart}, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "given", "trains"),
    [
        ({"label_weight": 0.0, "distill_hidden": 1.0}, True, False),
        ({"label_weight": 0.0, "distill_hidden": 1.0, "distill_logits": 0.1}, True, True),
        ({"label_weight": 0.0, "distill_hidden": 1.0, "dense_share": 0.3}, False, True),
        ({"label_weight": 0.0, "distill_hidden": 1.0, "dense_share": 0.3}, True, False),
        ({"label_weight": 0.1, "distill_hidden": 1.0}, True, True),
        ({}, False, True),
    ],
)
def test_what_trains_the_head(settings, given, trains, tmp_path):
    method = RandomHeads(target_sparsity=0.0, **settings)
    assert method.trains_head(taught=given) == trains
    before = tr.classifier()
    teacher = tr.classifier(seed=3) if given else None
    trainer = tr.trainer(tmp_path, method, tr.classifier(), teacher=teacher, max_steps=4, weight_decay=0.0)
    trainer.train()
    assert torch.equal(before.classifier.weight, trainer.model.classifier.weight) != trains
    assert not torch.equal(before.bert.embeddings.word_embeddings.weight, trainer.model.get_input_embeddings().weight)


def test_noise_without_distillation_is_refused():
    with pytest.raises(MethodError, match="label_weight is for distillation"):
        HISP(label_weight=0)
    with pytest.raises(MethodError, match="distill_noise is for distillation"):
        HISP(distill_noise=0.1)
    with pytest.raises(MethodError, match="distill_noise"):
        HISP(distill_logits=1.0, distill_noise=1.5)
