"""Some virtual machines report CPU instructions that they cannot execute: bfloat16 products then kill the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

LIMIT = "ONEDNN_MAX_CPU_ISA"
SAFE = "AVX512_CORE_BF16"
TRIAL = """
import torch
with torch.inference_mode():
    states = torch.ones(128, 384, dtype=torch.bfloat16)
    torch.nn.Linear(384, 384, dtype=torch.bfloat16)(states) @ states.T
"""


def avoid_illegal_instructions() -> None:
    """Limit what oneDNN may use if bfloat16 kills a process here. Call it before torch is imported.

    Tried in a process of its own rather than always limited: where these instructions work they are the fast ones.
    """
    if LIMIT in os.environ:
        return
    trial = subprocess.run([sys.executable, "-c", TRIAL], capture_output=True, check=False)
    if trial.returncode == -signal.SIGILL:
        os.environ[LIMIT] = SAFE
