"""The suspend switch of workloads on the host, for kinds that have one.

It is lifted once the binding is bound and set again when it is evicted.

Nothing reconciles these workloads on the host; the switch tells people and tools where a workload stands, as Kueue's
users know it. A workload that its user holds is not lifted.
"""

from __future__ import annotations

from atoll.control.caches import Caches
from atoll.control.objects import BindingObject
from atoll.control.settings import HoldsSettings
from atoll.kinds import Kind
from atoll.kinds.metadata import held
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.objects import Full


class Holds:
    """Keeps the suspend switch of every workload as its binding stands."""

    def __init__(self, host: ApiServer, caches: Caches, *, settings: HoldsSettings = HoldsSettings()) -> None:
        self._settings = settings
        self._host, self._caches = host, caches
        self._queue: WorkQueue[str] = WorkQueue("holds", caches.about, owns=caches.owns)
        caches.bindings.on_change(self._binding_changed)
        for reflector in caches.workloads.values():
            reflector.on_change(self._workload_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._queue.run(self._reconcile, workers=self._settings.workers)

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        if new is not None and (old is None or should_suspend(old) != should_suspend(new)):
            self._queue.add(new.metadata.key)

    def _workload_changed(self, old: Full | None, new: Full | None) -> None:
        if new is not None and (old is None or old.metadata.generation != new.metadata.generation or _let_go(old, new)):
            for binding in self._caches.bindings.by_index("workload", new.metadata.uid):
                self._queue.add(binding.metadata.key)

    async def _reconcile(self, key: str) -> None:
        binding = self._caches.bindings.get(key)
        found = self._caches.workload_of(binding) if binding is not None else None
        if binding is None or found is None:
            return
        kind, obj = found
        wanted = should_suspend(binding)
        patch = kind.suspension(obj.body, suspended=wanted) if wanted is not None else ()
        if not patch or _leave_alone(kind, obj, binding):
            return
        # Its user may just have suspended it; a status that was just written does no harm.
        tests: list[dict[str, object]] = [
            {"op": "test", "path": "/metadata/uid", "value": obj.metadata.uid},
            {"op": "test", "path": "/metadata/generation", "value": obj.metadata.generation},
        ]
        try:
            await self._host.json_patch(
                kind.resource,
                obj.metadata.name,
                [*tests, *patch],
                obj.metadata.namespace,
                field_manager="atoll-control",
            )
        except errors.NotFound:
            return
        except errors.Invalid:
            if self._caches.workloads[kind.resource].get(obj.metadata.key) is obj:
                raise


def should_suspend(binding: BindingObject) -> bool | None:
    """Whether the workload of this binding must be suspended; None while its pods are still on their way."""
    if binding.suspended or binding.metadata.deletion_timestamp is not None:
        return True
    if any(map(binding.condition, ("Bound", "Running", "Finished"))):
        return False
    return None


def _leave_alone(kind: Kind, obj: Full, binding: BindingObject) -> bool:
    """Whether the switch is not ours to move now: the workload has ended or goes away, or its user holds it."""
    if obj.metadata.deletion_timestamp is not None or kind.finished(obj.body.get("status") or {}) is not None:
        return True
    return held(obj.body) and not binding.suspended and not binding.condition("Finished")


def _let_go(old: Full, new: Full) -> bool:
    return held(old.body) != held(new.body)
