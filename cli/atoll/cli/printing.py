"""Tables as kubectl prints them, and objects as JSON or YAML."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from atoll.cli.errors import CommandError
from atoll.cli.options import DataFormat, Format, Shape
from atoll.view.tables import Rows, table

Json = dict[str, Any]


def show_table(headers: Sequence[str], rows: Rows, *, no_headers: bool = False) -> None:
    """Print a table; bold headers on a terminal, plain text anywhere else."""
    text = table(headers, rows, no_headers=no_headers)
    if no_headers or not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    head, _, body = text.partition("\n")
    console = Console(soft_wrap=True, highlight=False)
    console.print(Text(head, style="bold"))
    if body:
        print(body)


def show_objects(objects: Sequence[Json], shape: Shape, *, one: bool, no_headers: bool = False) -> None:
    """Print objects as data, as names, or as a template says.

    Args:
        objects: as the API server gave them.
        shape: anything but a table.
        one: print the object itself, not a List.
        no_headers: leave the header line out.

    Raises:
        CommandError: the template can't be read, or can't be applied to these objects.
    """
    if shape.format is Format.NAME:
        for item in objects:
            print(name_of(item))
        return
    content = objects[0] if one else {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(objects)}
    if shape.format is Format.COLUMNS:
        from atoll.cli import columns

        wanted = columns.parse(shape.template)
        print(table(wanted.headers, [wanted.row(item) for item in objects], no_headers=no_headers))
    elif shape.format is Format.JSONPATH:
        from atoll.cli import jsonpath

        try:
            text = jsonpath.render(shape.template, content)
        except jsonpath.JsonPathError as error:
            raise CommandError(f"-o jsonpath: {error}") from error
        print(text, end="")
    else:
        assert shape.format is not None, "a table is not printed here"
        show_data(content, DataFormat(shape.format.value))


def name_of(item: Json) -> str:
    """As kubectl names an object: `queue.scheduling.volcano.sh/research`."""
    group = item["apiVersion"].rpartition("/")[0]
    return f"{item['kind'].lower()}{'.' if group else ''}{group}/{item['metadata']['name']}"


def show_data(content: Any, output: DataFormat) -> None:
    """Print anything as JSON or YAML."""
    if output is DataFormat.JSON:
        print(json.dumps(content, indent=4, ensure_ascii=False))
        return
    import yaml

    print(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120), end="")
