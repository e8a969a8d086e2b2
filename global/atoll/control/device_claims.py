"""Devices that the ResourceClaims of a workload's pods are charged, by class, in the resources of its gang."""

from __future__ import annotations

from typing import Any

import msgspec

from atoll.control.caches import Caches
from atoll.model import device_claims, vector
from atoll.model.apiresource import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from atoll.model.device_claims import Claim
from atoll.model.gang import Gang, Task

_RESOURCES = {"claims": RESOURCE_CLAIMS, "templates": RESOURCE_CLAIM_TEMPLATES}

_MOST_SENT = 16_384
"""Bytes of the claims of a gang that members see before its pods are there; of larger ones they see counts by class."""


class Missing(Exception):
    """Claims or templates that do not exist in the workload's namespace; the message names them."""


def charged(gang: Gang, namespace: str, caches: Caches) -> Gang:
    """The gang with devices by class among its requests.

    Raises:
        Missing: a claim does not exist.
        UnsupportedClaim: one can't be charged.
    """
    if not any(task.claim_names for task in gang.tasks):
        return gang
    missing = dict.fromkeys(
        f"{_RESOURCES[kind].kind} {name}"
        for task in gang.tasks
        for kind, _, name in (each.partition("/") for each in task.claim_names)
        if caches.device_claims[_RESOURCES[kind]].get(f"{namespace}/{name}") is None
    )
    if missing:
        raise Missing(", ".join(missing))
    tasks = [_charged(task, namespace, caches) for task in gang.tasks]
    if sum(len(msgspec.json.encode(task.claims)) for task in tasks) > _MOST_SENT:
        tasks = [msgspec.structs.replace(task, claims=[]) for task in tasks]
    return msgspec.structs.replace(gang, tasks=tasks)


def _charged(task: Task, namespace: str, caches: Caches) -> Task:
    requests, claims = dict(task.requests), list[dict[str, Any]]()
    for reference in task.claim_names:
        kind, name = reference.split("/")
        found = caches.device_claims[_RESOURCES[kind]].get(f"{namespace}/{name}")
        assert found is not None, "none is missing"
        claim = Claim.of(found.body)
        vector.add(requests, device_claims.charge(claim))
        spec = found.body.get("spec") or {}
        claims.append({"name": claim.name, "spec": spec.get("spec") or spec})
    return msgspec.structs.replace(task, requests=requests, claims=claims)
