"""The part of JSON patch (RFC 6902) that admission needs: additions, made and carried out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

Operation = dict[str, Any]


def add(value: object, *path: str | int) -> Operation:
    """Set this member of an object, or insert before this index of a list."""
    pointer = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return {"op": "add", "path": pointer, "value": value}


def applied(document: dict[str, Any], operations: Sequence[Operation]) -> dict[str, Any]:
    """The document with these additions of members carried out; untouched parts are shared with the original.

    Raises:
        KeyError, IndexError, TypeError: the place of an addition does not exist.
    """
    result = dict(document)
    #: containers that are copies already, by identity; each is kept alive by `result`
    copied = {id(result)}
    for operation in operations:
        *parents, last = (step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:])
        place: Any = result
        for step in parents:
            key = int(step) if isinstance(place, list) else step
            if id(place[key]) not in copied:
                place[key] = copy.copy(place[key])
                copied.add(id(place[key]))
            place = place[key]
        place[last] = operation["value"]
    return result
