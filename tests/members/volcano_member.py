"""Volcano in a member: its real controllers, scheduler and webhooks, from the module that volcano/go.mod pins.

All that its installation creates is created, Deployments included; the programs run beside the cluster, since kwok runs
no containers.
"""

from __future__ import annotations

import asyncio

from atoll.local.federation import Federation
from atoll.local.layout import Member
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec
from tests.members.manifests import apply
from tests.members.modules import Json, documents, outside, programs, sources, through, tool

PROJECT, MODULE = "volcano", "volcano.sh/volcano"
TOOLS = tuple(
    tool(f"volcano-{name}", f"{MODULE}/cmd/{name}") for name in ("controller-manager", "scheduler", "webhook-manager")
)
_SERVICE, _NAMESPACE = "volcano-admission-service", "volcano-system"
_ADMISSIONS = "/jobs/mutate,/jobs/validate,/podgroups/validate,/queues/mutate,/queues/validate,/hypernodes/validate,/cronjobs/validate"


def _manifest() -> list[Json]:
    return documents(sources(PROJECT, MODULE) / "installer" / "volcano-development.yaml")


def crds() -> list[Json]:
    """Its CRDs; Atoll's own ones are not there then."""
    return [each for each in _manifest() if each["kind"] == "CustomResourceDefinition"]


async def install(federation: Federation, member: Member) -> None:
    """Create what its installation creates, and start it; returns when its webhooks answer."""
    paths = await asyncio.to_thread(programs, PROJECT, TOOLS)
    handle = federation.members[member.name]
    port, *others = free_ports(6)
    objects = [each for each in _manifest() if each["kind"] != "CustomResourceDefinition" and not _is_hook(each)]
    for at, each in enumerate(objects):
        if each["kind"] == "Service" and each["metadata"]["name"] == _SERVICE:
            objects[at] = outside(each)
        elif each["kind"].endswith("WebhookConfiguration"):
            for webhook in each["webhooks"]:
                through(webhook["clientConfig"], port)
    await asyncio.to_thread(apply, handle, objects)

    directory = handle.kubeconfig.parent
    configuration = next(each["data"] for each in objects if each["metadata"]["name"] == "volcano-scheduler-configmap")
    (directory / "volcano-scheduler.conf").write_text(configuration["volcano-scheduler.conf"])
    (directory / "volcano-admission.conf").write_text("")
    certificate, key = federation.keys.authority.issue(
        f"{member.name}-volcano", also=[f"{_SERVICE}.{_NAMESPACE}.svc", f"{_SERVICE}.{_NAMESPACE}"]
    )
    usual = [f"--kubeconfig={handle.kubeconfig}", "--enable-healthz=true"]
    more = {
        "controller-manager": ["--leader-elect=false", f"--listen-address=127.0.0.1:{others[3]}"],
        "scheduler": [
            "--leader-elect=false",
            f"--listen-address=127.0.0.1:{others[4]}",
            f"--scheduler-conf={directory / 'volcano-scheduler.conf'}",
            "--cache-dumper=false",
            "--schedule-period=200ms",
        ],
        "webhook-manager": [
            "--listen-address=127.0.0.1",
            f"--port={port}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--ca-cert-file={federation.keys.authority.path}",
            f"--admission-conf={directory / 'volcano-admission.conf'}",
            f"--enabled-admission={_ADMISSIONS}",
            f"--webhook-namespace={_NAMESPACE}",
            f"--webhook-service-name={_SERVICE}",
        ],
    }
    await federation.start_processes(
        [
            ProcessSpec(
                name=f"{member.name}-volcano-{name}",
                argv=[
                    str(paths[f"volcano-{name}"]),
                    *usual,
                    f"--healthz-address=127.0.0.1:{health}",
                    *flags,
                ],
                env={"KUBE_POD_NAMESPACE": _NAMESPACE, "HELM_RELEASE_NAME": "volcano"},
                # Only the webhooks have a certificate, and then for their health as well.
                ready_url=f"{'https' if name == 'webhook-manager' else 'http'}://127.0.0.1:{health}/healthz",
                ready_ca=federation.keys.authority.path if name == "webhook-manager" else None,
            )
            for health, (name, flags) in zip(others, more.items(), strict=False)
        ]
    )


def _is_hook(obj: Json) -> bool:
    return bool(obj["kind"] == "Job" or obj["metadata"]["name"].startswith("volcano-admission-init"))
