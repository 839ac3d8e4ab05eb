"""Bring the results pages up to date with the files under benchmarks/results: tables, numbers in sentences, figures.

    python benchmarks/tables.py            # all of it
    python benchmarks/tables.py --check    # end with code 1 if a table or a number is not up to date

A table stands where a page has a comment `<!-- KIND: WORDS -->` and a later `<!-- /KIND -->`; the functions named in
benchmarks/pages/blocks.py say what their words are. A number stands between `<!-- n: NAME -->` and `<!-- /n -->`;
benchmarks/numbers.yaml says what each name is. Pages are RESULTS.md, README.md and everything under docs.
"""

from __future__ import annotations

import argparse
import sys

from pages.blocks import filled, pages
from pages.raw import ROOT


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; say whether the pages are up to date")
    check = parser.parse_args(words).check
    stale = False
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = filled(page, before)
        if before == after:
            continue
        stale = True
        if check:
            print(f"{page.relative_to(ROOT)} is not up to date: python benchmarks/tables.py")
        else:
            page.write_text(after, encoding="utf-8")
    if not check:
        import plots

        plots.main()
    return int(check and stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
