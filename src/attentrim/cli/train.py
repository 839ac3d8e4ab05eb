"""attentrim train: fine-tune with a method, then trim."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..distillation import Distillation
from ..errors import AttentrimError, MethodError
from ..methods.base import TRAINING_DEFAULTS, Method, distillation_for
from .arguments import (
    DATA_FLAGS,
    add_method_arguments,
    add_task_arguments,
    add_training_arguments,
    given,
    merge_config,
    parse_settings,
    read_method,
    telling_arguments,
    training_arguments,
    training_help,
)
from .distill_flags import DISTILLATION_FLAGS, add_distillation_arguments
from .models import embedded_model
from .output import Output, size_table

HELP = "fine-tune a model with a method that learns which attention to drop, then take it out"
EXAMPLES = """  attentrim train --model bert-base-uncased --task cola --data_dir glue/CoLA --output_dir run
  attentrim train --model bert-base-uncased --task mrpc --data_dir glue/MRPC --output_dir run \\
      --method autoattention --method_config target_sparsity=0.5 --num_train_epochs 3 --bf16
  attentrim train --model bert-base-uncased --train_file reviews.csv --output_dir run
  attentrim train --model bert-base-uncased --train_file pairs.jsonl --validation_file dev.jsonl \\
      --text_column question --text_pair_column answer --label_column good --output_dir run
  attentrim train --config run/config.yaml --output_dir again

any field of TrainingArguments is a flag too; --help_all lists them"""

DEFAULT_METHOD = "autoattention"
OWN = {
    "model": str,
    **DATA_FLAGS,
    "max_train_samples": int,
    "dropout": float,
    "method": str,
    "teacher": str,
    **DISTILLATION_FLAGS,
    "output_dir": str,
    "no_trim": bool,
    "no_bench": bool,
}
"""Flags of ours that a config file can hold too, besides method_config."""
STATES_ALONE = "Only hidden states were distilled: what the model answers, and so its metric, says nothing."
PLACES = {"model", "teacher", "data_dir", "dataset", "train_file", "validation_file", "test_file"}
"""Flags that may name a file or directory: a config has the whole path, to be of use from anywhere."""
DEFAULTS = {
    "per_device_eval_batch_size": 64,
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 1,
    "logging_steps": 10,
    "report_to": "none",
    "metric_for_best_model": None,
}
"""Over those of TrainingArguments; the metric is the task's own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_task_arguments(parser)
    add_method_arguments(parser, DEFAULT_METHOD)
    add_training_arguments(parser)
    add_distillation_arguments(parser)
    parser.add_argument("--output_dir", help="the run: the final checkpoint, its plan, metrics, history and config")
    parser.add_argument("--no_trim", action="store_true", help="keep the full shape; the plan lies beside it")
    parser.add_argument("--no_bench", action="store_true", help="do not time the trimmed model at the end")
    parser.add_argument("--config", help="a YAML file with flags; flags on the command line win")
    parser.add_argument("--help_all", action="store_true", help="list the flags of TrainingArguments too")
    parser.set_defaults(takes_training_arguments=True, help_text=parser.format_help)


def run(args: argparse.Namespace, output: Output) -> None:
    if args.help_all:
        output.say(args.help_text() + "\n" + training_help())
        return
    args.method_config = parse_settings(args.method_config or [])
    config = merge_config(args, OWN)
    args.embedded = args.task == "acceptability" and not args.model
    if args.embedded:
        args.model = embedded_model(output)
    for name in ("model", "output_dir"):
        if not getattr(args, name):
            raise AttentrimError(f"--{name} is missing: give it on the command line or in --config.")
    args.method = args.method or DEFAULT_METHOD
    method = read_method(args.method, args.method_config)
    distillation = distillation_for(method, Distillation.from_flags(vars(args)))
    if args.teacher and distillation is None:
        raise MethodError("--teacher is for distillation: set --distill_logits or --distill_hidden too.")
    _train(args, method, distillation, config, output)


def _train(
    args: argparse.Namespace,
    method: Method | None,
    distillation: Distillation | None,
    config: dict[str, Any],
    output: Output,
) -> None:
    from transformers import set_seed

    from ..recorded import CONFIG
    from ..recorder import RunRecorder
    from ..run_files import write_yaml
    from ..trainer import Trainer
    from .models import check_output_dir
    from .progress import CompactProgress
    from .tasks import load_for_task, load_teacher, result_of

    directory = check_output_dir(args.output_dir, args.model)
    if args.teacher:
        check_output_dir(args.output_dir, args.teacher)
    defaults = {**DEFAULTS, **(method.training_defaults if method else TRAINING_DEFAULTS)}
    training = training_arguments(defaults, config, args.more, str(directory))
    training.disable_tqdm = training.disable_tqdm or output.quiet
    set_seed(training.seed)  # a fresh task head is drawn before the Trainer seeds anything
    loaded = load_for_task(args, ["train", "validation"], output, fresh_head=True)
    task = loaded.task
    chosen = "metric_for_best_model" in config or any("metric_for_best_model" in flag for flag in args.more)
    if not chosen:
        training.metric_for_best_model, training.greater_is_better = task.metric, task.higher_is_better
    data = {
        "train": loaded.data("train", args.max_train_samples),
        "validation": loaded.data("validation", args.max_eval_samples),
    }
    if training.process_index == 0:
        write_yaml(directory / CONFIG, _config_file(args, method, distillation, training, defaults))
    dense_first = method is not None and method.dense > 0 and not args.teacher
    bare = distillation is not None and not distillation.trains_head(dense_first)
    teacher = load_teacher(args.teacher, task, bare) if args.teacher else None
    before = {} if bare else _before(loaded, teacher, data["validation"], training)
    trainer = Trainer(
        model=loaded.model,
        args=training,
        method=method,
        distillation=distillation,
        teacher=teacher,
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        data_collator=task.how.collator(loaded.tokenizer),
        processing_class=loaded.tokenizer,
        compute_metrics=task.scorer(data["validation"]),
        preprocess_logits_for_metrics=task.how.reduce,
    )
    texts = data["validation"].written()
    recorder = RunRecorder(trainer, directory, sentences=texts, batches=_shown(trainer), base=args.model)
    CompactProgress.replace(trainer)

    resume = training.resume_from_checkpoint
    trainer.train(resume_from_checkpoint=True if str(resume).lower() == "true" else resume)
    masked = trainer.predict(trainer.eval_dataset, metric_key_prefix="eval").metrics
    session = trainer.session
    remarks = [*([STATES_ALONE] if bare else []), *(session.remarks() if session else [])]
    others = {}
    for name, holds in (session.alternatives() if session else {}).items():
        with holds:
            found = trainer.predict(trainer.eval_dataset, metric_key_prefix="eval").metrics
        others[name] = result_of(task, found, 0)["value"]
    recorder.take_after()

    final, plan, masked_by = recorder.save(trim=not args.no_trim)
    result = {
        **_measured(args, trainer, loaded, final, masked_by),
        **recorder.facts(final, plan, result_of(task, masked, 0)["value"]),
        **({"before": before} if before else {}),
        **({"alternatives": others} if others else {}),
        **({"remarks": remarks} if remarks else {}),
        **({"head_trained": False} if bare else {}),
    }
    if trainer.is_world_process_zero():
        timed = masked_by is None and not args.no_bench
        speed = recorder.speed(final, loaded.max_length) if timed else {}
        recorder.write(result, final, speed)
        _report(output, trainer.model, final, result, speed)


def _before(loaded: Any, teacher: Any, data: Any, training: Any) -> dict[str, Any]:
    """What there was to lose: the metrics of the model that the run starts from, or else of its teacher.

    Asked before the Trainer is made, which seeds the random numbers anew.
    """
    from .tasks import evaluate

    model = teacher if loaded.fresh_head else loaded.model
    if model is None:
        return {}
    result, _ = evaluate(loaded, model, data, training)
    whose = "the model it started from" if model is loaded.model else "its teacher"
    return {"of": whose, "value": result["value"], "metrics": result["metrics"]}


def _shown(trainer: Any) -> list[dict[str, Any]]:
    """A few examples of the validation data, each a batch."""
    from ..tasks.kinds import SHOWN_EXAMPLES

    rows = [trainer.eval_dataset[index] for index in range(min(SHOWN_EXAMPLES, len(trainer.eval_dataset)))]
    batches = [dict(trainer.data_collator([row])) for row in rows]
    return [{name: value for name, value in batch.items() if name != "labels"} for batch in batches]


def _measured(args: argparse.Namespace, trainer: Any, loaded: Any, model: Any, plan: Any) -> dict[str, Any]:
    """The metrics of the saved checkpoint; of one that kept its full shape, with its plan at work."""
    from ..control import Control
    from .evaluate import add_more_sets
    from .tasks import evaluate

    with ExitStack() as stack:
        if plan:
            stack.enter_context(Control(model)).apply(plan)
        result, _ = evaluate(loaded, model, trainer.eval_dataset, trainer.args)
        add_more_sets(result, loaded, model, args, trainer.args)
    return result


def _config_file(
    args: argparse.Namespace,
    method: Method | None,
    distillation: Distillation | None,
    training: Any,
    defaults: dict[str, Any],
) -> dict[str, Any]:
    """What repeats the run. Written before training, so that a run that is stopped can be told and repeated too."""
    own = {name: getattr(args, name) for name in OWN if given(getattr(args, name))}
    if args.embedded:
        del own["model"]
    for name in PLACES & own.keys():
        own[name] = str(Path(own[name]).resolve()) if Path(own[name]).exists() else own[name]
    settings = {"method_config": method.settings} if method else {}
    own |= distillation.flags if distillation else {}
    return {**own, **settings, **telling_arguments(training, defaults)}


def _report(output: Output, dense: Any, final: Any, result: dict[str, Any], speed: dict[str, Any]) -> None:
    from ..cost import cost
    from .tasks import metric_rows

    size_table(output, f"{result['output_dir']}: before and after", cost(dense), cost(final))
    output.table(f"{result['task']}, {result['examples']} examples", ("metric", "value"), metric_rows(result))
    kept = " ".join(str(count) for count in result["heads_kept"])
    output.say(f"heads kept by site: {kept} ({result['sparsity']:.1%} removed)")
    if result["uniform_sites"]:
        output.say(f"uniform sites: {', '.join(str(site) for site in result['uniform_sites'])}")
    output.say(f"before it was trimmed, with its plan at work, {result['metric']} was {result['masked_value']:.4f}")
    for name, value in result.get("alternatives", {}).items():
        output.say(f"with {name.replace('_', ' ')} at work, {result['metric']} was {value:.4f}")
    for remark in result.get("remarks", []):
        output.say(remark)
    if "before" in result:
        before = result["before"]
        output.say(f"{result['metric']} of {before['of']} was {before['value']:.4f}")
    for row in speed.get("rows", []):
        if row["name"] == "model" and row["speedup"]:
            output.say(
                f"{row['speedup']:.2f} times as fast as before it was trimmed ({row['batch']} x {row['length']} "
                f"tokens on {row['device']}; `attentrim bench` measures more)"
            )
    output.say(f"trained for {result['train_seconds']:.0f} s; see it: attentrim report --run {result['output_dir']}")
    output.result(result)
