"""What `train`, `evaluate` and `plan` share: the model, its tokenizer and the data of a task."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import AttentrimError, TaskError
from ..tasks import TASKS, Task
from .models import calm, check_model_name, explain, quiet
from .output import Output

MAX_LENGTH = 128


@dataclass
class Loaded:
    """A model ready for a task."""

    task: Task
    model: Any
    tokenizer: Any
    max_length: int
    data_dir: str

    def data(self, split: str, limit: int | None, output: Output) -> Any:
        """An encoded split; what was cut is said."""
        examples = self.examples(split, limit)
        data = self.task.encode(examples, self.tokenizer, self.max_length)
        if data.truncated:
            output.say(
                f"{data.truncated} of {len(data)} {split} examples are longer than {self.max_length} tokens: cut"
            )
        return data

    def examples(self, split: str, limit: int | None = None) -> Any:
        if limit is not None and limit < 1:
            raise AttentrimError(f"The number of {split} examples must be 1 or more. Got {limit}.")
        return self.task.load(self.data_dir, split)[:limit]


def load_for_task(args: argparse.Namespace, splits: Sequence[str], *, fresh_head: bool) -> Loaded:
    """The model that --model names with the head that --task needs: a fresh one for training, else the trained one."""
    task = TASKS[args.task]
    if args.data_dir is None:
        raise TaskError(
            f"Say where the data is: --data_dir, the directory that holds {' and '.join(task.files.values())}."
        )
    # find missing files before seconds are spent on the model
    for split in splits:
        task.path(args.data_dir, split)
    from ..cost import most_tokens

    model, tokenizer = _load(args.model, task, fresh_head)
    longest = most_tokens(model)
    if args.max_length is not None and not 8 <= args.max_length <= longest:
        raise AttentrimError(f"--max_length must be between 8 and {longest} for this model. Got {args.max_length}.")
    return Loaded(task, model, tokenizer, args.max_length or min(MAX_LENGTH, longest), args.data_dir)


def _load(name: str, task: Task, fresh_head: bool) -> tuple[Any, Any]:
    from transformers import AutoConfig, AutoTokenizer

    calm()
    with explain(f"Cannot load the model {name!r}"), quiet(fresh_head):
        check_model_name(name)
        if not fresh_head:
            _check_head(AutoConfig.from_pretrained(name), name, task)
        # weights that are stored in half precision are trained in full: mixed precision is what --bf16 is for
        settings = {**task.model_settings, "dtype": "float32"} if fresh_head else {}
        model = task.model_class.from_pretrained(name, **settings, ignore_mismatched_sizes=fresh_head)
    with explain(f"Cannot load the tokenizer of {name!r}"):
        tokenizer = AutoTokenizer.from_pretrained(name)
    if tokenizer.pad_token is None:
        # decoders come without one; their classifiers read the last token that is not padding
        if tokenizer.eos_token is None:
            raise TaskError(f"The tokenizer of {name} has no padding token and no end token to pad with.")
        tokenizer.pad_token = tokenizer.eos_token
        model.config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer


def _check_head(config: Any, name: str, task: Task) -> None:
    """A fresh, random head would be evaluated in silence."""
    heads = config.architectures or []
    if not any(head.endswith("ForSequenceClassification") for head in heads):
        saved = heads[0] if heads else "a bare model"
        raise TaskError(f"{name} has no classifier (it is {saved}): train it on {task.name} first.")
    if config.num_labels != len(task.labels):
        raise TaskError(f"{name} tells {config.num_labels} classes apart; {task.name} has {len(task.labels)}.")


def evaluate(task: Task, model: Any, data: Any, collator: Any, args: Any) -> dict[str, Any]:
    """The metrics of a model, under the keys that every command reports."""
    from transformers import Trainer

    trainer = Trainer(
        model=model, args=args, data_collator=collator, eval_dataset=data, compute_metrics=task.compute_metrics
    )
    return result_of(task, trainer.predict(data, metric_key_prefix="eval").metrics, len(data))


def result_of(task: Task, metrics: Any, examples: int) -> dict[str, Any]:
    values = {name: float(metrics[f"eval_{name}"]) for name in task.metrics}
    return {
        "task": task.name,
        "metric": task.metric,
        "value": values[task.metric],
        "metrics": values,
        "examples": examples,
    }


def metric_rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, f"{value:.4f}") for name, value in result["metrics"].items()]
