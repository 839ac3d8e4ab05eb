"""Runs in processes of their own that are killed, at a moment that is known beforehand."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

CONTEXT: Any = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["attentrim.runs.pipeline", "sklearn.metrics", "training"])
KILLED = 9


def in_process(target: Any, *args: Any) -> int:
    """How a process that runs `target` ended."""
    process = CONTEXT.Process(target=target, args=args)
    process.start()
    process.join()
    assert process.exitcode is not None
    return int(process.exitcode)


def die_at(moment: str, number: int) -> None:
    """End this process, as a kill does, in the so-many-th of its steps, batches of an evaluation, or writes.

    Moments: `save` (a write below a checkpoint), `finish` (a write of what a finished run has), `step`, `evaluation`.
    """
    if moment in ("step", "evaluation"):
        _die_at_call("training_step" if moment == "step" else "prediction_step", number)
    else:
        _die_at_write(number, in_checkpoint=moment == "save")


def _die_at_call(name: str, number: int) -> None:
    import transformers

    original, seen = getattr(transformers.Trainer, name), 0

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal seen
        seen += 1
        result = original(self, *args, **kwargs)
        if seen == number:
            os._exit(KILLED)
        return result

    setattr(transformers.Trainer, name, counted)


def _die_at_write(number: int, in_checkpoint: bool) -> None:
    """The file is there then, and empty or cut off: nothing is flushed, nothing is closed."""
    import safetensors.torch
    import torch
    import transformers.modeling_utils

    import attentrim.runs.attention

    seen = 0

    def count(path: Any) -> None:
        nonlocal seen
        if isinstance(path, str | os.PathLike) and _counts(str(path), in_checkpoint):
            seen += 1
            if seen == number:
                Path(path).parent.mkdir(exist_ok=True)
                with open(path, "ab") as file:
                    file.truncate(file.tell() // 2)
                os._exit(KILLED)

    def watch(event: str, args: Any) -> None:
        if (event == "open" and _writes(args[1], args[2])) or event == "os.rename":  # or before it takes its place
            count(args[0])

    def counted(save: Any) -> Any:
        """These write by code of their own, which no hook of Python sees."""

        def save_and_count(content: Any, path: Any, *args: Any, **kwargs: Any) -> None:
            save(content, path, *args, **kwargs)
            count(path)

        return save_and_count

    torch.save = counted(torch.save)
    saves_file = counted(safetensors.torch.save_file)
    transformers.modeling_utils.safe_save_file = attentrim.runs.attention.save_file = saves_file
    sys.addaudithook(watch)


FINISHED = ("plan.json", "model.safetensors", "config.json", "attention.safetensors", "metrics.json", "README.md")


def _counts(path: str, in_checkpoint: bool) -> bool:
    return in_checkpoint if "checkpoint-" in path else not in_checkpoint and path.endswith(FINISHED)


def _writes(mode: Any, flags: Any) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR)) if isinstance(flags, int) else "w" in str(mode)
