"""Members whose own admission and controllers change what was delivered to them."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import AsyncIterator
from functools import partial

import orjson
import pytest

from atoll.kube import errors
from atoll.model import keys, placer
from atoll.model.apiresource import BATCH_JOBS, BINDINGS, DEPLOYMENTS, JOBS, NAMESPACES, POLICIES, WORKS, ApiResource
from tests.integration.federation import Json, Site, accepting, batch_job, job, until
from tests.integration.member_policies import policy_on_jobs

pytestmark = pytest.mark.integration

MEMBER = "alpha"
MUTATING_POLICIES = ApiResource(
    "admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", namespaced=False
)
MUTATING_BINDINGS = ApiResource(
    "admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", False
)
OWN = {"key": "own", "operator": "Exists"}
TOLERATION = {"key": "team", "operator": "Exists"}


def tolerating(obj: Json) -> Json:
    """The Job with a toleration of its own."""
    obj["spec"]["template"]["spec"]["tolerations"] = [OWN]
    return obj


async def only(site: Site, member: str = MEMBER) -> None:
    """Send what this test submits to that member."""
    spec = {
        "resourceSelectors": [{"apiVersion": each.api_version, "kind": each.kind} for each in (JOBS, BATCH_JOBS)],
        "placement": {"clusterAffinity": {"clusterNames": [member]}},
    }
    metadata = {"name": "only", "namespace": site.namespace}
    about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    await site.host.create(POLICIES, {**about, "metadata": metadata, "spec": spec})


@pytest.fixture
async def adds_a_toleration(site: Site) -> AsyncIterator[None]:
    """The member adds a toleration to the template of every batch Job of the test that is created there."""
    api, name = site.members[MEMBER], f"add-{site.namespace}"
    toleration = 'Object.spec.template.spec.tolerations{key: "team", operator: "Exists"}'
    expression = f'[JSONPatch{{op: "add", path: "/spec/template/spec/tolerations/-", value: {toleration}}}]'
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": site.namespace}},
            "resourceRules": [rule],
        },
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    for resource, wanted in ((MUTATING_POLICIES, spec), (MUTATING_BINDINGS, {"policyName": name})):
        about = {"apiVersion": resource.api_version, "kind": resource.kind}
        await api.create(resource, {**about, "metadata": {"name": name}, "spec": wanted})

    async def works() -> bool:
        probe = tolerating(batch_job("probe"))
        probe["metadata"]["namespace"] = site.namespace
        probe["spec"]["suspend"] = True
        try:
            made = await api.create(BATCH_JOBS, probe)
        except errors.NotFound:
            await api.create(NAMESPACES, accepting(site.namespace))
            return False
        await api.delete(BATCH_JOBS, "probe", site.namespace, propagation="Background")
        return bool(TOLERATION in made["spec"]["template"]["spec"]["tolerations"])

    await until(works, what="the policy changes what is created")
    yield
    for resource in (MUTATING_BINDINGS, MUTATING_POLICIES):
        await api.delete(resource, name)


@pytest.mark.usefixtures("adds_a_toleration")
async def test_a_job_whose_template_the_member_changes_is_delivered_once_and_ends_once(site: Site) -> None:
    await only(site)
    await site.submit(tolerating(batch_job("touched", parallelism=2, seconds=1.0)))

    async def ended() -> Json | None:
        found = await site.find(BATCH_JOBS, "touched")
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return found if any(c["type"] == "Complete" and c["status"] == "True" for c in conditions) else None

    done = await until(ended, what="the Job is complete on the host")
    assert done["status"]["succeeded"] == 2
    there = await site.find(BATCH_JOBS, "touched", MEMBER)
    assert there is not None
    assert there["spec"]["template"]["spec"]["tolerations"] == [OWN, dict(placer.TOLERATION), TOLERATION]
    writes = [
        event["verb"]
        for event in site.audit(MEMBER)
        if event["objectRef"]["resource"] == "jobs"
        and event["objectRef"].get("name") == "touched"
        and "agent" in event["user"]["username"]
        and event["verb"] in ("create", "patch", "update")
    ]
    assert "patch" not in writes
    binding = await site.find(BINDINGS, "touched-job")
    assert binding is not None
    assert binding["metadata"]["annotations"][keys.EPOCH] == "1"


async def test_what_a_controller_of_the_member_changes_is_left_alone(site: Site) -> None:
    """A queue system of the member suspends a Job, as Kueue does: delivery does not start it again."""
    await only(site)
    await site.submit(batch_job("paused", parallelism=1, seconds=None))
    api = site.members[MEMBER]

    async def runs() -> Json | None:
        found = await site.find(BATCH_JOBS, "paused", MEMBER)
        return found if found and (found.get("status") or {}).get("ready") else None

    await until(runs, what="the Job runs in the member")
    await api.merge_patch(BATCH_JOBS, "paused", {"spec": {"suspend": True}}, site.namespace)

    async def told() -> bool:
        works = await site.host.list(WORKS, keys.execution_namespace(MEMBER))
        mine = [each for each in works if each["metadata"]["name"].startswith("paused-")]
        items = [item["status"] for each in mine for item in (each.get("status") or {}).get("manifestStatuses") or ()]
        return any(
            c["type"] == "Suspended" and c["status"] == "True" for item in items for c in item.get("conditions") or ()
        )

    await until(told, what="the Work says that it is suspended there")
    there = await site.find(BATCH_JOBS, "paused", MEMBER)
    assert there is not None
    assert there["spec"]["suspend"] is True


async def test_names_of_the_hosts_queues_do_not_reach_a_member(site: Site) -> None:
    await only(site)
    queue = await site.queue()
    labels = {keys.KUEUE_QUEUE_LABEL: queue, keys.QUEUE_LABEL: queue, "team": "a"}
    labelled = batch_job("labelled", seconds=None, metadata={"labels": labels})
    labelled["spec"]["template"]["metadata"]["labels"] = {keys.KUEUE_QUEUE_LABEL: queue, "team": "a"}
    await site.submit(labelled)

    async def delivered() -> Json | None:
        return await site.find(BATCH_JOBS, "labelled", MEMBER)

    there = await until(delivered, what="the Job is in the member")
    for found in (there["metadata"]["labels"], there["spec"]["template"]["metadata"]["labels"]):
        assert found["team"] == "a"
        assert not {keys.KUEUE_QUEUE_LABEL, keys.QUEUE_LABEL} & found.keys()
    binding = await site.find(BINDINGS, "labelled-job")
    assert binding is not None
    assert queue in binding["metadata"]["annotations"][keys.GANG]


async def test_what_changes_on_the_host_is_brought_to_an_object_that_the_member_changed(site: Site) -> None:
    """1. It runs. 2. The member labels it and its pods' template. 3. Its user makes it larger. 4. Both stand."""
    await only(site)
    await site.submit(job("grows", replicas=1, seconds=None, minAvailable=1))
    await site.phase("grows", "Running")
    api = site.members[MEMBER]
    there = await site.find(JOBS, "grows", MEMBER)
    assert there is not None
    tasks = there["spec"]["tasks"]
    tasks[0]["template"]["metadata"].setdefault("labels", {})["of-the-member"] = "yes"
    await api.merge_patch(
        JOBS, "grows", {"metadata": {"labels": {"of-the-member": "yes"}}, "spec": {"tasks": tasks}}, site.namespace
    )
    on_host = await site.find(JOBS, "grows")
    assert on_host is not None
    wider = on_host["spec"]["tasks"]
    wider[0]["replicas"] = 2
    await site.host.merge_patch(JOBS, "grows", {"spec": {"tasks": wider}}, site.namespace)

    async def grown() -> Json | None:
        found = await site.find(JOBS, "grows", MEMBER)
        return found if found and found["spec"]["tasks"][0]["replicas"] == 2 else None

    found = await until(grown, what="the Job is larger in the member")
    assert found["metadata"]["labels"]["of-the-member"] == "yes"
    assert found["spec"]["tasks"][0]["template"]["metadata"]["labels"]["of-the-member"] == "yes"


@pytest.fixture
async def no_growth(site: Site) -> AsyncIterator[None]:
    """The member lets no Volcano Job of the test have more than one pod of a task."""
    few = "object.spec.tasks.all(t, t.replicas < 2)"
    api, words = site.members[MEMBER], "one pod is enough"
    async with policy_on_jobs(api, site.namespace, operation="UPDATE", expression=few, message=words):
        yield


@pytest.mark.usefixtures("no_growth")
async def test_a_change_that_the_member_refuses_is_told_and_its_status_is_reported_all_the_same(site: Site) -> None:
    await only(site)
    await site.submit(job("stays", replicas=1, seconds=None, minAvailable=1))
    await site.phase("stays", "Running")
    api = site.members[MEMBER]

    async def denies() -> bool:
        there = await site.find(JOBS, "stays", MEMBER)
        assert there is not None
        tasks = [{**there["spec"]["tasks"][0], "replicas": 5}]
        try:
            await api.request(
                "PATCH",
                JOBS.path(site.namespace, "stays"),
                body=orjson.dumps({"spec": {"tasks": tasks}}),
                params={"dryRun": "All"},
                content_type="application/merge-patch+json",
            )
        except errors.ApiError as error:
            return "one pod is enough" in error.message
        return False

    await until(denies, what="the member refuses it")
    on_host = await site.find(JOBS, "stays")
    assert on_host is not None
    wider = on_host["spec"]["tasks"]
    wider[0]["replicas"] = 2
    await site.host.merge_patch(JOBS, "stays", {"spec": {"tasks": wider}}, site.namespace)

    async def told() -> bool:
        binding = await site.find(BINDINGS, "stays-job")
        conditions = ((binding or {}).get("status") or {}).get("conditions") or ()
        return any(
            c["type"] == "FullyApplied" and c["status"] == "False" and "one pod is enough" in c["message"]
            for c in conditions
        )

    await until(told, what="the binding says what was refused")
    running = await site.find(JOBS, "stays", MEMBER)
    assert running is not None
    completed = {"status": {"state": {**running["status"]["state"], "message": "still heard"}}}
    await api.merge_patch(JOBS, "stays", completed, site.namespace, subresource="status")

    async def heard() -> bool:
        found = await site.find(JOBS, "stays")
        return bool(((found or {}).get("status") or {}).get("state", {}).get("message") == "still heard")

    await until(heard, what="the host hears of the member's status")
    patches = [
        event
        for event in site.audit(MEMBER)
        if event["verb"] == "patch"
        and event["objectRef"].get("name") == "stays"
        and event["objectRef"].get("subresource") is None
        and event.get("responseStatus", {}).get("code") == 422
        and "agent" in event["user"]["username"]
    ]
    assert 1 <= len(patches) <= 5


def _incompressible(length: int) -> str:
    return base64.b64encode(random.Random(7).randbytes(length * 3 // 4)).decode()


async def test_workloads_with_a_mebibyte_of_incompressible_content_are_delivered_and_followed(site: Site) -> None:
    """1. A batch Job has 1 MiB in its arguments, a Volcano Job 140 kB in an annotation. 2. Both run in a member, and
    no annotation there is too long. 3. A Deployment runs, and grows by 300 kB of variables. 4. The member has them.
    """
    text = _incompressible(1 << 20)
    batch = batch_job("big")
    batch["spec"]["template"]["spec"]["containers"][0]["args"] = [
        text[i : i + 60_000] for i in range(0, 1 << 20, 60_000)
    ]
    noted = job("noted", seconds=None)
    noted["metadata"]["annotations"] = {"data": text[:140_000]}
    web: Json = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]},
            },
        },
    }
    for each in (batch, noted, web):
        await site.submit(each)

    async def there(resource: ApiResource, name: str) -> Json | None:
        found = [await site.find(resource, name, member) for member in site.members]
        return next((each for each in found if each is not None), None)

    for resource, name in ((BATCH_JOBS, "big"), (JOBS, "noted"), (DEPLOYMENTS, "web")):
        obj = await until(partial(there, resource, name), what=f"{name} is in a member")
        assert len(obj["metadata"]["annotations"][keys.DELIVERED]) < 4_000
    env = [{"name": f"V{number}", "value": text[number * 30_000 :][:30_000]} for number in range(10)]
    containers = [{**web["spec"]["template"]["spec"]["containers"][0], "env": env}]
    await site.host.merge_patch(
        DEPLOYMENTS, "web", {"spec": {"template": {"spec": {"containers": containers}}}}, site.namespace
    )

    async def grown() -> bool:
        found = await there(DEPLOYMENTS, "web")
        return found is not None and found["spec"]["template"]["spec"]["containers"][0].get("env") == env

    await until(grown, what="the Deployment in the member has the variables")


async def test_names_that_a_member_could_not_record_are_refused(site: Site) -> None:
    text = _incompressible(1 << 20)
    batch = batch_job("named")
    env = [{"name": f"V{text[n * 32 : n * 32 + 32]}", "value": ""} for n in range(12_000)]
    batch["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {**each, "name": re.sub("[^A-Za-z0-9_]", "_", each["name"])} for each in env
    ]
    with pytest.raises(errors.ApiError, match="make names fewer and shorter"):
        await site.submit(batch)
