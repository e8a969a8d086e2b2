"""Kinds of other projects on real API servers: applied, dispatched, run, finished, failed, scaled, deleted.

The tests play the operators in the members: they make the pods and write recorded statuses.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import pytest_asyncio

from atoll.kinds import entire
from atoll.kinds.templated import Templated, value_at
from atoll.kinds.train_job import CLUSTER_TRAINING_RUNTIMES
from atoll.kube import errors
from atoll.model.apiresource import (
    BINDINGS,
    CRDS,
    DEPLOYMENTS,
    EVENTS,
    PODS,
    POLICIES,
    REPLICA_SETS,
    ApiResource,
)
from tests.integration.federation import Json, Site, until
from tests.integration.foreign_crds import bring, make_pods, say
from tests.integration.kind_samples import BY_TITLE, OF_OTHERS, RUNTIME, SAMPLES, pod, workload

pytestmark = pytest.mark.integration
MEMBERS = ("alpha", "beta")
WITHOUT = {"JobSet", "PyTorchJob", "RayCluster", "Deployment", "StatefulSet", "JobArray"}
"""Kinds that test_templated_kinds.py shows."""


@pytest_asyncio.fixture(loop_scope="session")
async def with_all(site: Site) -> Site:
    """The host, as two members, has the CRDs of all kinds, and it has a training runtime."""
    await bring([site.host], OF_OTHERS)
    with contextlib.suppress(errors.AlreadyExists):
        await site.host.create(CLUSTER_TRAINING_RUNTIMES, RUNTIME)
    return site


async def submitted(site: Site, obj: Json) -> None:
    """Apply it; admission learns of a CRD some time after it is there."""

    async def taken() -> bool:
        try:
            await site.submit(obj)
        except errors.Forbidden as error:
            if "try again" not in str(error) and "create it first" not in str(error):
                raise
            return False
        return True

    await until(taken, what="it is taken")


async def there(site: Site, kind: Templated, name: str) -> tuple[str, Json]:
    """The member that has it, and what it has."""

    async def look() -> tuple[str, Json] | None:
        for member in MEMBERS:
            if (found := await site.find(kind.resource, name, member)) is not None:
                return member, found
        return None

    return await until(look, what=f"{kind.words.title} {name} is in a member")


async def play(site: Site, kind: Templated, name: str, pods: dict[str, int]) -> tuple[str, Json]:
    """Make its pods in the member that got it, as its operator does, and wait until they have nodes."""
    member, obj = await there(site, kind, name)
    if kind.switch:
        assert value_at(obj, kind.switch) is False
    whole = entire(kind, obj)
    components = kind.components(whole)
    assert {each.name: each.pods for each in components} == pods
    for each in components:
        template = value_at(whole, each.template)
        if each.pod is not None:
            container = {"image": "spark", **each.pod["containers"][0]}
            spec = {"schedulerName": template["schedulerName"], "containers": [container]}
            template = {"metadata": {"annotations": value_at(whole, each.annotations)}, "spec": spec}
        await make_pods(site.members[member], kind.resource, obj, each.name.lower(), each.pods, template)

    async def bound() -> bool:
        mine = [pod for pod in await site.pods(member) if pod["metadata"]["name"].startswith(f"{name}-")]
        return len(mine) == sum(pods.values()) and all(pod["spec"].get("nodeName") for pod in mine)

    await until(bound, what="all of its pods have nodes")
    return member, obj


async def finished(site: Site, kind: Templated, name: str) -> str:
    """Reason of the end that its binding tells."""
    binding = await site.find(BINDINGS, f"{name}-{kind.resource.kind.lower()}")
    conditions = ((binding or {}).get("status") or {}).get("conditions") or ()
    found = [each["reason"] for each in conditions if (each["type"], each["status"]) == ("Finished", "True")]
    return found[0] if found else ""


async def shows(site: Site, kind: Templated, name: str, field: str) -> None:
    """Wait until the host's status has what the member says."""

    async def look() -> bool:
        found = await site.find(kind.resource, name)
        return field in ((found or {}).get("status") or {})

    await until(look, what=f"the host shows {field}")


async def deleted(site: Site, kind: Templated, name: str, member: str) -> None:
    """Delete it on the host, and wait until nothing of it is left in the member."""
    await site.host.delete(kind.resource, name, site.namespace)

    async def gone() -> bool:
        if await site.find(kind.resource, name, member) is not None:
            return False
        left = [pod for pod in await site.pods(member) if pod["metadata"]["name"].startswith(f"{name}-")]
        companions = [each for each in await beside(site, kind, member) if each["metadata"]["name"] == name]
        return not left and not companions

    await until(gone, what="nothing of it is left in the member")


async def beside(site: Site, kind: Templated, member: str) -> list[Json]:
    """What the member got beside workloads of this kind."""
    brings = kind.referred.brings if kind.referred is not None else ()
    return [each for resource in brings for each in await site.members[member].list(resource, site.namespace)]


def test_every_kind_of_pod_templates_is_shown_on_real_api_servers() -> None:
    assert SAMPLES.keys() | WITHOUT == BY_TITLE.keys()


@pytest.mark.parametrize("title", [title for title, each in SAMPLES.items() if each.succeeded])
async def test_a_job_of_each_kind_is_run_in_a_member_and_finishes_or_fails(with_all: Site, title: str) -> None:
    site, kind, sample = with_all, BY_TITLE[title], SAMPLES[title]
    for name in ("good", "bad"):
        await submitted(site, workload(title, name))
        on_host = await site.find(kind.resource, name)
        assert on_host is not None
        assert value_at(on_host, kind.switch) is True
    played = await asyncio.gather(*(play(site, kind, name, sample.pods) for name in ("good", "bad")))
    for (member, obj), name in zip(played, ("good", "bad"), strict=True):
        await say(site.members[member], kind.resource, obj, sample.running)
        await shows(site, kind, name, sample.shown)
    for (member, obj), end in zip(played, (sample.succeeded, sample.failed), strict=True):
        assert end is not None
        await say(site.members[member], kind.resource, obj, end)
    for name, how in (("good", "Succeeded"), ("bad", "Failed")):

        async def ended(name: str = name, how: str = how) -> bool:
            return await finished(site, kind, name) == how

        await until(ended, what=f"{name} is finished: {how}")
    await asyncio.gather(
        *(deleted(site, kind, name, member) for (member, _), name in zip(played, ("good", "bad"), strict=True))
    )


@pytest.mark.parametrize("title", [title for title, each in SAMPLES.items() if not each.succeeded])
async def test_a_service_of_each_kind_is_run_in_a_member_scaled_and_deleted(with_all: Site, title: str) -> None:
    site, kind, sample = with_all, BY_TITLE[title], SAMPLES[title]
    await submitted(site, workload(title, "one"))
    member, obj = await play(site, kind, "one", sample.pods)
    await say(site.members[member], kind.resource, obj, sample.running)
    await shows(site, kind, "one", sample.shown)
    await site.host.merge_patch(kind.resource, "one", {"spec": sample.scaled}, site.namespace)

    async def grown() -> bool:
        binding = await site.find(BINDINGS, f"one-{kind.resource.kind.lower()}")
        found = await site.find(kind.resource, "one", member)
        assert binding is not None
        assert found is not None
        charged = sum(each["replicas"] for each in binding["spec"]["clusters"][0].get("components") or ())
        return bool(charged == sample.grown == sum(each.pods for each in kind.components(found)))

    await until(grown, what="its member has it scaled, and its queue is charged for that")
    assert not await finished(site, kind, "one")
    await deleted(site, kind, "one", member)


async def test_a_train_job_whose_runtime_is_not_there_is_refused_and_its_member_gets_the_runtime(
    with_all: Site,
) -> None:
    site, kind = with_all, BY_TITLE["TrainJob"]
    await submitted(site, workload("TrainJob", "first"))
    obj = workload("TrainJob", "lost")
    obj["spec"] = {**obj["spec"], "runtimeRef": {"name": "nowhere", "kind": "TrainingRuntime"}}
    with pytest.raises(errors.Forbidden, match=r"has no TrainingRuntime nowhere, which says what its pods are"):
        await site.submit(obj)
    member, sent = await there(site, kind, "first")
    assert sent["spec"]["runtimeRef"]["kind"] == "TrainingRuntime"
    [runtime] = await beside(site, kind, member)
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert [(each["name"], each["template"]["spec"]["parallelism"]) for each in jobs] == [("node", 2)]
    assert await site.members[member].list(CLUSTER_TRAINING_RUNTIMES) == []


async def told(site: Site, name: str, reason: str) -> str:
    """Wait for an Event on a workload; its text."""

    async def look() -> str:
        events = await site.host.list(EVENTS, site.namespace)
        found = [each for each in events if (each["regarding"]["name"], each["reason"]) == (name, reason)]
        return str(found[0]["note"]) if found else ""

    return await until(look, what=f"Event {reason} on {name}")


async def written_by(site: Site, resource: ApiResource, name: str, who: str, status: Json) -> None:
    """Write a status on the host as another controller does."""
    operations = [{"op": "add", "path": "/status", "value": status}]
    await site.host.json_patch(resource, name, operations, site.namespace, subresource="status", field_manager=who)


async def test_a_controller_that_runs_workloads_on_the_host_as_well_is_told_of(with_all: Site) -> None:
    site, kind = with_all, BY_TITLE["TFJob"]
    await submitted(site, workload("TFJob", "twice"))
    await there(site, kind, "twice")
    await written_by(site, kind.resource, "twice", "training-operator", SAMPLES["TFJob"].running)
    assert "training-operator writes the status of this TFJob on the host" in await told(site, "twice", "RunByAnother")


async def test_no_member_gets_a_service_that_a_controller_of_the_host_runs_already(site: Site) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, **pod()}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    about = {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind, "metadata": {"name": "web"}}
    selector = {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind, "name": "web"}
    policy = {"resourceSelectors": [selector], "dependentOverrides": ["later"]}
    head = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    await site.host.create(POLICIES, {**head, "metadata": {"name": "web", "namespace": site.namespace}, "spec": policy})
    await site.submit({**about, "spec": spec})
    await told(site, "web", "DependentOverridesMissing")
    await written_by(site, DEPLOYMENTS, "web", "kube-controller-manager", {"observedGeneration": 1, "replicas": 1})
    assert "no member gets it" in await told(site, "web", "RunByAnother")
    await site.host.delete(POLICIES, "web", site.namespace)
    await site.submit({**about, "metadata": {"name": "other"}, "spec": {**spec, "selector": {"matchLabels": labels}}})

    async def bound() -> bool:
        return await site.find(BINDINGS, "other-deployment") is not None

    await until(bound, what="another one has its binding")
    assert await site.find(BINDINGS, "web-deployment") is None


async def test_what_nobody_serves_is_told_so(with_all: Site) -> None:
    site = with_all
    old = ApiResource("kubeflow.org", "v1", "paddlejobs", "PaddleJob")
    await bring([site.host], [old])
    made: list[tuple[ApiResource, Json]] = [
        (old, {"paddleReplicaSpecs": {}}),
        (
            REPLICA_SETS,
            {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, **pod()}},
        ),
        # One that names its node is placed already.
        (PODS, {**pod()["spec"], "nodeName": "n"}),
    ]
    for resource, spec in made:
        about = {"apiVersion": resource.api_version, "kind": resource.kind}
        await site.host.create(
            resource, {**about, "metadata": {"name": resource.plural, "namespace": site.namespace}, "spec": spec}
        )
    for resource, _ in made:
        assert f"Atoll does not run {resource.kind}" in await told(site, resource.plural, "NotServed")


async def test_a_kind_in_a_version_that_atoll_does_not_run_is_told_so(site: Site) -> None:
    other = ApiResource("ray.io", "v1alpha1", "rayclusters", "RayCluster")
    served = [each["metadata"]["name"] for each in await site.host.list(CRDS)]
    if "rayclusters.ray.io" in served:
        await site.host.delete(CRDS, "rayclusters.ray.io")

        async def gone() -> bool:
            return "rayclusters.ray.io" not in [each["metadata"]["name"] for each in await site.host.list(CRDS)]

        await until(gone, what="the CRD is gone")
    await bring([site.host], [other])
    try:
        about = {"apiVersion": other.api_version, "kind": other.kind}
        metadata = {"name": "old", "namespace": site.namespace}
        await site.host.create(other, {**about, "metadata": metadata, "spec": {}})
        assert "have the CRD serve that version" in await told(site, "old", "NotServed")
    finally:
        await site.host.delete(CRDS, "rayclusters.ray.io")
