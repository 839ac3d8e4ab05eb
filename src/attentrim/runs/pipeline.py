"""From settings to a finished run directory. `attentrim train` and each run of `attentrim compare` are this."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback, TrainingArguments, set_seed

from ..cost import most_speedup, most_tokens
from ..distillation import FLAGS, OF_EMBEDDINGS, Distillation
from ..distillation.teacher import copy_as_teacher
from ..errors import MethodError, TrainingError
from ..methods import Method
from ..methods.base import TRAINING_DEFAULTS, distillation_for
from ..resuming import weights_digest
from ..sharding import loading_whole
from ..structures import STRUCTURES
from ..tasks import Task
from ..tasks.kinds import KINDS, SHOWN_EXAMPLES, SHOWN_TOKENS, EncodedDataset
from ..tasks.kinds.embedding import Embedding
from ..tasks.metrics import LOWER_IS_BETTER
from ..trainer import Trainer
from . import sentences
from .adapters import LEARNING_RATE, check_adapters, with_adapters
from .directories import check_output_dir
from .embedded import embedded_model
from .evaluation import Evaluation
from .finish import Finished, finish
from .headline import times
from .loading import Loaded, load_for_task
from .occupied import checkpoint_to_resume, clear_run, locked, remove_checkpoints
from .pretrained import load_teacher, load_tokenizer
from .remarks import Say, ignore
from .settings import RunSettings, read_method
from .sources import kind_of_settings
from .stopping import StopOnSignal
from .training import DEFAULTS, arguments_to_record, training_arguments
from .writer import RunWriter

LENGTH = 128
"""Tokens of the sequence that FLOPs are counted for, where the model has positions for as many."""
FAR = 10.0
"""A speed-up that nobody expects: a limit beyond it is not mentioned."""
ADAPTERS = ("lora_rank", "lora_alpha", "lora_targets")
STATES_ALONE = "Only hidden states were distilled, so the model's predictions and its metric mean nothing."


def run(
    settings: RunSettings,
    *,
    say: Say = ignore,
    progress: type[TrainerCallback] | None = None,
    stoppable: bool = False,
) -> Finished:
    """Train, trim, save, evaluate and time a model, and write everything into `settings.output_dir`.

        from attentrim.runs.pipeline import run
        from attentrim.runs.settings import RunSettings

        finished = run(RunSettings(model="bert-base-uncased", task="cola", output_dir="run", method="hisp"))
        print(finished.result["value"])

    Args:
        say: Called with each remark, one sentence at a time.
        progress: Shows the progress of training in place of the Trainer's own bar.
        stoppable: Whether SIGTERM and Ctrl-C save a checkpoint and then raise `Stopped`.

    To resume an interrupted run, call this again with the same settings.
    """
    settings.check()
    base = embedded_model(say) if settings.embedded else str(settings.model)
    directory = _directory(settings, base)
    with locked(directory):
        return _run(settings, base, directory, say, progress, StopOnSignal(say) if stoppable else None)


def _run(
    settings: RunSettings,
    base: str,
    directory: Path,
    say: Say,
    progress: type[TrainerCallback] | None,
    stopping: StopOnSignal | None,
) -> Finished:
    method, distillation = _method(settings)
    check_adapters(settings, method)
    embedding = kind_of_settings(settings) == Embedding.name
    defaults = _defaults(settings, method)
    if embedding:
        defaults |= sentences.DEFAULTS
        settings = settings if settings.dropout is not None else replace(settings, dropout=sentences.DROPOUT)
    training = training_arguments(defaults, settings.training, str(directory))
    start = checkpoint_to_resume(directory, training.resume_from_checkpoint, settings.overwrite_output_dir)
    set_seed(training.seed)  # a fresh task head is drawn before the Trainer seeds anything
    named = replace(settings, model=base)
    with loading_whole():
        loaded = load_for_task(named, ["train", "validation"], say, fresh_head=True, dropout=settings.dropout)
    if "metric_for_best_model" not in settings.training:
        _choose_by_own_metric(training, loaded.task, method)
    method = _for_start(method, settings, training, trained=not loaded.fresh_head or bool(settings.teacher))
    _say_limit(loaded.model, method, say)
    train_data = loaded.data("train", settings.max_train_samples)
    if embedding:
        with loading_whole():
            distillation = _with_teacher(loaded, settings, distillation)
        loaded.device = training.device
        _count_epochs(settings, training, method, len(train_data), say)
    evaluation = loaded.evaluation(loaded.data("validation", settings.max_eval_samples), settings.max_eval_samples)
    # hidden states can be learned without a word about a task's answers
    dense_first = bool(method and method.dense) and not settings.teacher
    bare = distillation is not None and not distillation.trains_head(dense_first)
    with loading_whole():
        teacher = load_teacher(settings.teacher, loaded.task, bare) if settings.teacher and not embedding else None
    if embedding and settings.teacher:
        teacher = loaded.teacher
    more = {"head_trained": False} if bare else _before(loaded, teacher, evaluation, training)
    if settings.lora_rank is not None:
        teacher = teacher or _dense_teacher(loaded, method, distillation)
        loaded.model = with_adapters(loaded.model, settings)
    trainer = _trainer(loaded, evaluation, train_data, training, method, distillation, teacher)
    if trainer.engine and settings.lora_rank is not None:
        raise TrainingError("--lora_rank needs whole weights in each process: leave FSDP and DeepSpeed out.")
    trainer.origin = _origin(base, settings)
    trainer.check_resume(start)
    if start is None and trainer.is_world_process_zero():
        clear_run(directory)
    elif start is not None:
        say(f"resuming from {start}; --overwrite_output_dir starts over")
    writer = RunWriter(trainer, directory, _shown(trainer), evaluation.data.written(), base)
    writer.write_config(_config(settings, method, distillation, training, defaults))
    _show_progress(trainer, progress)

    if stopping is not None:
        trainer.add_callback(stopping)
    with stopping.listening() if stopping is not None else nullcontext():
        trainer.train(resume_from_checkpoint=start)
    finished = finish(
        writer,
        evaluation,
        trim=not settings.no_trim,
        bench=not settings.no_bench,
        longest=loaded.max_length,
        remarks=[STATES_ALONE] if bare else [],
        more=more,
    )
    keeps = settings.keep_checkpoints or training.save_total_limit != DEFAULTS["save_total_limit"]
    if trainer.is_world_process_zero() and not keeps and (freed := remove_checkpoints(directory)):
        say(f"removed the training checkpoints ({freed / 1e6:.0f} MB); --keep_checkpoints keeps the last one")
    return finished


def _defaults(settings: RunSettings, method: Method | None) -> dict[str, Any]:
    """TrainingArguments unless told otherwise, with batches that are no larger than the task's kind can have them."""
    found = {**DEFAULTS, **(method.training_defaults if method else TRAINING_DEFAULTS)}
    if settings.lora_rank is not None:
        found["learning_rate"] = LEARNING_RATE
    kind = KINDS.get(kind_of_settings(settings) or "")
    sizes = ("per_device_train_batch_size", "per_device_eval_batch_size")
    return found if kind is None else {**found, **{name: min(found[name], kind.most_rows) for name in sizes}}


def _with_teacher(loaded: Loaded, settings: RunSettings, distillation: Distillation | None) -> Distillation | None:
    """Whose sentence embeddings are the target: the model's own at the start, or a teacher's."""
    loaded.teacher = loaded.model
    if not settings.teacher:
        return distillation
    loaded.teacher = load_teacher(settings.teacher, loaded.task)
    tokenizers = (load_tokenizer(settings.teacher), loaded.tokenizer)
    sentences.check_teacher(loaded.teacher, loaded.model, settings.teacher, tokenizers)
    if distillation is None or settings.distill_hidden is not None:
        return distillation
    if not distillation.hidden or sentences.same_shape(loaded.teacher, loaded.model):
        return distillation
    loaded.say("the teacher has another shape: its hidden states are not distilled")
    return replace(distillation, hidden=0.0)


def _count_epochs(
    settings: RunSettings, training: TrainingArguments, method: Method | None, texts: int, say: Say
) -> None:
    """Few texts are gone through many times, many texts once."""
    if not settings.training.keys() & {"num_train_epochs", "max_steps"}:
        batch = training.train_batch_size * training.gradient_accumulation_steps * training.world_size
        speeds = len(getattr(method, "speedups", [1]))
        training.num_train_epochs = sentences.epochs_for(texts, batch, speeds)
    if training.max_steps <= 0:
        say(f"training on {texts} texts for {training.num_train_epochs:g} epochs (--num_train_epochs)")


def _origin(base: str, settings: RunSettings) -> dict[str, Any]:
    """The weights that it starts from and learns from, for its checkpoints' fingerprint."""
    teacher = {"teacher's weights": weights_digest(settings.teacher)} if settings.teacher else {}
    adapters = {name: value for name in ADAPTERS if (value := getattr(settings, name)) is not None}
    return {"start weights": weights_digest(base), **teacher, **adapters}


def _dense_teacher(loaded: Loaded, method: Method | None, distillation: Distillation | None) -> Any:
    """The model as it starts, before it gets adapters, for a method that learns from it by itself."""
    if distillation is None or method is None or method.default_distillation is None or method.dense:
        return None
    return copy_as_teacher(loaded.model)


def _method(settings: RunSettings) -> tuple[Method | None, Distillation | None]:
    method = read_method(settings.method, settings.method_config)
    flags, embedding = vars(settings), kind_of_settings(settings) == Embedding.name
    if embedding:
        flags = {name: value if (value := flags[name]) is not None else OF_EMBEDDINGS.flags[name] for name in FLAGS}
    distillation = distillation_for(method, Distillation.from_flags(flags))
    if settings.teacher and distillation is None:
        raise MethodError("--teacher is for distillation: set --distill_logits or --distill_hidden too.")
    return method, distillation


def _for_start(
    method: Method | None, settings: RunSettings, training: TrainingArguments, trained: bool
) -> Method | None:
    """The method for a model that has been trained already, or has a teacher that has; it may need fewer epochs."""
    if method is None:
        return None
    chosen = method.starting_from(trained)
    if chosen != method and "num_train_epochs" not in settings.training:
        training.num_train_epochs = chosen.training_defaults["num_train_epochs"]
    return chosen


def _directory(settings: RunSettings, base: str) -> Path:
    """Another one than those of the models that are read."""
    directory = check_output_dir(settings.output_dir, base)
    if settings.teacher:
        check_output_dir(settings.output_dir, settings.teacher)
    return directory


def _choose_by_own_metric(training: TrainingArguments, task: Task, method: Method | None) -> None:
    name = task.held_out_metric if method and method.data.holdout else task.metric
    training.metric_for_best_model, training.greater_is_better = name, name not in LOWER_IS_BETTER


def _before(loaded: Loaded, teacher: Any, evaluation: Evaluation, training: TrainingArguments) -> dict[str, Any]:
    """What there was to lose: the metrics of the model that the run starts from, or else of its teacher.

    Evaluated before the Trainer is made, which seeds the random numbers again.
    """
    model = teacher if loaded.fresh_head else loaded.model
    if model is None:
        return {}
    whose = "the model it started from" if model is loaded.model else "its teacher"
    return {"before": evaluation.reference(model, training, whose)}


def _say_limit(model: Any, method: Method | None, say: Say) -> None:
    """What the method can reach at most: better known before training than found out after it."""
    if method is None or not method.kinds or any(STRUCTURES[kind].renumbers for kind in method.kinds):
        return  # without its layers a model would be as fast as one likes
    length = min(LENGTH, most_tokens(model))
    most = most_speedup(model, method.kinds, length)
    words = [STRUCTURES[kind].plural or STRUCTURES[kind].name for kind in method.kinds]
    named = f"{words[0]} alone" if len(words) == 1 else f"{' and '.join(words)} together"
    if most < FAR:
        say(f"{named} can make this model at most {times(most)} faster (theoretical, FLOPs at length {length})")


def _trainer(
    loaded: Loaded,
    evaluation: Evaluation,
    train_data: EncodedDataset,
    training: TrainingArguments,
    method: Method | None,
    distillation: Distillation | None,
    teacher: Any,
) -> Trainer:
    return Trainer(
        model=loaded.model,
        args=training,
        method=method,
        distillation=distillation,
        teacher=teacher,
        train_dataset=train_data,
        eval_dataset=evaluation.data,
        data_collator=evaluation.data_collator,
        processing_class=loaded.tokenizer,
        compute_metrics=evaluation.compute_metrics,
        preprocess_logits_for_metrics=evaluation.reduce_outputs,
    )


def _shown(trainer: Trainer) -> list[dict[str, Any]]:
    """A few examples of the validation data, each a batch."""
    rows = [trainer.eval_dataset[index] for index in range(min(SHOWN_EXAMPLES, len(trainer.eval_dataset)))]
    if trainer.eval_dataset.words is not None:
        rows = [{name: values[:SHOWN_TOKENS] for name, values in row.items()} for row in rows]
    batches = [dict(trainer.data_collator([row])) for row in rows]
    return [{name: value for name, value in batch.items() if name != "labels"} for batch in batches]


def _config(
    settings: RunSettings,
    method: Method | None,
    distillation: Distillation | None,
    training: TrainingArguments,
    defaults: dict[str, Any],
) -> dict[str, Any]:
    """What repeats the run. Written before training, so that a run that is stopped can be told and repeated too."""
    method_config = {"method_config": method.settings} if method else {}
    flags = distillation.flags if distillation else {}
    return {**settings.to_mapping(), **flags, **method_config, **arguments_to_record(training, defaults)}


def _show_progress(trainer: Trainer, progress: type[TrainerCallback] | None) -> None:
    """A Trainer that was told to be silent stays so."""
    trainer.remove_callback(PrinterCallback)
    if progress is not None and not trainer.args.disable_tqdm:
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(progress)
