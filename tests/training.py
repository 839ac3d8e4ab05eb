"""Tiny models, data and trainers for tests that train."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf
import zoo

import attentrim
from attentrim.duplicate import whole

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
    known_by_trainer = ("callbacks", "data_collator", "distillation", "teacher", "optimizers", "model_init")
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


def trained(directory: Any, method: Any, resume_from_checkpoint: str | None = None, **more: Any) -> dict[str, Any]:
    """What 12 steps leave: plan, losses, gates or generator, weights; as JSON can hold it."""
    model = classifier()
    zoo.liven(model)  # else gates hardly have gradients
    made = trainer(directory, method, model, max_steps=12, logging_steps=1, **more)
    session = made.session
    if hasattr(session, "masks"):
        _draw_alike(session)
    made.train(resume_from_checkpoint)
    gates = [getattr(session, name, None) for name in ("parameters", "scores", "judged")]
    networks = session.networks.parameters() if hasattr(session, "networks") else ()
    return {
        "plan": {key: value for key, value in made.plan().to_dict().items() if key != "made_by"},
        "processes": made.args.world_size,
        "engine": made.engine,
        "losses": [line["loss"] for line in made.state.log_history if "loss" in line],
        "gates": [part.tolist() for part in gates if torch.is_tensor(part)],
        "generator": [float(parameter.detach().double().abs().sum()) for parameter in networks],
        "weights": [float(parameter.detach().double().abs().sum()) for parameter in whole(made.model).parameters()],
    }


def _draw_alike(session: Any) -> None:
    """Random numbers that every batch has in common: else those of a process are its own."""

    def sample(draw: Any, logits: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(logits.shape, generator=torch.Generator().manual_seed(0))
        return noise < torch.sigmoid(logits)

    session.masks.sample = sample
    if session.held_out is not None:
        held_out, draw = session.held_out, session.held_out.draw

        def draw_again(count: int) -> Any:
            held_out.random.manual_seed(0)
            return draw(count)

        held_out.draw = draw_again


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
