"""Gangs of GPUs, and leave to divide them."""

from __future__ import annotations

from typing import Any

from atoll.model.apiresource import JOBS, POLICIES
from tests.integration.federation import Site, job


async def allow_division(site: Site, *members: str, least: int = 1) -> None:
    """A policy that lets jobs of the test's namespace run in several of these members."""
    policy: dict[str, Any] = {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": "divided", "namespace": site.namespace},
        "spec": {
            "resourceSelectors": [{"apiVersion": JOBS.api_version, "kind": JOBS.kind}],
            "placement": {
                "clusterAffinity": {"clusterNames": list(members)},
                "replicaScheduling": {"replicaSchedulingType": "Divided"},
                "spreadConstraints": [{"spreadByField": "cluster", "minGroups": least, "maxGroups": 3}],
            },
        },
    }
    await site.host.create(POLICIES, policy)


def gpus(name: str, replicas: int, gpu: int, **more: Any) -> dict[str, Any]:
    wanted = job(name, replicas=replicas, **more)
    container = wanted["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "1", "nvidia.com/gpu": gpu}, "limits": {"nvidia.com/gpu": gpu}}
    return wanted


async def one_member(site: Site, name: str) -> None:
    policy: dict[str, Any] = {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": name, "namespace": site.namespace},
        "spec": {
            "resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
            "placement": {"clusterAffinity": {"clusterNames": [name]}},
        },
    }
    await site.host.create(POLICIES, policy)
