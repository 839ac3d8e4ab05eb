"""Tiny models, data and trainers for tests that train."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf
import zoo

import attentrim

KEY = 7
"""The token that tells the label: 1 where it stands anywhere behind the first position."""


def classifier(seed: int = 0, **config: Any) -> Any:
    torch.manual_seed(seed)
    settings = {**zoo.TEXT, **zoo.NO_DROPOUT, "num_labels": 2, **config}
    return tf.BertForSequenceClassification(tf.BertConfig(**settings))


def examples(count: int, seed: int = 0, length: int = 9) -> list[dict[str, Any]]:
    """Random tokens after a fixed first one; half of them with the key token somewhere."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(10, 80, (count, length), generator=generator)
    ids[:, 0] = 2
    labels = torch.arange(count) % 2
    places = torch.randint(1, length, (count,), generator=generator)
    ids[labels == 1, places[labels == 1]] = KEY
    return [{"input_ids": row, "labels": int(label)} for row, label in zip(ids, labels, strict=True)]


def batches(count: int = 2, size: int = 16, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    data = examples(count * size, seed)
    return [tf.default_data_collator(data[start : start + size]) for start in range(0, len(data), size)]


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def arguments(directory: Any, **more: Any) -> tf.TrainingArguments:
    settings = {
        "max_steps": 20,
        "per_device_train_batch_size": 16,
        "learning_rate": 1e-3,
        "logging_steps": 5,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "metric_for_best_model": "accuracy",
    }
    return tf.TrainingArguments(str(directory), **{**settings, **more})


def trainer(directory: Any, method: Any, model: Any = None, cls: Any = None, **more: Any) -> Any:
    """`more` goes to the Trainer where it knows the name, and else to TrainingArguments."""
    known_by_trainer = ("callbacks", "distillation", "teacher", "optimizers", "model_init")
    own = {name: more.pop(name) for name in known_by_trainer if name in more}
    known = {} if method is None and cls is tf.Trainer else {"method": method}
    made = (cls or attentrim.Trainer)(
        model=None if "model_init" in own else (model if model is not None else classifier()),
        args=arguments(directory, **more),
        train_dataset=examples(64),
        eval_dataset=examples(32, seed=1),
        compute_metrics=accuracy,
        **known,
        **own,
    )
    made.remove_callback(tf.PrinterCallback)
    return made


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
