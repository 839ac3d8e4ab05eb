"""Attention dropout, LayerDrop, attention LayerDrop, scheduled dropout and DropHead."""

from __future__ import annotations

import json

import pytest
import torch
import training as tr
import transformers as tf
import zoo

from attentrim import (
    AttentionDropout,
    AttentionLayerDrop,
    Control,
    DropHead,
    LayerDrop,
    ScheduledDropout,
    find_sites,
)
from attentrim.errors import MethodError
from attentrim.methods.regulariser import bernoulli
from attentrim.methods.scheduled_dropout.session import value_at

ACTIVE = [
    AttentionDropout(p=0.3),
    AttentionDropout(p=0.3, on="scores"),
    AttentionDropout(p=0.3, rescale=True),
    LayerDrop(p=0.5),
    AttentionLayerDrop(p=0.5),
    ScheduledDropout(),
    DropHead(p=0.5),
]
NOTHING = [
    AttentionDropout(p=0.0),
    AttentionDropout(p=0.0, on="scores"),
    LayerDrop(p=0.0),
    AttentionLayerDrop(p=0.0),
    ScheduledDropout(curves="[[0, 0]]"),
    DropHead(p=0.0),
]


def name_of(method):
    return "-".join([method.name, *(str(value) for value in method.settings.values() if value)])


@pytest.mark.parametrize("method", NOTHING, ids=name_of)
def test_nothing_dropped_is_plain_fine_tuning_to_the_bit(method, tmp_path):
    config = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    stock = tr.trainer(tmp_path / "a", None, tr.classifier(**config), cls=tf.Trainer, max_steps=6)
    stock.train()
    ours = tr.trainer(tmp_path / "b", method, tr.classifier(**config), max_steps=6)
    ours.train()
    assert tr.same(tr.weights(stock.model), tr.weights(ours.model))


@pytest.mark.parametrize("method", ACTIVE, ids=name_of)
def test_training_is_changed_evaluation_is_not_and_the_plan_is_empty(method, tmp_path):
    plain = tr.trainer(tmp_path / "a", None, max_steps=6)
    plain.train()
    trainer = tr.trainer(tmp_path / "b", method, max_steps=6)
    trainer.train()
    assert not tr.same(tr.weights(plain.model), tr.weights(trainer.model))
    assert not trainer.plan()
    batch = tr.batches(1)[0]
    trainer.model.eval()
    masked = trainer.model(**batch).logits
    trainer.session.detach()
    assert torch.equal(trainer.model(**batch).logits, masked)
    assert not any(module._forward_hooks for module in trainer.model.modules())


@pytest.mark.parametrize("method", ACTIVE, ids=name_of)
def test_gradient_checkpointing_draws_the_same_again(method, tmp_path):
    found = []
    for on in (False, True):
        trainer = tr.trainer(tmp_path / str(on), method, max_steps=4, gradient_checkpointing=on)
        trainer.train()
        found.append(tr.weights(trainer.model))
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ACTIVE, ids=name_of)
def test_a_resumed_run_is_the_uninterrupted_one(method, tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 5}
    whole = tr.trainer(tmp_path, method, **settings)
    whole.train()
    again = tr.trainer(tmp_path, method, tr.classifier(seed=5), **settings)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert tr.same(tr.weights(whole.model), tr.weights(again.model))


@pytest.mark.parametrize("method", ACTIVE, ids=name_of)
def test_every_parameter_keeps_its_gradient(method):
    """Data parallelism waits for each of them, whatever was dropped."""
    model = tr.classifier()
    method.attach(model, steps=10)
    for _ in range(4):
        model.zero_grad(set_to_none=True)
        model.train()(**tr.batches(1)[0]).loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_masks_have_the_rate_and_shape_they_promise():
    torch.manual_seed(0)
    mask = bernoulli(0.7)(torch.ones(8, 4, 50, 50, dtype=torch.bool))
    assert mask.shape == (8, 4, 50, 50)
    assert float(mask.float().mean()) == pytest.approx(0.7, abs=0.01)
    for on, scale in ((False, 1.0), (True, 1 / 0.7)):
        session = AttentionDropout(p=0.3, rescale=on).attach(tr.classifier())
        factors = session.factors(torch.ones(8, 4, 50, 50, dtype=torch.bool))
        assert factors.unique().tolist() == pytest.approx([0.0, scale])
        assert float((factors > 0).float().mean()) == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize("name", ["bert", "mpnet", "llama", "t5"])
@pytest.mark.parametrize("kind", ["score", "weight"])
def test_a_mask_that_is_made_at_the_call_equals_one_that_is_given(name, kind, no_grad):
    model, batch = zoo.build(name), zoo.inputs(name)
    made = {}

    def make(allowed):
        shape = tuple(allowed.shape)
        generator = torch.Generator().manual_seed(sum(shape))
        made[shape] = torch.rand(shape, generator=generator) < 0.6
        return made[shape]

    with Control(model) as control:
        setter = getattr(control, f"set_{kind}_mask")
        setter(0, make)
        lazily = zoo.output(name, model, batch)
        (mask,) = made.values()
        site = find_sites(model)[0]
        assert mask.shape[:2] == (3, site.heads)
        setter(0, mask)
        assert torch.equal(zoo.output(name, model, batch), lazily)
        setter(0, None)
        assert not torch.equal(zoo.output(name, model, batch), lazily)


@pytest.mark.parametrize("name", zoo.CONFIGS)
def test_skipped_layers_pass_their_input_on(name, no_grad):
    """All layers skipped: the model is what it is without any; none skipped: it is itself, to the bit."""
    model, batch = zoo.build(name), zoo.inputs(name)
    plain = zoo.output(name, model, batch)
    seen = {}
    with Control(model) as control:
        layers = control.places["layers"]
        for layer in layers:
            control.set("layers", layer.index, torch.tensor(0.0))
        assert torch.equal(zoo.output(name, model, batch), plain)
        hooks = []
        for layer in layers:
            control.set("layers", layer.index, torch.tensor(1.0))
            hooks.append(
                layer.module.register_forward_hook(
                    lambda _, args, kwargs, out, key=layer.index: seen.update(
                        {key: (args[0] if args else kwargs["hidden_states"], out)}
                    ),
                    with_kwargs=True,
                )
            )
        zoo.output(name, model, batch)
        for hook in hooks:
            hook.remove()
    assert len(seen) == len(layers)
    for before, after in seen.values():
        assert torch.equal(after if isinstance(after, torch.Tensor) else after[0], before)
    assert torch.equal(zoo.output(name, model, batch), plain)


class Settings:
    """What a session sets through its control, by kind and place, as of the last forward."""

    def __init__(self, session):
        self.found = {}
        inner, clear = session.control.set, session.control.clear

        def noting(kind, place, value=True):
            self.found[kind, place] = value
            inner(kind, place, value)

        def clearing():
            self.found.clear()
            clear()

        session.control.set, session.control.clear = noting, clearing


@pytest.mark.parametrize(
    ("method", "kind"), [(LayerDrop(p=0.3), "layers"), (AttentionLayerDrop(p=0.3), "uniform")], ids=["layers", "sites"]
)
def test_layers_and_sites_are_dropped_at_their_rate(method, kind):
    session = method.attach(tr.classifier())
    settings = Settings(session)
    torch.manual_seed(0)
    total = 0.0
    for _ in range(1000):
        session.before_forward(training=True)
        assert list(settings.found) == [(kind, 0), (kind, 1)]
        total += sum(float(value) for value in settings.found.values())
    assert total / 2000 == pytest.approx(0.3, abs=0.04)


def test_attention_layerdrop_is_the_uniform_site():
    model = tr.classifier()
    batch = tr.batches(1)[0]
    AttentionLayerDrop(p=0.999999).attach(model)
    dropped = model.train()(**batch).logits
    other = tr.classifier()
    with Control(other) as control:
        for site in control.sites:
            control.set("uniform", site.index)
        torch.testing.assert_close(other.eval()(**batch).logits, dropped)


def test_drophead_keeps_the_sum_and_follows_its_v():
    session = DropHead(p=0.4).attach(tr.classifier(), steps=100)
    chances = []
    for step in (0, 25, 50, 75, 100):
        session.steps_done = step
        chances.append(session.chance)
    assert chances == pytest.approx([0.4, 0.2, 0.0, 0.2, 0.4])
    session.steps_done = 0
    torch.manual_seed(0)
    settings, dropped = Settings(session), 0
    for _ in range(500):
        session.before_forward(training=True)
        assert list(settings.found) == [("heads", 0), ("heads", 1)]
        for gates in settings.found.values():
            kept = int((gates > 0).sum())
            dropped += 4 - kept
            assert float(gates.sum()) == pytest.approx(4.0 if kept else 0.0)
    assert dropped / 4000 == pytest.approx(0.4, abs=0.03)
    session.steps_done = 50
    session.before_forward(training=True)
    assert not settings.found


def test_curves():
    curve = [(0.2, 0.6), (0.6, 0.2), (0.8, 0.4)]
    values = [value_at(curve, progress) for progress in (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 1.0)]
    assert values == pytest.approx([0.6, 0.6, 0.4, 0.2, 0.3, 0.4, 0.4])
    session = ScheduledDropout(curves="[[[0, 0.6], [1, 0.2]], [[0, 0.6], [1, 0.8]]]").attach(tr.classifier(), steps=10)
    session.steps_done = 5
    assert session.chances == pytest.approx([0.4, 0.7])
    assert session.record() == {"drop_chances": [0.4, 0.7]}


@pytest.mark.parametrize(
    "curves",
    [
        "",
        "0.6",
        "[[0, 0.6], [0, 0.2]]",
        "[[1, 0.6], [0, 0.2]]",
        "[[0, 1.0]]",
        "[[0, -0.1]]",
        "[[0, 0.1], [2, 0.1]]",
        "[]",
    ],
)
def test_bad_curves(curves):
    with pytest.raises(MethodError, match="ScheduledDropout"):
        ScheduledDropout(curves=curves)


def test_schedules_need_steps_and_curves_a_site_each():
    with pytest.raises(MethodError, match="3 curves; this model has 2 sites"):
        ScheduledDropout(curves="[[[0, 0]], [[0, 0]], [[0, 0]]]").attach(tr.classifier(), steps=3)
    for method in (ScheduledDropout(), DropHead()):
        model = tr.classifier()
        method.attach(model)
        with pytest.raises(MethodError, match=r"attach\(model, steps=...\)"):
            model.train()(**tr.batches(1)[0])


def test_curves_are_fitted_to_a_recorded_run(tmp_path):
    """Rates that are piecewise linear themselves come back; noise is smoothed."""
    lines = [{"step": 0, "loss": 1.0}]
    for step in range(0, 301, 10):
        part = step / 300
        lines.append(
            {"step": step, "drop_rates": [0.5 - 0.3 * part, min(0.9, 0.1 + 2.4 * part) if part <= 1 / 3 else 0.9]}
        )
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = ScheduledDropout(fitted_to=str(tmp_path))
    assert made.fitted_to is None
    first, second = made.parsed()
    assert [point[1] for point in first] == pytest.approx([0.5, 0.4, 0.3, 0.2], abs=1e-3)
    assert [point[1] for point in second] == pytest.approx([0.1, 0.9, 0.9, 0.9], abs=1e-3)
    for wrong, words in (("no", "There is no"), (str(tmp_path / "short.jsonl"), "drop rates of 0 steps")):
        (tmp_path / "short.jsonl").write_text('{"step": 1}\n')
        with pytest.raises(MethodError, match=words):
            ScheduledDropout(fitted_to=wrong)
