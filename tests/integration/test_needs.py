"""What workloads need in a member: PriorityClasses that are others there, and what goes with its last user."""

from __future__ import annotations

import asyncio

import pytest

from atoll.model import keys
from atoll.model.apiresource import BINDINGS, EVENTS, JOBS, NAMESPACES, POLICIES, PRIORITY_CLASSES, SERVICE_ACCOUNTS
from tests.integration.federation import Json, Site, job, until

pytestmark = pytest.mark.integration

MEMBER = "topo"


async def only(site: Site) -> None:
    """Send what this test submits to one member."""
    spec = {
        "resourceSelectors": [{"apiVersion": JOBS.api_version, "kind": JOBS.kind}],
        "placement": {"clusterAffinity": {"clusterNames": [MEMBER]}},
    }
    about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    await site.host.create(POLICIES, {**about, "metadata": {"name": "only", "namespace": site.namespace}, "spec": spec})


def priority_class(name: str, value: int) -> Json:
    about = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind}
    return {**about, "metadata": {"name": name}, "value": value}


def of_class(name: str, priority: str, account: str = "") -> Json:
    made = job(name, seconds=None)
    pod = made["spec"]["tasks"][0]["template"]["spec"]
    pod["priorityClassName"] = priority
    if account:
        pod["serviceAccountName"] = account
    return made


async def test_what_was_made_for_workloads_goes_with_the_last_of_them(site: Site) -> None:
    await only(site)
    name = f"class-{site.namespace}"
    await site.host.create(PRIORITY_CLASSES, priority_class(name, 7))
    api = site.members[MEMBER]
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "own", "namespace": site.namespace}}
    for each in ("first", "second"):
        await site.submit(of_class(each, name, "made"))
        await site.phase(each, "Running")
    await api.create(SERVICE_ACCOUNTS, account)
    assert await site.find(PRIORITY_CLASSES, name, MEMBER)

    async def delete(which: str) -> None:
        await site.host.delete(JOBS, which, site.namespace)

        async def gone() -> bool:
            return await site.find(BINDINGS, f"{which}-job") is None

        await until(gone, what=f"{which} is gone")

    await delete("first")
    assert await site.find(PRIORITY_CLASSES, name, MEMBER)
    assert await site.find(SERVICE_ACCOUNTS, "made", MEMBER)
    await delete("second")
    assert await site.find(PRIORITY_CLASSES, name, MEMBER) is None
    assert await site.find(SERVICE_ACCOUNTS, "made", MEMBER) is None
    assert await site.find(SERVICE_ACCOUNTS, "own", MEMBER)
    assert await api.get(NAMESPACES, site.namespace)
    await site.host.delete(PRIORITY_CLASSES, name)


async def test_what_workloads_shared_goes_though_they_leave_at_once(site: Site) -> None:
    """Each of them finds the others' Works still there."""
    await only(site)
    name = f"class-{site.namespace}"
    await site.host.create(PRIORITY_CLASSES, priority_class(name, 7))
    jobs = [f"job-{number}" for number in range(6)]
    for each in jobs:
        await site.submit(of_class(each, name, "made"))
    for each in jobs:
        await site.phase(each, "Running")
    assert await site.find(SERVICE_ACCOUNTS, "made", MEMBER)
    await asyncio.gather(*(site.host.delete(JOBS, each, site.namespace) for each in jobs))

    async def gone() -> bool:
        return not await site.host.list(BINDINGS, site.namespace)

    await until(gone, what="all of them are gone")
    assert await site.find(PRIORITY_CLASSES, name, MEMBER) is None
    assert await site.find(SERVICE_ACCOUNTS, "made", MEMBER) is None
    await site.host.delete(PRIORITY_CLASSES, name)


async def test_a_priority_class_of_another_value_in_the_member_is_told_and_left_alone(site: Site) -> None:
    await only(site)
    name = f"other-{site.namespace}"
    await site.host.create(PRIORITY_CLASSES, priority_class(name, 7))
    await site.members[MEMBER].create(PRIORITY_CLASSES, priority_class(name, 5))
    await site.submit(of_class("lower", name))
    await site.phase("lower", "Running")
    text = f"PriorityClass {name} has value 5 in {MEMBER}, and 7 on the host"

    async def told() -> bool:
        events = await site.host.list(EVENTS, site.namespace)
        return any(each["reason"] == "PriorityClassDiffers" and text in each["note"] for each in events)

    await until(told, what="an Event says so")
    binding = await site.find(BINDINGS, "lower-job")
    assert binding is not None
    [found] = [each for each in binding["status"]["conditions"] if each["type"] == "NeedsAgree"]
    assert (found["status"], found["message"]) == ("False", text)
    await site.host.delete(JOBS, "lower", site.namespace)

    async def gone() -> bool:
        return await site.find(BINDINGS, "lower-job") is None

    await until(gone, what="it is gone")
    there = await site.find(PRIORITY_CLASSES, name, MEMBER)
    assert there is not None
    assert keys.MADE not in (there["metadata"].get("labels") or {})
    for api in (site.host, site.members[MEMBER]):
        await api.delete(PRIORITY_CLASSES, name)
