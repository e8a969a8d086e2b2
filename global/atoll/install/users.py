"""What the built-in roles view, edit and admin of Kubernetes may do with Atoll's objects on a host.

A built-in role in a namespace suffices to use Atoll there, without a binding of its own. `admin` has
what `edit` has, and `edit` what `view` has: Kubernetes aggregates them into one another. What these rules open, the
admission policies guard: a rule of RBAC can't look into an object.
"""

from __future__ import annotations

from typing import Any, Final

from atoll.install.credentials import FIELD_MANAGER, MANAGED_BY
from atoll.install.roles import SECRETS_OF_NAMESPACES, Grant, Rule, manifest_rules
from atoll.kinds import makers
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import (
    AVAILABILITIES,
    BINDINGS,
    CAPACITIES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTERS,
    COMMANDS,
    JOB_ARRAYS,
    JOBS,
    OVERRIDES,
    POD_GROUPS,
    POLICIES,
    QUEUES,
    VERDICTS,
    WHAT_IFS,
    WORKLOAD_KINDS,
    ApiResource,
)

Json = dict[str, Any]

_GROUP: Final = "rbac.authorization.k8s.io"
_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "update", "patch", "delete", "deletecollection")
_AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"
_EVERYBODY: Final = "system:authenticated"
QUEUE_READER: Final = "atoll-queue-reader"
"""ClusterRole and ClusterRoleBinding by which every user reads queues: they have no namespace.

RBAC knows no exceptions: the accounts of members read them as well.
"""
OVERRIDE_EDITOR: Final = "atoll-override-editor"
"""ClusterRole to write OverridePolicies of a namespace; in no built-in role."""


MEMBER_READER: Final = "atoll-member-reader"
"""ClusterRole that reads members and their resources: `atollctl kinds`, `cluster list` and `top members` ask for that.

It has no binding: agents see nothing of other members.
"""


def _on(resource: ApiResource, verbs: tuple[str, ...], sub: str = "") -> Rule:
    return Rule(resource.group, f"{resource.plural}/{sub}" if sub else resource.plural, verbs)


VIEW: Final = Grant(
    None,
    (
        *(_on(resource, _READ) for resource in (JOBS, JOB_ARRAYS, POD_GROUPS, COMMANDS, BINDINGS, POLICIES, OVERRIDES)),
        *(_on(resource, _READ) for resource in makers.ROUTES),
        *(_on(resource, ("get",), sub="status") for resource in (JOBS, JOB_ARRAYS, BINDINGS)),
        _on(VERDICTS, ("get", "list")),
        _on(AVAILABILITIES, ("list",)),
        # Whoever may not read logs of pods is refused all the same.
        _on(VERDICTS, ("get",), sub="log"),
        _on(VERDICTS, ("get",), sub="events"),
        _on(VERDICTS, ("get",), sub="pods"),
    ),
)
"""Added to `view`: all of Atoll in a namespace."""

EDIT: Final = Grant(
    None,
    (
        *(_on(resource, _WRITE) for resource in (JOBS, JOB_ARRAYS, POD_GROUPS, COMMANDS, POLICIES)),
        *(_on(resource, _WRITE) for resource in makers.ROUTES),
        _on(WHAT_IFS, ("create",)),
        # Whoever may not do that with pods is refused all the same, and so are all by members that do not allow it.
        *(_on(VERDICTS, ("get",), sub=sub) for sub in ("exec", "portforward")),
    ),
)
"""Added to `edit`: workloads, their requirements, and their placement. Bindings are Atoll's own."""

OVERRIDES_WRITTEN: Final = Grant(None, (_on(OVERRIDES, _WRITE),))
"""Of whoever is bound to it: an override changes images and commands after the host's admission judged them."""

MEMBERS_READ: Final = Grant(None, (_on(CLUSTERS, _READ), _on(CAPACITIES, _READ)))
"""Added to `view` as well, where it is bound for the whole host; to be bound by itself for users of namespaces."""

QUEUES_READ: Final = Grant(None, (_on(QUEUES, _READ), _on(WORKLOAD_KINDS, _READ)))
"""Of every user: cluster-wide objects, and the kinds by which atollctl names workloads."""


async def ensure_user_roles(host: ApiServer) -> None:
    """The roles that `view` and `edit` take up, the one of all users, and those to bind. Safe to repeat.

    Args:
        host: with an administrator's credentials.
    """
    for aggregated, grant in (("view", VIEW), ("edit", EDIT)):
        labels = {**MANAGED_BY, f"{_AGGREGATE}{aggregated}": "true"}
        await _apply(host, CLUSTER_ROLES, f"atoll-{aggregated}", {"rules": manifest_rules(grant)}, labels)
        # Of an earlier version.
        await host.delete(CLUSTER_ROLES, f"atoll-query-{aggregated}")
    labels = {**MANAGED_BY, f"{_AGGREGATE}view": "true"}
    await _apply(host, CLUSTER_ROLES, MEMBER_READER, {"rules": manifest_rules(MEMBERS_READ)}, labels)
    secrets = {"rules": manifest_rules(SECRETS_OF_NAMESPACES)}
    await _apply(host, CLUSTER_ROLES, keys.SECRET_READER, secrets, MANAGED_BY)
    written = {"rules": manifest_rules(OVERRIDES_WRITTEN)}
    await _apply(host, CLUSTER_ROLES, OVERRIDE_EDITOR, written, MANAGED_BY)
    await _apply(host, CLUSTER_ROLES, QUEUE_READER, {"rules": manifest_rules(QUEUES_READ)}, MANAGED_BY)
    reference = {"apiGroup": _GROUP, "kind": CLUSTER_ROLES.kind, "name": QUEUE_READER}
    subject = {"apiGroup": _GROUP, "kind": "Group", "name": _EVERYBODY}
    await _apply(host, CLUSTER_ROLE_BINDINGS, QUEUE_READER, {"roleRef": reference, "subjects": [subject]}, MANAGED_BY)


async def _apply(host: ApiServer, resource: ApiResource, name: str, content: Json, labels: dict[str, str]) -> None:
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name, "labels": labels}}
    await host.apply(resource, {**head, **content}, field_manager=FIELD_MANAGER)
