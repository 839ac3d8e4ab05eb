"""Run an experiment by its name: each is a folder with a config for `attentrim compare`.

    python benchmarks/run.py                                            # list them
    python benchmarks/run.py autoattention-table-1 --model bert-base-uncased --task cola --data_dir glue/CoLA

All flags after the name are those of `attentrim compare`. Without --output_dir, results go to
results/NAME/MODEL-TASK.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from pathlib import Path

from attentrim.cli import main as attentrim
from attentrim.errors import AttentrimError, unknown_name
from attentrim.runs.files import read_config

HERE = Path(__file__).parent


def experiments() -> dict[str, Path]:
    return {path.parent.name: path for path in sorted(HERE.glob("*/config.yaml"))}


def output_dir(name: str, flags: list[str]) -> Path:
    """Named after the model and the data in the flags."""
    reader = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--model", "--task", "--dataset", "--train_file"):
        reader.add_argument(flag)
    found = reader.parse_known_args(flags)[0]
    data = found.task or found.dataset or found.train_file or "data"
    return Path("results", name, f"{Path(found.model or 'MiniLM-L6').name}-{Path(data).stem}")


def compare_words(name: str, flags: list[str]) -> list[str]:
    """The arguments for `attentrim`."""
    known = experiments()
    if name not in known:
        raise AttentrimError(unknown_name("experiment", name, known))
    if not any(flag.partition("=")[0] == "--output_dir" for flag in flags):
        flags = [*flags, "--output_dir", str(output_dir(name, flags))]
    return ["compare", "--config", os.path.relpath(known[name]), *flags]


def main(words: list[str]) -> int:
    if not words:
        for name, path in experiments().items():
            print(name, textwrap.indent(textwrap.fill(read_config(str(path))["about"], 110), "    "), sep="\n")
        return 0
    name, *flags = words
    if name in ("-h", "--help"):
        print(__doc__)
        return 0
    return attentrim(compare_words(name, flags))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except AttentrimError as error:
        sys.exit(f"run.py: error: {error}")
