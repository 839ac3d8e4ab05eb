"""Runs as tasks of a Ray cluster, or of one that Ray starts on this machine. Ray is imported when it is used.

Runs start from directories of others and write to their own, so all machines must see the same files.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import AttentrimError, MissingExtraError
from .making import DONE, SETTINGS, make

RETRIES = 3
"""How often Ray starts a run again whose worker was lost."""
PATIENCE = 90.0
"""Seconds until a file that another machine has written must be seen here: network file systems show it late."""
SHARED = "--engine ray needs a file system that all machines share, for --output_dir and for what the runs read"


class OnRay:
    """One task per run, each in a process of its own."""

    def __init__(self, jobs: int | None) -> None:
        self.ray, self.connected_here = _connect()
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        self.jobs, cpus, gpus = divided(nodes, jobs)
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": RETRIES, "max_calls": 1}
        self.task = self.ray.remote(**options)(_run)
        self.running: set[Any] = set()
        self.stopped = False

    def run(self, directory: Path) -> str | None:
        if self.stopped:
            return "stopped"
        task = self.task.remote(str(directory.resolve()), os.getcwd())
        self.running.add(task)
        try:
            machine, reason = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            return _in_one_line(error)
        finally:
            self.running.discard(task)
        if reason is None and not _appears(directory / DONE):
            return f"{machine} made it, and its files are not here: {SHARED}"
        return None if reason is None else f"{reason} (on {machine})"

    def stop(self) -> None:
        self.stopped = True
        for task in list(self.running):
            self.ray.cancel(task, force=True)

    def close(self) -> None:
        if self.connected_here:
            self.ray.shutdown()


def _connect() -> tuple[Any, bool]:
    """Ray, connected to RAY_ADDRESS, to a cluster that runs here or to one of its own; whether it was not before."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "--engine ray") from error
    if ray.is_initialized():
        return ray, False
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise AttentrimError(
            f"Cannot connect to Ray: {_in_one_line(error)}. Set RAY_ADDRESS to a cluster that runs; "
            "without one (`ray stop` forgets the last), Ray starts on this machine."
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray's would end the command without a word
    return ray, True


def divided(nodes: Sequence[Mapping[str, float]], jobs: int | None) -> tuple[int, int, float]:
    """How many runs at a time, and CPUs and GPUs for each, on machines with such resources.

    By default one run per GPU, or per machine where there are none. More runs than GPUs share them; each has as many
    CPUs as leave room for all.
    """
    machines = [(int(node.get("CPU", 0)), int(node.get("GPU", 0))) for node in nodes]
    gpus = sum(gpu for _, gpu in machines)
    used = [(cpu, gpu) for cpu, gpu in machines if cpu and (gpu or not gpus)]
    jobs = jobs or gpus or max(1, len(used))
    sharing = math.ceil(jobs / gpus) if gpus else jobs

    def room(cpus: int) -> int:
        return sum(min(cpu // cpus, gpu * sharing if gpus else jobs) for cpu, gpu in used)

    fitting = [cpus for cpus in range(1, max((cpu for cpu, _ in used), default=1) + 1) if room(cpus) >= jobs]
    share = math.floor(1e4 / sharing) / 1e4 if gpus else 0.0  # Ray counts in steps of 0.0001, and would round up
    return jobs, max(fitting, default=1), share


def _run(directory: str, home: str) -> tuple[str, str | None]:
    """On a worker: its machine, and why the run failed, or None. Names of files are those of the comparison."""
    machine, place = socket.gethostname(), Path(directory)
    for path in (place / SETTINGS, Path(home)):
        if not path.exists():
            return machine, f"there is no {path} there: {SHARED}"
    if (place / DONE).is_file():  # its worker was lost between its end and its report
        return machine, None
    os.chdir(home)
    return machine, make(place)


def _appears(path: Path) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not path.is_file():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def _in_one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]
