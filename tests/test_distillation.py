"""Distillation: the distance to a teacher against a computation by hand, its settings, with a method and without."""

from __future__ import annotations

import pytest
import torch
import training as tr
import zoo
from plans import removable_layers

from attentrim import HISP, Control, Distillation, Plan, RandomHeads, distillation_loss, trim
from attentrim.errors import MethodError
from attentrim.noise import corrupted

SPECIAL = [0, 1, 2]
NOTHING = RandomHeads(target_sparsity=0.0)


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


@pytest.mark.parametrize("judged", ["labels", "mask", "all"])
def test_long_rows_of_logits_are_compared_in_parts(monkeypatch, judged):
    """The same distance and the same gradient, at some positions and at all."""
    mine, theirs = states((2, 5, 300), (2, 5, 300), seed=0)
    labels = torch.tensor([[-100, 4, 5, -100, 7], [1, 2, 3, -100, -100]])
    batch = {"labels": {"labels": labels}, "mask": {"attention_mask": (labels != -100).long()}, "all": {}}[judged]
    found = []
    for many in (2**24, 100):
        monkeypatch.setattr("attentrim.distillation.loss.MANY", many)
        monkeypatch.setattr("attentrim.distillation.loss.AT_A_TIME", 700)
        student = mine.clone().requires_grad_()
        distance = distillation_loss({"logits": student}, {"logits": theirs}, batch, logits=0.5, temperature=3.0)
        distance.backward()
        found.append((distance.detach(), student.grad))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-7)
    if judged != "all":
        assert not found[1][1][labels == -100].any()


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
    found = corrupted({"input_ids": ids, "labels": torch.ones(64)}, 0.3, SPECIAL, random)["input_ids"]
    assert torch.equal(ids, before)
    fixed = torch.isin(ids, torch.tensor(SPECIAL))
    assert torch.equal(found[fixed], ids[fixed])
    assert not torch.isin(found[~fixed], torch.tensor(SPECIAL)).any()
    changed = (found != ids)[~fixed].float().mean()
    assert 0.27 < changed < 0.32  # a fiftieth of what is drawn is the same word
    again = corrupted({"input_ids": ids}, 0.3, SPECIAL, torch.Generator().manual_seed(1))["input_ids"]
    assert torch.equal(
        again, corrupted({"input_ids": ids}, 0.3, SPECIAL, torch.Generator().manual_seed(1))["input_ids"]
    )
    assert not torch.equal(again, found)


def test_a_batch_of_special_tokens_alone_and_one_without_words_stay():
    ids = torch.tensor([[1, 2, 0]])
    assert torch.equal(corrupted({"input_ids": ids}, 0.9, SPECIAL)["input_ids"], ids)
    sound = torch.zeros(4, 1000)
    assert float(corrupted({"input_values": sound}, 0.5)["input_values"].std()) == pytest.approx(0.5, rel=0.05)
    assert corrupted({"scores": sound}, 0.5)["scores"] is sound


def test_an_equal_teacher_is_no_distance_on_corrupted_batches_either(tmp_path):
    model = tr.classifier(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    teacher = tr.classifier(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    distillation = Distillation(logits=1.0, hidden=1.0, noise=0.4)
    trainer = tr.trainer(tmp_path, NOTHING, model, teacher=teacher, distillation=distillation)
    model.train()
    batch = tr.batches(1, seed=2)[0]
    plain = float(model(**batch).loss.detach())
    assert float(trainer.compute_loss(model, dict(batch)).detach()) == pytest.approx(plain, rel=1e-5)


def test_the_teacher_is_asked_about_corrupted_batches_and_the_labels_are_of_clean_ones(tmp_path):
    """The teacher sees other words than the model's own loss is taken on; the distance is that of both there."""
    model, teacher = tr.classifier(), tr.classifier(seed=3)
    distillation = Distillation(logits=1.0, noise=0.4)
    trainer = tr.trainer(tmp_path, NOTHING, model, teacher=teacher, distillation=distillation)
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
        distillation = Distillation(hidden=1.0, label_weight=weight)
        trainer = tr.trainer(tmp_path, NOTHING, model, teacher=teacher, distillation=distillation)
        model.train()
        losses[weight] = float(trainer.compute_loss(model, dict(batch)).detach())
        trainer.session.detach()
    outputs = [part(**batch, output_hidden_states=True) for part in (model, teacher.eval())]
    own = float(outputs[0].loss.detach())
    apart = float(distillation_loss(*outputs, batch, logits=0, hidden=1).detach())
    assert losses == pytest.approx({0.0: apart, 1.0: own + apart, 3.0: 3 * own + apart}, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "dense_share", "given", "trains"),
    [
        ({"label_weight": 0.0, "hidden": 1.0}, 0.0, True, False),
        ({"label_weight": 0.0, "hidden": 1.0, "logits": 0.1}, 0.0, True, True),
        ({"label_weight": 0.0, "hidden": 1.0}, 0.3, False, True),
        ({"label_weight": 0.0, "hidden": 1.0}, 0.3, True, False),
        ({"label_weight": 0.1, "hidden": 1.0}, 0.0, True, True),
    ],
)
def test_what_trains_the_head(settings, dense_share, given, trains, tmp_path):
    method, distillation = RandomHeads(target_sparsity=0.0, dense_share=dense_share), Distillation(**settings)
    assert distillation.trains_head(dense_first=dense_share > 0 and not given) == trains
    before = tr.classifier()
    teacher = tr.classifier(seed=3) if given else None
    trainer = tr.trainer(
        tmp_path,
        method,
        tr.classifier(),
        teacher=teacher,
        distillation=distillation,
        max_steps=4,
        weight_decay=0.0,
    )
    trainer.train()
    assert torch.equal(before.classifier.weight, trainer.model.classifier.weight) != trains
    assert not torch.equal(before.bert.embeddings.word_embeddings.weight, trainer.model.get_input_embeddings().weight)


# Without some of the layers


def share(student, teacher):
    return float((student - teacher).square().sum() / teacher.square().sum())


@pytest.mark.parametrize(
    ("removed", "compared"),
    [
        ((), [0, 1, 2, 3, 4, 5, 6]),
        ((1,), [0, 2, 3, 4, 5, 6]),
        ((1, 2), [0, 3, 4, 5, 6]),
        ((0, 3), [1, 2, 4, 5, 6]),
        ((3,), [0, 1, 2, 4, 5, 6]),
        ((4,), [0, 1, 2, 3, 4, 6]),
        ((3, 4), [0, 1, 2, 4, 6]),
    ],
)
@pytest.mark.parametrize("stacks", [1, 2])
def test_states_before_removed_layers_are_not_compared(removed, compared, stacks):
    """States of four layers (places 0 to 4) and, in a second stack, of one (5 and 6), which is layer 4."""
    if stacks == 1:
        removed, compared = [layer for layer in removed if layer < 4], [place for place in compared if place < 5]
    mine, theirs = (states(*[(2, 5, 8)] * 5, *[(2, 4, 8)] * 2, seed=seed) for seed in (0, 1))

    def output(values):
        names = ("encoder_hidden_states", "decoder_hidden_states") if stacks == 2 else ("hidden_states",)
        return dict(zip(names, (values[:5], values[5:]), strict=False))

    found = distillation_loss(output(mine), output(theirs), {}, logits=0, hidden=2, removed_layers=removed)
    expected = [share(mine[place], theirs[place]) for place in compared]
    assert float(found) == pytest.approx(2 * sum(expected) / len(expected), rel=1e-5)


def all_states(output):
    names = ("hidden_states", "encoder_hidden_states", "decoder_hidden_states")
    return [state for name in names for state in output.get(name) or ()]


@pytest.mark.parametrize("name", sorted(set(zoo.CONFIGS) - {"albert", "clip"}))
def test_the_states_of_a_model_that_skips_layers_are_those_of_the_trimmed_one(name):
    """For every architecture, against the trimmed model's states beside the teacher's behind each kept layer.

    A model that has recorded states before has transformers' own hooks already; ours must come before them.
    """
    model, teacher, batch = zoo.build(name, layers=4), zoo.build(name, seed=1, layers=4), zoo.inputs(name)
    free = [layer.index for layer in removable_layers(model)]
    depth = 4 if name not in zoo.SEQ2SEQ else 8
    with torch.no_grad():
        dense, theirs = (part(**batch, output_hidden_states=True) for part in (model, teacher))
        assert len(all_states(dense)) == depth + depth // 4
        for removed in (free[:1], free[1:3], free[-1:], free):
            with Control(model) as control:
                for layer in removed:
                    control.set("layers", layer)
                output = model(**batch, output_hidden_states=True)
            found = distillation_loss(output, theirs, {}, logits=0, hidden=1, removed_layers=removed)
            small = trim(model, Plan.of(model, layers=removed)).eval()
            mine = all_states(small(**batch, output_hidden_states=True))
            behind = [
                place for place in range(depth + depth // 4) if place % 5 == 4 or place - place // 5 not in removed
            ]
            assert len(mine) == len(behind)
            pairs = zip(mine, (all_states(theirs)[place] for place in behind), strict=True)
            assert float(found) == pytest.approx(sum(share(*pair) for pair in pairs) / len(mine), rel=1e-4)


# Without a method


def test_distillation_without_a_method_is_plain_training_towards_the_teacher(tmp_path):
    """Against the loss by hand, step by step; a method that removes nothing gives the same weights, to the bit."""
    distillation = Distillation(logits=2.0, hidden=0.5, label_weight=0.5)
    settings = {"max_steps": 5, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "weight_decay": 0.0}
    found = {}
    for name, method in (("none", None), ("nothing", NOTHING)):
        trainer = tr.trainer(
            tmp_path / name, method, teacher=tr.classifier(seed=3), distillation=distillation, **settings
        )
        batches = []
        trainer.model.register_forward_pre_hook(
            lambda module, args, kwargs, seen=batches: seen.append(dict(kwargs)), with_kwargs=True
        )
        trainer.train()
        found[name] = tr.weights(trainer.model)
        assert (trainer.session is None) == (method is None)
    assert tr.same(found["none"], found["nothing"])

    model, teacher = tr.classifier(), tr.classifier(seed=3).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for batch in batches:
        inputs = {name: value for name, value in batch.items() if name in ("input_ids", "labels")}
        optimizer.zero_grad()
        mine, theirs = (part(**inputs, output_hidden_states=True) for part in (model.train(), teacher))
        (0.5 * mine.loss + distillation_loss(mine, theirs, inputs, logits=2.0, hidden=0.5)).backward()
        optimizer.step()
    for name, weight in tr.weights(model).items():
        torch.testing.assert_close(found["none"][name], weight, rtol=1e-4, atol=1e-5)


def test_a_second_training_makes_its_own_teacher(tmp_path):
    trainer = tr.trainer(tmp_path, HISP(dense_share=0.5), max_steps=4, distillation=Distillation(logits=1.0))
    trainer.train()
    first = trainer.teacher
    trainer.train()
    assert trainer.teacher is not first
    given = tr.classifier(seed=3)
    trainer = tr.trainer(tmp_path, HISP(), max_steps=4, teacher=given, distillation=Distillation(logits=1.0))
    trainer.train()
    trainer.train()
    assert trainer.teacher is given


def test_what_is_missing_for_distillation_is_said(tmp_path):
    logits, teacher = Distillation(logits=1.0), tr.classifier(seed=3)
    with pytest.raises(MethodError, match=r"without a method needs a dense model: give Trainer\(teacher=...\)"):
        tr.trainer(tmp_path, None, distillation=logits)
    with pytest.raises(MethodError, match="teacher is for distillation"):
        tr.trainer(tmp_path, None, teacher=teacher)
    with pytest.raises(MethodError, match=r"must be like Distillation\(logits=1.0\). Got 1.0 instead"):
        tr.trainer(tmp_path, None, teacher=teacher, distillation=1.0)
    model = tr.classifier()
    with pytest.raises(MethodError, match="must not be the model that is trained"):
        tr.trainer(tmp_path, None, model, teacher=model, distillation=logits)


# Settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "set logits, hidden"),
        ({"label_weight": 0.0}, "set logits, hidden"),
        ({"logits": -1.0}, r"'logits' parameter of Distillation must be 0 or more. Got -1 instead"),
        ({"logits": 1.0, "noise": 15}, r"'noise' parameter of Distillation must be in \[0, 1\). Got 15.*mean 0.15"),
        ({"logits": 1.0, "temperature": 0.0}, "above 0"),
        ({"logits": "much"}, "a number"),
    ],
)
def test_settings_that_cannot_be(settings, words):
    with pytest.raises(MethodError, match=words):
        Distillation(**settings)


def test_flags_there_and_back():
    made = Distillation.from_flags({"distill_logits": 1, "distill_noise": 0.2, "distill_hidden": None, "method": "x"})
    assert made == Distillation(logits=1.0, noise=0.2)
    assert Distillation.from_flags(made.flags) == made
    assert Distillation.from_flags({"distill_logits": 0.0, "distill_temperature": 3.0, "label_weight": 1.0}) is None
    for name, value in (("label_weight", 0.0), ("distill_noise", 0.1)):
        with pytest.raises(MethodError, match=f"{name} is for distillation: set distill_logits or distill_hidden"):
            Distillation.from_flags({name: value})


def test_the_old_settings_of_methods_work_and_name_the_new_ones(tmp_path):
    with pytest.warns(FutureWarning) as caught:
        method = RandomHeads(target_sparsity=0.0, distill_logits=2.0, label_weight=0.5)
    said = [str(warning.message) for warning in caught]
    assert len(said) == 2
    assert "Trainer(distillation=Distillation(logits=...)), or --distill_logits" in said[0]
    assert "Distillation(label_weight=...)" in said[1]
    assert method.distillation == Distillation(logits=2.0, label_weight=0.5)
    assert not any("distill" in name or "label" in name for name in (*method.settings, *method.setting_names()))
    assert {"distill_logits", "label_weight"} <= set(method.accepted_names())

    model, teacher, batch = tr.classifier(), tr.classifier(seed=3), tr.batches(1, seed=2)[0]
    losses = []
    for one, distillation in ((method, None), (NOTHING, Distillation(logits=2.0, label_weight=0.5))):
        trainer = tr.trainer(tmp_path, one, model.train(), teacher=teacher, distillation=distillation)
        losses.append(float(trainer.compute_loss(model, dict(batch)).detach()))
        trainer.session.detach()
    assert losses[0] == losses[1]
    with pytest.raises(MethodError, match="Distillation is set twice"):
        tr.trainer(tmp_path, method, teacher=teacher, distillation=Distillation(logits=1.0))


def test_the_old_settings_are_checked_as_before():
    with pytest.warns(FutureWarning), pytest.raises(MethodError, match="label_weight is for distillation"):
        HISP(label_weight=0)
    with pytest.warns(FutureWarning), pytest.raises(MethodError, match="distill_noise is for distillation"):
        HISP(distill_noise=0.1)
    with pytest.raises(MethodError, match=r"'distill_noise' parameter of HISP must be in \[0, 1\)"):
        HISP(distill_logits=1.0, distill_noise=1.5)
    with pytest.warns(FutureWarning, match="--distill_hidden"):
        assert HISP.from_settings({"distill_hidden": "1"}).distillation == Distillation(hidden=1.0)
