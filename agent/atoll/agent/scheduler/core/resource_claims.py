"""What gangs may do for the ResourceClaims of their pods: claims, and which pods use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from atoll.agent.devices import MOST_CONSUMERS, ResourceClaim
from atoll.agent.objects import Pod, PodResourceClaim
from atoll.agent.scheduler.core.commands import Deallocate, Reserve
from atoll.agent.scheduler.core.device_book import DeviceBook
from atoll.agent.scheduler.core.gangs import Standing
from atoll.agent.scheduler.core.index import Index, index
from atoll.agent.scheduler.core.planner import DEVICES, Wait
from atoll.agent.volumes import narrowed
from atoll.model import device_claims

Json = dict[str, Any]
_MOST_PROBLEMS = 3


class ResourceClaims:
    """The claims of a member and the pods that use them."""

    def __init__(self, book: DeviceBook) -> None:
        """`book` has the devices that they hold."""
        self._book = book
        self._claims: dict[str, ResourceClaim] = {}
        #: `namespace/name` of a claim -> keys of the pods that use it; without empty ones
        self._users: Index = {}

    def changed(self, key: str, new: ResourceClaim | None) -> list[str]:
        """Take it in; which claims are now different for their pods."""
        known = self._claims.pop(key, None)
        if new is not None:
            self._claims[key] = new
        if known is not None and new is not None and new.alike(known):
            return []
        self._book.claim_changed(key, new)
        return [key]

    def index(self, pod: Pod, *, there: bool) -> None:
        """The pod is there, or has gone."""
        for claim in (*_keys(pod, pod.resource_claims), *([_special_key(pod)] if pod.extended else [])):
            index(self._users, claim, pod.metadata.key, there=there)

    def users_of(self, claims: Iterable[str]) -> Iterator[str]:
        """Keys of the pods that use one of these."""
        for claim in claims:
            yield from self._users.get(claim, ())

    def narrowed(self, view: Standing) -> Standing | Wait:
        """The gang with the claims that its pods get devices for and the nodes of the others, or why it can't start
        for its claims.
        """
        if not any(self._claims_of(pod) for pod in view.waiting):
            return view
        pods: list[Pod] = []
        problems: dict[str, None] = {}
        wanted = Counter(key for pod in view.waiting for key in self._keys(pod) if not pod.held)
        getting = set[str]()
        for pod in view.waiting:
            if pod.held or not self._claims_of(pod):
                # Its own scheduler allocates.
                pods.append(pod)
                continue
            problem, terms, devices = self._of(pod, wanted)
            joins = tuple(devices.keys() & getting)
            getting |= devices.keys()
            devices = {key: each for key, each in devices.items() if key not in joins}
            fitting = None if problem else narrowed(pod, terms)
            if fitting is None:
                problems[problem or "its node affinity and its devices' have too many alternatives"] = None
                fitting = pod
            elif fitting is not pod and pod.own_terms is not None:
                fitting = msgspec.structs.replace(fitting, own_terms=pod.own_terms)
            pods.append(
                msgspec.structs.replace(
                    fitting, devices=list(devices.values()), device_claims=tuple(devices), joins=tuple(sorted(joins))
                )
                if devices or joins
                else fitting
            )
        found = replace(view, waiting=pods)
        return Wait(found, DEVICES, "; ".join(list(problems)[:_MOST_PROBLEMS])) if problems else found

    def left_over(self, view: Standing) -> list[Deallocate]:
        """Allocations of claims that are reserved for nothing but one of its waiting pods: an earlier try to bind it
        left them.
        """
        found = []
        for pod in view.waiting:
            for key in self._keys(pod) if not pod.held else ():
                claim = self._claims.get(key)
                if claim is not None and _is_left(claim, pod):
                    found.append(Deallocate(key, claim.metadata.uid, claim.metadata.resource_version, pod.metadata.key))
        return found

    def reserves(self, pods: Iterable[Pod]) -> list[Reserve]:
        """Reservations of the claims of these pods, written before they are bound."""
        found = []
        for pod in pods:
            for key in self._keys(pod) if not pod.held else ():
                claim, special = self._claims.get(key), key == _special_key(pod)
                found.append(
                    Reserve(
                        key,
                        claim.metadata.uid if claim is not None else "",
                        self._book.promised(key),
                        pod.metadata.key,
                        self._special(pod) if claim is None else None,
                        self._mappings(pod) if special else (),
                    )
                )
        return found

    def _claims_of(self, pod: Pod) -> tuple[PodResourceClaim, ...]:
        """Its claims, and the one for extended resources that classes stand for."""
        if not any(self._book.class_of(each.resource) for each in pod.extended):
            return pod.resource_claims
        return (*pod.resource_claims, PodResourceClaim("extended-resources", _special_name(pod), made=True))

    def _keys(self, pod: Pod) -> list[str]:
        return _keys(pod, self._claims_of(pod))

    def _special(self, pod: Pod) -> Json:
        """The spec of the claim for its extended resources, as kube-scheduler makes it."""
        requests = [
            {
                "name": each.name,
                "exactly": {"deviceClassName": name, "allocationMode": "ExactCount", "count": each.number},
            }
            for each in pod.extended
            if (name := self._book.class_of(each.resource))
        ]
        return {"devices": {"requests": requests}}

    def _mappings(self, pod: Pod) -> tuple[dict[str, str], ...]:
        return tuple(
            {"containerName": each.container, "resourceName": each.resource, "requestName": each.name}
            for each in pod.extended
            if self._book.class_of(each.resource)
        )

    def _of(self, pod: Pod, wanted: Counter[str]) -> tuple[str, list[list[Json]], dict[str, Json]]:
        """(why the pod can't start, nodeSelectorTerms of its allocated claims, the others: key -> name and spec)."""
        terms: list[list[Json]] = []
        devices: dict[str, Json] = {}
        if first := next((each for each in pod.extended if each.first and self._book.class_of(each.resource)), None):
            text = f"init container {first.container} asks for {first.resource}, of which Atoll's placer gives devices"
            return f"{text} to containers alone; use a ResourceClaim", [], {}
        for each in self._claims_of(pod):
            if not each.claim:
                return f'waiting for the resource claim controller to create the claim "{each.name}"', [], {}
            key = f"{pod.metadata.namespace}/{each.claim}"
            claim = self._claims.get(key)
            if claim is None and key == _special_key(pod) and self._book.promised(key) is None:
                devices[key] = {"name": each.name, "spec": self._special(pod)}
                continue
            if claim is None:
                return f'resourceclaim "{each.claim}" not found', [], {}
            if each.made and claim.metadata.controller_uid != pod.metadata.uid:
                return f'resourceclaim "{each.claim}" was not made for the pod', [], {}
            if claim.metadata.deletion_timestamp is not None:
                return f'resourceclaim "{each.claim}" is being deleted', [], {}
            if _is_left(claim, pod):
                return f'resourceclaim "{each.claim}" has devices of an earlier try, which are given back', [], {}
            try:
                spec = device_claims.stated(claim.body())
                problem = _beyond_charge(each, spec)
            except device_claims.UnsupportedClaim as error:
                return str(error), [], {}
            if problem:
                return problem, [], {}
            if claim.status.allocation is not None:
                if len(claim.status.reserved_for) + wanted[key] > MOST_CONSUMERS:
                    return f'resourceclaim "{each.claim}" is in use by {MOST_CONSUMERS} pods, the most it takes', [], {}
                if found := claim.node_terms():
                    terms.append(found)
                continue
            if self._book.promised(key) is not None:
                return f'resourceclaim "{each.claim}" is being allocated for another pod', [], {}
            if wanted[key] > MOST_CONSUMERS:
                return f'resourceclaim "{each.claim}" takes {MOST_CONSUMERS} pods at most', [], {}
            devices[key] = {"name": each.name, "spec": spec}
        return "", terms, devices


def _beyond_charge(of: PodResourceClaim, spec: Mapping[str, Any]) -> str:
    """Why a claim of a workload that the host sent is for more devices than its queue is charged; empty where it isn't.

    Raises:
        UnsupportedClaim: their number is not stated.
    """
    if of.charged is None:
        return ""
    asked = device_claims.charge(device_claims.Claim.of({"metadata": {"name": of.claim}, "spec": spec}))
    for resource, count in asked.items():
        if count > of.charged.get(resource, 0):
            name = resource.removesuffix(device_claims.CLASS_SUFFIX)
            return (
                f'resourceclaim "{of.claim}" asks for {count} {name}, and the queue is charged'
                f" {of.charged.get(resource, 0)}: it, or its template, was made anew; submit the workload again"
            )
    return ""


def _keys(pod: Pod, claims: Iterable[PodResourceClaim]) -> list[str]:
    """`namespace/name` of these claims of a pod, as far as they are made."""
    return [f"{pod.metadata.namespace}/{each.claim}" for each in claims if each.claim]


def _special_name(pod: Pod) -> str:
    """Of the claim for its extended resources; a later try finds it by that."""
    return f"{pod.metadata.name[:200]}-extended-resources-{pod.metadata.uid[:8]}"


def _special_key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{_special_name(pod)}"


def _is_left(claim: ResourceClaim, pod: Pod) -> bool:
    return claim.status.allocation is not None and [each.uid for each in claim.status.reserved_for] == [
        pod.metadata.uid
    ]
