"""The page about one run."""

from __future__ import annotations

import shlex

from ..runs.reader import CONFIG, Recorded
from ..version import __version__
from .attention import packed_attention
from .certainty import about_examples
from .cost_figures import cost_figures
from .curves import left_figures, run_figures
from .head_map import head_map
from .lead import dense, headline, lead, remarks, tiles
from .removals import layers_table, outcomes, reason, removed_heads
from .render import render
from .tables import check, layer_times, machine_rows, models, place, sizes, speeds


def run_page(run: Recorded) -> str:
    attention = packed_attention(run)  # first: reading it may find that it is missing
    return render(
        "run.html",
        version=__version__,
        title=f"{run.model} on {run.data}, {'plain fine-tuning' if run.method == 'none' else run.method}",
        run=run,
        headline=headline(run),
        lead=lead(run),
        dense=dense(run),
        tiles=tiles(run),
        remarks=remarks(run),
        missing=run.missing,
        figures=run_figures(run),
        reason=reason(run),
        left_figures=left_figures(run),
        layers=layers_table(run),
        outcomes=outcomes(run),
        removed=removed_heads(run),
        sizes=sizes(run),
        speeds=speeds(run),
        cost_figures=cost_figures(run),
        models=models(run),
        layer_times=layer_times(run),
        check=check(run),
        place=place(run.bench.get("machine") or {}),
        machine=machine_rows(run.metrics.get("measured_with") or {}),
        metrics=[(name, f"{value:.6g}") for name, value in sorted((run.metrics.get("metrics") or {}).items())],
        examples=about_examples(run),
        alternatives=[
            (name.replace("_", " "), f"{value:.6g}") for name, value in (run.metrics.get("alternatives") or {}).items()
        ],
        command=_command(run),
        data={**head_map(run), "attention": attention},
        attention=attention,
    )


def _command(run: Recorded) -> str | None:
    """What reproduces the run; None where it was trained by a script."""
    if not run.repeatable:
        return None
    return f"attentrim train --config {shlex.quote(str(run.path / CONFIG))} --output_dir again"
