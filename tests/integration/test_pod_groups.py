"""Pod groups on real API servers: held on the host, run in a member as one gang, told of pod by pod."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.kinds.pod_group import GATE, GROUP, RETRIABLE, TOTAL
from atoll.kube import errors
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, JOBS, PODS
from tests.integration.command_line import atollctl
from tests.integration.federation import DEADLINE, Json, Site, until

pytestmark = pytest.mark.integration


def pod(
    name: str, *, total: int, seconds: float | None = 1.0, group: str = "g", cpu: str = "100m", **annotations: str
) -> Json:
    """A pod of a group; `seconds` None runs until deleted."""
    notes = {TOTAL: str(total), **annotations}
    if seconds is not None:
        notes[keys.RUN_TIME] = f"{int(seconds * 1000)}ms"
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {GROUP: group}, "annotations": notes},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


async def phases(site: Site, *wanted: str, deadline: float = DEADLINE) -> list[Json]:
    """The pods on the host once their phases are these, in the order of their names."""

    async def look() -> list[Json] | None:
        found = sorted(await site.host.list(PODS, site.namespace), key=lambda each: each["metadata"]["name"])
        good = tuple((each.get("status") or {}).get("phase") for each in found) == wanted
        return found if good else None

    return await until(look, what=f"pods are {wanted}", deadline=deadline)


async def test_a_group_waits_until_it_is_complete_runs_as_one_gang_and_ends_with_its_pods(site: Site) -> None:
    made = await site.submit(pod("a", total=2))
    assert [gate["name"] for gate in made["spec"]["schedulingGates"]] == [GATE]
    assert made["metadata"]["labels"][keys.QUEUE_LABEL] == "default"

    async def waits() -> bool:
        found = await site.find(PODS, "a")
        return bool(found and found["status"].get("reason") == "GroupIncomplete")

    await until(waits, what="it says that it waits for the other")
    assert await site.find(BINDINGS, "g-pod") is None
    await site.submit(pod("b", total=2))
    done = await phases(site, "Succeeded", "Succeeded")
    assert all(GATE in {gate["name"] for gate in each["spec"]["schedulingGates"]} for each in done)
    assert not any(each["spec"].get("nodeName") for each in done)
    # kubectl would print it instead of the phase.
    assert not any(
        each.get("reason") == "SchedulingGated" for pod_ in done for each in pod_["status"].get("conditions", ())
    )
    binding = await site.find(BINDINGS, "g-pod")
    assert binding is not None
    [target] = binding["spec"]["clusters"]
    pods = await site.pods(target["name"])
    assert sorted(each["spec"]["hostname"] for each in pods) == ["a", "b"]
    assert not any(each["spec"].get("schedulingGates") for each in pods)
    assert not any(label.startswith("kueue.x-k8s.io") for each in pods for label in each["metadata"]["labels"])
    assert len(await site.members[target["name"]].list(JOBS, site.namespace)) == 1


async def test_a_pod_takes_the_place_of_one_that_failed_and_the_others_run_on(site: Site) -> None:
    for name in ("a", "b"):
        await site.submit(pod(name, total=2, seconds=None))
    await phases(site, "Running", "Running")
    member, failing = await running(site, "a")
    before = await running(site, "b")
    await fail(site, member, failing)
    await phases(site, "Failed", "Running")
    await site.submit(pod("c", total=2, seconds=None))
    await phases(site, "Failed", "Running", "Running")
    _, after = await running(site, "b")
    assert after["metadata"]["uid"] == before[1]["metadata"]["uid"]
    hosts = {each["spec"]["hostname"] for each in await site.pods(member)}
    assert hosts == {"b", "c"}
    one_more = await site.submit(pod("d", total=2, seconds=None))

    async def told() -> bool:
        found = await site.find(PODS, one_more["metadata"]["name"])
        return bool(found and found["status"].get("reason") == "NotOfGroup")

    await until(told, what="one too many says so")


async def test_a_group_of_which_no_pod_may_be_replaced_has_failed_once_all_have_ended(site: Site) -> None:
    await site.submit(pod("a", total=2, seconds=None, **{RETRIABLE: "false"}))
    await site.submit(pod("b", total=2, seconds=1.0))
    member, failing = await running(site, "a")
    await fail(site, member, failing)
    await phases(site, "Failed", "Succeeded")

    async def finished() -> bool:
        binding = await site.find(BINDINGS, "g-pod")
        conditions = ((binding or {}).get("status") or {}).get("conditions") or ()
        return any((each["type"], each.get("reason")) == ("Finished", "Failed") for each in conditions)

    await until(finished, what="its binding says that it failed")


async def test_no_pod_of_a_group_runs_on_the_host_and_deleting_all_ends_it(site: Site) -> None:
    for name in ("a", "b"):
        await site.submit(pod(name, total=2, seconds=None))
    await phases(site, "Running", "Running")
    with pytest.raises(errors.ApiError, match="gate"):
        await site.host.merge_patch(PODS, "a", {"spec": {"schedulingGates": []}}, site.namespace)
    labels = {keys.QUEUE_LABEL: await site.queue("other")}
    with pytest.raises(errors.ApiError, match="queue"):
        await site.host.merge_patch(PODS, "a", {"metadata": {"labels": labels}}, site.namespace)
    labels = {GROUP: "another"}
    with pytest.raises(errors.ApiError, match="create another one"):
        await site.host.merge_patch(PODS, "a", {"metadata": {"labels": labels}}, site.namespace)
    member, _ = await running(site, "a")
    site.kubectl("delete", "pod", "a", "b", "-n", site.namespace)

    async def gone() -> bool:
        return await site.find(BINDINGS, "g-pod") is None and not await site.pods(member)

    await until(gone, what="nothing of it is left")


async def test_a_group_that_is_held_goes_and_when_released_only_what_has_not_ended_runs_again(site: Site) -> None:
    await site.submit(pod("a", total=2, seconds=0.2))
    await site.submit(pod("b", total=2, seconds=None))
    await phases(site, "Succeeded", "Running")
    assert "pod-group/g" in await atollctl(site, "job", "list")
    assert await atollctl(site, "job", "hold", "pod-group/g") == "pod-group/g held\n"
    _, waiting = await phases(site, "Succeeded", "Pending")

    async def held() -> bool:
        found = await site.find(PODS, waiting["metadata"]["name"])
        return bool(found and found["status"].get("reason") == "Held")

    await until(held, what="its pod says that it is held")
    assert "Held" in await atollctl(site, "explain", "g")
    assert await atollctl(site, "job", "release", "g") == "pod-group/g released\n"
    await phases(site, "Succeeded", "Running")
    member, _ = await running(site, "b")
    assert [each["spec"]["hostname"] for each in await site.pods(member)] == ["b"]
    assert await atollctl(site, "job", "delete", "g") == "pod-group/g deleted\n"
    assert await site.host.list(PODS, site.namespace) == []


async def test_a_pod_that_is_deleted_ends_in_its_member_and_another_takes_its_place(site: Site) -> None:
    for name in ("a", "b"):
        await site.submit(pod(name, total=2, seconds=None))
    await phases(site, "Running", "Running")
    member, before = await running(site, "b")
    site.kubectl("delete", "pod", "a", "-n", site.namespace)

    async def alone() -> bool:
        return [each["spec"]["hostname"] for each in await site.pods(member)] == ["b"]

    await until(alone, what="the pod is gone there")
    [left] = await phases(site, "Running")
    assert not left["status"].get("reason")
    said = [
        operation["value"]["phase"]
        for event in site.audit()
        if event["verb"] == "patch" and event["objectRef"].get("subresource") == "status"
        if (event["objectRef"]["resource"], event["objectRef"]["name"]) == ("pods", "b")
        for operation in event["requestObject"]
        if operation["path"] == "/status"
    ]
    assert "Pending" not in said[said.index("Running") :]
    await site.submit(pod("c", total=2, seconds=None))
    await phases(site, "Running", "Running")
    assert (await running(site, "b"))[1]["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_group_of_which_pods_are_missing_is_explained(site: Site) -> None:
    await site.submit(pod("a", total=3))
    assert "create 2 more" in await atollctl(site, "explain", "pod-group/g")


async def test_a_leader_and_a_worker_that_ask_for_different_things_run_as_one_gang(site: Site) -> None:
    await site.submit(pod("a", total=2))
    await site.submit(pod("b", total=2, cpu="200m"))
    await phases(site, "Succeeded", "Succeeded")
    binding = await site.find(BINDINGS, "g-pod")
    assert binding is not None
    assert len(binding["spec"]["components"]) == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"metadata": {"annotations": {TOTAL: "many"}}}, TOTAL, id="a total that is no number"),
        pytest.param({"metadata": {"annotations": {TOTAL: "300"}}}, TOTAL, id="too many pods"),
        pytest.param({"metadata": {"labels": {GROUP: "A_b"}}}, GROUP, id="a group that can't be named so"),
        pytest.param({"spec": {"nodeName": "n"}}, "nodeName", id="a node of its own choice"),
    ],
)
async def test_what_is_refused(site: Site, change: Json, says: str) -> None:
    wrong = merged(pod("a", total=2), change)
    with pytest.raises(errors.ApiError) as refused:
        await site.submit(wrong)
    assert says in str(refused.value)


def merged(obj: Any, change: Any) -> Any:
    if not isinstance(obj, dict) or not isinstance(change, dict):
        return change
    return {**obj, **{key: merged(obj.get(key), value) for key, value in change.items()}}


async def running(site: Site, name: str) -> tuple[str, Json]:
    """The member and the pod there that a pod of the host stands for, once it runs."""

    async def look() -> tuple[str, Json] | None:
        for member in site.members:
            for each in await site.pods(member):
                if each["spec"].get("hostname") == name and each["status"].get("phase") == "Running":
                    return member, each
        return None

    return await until(look, what=f"pod {name} runs somewhere")


async def fail(site: Site, member: str, failing: Json) -> None:
    """End a pod as a kubelet does whose container exits with 1."""
    about = failing["metadata"]
    await site.members[member].merge_patch(
        PODS, about["name"], {"status": {"phase": "Failed"}}, about["namespace"], subresource="status"
    )


async def test_a_pod_that_names_a_queue_and_no_group_runs_as_one_of_its_own(site: Site) -> None:
    alone = pod("solo", total=1)
    alone["metadata"]["labels"] = {keys.KUEUE_QUEUE_LABEL: "default"}
    del alone["metadata"]["annotations"][TOTAL]
    made = await site.submit(alone)
    assert (made["metadata"]["labels"][GROUP], made["metadata"]["annotations"][TOTAL]) == ("solo", "1")
    await phases(site, "Succeeded")
    del alone["metadata"]["name"], alone["metadata"]["labels"]
    made = await site.submit({**alone, "metadata": {**alone["metadata"], "generateName": "any-"}})
    assert made["metadata"]["labels"][GROUP].startswith("any-")
    await phases(site, "Succeeded", "Succeeded")
    # On a node already, it is nobody's workload.
    there = {**alone, "metadata": {"name": "there"}, "spec": {**alone["spec"], "nodeName": "n"}}
    assert GROUP not in ((await site.submit(there))["metadata"].get("labels") or {})
