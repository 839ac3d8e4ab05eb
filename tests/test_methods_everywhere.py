"""AutoAttention and AttendOut on every architecture and task head, and methods in two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import training as tr
import transformers as tf
import zoo

from attentrim import HISP, L0, SMP, AttendOut, AutoAttention, Fisher, trim
from attentrim.errors import MethodError

TEXT_HEADS = {
    "AutoModelForSequenceClassification": lambda ids: torch.tensor([0, 1, 0]),
    "AutoModelForTokenClassification": lambda ids: ids % 2,
    "AutoModelForMaskedLM": lambda ids: ids,
    "AutoModelForCausalLM": lambda ids: ids,
    "AutoModelForSeq2SeqLM": lambda ids: ids,
    "AutoModelForMultipleChoice": lambda ids: torch.tensor([0, 1, 0]),
    "AutoModelForQuestionAnswering": None,
    "AutoModelForImageClassification": lambda ids: torch.tensor([0, 1, 0]),
    "AutoModelForAudioClassification": lambda ids: torch.tensor([0, 1, 0]),
}


def batch_for(name, head):
    """Inputs with the labels that a head wants."""
    batch = zoo.inputs(name, "none" if name in zoo.WITHOUT_PADDING else "right")
    batch.pop("decoder_input_ids", None)
    ids = batch.get("input_ids")
    if head == "AutoModelForQuestionAnswering":
        return {**batch, "start_positions": torch.tensor([1, 2, 0]), "end_positions": torch.tensor([2, 3, 1])}
    if head == "AutoModelForMultipleChoice":
        batch = {key: torch.stack([value, value.roll(1, 0)], 1) for key, value in batch.items()}
    labels = TEXT_HEADS[head](ids)
    if name in zoo.SEQ2SEQ and head == "AutoModelForSequenceClassification":
        batch["input_ids"][:, -1] = tf.AutoConfig.for_model(name).eos_token_id  # its classifier reads the end token
        batch.pop("attention_mask", None)
    return {**batch, "labels": labels}


def cases():
    for name, make in zoo.CONFIGS.items():
        for head in TEXT_HEADS:
            mapping = getattr(tf, head)._model_mapping
            if name != "clip" and type(make()) in mapping:
                yield name, head


@pytest.mark.parametrize(("name", "head"), cases())
def test_gates_learn_and_the_plan_trims_under_every_head(name, head):
    """Three steps to a target: every gate gets a gradient, the count is exact, masked = trimmed."""
    torch.manual_seed(0)
    model = getattr(tf, head).from_config(zoo.CONFIGS[name]())
    zoo.liven(model)
    batch = batch_for(name, head)
    session = AutoAttention(target_sparsity=0.5, ramp_share=1.0, settle_share=0.0).attach(model, steps=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    session.follow(optimizer)
    reached = torch.zeros(session.count, dtype=torch.bool)
    for _ in range(3):
        model.train()
        model(**batch).loss.backward()
        gradient = session.training_gates().grad
        assert gradient.isfinite().all()
        reached |= gradient != 0
        optimizer.step()
        optimizer.zero_grad()
    session.finish()
    assert reached.all()
    plan = session.plan()
    heads_per_gate = session.units.sites[0].heads_per_group
    assert plan.heads_removed == round(session.count / 2) * heads_per_gate
    model.eval()
    with torch.no_grad():
        masked, trimmed = model(**batch).loss, trim(model, plan).eval()(**batch).loss
    torch.testing.assert_close(trimmed, masked, rtol=1e-5, atol=1e-5)


class Held:
    """Held-out data of one batch."""

    def __init__(self, batch):
        self.batch = batch

    def __len__(self):
        return 64

    def draw(self, count):
        return [dict(self.batch)]


def play(model, batch, steps=4, **settings):
    session = AttendOut(**settings).attach(model, steps=steps, held_out=Held(batch))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def run():
        model.train()(**batch).loss.backward()

    for _ in range(steps):
        session.start_step()
        session.run_batch(run, batch)
        session.before_optimizer_step()
        optimizer.step()
        session.after_optimizer_step(optimizer, lambda: None)
        optimizer.zero_grad()
    session.finish()
    return session


@pytest.mark.parametrize(("name", "head"), cases())
def test_the_generator_learns_under_every_head(name, head):
    """The papers' estimator and the default's: every site is masked, and the generator moves."""
    for settings in ({"preset": "v1", "embedding": "model"}, {"generator_warmup": 0.0, "draws": 2}):
        torch.manual_seed(0)
        model = getattr(tf, head).from_config(zoo.CONFIGS[name]())
        zoo.liven(model)
        fresh = AttendOut(window=2, **settings).attach(model)
        before = [parameter.detach().clone() for parameter in fresh.networks.parameters()]
        fresh.detach()
        session = play(model, batch_for(name, head), window=2, **settings)
        assert set(session.records.rates) == set(session.sites)
        assert all(0 < rate < 1 for rate in session.records.rates.values())
        after = list(session.networks.parameters())
        assert all(parameter.isfinite().all() for parameter in after)
        assert any(not torch.equal(first, second) for first, second in zip(before, after, strict=True))
        session.detach()


@pytest.mark.parametrize("name", sorted(set(zoo.CONFIGS) - {"clip"}))
def test_a_generator_with_its_own_embedding(name):
    head = next(head for other, head in cases() if other == name)
    torch.manual_seed(0)
    model = getattr(tf, head).from_config(zoo.CONFIGS[name]())
    if name == "wav2vec2":
        with pytest.raises(MethodError, match="set embedding='model'"):
            play(model, batch_for(name, head), preset="v1", window=2)
        return
    session = play(model, batch_for(name, head), preset="v1", window=2)
    assert all(0 < rate < 1 for rate in session.records.rates.values())


PARALLEL = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch, training as tr
from attentrim import *
torch.set_num_threads(1)
for place, method in enumerate(sys.argv[3:]):
    print(json.dumps(tr.trained(f"{sys.argv[2]}/{place}", eval(method), ddp_backend="gloo")))
torch.distributed.barrier()  # who leaves first takes the other's connection along
torch.distributed.destroy_process_group()
"""
IN_TWO_PROCESSES = {
    "none": None,
    "autoattention": AutoAttention(gate_lr=20.0),
    "l0": L0(target_sparsity=0.5),
    "hisp": HISP(rounds=2),
    "fisher": Fisher(speedup=1.5, cost="flops"),
    "smp": SMP(search_steps=2, map_length=8),
    "attendout-v1": AttendOut(preset="v1", window=3, generator_lr=0.01, prune_count=1),
    "attendout-v2": AttendOut(preset="v2", window=3, generator_lr=0.01),
    "attendout": AttendOut(reward_source="dev", estimate_samples=32, window=3, prune_count=1),
}


@pytest.fixture(scope="module")
def in_two_processes(tmp_path_factory):
    """What each of two processes has in the end, by method: one after the other, since to start takes longest."""
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(20000 + os.getpid() % 20000),
        "ACCELERATE_USE_CPU": "true",
    }
    words = [str(Path(__file__).parent), str(tmp_path_factory.mktemp("two")), *map(repr, IN_TWO_PROCESSES.values())]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PARALLEL, *words],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=480) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], [err[-2000:] for _, err in outputs]
    found = ([json.loads(line) for line in out.splitlines() if line.startswith('{"plan')] for out, _ in outputs)
    return dict(zip(IN_TWO_PROCESSES, zip(*found, strict=True), strict=True))


@pytest.mark.parametrize("name", IN_TWO_PROCESSES)
def test_two_processes_agree(name, in_two_processes):
    """Each sees other batches; gates, plans and weights stay the same in both."""
    first, second = in_two_processes[name]
    assert first["processes"] == 2
    assert first == second


@pytest.mark.parametrize("name", [name for name in IN_TWO_PROCESSES if name != "smp"])
def test_two_processes_are_one_that_accumulates_two_batches(name, in_two_processes, tmp_path):
    """Losses, gates and weights. Not SMP's: it looks at as many batches more as there are processes."""
    both, _ = in_two_processes[name]
    alone = tr.trained(tmp_path, IN_TWO_PROCESSES[name], gradient_accumulation_steps=2)
    assert both["plan"] == alone["plan"]
    for what in ("losses", "gates", "generator", "weights"):
        close = {"rtol": 1e-3, "atol": 1e-9} if what == "gates" else {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(torch.tensor(both[what]), torch.tensor(alone[what]), **close)
