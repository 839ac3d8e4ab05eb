"""The command line. `--help` answers without importing torch: each command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

from ..errors import AttentrimError
from ..version import __version__
from .output import Output

COMMANDS = (
    "demo",
    "train",
    "plan",
    "trim",
    "evaluate",
    "compare",
    "bench",
    "export",
    "report",
    "show",
    "methods",
    "env",
)
"""One module each, with `HELP`, `EXAMPLES`, `add_arguments(parser)` and `run(args, output)`."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attentrim",
        description="Make transformers smaller and faster: remove heads, neurons and layers, and measure the cost.",
    )
    parser.add_argument("--version", action="version", version=f"attentrim {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f".{name}", __name__)
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=f"examples:\n{module.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        command.add_argument(
            "--quiet", action="store_true", help="print only results and errors, no progress or remarks"
        )
        command.add_argument("--json", action="store_true", help="print one JSON object, and nothing else, to stdout")
        command.set_defaults(run=module.run)
    return parser


@contextmanager
def _told_to_end() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does, with a word."""

    def stop(number: int, frame: Any) -> None:
        error = KeyboardInterrupt("stopped")
        error.number = number  # type: ignore[attr-defined]
        raise error

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave_no_trace() -> None:
    from ..runs.directories import remove_empty

    remove_empty()


def main(argv: Sequence[str] | None = None) -> int:
    parser = build_parser()
    args, more = parser.parse_known_args(argv)
    if more and not getattr(args, "takes_training_arguments", False):
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    args.more = more
    args.words = list(sys.argv[1:] if argv is None else argv)
    output = Output(json=args.json, quiet=args.quiet)
    if args.quiet:
        os.environ["TQDM_DISABLE"] = "1"  # read when tqdm is imported
    try:
        with redirect_stdout(sys.stderr if args.json else sys.stdout), _told_to_end():
            args.run(args, output)
    except AttentrimError as error:
        _leave_no_trace()
        output.error(str(error))
        return 1
    except Exception as error:
        if os.environ.get("ATTENTRIM_DEBUG"):
            raise
        _leave_no_trace()
        output.error(f"{type(error).__name__}: {error} (ATTENTRIM_DEBUG=1 shows where)")
        return 1
    except KeyboardInterrupt as error:
        if output.main:
            output.error(str(error) or "stopped")
        return 128 + getattr(error, "number", signal.SIGINT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
