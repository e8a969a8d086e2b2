"""YAML and JSON texts from users and members, read at a cost that their length bounds.

A YAML alias stands for all that its anchor names: 700 bytes of aliases and merge keys build gigabytes. Deep nesting
exhausts the stack of whatever walks the result. Both are found in the events of the parser, before anything is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

LARGEST: Final = 64 * 1024
"""Bytes of a document inside a field: reading and writing it as YAML takes a tenth of a second."""
DEEPEST: Final = 64
"""Levels of nesting; pod templates have about twenty."""
MOST_NODES: Final = 200_000
"""Values that all aliases of a YAML file may stand for."""

# The parser in C is ten times faster, where PyYAML was built with it.
LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class BadDocument(ValueError):
    """The text is not read; the message says why and how to change it."""


def read_yaml(text: str | bytes, *, largest: int = LARGEST) -> Any:
    """The value of a YAML text without aliases.

    Args:
        text: one document.
        largest: bytes.

    Raises:
        BadDocument: it is no YAML, has aliases, or is too large or too deep.
    """
    _bounded(text, largest)
    found = list(_documents(text, aliases=False))
    if len(found) > 1:
        raise BadDocument(f"it has {len(found)} documents; one is wanted")
    return found[0] if found else None


def read_yaml_file(text: str | bytes, loader: Any = LOADER) -> list[Any]:
    """The documents of a YAML file that somebody names on a command line, aliases included.

    Args:
        text: of the file.
        loader: builds the values.

    Raises:
        BadDocument: it is no YAML, stands for too many values, or is too deep.
    """
    return list(_documents(text, loader, aliases=True))


def read_json(text: str | bytes, *, largest: int = LARGEST) -> Any:
    """The value of a JSON text.

    Args:
        text: one document.
        largest: bytes.

    Raises:
        BadDocument: it is no JSON, or too large or too deep.
    """
    _bounded(text, largest)
    try:
        found = msgspec.json.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.MsgspecError as error:
        raise BadDocument(f"not JSON: {error}") from error
    check_depth(found)
    return found


def check_depth(value: Any, deepest: int = DEEPEST) -> None:
    """Refuse a value that is nested more deeply.

    Raises:
        BadDocument: it is.
    """
    level = [value]
    for _ in range(deepest):
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise _too_deep(deepest)


def _bounded(text: str | bytes, largest: int) -> None:
    if len(text) > largest:
        raise BadDocument(f"it has {len(text)} bytes; the most that is read is {largest}")


def _too_deep(deepest: int = DEEPEST) -> BadDocument:
    return BadDocument(f"it is nested more than {deepest} levels deep; make it flatter")


def _documents(text: str | bytes, loader: Any = LOADER, *, aliases: bool) -> Iterator[Any]:
    try:
        _check_events(text, aliases=aliases)
        yield from yaml.load_all(text, loader)
    except BadDocument:
        raise
    except yaml.YAMLError as error:
        raise BadDocument(f"not YAML: {' '.join(str(error).split())[:300]}") from error
    except Exception as error:
        # The parser lets errors of numbers, dates and types through.
        text = f"a number or a date in it can't be read, put it in quotes: {str(error)[:200]}"
        raise BadDocument(f"not YAML: {text}") from error


def _check_events(text: str | bytes, *, aliases: bool) -> None:
    #: of each collection that is open: its anchor, and how many values it stands for
    opened: list[tuple[str | None, int]] = []
    anchors: dict[str, int] = {}
    expanded = 0
    for event in yaml.parse(text, LOADER):
        size = 1
        if isinstance(event, yaml.CollectionStartEvent):
            if len(opened) == DEEPEST:
                raise _too_deep()
            opened.append((event.anchor, 1))
            continue
        if isinstance(event, yaml.AliasEvent):
            if not aliases:
                raise BadDocument(f"aliases (*{event.anchor}) are not allowed: write the value itself")
            if event.anchor not in anchors:
                raise BadDocument(f"alias *{event.anchor} names no value before it")
            size = anchors[event.anchor]
            expanded += size
            if expanded > MOST_NODES:
                raise BadDocument(f"its aliases stand for more than {MOST_NODES} values")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = opened.pop()
            if anchor:
                anchors[anchor] = size
        elif isinstance(event, yaml.ScalarEvent):
            if event.anchor:
                anchors[event.anchor] = 1
        else:
            continue
        if opened:
            anchor, before = opened[-1]
            opened[-1] = anchor, before + size
