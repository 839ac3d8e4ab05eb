"""An exported file as a model that an `Evaluation` can measure."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments

from ..errors import AttentrimError
from ..export.checking import open_session
from .evaluation import Evaluation


class ExportedModel(nn.Module):
    """Calls onnxruntime; takes and gives what a model of transformers does."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.session = open_session(Path(path))
        self.inputs = [entry.name for entry in self.session.get_inputs()]
        self.outputs = [entry.name for entry in self.session.get_outputs()]

    def forward(self, labels: Tensor | None = None, **batch: Tensor) -> dict[str, Tensor]:
        missing = [name for name in self.inputs if name not in batch]
        if missing:
            raise AttentrimError(f"The exported file takes the input {missing[0]!r}, which this task's data has not.")
        found = self.session.run(self.outputs, {name: batch[name].numpy() for name in self.inputs})
        outputs = {name: torch.from_numpy(value) for name, value in zip(self.outputs, found, strict=True)}
        # the Trainer asks for a loss where there are labels; no metric reads it
        return {"loss": torch.zeros(()), **outputs}


def values(evaluation: Evaluation, model: Any, path: str | Path) -> tuple[float, float]:
    """The metric of a model, and that of its exported file. Both on the CPU, where the file runs."""
    with tempfile.TemporaryDirectory() as directory:
        settings: dict[str, Any] = {
            "output_dir": directory,
            "per_device_eval_batch_size": evaluation.most_rows,
            "use_cpu": True,
            "report_to": [],
        }
        own, _ = evaluation.of_model(model, TrainingArguments(**settings))
        # columns that the file does not take are left out by the file's own list of inputs
        settings["remove_unused_columns"] = False
        exported, _ = evaluation.of_model(ExportedModel(path), TrainingArguments(**settings))
    return own["value"], exported["value"]
