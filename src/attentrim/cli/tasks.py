"""What `train`, `evaluate` and `plan` share: the model, its tokenizer and the data of a task."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from ..errors import AttentrimError, TaskError
from ..recorded import CONFIG
from ..tasks import TASKS, Task
from ..tasks.examples import Columns, Example, read_examples
from ..tasks.kinds import SHOWN_EXAMPLES, EncodedDataset, Encoding
from ..tasks.own import Given, check_classes, find_columns, infer_kind, kind_of_model, own_task
from ..tasks.sources import CutTrain, Generated, HubCopy, LocalCopy, OwnFiles, Source
from ..tasks.tables import Table
from .arguments import comma_separated, read_config
from .models import calm, check_model_name, explain, load_model, quiet
from .output import Output

MAX_LENGTH = 128
OWN_FILES = ("train", "validation", "test")


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
    """Whether the task head was made anew: the model has not been trained for the task."""
    output: Output

    def data(self, split: str, limit: int | None = None, labelled: bool = True) -> EncodedDataset:
        """An encoded split; what was cut or left out is said."""
        examples = self.examples(split, limit, labelled)
        encoding = Encoding(self.tokenizer, self.max_length, self.stride, fixed=split != "train")
        data = self.task.how.encode(examples, encoding)
        data.texts = [example.written for example in examples[:SHOWN_EXAMPLES]]
        if data.truncated:
            advice = "" if self.task.kind != "classification" else " (--window_stride reads long texts in windows)"
            self.output.say(
                f"{data.truncated} of {data.examples} {split} examples are longer than {self.max_length} tokens: "
                f"cut{advice}"
            )
        if data.groups is not None:
            self.output.say(f"{data.examples} {split} examples are read in {len(data)} windows")
        return data

    def examples(self, split: str, limit: int | None = None, labelled: bool = True) -> list[Example]:
        if limit is not None and limit < 1:
            raise AttentrimError(f"The number of {split} examples must be 1 or more. Got {limit}.")
        left_out: list[str] = []
        found = read_examples(
            self.table(split),
            self.columns,
            self.task.kind,
            self.task.named_labels,
            labelled,
            left_out if self.skip_bad_rows else None,
        )
        if left_out:
            self.output.say(f"{len(left_out)} rows are left out; the first: {left_out[0]}")
        return found[:limit]

    def table(self, split: str) -> Table:
        return _adapted(self.task, self.source.table(split))


def load_for_task(args: argparse.Namespace, splits: Sequence[str], output: Output, *, fresh_head: bool) -> Loaded:
    """The model that --model names with the head that --task needs: a fresh one for training, else the trained one."""
    task, source = find_source(args)
    for split in splits:
        source.check(split)
    if source.remark and "validation" in splits:
        output.say(source.remark)
    config = _config(args.model)
    if task is None:
        task, columns = _own_task(args, source, splits[0], None if fresh_head else config, output)
    else:
        columns = source.columns
        if task.labels is None and fresh_head:
            task = task.with_labels(task.labels_in(_adapted(task, source.label_table()), columns))
    if not fresh_head:
        task = _as_trained(task, config, args.model, output)
    if task.more_sets:
        missing = [name for name, split in task.more_sets.items() if not source.has(split)]
        for name in missing:
            output.say(f"there is no {name} set of {task.name} here: it is left out")
        task = replace(task, more_sets={n: split for n, split in task.more_sets.items() if n not in missing})
    from ..cost import most_tokens

    if type(config) not in task.how.model_class._model_mapping:
        raise TaskError(f"transformers has no {config.model_type} model for {task.kind}.")
    if not fresh_head:
        _take_over(args, output)
    model, tokenizer, fresh = _load(args.model, task, fresh_head, _dropout(config, getattr(args, "dropout", None)))
    if task.kind in ("classification", "tokens") and task.how.fits(config.architectures):
        put_in_order(model, class_names(config), task.named_labels, args.model)
    longest = most_tokens(model)
    if args.max_length is not None and not 8 <= args.max_length <= longest:
        raise AttentrimError(f"--max_length must be between 8 and {longest} for this model. Got {args.max_length}.")
    length = args.max_length or min(MAX_LENGTH, longest)
    if args.window_stride is not None and not (
        0 <= args.window_stride < length - 8 and task.kind in ("classification", "regression")
    ):
        raise AttentrimError(
            f"--window_stride is how many tokens two windows of a text to classify share: 0 to {length - 9} with "
            f"windows of {length}. Got {args.window_stride} for {task.name}."
        )
    return Loaded(
        task, source, columns, model, tokenizer, length, args.window_stride, bool(args.skip_bad_rows), fresh, output
    )


def _dropout(config: Any, rate: float | None) -> dict[str, float]:
    """All settings of a model's config that are rates of dropout, at the rate that is wanted."""
    if rate is None:
        return {}
    if not 0 <= rate < 1:
        raise AttentrimError(f"--dropout must be in [0, 1). Got {rate:g}.")
    known = {name for name, value in config.to_dict().items() if isinstance(value, float | int) and value is not False}
    return {name: rate for name in sorted(known) if re.search("dropout|pdrop", name)}


def _take_over(args: argparse.Namespace, output: Output) -> None:
    """How a run read its texts, unless told otherwise: another length would be another measurement."""
    file = Path(args.model) / CONFIG
    found = read_config(str(file)) if file.is_file() else {}
    for name in ("max_length", "window_stride"):
        if getattr(args, name) is None and isinstance(found.get(name), int):
            setattr(args, name, found[name])
            output.say(f"{name} is {found[name]}, as in training")


def find_source(args: argparse.Namespace) -> tuple[Task | None, Source]:
    """Where the data comes from, by the flags. No task: the user's own data, which are still to be looked at."""
    files = {split: getattr(args, f"{split}_file") for split in OWN_FILES if getattr(args, f"{split}_file")}
    named = [
        f"--{flag}"
        for flag in ("text_column", "text_pair_column", "label_column", "choice_columns", "task_type")
        if getattr(args, flag)
    ]
    if args.task:
        task = TASKS[args.task]
        if files or named:
            flag = named[0] if named else f"--{next(iter(files))}_file"
            raise TaskError(f"{flag} is for data of your own: leave --task out, or {flag}.")
        return task, _published(task, args)
    if args.data_dir:
        raise TaskError("--data_dir holds the files of a published task: name it with --task.")
    if files and args.dataset:
        raise TaskError("Give either files of your own or --dataset, not both.")
    if args.dataset:
        own: Source = HubCopy(args.dataset, Columns("text"), args.dataset_config)
    elif files:
        own = OwnFiles(files, Columns("text"))
    else:
        raise TaskError("Say what the data is: --task NAME, --train_file FILE, or --dataset NAME.")
    return None, own if own.has("validation") or not own.has("train") else CutTrain(own)


def _published(task: Task, args: argparse.Namespace) -> Source:
    if args.data_dir and args.dataset:
        raise TaskError("Give either --data_dir or --dataset, not both.")
    if task.generate is not None:
        if args.data_dir or args.dataset:
            raise TaskError(f"{task.name} is made on the spot: leave --data_dir and --dataset out.")
        return Generated(task)
    if args.data_dir:
        assert task.local is not None
        return LocalCopy(task, task.local, args.data_dir)
    assert task.hub is not None
    return HubCopy.of(task.hub, args.dataset, args.dataset_config)


def _adapted(task: Task, table: Table) -> Table:
    return task.adapt(table) if task.adapt else table


def _own_task(
    args: argparse.Namespace, source: Source, split: str, config: Any, output: Output
) -> tuple[Task, Columns]:
    """For training, by the look of the training data; for a trained model, by its config."""
    given = Given(
        args.task_type,
        args.text_column,
        args.text_pair_column,
        args.label_column,
        tuple(comma_separated(args.choice_columns or "")),
    )
    table = source.table(split)
    if table.problems and not args.skip_bad_rows:
        raise TaskError(table.problems[0])
    if config is not None:
        given = replace(given, kind=_trained_kind(given, kind_of_model(config, args.model), args.model))
    columns = find_columns(table, given)
    if given.kind is None:
        given = replace(given, kind=infer_kind(source.label_table(), columns))
        columns = find_columns(table, given)
    output.say(_reading(columns))
    if config is not None:
        kind = str(given.kind)
        return own_task(kind, class_names(config)), columns
    table = source.label_table()
    task = own_task(str(given.kind))
    if task.labels is None:
        labels = task.labels_in(table, columns)
        check_classes(table, columns, labels, task.kind)
        task = own_task(task.kind, labels)
    return task, columns


def _reading(columns: Columns) -> str:
    parts = {"text": columns.text, "pair": columns.pair, "label": columns.label, "choices": ", ".join(columns.choices)}
    return "reading " + ", ".join(f"{what} from {name!r}" for what, name in parts.items() if name)


def _trained_kind(given: Given, kind: str, name: str) -> str:
    """What the model was trained for; what was said must fit it."""
    said = "classification" if given.kind == "pair" else given.kind
    if said not in (None, kind):
        raise TaskError(f"--task_type is {given.kind}, and {name} was trained for {kind}: leave --task_type out.")
    return kind


def _config(name: str) -> Any:
    from transformers import AutoConfig

    calm()
    with explain(f"Cannot load the model {name!r}"):
        check_model_name(name)
        return AutoConfig.from_pretrained(name)


def _as_trained(task: Task, config: Any, name: str, output: Output) -> Task:
    """The task, if the model was trained for it."""
    _check_head(task, config, name)
    if task.kind not in ("classification", "tokens"):
        return task
    known = class_names(config)
    if task.labels is None:
        return task.with_labels(known)
    if len(known) != len(task.labels):
        raise TaskError(f"{name} tells {len(known)} classes apart; {task.name} has {len(task.labels)}.")
    if not _same_classes(known, task.labels) and not all(label.startswith("LABEL_") for label in known):
        output.say(
            f"{name} calls its classes {', '.join(known)}; they are taken for {', '.join(task.labels)}, in this order"
        )
    return task


def _check_head(task: Task, config: Any, name: str) -> None:
    """A fresh, random head would be evaluated, or distilled from, in silence."""
    heads = config.architectures or []
    if not task.how.fits(heads):
        saved = heads[0] if heads else "a bare model"
        raise TaskError(f"{name} has no head for {task.how.name} (it is {saved}): train it on {task.name} first.")


def class_names(config: Any) -> list[str]:
    return [str(config.id2label[index]) for index in sorted(config.id2label)]


def _same_classes(known: Sequence[str], labels: Sequence[str]) -> bool:
    return sorted(name.casefold() for name in known) == sorted(name.casefold() for name in labels)


def put_in_order(model: Any, known: Sequence[str], labels: Sequence[str], name: str) -> None:
    """Turn the head of a model that knows the same classes in another order."""
    folded, wanted = [label.casefold() for label in known], [label.casefold() for label in labels]
    if folded == wanted or not _same_classes(known, labels):
        return
    import torch

    order = [folded.index(label) for label in wanted]
    heads = [
        module
        for module in model.modules()
        if isinstance(module, torch.nn.Linear) and module.out_features == len(known)
    ]
    if len(heads) != 1:
        raise TaskError(f"{name} has its classes in another order ({', '.join(known)}), and its head was not found.")
    with torch.no_grad():
        for parameter in heads[0].parameters():
            parameter.copy_(parameter[order].clone())
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {label: index for index, label in enumerate(labels)}


def load_teacher(name: str, task: Task, bare: bool = False) -> Any:
    """The model to distil from, with the classes of the task in its order; a bare one is not asked for its answers."""
    if bare:
        return _load_model(name, task, fresh_head=True)[0]
    _check_head(task, _config(name), name)
    teacher = load_model(name)
    if task.kind in ("classification", "tokens"):
        known = class_names(teacher.config)
        if len(known) != len(task.named_labels):
            raise TaskError(
                f"The teacher {name} tells {len(known)} classes apart; there are {len(task.named_labels)}."
            )
        put_in_order(teacher, known, task.named_labels, name)
    return teacher


def _load(name: str, task: Task, fresh_head: bool, changes: Mapping[str, Any] | None = None) -> tuple[Any, Any, bool]:
    """Model and tokenizer, and whether any of the model's weights had to be made anew."""
    model, fresh = _load_model(name, task, fresh_head, changes)
    with explain(f"Cannot load the tokenizer of {name!r}"):
        tokenizer = _tokenizer(name, words=task.kind == "tokens")
    if tokenizer.pad_token is None:
        # decoders come without one; their classifiers read the last token that is not padding
        if tokenizer.eos_token is None:
            raise TaskError(f"The tokenizer of {name} has no padding token and no end token to pad with.")
        tokenizer.pad_token = tokenizer.eos_token
        model.config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer, fresh


def _load_model(name: str, task: Task, fresh_head: bool, changes: Mapping[str, Any] | None = None) -> tuple[Any, bool]:
    with explain(f"Cannot load the model {name!r}"), quiet(fresh_head):
        # weights that are stored in half precision are trained in full: mixed precision is what --bf16 is for
        settings = {**task.how.model_settings(task.named_labels), "dtype": "float32"} if fresh_head else {}
        model, found = task.how.model_class.from_pretrained(
            name, **settings, **(changes or {}), ignore_mismatched_sizes=fresh_head, output_loading_info=True
        )
    return model, bool(found["missing_keys"] or found["mismatched_keys"])


def _tokenizer(name: str, words: bool) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name)
    try:
        if words:
            tokenizer(["a", "b"], is_split_into_words=True)
    except (AssertionError, ValueError):
        # byte-level tokenizers take single words only so
        return AutoTokenizer.from_pretrained(name, add_prefix_space=True)
    return tokenizer


def evaluate(loaded: Loaded, model: Any, data: EncodedDataset, args: Any) -> tuple[dict[str, Any], Any]:
    """The metrics of a model, under the keys that every command reports, and what it put out."""
    from transformers import Trainer

    task = loaded.task
    trainer = Trainer(
        model=model,
        args=args,
        data_collator=task.how.collator(loaded.tokenizer),
        eval_dataset=cast("Any", data),
        compute_metrics=task.scorer(data),
        preprocess_logits_for_metrics=task.how.reduce,
    )
    found = trainer.predict(cast("Any", data), metric_key_prefix="eval")
    return result_of(task, found.metrics, data.examples), found.predictions


def result_of(task: Task, metrics: Any, examples: int) -> dict[str, Any]:
    """Without labels there are no metrics."""
    values = {name: float(metrics[f"eval_{name}"]) for name in task.metrics if f"eval_{name}" in metrics}
    return {
        "task": task.name,
        "metric": task.metric,
        "value": values.get(task.metric),
        "metrics": values,
        "examples": examples,
    }


def metric_rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, f"{value:.4f}") for name, value in result["metrics"].items()]
