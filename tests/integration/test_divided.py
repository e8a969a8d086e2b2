"""A gang over several members: it starts whole, or nothing of it exists anywhere."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson
import pytest

from atoll.model import gang, keys
from atoll.model.apiresource import BINDINGS, CAPACITIES, CONFIGMAPS, JOBS, PODS, POLICIES, WORKS
from tests.integration.federation import Site, until
from tests.integration.gangs import allow_division, gpus

pytestmark = pytest.mark.integration


async def test_a_gang_that_no_member_holds_alone_starts_whole_over_two(site: Site) -> None:
    await allow_division(site, "alpha", "beta")
    # alpha has 8 nodes and beta 4, of 8 GPUs each: 24 pods of 4 GPUs are 96 GPUs, all there are.
    wide = gpus("wide", 24, 4, seconds=None, plugins={"svc": []})

    async def warned(found: bool) -> None:
        async def look() -> bool:
            create = ("create", "-n", site.namespace, "--dry-run=server", "-f", "-")
            said = await asyncio.to_thread(site.warned, *create, stdin=json.dumps(wide))
            return (
                "spec.plugins.svc: needs pods that reach each other, and policy divided may divide" in said
            ) is found

        await until(look, what="admission says that a network is missing" if found else "a network is known")

    await warned(True)
    network = {keys.NETWORK: "{pod}.{cluster}.{service}.{namespace}.mesh.example"}
    await site.host.merge_patch(POLICIES, "divided", {"metadata": {"annotations": network}}, site.namespace)
    await warned(False)
    await site.submit(wide)
    await site.phase("wide", "Running")

    async def whole() -> bool:
        pods = {name: await site.pods(name) for name in ("alpha", "beta")}
        bound = {name: [p for p in each if p["spec"].get("nodeName")] for name, each in pods.items()}
        return (len(bound["alpha"]), len(bound["beta"])) == (16, 8)

    await until(whole, what="16 pods are bound in alpha and 8 in beta")
    parts = [await site.find(JOBS, "wide", member) for member in ("alpha", "beta")]
    assert [part["spec"]["minAvailable"] for part in parts if part] == [16, 8]
    works = [await site.host.list(WORKS, keys.execution_namespace(member)) for member in ("alpha", "beta")]
    sent = [each["metadata"]["annotations"][keys.GANG] for found in works for each in found]
    assert [gang.decode(text).full() for text in sent] == [[16], [8]]

    async def counted() -> bool:
        found = await site.find(JOBS, "wide")
        return bool(found and found["status"].get("running") == 24)

    await until(counted, what="the host counts 24 running pods")
    hosts = [await site.members[name].get(CONFIGMAPS, "wide-svc", site.namespace) for name in ("alpha", "beta")]
    [task] = wide["spec"]["tasks"]
    listed = [each["data"][f"{task['name']}.host"].splitlines() for each in hosts]
    assert listed[0] == listed[1]
    names = [f"wide-{task['name']}-0.{member}.wide.{site.namespace}.mesh.example" for member in ("alpha", "beta")]
    assert (len(listed[0]), listed[0][0], listed[0][16]) == (24, *names)
    patches = [
        {op["path"]: op.get("value") for op in event["requestObject"]}
        for event in site.audit()
        if event["verb"] == "patch" and event["user"]["username"].endswith(":atoll-dispatcher")
    ]
    decided = [patch for patch in patches if "/spec/suspension/dispatching" in patch]
    assert [patch["/spec/suspension/dispatching"] for patch in decided] == [True, False]


async def test_24_pods_over_at_least_three_members_start_whole(site: Site) -> None:
    await allow_division(site, "alpha", "beta", "topo", least=3)
    await site.submit(gpus("three", 24, 4, seconds=None))
    await site.phase("three", "Running")

    async def bound() -> list[int] | None:
        pods = [await site.pods(name) for name in ("alpha", "beta", "topo")]
        counts = [sum(bool(pod["spec"].get("nodeName")) for pod in each) for each in pods]
        return counts if sum(counts) == 24 else None

    assert min(await until(bound, what="24 pods are bound")) >= 1


async def test_a_policy_that_one_part_triggers_restarts_all_parts(site: Site) -> None:
    await allow_division(site, "alpha", "beta")
    wish = gpus("restarted", 24, 4, seconds=None)
    wish["spec"]["policies"] = [{"event": "PodFailed", "action": "RestartJob"}]
    await site.submit(wish)
    await site.phase("restarted", "Running")
    before = {pod["metadata"]["uid"] for name in ("alpha", "beta") for pod in await site.pods(name)}
    victim = (await site.pods("beta"))[0]["metadata"]["name"]
    failed = {"status": {"phase": "Failed"}}
    await site.members["beta"].merge_patch(PODS, victim, failed, site.namespace, subresource="status")

    async def anew() -> bool:
        pods = [pod for name in ("alpha", "beta") for pod in await site.pods(name)]
        fresh = [p for p in pods if p["metadata"]["uid"] not in before and p["spec"].get("nodeName")]
        return len(fresh) == len(pods) == 24

    await until(anew, what="all 24 pods, in both members, are new")

    async def counted() -> bool:
        found = await site.find(JOBS, "restarted")
        return bool(found and found["status"].get("retryCount") == 1 and found["status"].get("running") == 24)

    await until(counted, what="the host counts one retry and 24 running pods")


async def test_a_divided_gang_ends_completed_with_the_counts_of_all_its_parts(site: Site) -> None:
    await allow_division(site, "alpha", "beta")
    await site.submit(gpus("short", 24, 4, seconds=1))
    done = await site.phase("short", "Completed")
    assert done["status"]["succeeded"] == 24


async def test_when_one_member_can_not_hold_its_part_no_pod_exists_anywhere_and_the_member_is_named(site: Site) -> None:
    """1. Beta's agent is stopped, so its figures stay. 2. Somebody takes half of beta. 3. The gang needs all of it.
    4. The agent comes back and refuses. 5. The gang waits; nothing of it was ever started.
    """
    await allow_division(site, "alpha", "beta")
    agent = site.federation.process("atoll-agent-beta")

    async def all_free() -> bool:
        published = await site.host.list(CAPACITIES, "karmada-es-beta")
        classes = [each for obj in published for each in obj["spec"]["classes"]]
        return bool(sum(each["nodes"] * each["free"]["nvidia.com/gpu"] for each in classes) == 32)

    await until(all_free, what="beta says that it is empty")
    await agent.stop()
    try:
        node = {"name": "beta-n0", "namespace": "default"}
        taken = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "taken", "namespace": "default"},
            "spec": {
                "nodeName": node["name"],
                "containers": [
                    {
                        "name": "c",
                        "image": "x",
                        "resources": {"requests": {"nvidia.com/gpu": 8}, "limits": {"nvidia.com/gpu": 8}},
                    }
                ],
            },
        }
        await site.members["beta"].create(PODS, taken)
        await site.submit(gpus("refused", 24, 4, seconds=None))

        async def works() -> bool:
            return len([w for w in await site.host.list(WORKS) if w["metadata"]["name"].startswith("refused-")]) == 2

        await until(works, what="both parts are to be reserved")
    finally:
        await agent.start()

    async def refused() -> dict[str, Any] | None:
        # From the audit log: the binding itself says so only until the next look finds another reason to wait.
        for event in site.audit():
            if event["verb"] == "patch" and event["user"]["username"].endswith(":atoll-dispatcher"):
                for operation in event["requestObject"]:
                    told = orjson.loads(operation["value"]) if operation["path"].endswith("decision") else {}
                    if told.get("reason") == "PartRefused":
                        return dict(told)
        return None

    blocker = (await until(refused, what="the dispatcher says that a part was refused"))["blocker"]
    assert (blocker["kind"], blocker["name"], blocker["requested"], blocker["available"]) == (
        "Cluster",
        "beta",
        "8",
        "6",
    )

    async def told() -> bool:
        found = await site.find(JOBS, "refused")
        return bool(found and found["status"]["state"].get("reason"))

    await until(told, what="the job says why it waits")
    for name in ("alpha", "beta"):
        assert not [pod for pod in await site.pods(name) if "refused" in pod["metadata"]["name"]]
        created = [
            event
            for event in site.audit(name)
            if event["verb"] == "create" and event["objectRef"]["resource"] in ("pods", "jobs")
        ]
        assert not created
    await site.members["beta"].delete(PODS, "taken", "default", grace_seconds=0)
    await site.phase("refused", "Running")
    binding = await site.find(BINDINGS, "refused-job")
    assert binding is not None
