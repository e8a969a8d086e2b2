"""Each document, word for word, in the order in which its text gives them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from atoll.model.apiresource import DEPLOYMENTS, EVENTS, PODS
from tests.documents.te_nodes import HERE, MEMBER, NAMES, knows, specs, te_nodes
from tests.integration.federation import Site, until

pytestmark = pytest.mark.integration

GROUPS = ({"te1", "te2", "te3", "te4"}, {"te5", "te6", "te7", "te8"})


@pytest_asyncio.fixture(loop_scope="session")
async def there(site: Site) -> AsyncIterator[Site]:
    async with te_nodes(site):
        yield site


def apply(site: Site, file: str, cluster: str = "host", ok: bool = True) -> str:
    where = ("-n", site.namespace) if cluster == "host" else ()
    return site.kubectl("apply", *where, "-f", str(HERE / file), cluster=cluster, ok=ok)


async def bound(site: Site, pods: int) -> list[str]:
    async def look() -> list[str] | None:
        found = [pod["spec"].get("nodeName") for pod in await site.pods(MEMBER)]
        return found if len(found) == pods and all(found) else None

    return await until(look, what=f"{pods} pods are bound")


def rack(node: str) -> int:
    return (int(node.removeprefix("te")) + 1) // 2


async def test_the_tree_of_the_text_is_used_by_the_jobs_of_the_text(there: Site) -> None:
    """Racks first, what is above them later, in two calls; the member stays known and takes jobs all the time."""
    apply(there, "003-racks.yaml", MEMBER)
    await until(lambda: knows(there, {"te1", "te2"}, "s0-s1-rack-1"), what="the first rack is known on the host")
    apply(there, "003-upper.yaml", MEMBER)
    await until(lambda: knows(there, NAMES, "s0"), what="the whole tree is known on the host")

    apply(there, "003-job.yaml")
    nodes = await bound(there, 10)
    assert any(set(nodes) <= group for group in GROUPS), "within one domain of tier 2"
    there.kubectl("delete", "-n", there.namespace, "-f", str(HERE / "003-job.yaml"))

    async def empty() -> bool:
        return not await there.members[MEMBER].list(PODS, there.namespace)

    await until(empty, what="its pods are gone")
    apply(there, "003-job-soft.yaml")
    nodes = await bound(there, 10)
    assert any(set(nodes) <= group for group in GROUPS), "its ceiling holds in soft mode too"
    assert len({rack(node) for node in nodes}) == 1, "100m each: one rack holds all of them"


@pytest.mark.parametrize("key", ["kubernetes.io/hostname", "zone"])
async def test_a_job_that_selects_by_a_label_that_differs_on_every_node_runs(there: Site, key: str) -> None:
    if key == "zone":
        for number in (1, 2, 3):
            there.kubectl("label", "node", f"te{number}", f"zone=te{number}", cluster=MEMBER)
    text = (HERE / "003-job.yaml").read_text().replace("mode: hard", "mode: soft")
    manifest = text.replace("      spec:\n", f"      spec:\n        nodeSelector: {{{key}: te3}}\n")
    assert "te3" in manifest
    there.kubectl("apply", "-n", there.namespace, "-f", "-", stdin=manifest)
    assert set(await bound(there, 10)) == {"te3"}


SECOND_PARENT = """
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: s9}
spec:
  tier: 2
  members:
  - type: HyperNode
    selector: {exactMatch: {name: s0-s1-rack-1}}
"""


async def test_a_wrong_hyper_node_is_named_and_the_rest_is_used(there: Site) -> None:
    for file in ("003-racks.yaml", "003-upper.yaml"):
        apply(there, file, MEMBER)
    await until(lambda: knows(there, NAMES, "s0"), what="the whole tree is known on the host")
    there.kubectl("apply", "-f", "-", stdin=SECOND_PARENT, cluster=MEMBER)

    async def named() -> bool:
        return any("s9" in str(each.get("problems")) for each in await specs(there))

    await until(named, what="the host knows what is wrong")
    there.kubectl("wait", "--for=condition=Valid=false", "--timeout=20s", "hypernode/s9", cluster=MEMBER)

    async def told() -> bool:
        return "both s0-s1 and s9" in there.kubectl("describe", "hypernode", "s9", cluster=MEMBER)

    await until(told, what="an Event says so")
    apply(there, "003-job.yaml")
    nodes = set(await bound(there, 10))
    assert any(nodes <= group for group in GROUPS), "the tree is used as before"

    there.kubectl("delete", "hypernode", "s9", cluster=MEMBER)
    there.kubectl("wait", "--for=condition=Valid", "--timeout=20s", "hypernode/s0-s1-rack-1", cluster=MEMBER)


async def test_hyper_nodes_on_the_host_are_refused_with_the_place_where_they_belong(site: Site) -> None:
    said = apply(site, "003-racks.yaml", ok=False)
    assert "belong in the member cluster whose nodes they name" in said


async def test_the_elastic_job_of_the_slide_is_refused_with_both_mistakes_and_the_right_spelling(site: Site) -> None:
    said = apply(site, "001-elastic.yaml", ok=False)
    assert "containers[0].name: is missing" in said
    assert "write limits: {nvidia.com/gpu: 1}" in said


MISSPELT = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: misspelt}
spec:
  minAvailible: 1
  tasks:
  - replicas: 1
    template:
      spec:
        nodeselector: {a: b}
        containers: [{name: c, image: busybox}]
"""


async def test_misspelt_fields_are_told_of_by_the_api_server_and_in_templates_by_the_webhook(site: Site) -> None:
    arguments = ("apply", "-n", site.namespace, "-f", "-", "--dry-run=server")
    assert 'unknown field "spec.minAvailible"' in site.kubectl(*arguments, stdin=MISSPELT, ok=False)
    told = site.warned(*arguments, "--validate=warn", stdin=MISSPELT)
    assert 'unknown field "spec.minAvailible"' in told
    assert "template.spec.nodeselector: is no field that Kubernetes" in told
    assert "did you mean nodeSelector?" in told


@pytest.mark.parametrize(
    ("file", "warned"),
    [
        pytest.param("volcano-mpi.yaml", [], id="a Volcano Job with plugins and policies"),
        pytest.param("batch-indexed.yaml", [], id="a batch Job with a Kueue label"),
        pytest.param("karmada-policy.yaml", [], id="a policy of Karmada's with weights"),
    ],
)
async def test_typical_manifests_are_taken_and_warned_of_what_has_no_effect(
    site: Site, file: str, warned: list[str]
) -> None:
    path = str(HERE / "typical" / file)
    told = site.warned("apply", "-n", site.namespace, "-f", path, "--dry-run=server")
    assert [line for line in told.splitlines() if "Warning" in line] == [
        line for line in told.splitlines() if any(text in line for text in warned)
    ]
    assert all(text in told for text in warned)


async def test_the_deployment_and_the_pod_of_no_owner_run_in_members(there: Site) -> None:
    """Priority classes, then the Deployment and the Pod of the same text; what is deleted on the host ends."""
    apply(there, "003-priority.yaml")
    apply(there, "003-deployment.yaml")
    apply(there, "003-stress.yaml")

    async def runs() -> bool:
        found = await there.find(PODS, "stress-pod-on-te3") or {}
        return (found.get("status") or {}).get("phase") == "Running"

    async def in_members() -> list[str]:
        """Nodes of the Pod's copies."""
        found = [await api.list(PODS, there.namespace) for api in there.members.values()]
        return [
            pod["spec"].get("nodeName", "") for pods in found for pod in pods if "stress" in pod["metadata"]["name"]
        ]

    async def gone() -> bool:
        return not await in_members()

    async def ready() -> bool:
        found = await there.host.list(DEPLOYMENTS, there.namespace)
        return [(each.get("status") or {}).get("readyReplicas") for each in found] == [3]

    try:
        await until(runs, what="the Pod runs in a member")
        assert await in_members() == ["te3"]
        events = await there.host.list(EVENTS, there.namespace)
        assert not [event for event in events if event["reason"] == "NotServed"]
        there.kubectl("delete", "-n", there.namespace, "--wait=false", "-f", str(HERE / "003-stress.yaml"))
        await until(gone, what="the Pod has ended in its member")
        await until(ready, what="the three pods of the Deployment run in a member")
    finally:
        for file in ("003-deployment.yaml", "003-priority.yaml"):
            there.kubectl("delete", "-n", there.namespace, "--wait=false", "-f", str(HERE / file))
