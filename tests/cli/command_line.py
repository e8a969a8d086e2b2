"""Parses command lines as `atollctl` does, and runs nothing."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from atoll.cli.app import tree


def parse(words: list[str]) -> typer.Context:
    """The context in which the program would run the command.

    Raises:
        UsageError: the program would refuse it.
    """
    command: Any = typer.main.get_command(tree())
    context: typer.Context = command.make_context("atollctl", list(words))
    while isinstance(command, TyperGroup):
        rest = [*context._protected_args, *context.args]
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, f"there is no command {name!r}"
        command = found
        context = command.make_context(name, rest, parent=context)
    return context
