"""What Karmada collects of members, as the conditions that the dispatcher goes by: Bound, Running, Finished, Released.

Karmada says that an object is applied, not that its pods have nodes, so Bound is True when every cluster has it.
It runs while Karmada finds it healthy or its kind says so: Karmada brings back less of a status than a member has.
Finished is the kind's own word; a kind that Atoll does not know never finishes: delete it to give its quota back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from atoll.control.karmada import gangs
from atoll.control.karmada.caches import Caches, binding_of, is_ours, spec
from atoll.control.settings import StatusSettings
from atoll.kinds import Kind
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import conditions, keys
from atoll.model.apiresource import BINDINGS
from atoll.model.objects import MALFORMED, Full, Slim

Json = dict[str, Any]

OURS: Final = ("Bound", "Running", "Finished", "Released")
"""Conditions of a binding that only control writes."""


class Progress:
    """Keeps the conditions of bindings that Atoll queues."""

    def __init__(self, host: ApiServer, caches: Caches, *, settings: StatusSettings = StatusSettings()) -> None:
        self._host, self._caches, self._settings = host, caches, settings
        self._queue: WorkQueue[str] = WorkQueue("progress", lambda key: {"binding": key})
        caches.bindings.on_change(self._binding_changed)
        caches.works.on_change(self._work_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._queue.run(self._reconcile, workers=self._settings.workers)

    def _binding_changed(self, old: Full | None, new: Full | None) -> None:
        if new is not None and keys.GANG in new.metadata.annotations:
            self._queue.add(new.metadata.key, after=self._settings.reported)

    def _work_changed(self, old: Slim | None, new: Slim | None) -> None:
        if new is None and old is not None and (key := binding_of(old)):
            self._queue.add(key)

    async def _reconcile(self, key: str) -> None:
        binding = self._caches.bindings.get(key)
        if binding is None or keys.GANG not in binding.metadata.annotations or not is_ours(binding):
            return
        left = len(self._caches.works.by_index("binding", key))
        known = (binding.body.get("status") or {}).get("conditions") or []
        wanted = merged(known, said(binding, left), binding.metadata.generation, time.time())
        if wanted == known:
            return
        status = "status" in binding.body
        operations: list[Json] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": binding.metadata.resource_version},
            *([] if status else [{"op": "add", "path": "/status", "value": {}}]),
            {"op": "add", "path": "/status/conditions", "value": wanted},
        ]
        try:
            await self._host.json_patch(
                BINDINGS,
                binding.metadata.name,
                operations,
                binding.metadata.namespace,
                subresource="status",
                field_manager="atoll-progress",
            )
        except errors.NotFound:
            return
        except errors.Invalid as error:
            # Karmada wrote in between: its event is on its way.
            raise errors.Retry(0.2) from error


Said = tuple[str, bool, str, str]
"""(type, status, reason, message) of a condition."""


def said(binding: Full, works: int) -> list[Said]:
    """The conditions of `OURS` that a binding should have.

    Args:
        binding: with what Karmada collected.
        works: how many Works of Karmada it still has.
    """
    targets = spec(binding).get("clusters") or ()
    if not targets:
        evicted = binding.metadata.annotations.get(keys.EPOCH, "0") != "0"
        return [("Released", True, "Gone", "no Work of it is left")] if evicted and not works else []
    collected = {
        str(each.get("clusterName")): each for each in (binding.body.get("status") or {}).get("aggregatedStatus") or ()
    }
    found = [collected[str(target["name"])] for target in targets if str(target["name"]) in collected]
    applied = len(found) == len(targets) and all(each.get("applied") is True for each in found)
    kind = gangs.kind_of(spec(binding))
    runs = applied and all(_runs(kind, each) for each in found)
    ended = [_outcome(kind, each) for each in found] if applied else []
    wanted = [
        ("Bound", applied, "Applied" if applied else "NotApplied", _not_applied(found)),
        ("Running", runs, "Running" if runs else "NotRunning", ""),
    ]
    if ended and all(ended):
        wanted.append(("Finished", True, ended[0], ""))
    return wanted


def merged(known: list[Json], wanted: Sequence[Said], generation: int, now: float) -> list[Json]:
    """Conditions as they should be: Karmada's as they are, and ours, which keep their times while they stay."""
    names = {name for name, *_ in wanted}
    result = [each for each in known if each.get("type") not in OURS or each["type"] in names]
    for name, true, reason, message in wanted:
        result = conditions.with_condition(result, name, true, reason, message, now=now, generation=generation)
    return result


def _not_applied(items: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{each['clusterName']}: {text}" for each in items if (text := str(each.get("appliedMessage") or ""))
    )


def _status(kind: Kind, item: Mapping[str, Any]) -> Mapping[str, Any]:
    return kind.reported({}, item.get("status") or {})


def _runs(kind: Kind | None, item: Mapping[str, Any]) -> bool:
    if item.get("health") == "Healthy":
        return True
    if kind is None:
        return False
    try:
        return kind.running(_status(kind, item))
    except MALFORMED:
        return False


def _outcome(kind: Kind | None, item: Mapping[str, Any]) -> str:
    """How it ended there; empty while it has not."""
    if kind is None:
        return ""
    try:
        return str(kind.finished(_status(kind, item)) or "")
    except MALFORMED:
        return ""
