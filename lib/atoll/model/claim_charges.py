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


def charged(gang: Gang, find: Find, runs: Gang | None = None) -> Gang:
    """The gang with devices by class among its requests.

    Args:
        gang: without them.
        find: reads claims and templates.
        runs: as it was dispatched, where it is: its pods keep the devices of claims that were made before a claim or
            template was made anew under its name, or the workload named another one.

    Raises:
        Missing: a claim does not exist.
        UnsupportedClaim: one can't be charged.
    """
    names = referred(gang)
    if not names and (runs is None or not referred(runs)):
        return gang
    if missing := [f"{resource.kind} {name}" for resource, name in names if find(resource, name) is None]:
        raise Missing(", ".join(missing))
    before = {task.name: task for task in runs.tasks} if runs is not None else {}
    tasks = [_charged(task, find, before.get(task.name)) for task in gang.tasks]
    if sum(len(msgspec.json.encode(task.claims)) for task in tasks) > _MOST_SENT:
        tasks = [msgspec.structs.replace(task, claims=[]) for task in tasks]
    return msgspec.structs.replace(gang, tasks=tasks)


def by_name(gang: Gang) -> dict[str, vector.Vector]:
    """What pods are charged for each claim and template, for their members."""
    return {name: each for task in gang.tasks for name, each in task.claim_charges.items()}


def _charged(task: Task, find: Find, before: Task | None) -> Task:
    requests, claims = dict(task.requests), list[dict[str, Any]]()
    charges = dict[str, vector.Vector]()
    known = before.claim_charges if before is not None else {}
    for reference in task.claim_names:
        kind, name = reference.split("/")
        found = find(_RESOURCES[kind], name)
        assert found is not None, "none is missing"
        claim = Claim.of(found)
        charges[reference] = known[reference] if reference in known else device_claims.charge(claim)
        vector.add(requests, charges[reference])
        claims.append({"name": claim.name, "spec": device_claims.stated(found)})
    for name, amount in before.requests.items() if before is not None else ():
        if name.endswith(device_claims.CLASS_SUFFIX):
            requests[name] = max(amount, requests.get(name, 0))
    return msgspec.structs.replace(task, requests=requests, claims=claims, claim_charges=charges)
