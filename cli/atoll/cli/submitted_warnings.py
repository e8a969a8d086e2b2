"""Warnings about a new workload that admission can't give: no webhook is asked in a namespace that has not opted in,
and none knows the tiers of members. What the user may not read is not warned of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

PATIENCE_S = 5.0
"""The workload is created: its user waits no longer for a warning, while a host in trouble is asked again and again."""


async def warnings(
    host: ApiServer,
    resource: ApiResource,
    workload: Json,
    *,
    within: str = "",
    dry_run: bool = False,
    called: Callable[[str], str] = str,
) -> list[str]:
    """Why a workload will not run as things are, or that the host went away before that was known.

    Args:
        host: the API server.
        resource: of the workload.
        workload: as the host took it.
        within: name of the tier of which one domain must hold it.
        dry_run: it was not created.
        called: name of a parameter for the user.
    """
    from atoll.kube.errors import ApiError, Unreachable

    try:
        async with asyncio.timeout(PATIENCE_S):
            text = await _left_alone(host, resource, workload, called)
            if not text and within:
                text = await _without_tier(host, workload, f"{called('within')} {within}")
        return [text] if text else []
    except (Unreachable, TimeoutError) as error:
        done = "would be created" if dry_run else "is created"
        why = str(error) or f"no answer in {PATIENCE_S:g} s"
        return [f"{workload['metadata']['name']} {done}; its namespace and its tier could not be checked: {why}"]
    except ApiError:
        # A missing right, or no dispatcher.
        return []


async def _left_alone(host: ApiServer, resource: ApiResource, workload: Json, called: Callable[[str], str]) -> str:
    """Why Atoll does not run it; empty where it does, and on a Karmada."""
    from atoll.kinds import left_to_atoll
    from atoll.kube.served import served
    from atoll.model import keys
    from atoll.model.apiresource import JOB_ARRAYS, NAMESPACES
    from atoll.model.namespaces import is_system, opted_in

    metadata = workload["metadata"]
    if keys.SUBMITTED_BY in (metadata.get("annotations") or {}):
        # The webhook took it over.
        return ""
    namespace = metadata["namespace"]
    labels = (await host.get(NAMESPACES, namespace))["metadata"].get("labels") or {}
    if left_to_atoll(resource, workload, labels) and not is_system(namespace):
        return ""
    # On a Karmada, policies and not namespaces leave workloads to Atoll; it has no JobArrays.
    if not await served(host, [JOB_ARRAYS]):
        return ""
    if is_system(namespace):
        text = f"Atoll leaves system namespace {namespace} alone and does not run this"
        return f"{text}; use another by {called('namespace')}"
    if opted_in(labels):
        text = f"Atoll runs of namespace {namespace} only what names a queue, and this names none"
        return f"{text}; submit with {called('queue')}"
    opt_in = f"kubectl label namespace {namespace} {keys.ENABLED}=true"
    text = f"namespace {namespace} is not opted in, so Atoll leaves its workloads alone and does not run this"
    return f"{text}; use another by {called('namespace')}, or have an administrator opt it in: {opt_in}"


async def _without_tier(host: ApiServer, workload: Json, wish: str) -> str:
    """Whether no member that a workload may use has the tier; empty while that is not known."""
    from atoll.model.apiresource import WHAT_IFS
    from atoll.model.verdict import Reason

    metadata = {each: workload["metadata"][each] for each in ("namespace", "name")}
    question = {"apiVersion": WHAT_IFS.api_version, "kind": WHAT_IFS.kind, "metadata": metadata}
    answer = await host.create(WHAT_IFS, {**question, "spec": {"workload": workload}})
    rooms = [each for each in answer["status"].get("clusters") or () if each.get("reason") != Reason.NO_CLUSTER]
    if not rooms or any(each.get("reason") != Reason.NO_TOPOLOGY for each in rooms):
        return ""
    # A member that has tiers names the nearest one.
    first = min(rooms, key=lambda each: "did you mean" not in each["message"])
    text = f"{wish}: no member that it may use has such a tier, and it waits until one has"
    return f"{text} (cluster {first['cluster']}: {first['message']})"
