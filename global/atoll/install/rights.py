"""Roles in a cluster: an account gets exactly its grants, whatever an earlier installation gave it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from atoll.install.credentials import FIELD_MANAGER, MANAGED_BY, owned
from atoll.install.roles import Grant, manifest_rules
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ApiResource

Json = dict[str, Any]

_GROUP: Final = "rbac.authorization.k8s.io"
ROLES: Final = ApiResource(_GROUP, "v1", "roles", "Role")
ROLE_BINDINGS: Final = ApiResource(_GROUP, "v1", "rolebindings", "RoleBinding")


async def ensure_rights(
    api: ApiServer,
    name: str,
    account: tuple[str, str] | str,
    grants: Iterable[Grant],
    *,
    owners: Sequence[Json] = (),
) -> None:
    """Give an account its grants and bind it to nothing else of this name. Safe to repeat.

    Args:
        api: with an administrator's credentials.
        name: of the roles and of their bindings.
        account: namespace and name of the ServiceAccount; or the name of a group.
        grants: its rights; the namespaces must exist.
        owners: owner references of roles and bindings, which go with them.
    """
    if isinstance(account, str):
        subject = {"apiGroup": _GROUP, "kind": "Group", "name": account}
    else:
        subject = {"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}
    for grant in grants:
        role, binding = kinds(grant)
        metadata: Json = {"name": name, "labels": MANAGED_BY, **owned(owners)}
        if grant.namespace is not None:
            metadata["namespace"] = grant.namespace
        await _apply(api, role, {"metadata": metadata, "rules": manifest_rules(grant)})
        reference = {"apiGroup": _GROUP, "kind": role.kind, "name": name}
        content = {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
        try:
            await _apply(api, binding, content)
        except errors.Invalid:
            # What a binding refers to can't be changed: it has to be made anew.
            await api.delete(binding, name, grant.namespace)
            await _apply(api, binding, content)


async def ensure_kind_rights(api: ApiServer, account: tuple[str, str]) -> None:
    """Give an account what labelled ClusterRoles say of declared kinds: nothing, as long as there are none.

    Args:
        api: with an administrator's credentials.
        account: namespace and name of the ServiceAccount.
    """
    metadata: Json = {"name": keys.KIND_RIGHTS, "labels": MANAGED_BY}
    selector = {"matchLabels": {keys.KIND_RIGHTS_LABEL: "true"}}
    # Its rules are written by Kubernetes' own controller.
    await _apply(api, CLUSTER_ROLES, {"metadata": metadata, "aggregationRule": {"clusterRoleSelectors": [selector]}})
    reference = {"apiGroup": _GROUP, "kind": CLUSTER_ROLES.kind, "name": keys.KIND_RIGHTS}
    subject = {"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}
    await _apply(api, CLUSTER_ROLE_BINDINGS, {"metadata": metadata, "roleRef": reference, "subjects": [subject]})


async def remove_kind_rights(api: ApiServer) -> None:
    """The inverse of `ensure_kind_rights`; the labelled roles are their authors'."""
    for resource in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES):
        await api.delete(resource, keys.KIND_RIGHTS)


async def has_rights(api: ApiServer, name: str, grants: Iterable[Grant]) -> bool:
    """Whether `ensure_rights` gave any of these."""
    for grant in grants:
        with contextlib.suppress(errors.NotFound):
            await api.get(kinds(grant)[1], name, grant.namespace)
            return True
    return False


async def remove_rights(api: ApiServer, name: str, grants: Iterable[Grant]) -> None:
    """The inverse of `ensure_rights`; a missing object is no error."""
    for grant in grants:
        for resource in reversed(kinds(grant)):
            await api.delete(resource, name, grant.namespace)


def kinds(grant: Grant) -> tuple[ApiResource, ApiResource]:
    """What a grant becomes: (Role, RoleBinding) in a namespace, else (ClusterRole, ClusterRoleBinding)."""
    return (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS) if grant.namespace is None else (ROLES, ROLE_BINDINGS)


async def _apply(api: ApiServer, resource: ApiResource, content: Json) -> None:
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    await api.apply(resource, {**head, **content}, field_manager=FIELD_MANAGER)
