"""A kind that users declare, on real API servers: no code, no restart, and every part of Atoll knows it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from atoll.cli.kinds import gather
from atoll.kinds import declare
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import (
    BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    EVENTS,
    MUTATING_WEBHOOKS,
    POD_GROUPS,
    PODS,
    VALIDATING_WEBHOOKS,
    WORKLOAD_KINDS,
    ApiResource,
)
from tests.integration import made_up
from tests.integration.federation import Json, Site, until
from tests.integration.foreign_crds import bring, make_pods, say
from tests.integration.made_up import TRAININGS, training

pytestmark = pytest.mark.integration

NAME = f"trainings.{made_up.GROUP}"


async def condition(host: ApiServer) -> tuple[str, str, str]:
    """(status, reason, message) of Served."""
    obj = await host.get(WORKLOAD_KINDS, NAME)
    found = [each for each in (obj.get("status") or {}).get("conditions") or () if each["type"] == "Served"]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")


async def served(host: ApiServer, reason: str = "Served") -> str:
    """Wait until the WorkloadKind says this; returns its message."""

    async def so() -> str:
        _, found, message = await condition(host)
        return message if found == reason else ""

    return await until(so, what=f"the WorkloadKind says {reason}")


async def ready(host: ApiServer, *members: str) -> None:
    """Wait until these members serve it."""

    async def so() -> bool:
        row = next((each for each in await gather(host) if each["kind"] == "Training"), None)
        return row is not None and all(not row["members"][name] for name in members)

    await until(so, what=f"{', '.join(members)} serve it")


async def asked_about(host: ApiServer) -> list[list[tuple[str, str]]]:
    """(group, resource) in the rules of each webhook for declared kinds."""
    found = []
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for entry in (await host.get(resource, keys.WEBHOOKS))["webhooks"]:
            if "declared" in entry["name"]:
                rules = entry.get("rules") or ()
                found.append([(each["apiGroups"][0], name) for each in rules for name in each["resources"]])
    return found


async def asked(host: ApiServer, *wanted: tuple[str, str]) -> None:
    """Wait until API servers ask about these declared resources and no others."""

    async def so() -> bool:
        return await asked_about(host) == [[*wanted]] * 4

    await until(so, what=f"API servers ask about {wanted}")


async def present(api: ApiServer, resource: ApiResource, obj: Json) -> None:
    """Create the object unless it is there."""
    with contextlib.suppress(errors.AlreadyExists):
        await api.create(resource, obj)


async def declare_it(host: ApiServer, members: dict[str, ApiServer]) -> None:
    """Declare it, with its CRD and the rights on the host and in two members; what is there stays."""
    clusters = [host, members["alpha"], members["beta"]]
    await bring(clusters, [TRAININGS])
    for api in clusters:
        await present(api, CLUSTER_ROLES, made_up.rights("status", "finalizers"))
    await present(host, WORKLOAD_KINDS, made_up.workload_kind())
    await served(host)
    await ready(host, "alpha", "beta")


async def forget(host: ApiServer, members: dict[str, ApiServer]) -> None:
    """Remove the declaration, its CRD and the rights everywhere, and what this process knows of it."""
    await host.delete(WORKLOAD_KINDS, NAME)

    async def undeclared() -> bool:
        return not await host.list(WORKLOAD_KINDS)

    await until(undeclared, what="the WorkloadKind is gone")
    declare([])
    for api in (host, *members.values()):
        await api.delete(CLUSTER_ROLES, made_up.rights()["metadata"]["name"])
        await api.delete(CRDS, NAME)

        async def gone(api: ApiServer = api) -> bool:
            return not [each for each in await api.list(CRDS) if each["metadata"]["name"] == NAME]

        await until(gone, what="the CRD is gone")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def declaration(administrator: tuple[ApiServer, dict[str, ApiServer]]) -> AsyncIterator[None]:
    """Declared once for all tests that follow; all of it gone after the last."""
    await declare_it(*administrator)
    yield
    await forget(*administrator)


@pytest_asyncio.fixture(loop_scope="session")
async def declared(site: Site, declaration: None) -> AsyncIterator[Site]:
    yield site
    for each in await site.host.list(TRAININGS, site.namespace):
        await site.host.delete(TRAININGS, each["metadata"]["name"], site.namespace)


async def in_member(site: Site, name: str) -> tuple[str, Json]:
    """The member that has the object, and it."""

    async def look() -> tuple[str, Json] | None:
        for member in ("alpha", "beta"):
            if (found := await site.find(TRAININGS, name, member)) is not None:
                return member, found
        return None

    return await until(look, what=f"Training {name} is in a member")


async def run(site: Site, name: str, workers: int) -> tuple[str, Json]:
    """What its operator does: makes the pods, and counts them."""
    member, obj = await in_member(site, name)
    api = site.members[member]
    await make_pods(api, TRAININGS, obj, "master", 1, obj["spec"]["master"])
    await make_pods(api, TRAININGS, obj, "worker", workers, obj["spec"]["workers"]["template"])

    async def placed() -> bool:
        mine = [pod for pod in await site.pods(member) if pod["metadata"]["name"].startswith(f"{name}-")]
        return len(mine) == workers + 1 and all(pod["spec"].get("nodeName") for pod in mine)

    await until(placed, what="all of its pods have nodes")
    await say(api, TRAININGS, obj, {"phase": "Going", "ready": {"master": 1, "worker": workers}})
    return member, obj


async def finished(site: Site, name: str) -> bool:
    binding = await site.find(BINDINGS, f"{name}-training")
    conditions = ((binding or {}).get("status") or {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Finished", "True") for each in conditions)


async def test_a_declaration_says_what_it_lacks(site: Site) -> None:
    with pytest.raises(errors.Forbidden, match=r"Atoll runs jobs\.batch by itself"):
        await site.host.create(WORKLOAD_KINDS, made_up.workload_kind(group="batch", plural="jobs", kind="Job"))
    await asked(site.host)
    try:
        await site.host.create(WORKLOAD_KINDS, made_up.workload_kind())
        assert f"CRD {NAME} is not there" in await served(site.host, "NoCRD")
        await bring([site.host], [TRAININGS])
        assert "patch, delete trainings.made-up.example.com; patch" in await served(site.host, "NoRights")
        await site.host.create(CLUSTER_ROLES, made_up.rights("status"))
        await served(site.host)

        async def told() -> bool:
            row = next((each for each in await gather(site.host) if each["kind"] == "Training"), None)
            return row is not None and row["host"]["served"] and "may not" in row["members"]["alpha"]

        await until(told, what="atollctl kinds says that the member lacks the right")
        await asked(site.host, (made_up.GROUP, "trainings"))
    finally:
        await forget(site.host, site.members)
    await asked(site.host)


async def test_objects_that_came_before_their_kind_was_served_are_named_by_an_event(site: Site) -> None:
    """1. The kind is declared without rights; 2. one is created, unseen by the webhook; 3. the kind gets its rights."""
    await bring([site.host], [TRAININGS])
    try:
        await site.host.create(WORKLOAD_KINDS, made_up.workload_kind())
        await served(site.host, "NoRights")
        early = training("early")
        early["metadata"]["namespace"] = site.namespace
        assert "runState" not in (await site.host.create(TRAININGS, early))["spec"]
        await site.host.create(CLUSTER_ROLES, made_up.rights("status"))
        await served(site.host)

        async def named() -> bool:
            events = await site.host.list(EVENTS, site.namespace)
            return [each["regarding"]["name"] for each in events if each["reason"] == "NotIntercepted"] == ["early"]

        await until(named, what="an Event names it")
        with pytest.raises(errors.Forbidden, match="a pod template is wanted"):
            await site.host.create(TRAININGS, {**early, "metadata": {**early["metadata"], "name": "late"}, "spec": {}})
        await site.host.delete(TRAININGS, "early", site.namespace)
    finally:
        await forget(site.host, site.members)


async def test_a_registration_for_all_custom_resources_as_init_writes_it_is_narrowed(declared: Site) -> None:
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        found = (await declared.host.get(resource, keys.WEBHOOKS))["webhooks"]
        for entry in found:
            if "declared" in entry["name"]:
                entry["rules"][0].update(apiGroups=["*"], resources=["*"])
        await declared.host.merge_patch(resource, keys.WEBHOOKS, {"webhooks": found})
    await asked(declared.host, (made_up.GROUP, "trainings"))
    assert (await condition(declared.host))[1] == "Served"


async def test_a_declared_kind_is_queued_dispatched_run_scaled_finished_and_deleted(declared: Site) -> None:
    site = declared
    await site.submit(training("one"))
    on_host = await site.find(TRAININGS, "one")
    assert on_host is not None
    assert on_host["spec"]["runState"] == "Paused"
    assert on_host["metadata"]["labels"][keys.QUEUE_LABEL] == "default"
    member, obj = await run(site, "one", 2)
    assert obj["spec"]["runState"] == "Active"
    api = site.members[member]
    groups = await api.list(POD_GROUPS, site.namespace)
    assert [(each["spec"]["minMember"], each["metadata"]["ownerReferences"][0]["uid"]) for each in groups] == [
        (3, obj["metadata"]["uid"])
    ]

    async def shown() -> bool:
        found = await site.find(TRAININGS, "one")
        return found is not None and (found.get("status") or {}).get("phase") == "Going"

    await until(shown, what="the host shows the member's status")

    # Scaled: the member's object follows, and the binding is charged for it.
    patch = {"spec": {"workers": {"count": 4}}}
    await site.host.merge_patch(TRAININGS, "one", patch, site.namespace)

    async def scaled() -> bool:
        found = await site.find(TRAININGS, "one", member)
        binding = await site.find(BINDINGS, "one-training")
        charged = binding is not None and binding["spec"]["replicas"] == 5
        return charged and found is not None and found["spec"]["workers"]["count"] == 4

    await until(scaled, what="its member has it scaled")
    obj = await api.get(TRAININGS, "one", site.namespace)
    done = {"type": "Done", "status": "True", "reason": "AllGood", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    await say(api, TRAININGS, obj, {"phase": "Ended", "conditions": [done]})
    await until(lambda: finished(site, "one"), what="its binding is finished")
    await site.host.delete(TRAININGS, "one", site.namespace)

    async def gone() -> bool:
        return await site.find(TRAININGS, "one", member) is None and not await site.pods(member)

    await until(gone, what="nothing of it is left in the member")


async def test_a_declared_kind_fails_as_its_phase_says(declared: Site) -> None:
    site = declared
    await site.submit(training("bad", workers=1))
    member, obj = await run(site, "bad", 1)
    await say(site.members[member], TRAININGS, obj, {"phase": "Broken"})
    await until(lambda: finished(site, "bad"), what="its binding is finished")

    async def broken() -> bool:
        found = await site.find(TRAININGS, "bad") or {}
        # The binding is finished before the status is copied.
        return (found.get("status") or {}).get("phase") == "Broken"

    await until(broken, what="its status says so")


async def test_what_lacks_its_template_and_what_is_of_another_version_are_refused(declared: Site) -> None:
    site = declared
    bad = training("bad")
    del bad["spec"]["master"]
    with pytest.raises(errors.Forbidden, match=r"spec\.master: a pod template is wanted"):
        await site.submit(bad)
    lifted = await site.submit(training("lifted"))
    assert lifted["spec"]["runState"] == "Paused"
    patch = {"spec": {"runState": "Active"}}
    after = await site.host.merge_patch(TRAININGS, "lifted", patch, site.namespace)
    assert after["spec"]["runState"] == "Paused"


async def test_pods_of_a_declared_kind_need_no_rights_of_its_user_on_the_host(declared: Site) -> None:
    await declared.submit(training("quiet"))
    await in_member(declared, "quiet")
    assert await declared.host.list(PODS, declared.namespace) == []


async def test_while_workloads_are_left_the_declaration_stays_and_takes_no_more(declared: Site) -> None:
    site = declared
    # It may have gone already in a first run of this test.
    await declare_it(site.host, site.members)
    await site.submit(training("last"))
    await in_member(site, "last")
    await site.host.delete(WORKLOAD_KINDS, NAME)
    assert "1 left" in await served(site.host, "Terminating")

    async def refused() -> bool:
        try:
            await site.submit(training("late"))
        except errors.Forbidden as error:
            return "is being deleted" in str(error)
        await site.host.delete(TRAININGS, "late", site.namespace)
        return False

    await until(refused, what="the webhook refuses new ones")
    await site.host.delete(TRAININGS, "last", site.namespace)

    async def gone() -> bool:
        return not await site.host.list(WORKLOAD_KINDS)

    await until(gone, what="the WorkloadKind goes with the last of them")
