"""What a lifecycle policy asks for in one part of a divided gang, done in all of its parts.

A member does not restart or stop its part of a gang by itself: it reports `ActionRequired`. The host answers with the
action as an annotation on the binding, which goes to every part with the next look at its Works. The numbers in it,
epoch and highest retry count that a part has reported, make a repeated wish a new one.
"""

from __future__ import annotations

import structlog

from atoll.control.caches import Caches
from atoll.control.works import binding_key
from atoll.delivery.work import WorkObject
from atoll.kinds import kind_of
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys
from atoll.model.apiresource import BINDINGS

log = structlog.get_logger(__name__)


class Actions:
    """Answers the parts of divided gangs that ask for an action."""

    def __init__(self, host: ApiServer, caches: Caches) -> None:
        self._host, self._caches = host, caches
        self._queue: WorkQueue[str] = WorkQueue("actions", caches.about, owns=caches.owns)
        caches.works.on_change(self._work_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._queue.run(self._reconcile)

    def _work_changed(self, old: WorkObject | None, new: WorkObject | None) -> None:
        if new is not None and asked(new) is not None:
            self._queue.add(binding_key(new))

    async def _reconcile(self, key: str) -> None:
        binding = self._caches.bindings.get(key)
        if binding is None or binding.suspended:
            return
        works = self._caches.current_works(binding)
        value = answer(works)
        if value is None or binding.metadata.annotations.get(keys.ACTION) == value:
            return
        log.info("a policy of one part acts on all", binding=key, action=value)
        patch = {"metadata": {"uid": binding.metadata.uid, "annotations": {keys.ACTION: value}}}
        try:
            await self._host.merge_patch(
                BINDINGS, binding.metadata.name, patch, binding.metadata.namespace, field_manager="atoll-control"
            )
        except (errors.NotFound, errors.Conflict):
            return


def asked(work: WorkObject) -> str | None:
    """The action that this part asks for."""
    kind = kind_of(work.manifest)
    return kind.asked(work.reported) if kind is not None else None


def answer(works: list[WorkObject]) -> str | None:
    """`Action/epoch-retries` for all parts; of different wishes the first by member; None when no part asks."""
    wishes = [action for work in works if (action := asked(work)) is not None]
    if not wishes:
        return None
    retries = max(kind.retries(work.reported) for work in works if (kind := kind_of(work.manifest)) is not None)
    return f"{wishes[0]}/{works[0].epoch}-{retries}"
