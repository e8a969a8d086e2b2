"""Node scoring and records by use, where a real metrics-server asks real kubelets. It is built from the module that
`tests/members/metrics-server/go.mod` pins.
"""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
import pytest_asyncio

from atoll.agent.scheduler import measured
from atoll.kube import errors
from atoll.local import audit
from atoll.local.atoll_federation import AtollFederation
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec
from atoll.model import keys
from atoll.model.apiresource import NODE_METRICS
from tests.e2e.jobs import PATIENCE, job, shell, task
from tests.integration.command_line import atollctl
from tests.integration.federation import Json, Site, until
from tests.members.manifests import apply
from tests.members.modules import TIMEOUT_S, documents, outside, programs, sources, tool

pytestmark = pytest.mark.timeout(TIMEOUT_S)

MEMBER = "east"
_PROJECT, _MODULE = "metrics-server", "sigs.k8s.io/metrics-server"
_TOOLS = (tool("metrics-server", f"{_MODULE}/cmd/metrics-server"),)


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def installed(real: AtollFederation) -> None:
    """It runs beside the member, and its API is served there."""
    federation = real
    paths = await asyncio.to_thread(programs, _PROJECT, _TOOLS, build=True)
    handle, keys_of = federation.members[MEMBER], federation.federation.keys
    authority, nodes = keys_of.authority, keys_of.nodes
    assert nodes is not None, "there are kubelets"
    [port] = free_ports(1)
    (service,), (api,) = (
        documents(sources(_PROJECT, _MODULE) / "manifests" / "base" / f"{name}.yaml")
        for name in ("service", "apiservice")
    )
    name = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    certificate, key = authority.issue(f"{MEMBER}-{_PROJECT}", also=[name])
    kubeconfigs = [f"--{use}kubeconfig={handle.kubeconfig}" for use in ("", "authentication-", "authorization-")]
    spec = ProcessSpec(
        name=f"{MEMBER}-{_PROJECT}",
        argv=[
            str(paths[_TOOLS[0].name]),
            *kubeconfigs,
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--kubelet-certificate-authority={nodes.path}",
            "--kubelet-preferred-address-types=InternalIP",
            "--kubelet-use-node-status-port",
            "--metric-resolution=15s",
        ],
        ready_url=f"https://127.0.0.1:{port}/livez",
        ready_ca=authority.path,
    )
    await federation.federation.start_processes([spec], deadline_s=PATIENCE)
    api["spec"]["service"]["port"] = port
    del api["spec"]["insecureSkipTLSVerify"]
    api["spec"]["caBundle"] = base64.b64encode(authority.path.read_bytes()).decode()
    await asyncio.to_thread(apply, handle, [outside(service), api])


async def test_pods_go_by_the_use_that_a_metrics_server_measures(site: Site) -> None:
    await site.only(MEMBER)
    member, names = site.members[MEMBER], {"east-real0", "east-real1"}

    async def known() -> list[Json] | None:
        try:
            found = await member.list(NODE_METRICS)
        except errors.ApiError:
            return None
        return found if {each["metadata"]["name"] for each in found} == names else None

    found = measured.read(await until(known, deadline=PATIENCE, what="both nodes are measured"))
    assert found.uses.keys() == names
    assert all(cpu > 0 and memory > 2**20 for cpu, memory in found.uses.values()), found
    top = site.kubectl("top", "nodes", cluster=MEMBER)
    assert all(name in top for name in names), top

    scored = job("scored", task("t", shell("true")))
    scored["metadata"]["annotations"] = {keys.NODE_SCORING: "usage"}
    await site.submit(scored)
    await site.phase("scored", "Completed", deadline=PATIENCE)

    async def asked() -> bool:
        log = site.federation.members[MEMBER].audit_log
        return any(
            event.object_ref.path == NODE_METRICS.plural
            and event.uri.startswith("/apis/metrics.k8s.io/")
            and event.user.username.startswith("system:serviceaccount:")
            and event.response_status.code == 200
            for event in audit.read(log)
        )

    await until(asked, deadline=PATIENCE, what="the agent has read the use of nodes")


_BURNS_S = 90
_BURN = f"end=$(($(date +%s) + {_BURNS_S})); while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 9999 ]; do i=$((i + 1)); done; done"


async def test_the_record_of_a_run_has_the_use_that_kubelets_measure(site: Site) -> None:
    await site.only(MEMBER)
    await site.submit(job("burns", task("t", shell(_BURN, cpu=200))))
    await site.phase("burns", "Completed", deadline=_BURNS_S + PATIENCE)

    async def reported() -> dict[str, Json] | None:
        lines = json.loads(await atollctl(site, "usage", "--since=1h", "--output=json"))
        found = {line["SkuId"]: line for line in lines if line["x_BusyQuantity"] is not None}
        return found if {"cpu", "memory"} <= found.keys() else None

    found = await until(reported, deadline=PATIENCE, what="the run has measured use")
    for resource, least, most in (("cpu", 0.02, 2.0), ("memory", 2**-14, 2**-4)):
        line = found[resource]
        assert 0 < line["x_MeasuredQuantity"] == pytest.approx(line["ConsumedQuantity"], rel=1e-3)
        requested = {"cpu": 0.2, "memory": 2**-6}[resource]
        mean = line["x_BusyQuantity"] / line["x_MeasuredQuantity"] * requested
        assert least < mean < most, (resource, mean)
    assert "unknown" not in await atollctl(site, "usage", "--since=1h", "--no-headers")
