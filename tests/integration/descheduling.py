"""The account of `atoll-descheduler` in a member."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from atoll.install import issue_token
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CONFIGMAPS, NAMESPACES
from tests.install.served import apply
from tests.integration.federation import Site, until

NAME, POLICY_NAMESPACE = "atoll-descheduler", "volcano-system"
MANIFEST = Path(__file__).parents[2] / "deploy" / "manifests" / "descheduler.yaml"


async def account(site: Site, directory: Path, member: str, rights: Sequence[dict[str, Any]] = ()) -> Path:
    """Credentials with the rights of the manifest, these ones, and no others."""
    objects = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] != "Deployment"]
    for each in objects:
        if each["kind"] == "ClusterRole":
            each["rules"] += rights
    api = site.members[member]
    await apply(api, objects)
    token, _ = await issue_token(api, NAME, keys.SYSTEM_NAMESPACE)
    config = yaml.safe_load(site.federation.members[member].kubeconfig.read_text())
    config["users"] = [{**config["users"][0], "user": {"token": token}}]
    file = directory / "descheduler.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


async def take_away(api: ApiServer, report: str) -> None:
    """Remove the cluster-wide rights of the account, a report, and the policy's namespace."""
    for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        await api.delete(resource, NAME)
    await api.delete(CONFIGMAPS, report, keys.SYSTEM_NAMESPACE)
    await api.delete(NAMESPACES, POLICY_NAMESPACE)

    async def gone() -> bool:
        return not await api.list(NAMESPACES, field_selector=f"metadata.name={POLICY_NAMESPACE}")

    await until(gone, what="the namespace of the policy is gone")
