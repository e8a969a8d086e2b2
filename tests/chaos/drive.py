"""The users: they submit, delete, hold and release, and try again whatever the host could not take for the moment."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.local.install import wait_until
from atoll.model import keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    CONFIGMAPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    POLICIES,
    QUEUES,
    WORKS,
    ApiResource,
)
from tests.chaos import plan
from tests.chaos.plan import NAMESPACE, Act, Submission

Json = dict[str, Any]
T = TypeVar("T")

PATIENCE_S = 120.0
"""How long after the last fault nothing more may finish before the wait for the rest is given up."""
PROBE_S = 60.0
LEFT_S = 60.0
"""The same for the probes, and for what must go when everything is deleted."""
_AGAIN_S = 0.3
_LOOK_S = 0.25
_FICKLE_S = 2.0
"""Between two changes of the policy that changes all the time."""
#: A server that has just come back knows nobody for a moment: 401.
_TRANSIENT = (errors.Busy, errors.Unreachable, errors.Conflict, errors.Unauthorized)
_SILENT = "the API servers did not answer"
UNREAD: Json = {"state": {"phase": "Unknown", "message": _SILENT}}
_DONE = ("Completed", "Failed", "Terminated", "Aborted")
_KINDS = (JOBS, BATCH_JOBS)


async def prepare(host: ApiServer, *, pace: float = 1.0) -> None:
    """Make the namespace, the queues and the policies."""
    labels = {keys.ENABLED: "true"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    await host.create(NAMESPACES, namespace)
    for queue in plan.queue_objects():
        await host.create(QUEUES, queue)
    for resource, policy in plan.policy_objects():
        await host.create(resource, policy)
    await host.create(CONFIGMAPS, plan.config_map())
    for service in plan.services():
        await host.create(DEPLOYMENTS, service)

    async def missing() -> str:
        found = {item["metadata"]["name"]: (item.get("status") or {}).get("state") for item in await host.list(QUEUES)}
        late = [name for name in (*plan.QUEUES_GPUS, plan.PROBES) if found.get(name) != "Open"]
        return f"{', '.join(late)} not open" if late else ""

    await wait_until(missing, "queues", 30 * pace)


class Drive:
    """One run of a plan."""

    def __init__(self, host: ApiServer, wishes: Sequence[Submission], *, pace: float = 1.0) -> None:
        """No I/O happens here. `pace`: every wait is so many times as long."""
        self._host, self._wishes, self._pace = host, plan.slower(wishes, pace), pace
        #: how often something was asked again
        self.repeated = 0

    async def submit(self) -> None:
        """Do everything at its time; return when the last of it is done."""
        clock = asyncio.get_running_loop().time
        start = clock()
        async with asyncio.TaskGroup() as group:
            fickle = asyncio.create_task(self._change_policy())
            lives = [group.create_task(self._live(wish, start + wish.offset, clock)) for wish in self._wishes]
            await asyncio.wait(lives or [asyncio.create_task(asyncio.sleep(0))])
            fickle.cancel()

    async def _change_policy(self) -> None:
        """An administrator who says something else all the time."""
        for turn in itertools.count():
            await asyncio.sleep(_FICKLE_S * self._pace)
            patch = {"spec": {"placement": plan.fickle_placement(turn)}}
            await self._insist(
                lambda patch=patch: self._host.merge_patch(POLICIES, plan.FICKLE, patch, NAMESPACE)  # type: ignore[misc]
            )

    async def _live(self, wish: Submission, at: float, clock: Callable[[], float]) -> None:
        await asyncio.sleep(at - clock())
        await self._insist(lambda: self._host.create(wish.resource, plan.workload(wish)))
        created = clock()
        for after, act in wish.acts:
            await asyncio.sleep(created + after - clock())
            await self._insist(lambda act=act: self._act(wish, act))  # type: ignore[misc]

    async def _act(self, wish: Submission, act: Act) -> None:
        if act is Act.DELETE:
            await self._host.delete(wish.resource, wish.name, NAMESPACE)
            return
        value = "true" if act is Act.HOLD else None
        patch = {"metadata": {"annotations": {keys.HOLD: value}}}
        await self._host.merge_patch(wish.resource, wish.name, patch, NAMESPACE)

    async def _insist(self, ask: Callable[[], Awaitable[Any]]) -> None:
        """Ask until it is done; what is there already was asked before and its answer lost."""
        while True:
            try:
                await ask()
                return
            except (errors.AlreadyExists, errors.NotFound):
                return
            except _TRANSIENT:
                self.repeated += 1
                await asyncio.sleep(_AGAIN_S)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def finish(self, wishes: Sequence[Submission], patience: float) -> dict[str, Json | None]:
        """Wait until each of these is over, deleted, or held for ever.

        Returns:
            Name -> its last status, None where it is gone; also of those that were not over in time. Where the host
            never answered, a status that says so.
        """
        found: dict[str, Json | None] = {wish.name: dict(UNREAD) for wish in wishes}

        async def late() -> str:
            found.update(await self._statuses(wishes))
            waiting = [wish.name for wish in wishes if not _over(wish, found[wish.name])]
            return f"{', '.join(waiting)} not over" if waiting else ""

        await self._until(late, patience)
        return found

    async def probe(self) -> list[str]:
        """Submit what fits only where everything was given back; what did not complete, and why."""
        wishes = plan.probes()
        for wish in wishes:
            await self._insist(lambda wish=wish: self._host.create(wish.resource, plan.workload(wish)))  # type: ignore[misc]
        statuses = await self.finish(wishes, PROBE_S)
        return [
            f"{name}: not completed: {(status or {}).get('state')}"
            for wish, (name, status) in zip(wishes, statuses.items(), strict=True)
            if not _over(wish, status)
        ]

    async def services(self, members: Mapping[str, ApiServer]) -> list[str]:
        """Wait until each Deployment runs in one member with all of its pods, none elsewhere; which do not, and how."""
        astray = [f"{name}: {_SILENT}" for name in plan.SERVICES]

        async def late() -> str:
            astray[:] = [text for name in plan.SERVICES if (text := await self._astray(name, members))]
            return "; ".join(astray)

        await self._until(late, PROBE_S)
        return astray

    async def _astray(self, name: str, members: Mapping[str, ApiServer]) -> str:
        selector, wanted = f"app={name}", plan.SERVICES[name]
        pods = {
            cluster: len(await api.list(PODS, NAMESPACE, label_selector=selector)) for cluster, api in members.items()
        }
        have = {cluster: count for cluster, count in pods.items() if count}
        status = (await self._host.get(DEPLOYMENTS, name, NAMESPACE)).get("status") or {}
        if [*have.values()] == [wanted] and status.get("readyReplicas") == wanted:
            return ""
        return (
            f"{name}: {wanted} pods in one member expected: {have}, and on the host {status.get('readyReplicas')} ready"
        )

    async def clear(self, members: Mapping[str, ApiServer]) -> list[str]:
        """Delete all workloads; what is left of them after a while: `cluster/resource/name`."""
        for resource in (*_KINDS, DEPLOYMENTS):
            for each in await self._host.list(resource, NAMESPACE):
                name = each["metadata"]["name"]
                await self._insist(lambda r=resource, n=name: self._host.delete(r, n, NAMESPACE))  # type: ignore[misc]
        left = [f"host/nothing/{_SILENT}"]

        async def found() -> str:
            left[:] = await self._left(members)
            return ", ".join(left)

        await self._until(found, LEFT_S)
        return left

    async def _until(self, look: Callable[[], Awaitable[str]], patience: float) -> None:
        """Look until there is nothing to say, or the same is said for too long: a busy machine takes its time."""
        clock = asyncio.get_running_loop().time
        patience *= self._pace
        end, last = clock() + patience, ""
        while clock() < end:
            try:
                said = await look()
                if not said:
                    return
                if said != last:
                    end, last = clock() + patience, said
            except _TRANSIENT:
                self.repeated += 1
            await asyncio.sleep(_LOOK_S)

    async def _statuses(self, wishes: Sequence[Submission]) -> dict[str, Json | None]:
        listed = {
            each["metadata"]["name"]: each.get("status") or {}
            for resource in _KINDS
            for each in await self._host.list(resource, NAMESPACE)
        }
        return {wish.name: listed.get(wish.name) for wish in wishes}

    async def _left(self, members: Mapping[str, ApiServer]) -> list[str]:
        found = [f"host/bindings/{each}" for each in await _names(self._host, BINDINGS, NAMESPACE)]
        for name, api in members.items():
            works = await _names(self._host, WORKS, keys.execution_namespace(name))
            found += [f"host/works of {name}/{each}" for each in works]
            for resource in (*_KINDS, DEPLOYMENTS, PODS, POD_GROUPS):
                found += [f"{name}/{resource.plural}/{each}" for each in await _names(api, resource, NAMESPACE)]
            if plan.CONFIG in await _names(api, CONFIGMAPS, NAMESPACE):
                found.append(f"{name}/configmaps/{plan.CONFIG}")
        return found


async def _names(api: ApiServer, resource: ApiResource, namespace: str) -> list[str]:
    return [each["metadata"]["name"] for each in await api.list(resource, namespace)]


def _over(wish: Submission, status: Json | None) -> bool:
    if status is None:
        return wish.deleted
    state = status.get("state") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or () if each["status"] == "True"}
    if wish.batch:
        return bool({"Complete", "Failed"} & conditions.keys()) or (wish.stays_held and "Suspended" in conditions)
    return state.get("phase") in _DONE or (wish.stays_held and state.get("reason") == "Held")
