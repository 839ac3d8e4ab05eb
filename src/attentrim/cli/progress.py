"""A training bar that tells loss and gates in one line, where the stock one prints one dictionary per step."""

from __future__ import annotations

from typing import Any

from transformers import ProgressCallback

SHOWN = {"loss": "loss {:.3f}", "gates_open": "{} gates open", "budget_value": "held-out {:.3f}"}
HIDDEN = ("runtime", "per_second", "epoch", "gates_", "sparsity", "flos", "model_preparation_time")


class CompactProgress(ProgressCallback):
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self.training_bar is None or not logs:
            return
        parts = [text.format(logs[name]) for name, text in SHOWN.items() if name in logs]
        if parts and "loss" in logs:
            self.training_bar.set_postfix_str(", ".join(parts))
        evaluated = {name: value for name, value in logs.items() if name.startswith("eval_")}
        if evaluated:
            words = [f"{name.removeprefix('eval_')} {value:.4f}" for name, value in evaluated.items() if _plain(name)]
            gates = f", {logs['gates_open']} gates open" if "gates_open" in logs else ""
            self.training_bar.write(f"epoch {state.epoch:.2f}: {', '.join(words)}{gates}")


def _plain(name: str) -> bool:
    return not any(part in name for part in HIDDEN)
