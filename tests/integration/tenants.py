"""An account with nothing but a built-in role in the namespace of a test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atoll import install
from atoll.install.rights import ROLE_BINDINGS
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import JOBS, SERVICE_ACCOUNTS
from tests.atollctl import atollctl
from tests.integration.federation import Site, until


@dataclass
class Tenant:
    """An account with a built-in role in the test's namespace."""

    site: Site
    api: ApiServer
    kubeconfig: Path

    async def ctl(self, *args: str, ok: bool = True, namespace: str = "") -> str:
        """Run atollctl; its output, or its error text when it is expected to fail."""
        where = namespace or self.site.namespace
        ran = await atollctl(*args, f"--kubeconfig={self.kubeconfig}", f"--namespace={where}")
        assert (ran.code == 0) == ok, f"atollctl {' '.join(args)}: {ran.out}{ran.said}"
        assert "Traceback" not in ran.said
        return ran.out if ok else ran.said


async def made(site: Site, role: str) -> Tenant:
    name = f"tenant-{role}"
    metadata = {"name": name, "namespace": site.namespace}
    await site.host.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": site.namespace}
    head = {"apiVersion": ROLE_BINDINGS.api_version, "kind": ROLE_BINDINGS.kind, "metadata": metadata}
    await site.host.create(ROLE_BINDINGS, {**head, "roleRef": reference, "subjects": [subject]})
    token, _ = await install.issue_token(site.host, name, site.namespace)
    file = site.federation.atoll.credentials / f"{name}-{site.namespace}.kubeconfig"
    install.write_kubeconfig(file, await install.endpoint(site.federation.host.kubeconfig), name, token)
    return Tenant(site, await ApiServer.from_kubeconfig(file, user_agent="test-tenant"), file)


async def rights_count(tenant: Tenant) -> None:
    """The authorizer learns of new bindings by a watch."""

    async def look() -> bool:
        try:
            await tenant.api.list(JOBS, tenant.site.namespace)
        except errors.Forbidden:
            return False
        return True

    await until(look, what="the tenant's rights count")
