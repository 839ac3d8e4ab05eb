"""Similarity: scores against brute force, planted blocks, the greedy search against all others, training."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import training as tr
import transformers as tf
import zoo
from torch import nn

from attentrim import Control, Plan, Similarity, trim
from attentrim.errors import MethodError, UnsupportedModelError
from attentrim.methods.similarity.streams import turns

EVERYTHING = "attention:1,feed_forward:1"


def classifier(seed=0, layers=4):
    model = tr.classifier(seed, num_hidden_layers=layers).eval()
    zoo.liven(model)
    return model


def search(model, batches, **settings):
    session = Similarity(**settings).attach(model, calibration=batches)
    session.shows_progress = False
    try:
        session.search()
        return session, session.plan()
    finally:
        session.detach()


def turn(before, after, mask):
    """Token by token."""
    found = [
        1 - float(torch.dot(x, y) / (x.norm() * y.norm())) for x, y in zip(before[mask], after[mask], strict=True)
    ]
    return sum(found) / len(found)


# Scores


def streams_of(name, model, batch):
    """The stream before and after each attention block, each feed-forward block and each layer, by other means.

    Pre-norm models: the output of a layer whose neurons are all gated is the stream between its blocks. BERT: the
    layers one by one.
    """
    found = {"attention": [], "feed_forward": [], "layers": []}
    with torch.no_grad():
        if name == "bert":
            states = model(**batch, output_hidden_states=True).hidden_states
            mask = (1.0 - batch["attention_mask"][:, None, None, :].float()) * torch.finfo(torch.float32).min
            for layer, state, after in zip(model.encoder.layer, states, states[1:], strict=False):
                given = layer.attention.output.dense(layer.attention.self(state, mask)[0])
                between = layer.attention.output.LayerNorm(state + given)
                more = layer.output.dense(layer.intermediate(between))
                found["attention"].append((state, state + given))
                found["feed_forward"].append((between, between + more))
                found["layers"].append((state, after))
            return found
        for layer in range(model.config.num_hidden_layers):
            inside, outside = [], []
            with Control(model) as control:
                module = control.places["layers"][layer].module
                handle = module.register_forward_hook(
                    lambda _, args, output, into=inside: into.append(
                        (args[0], output if torch.is_tensor(output) else output[0])
                    )
                )
                model(**batch)
                control.set("neurons", layer, torch.zeros(model.config.to_dict().get("intermediate_size") or 96))
                model(**batch)
                handle.remove()
            (before, after), (_, between) = inside
            del outside
            bias = getattr(control.places["blocks"][layer].output, "bias", None)
            between = between if bias is None else between - bias
            found["attention"].append((before, between))
            found["feed_forward"].append((between, after))
            found["layers"].append((before, after))
    return found


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
@pytest.mark.parametrize("padding", ["left", "right"])
def test_scores_are_one_minus_cosine_over_valid_tokens(name, padding):
    model = zoo.build(name, layers=3)
    batches = [zoo.inputs(name, padding, seed=seed) for seed in (1, 2)]
    session, _ = search(model, batches, remove=f"{EVERYTHING}")
    layers, _ = search(model, batches, remove="layers:1")
    scores = {**session.scores, **layers.scores}
    by_batch = [streams_of(name, model, batch) for batch in batches]
    for sort in ("attention", "feed_forward", "layers"):
        for place in range(3):
            counts = [int(batch["attention_mask"].sum()) for batch in batches]
            parts = [
                count * turn(*streams[sort][place], batch["attention_mask"].bool())
                for count, streams, batch in zip(counts, by_batch, batches, strict=True)
            ]
            assert scores[sort][place] == pytest.approx(sum(parts) / sum(counts), rel=1e-3, abs=1e-5), (sort, place)


@pytest.mark.parametrize("name", zoo.CONFIGS)
def test_every_architectures_blocks_are_ranked(name):
    model = zoo.build(name)
    session, plan = search(model, [zoo.inputs(name)], remove=EVERYTHING)
    for scores in session.scores.values():
        assert all(0 < score < 2 for score in scores)
    for sort, scores in session.scores.items():
        assert session.chosen[sort] == [scores.index(min(scores))]
    assert plan.heads_removed == model_heads(plan, session.chosen["attention"][0])


def model_heads(plan, site):
    return plan.shapes["sites"][site].heads


class Sandwich(nn.Module):
    """x + norm(block(x)): what is added is what the norm gives."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.output, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x, attention_mask=None):
        return x + self.norm(nn.functional.dropout(self.output(x), 0.1, self.training))


def test_a_norm_behind_a_block_is_part_of_it():
    model, x = Sandwich(), torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))
    found = turns(model, [{"x": x}], {("attention", 0): model}, {})
    with torch.no_grad():
        expected = turn(x, x + model.norm(model.output(x)), torch.ones(2, 5, dtype=torch.bool))
    assert found["attention", 0] == pytest.approx(expected, rel=1e-4)


class Nowhere(Sandwich):
    def forward(self, x, attention_mask=None):
        return self.output(x)


def test_a_model_without_a_residual_stream_is_refused():
    model, x = Nowhere(), torch.randn(2, 5, 8)
    with pytest.raises(UnsupportedModelError, match="Nothing adds what place 0 of attention gives"):
        turns(model, [{"x": x}], {("attention", 0): model}, {})
    with pytest.raises(MethodError, match="no calibration data"):
        turns(model, [], {("attention", 0): model}, {})


# Which go


@pytest.mark.parametrize(
    ("sort", "path", "kind"),
    [
        ("attention", "self_attn.o_proj", "heads"),
        ("feed_forward", "mlp.down_proj", "neurons"),
        ("layers", None, "layers"),
    ],
)
@pytest.mark.parametrize("order", ["similarity", "greedy"])
def test_a_planted_block_that_does_nearly_nothing_goes_first(sort, path, kind, order):
    model = zoo.build("llama", layers=4)
    with torch.no_grad():
        for name in [path] if path else ["self_attn.o_proj", "mlp.down_proj"]:
            model.model.layers[2].get_submodule(name).weight.mul_(1e-4)
    session, plan = search(model, [zoo.inputs("llama", "left")], remove=f"{sort}:1", order=order)
    assert session.chosen == {sort: [2]}
    assert list(plan.removed_of(kind)) == [2]
    if sort == "attention":
        assert plan.removed_of("heads")[2] == (0, 1, 2, 3), "all heads of all groups"
    if order == "greedy":
        assert session.losses == pytest.approx([0.0, 0.0], abs=1e-5)


def test_the_last_go_first():
    session, plan = search(zoo.build("llama", layers=4), None, remove="feed_forward:1,attention:2", order="last")
    assert session.chosen == {"attention": [3, 2], "feed_forward": [3]}
    assert plan.heads_kept == [4, 4, 0, 0]
    _, plan = search(zoo.build("llama", layers=5), None, order="last")
    assert plan.heads_kept == [4, 4, 4, 4, 0], "a quarter of the attention blocks"
    _, plan = search(zoo.build("llama", layers=4), None, remove="layers:1,attention:1", order="last")
    assert (plan.layers, list(plan.removed_of("heads"))) == ((3,), [2]), "of the layers that stay"


def loss_without(model, plan, batches):
    small, total, count = trim(model, plan).eval(), 0.0, 0
    for batch in batches:
        with torch.no_grad():
            logits = small(**{name: part for name, part in batch.items() if name != "labels"}).logits
        scores = torch.log_softmax(logits[:, :-1], -1)
        for row, place in itertools.product(range(len(logits)), range(logits.shape[1] - 1)):
            wanted = int(batch["labels"][row, place + 1])
            if wanted != -100:
                total, count = total - float(scores[row, place, wanted]), count + 1
    return total / count


def test_greedy_takes_the_best_of_all_each_time():
    model = zoo.build("llama", layers=4)
    batches = [zoo.inputs("llama", seed=seed) for seed in (1, 2)]
    for batch in batches:
        batch["labels"] = batch["input_ids"].clone()
        batch["labels"][:, 0] = -100
    session, _ = search(model, batches, remove="attention:2,feed_forward:1", order="greedy")
    gone = {"heads": {}, "neurons": {}}
    assert session.losses[0] == pytest.approx(loss_without(model, Plan.of(model), batches), rel=1e-5)
    for step, (kind, units) in enumerate((("heads", 4), ("heads", 4), ("neurons", 32)), 1):
        losses = {}
        for place in set(range(4)) - set(gone[kind]):
            more = {**gone, kind: {**gone[kind], place: range(units)}}
            losses[place] = loss_without(model, Plan.of(model, **more), batches)
        best = min(losses, key=losses.get)
        gone[kind][best] = range(units)
        assert session.losses[step] == pytest.approx(losses[best], rel=1e-4)
    assert session.chosen == {"attention": list(gone["heads"]), "feed_forward": list(gone["neurons"])}


@pytest.mark.parametrize("head", [True, False])
def test_without_labels_greedy_keeps_the_outputs(head):
    model = classifier() if head else zoo.build("bert", layers=3)
    batch = zoo.inputs("bert", "right")

    def output(other):
        with torch.no_grad():
            found = other(**batch)
        return found.logits if head else found.last_hidden_state[batch["attention_mask"].bool()]

    session, _ = search(model, [batch], remove="layers:1", order="greedy")
    dense, apart = output(model), []
    for layer in range(model.config.num_hidden_layers):
        other = output(trim(model, Plan.of(model, layers=[layer])).eval())
        if head:
            logs = [torch.log_softmax(values, -1) for values in (other, dense)]
            apart.append(float((logs[1].exp() * (logs[1] - logs[0])).sum(-1).mean()))
        else:
            # a share of each layer's squares: with one layer, of all
            apart.append(float((other - dense).square().sum() / dense.square().sum()))
    assert session.losses == pytest.approx([0.0, min(apart)], rel=1e-3, abs=1e-6)
    assert session.chosen == {"layers": [apart.index(min(apart))]}


# Training


def test_it_chooses_at_the_start_and_learns_from_the_dense_model(tmp_path):
    model = classifier()
    before = tr.weights(model)
    trainer = tr.trainer(tmp_path, Similarity(remove="attention:2"), model)
    seen = []

    class Look(tf.TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            seen.append((trainer.session.chosen, trainer.plan().heads_removed))

    trainer.add_callback(Look())
    expected, _ = search(classifier(), list(trainer.session.calibration), remove="attention:2")
    trainer.train()
    assert seen == [(expected.chosen, 8)] * 20
    assert tr.same(tr.weights(trainer.teacher), before)
    assert trainer.distillation.logits == 1.0
    assert tr.trainer(tmp_path, Similarity(distill=False), classifier()).distillation is None


def test_a_new_task_head_is_trained_before_anything_goes(tmp_path):
    method = Similarity(remove="layers:1").starting_from(trained=False)
    assert method.dense == pytest.approx(1 / 3)
    assert Similarity(remove="layers:1").starting_from(trained=True).dense == 0
    assert Similarity(dense_share=0.5).starting_from(trained=False).dense == 0.5
    trainer = tr.trainer(tmp_path, method, classifier(), logging_steps=1)
    trainer.train()
    logged = [entry["blocks_removed"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged == [0] * 7 + [1] * 13
    assert trainer.teacher is not None


# Bad input


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"remove": "attention"}, "remove lists each type of block once, with a number of 1 or more"),
        ({"remove": "attention:0"}, "number of 1 or more"),
        ({"remove": "attention:1,attention:2"}, "each type of block once"),
        ({"remove": "atention:2"}, "Unknown type of block 'atention'. Did you mean 'attention'"),
        ({"remove": " "}, "such as attention:4"),
        ({"order": "first"}, "one of similarity, last, greedy"),
        ({"calibration_samples": 0}, "1 or more"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(MethodError, match=words):
        Similarity(**settings)


def test_what_cannot_go_is_said_at_once():
    model = zoo.build("llama", layers=2)
    for remove, most in (
        ("attention:3", "3 attention blocks should be removed; at most 2"),
        ("layers:2", "at most 1"),
    ):
        with pytest.raises(MethodError, match=most):
            Similarity(remove=remove).attach(model)
    with pytest.raises(MethodError, match="besides the others only 1 can be"):
        search(model, [zoo.inputs("llama")], remove="layers:1,attention:2")
    with pytest.raises(MethodError, match="all layers of a group share their weights"):
        Similarity(remove="layers:1").attach(zoo.build("albert"))
    with pytest.raises(MethodError, match=r"Similarity looks at data: search\(model, calibration"):
        Similarity().search(model)
    with pytest.raises(MethodError, match="no calibration data"):
        search(model, [], order="greedy", remove="attention:1")
    broken = zoo.build("llama", layers=2)
    with torch.no_grad():
        broken.model.layers[0].self_attn.o_proj.weight.fill_(math.nan)
    with pytest.raises(MethodError, match="not finite"):
        search(broken, [zoo.inputs("llama")], remove="attention:1")
    session = Similarity(order="last").attach(model)  # refused models are left as they were found
    session.detach()
