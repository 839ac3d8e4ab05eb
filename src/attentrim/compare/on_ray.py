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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import AttentrimError, MissingExtraError
from .making import DONE, SETTINGS, make

RETRIES = 3
"""How often Ray starts a run again whose worker was lost."""
PATIENCE = 90.0
"""Seconds until a file that another machine has written must be seen here: network file systems show it late."""
LAST_CLUSTER = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp", "ray", "ray_current_cluster")
"""Where `ray start` leaves the address that Ray connects to unless told otherwise."""
SHARED = "--engine ray needs a file system that all machines share, for --output_dir and for what the runs read"


class OnRay:
    """One task per run, each in a process of its own."""

    def __init__(self, jobs: int | None) -> None:
        self.ray, self.connected_here = _connect()
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        self.jobs, cpus, gpus = divided(nodes, jobs)
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": RETRIES, "max_calls": 1}
        self.task = self.ray.remote(**options)(_task())
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
            return _in_one_line(getattr(error, "cause", None) or error)
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
        import ray.exceptions
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "--engine ray") from error
    if ray.is_initialized():
        return ray, False
    _check_address()
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise AttentrimError(f"Cannot connect to Ray: {_in_one_line(error)}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray's would end the command without a word
    return ray, True


def _check_address() -> None:
    """Raise if the cluster that Ray will connect to does not answer: Ray itself would try for a quarter of an hour."""
    if os.environ.get("RAY_ADDRESS"):
        address, fix = os.environ["RAY_ADDRESS"], "correct or unset RAY_ADDRESS"
    elif LAST_CLUSTER.is_file():
        address, fix = LAST_CLUSTER.read_text(encoding="utf-8").strip(), f"start it again, or delete {LAST_CLUSTER}"
    else:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():  # 'auto', 'local', or of a kind that has a protocol of its own
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise AttentrimError(f"There is no Ray cluster at {address} ({error}): {fix}.") from error


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


def _task() -> Callable[[str, str], tuple[str, str | None]]:
    """What a worker is sent: its machine, and why the run failed, or None.

    A function within another travels as it is; one of a module would be looked for there before it could complain.
    """

    def run(directory: str, home: str) -> tuple[str, str | None]:
        import socket

        machine = socket.gethostname()
        try:
            from attentrim.compare.on_ray import make_there
        except ImportError as error:
            return machine, f"this version of attentrim is not installed there ({error})"
        return machine, make_there(Path(directory), Path(home))

    return run


def make_there(directory: Path, home: Path) -> str | None:
    """On a worker: why the run failed, or None. `home` is where the names of files start."""
    for path in (directory / SETTINGS, home):
        if not path.exists():
            return f"there is no {path} there: {SHARED}"
    if (directory / DONE).is_file():  # its worker was lost between its end and its report
        return None
    os.chdir(home)
    return make(directory)


def _appears(path: Path) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not path.is_file():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def _in_one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]
