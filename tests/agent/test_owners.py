"""Which binding a pod or a PodGroup belongs to: what its owner was delivered for, whatever its own annotations say."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS
from tests.kube.servers import client

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
JOB: dict[str, Any] = {
    "metadata": {"name": "j", "namespace": "default", "uid": "uid-j", "annotations": {keys.BINDING_UID: "b"}}
}


def tell(cache: Any, type_: str, obj: dict[str, Any], version: int) -> None:
    metadata = {**obj["metadata"], "resourceVersion": str(version)}
    cache.take_line(orjson.dumps({"type": type_, "object": {**obj, "metadata": metadata}}))


def pod(name: str, owner: dict[str, Any] | None, binding: str = "b") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    metadata["annotations"] = {keys.BINDING_UID: binding}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}


def of(cache: MemberCache) -> set[str]:
    return {each.metadata.name for each in cache.pods.by_index("binding", "b")}


async def test_a_pod_belongs_to_the_binding_that_its_owner_was_delivered_for() -> None:
    cache = MemberCache(client(9))
    tell(cache.workloads[BATCH_JOBS], "ADDED", JOB, 1)
    tell(cache.pods, "ADDED", pod("mine", OWNER), 2)
    tell(cache.pods, "ADDED", pod("forged", None), 3)
    tell(cache.pods, "ADDED", pod("other", OWNER, binding="c"), 4)
    tell(cache.pods, "ADDED", pod("set", {**OWNER, "kind": "ReplicaSet", "uid": "uid-r"}), 5)
    tell(cache.pods, "ADDED", pod("follower", {**OWNER, "controller": False}), 6)
    assert of(cache) == {"mine"}
    assert cache.pods.by_index("binding", "c") == []


async def test_a_pod_group_belongs_to_the_binding_that_its_owner_was_delivered_for() -> None:
    """What is heard of before its owner is looked at again."""
    cache = MemberCache(client(9))
    tell(cache.pod_groups, "ADDED", pod("mine", OWNER), 1)
    tell(cache.pod_groups, "ADDED", pod("forged", None), 2)
    assert cache.pod_groups.by_index("binding", "b") == []
    tell(cache.workloads[BATCH_JOBS], "ADDED", JOB, 3)
    assert [each.metadata.name for each in cache.pod_groups.by_index("binding", "b")] == ["mine"]


async def test_a_pod_that_is_heard_of_before_its_owner_is_looked_at_again() -> None:
    cache = MemberCache(client(9))
    seen: list[tuple[bool | None, bool | None]] = []

    def note(old: Pod | None, new: Pod | None) -> None:
        seen.append((old.stranger if old else None, new.stranger if new else None))

    cache.pods.on_change(note)
    tell(cache.pods, "ADDED", pod("early", OWNER), 1)
    assert of(cache) == set()
    tell(cache.workloads[BATCH_JOBS], "ADDED", JOB, 2)
    assert of(cache) == {"early"}
    assert seen == [(None, True), (True, False)]


async def test_a_pod_stays_what_it_is_when_its_owner_goes_first() -> None:
    cache = MemberCache(client(9))
    tell(cache.workloads[BATCH_JOBS], "ADDED", JOB, 1)
    tell(cache.pods, "ADDED", pod("mine", OWNER), 2)
    tell(cache.workloads[BATCH_JOBS], "DELETED", JOB, 3)
    tell(cache.pods, "MODIFIED", pod("mine", OWNER), 4)
    assert of(cache) == {"mine"}
    tell(cache.pods, "DELETED", pod("mine", OWNER), 5)
    assert (of(cache), cache.owners._bindings, cache.owners._there) == (set(), {}, set())


@pytest.mark.parametrize("binding", ["", "c"])
async def test_a_workload_that_is_another_binding_s_takes_its_pods_along(binding: str) -> None:
    cache = MemberCache(client(9))
    tell(cache.workloads[BATCH_JOBS], "ADDED", JOB, 1)
    tell(cache.pods, "ADDED", pod("mine", OWNER), 2)
    notes = {keys.BINDING_UID: binding} if binding else {}
    tell(cache.workloads[BATCH_JOBS], "MODIFIED", {"metadata": {**JOB["metadata"], "annotations": notes}}, 3)
    assert of(cache) == set()


def owned(name: str, kind: str, above: dict[str, Any] | None, **annotations: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
    if above is not None:
        metadata["ownerReferences"] = [above]
    return {"kind": kind, "metadata": metadata}


def by(name: str, kind: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


async def test_a_pod_belongs_to_the_workload_that_its_controller_was_made_for_whatever_is_heard_of_first() -> None:
    cache = MemberCache(client(9))
    tell(cache.pods, "ADDED", pod("deep", by("child", "Job")), 1)
    assert (of(cache), cache.owners.awaited(next(iter(cache.pods)))) == (set(), True)
    # A copy of the annotation says nothing of what has a controller itself.
    tell(cache.workloads[BATCH_JOBS], "ADDED", owned("child", "Job", by("top", "Job"), **{keys.BINDING_UID: "c"}), 2)
    assert (of(cache), cache.owners.awaited(next(iter(cache.pods)))) == (set(), True)
    tell(cache.workloads[BATCH_JOBS], "ADDED", owned("top", "Job", None, **{keys.BINDING_UID: "b"}), 3)
    assert (of(cache), cache.owners.delivered(next(iter(cache.pods)))) == ({"deep"}, "uid-top")
    for number, each in enumerate(("top", "child")):
        tell(cache.workloads[BATCH_JOBS], "DELETED", owned(each, "Job", None), 4 + number)
    tell(cache.pods, "DELETED", pod("deep", by("child", "Job")), 6)
    assert (cache.owners._bindings, cache.owners._above, cache.owners._there) == ({}, {}, set())


async def test_pods_that_a_pod_owns_belong_to_its_workload() -> None:
    cache = MemberCache(client(9))
    tell(cache.workloads[BATCH_JOBS], "ADDED", JOB, 1)
    tell(cache.pods, "ADDED", pod("driver", OWNER), 2)
    tell(cache.pods, "ADDED", pod("executor", by("driver", "Pod")), 3)
    tell(cache.pods, "ADDED", pod("forged", {**by("driver", "Pod"), "uid": "another"}), 4)
    assert of(cache) == {"driver", "executor"}
