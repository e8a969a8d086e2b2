"""The caches that the host's controllers share."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from atoll.control import objects
from atoll.control.assembled import Assembled
from atoll.delivery import decode_reported
from atoll.delivery.work import WorkObject
from atoll.kinds import BY_GVK, BY_RESOURCE, Kind, known, left_to_atoll, nearness
from atoll.kinds.metadata import default_queue
from atoll.kube.crds import crds, wake
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys, scoring
from atoll.model.apiresource import (
    BINDINGS,
    CLUSTER_OVERRIDES,
    CLUSTER_POLICIES,
    CLUSTERS,
    COMMANDS,
    HYPER_JOBS,
    JOB_FLOWS,
    JOB_TEMPLATES,
    JOBS,
    LEASES,
    NAMESPACES,
    OVERRIDES,
    POLICIES,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    VOLCANO_CRON_JOBS,
    WORKS,
    ApiResource,
)
from atoll.model.binding_names import binding_names
from atoll.model.gang import Gang
from atoll.model.lost import absence, lost_at
from atoll.model.namespaces import PROPAGATED, is_system, opted_in
from atoll.model.objects import Full, Meta, decode_full, decode_meta
from atoll.model.overrides import decode_override
from atoll.model.policies import PolicyObject, decode_policy, selected
from atoll.model.priority import decode_priority_class
from atoll.model.queue_object import decode_queue
from atoll.model.queues import most_grace
from atoll.model.shards import WHOLE, Shard


class Caches:
    """One reflector per resource; `run` keeps them."""

    def __init__(self, host: ApiServer, shard: Shard = WHOLE) -> None:
        #: whose namespaces are looked after here; caches have all, as queues and members are of all namespaces
        self.shard, self.owns = shard, shard.owns
        self.workloads: dict[ApiResource, Reflector[Full] | Assembled] = {
            kind.resource: Reflector(host, kind.resource, decode_full, optional=kind.optional)
            if kind.assembly is None
            else Assembled(host, kind, self._uid_of)
            for kind in known()
        }
        self.crds = crds(host)
        #: what makes Volcano Jobs, and of what; a host that an older `init` prepared has none
        self.makers: dict[ApiResource, Reflector[Full]] = {
            resource: Reflector(host, resource, decode_full, optional=True)
            for resource in (VOLCANO_CRON_JOBS, JOB_FLOWS, JOB_TEMPLATES, HYPER_JOBS)
        }
        optional = (each for each in self.workloads.values() if isinstance(each, Reflector))
        wake(self.crds, (*optional, *self.makers.values()))
        self.namespaces = Reflector(host, NAMESPACES, decode_meta)
        self.rules: dict[ApiResource, Reflector[Full]] = {
            resource: Reflector(host, resource, decode_full) for resource in PROPAGATED.values()
        }
        #: a host older than Kubernetes 1.34 has none
        self.device_claims: dict[ApiResource, Reflector[Full]] = {
            resource: Reflector(host, resource, decode_full, optional=True, withheld=True)
            for resource in (RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)
        }
        self.policies = Reflector(host, POLICIES, decode_policy)
        self.cluster_policies = Reflector(host, CLUSTER_POLICIES, decode_policy)
        self.overrides = Reflector(host, OVERRIDES, decode_override)
        self.cluster_overrides = Reflector(host, CLUSTER_OVERRIDES, decode_override)
        self.priority_classes = Reflector(host, PRIORITY_CLASSES, decode_priority_class)
        self.bindings = Reflector(host, BINDINGS, objects.decode_binding)
        self.works = Reflector(host, WORKS, decode_reported)
        self.queues = Reflector(host, QUEUES, decode_queue)
        self.commands = Reflector(host, COMMANDS, objects.decode_command)
        self.clusters = Reflector(host, CLUSTERS, objects.decode_cluster)
        self.leases = Reflector(host, LEASES, objects.decode_lease, field_selector="metadata.name=atoll-agent")
        self._all: tuple[Reflector[Any] | Assembled, ...] = (
            self.crds, self.namespaces, self.priority_classes, self.policies, self.cluster_policies, self.overrides,
            self.cluster_overrides, self.queues, self.clusters, self.leases, self.works, self.bindings, self.commands,
            *self.workloads.values(), *self.rules.values(), *self.makers.values(), *self.device_claims.values(),
        )  # fmt: skip
        self.bindings.add_index("workload", lambda binding: [binding.spec.resource.uid] if binding.ours else [])
        self.bindings.add_index("uid", lambda binding: [binding.metadata.uid])
        self.bindings.add_index("queue", lambda binding: [g.queue] if (g := binding.gang) else [])
        self.bindings.add_index("cluster", lambda binding: [target.name for target in binding.spec.clusters])
        self.bindings.add_index("namespace", lambda binding: [binding.metadata.namespace])
        for policies in (self.policies, self.cluster_policies):
            policies.add_index("selected", selected)
            policies.add_index("depends on override", lambda policy: policy.spec.dependent_overrides)
        for overrides in (self.overrides, self.cluster_overrides):
            overrides.add_index("selected", selected)
        for rules in self.rules.values():
            rules.add_index("namespace", lambda rule: [rule.metadata.namespace])
        for workloads in (*self.workloads.values(), *self.makers.values()):
            workloads.add_index("namespace", lambda obj: [obj.metadata.namespace])
        jobs = self.workloads[JOBS]
        assert isinstance(jobs, Reflector), "each is one object"
        self.jobs = jobs
        self.jobs.add_index("owner", lambda job: [uid] if (uid := job.metadata.controller_uid) else [])
        self.works.add_index("namespace", lambda work: [work.metadata.namespace])
        self.queues.add_index("parent", lambda queue: [queue.spec.parent] if queue.spec.parent else [])
        self.works.add_index("binding", lambda work: [work.binding_uid])
        #: binding UID -> (namespace, name) of Works that were created and have not been seen yet
        self.expected_works: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self.works.on_change(self._work_seen)
        self.bindings.on_change(self._binding_seen)

    @property
    def synced(self) -> bool:
        return all(reflector.synced.is_set() for reflector in self._all)

    async def run(self) -> None:
        """Keep all caches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._all:
                group.create_task(reflector.run())

    async def wait(self) -> None:
        """Until everything has been listed once."""
        for reflector in self._all:
            await reflector.synced.wait()

    def _work_seen(self, old: WorkObject | None, new: WorkObject | None) -> None:
        if new is not None and (expected := self.expected_works.get(new.binding_uid)):
            expected.discard((new.metadata.namespace, new.metadata.name))

    def _binding_seen(self, old: objects.BindingObject | None, new: objects.BindingObject | None) -> None:
        if old is not None and new is None:
            self.expected_works.pop(old.metadata.uid, None)

    def on_edited_workload(self, look: Callable[[str], None]) -> None:
        """Call `look(key of the binding)` when the spec of a binding's workload was changed, or its division; before
        `run`.
        """

        def changed(kind: Kind, old: Full | None, new: Full | None) -> None:
            if old is None or new is None:
                return
            edited = old.metadata.generation != new.metadata.generation
            if edited or kind.division(old.body) != kind.division(new.body):
                for binding in self.bindings.by_index("workload", new.metadata.uid):
                    look(binding.metadata.key)

        for resource, reflector in self.workloads.items():
            reflector.on_change(partial(changed, BY_RESOURCE[resource]))

    def about(self, binding_key: str) -> dict[str, str]:
        """The log fields of work on a binding: itself and, while it exists, its workload."""
        binding = self.bindings.get(binding_key)
        if binding is None:
            return {"binding": binding_key}
        reference = binding.spec.resource
        return {"binding": binding_key, "workload": f"{reference.namespace}/{reference.name}"}

    def _uid_of(self, kind: Kind, key: str, objects: list[Full]) -> str:
        """The UID that the binding of a workload of several objects knows, while one of those is left that it was made
        of: others may have taken the place of the first.
        """
        namespace, name = key.split("/")
        uids = {each.metadata.uid for each in objects}
        for candidate in binding_names(kind.resource, name):
            binding = self.bindings.get(f"{namespace}/{candidate}")
            if binding is not None and any(owner.uid in uids for owner in binding.metadata.owner_references):
                return binding.spec.resource.uid
        return ""

    # -- questions that several controllers ask ----------------------------------------------------------------------

    def workload_of(self, binding: objects.BindingObject) -> tuple[Kind, Full] | None:
        """The workload that a binding of ours stands for, if it is still the same object."""
        if not binding.ours:
            return None
        reference = binding.spec.resource
        if (kind := BY_GVK.get((reference.api_version, reference.kind))) is None:
            return None
        obj = self.workloads[kind.resource].get(f"{reference.namespace}/{reference.name}")
        return (kind, obj) if obj is not None and obj.metadata.uid == reference.uid else None

    def current_works(self, binding: objects.BindingObject) -> list[WorkObject]:
        """The Works of a binding's present epoch, in order of their members."""
        return [work for work in self.works_of(binding.metadata.uid) if str(work.epoch) == binding.epoch]

    def works_of(self, binding_uid: str) -> list[WorkObject]:
        """The Works of a binding, in order of their members, but the ones that it goes on without."""
        return [
            work
            for work in self.works.by_index("binding", binding_uid)
            if keys.LOST not in work.metadata.annotations and keys.LEAVING not in work.metadata.annotations
        ]

    def leaving_works(self, binding_uid: str) -> list[WorkObject]:
        """The Works of copies that stay in members which the binding left, in order of these members."""
        return [
            work
            for work in self.works.by_index("binding", binding_uid)
            if keys.LEAVING in work.metadata.annotations and keys.LOST not in work.metadata.annotations
        ]

    def lost_at(self, cluster: str, binding: objects.BindingObject) -> float:
        """When a binding goes on without the word of a member, in seconds since the epoch; infinite for never."""
        found, wish = self.clusters.get(cluster), binding.gang
        away = absence(found.status.get("lost")) if found is not None else None
        if wish is None or away is None:
            return math.inf
        return lost_at(wish.on_lost, wish.lost_toleration, *away, wish.grace)

    def carried(self, binding: objects.BindingObject, kind: Kind, obj: Full) -> Mapping[str, int]:
        """Counts of a workload's earlier dispatches: fixed by the first Work of the present one, else by its status
        now.
        """
        works = self.current_works(binding)
        return works[0].carried if works else kind.carried(obj.body.get("status") or {})

    def grace(self, binding: objects.BindingObject, queue: str) -> int | None:
        """Seconds that the pods of a dispatch may take to end: fixed by its first Work; None where that is silent."""
        works = self.current_works(binding)
        return works[0].grace if works else most_grace(queue, self.said_of_queue)

    def scoring(self, binding: objects.BindingObject, obj: Full, queue: str) -> str:
        """Which nodes pods of a dispatch prefer: fixed by its first Work; empty without a preference."""
        works = self.current_works(binding)
        if works:
            return works[0].metadata.annotations.get(keys.NODE_SCORING, "")
        return scoring.of_workload(obj.metadata.annotations, queue, self.said_of_queue)

    def spread_out(self, binding: objects.BindingObject, gang: Gang) -> dict[str, str]:
        """The annotations by which pods of a dispatch are balanced and its groups apart: fixed by its first Work, for
        the templates of what runs can't change.
        """
        works = self.current_works(binding)
        if works:
            notes = works[0].metadata.annotations
            return {key: notes[key] for key in nearness.OF_ALL_KINDS if key in notes}
        return nearness.spread_out(gang)

    def said_of_queue(self, name: str) -> tuple[Mapping[str, str], str] | None:
        """(annotations, parent) of a queue."""
        found = self.queues.get(name)
        return (found.metadata.annotations, found.spec.parent or "") if found is not None else None

    def away(self, cluster: str) -> str:
        """Since when a member is not ready, and the consequence for its reports; empty where it is ready."""
        found = self.clusters.get(cluster)
        if found is None:
            return f"{cluster} has left the federation: figures are of before"
        ready = found.ready
        if ready.get("status") == "True":
            return ""
        since = f" since {ready['lastTransitionTime']}" if ready.get("lastTransitionTime") else ""
        return f"{cluster} not ready{since}, figures are of then"

    def policy(self, key: str) -> PolicyObject | None:
        """The policy `namespace/name`, or `name` of the cluster."""
        return (self.policies if "/" in key else self.cluster_policies).get(key)

    def jobs_of(self, uid: str) -> list[Full]:
        """The Volcano Jobs that the object of this UID made."""
        return self.jobs.by_index("owner", uid)

    def default_queue(self, namespace: str) -> str:
        """The queue of workloads in this namespace that name none."""
        found = self.namespaces.get(namespace)
        return default_queue(found.metadata.annotations if found else None)

    def enabled(self, namespace: str) -> bool:
        """Whether the namespace has opted in, and may."""
        found = self.namespaces.get(namespace)
        return not is_system(namespace) and found is not None and opted_in(found.metadata.labels)

    def left_to_atoll(self, resource: ApiResource, meta: Meta) -> bool:
        """Whether the namespace of an object leaves it to Atoll, and may."""
        found = self.namespaces.get(meta.namespace)
        said = {"metadata": {"labels": meta.labels, "annotations": meta.annotations}}
        return (
            found is not None and not is_system(meta.namespace) and left_to_atoll(resource, said, found.metadata.labels)
        )

    def in_use(self, name: str) -> bool:
        """Whether a workload of a queue, or of one below it, is dispatched and has not ended."""
        rest, seen = [name], {name}
        while rest:
            queue = rest.pop()
            bindings = self.bindings.by_index("queue", queue)
            if any(not binding.suspended and not binding.condition("Finished") for binding in bindings):
                return True
            below = {each.metadata.name for each in self.queues.by_index("parent", queue)} - seen
            seen |= below
            rest += sorted(below)
        return False


def about_workload(key: tuple[ApiResource, str]) -> dict[str, str]:
    """The log fields of work on an object of a kind."""
    return {"kind": key[0].kind, "workload": key[1]}
