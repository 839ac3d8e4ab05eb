"""FSDP2 and DeepSpeed in two processes: the same plan and weights as plain data parallelism, whole checkpoints."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch
import training as tr
import transformers as tf
from close import assert_same_metrics
from commands import fails, run_json
from engines import AS_IT_IS, SETTINGS, launch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from attentrim import SMP, AttendOut, AutoAttention, Fisher, Plan, portable, trim
from attentrim.engines import engine_of
from attentrim.errors import TrainingError, UnsupportedModelError
from attentrim.sites import find_sites

FEW = {"fisher": "Fisher(speedup='1.3,1.6', cost='flops')"}
"""Fisher distils from the model that its dense steps leave, and saves a trimmed model between its two speeds."""
MORE = {
    "none": "None",
    "autoattention": "AutoAttention(target_sparsity=0.5)",
    "hisp": "HISP(rounds=2)",
    "l0": "L0(target_sparsity=0.5)",
    "neurons": "AutoAttention(target_sparsity=0.5, prune='heads,neurons')",
    "random-heads": "RandomHeads()",
    "uniform-sites": "UniformSites()",
    "fewer-layers": "FewerLayers()",
    "drophead": "DropHead()",
    "attention-dropout": "AttentionDropout()",
    "layerdrop": "LayerDrop()",
    "attention-layerdrop": "AttentionLayerDrop()",
    "scheduled-dropout": "ScheduledDropout()",
}
REFUSED = {
    "attendout": (AttendOut(), "AttendOut cannot train under {}: its networks exchange weights"),
    "smp": (SMP(), "SMP cannot train under {}: it runs the model without its task head"),
    "max_drop": (Fisher(max_drop=0.1), "Fisher cannot train under {}: max_drop goes back to the weights"),
}
NAMES = {"fsdp2": "FSDP2", "zero2": "DeepSpeed ZeRO-2", "zero3": "DeepSpeed ZeRO-3"}
SAVES = {"save_strategy": "steps", "save_steps": 6, "save_total_limit": 2}
needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")


class Found:
    """What two processes did under an engine, and in plain data parallelism before."""

    def __init__(self, engine, methods, place, home):
        self.engine, self.methods, self.place = engine, methods, place
        settings = {"fsdp2": ["--fsdp"]}.get(engine, ["--deepspeed", str(place / "zero.json")])
        (place / "zero.json").write_text(json.dumps(SETTINGS[engine].get("deepspeed")))
        command = [
            *("train", "--model", str(home / "tiny"), "--task", "cola", "--data_dir", str(home / "data")),
            *("--method", "hisp", "--max_steps", "6", "--per_device_train_batch_size", "8", "--no_bench"),
            *("--use_cpu", "--ddp_backend", "gloo", "--output_dir"),
        ]
        commands = [[*command, str(place / "plain")], [*command, str(place / "run"), *settings]]
        jobs = [("as-it-is", engine + AS_IT_IS, "None", {})] if engine == "fsdp2" else []
        jobs += [(f"ddp-{name}", "ddp", method, {}) for name, method in methods.items()]
        jobs += [(name, engine, method, SAVES if name == "fisher" else {}) for name, method in methods.items()]
        again = {**SAVES, "resume_from_checkpoint": str(place / "fisher" / "checkpoint-6")}
        jobs += [("fisher", engine, methods["fisher"], again)]
        jobs += [(name, engine, repr(method), {}) for name, (method, _) in REFUSED.items()]
        first, second = launch(place, jobs, commands)
        assert first == second  # gates, plans and weights, in both processes
        *self.results, plain, sharded = first
        assert (plain, sharded) == (0, 0)  # exit codes

    @property
    def as_it_is(self):
        return self.results[0]

    def trained(self, name):
        """In plain data parallelism, and under the engine."""
        start, number = int(self.engine == "fsdp2"), list(self.methods).index(name)
        return self.results[start + number], self.results[start + len(self.methods) + number]

    @property
    def resumed(self):
        return self.results[-len(REFUSED) - 1]

    @property
    def refusals(self):
        return dict(zip(REFUSED, self.results[-len(REFUSED) :], strict=True))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("fsdp2", FEW), id="fsdp2"),
        pytest.param(("fsdp2", {**FEW, **MORE}), id="fsdp2-all", marks=pytest.mark.slow),
        pytest.param(("zero2", {**FEW, **MORE}), id="zero2-all", marks=[pytest.mark.slow, needs_deepspeed]),
        pytest.param(("zero3", {**FEW, **MORE}), id="zero3-all", marks=[pytest.mark.slow, needs_deepspeed]),
    ],
)
def found(request, tmp_path_factory, home):
    engine, methods = request.param
    return Found(engine, methods, tmp_path_factory.mktemp(engine), home)


def assert_equal_runs(first, second):
    assert first["plan"] == second["plan"]
    for what in ("losses", "gates", "weights"):
        close = {"rtol": 1e-3, "atol": 1e-9} if what == "gates" else {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(torch.tensor(first[what]), torch.tensor(second[what]), **close)


def test_the_same_losses_gates_plan_and_weights_as_data_parallelism(found):
    for name in found.methods:
        plain, sharded = found.trained(name)
        assert (plain["engine"], sharded["engine"]) == (None, NAMES[found.engine])
        assert_equal_runs(plain, sharded)


def test_a_run_goes_on_from_its_checkpoint(found):
    _, undisturbed = found.trained("fisher")
    assert found.resumed["losses"][-6:] == undisturbed["losses"][-6:]
    assert found.resumed["weights"] == undisturbed["weights"]
    assert found.resumed["plan"] == undisturbed["plan"]


def test_a_model_on_the_way_is_trimmed_and_saved_whole(found):
    """The one that Fisher leaves for its first speed."""
    model = tf.BertForSequenceClassification.from_pretrained(found.place / "fisher" / "speedup-1.3")
    assert sum(parameter.numel() for parameter in model.parameters()) < sum(
        parameter.numel() for parameter in tr.classifier().parameters()
    )
    assert all(bool(parameter.any()) for parameter in model.parameters() if parameter.dim() == 2)


def test_the_run_directory_is_a_whole_trimmed_checkpoint(found, home, capsys):
    metrics = json.loads((found.place / "run" / "metrics.json").read_text())
    model = tf.AutoModelForSequenceClassification.from_pretrained(found.place / "run")
    assert type(model) is tf.BertForSequenceClassification
    assert [site.heads for site in find_sites(model)] == metrics["heads_kept"]
    assert sum(metrics["heads_kept"]) == 4
    assert metrics["masked_value"] == pytest.approx(metrics["value"], abs=1e-6)
    again = run_json(capsys, "evaluate", "--model", found.place / "run", "--task", "cola", "--data_dir", home / "data")
    assert_same_metrics(again, metrics)
    plain = tf.AutoModelForSequenceClassification.from_pretrained(found.place / "plain").state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, plain[name], rtol=1e-4, atol=1e-5)


def test_what_cannot_be_is_refused_by_name(found):
    for name, (_, words) in REFUSED.items():
        assert found.refusals[name].startswith(f"MethodError: {words.format(NAMES[found.engine])}")
    if found.engine == "fsdp2":
        assert found.as_it_is.startswith(
            "TrainingError: FSDP was requested, but accelerate does not use it on this cpu"
        )


# What can be told without other processes


class Plugin:
    fsdp_version, activation_checkpointing, cpu_ram_efficient_loading = 2, False, False


def fsdp_trainer(model, **settings):
    """As much of a Trainer under FSDP2 as is looked at before it trains."""

    class State:
        fsdp_plugin = Plugin()

    class Accelerator:
        state = State()

    class Fake:
        is_deepspeed_enabled, is_fsdp_enabled = False, True
        accelerator = Accelerator()

    vars(State.fsdp_plugin).update(settings)
    made = Fake()
    made.model = model
    return made


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fsdp_version": 1}, "FSDP1 is not supported"),
        ({"activation_checkpointing": True}, "use gradient_checkpointing instead"),
        ({"cpu_ram_efficient_loading": True}, "set it to false"),
    ],
)
def test_settings_of_fsdp_that_cannot_be(settings, words):
    assert engine_of(fsdp_trainer(tr.classifier())) == "FSDP2"
    with pytest.raises(TrainingError, match=words):
        engine_of(fsdp_trainer(tr.classifier(), **settings))


def test_weights_that_are_shared_with_the_embeddings_cannot_be_sharded():
    model = tf.BertForMaskedLM(tr.classifier().config)
    with pytest.raises(UnsupportedModelError, match=r"BertForMaskedLM: cls\.predictions\.bias is shared"):
        engine_of(fsdp_trainer(model))


def test_a_model_that_was_sharded_by_hand_is_refused_by_name():
    model = tr.classifier()
    plan = Plan.of(model, heads={0: [1]})
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        for copied in (trim, portable):
            with pytest.raises(UnsupportedModelError, match="fully_shard has spread its weights"):
                copied(model, plan)
    finally:
        torch.distributed.destroy_process_group()


def test_a_missing_deepspeed_names_its_extra(home, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("attentrim.runs.training.find_spec", lambda name: None)
    words = ["train", "--model", home / "tiny", "--task", "cola", "--data_dir", home / "data"]
    line = fails(capsys, *words, "--output_dir", tmp_path, "--deepspeed", "zero.json")
    assert line.endswith('pip install "attentrim[deepspeed]"')


def test_an_engine_needs_several_processes(tmp_path):
    with pytest.raises(TrainingError, match=r"^FSDP spreads weights over processes, and this is a single one"):
        tr.trainer(tmp_path, AutoAttention(), fsdp=True)


def test_an_engine_needs_several_processes_whatever_their_backend(home, tmp_path, capsys):
    words = ["train", "--model", home / "tiny", "--task", "cola", "--data_dir", home / "data"]
    line = fails(capsys, *words, "--output_dir", tmp_path, "--fsdp", "--ddp_backend", "gloo")
    assert "FSDP spreads weights over processes, and this is a single one" in line
