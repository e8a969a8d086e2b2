"""Plugins of Volcano Jobs on real API servers: what they make, what pods get, and that both follow and leave with the Job."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from atoll.kube import errors
from atoll.model.apiresource import CONFIGMAPS, JOBS, NETWORK_POLICIES, PODS, SECRETS, SERVICES
from tests.integration.federation import Json, Site, job, until

pytestmark = pytest.mark.integration


def trainer(name: str, workers: int, **spec: Any) -> Json:
    obj = job(name, replicas=1, seconds=None, plugins={"pytorch": [], "ssh": [], "env": []}, **spec)
    [master] = obj["spec"]["tasks"]
    obj["spec"]["tasks"] = [{**master, "name": "master"}, {**master, "name": "worker", "replicas": workers}]
    return obj


async def made(site: Site, name: str, member: str) -> dict[str, Json]:
    """Kind -> the object that plugins made for the job."""
    api, found = site.members[member], {}
    wanted = ((SERVICES, name), (CONFIGMAPS, f"{name}-svc"), (SECRETS, f"{name}-ssh"), (NETWORK_POLICIES, name))
    for resource, each in wanted:
        try:
            found[resource.kind] = await api.get(resource, each, site.namespace)
        except errors.NotFound:
            continue
    return found


async def test_a_job_s_pods_find_each_other_and_what_plugins_made_goes_with_it(site: Site) -> None:
    await site.submit(trainer("net", 2, minAvailable=2))
    await site.phase("net", "Running")
    member = await site.where("net")
    objects = await made(site, "net", member)
    assert objects.keys() == {"Service", "ConfigMap", "Secret", "NetworkPolicy"}
    assert objects["ConfigMap"]["data"]["VC_WORKER_HOSTS"] == "net-worker-0.net,net-worker-1.net"
    pods = {pod["metadata"]["name"]: pod["spec"] for pod in await site.members[member].list(PODS, site.namespace)}
    ranks = {}
    for name, spec in pods.items():
        env = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
        ranks[name] = (env["RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"], env["VC_TASK_INDEX"], spec["subdomain"])
    assert ranks == {
        "net-master-0": ("0", "3", "net-master-0.net", "0", "net"),
        "net-worker-0": ("1", "3", "net-master-0.net", "0", "net"),
        "net-worker-1": ("2", "3", "net-master-0.net", "1", "net"),
    }
    # What the pods mount follows the size of the Job.
    key = objects["Secret"]["data"]["id_rsa"]
    body = await site.host.get(JOBS, "net", site.namespace)
    tasks = [body["spec"]["tasks"][0], {**body["spec"]["tasks"][1], "replicas": 1, "minAvailable": 1}]
    await site.host.merge_patch(JOBS, "net", {"spec": {"tasks": tasks}}, site.namespace)

    async def followed() -> bool:
        return bool((await made(site, "net", member))["ConfigMap"]["data"]["VC_WORKER_NUM"] == "1")

    await until(followed, what="the hosts of the smaller job")
    assert (await made(site, "net", member))["Secret"]["data"]["id_rsa"] == key
    await site.host.delete(JOBS, "net", site.namespace)

    async def gone() -> bool:
        return not await made(site, "net", member)

    await until(gone, what="nothing of the plugins is left")


def everything(site: Site, cluster: str) -> str:
    """All objects of a cluster that are kept, as JSON."""
    kept = site.kubectl("api-resources", "--verbs=list,watch", "-o", "name", cluster=cluster).split()
    return site.kubectl("get", ",".join(kept), "--all-namespaces", "-o", "json", cluster=cluster)


async def test_a_key_of_ssh_is_in_its_member_alone_and_in_no_log(site: Site) -> None:
    await site.submit(trainer("locked", 1))
    await site.phase("locked", "Running")
    member = await site.where("locked")
    encoded = (await made(site, "locked", member))["Secret"]["data"]["id_rsa"]
    # One line of it, as a program would print it, and what an API server is given.
    secrets = (base64.b64decode(encoded).decode().splitlines()[3], encoded[100:160])
    there, on_host = await asyncio.gather(*(asyncio.to_thread(everything, site, each) for each in (member, "host")))
    assert secrets[1] in there
    assert f'"{site.namespace}"' in on_host
    assert [each for each in secrets if each in on_host] == []
    # How it goes is told as well.
    await site.host.delete(JOBS, "locked", site.namespace)

    async def gone() -> bool:
        return not await made(site, "locked", member)

    await until(gone, what="nothing of the plugins is left")
    logs = {each.name: each.read_text(errors="replace") for each in site.federation.federation.directory.rglob("*.log")}
    assert logs.keys() >= {f"atoll-agent-{member}.log", "atoll-control.log", site.federation.host.audit_log.name}
    assert [name for name, text in logs.items() if any(each in text for each in secrets)] == []


async def test_wrong_arguments_are_refused_at_once(site: Site) -> None:
    obj = trainer("wrong", 1)
    obj["spec"]["plugins"] = {"pytorch": ["--prot=1"], "horovod": []}
    with pytest.raises(errors.ApiError) as refused:
        await site.submit(obj)
    assert "did you mean --port" in refused.value.message
    assert "spec.plugins.horovod: is not a known plugin" in refused.value.message
