"""From the body of a WhatIf to a binding that does not exist: what control would make of the workload."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec

from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.objects import BindingObject, BindingSpec, binding_view
from atoll.dispatcher.query.documents import Refusal
from atoll.kinds import Kind, declare, kind_of, known, left_to_atoll
from atoll.kinds.declared import followed
from atoll.kinds.metadata import default_queue
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import claim_charges, gang, keys
from atoll.model.apiresource import (
    CLUSTER_POLICIES,
    NAMESPACES,
    POLICIES,
    PRIORITY_CLASSES,
    WORKLOAD_KINDS,
    ApiResource,
)
from atoll.model.device_claims import Claim
from atoll.model.namespaces import LABELLED, opted_in
from atoll.model.objects import MALFORMED, Full, Meta
from atoll.model.placement import Placement
from atoll.model.policies import PolicyObject, TooMany, choose, lookup
from atoll.model.priority import PriorityClassObject, class_of, default_class
from atoll.model.queue_object import QueueObject

Json = dict[str, Any]

UID: Final = "what-if"
"""Of the binding that does not exist."""
_MOST_TASKS: Final = 1000
_MOST_CLAIMS: Final = 64
"""Claims and templates of one workload that are read."""


class Wishes:
    """Reads what a workload's binding follows from: its namespace, its policy, its priority class."""

    def __init__(self, host: ApiServer, queue: Callable[[str], QueueObject | None]) -> None:
        self._host, self._queue = host, queue

    async def view(self, asked: Json, namespace: str) -> BindingView:
        """The binding of `spec.workload`, a manifest, or of `spec.gang`, as the annotation has it.

        Raises:
            Refusal: it can't be read.
            ApiError: the host does not answer.
        """
        spec = asked.get("spec")
        if not isinstance(spec, dict) or ("workload" in spec) == ("gang" in spec):
            raise Refusal(422, "Invalid", "spec: give either workload, a manifest, or gang")
        if "gang" in spec:
            try:
                wish, placement = msgspec.convert(spec["gang"], gang.Gang), None
            except msgspec.MsgspecError as error:
                raise Refusal(422, "Invalid", f"spec.gang: {error}") from error
        else:
            wish, placement = await self._of_workload(spec["workload"], namespace)
        _check(wish)
        annotations = {keys.GANG: gang.encode(wish)}
        try:
            placed = msgspec.convert(placement, Placement) if placement else None
        except msgspec.MsgspecError as error:
            raise Refusal(422, "Invalid", f"spec.placement of its policy: {error}") from error
        meta = Meta(name=UID, namespace=namespace, uid=UID, annotations=annotations)
        view = binding_view(BindingObject(meta, BindingSpec(placement=placed)))
        assert view is not None, "it has a gang annotation"
        return view

    async def _of_workload(self, manifest: Any, namespace: str) -> tuple[gang.Gang, Json | None]:
        declare(followed(await self._host.list(WORKLOAD_KINDS)))
        kind = _kind(manifest)
        metadata = {**manifest["metadata"], "namespace": namespace}
        metadata.setdefault("name", UID)
        body = {**manifest, "metadata": metadata}
        try:
            home = await self._host.get(NAMESPACES, namespace)
        except errors.NotFound as error:
            raise Refusal(404, "NotFound", f"there is no namespace {namespace}") from error
        labels = home["metadata"].get("labels") or {}
        if opted_in(labels) and not left_to_atoll(kind.resource, body, labels):
            text = f"in namespace {namespace} ({keys.ENABLED}={LABELLED}) only what names a queue is Atoll's"
            raise Refusal(422, "Invalid", f"{text}: give it label {keys.QUEUE_LABEL}")
        if not opted_in(labels):
            raise Refusal(
                422,
                "Invalid",
                f"namespace {namespace} is not opted in, so Atoll would leave the workload alone:"
                f" kubectl label namespace {namespace} {keys.ENABLED}=true",
            )
        default = default_queue(home["metadata"].get("annotations"))
        try:
            full = Full(msgspec.convert({**metadata, "creationTimestamp": ""}, Meta), body)
            found = [msgspec.convert(each, PriorityClassObject) for each in await self._host.list(PRIORITY_CLASSES)]
            class_ = class_of(kind.priority_class_of(body), found)
            usual = default_class(found)
            wish = kind.gang(body, priority=class_.value, default_class=usual, default_queue=default)
            wish = msgspec.structs.replace(wish, preempts=class_.preempts)
            needs = [*kind.namespaced_needs(body)]
        except (*MALFORMED, msgspec.MsgspecError) as error:
            raise Refusal(422, "Invalid", f"spec.workload can't be read: {error}") from error
        await self._check_classes(name for resource, name in needs if resource == PRIORITY_CLASSES)
        wish = await self._charged(wish, namespace)
        policy = await self._policy(kind, full, wish.queue)
        return wish, policy.spec.placement if policy is not None else None

    async def _charged(self, wish: gang.Gang, namespace: str) -> gang.Gang:
        """With the devices of its claims, as control charges them."""
        found: dict[tuple[ApiResource, str], Json] = {}
        referred = claim_charges.referred(wish)
        if len(referred) > _MOST_CLAIMS:
            raise Refusal(
                422, "Invalid", f"its pods name {len(referred)} claims and templates; {_MOST_CLAIMS} are read"
            )
        for resource, name in referred:
            with suppress(errors.NotFound):
                found[resource, name] = await self._host.get(resource, name, namespace)
        try:
            return claim_charges.charged(wish, lambda resource, name: found.get((resource, name)))
        except claim_charges.Missing as error:
            text = f"its pods use what does not exist in namespace {namespace}: {error}; create it, then ask again"
            raise Refusal(422, "Invalid", text) from error
        except MALFORMED as error:
            raise Refusal(422, "Invalid", f"a claim of its pods can't be charged: {error}") from error

    async def _check_classes(self, names: Iterable[str]) -> None:
        """Refuse classes that members would refuse, so that no answer claims that it starts."""
        missing = {*names} - {each["metadata"]["name"] for each in await self._host.list(PRIORITY_CLASSES)}
        if missing:
            raise Refusal(
                422,
                "Invalid",
                f"PriorityClass {', '.join(sorted(missing))} does not exist on the host: members refuse such pods;"
                " name another (kubectl get priorityclasses), or have it created",
            )

    async def _policy(self, kind: Kind, obj: Full, queue: str) -> PolicyObject | None:
        """As control chooses it: of the namespace, else of the cluster, else the default of the queue."""
        found = self._queue(queue)
        default = found.metadata.annotations.get(keys.DEFAULT_POLICY, "") if found is not None else ""
        own = await self._policies(POLICIES, obj.metadata.namespace)
        common = await self._policies(CLUSTER_POLICIES)
        others = await self._policies(POLICIES, default.partition("/")[0]) if "/" in default else common
        named = next((each for each in others if each.metadata.key == default), None)
        try:
            return choose(kind.resource, obj, own=lookup(own), common=lookup(common), default=named)
        except TooMany as error:
            raise Refusal(422, "Invalid", str(error)) from error

    async def _policies(self, resource: ApiResource, namespace: str | None = None) -> list[PolicyObject]:
        return [msgspec.convert(each, PolicyObject) for each in await self._host.list(resource, namespace)]


def _kind(manifest: Any) -> Kind:
    if not isinstance(manifest, dict) or not isinstance(manifest.get("metadata"), dict):
        raise Refusal(422, "Invalid", "spec.workload: a manifest with metadata is wanted")
    kind = kind_of(manifest)
    if kind is None or kind.assembly is not None:
        takes = [each.resource for each in known() if each.assembly is None]
        titles = ", ".join(f"{each.kind} of {each.api_version}" for each in takes)
        raise Refusal(
            422, "Invalid", f"spec.workload: {manifest.get('kind')} of {manifest.get('apiVersion')} is none of {titles}"
        )
    return kind


def _check(wish: gang.Gang) -> None:
    """Refuse wishes beyond all measure: an answer would keep the dispatcher from its work."""
    if not wish.tasks or len(wish.tasks) > _MOST_TASKS:
        raise Refusal(422, "Invalid", f"between 1 and {_MOST_TASKS} tasks are wanted")
    try:
        gang.check(wish)
        for claim in (each for task in wish.tasks for each in task.claims):
            Claim.of({"metadata": claim, "spec": claim["spec"]})
    except MALFORMED as error:
        raise Refusal(422, "Invalid", str(error)) from error
