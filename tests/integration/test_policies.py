"""Policies end to end: what members get of a workload by override policies, and which policy it follows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.kube import errors
from atoll.model import keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    CLUSTER_OVERRIDES,
    CONFIGMAPS,
    EVENTS,
    JOBS,
    NAMESPACES,
    OVERRIDES,
    POLICIES,
    WORKS,
    ApiResource,
)
from tests.integration.federation import Json, Site, batch_job, job, until

pytestmark = pytest.mark.integration

MEMBER = "topo"
IMAGE = "/spec/template/spec/containers/0/image"


def policy(resource: ApiResource, name: str, selector: Json, target: Json | None = None, **overriders: Any) -> Json:
    rule = {"overriders": overriders, **({"targetCluster": target} if target else {})}
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
    return {**head, "spec": {"resourceSelectors": [selector], "overrideRules": [rule]}}


async def create(site: Site, resource: ApiResource, obj: Json) -> None:
    metadata = {**obj["metadata"], **({"namespace": site.namespace} if resource.namespaced else {})}
    await site.host.create(resource, {**obj, "metadata": metadata})


async def told(site: Site, reason: str, *words: str) -> None:
    async def look() -> bool:
        events = await site.host.list(EVENTS, site.namespace)
        return any(each["reason"] == reason and all(word in each["note"] for word in words) for each in events)

    await until(look, what=f"Event {reason} with {words}")


def image_of(obj: Json) -> str:
    found: str = obj["spec"]["template"]["spec"]["containers"][0]["image"]
    return found


async def in_member(site: Site, name: str) -> Json:
    async def look() -> Json | None:
        return await site.find(BATCH_JOBS, name, MEMBER)

    return await until(look, what=f"{name} is in the member")


async def test_a_member_gets_what_override_policies_make_of_a_workload_and_its_config(site: Site) -> None:
    """Those of the cluster first, then those of the namespace; a running Job follows in its metadata alone."""
    await site.only(MEMBER)
    one = {"apiVersion": "batch/v1", "kind": "Job", "namespace": site.namespace}
    wide = f"wide-{site.namespace}"
    mirror = [{"component": "Registry", "operator": "replace", "value": "mirror.local"}]
    await create(
        site, CLUSTER_OVERRIDES, policy(CLUSTER_OVERRIDES, wide, one, {"clusterNames": [MEMBER]}, imageOverrider=mirror)
    )
    try:
        tag = [{"path": IMAGE, "operator": "replace", "value": "mirror.local/app:2"}]
        label = [{"operator": "add", "value": {"site": "a"}}]
        await create(site, OVERRIDES, policy(OVERRIDES, "own", one, plaintext=tag, labelsOverrider=label))
        await create(site, OVERRIDES, policy(OVERRIDES, "elsewhere", one, {"exclude": [MEMBER]}, imageOverrider=mirror))
        config = {"apiVersion": "v1", "kind": "ConfigMap"}
        level = [{"fieldPath": "/data/conf", "yaml": [{"subPath": "/level", "operator": "replace", "value": "debug"}]}]
        await create(site, OVERRIDES, policy(OVERRIDES, "config", {**config, "name": "conf"}, fieldOverrider=level))
        await create(site, CONFIGMAPS, {**config, "metadata": {"name": "conf"}, "data": {"conf": "level: info\n"}})
        wanted = batch_job("app", seconds=None)
        wanted["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "conf"}}]
        await site.submit(wanted)

        found = await in_member(site, "app")
        assert (image_of(found), found["metadata"]["labels"]["site"]) == ("mirror.local/app:2", "a")
        copy = await site.find(CONFIGMAPS, "conf", MEMBER)
        assert copy is not None
        assert copy["data"] == {"conf": "level: debug\n"}
        works = await site.host.list(WORKS, keys.execution_namespace(MEMBER))
        [work] = [each for each in works if each["metadata"]["annotations"][keys.BINDING_NAMESPACE] == site.namespace]
        records = [
            [each["policyName"] for each in json.loads(work["metadata"]["annotations"][key])]
            for key in (keys.APPLIED_CLUSTER_OVERRIDES, keys.APPLIED_OVERRIDES)
        ]
        assert records == [[wide], ["own"]]

        # A label follows at once; the image of a Job that runs does not, and the Job goes on.
        label[0]["value"] = {"site": "b"}
        changed = policy(OVERRIDES, "own", one, plaintext=tag, labelsOverrider=label)
        await site.host.merge_patch(OVERRIDES, "own", {"spec": changed["spec"]}, site.namespace)

        async def relabelled() -> bool:
            now = await site.find(BATCH_JOBS, "app", MEMBER)
            return now is not None and now["metadata"]["labels"].get("site") == "b"

        await until(relabelled, what="the label is the new one")
        tag[0]["value"] = "mirror.local/app:3"
        changed = policy(OVERRIDES, "own", one, plaintext=tag, labelsOverrider=label)
        await site.host.merge_patch(OVERRIDES, "own", {"spec": changed["spec"]}, site.namespace)
        await told(site, "OverrideWaits", "own", "next start")
        now = await in_member(site, "app")
        assert (image_of(now), now["metadata"]["uid"]) == ("mirror.local/app:2", found["metadata"]["uid"])
        await site.submit(batch_job("next", seconds=None))
        assert image_of(await in_member(site, "next")) == "mirror.local/app:3"
    finally:
        await site.host.delete(CLUSTER_OVERRIDES, wide)


async def test_an_override_that_can_not_be_applied_has_the_workload_wait_and_say_so(site: Site) -> None:
    await site.only(MEMBER)
    selector = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    patch = [{"path": "/spec/tasks/7/maxRetry", "operator": "replace", "value": 1}]
    await create(site, OVERRIDES, policy(OVERRIDES, "bad", selector, plaintext=patch))
    await site.submit(job("late", seconds=0.2))
    await told(site, "ApplyOverridePolicyFailed", "bad", "no item 7", MEMBER)
    decision = await site.reason("late", "OverrideFailed")
    assert "no item 7" in decision["blocker"]["message"]
    assert not await site.pods(MEMBER)
    await site.host.delete(OVERRIDES, "bad", site.namespace)
    await site.phase("late", "Completed")


async def test_an_override_of_what_was_decided_is_refused_and_one_without_effect_warned_of(site: Site) -> None:
    selector = {"apiVersion": "batch/v1", "kind": "Job"}
    patch = [{"path": "/spec/parallelism", "operator": "replace", "value": 1}]
    with pytest.raises(errors.Forbidden, match="the size of the gang"):
        await create(site, OVERRIDES, policy(OVERRIDES, "size", selector, plaintext=patch))
    with pytest.raises(errors.Forbidden, match="that namespace's objects only"):
        await create(site, OVERRIDES, policy(OVERRIDES, "far", {**selector, "namespace": "default"}))


async def test_policies_claim_suspend_wait_for_overrides_and_preempt(site: Site) -> None:
    """One workload after the other under one policy, which has the claim on each."""
    one = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    only = {"clusterAffinity": {"clusterNames": [MEMBER]}}
    spec: Json = {"resourceSelectors": [one], "placement": only, "dependentOverrides": ["needed"]}
    await create(site, POLICIES, {**about, "metadata": {"name": "own"}, "spec": spec})

    # 1. It waits for the override that its policy depends on.
    await site.submit(job("waits", seconds=None))
    await told(site, "DependentOverridesMissing", "needed")
    assert await site.find(BINDINGS, "waits-job") is None
    label = [{"operator": "add", "value": {"site": "a"}}]
    await create(site, OVERRIDES, policy(OVERRIDES, "needed", one, labelsOverrider=label))
    await site.phase("waits", "Running")
    binding = await site.find(BINDINGS, "waits-job")
    assert binding is not None
    assert binding["metadata"]["annotations"]["propagationpolicy.karmada.io/name"] == "own"
    assert binding["metadata"]["labels"]["propagationpolicy.karmada.io/permanent-id"]
    assert binding["spec"]["schedulePriority"] == {"priority": 0}

    # 2. Suspended, nothing new is dispatched, and what runs goes on.
    suspended = {"spec": {"suspension": {"dispatching": True}}}
    await site.host.merge_patch(POLICIES, "own", suspended, site.namespace)
    await site.submit(job("held", seconds=None))
    await site.reason("held", "SuspendedByPolicy")
    await site.phase("waits", "Running")
    assert (await site.find(BINDINGS, "waits-job") or {})["spec"]["clusters"] == binding["spec"]["clusters"]

    # 3. Another policy of a higher priority takes it over, once it says so; it goes elsewhere.
    named = {"resourceSelectors": [{**one, "name": "held"}], "priority": 5}
    elsewhere: Json = {**named, "placement": {"clusterAffinity": {"exclude": [MEMBER]}}}
    await create(site, POLICIES, {**about, "metadata": {"name": "other"}, "spec": elsewhere})
    await site.submit(job("held-too", seconds=None))
    await site.reason("held-too", "SuspendedByPolicy")
    await site.reason("held", "SuspendedByPolicy")
    await site.host.merge_patch(POLICIES, "other", {"spec": {"preemption": "Always"}}, site.namespace)
    assert await site.where("held") != MEMBER

    # 4. Lifted for all members but one.
    changed = {"spec": {"suspension": {"dispatching": None, "dispatchingOnClusters": {"clusterNames": [MEMBER]}}}}
    await site.host.merge_patch(
        POLICIES, "own", {**changed, "spec": {**changed["spec"], "placement": None}}, site.namespace
    )
    assert await site.where("held-too") != MEMBER
    await site.phase("waits", "Running")


async def test_a_policy_that_overwrites_replaces_what_a_member_has_of_that_name(site: Site) -> None:
    """The member's own Job stays without that word."""
    one = {"apiVersion": "batch/v1", "kind": "Job"}
    only = {"clusterAffinity": {"clusterNames": [MEMBER]}}
    head = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": {"name": "own"}}
    await create(site, POLICIES, {**head, "spec": {"resourceSelectors": [{**one, "name": "taken"}], "placement": only}})
    about = {"name": site.namespace, "labels": {keys.ACCEPT: "true"}}
    await site.members[MEMBER].create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": about})
    theirs = batch_job("taken", seconds=None)
    theirs["metadata"]["namespace"] = site.namespace
    theirs["spec"]["suspend"] = True
    before = await site.members[MEMBER].create(BATCH_JOBS, theirs)
    await site.submit(batch_job("taken", seconds=None))

    async def refused() -> bool:
        binding = await site.find(BINDINGS, "taken-job") or {}
        # What the member itself says goes with its part a tenth of a second later.
        conditions = (binding.get("status") or {}).get("conditions") or ()
        return any("is not Atoll's" in each["message"] for each in conditions)

    await until(refused, what="the binding says that the name is taken")
    assert (await in_member(site, "taken"))["metadata"]["uid"] == before["metadata"]["uid"]
    await site.host.delete(BATCH_JOBS, "taken", site.namespace)

    async def gone() -> bool:
        return await site.find(BINDINGS, "taken-job") is None

    await until(gone, what="its binding is gone")
    assert (await in_member(site, "taken"))["metadata"]["uid"] == before["metadata"]["uid"]
    await site.host.merge_patch(POLICIES, "own", {"spec": {"conflictResolution": "Overwrite"}}, site.namespace)
    await site.submit(batch_job("taken", seconds=None))

    async def replaced() -> bool:
        found = await site.find(BATCH_JOBS, "taken", MEMBER)
        return found is not None and keys.BINDING_UID in found["metadata"].get("annotations", {})

    await until(replaced, what="the workload has the name")


def propagation(name: str, **spec: Any) -> Json:
    """A policy for the Volcano Jobs of the namespace."""
    selectors = [{"apiVersion": JOBS.api_version, "kind": JOBS.kind}]
    about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": {"name": name}}
    return {**about, "spec": {"resourceSelectors": selectors, **spec}}


async def test_what_a_policy_preserves_stays_in_the_member_when_the_workload_is_deleted(site: Site) -> None:
    where = {"clusterAffinity": {"clusterNames": [MEMBER]}}
    await create(site, POLICIES, propagation("keep", placement=where, preserveResourcesOnDeletion=True))
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}}
    await create(site, CONFIGMAPS, settings)
    kept = job("kept", seconds=None)
    container = kept["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    await site.submit(kept)
    await site.phase("kept", "Running")
    [pod] = await site.pods(MEMBER)
    await site.host.delete(JOBS, "kept", site.namespace)

    async def released() -> bool:
        works = await site.host.list(WORKS, keys.execution_namespace(MEMBER))
        mine = [each for each in works if each["metadata"]["annotations"][keys.BINDING_NAMESPACE] == site.namespace]
        return not mine and not await site.host.list(BINDINGS, site.namespace)

    await until(released, what="the host has nothing of it any more")
    left = await site.find(JOBS, "kept", MEMBER)
    assert left is not None
    assert not {keys.BINDING_UID, keys.EPOCH} & left["metadata"]["annotations"].keys()
    assert keys.MANAGED not in left["metadata"].get("labels", {})
    config = await site.find(CONFIGMAPS, "settings", MEMBER)
    assert config is not None
    assert keys.MADE not in config["metadata"].get("labels", {})
    # Another one comes and goes beside it.
    await site.host.delete(POLICIES, "keep", site.namespace)
    await create(site, POLICIES, propagation("plain", placement=where))
    other = json.loads(json.dumps(kept))
    other["metadata"] = {"name": "other"}
    await site.submit(other)
    await site.phase("other", "Running")
    await site.host.delete(JOBS, "other", site.namespace)
    await until(released, what="the other one is gone")

    async def alone() -> bool:
        return [each["metadata"]["uid"] for each in await site.pods(MEMBER)] == [pod["metadata"]["uid"]]

    await until(alone, what="its pod runs on, and the other's is gone")
    assert await site.find(CONFIGMAPS, "settings", MEMBER)
    await site.members[MEMBER].delete(JOBS, "kept", site.namespace)


async def test_workloads_keep_to_the_members_of_their_group_or_away_from_them(site: Site) -> None:
    affinity = {"affinity": {"groupByLabelKey": "beside"}, "antiAffinity": {"groupByLabelKey": "apart"}}
    await create(site, POLICIES, propagation("groups", placement={"workloadAffinity": affinity}, association=True))

    async def submit(name: str, **labels: str) -> None:
        made = job(name, seconds=None)
        made["metadata"]["labels"] = labels
        await site.submit(made)

    where = []
    for number in range(len(site.members)):
        await submit(f"apart-{number}", apart="x", beside=f"group-{number}")
        where.append(await site.where(f"apart-{number}"))
    assert sorted(where) == sorted(site.members)
    await submit("beside", beside="group-0")
    assert await site.where("beside") == where[0]
    await submit("too-many", apart="x")
    said = await site.reason("too-many", "NoClusterMatches")
    assert "of its group apart=x runs there" in said["blocker"]["message"]
    binding = await site.host.get(BINDINGS, "apart-0-job", site.namespace)
    assert binding["spec"]["workloadAffinityGroups"] == {
        "affinityGroup": "beside=group-0",
        "antiAffinityGroup": "apart=x",
    }
    assert binding["spec"]["propagateDeps"] is True
    await site.host.delete(JOBS, "apart-1", site.namespace)
    assert await site.where("too-many") == where[1]
