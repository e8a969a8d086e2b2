"""The Works that a binding should have: one for each member of its decision, or that is asked whether it fits.

No I/O: `Works` creates, changes and deletes the objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import orjson

from atoll.control.caches import Caches
from atoll.control.carried_objects import Dependencies
from atoll.control.needs import needs_of
from atoll.control.objects import BindingObject
from atoll.control.overrides import Overrides
from atoll.control.rules import Rules
from atoll.delivery import work_name
from atoll.kinds import Kind, Part
from atoll.model import claim_charges, keys
from atoll.model.apiresource import WORKS
from atoll.model.decision import Question, encode_gone, encode_spots
from atoll.model.gang import Gang, counts_in, divide, encode
from atoll.model.keys import execution_namespace
from atoll.model.lost import OnLost
from atoll.model.objects import Full

Json = dict[str, Any]


class WorkDrafts:
    """Computes Works of the caches' objects."""

    def __init__(self, caches: Caches, rules: Rules, dependencies: Dependencies, overrides: Overrides) -> None:
        self._caches, self._rules, self._dependencies, self._overrides = caches, rules, dependencies, overrides

    def of(self, binding: BindingObject) -> dict[str, Json]:
        """Execution namespace → Work.

        Raises:
            NotRead: an object that goes along is not in the caches yet.
            NotEvaluated: an override is not evaluated yet.
        """
        question = binding.question
        if binding.metadata.deletion_timestamp is not None or (binding.suspended and question is None):
            return {}
        found = self._caches.workload_of(binding)
        gang = binding.gang
        if found is None or gang is None:
            return {}
        kind, obj = found
        identity = {keys.BINDING_UID: binding.metadata.uid, keys.EPOCH: binding.epoch}
        identity |= self._caches.spread_out(binding, gang)
        if preferred := self._caches.scoring(binding, obj, gang.queue):
            identity[keys.NODE_SCORING] = preferred
        if charges := claim_charges.by_name(gang):
            identity[keys.CHARGED_CLAIMS] = orjson.dumps(charges, option=orjson.OPT_SORT_KEYS).decode()
        uids = {
            keys.cluster_of(each.metadata.namespace): each.metadata.uid for each in self._caches.current_works(binding)
        }
        carried, grace = self._caches.carried(binding, kind, obj), self._caches.grace(binding, gang.queue)
        if question is not None:
            counts = {
                name: tuple(tasks.get(task.name, 0) for task in gang.tasks) for name, tasks in question.parts.items()
            }
            parts = [] if binding.condition("Finished") else _parts_of(binding, gang, counts)
        else:
            parts = parts_of(binding, gang)
            if binding.condition("Finished"):
                # One part that failed stops the others; ended parts stay, with its pods, until the workload is deleted.
                ended = {
                    work.metadata.namespace
                    for work in self._caches.works_of(binding.metadata.uid)
                    if kind.finished(work.reported) is not None
                }
                parts = [part for part in parts if execution_namespace(part.cluster) in ended]
        of_all: Json = {"identity": identity, "carried": carried, "grace": grace}
        made = (
            self._work(binding, kind, obj, gang, replace(part, work=uids.get(part.cluster, ""), **of_all))
            for part in parts
        )
        return {
            each["metadata"]["namespace"]: _asking(each, question) if question is not None else each
            for each in made
            if each is not None
        }

    def _work(self, binding: BindingObject, kind: Kind, obj: Full, gang: Gang, part: Part) -> Json | None:
        """One Work; None where an override that applies there can't be carried out."""
        manifest = kind.rewrite(obj.body, part)
        annotations = manifest["metadata"]["annotations"]
        annotations.update(part.identity)
        preferred = part.identity.get(keys.NODE_SCORING, "")
        if preserved := binding.decision.preserved:
            manifest["metadata"].setdefault("labels", {}).update(preserved)
        if part.parts > 1:
            annotations[keys.PARTS] = str(part.parts)
        if gang.on_lost == OnLost.EXCLUSIVE:
            manifest["metadata"]["labels"][keys.ON_LOST] = gang.on_lost
        if keys.GENERATION in annotations and _granted_more(kind, obj, gang, part):
            # Until its parts have shrunk it is not as its object asks.
            del annotations[keys.GENERATION]
        if action := binding.metadata.annotations.get(keys.ACTION):
            annotations[keys.ACTION] = action
        sent, group = manifest["metadata"], manifest["apiVersion"].rpartition("/")[0]
        overwrites = binding.spec.conflict_resolution == "Overwrite"
        needs, record = needs_of(self._caches, self._rules, kind, obj), dict[str, str]()
        manifests = [*needs, manifest]
        if binding.question is None:
            # No override changes whether the workload fits, so members are asked without.
            manifests = [*needs, *self._dependencies.of(binding, kind, obj, manifest), manifest]
            namespace = execution_namespace(part.cluster)
            there = next((w for w in self._caches.current_works(binding) if w.metadata.namespace == namespace), None)
            overridden = self._overrides.of(binding, kind, obj, part.cluster, manifests, there)
            if overridden is None:
                return None
            manifests, record = overridden
        return {
            "apiVersion": WORKS.api_version,
            "kind": WORKS.kind,
            "metadata": {
                "name": work_name(sent["namespace"], sent["name"], manifest["kind"], group),
                "namespace": execution_namespace(part.cluster),
                "annotations": {
                    **part.identity,
                    **_carrying(part.carried),
                    **({keys.GRACE: str(part.grace)} if part.grace is not None else {}),
                    **_expecting(binding, part.cluster),
                    **record,
                    **({keys.CONFLICT_RESOLUTION: "overwrite"} if overwrites else {}),
                    keys.GANG: encode(msgspec.structs.replace(part.gang(gang), scoring=preferred)),
                    keys.BINDING_NAME: binding.metadata.name,
                    keys.BINDING_NAMESPACE: binding.metadata.namespace,
                },
                "finalizers": [keys.WORK_FINALIZER],
            },
            "spec": {
                "workload": {"manifests": manifests},
                "suspendDispatching": binding.reserving,
            },
        }


def parts_of(binding: BindingObject, gang: Gang) -> list[Part]:
    """What each member gets: so many pods as the binding names for it."""
    shares = {}
    for target in binding.spec.clusters:
        told = {each["name"]: int(each.get("replicas") or 0) for each in target.components}
        shares[target.name] = tuple(counts_in(gang, target.replicas, told))
    return _parts_of(binding, gang, shares)


def _parts_of(binding: BindingObject, gang: Gang, shares: Mapping[str, tuple[int, ...]]) -> list[Part]:
    """The parts of a gang by their pods per task."""
    counts = list(shares.values())
    gangs = divide(gang, counts) if len(counts) > 1 else [gang.sized(share) for share in counts]
    tasks = list(enumerate(gang.tasks))
    return [
        Part(
            name,
            {task.name: task.replicas for task in part.tasks},
            part.min_available,
            {task.name: task.min_available for task in part.tasks},
            len(shares),
            {task.name: sum(share[index] for share in counts[:number]) for index, task in tasks},
            {task.name: [(each, share[index]) for each, share in shares.items()] for index, task in tasks},
            gang.network,
            flavors=binding.decision.flavors,
            scattered=gang.scattered,
        )
        for number, (name, part) in enumerate(zip(shares, gangs, strict=True))
        if part.replicas or not gang.scattered
    ]


def _granted_more(kind: Kind, obj: Full, gang: Gang, part: Part) -> bool:
    """Whether members have more pods of the workload than its object asks for by now."""
    granted = sum(pods for shares in part.shares.values() for _, pods in shares)
    return granted > kind.gang(obj.body, priority=0).replicas * (part.parts if gang.copies else 1)


def _asking(work: Json, question: Question) -> Json:
    """A Work that only asks; without a finalizer, for there is nothing in the member that must go first."""
    metadata = work["metadata"]
    annotations = {**metadata["annotations"], keys.QUESTION: encode_gone(question.gone)}
    return {
        **work,
        "metadata": {**metadata, "annotations": annotations, "finalizers": []},
        "spec": {**work["spec"], "suspendDispatching": True},
    }


def _expecting(binding: BindingObject, cluster: str) -> dict[str, str]:
    spots = binding.decision.expected.get(cluster)
    return {keys.EXPECTED: encode_spots(spots)} if spots else {}


def _carrying(counts: Mapping[str, int]) -> dict[str, str]:
    return {keys.CARRIED: orjson.dumps(dict(counts), option=orjson.OPT_SORT_KEYS).decode()} if counts else {}
