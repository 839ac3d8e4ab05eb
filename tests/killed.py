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


def die_at_write(number: int) -> None:
    """End this process, as a kill does, in its so-many-th write of a file below a checkpoint.

    The file is there then, and empty or cut off: nothing is flushed, nothing is closed.
    """
    import safetensors.torch
    import torch
    import transformers.modeling_utils

    seen = 0

    def count(path: Any) -> None:
        nonlocal seen
        if isinstance(path, str | os.PathLike) and "checkpoint-" in str(path):
            seen += 1
            if seen == number:
                Path(path).parent.mkdir(exist_ok=True)
                with open(path, "ab") as file:
                    file.truncate(file.tell() // 2)
                os._exit(KILLED)

    def watch(event: str, args: Any) -> None:
        if event == "open" and _writes(args[1], args[2]):
            count(args[0])

    def counted(save: Any) -> Any:
        """These write by code of their own, which no hook of Python sees."""

        def save_and_count(content: Any, path: Any, *args: Any, **kwargs: Any) -> None:
            save(content, path, *args, **kwargs)
            count(path)

        return save_and_count

    torch.save = counted(torch.save)
    transformers.modeling_utils.safe_save_file = counted(safetensors.torch.save_file)
    sys.addaudithook(watch)


def _writes(mode: Any, flags: Any) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR)) if isinstance(flags, int) else "w" in str(mode)
