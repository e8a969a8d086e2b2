"""Other systems that act on workloads in a cluster: Volcano, Kueue and Karmada, recognised while they run.

A leftover is no system: a Deployment without replicas, a CRD that nothing converts. Webhooks are recognised by their
names and their rules, as releases and their configurations have any name; policy engines, which may review the
same kinds, are distinguished by the names of their webhooks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from atoll.install.crds import is_foreign
from atoll.kube import errors
from atoll.kube.schedulers import CONTROLLER_LABEL, SCHEDULER_LABEL
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import (
    API_SERVICES,
    CRDS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
)
from atoll.model.timestamps import to_seconds

Json = dict[str, Any]

_LEASE_S: Final = 300.0
"""A lease that was not renewed for so long is a leftover, whatever the clocks of the machines say."""


@dataclass(frozen=True, slots=True)
class System:
    """How a system is recognised."""

    name: str
    names: tuple[str, ...]
    """Beginnings of the names of its Deployments and webhook configurations."""
    label: tuple[str, tuple[str, ...]]
    """A label of its Deployments and its values, under any name."""
    groups: str
    """End of the names of its API groups."""
    webhooks: str
    """End of the names of its webhooks."""
    lease: tuple[str, str] | None = None
    """Namespace and name of the lease by which it is seen in an API server whose Deployments run elsewhere."""


SYSTEMS: Final = (
    System(
        "Volcano",
        ("volcano-controllers", "volcano-scheduler", "volcano-admission"),
        ("app", (CONTROLLER_LABEL, SCHEDULER_LABEL, "volcano-admission")),
        ".volcano.sh",
        ".volcano.sh",
    ),
    System(
        "Kueue",
        ("kueue-controller-manager", "kueue-validating-webhook-configuration", "kueue-mutating-webhook-configuration"),
        ("app.kubernetes.io/name", ("kueue",)),
        "kueue.x-k8s.io",
        ".kb.io",
    ),
    System(
        "Karmada",
        ("karmada-controller-manager", "karmada-scheduler", "karmada-webhook"),
        ("app", ("karmada-controller-manager", "karmada-scheduler", "karmada-webhook")),
        ".karmada.io",
        ".karmada.io",
        ("karmada-system", "karmada-controller-manager"),
    ),
)


async def running(api: ApiServer) -> dict[str, list[str]]:
    """Name of each foreign system that runs in a cluster -> the sign of it, such as `Deployment x`.

    Raises:
        ApiError: the cluster refused.
    """
    deployments = [each for each in await api.list(DEPLOYMENTS) if (each["spec"].get("replicas", 1) or 0) > 0]
    webhooks = [(kind.kind, each) for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS) for each in await api.list(kind)]
    services, crds = await api.list(API_SERVICES), await api.list(CRDS)
    found = {}
    for system in SYSTEMS:
        marks = {
            *(f"Deployment {_name(each)}" for each in deployments if _deploys(system, each)),
            *(f"{kind} {_name(each)}" for kind, each in webhooks if _reviews(system, each)),
            *(f"APIService {_name(each)}" for each in services if _serves(system, each)),
            *(f"CRD {_name(each)}" for each in crds if _converts(system, each)),
        }
        if system.lease is not None and await _held(api, *system.lease):
            marks.add(f"Lease {'/'.join(system.lease)}")
        if marks:
            found[system.name] = sorted(marks)
    return found


def _name(item: Json) -> str:
    return str(item["metadata"]["name"])


def _deploys(system: System, deployment: Json) -> bool:
    label = (deployment["metadata"].get("labels") or {}).get(system.label[0])
    return label in system.label[1] or _name(deployment).startswith(system.names)


def _reviews(system: System, configuration: Json) -> bool:
    return _name(configuration).startswith(system.names) or any(
        webhook["name"].endswith(system.webhooks) and group.endswith(system.groups)
        for webhook in configuration.get("webhooks") or ()
        for rule in webhook.get("rules") or ()
        for group in rule.get("apiGroups") or ()
    )


def _serves(system: System, service: Json) -> bool:
    """Whether an API group of the system has a server of its own; one that comes with a CRD has none."""
    spec = service.get("spec") or {}
    return bool(spec.get("service")) and str(spec.get("group") or "").endswith(system.groups)


def _converts(system: System, crd: Json) -> bool:
    """Whether a CRD of the system asks its webhook before it can be read in another version."""
    strategy = (crd["spec"].get("conversion") or {}).get("strategy")
    return strategy == "Webhook" and is_foreign(crd) and str(crd["spec"]["group"]).endswith(system.groups)


async def _held(api: ApiServer, namespace: str, name: str) -> bool:
    try:
        spec = (await api.get(LEASES, name, namespace)).get("spec") or {}
    except errors.NotFound:
        return False
    renewed = to_seconds(spec["renewTime"]) if spec.get("renewTime") else 0.0
    return bool(spec.get("holderIdentity")) and time.time() - renewed < _LEASE_S
