"""Options that every command takes, wherever they stand on the command line, as with kubectl."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.quick import hasten

_TAKES_VALUE = ("--kubeconfig", "--context", "--namespace", "-n")
_FLAGS = ("--all-namespaces", "-A", "--version")


class AnywhereGroup(TyperGroup):
    """The root command: moves global options to the front, so that they may follow the command as well."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse after moving."""
        hasten(self)
        front, rest = hoisted(args)
        return super().parse_args(ctx, front + rest)


def hoisted(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """The global options, and all other arguments; what follows `--` is left alone."""
    front: list[str] = []
    rest: list[str] = []
    todo = list(args)
    while todo:
        arg = todo.pop(0)
        if arg == "--":
            rest += [arg, *todo]
            break
        if arg in _TAKES_VALUE:
            front += [arg, *todo[:1]]
            del todo[:1]
        elif arg in _FLAGS or (arg.startswith(_TAKES_VALUE[:3]) and "=" in arg) or _is_short_namespace(arg):
            front.append(arg)
        else:
            rest.append(arg)
    return front, rest


def _is_short_namespace(arg: str) -> bool:
    return arg.startswith("-n") and not arg.startswith("--") and len(arg) > 2


@dataclass(frozen=True, slots=True)
class Settings:
    """The global options of this call."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    all_namespaces: bool = False

    @property
    def where(self) -> str | None:
        """The namespace to list, None for all of them."""
        return None if self.all_namespaces else self.one_namespace

    @property
    def one_namespace(self) -> str:
        """The namespace of a named object."""
        if self.namespace:
            return self.namespace
        return default_namespace(self.kubeconfig, self.context)


def default_namespace(kubeconfig: str | None, context: str | None) -> str:
    """The namespace that the kubeconfig's context names, else `default`."""
    from atoll.kube import plainconfig

    paths = [kubeconfig] if kubeconfig else (os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep)
    return plainconfig.namespace(paths, context) or "default"


def settings(ctx: typer.Context) -> Settings:
    """The global options; defaults where a command is called without the root."""
    found = ctx.find_object(Settings)
    return found if found is not None else Settings()


class Format(StrEnum):
    """Values of `--output`; the last two are followed by `=` and a template."""

    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    JSONPATH = "jsonpath"
    COLUMNS = "custom-columns"


_TEMPLATES = {Format.JSONPATH: "TEMPLATE", Format.COLUMNS: "HEADER:PATH,..."}


@dataclass(frozen=True, slots=True)
class Shape:
    """How objects are printed."""

    format: Format | None = None
    """None for a table."""
    template: str = ""

    @property
    def wide(self) -> bool:
        """Whether the table has its further columns."""
        return self.format is Format.WIDE

    @property
    def table(self) -> bool:
        """Whether it is the command's own table, not the objects themselves."""
        return self.format in (None, Format.WIDE)


def shape(output: str | None) -> Shape:
    """What a value of `--output` asks for.

    Raises:
        CommandError: there is no such format, or its template is missing or superfluous.
    """
    if output is None:
        return Shape()
    name, equals, template = output.partition("=")
    choices = ", ".join(f"{each}={_TEMPLATES[each]}" if each in _TEMPLATES else each for each in Format)
    if name not in list(Format) or (equals and Format(name) not in _TEMPLATES):
        raise CommandError(f"{output!r} is no format: choose one of {choices}", USAGE)
    found = Format(name)
    if found in _TEMPLATES and not template:
        raise CommandError(f"-o {name}: write {name}={_TEMPLATES[found]}", USAGE)
    return Shape(found, template)


def _checked(value: str | None) -> str | None:
    try:
        shape(value)
    except CommandError as error:
        raise typer.BadParameter(str(error)) from error
    return value


def _formats(incomplete: str) -> list[str]:
    return [f"{each}=" if each in _TEMPLATES else each.value for each in Format if each.startswith(incomplete)]


class DataFormat(StrEnum):
    """Values of `--output` where only data makes sense."""

    JSON = "json"
    YAML = "yaml"


Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="As with kubectl: wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,...",
        show_default=False,
        callback=_checked,
        autocompletion=_formats,
    ),
]
Selector = Annotated[
    str | None,
    typer.Option("--selector", "-l", help="Only those with such labels, such as team=a or 'env in (dev,test)'."),
]
SortBy = Annotated[
    str | None, typer.Option("--sort-by", metavar="PATH", help="Order by a field, such as .metadata.creationTimestamp.")
]
DataOutput = Annotated[DataFormat | None, typer.Option("--output", "-o", help="Output as data.", show_default=False)]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Leave the header line out.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on and print what changes, until ^C.")]


class DryRun(StrEnum):
    """Values of `--dry-run`, as kubectl has them."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


Dry = Annotated[
    DryRun,
    typer.Option(
        help="client: print what would be sent, and send nothing; server: have the server check it and keep nothing."
    ),
]
