"""Workloads that ask for more than their binding can say: refused, for no binding would ever be made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from atoll.admission.problems import Json, Problem
from atoll.kinds import Kind
from atoll.model import gang
from atoll.model.objects import MALFORMED

MOST_GANG: Final = 128 * 1024
"""Bytes of what a workload asks for, in its binding; all annotations of an object together may have twice as many."""


def gang_problems(kind: Kind, obj: Json) -> Iterator[Problem]:
    """Whether what the workload asks for is too long for its binding; of one that can't be read others say why."""
    try:
        size = len(gang.encode(kind.gang(obj, priority=0)).encode())
    except MALFORMED:
        return
    if size > MOST_GANG:
        text = (
            f"what its pods ask for takes {size} bytes in its binding, which holds {MOST_GANG}: shorten selectors,"
            " affinities and tolerations in its templates, or make several Jobs of it"
        )
        yield Problem("spec", text)
