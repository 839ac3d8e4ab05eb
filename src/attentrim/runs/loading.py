"""The model, its tokenizer and the data of a task, as settings name them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..cost import most_tokens
from ..errors import AttentrimError, TaskError
from ..sentences.model import embeds
from ..tasks import Task
from ..tasks.examples import Columns, Example, read_examples
from ..tasks.kinds import SHOWN_EXAMPLES, EncodedDataset, Encoding
from ..tasks.own import Given, columns_of_texts
from ..tasks.sources import Source
from ..tasks.tables import Table
from .evaluation import Evaluation
from .files import read_config
from .heads import as_trained, class_names, put_in_order
from .models import load_config, silence_libraries
from .pretrained import dropout_settings, load_with_tokenizer
from .reader import CONFIG
from .remarks import Say
from .sentences import answer, prepared, usual_length
from .settings import TaskSettings
from .sources import find_source, given_columns, task_of_own_data

SHORTEST = 8
"""Tokens of an input, at least: fewer make no sense."""


@dataclass
class Loaded:
    """A model ready for a task, and the task's data."""

    task: Task
    source: Source
    columns: Columns
    model: Any
    tokenizer: Any
    max_length: int
    stride: int | None
    skip_bad_rows: bool
    fresh_head: bool
    """Whether the task head is new: the model has not been trained for the task."""
    say: Say
    given: Given | None = None
    """Which columns hold texts to embed: tables of one task may differ in them."""
    teacher: Any = None
    """The model whose sentence embeddings are the target, if that is the task."""
    device: Any = "cpu"
    """Where the teacher runs."""

    def data(self, split: str, limit: int | None = None, labelled: bool = True) -> EncodedDataset:
        """An encoded split; what was cut or left out is said."""
        if not self.task.kind.packs:
            return self._encoded(self.examples(split, limit, labelled), split)
        _check_limit(limit, split)
        blocks = self._encoded(self.examples(split, labelled=labelled), split)
        return blocks if limit is None else blocks.only(range(min(limit, len(blocks))))

    def samples(self, split: str, counts: Sequence[int], seed: int, labelled: bool = True) -> list[EncodedDataset]:
        """So many random examples each, none of them twice; fewer where a split is small, in proportion."""
        examples = self.examples(split, labelled=labelled)
        blocks = self._encoded(examples, split) if self.task.kind.packs else None
        total = len(examples) if blocks is None else len(blocks)
        order = random.Random(seed).sample(range(total), min(total, sum(counts)))
        share, found = len(order) / sum(counts), []
        for count in counts:
            size = max(1, round(share * count))
            chosen, order = order[:size] or [0], order[size:]
            if blocks is None:
                found.append(self._encoded([examples[index] for index in chosen], split))
            else:
                found.append(blocks.only(chosen))
        return found

    def _encoded(self, examples: list[Example], split: str) -> EncodedDataset:
        prepare = self.model.sentence_modules.prepared if embeds(self.model) else str
        encoding = Encoding(self.tokenizer, self.max_length, self.stride, split != "train", prepare)
        data = self.task.kind.encode(examples, encoding)
        data.texts = data.texts or [example.written for example in examples[:SHOWN_EXAMPLES]]
        if data.truncated:
            advice = " (--window_stride reads long texts in windows)" if self.task.kind.windows else ""
            self.say(
                f"{data.truncated} of {data.examples} {split} examples are longer than {self.max_length} tokens: "
                f"cut{advice}"
            )
        if data.blank:
            self.say(f"{data.blank} {split} examples have no text: left out")
        if data.groups is not None:
            self.say(f"{data.examples} {split} examples are read in {len(data)} windows")
        return data

    def examples(self, split: str, limit: int | None = None, labelled: bool = True) -> list[Example]:
        _check_limit(limit, split)
        left_out: list[str] = []
        table = self.table(split)
        if table.blank and embeds(self.model):
            self.say(f"{table.origin}: {table.blank} blank lines are left out")
        found = read_examples(
            table,
            self.columns if self.given is None else columns_of_texts(table, self.given, split != "train"),
            self.task.kind.name,
            self.task.named_labels,
            labelled,
            left_out if self.skip_bad_rows else None,
        )
        if left_out:
            self.say(f"{len(left_out)} rows are left out; the first: {left_out[0]}")
        return found[:limit]

    def table(self, split: str) -> Table:
        return adapted(self.task, self.source.table(split))

    def evaluation(self, data: EncodedDataset, limit: int | None = None, more_sets: bool = True) -> Evaluation:
        """How models are evaluated on `data` and, with `more_sets`, on the first `limit` rows of the task's others."""

        def another(split: str) -> Evaluation:
            return self.evaluation(self.data(split, limit), more_sets=False)

        task = self.task
        if embeds(self.model):
            answer(self, data)
        return Evaluation(
            task=task.name,
            metric=task.metric,
            data=data,
            examples=data.examples,
            data_collator=task.kind.collator(self.tokenizer),
            compute_metrics=task.scorer(data),
            reduce_outputs=task.kind.reduce,
            names=task.metrics,
            most_rows=task.kind.most_rows,
            more_sets={name: partial(another, split) for name, split in task.more_sets.items() if more_sets},
            judge=task.scorer(data) if task.kind.embeds else None,
        )


def _check_limit(limit: int | None, split: str) -> None:
    if limit is not None and limit < 1:
        raise AttentrimError(f"The number of {split} examples must be 1 or more. Got {limit}.")


def load_for_task(
    settings: TaskSettings, splits: Sequence[str], say: Say, *, fresh_head: bool, dropout: float | None = None
) -> Loaded:
    """The model with the head that the task needs: a fresh one for training, else the trained one."""
    name = str(settings.model)
    task, source = find_source(settings)
    for split in splits:
        source.check(split)
    silence_libraries()
    config = load_config(name)
    if task is None:
        task, columns = task_of_own_data(settings, source, splits[0], None if fresh_head else config, say)
    else:
        columns = source.columns
        if task.labels is None and fresh_head:
            task = task.with_labels(task.labels_in(adapted(task, source.label_table()), columns))
    if task.kind.packs:
        source.as_running_text()
    if source.remark and "validation" in splits:
        say(source.remark)
    if refusal := task.kind.refusal(config):
        raise TaskError(f"{name}: {refusal}.")
    if not fresh_head:
        task = as_trained(task, config, name, say)
        settings = _as_in_training(settings, say)
    task = _with_sets_at_hand(task, source, say)
    model, tokenizer, fresh = load_with_tokenizer(name, task, fresh_head, dropout_settings(config, dropout))
    if task.kind.classes and task.kind.fits(config.architectures):
        put_in_order(model, class_names(config), task.named_labels, name)
    if task.kind.embeds:
        model = prepared(model, name, settings.max_length, say)
    length, stride = _length(settings, model, task), settings.window_stride
    _check_stride(stride, length, task)
    own = given_columns(settings) if embeds(model) and not find_source(settings)[0] else None
    return Loaded(task, source, columns, model, tokenizer, length, stride, settings.skip_bad_rows, fresh, say, own)


def adapted(task: Task, table: Table) -> Table:
    return task.adapt(table) if task.adapt else table


def _with_sets_at_hand(task: Task, source: Source, say: Say) -> Task:
    """Without those of the task's other sets that are missing here."""
    missing = [name for name, split in task.more_sets.items() if not source.has(split)]
    for name in missing:
        say(f"there is no {name} set of {task.name} here: it is left out")
    return replace(task, more_sets={name: split for name, split in task.more_sets.items() if name not in missing})


def _as_in_training(settings: TaskSettings, say: Say) -> TaskSettings:
    """How a run read its texts, unless told otherwise: another length would be another measurement."""
    file = Path(str(settings.model)) / CONFIG
    found = read_config(file, follow=False) if file.is_file() else {}
    for name in ("max_length", "window_stride"):
        if getattr(settings, name) is None and isinstance(found.get(name), int):
            settings = replace(settings, **{name: found[name]})
            say(f"{name} is {found[name]}, as in training")
    return settings


def _length(settings: TaskSettings, model: Any, task: Task) -> int:
    longest, wanted = most_tokens(model), settings.max_length
    if wanted is not None and not SHORTEST <= wanted <= longest:
        raise AttentrimError(f"--max_length must be between {SHORTEST} and {longest} for this model. Got {wanted}.")
    return wanted or usual_length(model, min(task.max_length or task.kind.max_length, longest))


def _check_stride(stride: int | None, length: int, task: Task) -> None:
    if stride is not None and not (0 <= stride < length - SHORTEST and task.kind.windows):
        raise AttentrimError(
            "--window_stride is how many tokens two windows of a text to classify share: "
            f"0 to {length - SHORTEST - 1} with windows of {length}. Got {stride} for {task.name}."
        )
