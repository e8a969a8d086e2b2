"""`atollctl import`: queues and priorities of Kueue or Volcano as Atoll's, for `kubectl apply`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from atoll.cli.imported import Imported

app = typer.Typer(no_args_is_help=True, help="Queues and priorities of Kueue or Volcano as Atoll's, as YAML.")

Files = Annotated[
    list[str],
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE",
        help="Manifests of the other system; - reads standard input; may be repeated.",
    ),
]


@app.command(epilog="Example: atollctl import kueue -f kueue.yaml > queues.yaml; kubectl apply -f queues.yaml")
def kueue(filename: Files) -> None:
    """Print Queues and PriorityClasses for Kueue's objects; stderr names fields without counterpart and remedies."""
    from atoll.cli import import_kueue

    _print(filename, import_kueue.imported)


@app.command(epilog="Example: atollctl import volcano -f volcano.yaml | kubectl apply -f -")
def volcano(filename: Files) -> None:
    """Print Queues and PriorityClasses for Volcano's objects; stderr names fields without counterpart and remedies."""
    from atoll.cli import import_volcano

    _print(filename, import_volcano.imported)


def _print(filenames: Sequence[str], convert: Callable[[Sequence[dict[str, Any]]], Imported]) -> None:
    import yaml

    from atoll.cli.imported import flattened
    from atoll.cli.what_if import read_documents

    found = convert(flattened([each for name in filenames for each in read_documents(name)]))
    for note in dict.fromkeys(found.notes):
        print(f"Note: {note}", file=sys.stderr)
    if not found.objects:
        raise CommandError("there is no queue and no priority class among these objects", USAGE)
    print(yaml.safe_dump_all(found.objects, sort_keys=False, allow_unicode=True, width=120), end="")
