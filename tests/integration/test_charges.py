"""What pods request in their member is charged on the host: overhead, defaults and resizes, on real API servers."""

from __future__ import annotations

import copy

import pytest

from atoll.model.apiresource import JOBS, NAMESPACES, PODS, QUEUES, ApiResource
from tests.integration.command_line import atollctl
from tests.integration.federation import Json, Site, accepting, batch_job, job, until

pytestmark = pytest.mark.integration

MEMBER = "topo"
RUNTIME_CLASSES = ApiResource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
LIMIT_RANGES = ApiResource("", "v1", "limitranges", "LimitRange", True)


async def heavy(site: Site) -> str:
    """A RuntimeClass of the member whose pods need half a CPU more; the host has none of that name."""
    name = f"heavy-{site.namespace}"
    spec = {"handler": "runc", "overhead": {"podFixed": {"cpu": "500m", "memory": "32Mi"}}}
    about = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}}
    await site.members[MEMBER].create(RUNTIME_CLASSES, {**about, **spec})
    return name


async def defaults(site: Site) -> None:
    """The namespace in the member gives containers a request that they lack."""
    api = site.members[MEMBER]
    await api.create(NAMESPACES, accepting(site.namespace))
    limits = [{"type": "Container", "defaultRequest": {"memory": "64Mi"}}]
    about = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "d", "namespace": site.namespace}}
    await api.create(LIMIT_RANGES, {**about, "spec": {"limits": limits}})


async def allocated(site: Site, queue: str, **amounts: str) -> Json:
    """Wait until the queue is charged that."""

    async def look() -> Json | None:
        found: Json = ((await site.find(QUEUES, queue)) or {}).get("status", {}).get("allocated") or {}
        return found if {name: found.get(name) for name in wanted} == wanted else None

    wanted = {name.replace("_", "-"): amount for name, amount in amounts.items()}
    return await until(look, what=f"queue {queue} is charged {wanted}")


def of_class(made: Json, name: str) -> Json:
    templates = [task["template"] for task in made["spec"].get("tasks") or ()] or [made["spec"]["template"]]
    for each in templates:
        each["spec"]["runtimeClassName"] = name
    return made


async def test_overhead_and_defaults_of_the_member_are_charged_and_explained(site: Site) -> None:
    await site.only(MEMBER)
    await defaults(site)
    name, queue = await heavy(site), await site.queue()
    made = job("light", replicas=2, seconds=None, queue=queue)
    made["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    await site.submit(of_class(made, name))
    await site.phase("light", "Running")
    await allocated(site, queue, cpu="1200m", memory="192Mi", pods="2")
    said = await atollctl(site, "explain", "light")
    each = "cpu 600m (asked 100m), memory 96Mi (asked 0)"
    assert f"charged   task worker, each pod as the member counts it: {each}" in said
    await site.members[MEMBER].delete(RUNTIME_CLASSES, name)


async def test_a_batch_job_is_charged_likewise(site: Site) -> None:
    await site.only(MEMBER)
    name, queue = await heavy(site), await site.queue()
    made = batch_job("light", parallelism=2, seconds=None)
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    await site.submit(of_class(made, name))
    await allocated(site, queue, cpu="1200m")
    await site.members[MEMBER].delete(RUNTIME_CLASSES, name)


async def test_a_pod_that_is_resized_in_place_is_charged_what_it_was_resized_to(site: Site) -> None:
    await site.only(MEMBER)
    queue = await site.queue()
    await site.submit(job("grows", seconds=None, queue=queue))
    await site.phase("grows", "Running")
    await allocated(site, queue, cpu="100m")
    api = site.members[MEMBER]
    [pod] = await site.pods(MEMBER)

    async def resize(cpu: str) -> None:
        resources = {"requests": {"cpu": cpu, "memory": "16Mi"}}
        patch = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        await api.merge_patch(
            PODS, pod["metadata"]["name"], patch, site.namespace, subresource="resize", strategic=True
        )

    # As real kubelets say it; without that an API server refuses a resize.
    statuses = [{**each, "resources": {"requests": {"cpu": "100m"}}} for each in pod["status"]["containerStatuses"]]
    said = {"status": {"containerStatuses": statuses}}
    await api.merge_patch(PODS, pod["metadata"]["name"], said, site.namespace, subresource="status")
    await resize("2")
    await allocated(site, queue, cpu="2")
    # It may ask for what it asked for at first again, at any time.
    await resize("50m")
    await allocated(site, queue, cpu="100m")


async def test_pods_that_ended_give_their_quota_back_and_are_not_made_again(site: Site) -> None:
    await site.only(MEMBER)
    queue = await site.queue(capability={"cpu": "400m"})
    made = job("mixed", seconds=None, queue=queue)
    [task] = made["spec"]["tasks"]
    short = copy.deepcopy({**task, "name": "short", "replicas": 3, "minAvailable": 3})
    short["template"]["metadata"]["annotations"]["atoll.sh/run-time"] = "1s"
    made["spec"] |= {"tasks": [task, short], "minAvailable": 4}
    await site.submit(made)
    await site.phase("mixed", "Running")
    await site.submit(job("next", replicas=2, seconds=None, queue=queue))
    # The rest of the gang runs on.
    await site.phase("next", "Running")
    await allocated(site, queue, cpu="300m")
    api = site.members[MEMBER]
    await api.delete(PODS, "mixed-short-1", site.namespace)

    async def counted() -> bool:
        status = (await api.get(JOBS, "mixed", site.namespace))["status"]
        return bool(status.get("done") == {"short": "0-2"} and status.get("succeeded") == 3)

    await until(counted, what="the Job remembers what has succeeded")
    names = {pod["metadata"]["name"] for pod in await site.pods(MEMBER)}
    assert "mixed-short-1" not in names
    await allocated(site, queue, cpu="300m")
