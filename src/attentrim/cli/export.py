"""attentrim export: a model for other runtimes."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from .output import Output, megabytes

HELP = "export a model, trimmed or not, to ONNX, and check that it gives the same answers there"
EXAMPLES = """  attentrim export --model ./small --format onnx --output_dir ./onnx"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a model directory or hub name")
    parser.add_argument("--format", default="onnx", choices=["onnx"], help="the format to export to (default: onnx)")
    parser.add_argument("--output_dir", required=True, help="where to write model.onnx")


def run(args: argparse.Namespace, output: Output) -> None:
    from ..export import export_onnx
    from ..runs.directories import check_output_dir, copy_companions
    from ..runs.models import load_model

    output_dir = check_output_dir(args.output_dir, args.model)
    model = load_model(args.model)
    report = export_onnx(model, output_dir)
    copy_companions(args.model, output_dir)
    model.config.save_pretrained(output_dir)
    rows = [(name, " x ".join(str(axis) for axis in report.dynamic_axes[name].values())) for name in report.inputs]
    output.table(f"{report.path} ({megabytes(report.bytes)}, opset {report.opset})", ("input", "dynamic"), rows)
    output.say(
        f"outputs: {', '.join(report.outputs)}\n"
        f"largest difference to PyTorch: {report.max_abs_difference:.1e} (outputs up to {report.largest_output:.1f})"
    )
    main = report.inputs[0]
    checked = ", ".join(_size(shapes[main]) for shapes in report.checked_shapes)
    output.say(f"{main} was {_size(report.traced_shapes[main])} in the trace and {checked} in the comparisons")
    output.result({"output_dir": args.output_dir, "format": args.format, **asdict(report)})


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(str(size) for size in shape)
