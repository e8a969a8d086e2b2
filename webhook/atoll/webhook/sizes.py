"""Workloads that are larger than their binding, a Work or a member can note: refused, for they would never run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from atoll.admission.problems import Json, Problem, mapping
from atoll.delivery.delivered import MOST_ANNOTATIONS, noted
from atoll.delivery.work import MOST_SENT
from atoll.kinds import Kind
from atoll.kinds.metadata import for_member
from atoll.model import gang
from atoll.model.objects import MALFORMED

MOST_GANG: Final = 128 * 1024
"""Bytes of what a workload asks for, in its binding; all annotations of an object together may have twice as many."""


_SMALL: Final = 96 * 1024
"""Bytes of a workload whose record is not made to measure it: it can't be longer than the workload."""


def problems(kind: Kind, obj: Json) -> Iterator[Problem]:
    """Whether binding, Work and member can note the workload; of one that can't be read others say why."""
    try:
        asked = len(gang.encode(kind.gang(obj, priority=0)).encode())
    except MALFORMED:
        return
    if asked > MOST_GANG:
        text = (
            f"what its pods ask for takes {asked} bytes in its binding, which holds {MOST_GANG}: shorten selectors,"
            " affinities and tolerations in its templates, or make several Jobs of it"
        )
        yield Problem("spec", text)
    yield from _sent_problems(obj, asked)


def _sent_problems(obj: Json, asked: int) -> Iterator[Problem]:
    """Whether members can get the workload, with the bytes of its gang, and note their copies."""
    try:
        metadata = for_member({"metadata": {"name": "", "namespace": "", **mapping(obj.get("metadata"))}})
        sent = {"metadata": metadata, "spec": obj.get("spec") or {}}
        size = len(msgspec.json.encode(sent))
        if size <= _SMALL:
            return
        size += asked
        notes = noted(sent)
    except MALFORMED:
        return
    if size > MOST_SENT:
        text = f"the workload takes {size} bytes on its way to a member, which holds {MOST_SENT}"
        yield Problem("spec", f"{text}: put data into a ConfigMap, on a volume or into the image")
    elif notes > MOST_ANNOTATIONS:
        text = (
            f"its annotations take {notes} bytes in a member, which holds {MOST_ANNOTATIONS}, since one of them records"
            " the names of all fields and variables"
        )
        yield Problem("metadata.annotations", f"{text}: shorten annotations, or make names fewer and shorter")
