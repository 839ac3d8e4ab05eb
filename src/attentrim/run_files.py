"""What a run leaves beside its checkpoint: history, metrics, config, attention, model card."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import TrainerCallback

from . import __version__
from .control import Control
from .methods.session import Session
from .modes import evaluating
from .plan import Plan
from .sites import find_sites

HISTORY, METRICS, CONFIG, ATTENTION, CARD, PLAN = (
    "history.jsonl",
    "metrics.json",
    "config.yaml",
    "attention.safetensors",
    "README.md",
    "plan.json",
)


class HistoryWriter(TrainerCallback):
    """One line of `history.jsonl` for each line of the log, with the gates of the moment. Written as it happens."""

    def __init__(self, directory: Path, trainer: Any) -> None:
        self.path = directory / HISTORY
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A fresh run starts a fresh file; one that goes on keeps what was before."""
        if not state.is_world_process_zero:
            return
        lines = self.path.read_text().splitlines() if state.global_step and self.path.is_file() else []
        kept = [line for line in lines if _step(line) <= state.global_step]
        self.path.write_text("".join(f"{line}\n" for line in kept))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        session: Session | None = self.trainer.session
        line = {
            "step": state.global_step,
            "epoch": state.epoch,
            **(logs or {}),
            **(session.record() if session else {}),
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _step(line: str) -> float:
    """The step of a line; never, where the line was cut off with the run that wrote it."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_yaml(path: Path, data: Mapping[str, Any]) -> None:
    import yaml

    path.write_text(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True), encoding="utf-8")


class AttentionLog:
    """The attention of a few sentences at several moments of a run, for one file at its end."""

    def __init__(self, tokenizer: Any, batches: Sequence[Mapping[str, Any]]) -> None:
        """`batches` hold one example each."""
        self.tokenizer = tokenizer
        self.batches = batches
        self.tensors: dict[str, torch.Tensor] = {}
        self.tokens: list[list[str]] = []

    @torch.no_grad()
    def take(self, model: Any, moment: str, session: Session | None = None) -> None:
        """Record each site's attention [heads, query, key]; sites without heads have none."""
        with evaluating(model), nullcontext(session.control) if session else Control(model) as control:
            self.tokens = []
            for number, batch in enumerate(self.batches):
                ids = batch["input_ids"].flatten(0, -2)[0]  # the first of several choices
                self.tokens.append(self.tokenizer.convert_ids_to_tokens(ids))
                with control.recording() as maps:
                    model(**{name: value.to(model.device) for name, value in batch.items()})
                for index, calls in maps.items():
                    name = f"{moment}.{number}.{index}"
                    self.tensors[name] = torch.stack(calls).mean(0)[0].half().cpu().contiguous()

    def write(self, path: Path) -> None:
        """Tensors are named moment.sentence.site; the tokens are in the file's metadata."""
        save_file(self.tensors, path, metadata={"tokens": json.dumps(self.tokens, ensure_ascii=False)})


def model_card(*, base: str, task: str, method: str, result: Mapping[str, Any], plan: Plan, model: Any) -> str:
    """A card in Markdown: what was trained on what, what was removed, and how to load it."""
    import transformers

    trimmed = result["trimmed"]
    heads = "\n".join(
        f"| {site.index} | {site.path} | {'uniform' if site.index in plan.uniform else f'{kept} of {shape.heads}'} |"
        for site, kept, shape in zip(find_sites(model), plan.heads_kept, plan.sites, strict=True)
    )
    numbers = "\n".join(f"| {name} | {value:.4f} |" for name, value in result["metrics"].items())
    needs = "import attentrim\n" if trimmed else ""
    return f"""---
library_name: transformers
tags: [attentrim]
---

# {base.rstrip("/").rpartition("/")[2]} on {task}, trained with {method}

Fine-tuned from `{base}` with attentrim {__version__} (transformers {transformers.__version__}, torch \
{torch.__version__}). {plan.heads_removed} of {plan.heads_total} attention heads \
{"are removed" if trimmed else "are to be removed (plan.json)"}, {len(plan.uniform)} of {len(plan.sites)} sites \
{"have" if trimmed else "are to have"} uniform attention; {result["parameters"]:,} parameters are left.

| metric ({result["examples"]} examples) | |
|---|---|
{numbers}

```python
{needs}from transformers import {type(model).__name__}

model = {type(model).__name__}.from_pretrained("...")
```

| site | module | heads kept |
|---|---|---|
{heads}
"""
