"""Set every fifth training sentence of a tagging task aside, to choose settings without looking at dev.

python benchmarks/split.py wnut17/train.conll --out wnut17-split
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

EVERY = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="training sentences, one word per line, blank lines between sentences")
    parser.add_argument("--out", type=Path, required=True, help="a directory for the two parts, train and dev")
    args = parser.parse_args()
    if not args.file.is_file():
        parser.error(f"there is no {args.file}")
    # a blank line may hold tabs
    sentences = [part for part in re.split(r"\n\s*\n", args.file.read_text(encoding="utf-8").strip("\n")) if part]
    parts = {
        "train": [sentence for number, sentence in enumerate(sentences) if number % EVERY],
        "dev": sentences[::EVERY],
    }
    args.out.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        (args.out / f"{name}{args.file.suffix}").write_text("\n\n".join(part) + "\n", encoding="utf-8")
    print(", ".join(f"{name} {len(part)}" for name, part in parts.items()))


if __name__ == "__main__":
    main()
