"""What a run leaves beside its checkpoint: history, metrics, config, attention. `recorded` reads them again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import TrainerCallback

from .checkpoint.stored import stored_plan
from .control import Control
from .methods.session import Session
from .modes import evaluating
from .recorded import HISTORY
from .sites import find_sites, unwrap


class HistoryWriter(TrainerCallback):
    """One line of `history.jsonl` for each line of the log, with the gates of the moment. Written as it happens."""

    def __init__(self, directory: Path, trainer: Any) -> None:
        self.path = directory / HISTORY
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A fresh run starts a fresh file, with what there is before the first step; one that goes on keeps it."""
        if not state.is_world_process_zero:
            return
        if state.global_step and self.path.is_file():
            lines = self.path.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if _step(line) <= state.global_step]
            self.path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        else:
            self.path.write_text("", encoding="utf-8")
            self._add(
                {"step": state.global_step, "epoch": state.epoch or 0.0, "heads": original_heads(self.trainer.model)}
            )

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._add({"step": state.global_step, "epoch": state.epoch, **(logs or {})})

    def _add(self, line: dict[str, Any]) -> None:
        session: Session | None = self.trainer.session
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, **(session.record() if session else {})}) + "\n")


def original_heads(model: Any) -> list[list[int]]:
    """By site, the heads that a model has, as the full model numbers them: a run may start from a trimmed one."""
    plan = stored_plan(unwrap(model))
    sites = find_sites(model)
    return [plan.kept("heads", site.index) if plan and site.heads else list(range(site.heads)) for site in sites]


def _step(line: str) -> float:
    """The step of a line; never, where the line was cut off with the run that wrote it."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


def changed_arguments(args: Any) -> dict[str, Any]:
    """The TrainingArguments that are not at their defaults.

    Without making others to compare with: that would reset what accelerate knows of the processes at work.
    """
    from transformers.trainer_pt_utils import AcceleratorConfig

    accelerate = AcceleratorConfig().to_dict()
    filled_in = {
        "disable_tqdm": args.disable_tqdm,  # a matter of looks
        "report_to": [],
        "debug": [],
        "hub_token": "<HUB_TOKEN>",
        "accelerator_config": {name: value for name, value in accelerate.items() if name != "use_configured_state"},
        "dataloader_pin_memory": not args.use_cpu,
    }
    stock = {entry.name: getattr(entry.default, "value", entry.default) for entry in fields(args)} | filled_in
    return {
        name: value
        for name, value in args.to_dict().items()
        if value != stock.get(name) and not (value in (None, {}, []) and stock.get(name) is MISSING)
    }


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_yaml(path: Path, data: Mapping[str, Any]) -> None:
    import yaml

    path.write_text(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True), encoding="utf-8")


class AttentionLog:
    """The attention of a few sentences at several moments of a run, for one file at its end."""

    def __init__(self, tokenizer: Any, batches: Sequence[Mapping[str, Any]], texts: Sequence[str] = ()) -> None:
        """`batches` hold one example each; `texts` are the examples as people wrote them."""
        self.tokenizer = tokenizer
        self.batches = batches
        self.texts = list(texts)
        self.tensors: dict[str, torch.Tensor] = {}
        self.tokens: list[list[str]] = []

    @torch.no_grad()
    def take(self, model: Any, moment: str, session: Session | None = None) -> None:
        """Record each site's attention [heads, query, key]; sites without heads have none."""
        with evaluating(model), nullcontext(session.control) if session else Control(model) as control:
            self.tokens = []
            for number, batch in enumerate(self.batches):
                ids = batch["input_ids"].flatten(0, -2)[0]  # the first of several choices
                self.tokens.append([self._text(token) for token in ids.tolist()])
                with control.recording() as maps:
                    model(**{name: value.to(model.device) for name, value in batch.items()})
                for index, calls in maps.items():
                    name = f"{moment}.{number}.{index}"
                    self.tensors[name] = torch.stack(calls).mean(0)[0].half().cpu().contiguous()

    def _text(self, token: int) -> str:
        """As people write it, where tokenizers have signs of their own for spaces and for bytes."""
        text = self.tokenizer.decode([token], clean_up_tokenization_spaces=False).strip()
        return text or str(self.tokenizer.convert_ids_to_tokens(token))

    def write(self, path: Path) -> None:
        """Tensors are named moment.sentence.site; tokens and texts are in the file's metadata."""
        words = {"tokens": self.tokens, "texts": self.texts}
        metadata = {name: json.dumps(value, ensure_ascii=False) for name, value in words.items()}
        save_file(self.tensors, path, metadata=metadata)
