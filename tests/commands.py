"""Commands, run as a user would."""

from __future__ import annotations

import json

from attentrim.cli import main


def run(*arguments):
    return main([str(argument) for argument in arguments])


def run_json(capsys, *arguments):
    capsys.readouterr()
    code = run(*arguments, "--json")
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert printed.out.count("\n") == 1
    return json.loads(printed.out)


def fails(capsys, *arguments):
    """The one line of a command that must fail."""
    capsys.readouterr()
    assert run(*arguments) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("attentrim: error: ")]
    assert len(lines) == 1
    return lines[0].removeprefix("attentrim: error: ")
