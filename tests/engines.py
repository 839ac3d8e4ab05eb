"""Engines that spread weights over processes, in two processes on a CPU: `launch` starts them, and this file is what
they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

ZERO = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
}
WHOLE_ON_SAVE = {"stage3_gather_16bit_weights_on_model_save": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "fsdp2": {"fsdp": True},
    "zero2": {"deepspeed": {**ZERO, "zero_optimization": {"stage": 2}}},
    # with its usual threshold, ZeRO-3 would leave a tiny model whole
    "zero3": {
        "deepspeed": {
            **ZERO,
            "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, **WHOLE_ON_SAVE},
        }
    },
}
"""TrainingArguments by engine."""
AS_IT_IS = ", as accelerate has it"
"""Behind the name of an engine; such jobs come first."""
Job = tuple[str, str, str, dict[str, Any]]
"""(name of a directory, engine, method as Python says it, what goes to `training.trained`)."""


def launch(place: Path, jobs: Sequence[Job], commands: Sequence[Sequence[str]] = ()) -> list[list[Any]]:
    """For each of two processes: what the jobs leave, and the exit codes of commands of attentrim, in order."""
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(20000 + (os.getpid() * 7 + len(jobs)) % 20000),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(place), json.dumps([list(jobs), [list(words) for words in commands]])],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=(place / f"{rank}.log").open("w"),
            stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]
    codes = [process.wait(timeout=900) for process in processes]
    assert codes == [0, 0], [(place / f"{rank}.log").read_text()[-3000:] for rank in range(2)]
    return [json.loads((place / f"{rank}.json").read_text()) for rank in range(2)]


@cache
def allow_fsdp_on_cpus() -> None:
    """torch's FSDP2 runs on CPUs; accelerate leaves it out there, and trains in plain data parallelism instead."""
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    init = AcceleratorState.__init__

    def init_with_fsdp(self: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        init(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            if self.mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self.mixed_precision)
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = init_with_fsdp


def _run(place: str, jobs: Sequence[Job], commands: Sequence[Sequence[str]]) -> None:
    import torch
    import training as tr

    import attentrim
    from attentrim.cli import main
    from attentrim.errors import AttentrimError

    found: list[Any] = []
    torch.set_num_threads(1)
    names = {name: getattr(attentrim, name) for name in attentrim.__all__}
    for name, engine, method, more in jobs:
        more = {"ddp_backend": "gloo", **SETTINGS[engine.removesuffix(AS_IT_IS)], **more}
        if not engine.endswith(AS_IT_IS):
            allow_fsdp_on_cpus()
        os.environ.pop("ACCELERATE_USE_FSDP", None)  # of the job before
        try:
            found.append(tr.trained(f"{place}/{name}", eval(method, names), **more))
        except AttentrimError as error:
            found.append(f"{type(error).__name__}: {error}")
    for words in commands:
        os.environ.pop("ACCELERATE_USE_FSDP", None)
        found.append(main(words))
    Path(place, f"{os.environ['RANK']}.json").write_text(json.dumps(found))
    torch.distributed.barrier()  # who leaves first takes the other's connection along
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    _run(sys.argv[1], *json.loads(sys.argv[2]))
