"""Where the data of a run comes from, by its settings; and what task data of the user's own makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import TaskError
from ..tasks import TASKS, Task
from ..tasks.examples import Columns, bad_row
from ..tasks.kinds import KINDS
from ..tasks.kinds.embedding import OF_PAIRS
from ..tasks.own import (
    TYPES,
    Given,
    check_classes,
    columns_of_texts,
    find_columns,
    infer_kind,
    kind_of_model,
    own_task,
)
from ..tasks.sources import SPLITS, CutTrain, Generated, HubCopy, LocalCopy, OwnFiles, Source
from .heads import class_names
from .remarks import Say
from .settings import TaskSettings, comma_separated

OF_OWN_DATA = ("text_column", "text_pair_column", "label_column", "choice_columns", "task_type")


def find_source(settings: TaskSettings) -> tuple[Task | None, Source]:
    """Where the data comes from. No task: the user's own data, which are still to be looked at."""
    settings = own_data_settings(settings)
    files = {split: file for split in SPLITS if (file := getattr(settings, f"{split}_file"))}
    named = [f"--{flag}" for flag in OF_OWN_DATA if getattr(settings, flag)]
    if settings.task:
        task = TASKS[settings.task]
        if files or named:
            flag = named[0] if named else f"--{next(iter(files))}_file"
            raise TaskError(f"{flag} is for data of your own: leave --task out, or {flag}.")
        return task, _published(task, settings)
    if settings.data_dir:
        raise TaskError("--data_dir holds the files of a published task: name it with --task.")
    if files and settings.dataset:
        raise TaskError("Give either files of your own or --dataset, not both.")
    if settings.dataset:
        own: Source = HubCopy(settings.dataset, Columns("text"), settings.dataset_config)
    elif files:
        own = OwnFiles(files, Columns("text"))
    else:
        raise TaskError("No data given: use --task NAME, --train_file FILE or --dataset NAME.")
    return None, own if own.has("validation") or not own.has("train") else CutTrain(own)


def own_data_settings(settings: TaskSettings) -> TaskSettings:
    """`--task mlm --train_file FILE` is `--task_type mlm`: files of one's own, for a task that is a type."""
    files = [file for split in SPLITS if (file := getattr(settings, f"{split}_file"))]
    if not files or settings.task not in TYPES:
        return settings
    if settings.task_type not in (None, settings.task):
        raise TaskError(f"--task is {settings.task} and --task_type {settings.task_type}: leave one of them out.")
    return replace(settings, task=None, task_type=settings.task)


def _published(task: Task, settings: TaskSettings) -> Source:
    if settings.data_dir and settings.dataset:
        raise TaskError("Give either --data_dir or --dataset, not both.")
    if task.generate is not None:
        if settings.data_dir or settings.dataset:
            raise TaskError(f"{task.name} is generated: leave --data_dir and --dataset out.")
        return Generated(task)
    if settings.data_dir:
        assert task.local is not None
        return LocalCopy(task, task.local, settings.data_dir)
    assert task.hub is not None
    return HubCopy.of(task.hub, settings.dataset, settings.dataset_config)


def task_of_own_data(
    settings: TaskSettings, source: Source, split: str, trained: Any, say: Say
) -> tuple[Task, Columns]:
    """For training, inferred from the training data; for a trained model, from its config (`trained`)."""
    wanted = given_columns(settings)
    table = source.table(split)
    if table.problems and not settings.skip_bad_rows:
        raise TaskError(bad_row(table.problems[0]))
    if wanted.kind == "embedding":
        columns = columns_of_texts(table, wanted, split != "train")
        say(_reading(columns))
        return _of_pairs(own_task(wanted.kind)) if wanted.pair else own_task(wanted.kind), columns
    if trained is not None:
        name = str(settings.model)
        if wanted.kind in KINDS and (refusal := KINDS[wanted.kind].refusal(trained)):
            raise TaskError(f"{name}: {refusal}.")
        wanted = replace(wanted, kind=_trained_kind(wanted, kind_of_model(trained, name), name))
    columns = find_columns(table, wanted)
    if wanted.kind is None:
        wanted = replace(wanted, kind=infer_kind(source.label_table(), columns))
        columns = find_columns(table, wanted)
    say(_reading(columns))
    if trained is not None:
        return own_task(str(wanted.kind), class_names(trained)), columns
    return _with_classes(own_task(str(wanted.kind)), source, columns), columns


def given_columns(settings: TaskSettings) -> Given:
    """What the settings say of data of the user's own."""
    settings = own_data_settings(settings)
    return Given(
        settings.task_type,
        settings.text_column,
        settings.text_pair_column,
        settings.label_column,
        tuple(comma_separated(settings.choice_columns or "")),
    )


def kind_of_settings(settings: TaskSettings) -> str | None:
    """The kind of task, where the settings alone say it."""
    if settings.task and settings.task in TASKS:
        return TASKS[settings.task].kind.name
    return own_data_settings(settings).task_type


def _of_pairs(task: Task) -> Task:
    """Human scores of pairs of texts come before a teacher's."""
    return replace(task, metrics=(OF_PAIRS, *task.metrics))


def _with_classes(task: Task, source: Source, columns: Columns) -> Task:
    """With the classes that the training data has."""
    if task.labels is not None:
        return task
    table = source.label_table()
    labels = task.labels_in(table, columns)
    check_classes(table, columns, labels, task.kind.name)
    return own_task(task.kind.name, labels)


def _reading(columns: Columns) -> str:
    parts = {"text": columns.text, "pair": columns.pair, "label": columns.label, "choices": ", ".join(columns.choices)}
    return "reading " + ", ".join(f"{what} from {name!r}" for what, name in parts.items() if name)


def _trained_kind(wanted: Given, kind: str, name: str) -> str:
    """What the model was trained for; what the settings say must fit it."""
    if ("classification" if wanted.kind == "pair" else wanted.kind) not in (None, kind):
        raise TaskError(f"--task_type is {wanted.kind}, and {name} was trained for {kind}: leave --task_type out.")
    return kind
