"""Devices that the ResourceClaims of a workload's pods are charged, by class, in the resources of its gang."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from atoll.model import device_claims, vector
from atoll.model.apiresource import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, ApiResource
from atoll.model.device_claims import Claim
from atoll.model.gang import Gang, Task

Find = Callable[[ApiResource, str], Mapping[str, Any] | None]
"""A claim or template of the workload's namespace, by name; None where there is none."""
_RESOURCES: Final = {"claims": RESOURCE_CLAIMS, "templates": RESOURCE_CLAIM_TEMPLATES}
_MOST_SENT = 16_384
"""Bytes of the claims of a gang that members see before its pods are there; of larger ones they see counts by class."""


class Missing(Exception):
    """Claims or templates that do not exist in the workload's namespace; the message names them."""


def referred(gang: Gang) -> list[tuple[ApiResource, str]]:
    """Claims and templates that its pods name, each once."""
    names = dict.fromkeys(each for task in gang.tasks for each in task.claim_names)
    return [(_RESOURCES[kind], name) for kind, _, name in (each.partition("/") for each in names)]


def charged(gang: Gang, find: Find) -> Gang:
    """The gang with devices by class among its requests.

    Raises:
        Missing: a claim does not exist.
        UnsupportedClaim: one can't be charged.
    """
    if not (names := referred(gang)):
        return gang
    if missing := [f"{resource.kind} {name}" for resource, name in names if find(resource, name) is None]:
        raise Missing(", ".join(missing))
    tasks = [_charged(task, find) for task in gang.tasks]
    if sum(len(msgspec.json.encode(task.claims)) for task in tasks) > _MOST_SENT:
        tasks = [msgspec.structs.replace(task, claims=[]) for task in tasks]
    return msgspec.structs.replace(gang, tasks=tasks)


def _charged(task: Task, find: Find) -> Task:
    requests, claims = dict(task.requests), list[dict[str, Any]]()
    for reference in task.claim_names:
        kind, name = reference.split("/")
        found = find(_RESOURCES[kind], name)
        assert found is not None, "none is missing"
        claim = Claim.of(found)
        vector.add(requests, device_claims.charge(claim))
        spec = found.get("spec") or {}
        claims.append({"name": claim.name, "spec": spec.get("spec") or spec})
    return msgspec.structs.replace(task, requests=requests, claims=claims)
