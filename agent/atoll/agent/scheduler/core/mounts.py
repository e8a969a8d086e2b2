"""What gangs may do for the claims that their pods mount: claims, volumes and classes, and which pods use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.events import (
    ClaimGone,
    ClaimSet,
    StorageClassGone,
    StorageClassSet,
    VolumeGone,
    VolumeSet,
)
from atoll.agent.scheduler.core.gangs import Standing
from atoll.agent.scheduler.core.index import Index, index
from atoll.agent.scheduler.core.planner import VOLUMES, Wait
from atoll.agent.scheduler.core.room import Room
from atoll.agent.volumes import IN_USE, Claim, Storage, StorageClass, Volume, narrowed

_MOST_PROBLEMS = 3
_MOST_WEIGHT = 100


def claims_of(pod: Pod) -> list[str]:
    """`namespace/name` of what the pod mounts."""
    return [f"{pod.metadata.namespace}/{each.name}" for each in pod.claims]


class Mounts:
    """The claims of a member and the pods that mount them."""

    def __init__(self, room: Room, pod: Callable[[str], Pod | None]) -> None:
        """`room` knows which pods have a node, and asks here for their attachments; `pod` is the pod of a key."""
        self._room, self._pod = room, pod
        self._claims: dict[str, Claim] = {}
        self._volumes: dict[str, Volume] = {}
        self._storage_classes: dict[str, StorageClass] = {}
        self.storage = Storage(self._claims.get, self._volumes.get, self._storage_classes.get)
        #: `namespace/name` of a claim -> keys of the pods that mount it; without empty ones
        self._users: Index = {}
        room.volumes.attached = self._attached

    # -- events ------------------------------------------------------------------------------------------------------

    def changed(
        self, event: ClaimSet | ClaimGone | VolumeSet | VolumeGone | StorageClassSet | StorageClassGone
    ) -> list[str]:
        """Take it in; which claims are now different for who mounts them."""
        match event:
            case ClaimSet(claim):
                known = self._claims.get(claim.metadata.key)
                self._claims[claim.metadata.key] = claim
                return [] if known is not None and claim.alike(known) else [claim.metadata.key]
            case ClaimGone(key):
                self._claims.pop(key, None)
                return [key]
            case VolumeSet(volume):
                before = self._volumes.get(volume.metadata.name)
                self._volumes[volume.metadata.name] = volume
                if before is not None and volume.alike(before):
                    return []
                return [volume.claim, *([before.claim] if before is not None else [])]
            case VolumeGone(name):
                gone = self._volumes.pop(name, None)
                return [gone.claim] if gone is not None else []
            case StorageClassSet(storage_class):
                self._storage_classes[storage_class.metadata.name] = storage_class
            case StorageClassGone(name):
                self._storage_classes.pop(name, None)
        return list(self._users)

    def index(self, pod: Pod, *, there: bool) -> None:
        """The pod is there, or has gone."""
        for claim in claims_of(pod):
            index(self._users, claim, pod.metadata.key, there=there)

    # -- queries ------------------------------------------------------------------------------------------------------

    def users_of(self, claims: Iterable[str]) -> Iterator[str]:
        """Keys of the pods that mount one of these."""
        for claim in claims:
            yield from self._users.get(claim, ())

    def narrowed(self, view: Standing) -> Standing | Wait:
        """The gang with its volumes' nodes as its own, or why it can't start for its claims."""
        if not any(pod.claims for pod in view.waiting):
            return view
        pods: list[Pod] = []
        problems: dict[str, None] = {}
        spoken_for: set[str] = set()
        later = 0
        for pod in view.waiting:
            exclusive = set(self._exclusive(pod))
            if exclusive & spoken_for and len(view.waiting) - later > max(1, view.missing):
                # The gang starts without it, and then it waits for a pod of its own.
                later += 1
                continue
            reach = self.storage.reach(pod)
            fitting = narrowed(pod, reach.terms)
            in_use = IN_USE if exclusive & spoken_for or self.in_use(pod) else ""
            spoken_for |= exclusive
            if reach.problem or in_use or fitting is None:
                why = reach.problem or in_use or "its node affinity and its volumes' have too many alternatives"
                problems[why] = None
                fitting = pod
            more: dict[str, Any] = {}
            if attach := self._attach(pod):
                more |= {"attach": attach, "shared": self._shared(pod)}
            if near := self._near(pod):
                more["preferences"] = [*pod.preferences, near]
            pods.append(msgspec.structs.replace(fitting, **more) if more else fitting)
        found = replace(view, waiting=pods)
        return Wait(found, VOLUMES, "; ".join(list(problems)[:_MOST_PROBLEMS])) if problems else found

    def in_use(self, pod: Pod) -> bool:
        """Whether another pod that has a node, or is about to get one, uses a claim that one at a time may use."""
        return any(user.metadata.uid != pod.metadata.uid for user, _ in self._placed(self._exclusive(pod)))

    def _near(self, pod: Pod) -> dict[str, Any] | None:
        """A preference for the nodes that use its volumes which one node at a time may attach: elsewhere its containers
        would wait until these have ended, though nothing keeps a scheduler from placing it there.
        """
        single = (key for key in claims_of(pod) if (claim := self._claims.get(key)) is not None and claim.of_one_node)
        nodes = sorted({node for user, node in self._placed(single) if user.metadata.uid != pod.metadata.uid})
        if not nodes:
            return None
        there = {"key": "metadata.name", "operator": "In", "values": nodes}
        return {"weight": _MOST_WEIGHT, "preference": {"matchFields": [there]}}

    def _attach(self, pod: Pod) -> dict[str, int]:
        """Driver -> volumes of the pod, where some node has a limit of them."""
        volumes = (self.storage.attached(key) for key in claims_of(pod))
        return dict(Counter(each[0] for each in volumes if each is not None and self._room.volumes.limits(each[0])))

    def _shared(self, pod: Pod) -> dict[str, list[str]]:
        """Driver -> handles of volumes that other pods use as well, where some node has a limit of them."""
        found: dict[str, list[str]] = {}
        for key in claims_of(pod):
            if len(self._users.get(key, ())) > (pod.metadata.key in self._users.get(key, ())):
                volume = self.storage.attached(key)
                if volume is not None and self._room.volumes.limits(volume[0]):
                    found.setdefault(volume[0], []).append(volume[1])
        return {driver: sorted(handles) for driver, handles in found.items()}

    def _attached(self, but: Collection[str]) -> Iterator[tuple[str, str, str]]:
        """(node, driver, handle) of the volumes of pods on nodes, or about to be, but for pods of these keys."""
        for claim in self._users:
            if (volume := self.storage.attached(claim)) is not None:
                for user, node in self._placed([claim]):
                    if user.metadata.key not in but:
                        yield node, *volume

    def _exclusive(self, pod: Pod) -> Iterator[str]:
        """Claims of the pod that one pod at a time may use."""
        return (key for key in claims_of(pod) if (claim := self._claims.get(key)) is not None and claim.exclusive)

    def _placed(self, claims: Iterable[str]) -> Iterator[tuple[Pod, str]]:
        """(pod, its node) of the pods that mount one of these and have a node, or are about to get one."""
        for key in self.users_of(claims):
            pod = self._pod(key)
            if pod is not None and not pod.finished and (node := pod.node or self._room.node_of(pod)):
                yield pod, node
