"""attentrim bench: how fast a model is, measured beside another."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..bench import BACKENDS, DEVICES, DTYPES, RIVALS, Row
from ..errors import AttentrimError
from ..runs.directories import check_output_file
from ..runs.reader.files import BENCH
from .output import Output, positive, size_table
from .speed_table import labels, show_rows

HELP = "measure latency, throughput and size of a model, side by side with another on the same inputs"
EXAMPLES = """  attentrim bench --model ./small --against bert-base-uncased
  attentrim bench --model ./small --against ./fine-tuned --batch_sizes 1 32 --lengths 128 512 \\
      --devices cuda --dtypes float32 bfloat16 --backends sdpa compile cudagraph
  attentrim bench --model ./small --against ./fine-tuned --backends sdpa onnx --rivals int8 torch-pruning
  attentrim bench --model ./small --against ./fine-tuned --backends onnx onnx-int8
  attentrim bench --model ./small --against ./dense --lengths 512 --decode 64

how to read the table:
  before      the model of --against; after is the one of --model
  speed-up    median ratio of times over the repeats, with quartiles. Compared with --against in the same backend
              (without --against: with --model in the first backend). onnx-int8 rows are compared with --against in
              float: in onnx if it is measured, otherwise in the first other backend
  FLOPs       theoretical speed-up: the ratio of FLOPs in matrix products
  prompt ms   with --decode: one forward pass over the prompt, which fills the cache. The rest of the row is about the
              tokens generated after it
  diff        largest difference from the outputs of the same model in eager float32: the effect of backend and dtype.
              For rivals: from the outputs of the dense model"""

DEFAULT_BATCHES = [1, 8]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    def several(flag: str, default: Any, help: str, **more: Any) -> None:
        parser.add_argument(flag, nargs="+", default=default, help=help, **more)

    parser.add_argument("--model", required=True, help="a model directory (trimmed or not), GGUF file or hub name")
    parser.add_argument("--against", help="the model to compare with, usually the dense one")
    several("--batch_sizes", DEFAULT_BATCHES, "sequences per batch (default: 1 8)", type=positive)
    several("--lengths", [128], "tokens per sequence (default: 128)", type=positive)
    several("--dtypes", ["float32"], "(default: float32)", choices=DTYPES)
    several("--devices", None, "(default: cuda if there is one, otherwise cpu)", choices=DEVICES)
    several("--backends", None, "(default: sdpa, or eager for architectures without)", choices=BACKENDS)
    several(
        "--rivals", [], "also measure these alternatives, made from the dense model (default: none)", choices=RIVALS
    )
    parser.add_argument(
        "--decode",
        metavar="N",
        type=positive,
        help="also time the generation of N tokens after each prompt, in sdpa and eager",
    )
    parser.add_argument("--repeats", type=positive, default=15, help="how many times to time each (default: 15)")
    parser.add_argument(
        "--padding", type=float, default=0.125, help="share of the last row that is padding (default: 0.125)"
    )
    parser.add_argument("--threads", type=positive, help="CPU threads (default: torch's own choice)")
    parser.add_argument(
        "--latency_table",
        metavar="FILE",
        help="write a latency table instead, for train --speedup on another machine: times the model's blocks at "
        "many widths (a minute or two)",
    )
    parser.add_argument("--out", metavar="FILE", help="also write the JSON object to this file")
    parser.add_argument(
        "--card", action="store_true", help="also write the results into the model's directory and model card"
    )


def run(args: argparse.Namespace, output: Output) -> None:
    from ..bench.onednn import avoid_illegal_instructions

    _check_files(args)
    if "bfloat16" in args.dtypes and "cpu" in (args.devices or ["cpu"]):
        avoid_illegal_instructions()

    import torch

    from ..bench.record import bench_record
    from ..checkpoint.stored import stored_plan
    from ..cost import cost
    from ..machine import measured_with
    from ..runs.models import load_model, silence_libraries

    silence_libraries()
    if args.threads:
        torch.set_num_threads(args.threads)
    model = load_model(args.model)
    if args.latency_table:
        _latency_table(args, output, model)
        return
    against = load_model(args.against) if args.against else None
    machine = measured_with()
    rows = _measure(args, model, against)
    size = cost(model, length=args.lengths[0])
    size_against = cost(against, length=args.lengths[0]) if against else None
    _describe_machine(args, output, machine, rows)
    if size_against:
        _mention_mismatch(output, model, against)
        output.say(f"model: {args.model}, against: {args.against}")
        size_table(output, "sizes (before: against, after: model)", size_against, size, stored_plan(model))
    show_rows(output, rows)
    data = bench_record((args.model, args.against), (size, size_against), rows, machine, args.repeats, args.padding)
    _keep(args, output, data)
    output.result(data)


def _latency_table(args: argparse.Namespace, output: Output, model: Any) -> None:
    """For another machine to plan with: the same that `train --speedup` makes for itself."""
    from ..speed.measuring import measured_table
    from ..speed.target import complete_target

    names = {"batch_sizes": args.batch_sizes, "lengths": args.lengths, "dtypes": args.dtypes}
    names |= {"devices": args.devices or [None], "backends": args.backends or [None]}
    if args.batch_sizes == DEFAULT_BATCHES:
        names["batch_sizes"] = [None]  # the target's own default
    for name, values in names.items():
        if len(values) > 1:
            raise AttentrimError(f"A latency table is for one setting: give one value for --{name}.")
    batch, length, dtype, device, backend = (values[0] for values in names.values())
    table = measured_table(model, complete_target(model, batch, length, dtype, backend, device))
    table.save(args.latency_table)
    checks = ", ".join(f"{by_table:.2f} by the table, {whole:.2f} measured" for by_table, whole in table.checks)
    output.say(f"{table.target}: {table.dense:.2f} ms; whole models with half and a quarter of their units: {checks}")
    output.say(f"written to {args.latency_table}: attentrim train ... --speedup 2 --speed_table {args.latency_table}")
    output.result(table.to_dict())


def _check_files(args: argparse.Namespace) -> None:
    """Before minutes of measuring, not after."""
    if args.card and not (Path(args.model).is_dir() and args.against):
        raise AttentrimError("--card needs --against, and a model in a local directory.")
    for path in (args.latency_table, args.out, Path(args.model) / BENCH if args.card else None):
        if path is not None:
            check_output_file(path)


def _measure(args: argparse.Namespace, model: Any, against: Any) -> list[Row]:
    import torch

    from ..bench import measure
    from ..bench.backends import has_sdpa

    rows = measure(
        model,
        against,
        shapes=[(batch, length) for length in args.lengths for batch in args.batch_sizes],
        dtypes=args.dtypes,
        devices=args.devices or (["cuda"] if torch.cuda.is_available() else ["cpu"]),
        backends=args.backends or (["sdpa"] if has_sdpa(model) else ["eager"]),
        rivals=args.rivals,
        repeats=args.repeats,
        padding=args.padding,
        new_tokens=args.decode,
    )
    if all(row.milliseconds_median is None for row in rows):
        label = labels(rows)
        reasons = dict.fromkeys(f"{label(row)}: {row.remark}" for row in rows)
        raise AttentrimError(f"Nothing could be measured. {'; '.join(reasons)}")
    return rows


def _describe_machine(
    args: argparse.Namespace, output: Output, machine: Mapping[str, Any], rows: Sequence[Row]
) -> None:
    on_gpu = any(row.device == "cuda" for row in rows)
    place = ", ".join(machine["gpus"]) if on_gpu else machine["cpu"]
    output.say(
        f"{place}, {machine['threads']} CPU threads, torch {machine['torch']}, {args.repeats} repeats, "
        f"{args.padding:.1%} of the last row padded"
    )
    if (machine["load"] or 0) > machine["cores"] / 2:
        output.say(f"the machine was busy (load {machine['load']:.1f}): trust ratios more than milliseconds")


def _mention_mismatch(output: Output, model: Any, against: Any) -> None:
    for name in ("model_type", "hidden_size"):
        own, other = getattr(model.config, name, None), getattr(against.config, name, None)
        if own != other:
            output.say(f"these are not versions of the same model: {name} is {own} here and {other} in --against")


def _keep(args: argparse.Namespace, output: Output, data: Mapping[str, Any]) -> None:
    """In the file and beside the model, where that was asked for."""
    from ..card import write_card
    from ..runs.files import write_json

    if args.out:
        write_json(Path(args.out), data)
        output.say(f"written to {args.out}")
    if args.card:
        write_json(Path(args.model) / BENCH, data)
        write_card(Path(args.model))
        output.say(f"written to {Path(args.model) / BENCH} and into the model card beside it")
