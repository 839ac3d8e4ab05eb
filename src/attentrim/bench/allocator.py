"""How the C library hands out large buffers, which decides about a tenth of a model's time on a CPU."""

from __future__ import annotations

import ctypes
import platform

MMAP_MAX, TRIM_THRESHOLD = -4, -1
"""Parameters of glibc's mallopt: how many buffers come straight from the system; how much may lie idle."""


def keep_buffers() -> None:
    """Freed buffers stay with the process, as they do sooner or later in one that serves a model.

    Without it glibc gets large ones from the system and gives them back, until it has learned not to: what is measured
    then depends on what the process did before. Does nothing where the C library is another one.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(MMAP_MAX, 0)
    mallopt(TRIM_THRESHOLD, 2**31 - 1)
