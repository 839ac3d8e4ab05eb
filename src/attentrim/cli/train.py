"""attentrim train: fine-tune with a method, then trim."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..errors import AttentrimError, MethodError
from ..methods.base import TRAINING_DEFAULTS, Method
from .arguments import (
    DATA_FLAGS,
    add_method_arguments,
    add_task_arguments,
    merge_config,
    parse_settings,
    read_method,
    telling_arguments,
    training_arguments,
    training_help,
)
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
    "method": str,
    "teacher": str,
    "output_dir": str,
    "no_trim": bool,
    "no_bench": bool,
}
"""Flags of ours that a config file can hold too, besides method_config."""
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
BENCH_SHAPE, BENCH_REPEATS = (8, 128), 9
"""Sequences and tokens (or as many as training allowed) that the final model is timed with."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_task_arguments(parser)
    add_method_arguments(parser, DEFAULT_METHOD)
    parser.add_argument("--max_train_samples", type=int, help="use the first so many training examples only")
    parser.add_argument(
        "--teacher", help="a trained dense model to distil from, where the method's settings ask for it"
    )
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
    if args.teacher and not (method and method.distills):
        raise MethodError(
            "--teacher is for distillation: set distill_logits or distill_hidden in --method_config too."
        )
    _train(args, method, config, output)


def _train(args: argparse.Namespace, method: Method | None, config: dict[str, Any], output: Output) -> None:
    from transformers import set_seed

    from ..card import known_as
    from ..checkpoint import stored_plan
    from ..machine import measured_with, peak_memory
    from ..run_files import AttentionLog, HistoryWriter
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
    machine = measured_with()
    if training.process_index == 0:
        _write_config(args, method, training, defaults)
    teacher = load_teacher(args.teacher, task) if args.teacher else None
    before = _before(loaded, teacher, data["validation"], training)
    trainer = Trainer(
        model=loaded.model,
        args=training,
        method=method,
        teacher=teacher,
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        data_collator=task.how.collator(loaded.tokenizer),
        processing_class=loaded.tokenizer,
        compute_metrics=task.scorer(data["validation"]),
        preprocess_logits_for_metrics=task.how.reduce,
    )
    trainer.add_callback(HistoryWriter(directory, trainer))
    CompactProgress.replace(trainer)
    attention = AttentionLog(loaded.tokenizer, _shown(trainer), data["validation"].written())
    attention.take(trainer.model, "before", trainer.session)

    resume = training.resume_from_checkpoint
    done = trainer.train(resume_from_checkpoint=True if str(resume).lower() == "true" else resume)
    masked = trainer.predict(trainer.eval_dataset, metric_key_prefix="eval").metrics
    session = trainer.session
    others = {}
    for name, holds in (session.alternatives() if session else {}).items():
        with holds:
            found = trainer.predict(trainer.eval_dataset, metric_key_prefix="eval").metrics
        others[name] = result_of(task, found, 0)["value"]
    attention.take(trainer.model, "after", trainer.session)

    final, plan, masked_by = _save(args, trainer, loaded.tokenizer)
    result = {
        **_measured(args, trainer, loaded, final, masked_by),
        "sparsity": plan.sparsity,
        "heads_total": plan.heads_total,
        "heads_kept": plan.heads_kept,
        "uniform_sites": list(plan.uniform),
        "parameters": sum(parameter.numel() for parameter in final.parameters()),
        "output_dir": args.output_dir,
        "train_seconds": done.metrics["train_runtime"],
        "peak_memory_bytes": peak_memory(),
        "model": known_as(args.model),
        "method": args.method,
        "seed": training.seed,
        "trimmed": stored_plan(final) is not None,
        "masked_value": result_of(task, masked, 0)["value"],
        **({"before": before} if before else {}),
        **({"alternatives": others} if others else {}),
        **(session.remarks() if session else {}),
        "measured_with": machine,
    }
    if trainer.is_world_process_zero():
        speed = _speed(args, trainer, final, loaded.max_length, machine) if masked_by is None else {}
        _write(args, trainer, attention, final, result, speed)
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


def _speed(args: argparse.Namespace, trainer: Any, final: Any, longest: int, machine: dict[str, Any]) -> dict[str, Any]:
    """The trimmed model timed beside the one that it was cut from; nothing where that is not wanted or not possible."""
    from ..bench import measure
    from ..bench.backends import has_sdpa
    from ..bench.record import bench_record
    from ..cost import cost

    if args.no_bench:
        return {}
    shape = (BENCH_SHAPE[0], min(BENCH_SHAPE[1], longest))
    padding = 0.125
    rows = measure(
        final,
        trainer.model,
        shapes=[shape],
        devices=["cuda" if trainer.args.device.type == "cuda" else "cpu"],
        backends=["sdpa" if has_sdpa(final) else "eager"],
        repeats=BENCH_REPEATS,
        padding=padding,
    )
    sizes = (cost(final, length=shape[1]), cost(trainer.model, length=shape[1]))
    names = (args.output_dir, "itself before it was trimmed")
    return bench_record(names, sizes, rows, machine, BENCH_REPEATS, padding)


def _shown(trainer: Any) -> list[dict[str, Any]]:
    """A few examples of the validation data, each a batch."""
    from ..tasks.kinds import SHOWN_EXAMPLES

    rows = [trainer.eval_dataset[index] for index in range(min(SHOWN_EXAMPLES, len(trainer.eval_dataset)))]
    batches = [dict(trainer.data_collator([row])) for row in rows]
    return [{name: value for name, value in batch.items() if name != "labels"} for batch in batches]


def _save(args: argparse.Namespace, trainer: Any, tokenizer: Any) -> tuple[Any, Any, Any]:
    """Trim and save; then the model as it loads from disk, what is gone from it, and what is still to be masked."""
    from ..checkpoint import stored_plan
    from ..recorded import PLAN
    from ..surgery import trim
    from .models import load_model

    plan = trainer.plan()
    trimmed = bool(plan) and not args.no_trim
    if trainer.session is not None:
        trainer.session.detach()
    if trainer.is_world_process_zero():
        final = trim(trainer.model, plan) if trimmed else trainer.model
        final.save_pretrained(args.output_dir)
        tokenizer.save_pretrained(args.output_dir)
        # what the checkpoint is, in the full model's numbering, even if it had been trimmed before
        (stored_plan(final) or plan).save(Path(args.output_dir) / PLAN)
    trainer.accelerator.wait_for_everyone()
    final = load_model(args.output_dir)
    return final, stored_plan(final) or plan, None if trimmed else plan


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


def _write_config(args: argparse.Namespace, method: Method | None, training: Any, defaults: dict[str, Any]) -> None:
    """Before training, so that a run that is stopped can be told and repeated too."""
    from ..recorded import CONFIG
    from ..run_files import write_yaml

    own = {name: getattr(args, name) for name in OWN if getattr(args, name) not in (None, False)}
    if args.embedded:
        del own["model"]
    settings = {"method_config": method.settings} if method else {}
    write_yaml(Path(args.output_dir) / CONFIG, {**own, **settings, **telling_arguments(training, defaults)})


def _write(
    args: argparse.Namespace,
    trainer: Any,
    attention: Any,
    model: Any,
    result: dict[str, Any],
    speed: dict[str, Any],
) -> None:
    from ..card import write_card
    from ..recorded import ATTENTION, BENCH, METRICS
    from ..run_files import write_json

    directory = Path(args.output_dir)
    attention.write(directory / ATTENTION)
    session = trainer.session
    write_json(directory / METRICS, {**result, **({"last": session.metrics()} if session else {})})
    (directory / BENCH).unlink(missing_ok=True)  # of a model that was here before
    if speed:
        write_json(directory / BENCH, speed)
    write_card(directory, model, base=args.model)


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
    if "rewarded_on" in result:
        output.say(f"rewarded on {result['rewarded_on']}")
    if "before" in result:
        before = result["before"]
        output.say(f"{result['metric']} of {before['of']} was {before['value']:.4f}")
    for row in speed.get("rows", []):
        if row["name"] == "model" and row["speedup"]:
            output.say(
                f"{row['speedup']:.2f} times as fast as before it was trimmed ({row['batch']} x {row['length']} tokens "
                f"on {row['device']}; `attentrim bench` measures more)"
            )
    output.say(f"trained for {result['train_seconds']:.0f} s; see it: attentrim report --run {result['output_dir']}")
    output.result(result)
