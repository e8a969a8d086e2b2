"""What makes short commands short: libraries' work that these commands do not need is left undone.

Typer converts every value with pydantic, whose import costs a third of the CPU time that a command takes. A text,
a flag, a choice by its name are what they are without it; everything else, and everything that is wrong, goes to Typer
as before, so that its rules and its messages stay the only ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

_NO: Any = object()


@contextmanager
def without_authorities() -> Iterator[None]:
    """Import aiohttp in this: on import it reads every authority that the machine trusts, for requests without a
    TLS context. Ours all have one, which reads them if it needs them.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, os.devnull))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)


def hasten(command: Any) -> None:
    """Let a command, and those below it, take plain values as they are.

    Args:
        command: of Typer.
    """
    for parameter in command.params:
        _hasten_one(parameter)
    asked = command.get_help_option
    command.get_help_option = lambda ctx: _hasten_one(asked(ctx))
    for inner in getattr(command, "commands", {}).values():
        hasten(inner)


def _hasten_one(parameter: Any) -> Any:
    # Another release of Typer may have no such attribute: then all values take the long way.
    if getattr(parameter, "_runtime_param", _NO) is None and hasattr(parameter, "type_descriptor"):
        parameter._runtime_param = _Plain(parameter)
    return parameter


class _Plain:
    """In the place of Typer's own converter, which it calls for values that are not plain."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        taken = _taken(value, param.type_descriptor.annotation, several=param.multiple or param.nargs == -1)
        if taken is not _NO:
            return taken
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _taken(value: Any, annotation: Any, *, several: bool) -> Any:
    if value is None:
        return () if several else None
    if several:
        whole = isinstance(value, list | tuple) and all(type(each) is str for each in value)
        return list(value) if whole and annotation == list[str] else _NO
    if annotation is str:
        return value if type(value) is str else _NO
    if isinstance(annotation, type) and issubclass(annotation, Enum) and type(value) is str:
        return next((each for each in annotation if each.value == value), _NO)
    return _NO
