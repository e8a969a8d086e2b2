"""docs/cli.md from the command tree: `python -m atoll.cli.reference [--check]`.

What the page says of a command is what `--help` says of it, so that the two can't differ.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from atoll.cli.app import tree

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"

_HEAD = """\
<!-- Generated from the command tree; to change it, edit atoll.cli and run: python -m atoll.cli.reference -->
# atollctl

Also installed as `kubectl-atoll`, so that `kubectl atoll queue list` works; `kubectl_complete-atoll` completes it.
Completion of `atollctl` itself: `atollctl --install-completion`, or `atollctl --show-completion` to see the script. It
offers names of jobs, queues and members too, as far as the host tells within a second and a half.

Global options may stand anywhere on the command line, as with kubectl. Exit codes: 0 done, 1 failed, 2 wrong usage,
130 interrupted.

## Formats, orders, choices

As with kubectl: `-o json`, `yaml` and `name` print the objects themselves, `-o jsonpath=TEMPLATE` fills in a template
(`{range .items[*]}{.metadata.name}{"\\n"}{end}`; filters, slices, unions, `..`; what is missing is empty, an index
beyond a list is an error), `-o custom-columns=HEADER:PATH,...` prints a table of fields. `--sort-by PATH` orders by a
field: numbers and quantities by size, texts as people count. `-l SELECTOR` chooses by labels, in lists and instead of
names in verbs; the server compares. A verb with several objects does its work on each, says of each what became of it,
and ends with 1 if one failed.

`-o jsonpath` and `-o custom-columns` read what the API server has; what `explain`, `describe` and `job pods` compute is
printed by `-o json`.
"""


def page() -> str:
    """The whole page."""
    root: Any = typer.main.get_command(tree())
    context = root.context_class(root, info_name="atollctl")
    parts = [_HEAD, "## Global options\n", _table(root, context)]
    for trail, command, inner in _commands(root, context):
        parts.append(_section(trail, command, inner))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _commands(group: Any, context: Any, trail: tuple[str, ...] = ("atollctl",)) -> Iterator[tuple[str, Any, Any]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        inner = command.context_class(command, info_name=name, parent=context)
        if hasattr(command, "list_commands"):
            yield from _commands(command, inner, (*trail, name))
        else:
            yield " ".join((*trail, name)), command, inner


def _section(trail: str, command: Any, context: Any) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"## {trail}\n", inspect.cleandoc(command.help or ""), "", f"`{trail} {usage}`", ""]
    if table := _table(command, context):
        lines += [table, ""]
    if command.epilog:
        text = " ".join(command.epilog.split())
        title, _, example = text.partition(": ")
        lines += [f"{title}: `{example}`", ""]
    return "\n".join(lines)


def _table(command: Any, context: Any) -> str:
    rows = []
    for parameter in command.params:
        # The help of these two depends on the shell that runs this.
        if parameter.name in ("install_completion", "show_completion"):
            continue
        record = parameter.get_help_record(context)
        if record is not None:
            name, text = (" ".join(str(part).split()).replace("|", "\\|") for part in record)
            rows.append(f"| `{name}` | {text} |")
    return "\n".join(["| option | meaning |", "|---|---|", *rows]) if rows else ""


def main(argv: list[str] | None = None) -> int:
    """Write the page, or with --check compare it; 1 if it is out of date."""
    parser = argparse.ArgumentParser(prog="python -m atoll.cli.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; 1 on a difference")
    check: bool = parser.parse_args(argv).check
    wanted = page()
    if PAGE.exists() and PAGE.read_text("utf-8") == wanted:
        return 0
    if check:
        print("docs/cli.md differs from the commands; run python -m atoll.cli.reference", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, "utf-8")
    print(PAGE.name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
