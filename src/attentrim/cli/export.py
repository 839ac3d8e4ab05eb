"""attentrim export: a model for other runtimes."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.settings import DATA_SETTINGS
from .arguments import add_settings, given_settings, task_settings
from .output import Output, megabytes

if TYPE_CHECKING:
    from ..export import ExportReport

HELP = "export a model, trimmed or not, to ONNX, and compare the outputs of the file with the model's"
EXAMPLES = """  attentrim export --model ./small --format onnx --output_dir ./onnx
  attentrim export --model ./small --quantize int8 --output_dir ./int8 --task cola --data_dir glue/CoLA

with data, the metric of the exported file is printed beside the model's own: an int8 file has slightly other outputs
than the model, and the metric shows whether that matters"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a model directory, GGUF file or hub name")
    parser.add_argument("--format", default="onnx", choices=["onnx"], help="the format to export to (default: onnx)")
    parser.add_argument("--output_dir", required=True, help="where to write model.onnx")
    parser.add_argument(
        "--quantize", choices=["int8"], help="linear layers and embeddings in 8 bits (default: float32, as trained)"
    )
    group = parser.add_argument_group("data to evaluate the exported file on, its validation split (default: none)")
    add_settings(group, DATA_SETTINGS)


def run(args: argparse.Namespace, output: Output) -> None:
    from ..atomic import staged
    from ..export import export_onnx
    from ..runs.directories import check_output_dir, copy_companions
    from ..runs.models import load_model, silence_libraries

    silence_libraries()
    output_dir = check_output_dir(args.output_dir, args.model)
    has_data = given_settings(args, DATA_SETTINGS)
    model, evaluation = _with_data(args, output) if has_data else (load_model(args.model), None)
    with staged(output_dir) as stage:
        report = export_onnx(model, stage, quantize=args.quantize)
        copy_companions(args.model, stage, output.say, output_dir)
        model.config.save_pretrained(stage)
    report = replace(report, path=str(output_dir / Path(report.path).name))
    _describe(output, report)
    measured = _measure(output, report, model, evaluation) if evaluation else _no_metric(args, output, report)
    output.result({"output_dir": args.output_dir, "format": args.format, **asdict(report), **measured})


def _with_data(args: argparse.Namespace, output: Output) -> tuple[Any, Any]:
    """The model for its task, and the evaluation. Data that cannot be read is refused before the export."""
    from ..runs.loading import load_for_task

    loaded = load_for_task(task_settings(args), ["validation"], output.say, fresh_head=False)
    data = loaded.data("validation", args.max_eval_samples)
    return loaded.model, loaded.evaluation(data, more_sets=False)


def _describe(output: Output, report: ExportReport) -> None:
    rows = [(name, " x ".join(str(axis) for axis in report.dynamic_axes[name].values())) for name in report.inputs]
    size = megabytes(report.bytes)
    if report.bytes_float is not None:
        size = f"{report.quantize}: {megabytes(report.bytes_float)} → {size}"
    output.table(f"{report.path} ({size}, opset {report.opset})", ("input", "dynamic"), rows)
    mean = f", {report.mean_abs_difference:.1e} in the mean" if report.quantize else ""
    output.say(
        f"outputs: {', '.join(report.outputs)}\n"
        f"largest difference to PyTorch: {report.max_abs_difference:.1e}{mean} "
        f"(outputs up to {report.largest_output:.1f})"
    )
    if report.linear_in_float:
        output.say(f"{report.linear_in_float} linear layers stay in float: their inputs do not fit into 8 bits")
    main = report.inputs[0]
    checked = ", ".join(_size(shapes[main]) for shapes in report.checked_shapes)
    output.say(f"{main} was {_size(report.traced_shapes[main])} in the trace and {checked} in the comparisons")


def _measure(output: Output, report: ExportReport, model: Any, evaluation: Any) -> dict[str, Any]:
    from ..runs.exported import values

    value, exported = values(evaluation, model, report.path)
    output.say(
        f"{evaluation.metric} {value:.4f} → {exported:.4f} in {report.quantize or 'ONNX'} "
        f"({evaluation.examples:,} validation examples of {evaluation.task})"
    )
    return {
        "metric": evaluation.metric,
        "value": value,
        "value_exported": exported,
        "examples": evaluation.examples,
    }


def _no_metric(args: argparse.Namespace, output: Output, report: ExportReport) -> dict[str, Any]:
    """Without data; where that matters, how to get it."""
    if report.quantize and "logits" in report.outputs:
        output.say(
            f"what {report.quantize} costs on your task: attentrim export --model {args.model} --quantize "
            f"{report.quantize} --output_dir {args.output_dir} --task NAME --data_dir DIR (or --validation_file FILE)"
        )
    return dict.fromkeys(("metric", "value", "value_exported", "examples"))


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(str(size) for size in shape)
