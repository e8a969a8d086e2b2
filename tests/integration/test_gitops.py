"""Files that are applied again with kubectl, client-side and server-side, once their workloads were dispatched."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from atoll.kinds import apps, job_set, kubeflow, ray
from atoll.kinds.train_job import CLUSTER_TRAINING_RUNTIMES
from atoll.kube import errors
from atoll.model.apiresource import BATCH_JOBS, BINDINGS, JOBS, ApiResource
from tests.integration.federation import Json, Site, batch_job, job, until
from tests.integration.foreign_crds import bring
from tests.integration.kind_samples import BY_TITLE, OF_OTHERS, RUNTIME, SAMPLES, pod, workload
from tests.integration.pod_templates import job_set_of, service, template

pytestmark = pytest.mark.integration
BROUGHT = [job_set.KIND.resource, kubeflow.KINDS[0].resource, ray.KINDS[1].resource]


def volcano() -> Json:
    """A Volcano Job whose tasks say little."""
    obj = job("unnamed", seconds=None, plugins={"mpi": []})
    [only] = obj["spec"]["tasks"]
    bare = {"template": only["template"]}
    obj["spec"]["tasks"] = [{**bare, "name": "master"}, {**bare, "name": "worker"}, bare]
    return obj


def files() -> list[tuple[ApiResource, Json]]:
    """One workload of each kind."""
    roles = {"Master": {"replicas": 1, "template": template()}, "Worker": {"replicas": 1, "template": template()}}
    groups = [{"groupName": "small", "replicas": 1, "template": template()}]
    pytorch, cluster = BROUGHT[1:]
    found = [
        (JOBS, volcano()),
        (BATCH_JOBS, batch_job("plain", seconds=None)),
        (apps.DEPLOYMENT.resource, service(apps.DEPLOYMENT.resource, "web", 1)),
        (apps.STATEFUL_SET.resource, service(apps.STATEFUL_SET.resource, "db", 1)),
        (BROUGHT[0], job_set_of("set", seconds=60)),
        (pytorch, {"metadata": {"name": "torch"}, "spec": {"pytorchReplicaSpecs": roles}}),
        (cluster, {"metadata": {"name": "ray"}, "spec": {"headGroupSpec": {"template": pod()}, "workerGroupSpecs": groups}}),
        *((BY_TITLE[title].resource, workload(title, f"w-{title.lower()}")) for title in SAMPLES),
    ]  # fmt: skip
    return [(each, _bare({"apiVersion": each.api_version, "kind": each.kind, **obj})) for each, obj in found]


def _bare(value: Any) -> Any:
    """Without empty maps in maps, which API servers drop: a file that has some differs from its object anywhere."""
    if isinstance(value, list):
        return [_bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _bare(each) for name, each in value.items() if each != {}}


@pytest.mark.parametrize("flags", [(), ("--server-side", "--field-manager=kubectl")], ids=["client", "server"])
async def test_a_file_that_is_applied_again_after_the_dispatch_changes_nothing(
    site: Site, flags: tuple[str, ...]
) -> None:
    await bring([site.host], OF_OTHERS)
    with contextlib.suppress(errors.AlreadyExists):
        await site.host.create(CLUSTER_TRAINING_RUNTIMES, RUNTIME)
    wanted = files()
    # In one file: each call of kubectl takes half a second of a processor.
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [obj for _, obj in wanted]})
    apply = ("apply", *flags, "-n", site.namespace, "-f", "-")

    async def taken() -> bool:
        # Admission learns of a CRD some time after it is there.
        try:
            return bool(site.kubectl(*apply, stdin=text))
        except AssertionError as error:
            if "try again" not in str(error) and "create it first" not in str(error):
                raise
            return False

    await until(taken, deadline=120, what="all are taken")

    async def all_dispatched() -> bool:
        found = await site.host.list(BINDINGS, site.namespace)
        said = [each.get("status", {}).get("conditions") or () for each in found]
        going = [any((c["type"], c["status"]) == ("Scheduled", "True") for c in each) for each in said]
        return len(going) == len(wanted) and all(going)

    await until(all_dispatched, deadline=120, what="all were dispatched")
    before = {each: await site.find(each, obj["metadata"]["name"]) for each, obj in wanted}
    # Without --force-conflicts: no field of the file is another's.
    said = site.kubectl(*apply, stdin=text).splitlines()
    assert len(said) == len(wanted), said
    assert flags or all(line.endswith("unchanged") for line in said), said
    for each, obj in wanted:
        after = await site.find(each, obj["metadata"]["name"])
        old = before[each]
        assert old is not None
        assert after is not None
        assert after["spec"] == old["spec"], each.kind
        assert after["metadata"]["generation"] == old["metadata"]["generation"], each.kind
    assert site.kubectl("diff", *flags, "-n", site.namespace, "-f", "-", stdin=text) == ""
