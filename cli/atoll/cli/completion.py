"""Shell completion of `kubectl atoll`: kubectl calls the program `kubectl_complete-atoll` with the words so far.

It answers as kubectl's own completion does: a candidate per line with its help behind a tab, then a directive.
`atollctl --install-completion` sets up the completion of `atollctl` itself.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys

_NO_FILES = 4
"""Directive: these are all; do not offer file names."""


def candidates(words: list[str]) -> list[str]:
    """Completions of the last word, each with its help behind a tab.

    Args:
        words: after `kubectl atoll`; the last one is the word to complete as typed, maybe empty.
    """
    from atoll.cli.app import tree

    answer = io.StringIO()
    # The protocol between typer and the script that it makes for fish, the one that carries help.
    asked = {
        "_ATOLLCTL_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": shlex.join(["atollctl", *words[:-1]]) + " " + "".join(words[-1:]),
    }
    before = {name: os.environ.get(name) for name in asked}
    os.environ.update(asked)
    try:
        with contextlib.redirect_stdout(answer), contextlib.suppress(SystemExit):
            tree()(prog_name="atollctl", args=[])
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
    return [line for line in answer.getvalue().splitlines() if line]


def main() -> None:
    """Entry point of `kubectl_complete-atoll`."""
    for line in candidates(sys.argv[1:] or [""]):
        print(line)
    print(f":{_NO_FILES}")
