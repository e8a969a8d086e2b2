"""How the API server learns of the webhook: two configurations, both named `atoll`.

`init` writes them, the running webhook renews the CA, and control narrows the rules for declared kinds to the resources
of WorkloadKinds: they may change nothing else there (policy `atoll-webhooks`).
Objects that must not depend on the webhook (system namespaces, objects on their way out, namespaces that have not opted
in) are excluded in the API server, so that a broken webhook can't hold up the cluster's own work. Queues are
in no namespace: without the webhook they pass unchecked. Frequent writes of our own accounts, and
writes that change no spec, never get there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import orjson

from atoll.admission.rules import NEW_SPEC, NOT_CONTROL
from atoll.install.credentials import FIELD_MANAGER, MANAGED_BY
from atoll.install.roles import CONTROL
from atoll.kinds import KINDS, makers, needs_queue, unserved
from atoll.kinds.metadata import names_queue_rule
from atoll.kube import authority, errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import (
    BINDINGS,
    CLUSTER_OVERRIDES,
    CLUSTER_POLICIES,
    HYPER_NODES,
    MUTATING_WEBHOOKS,
    OVERRIDES,
    POLICIES,
    QUEUES,
    VALIDATING_WEBHOOKS,
    WORKLOAD_KINDS,
    ApiResource,
)
from atoll.model.namespaces import ALL, LABELLED, selector, system_rule

Json = dict[str, Any]

_TIMEOUT = 5
"""Seconds; a review takes milliseconds, but a replica that is being replaced may cost one connection attempt."""
_NOT_SYSTEM = {
    "name": "not-in-a-system-namespace",
    "expression": f"!{system_rule('request.namespace')}",
}
# Only status and finalizers change on these, by controllers that must be able to finish.
_NOT_LEAVING = {
    "name": "not-being-deleted",
    "expression": 'request.operation == "DELETE" || !has(object.metadata.deletionTimestamp)',
}
# Before all that costs more: a host runs much that is not Atoll's.
_NAMES_QUEUE = {"name": "names-a-queue", "expression": names_queue_rule("object", "oldObject")}
_NOT_SUSPENDED = {
    "name": "not-suspended-yet",
    "expression": (
        "!(has(object.spec) && has(object.spec.suspension)"
        " && has(object.spec.suspension.scheduling) && object.spec.suspension.scheduling == true)"
    ),
}
# A binding of another system, such as Karmada, that was suspended would wait for ever: no dispatcher looks at it.
_OUR_BINDING = {
    "name": "a-binding-of-atoll",
    "expression": (
        f'request.userInfo.username == "{keys.CONTROL_ACCOUNT}" || (has(object.metadata.annotations)'
        f' && "{keys.GANG}" in object.metadata.annotations)'
    ),
}

_DECLARED = ApiResource("*", "*", "*", "")
"""All custom resources until control has narrowed them to WorkloadKinds'; the conditions leave the ones that control
has rights to by `keys.KIND_RIGHTS`.
"""
_OWN = sorted(
    {f"{rule.group}/{rule.resource}" for grant in CONTROL for rule in grant.rules if "/" not in rule.resource}
    # Of these control only says that they don't run, unless a user declares them.
    - {f"{each.group}/{each.plural}" for each in unserved.BY_CRD}
)
_NOT_OUR_OWN = {
    "name": "not-what-atoll-knows-by-itself",
    "expression": 'request.resource.group.contains(".") && !((request.resource.group + "/" + request.resource.resource)'
    f" in {orjson.dumps(_OWN).decode()})",
}
_NAMESPACE, _ACCOUNT = keys.CONTROL_ACCOUNT.split(":")[2:]
_WITH_RIGHTS = {
    "name": "a-resource-that-control-may-change",
    "expression": f'authorizer.serviceAccount("{_NAMESPACE}", "{_ACCOUNT}").group(request.resource.group)'
    '.resource(request.resource.resource).namespace(request.namespace).check("patch").allowed()',
}


# Karmada's own controllers make the bindings; a policy with our scheduler's name is what opts in.
_LEFT_TO_US = {
    "name": "left-to-atoll",
    "expression": (
        f'object.spec.?schedulerName.orValue("") == "{keys.SCHEDULER_NAME}"'
        f' && !(has(object.metadata.annotations) && "{keys.EPOCH}" in object.metadata.annotations)'
        " && object.spec.?clusters.orValue([]).size() == 0"
        " && (object.spec.?replicas.orValue(0) > 0 || object.spec.?components.orValue([]).size() > 0)"
    ),
}


def configurations(client_config: Json, ca_bundle: str, *, on_karmada: bool = False) -> tuple[Json, Json]:
    """The mutating and the validating configuration, but for its labels.

    Args: client_config: `{"url": ...}` without a path, or `{"service": {"namespace", "name",
        "port"}}`. ca_bundle: base64 of the PEM certificates to trust. on_karmada: the host is a Karmada's, whose
        workloads and policies are its own.
    """

    def workloads(act: str, resource: ApiResource, *conditions: Mapping[str, str]) -> list[Json]:
        """Two: of namespaces all of which is Atoll's, and of those where only what names a queue is."""
        return [
            webhook(act, resource, both, *conditions, of=ALL),
            webhook(act, resource, both, _NAMES_QUEUE, *conditions, of=LABELLED),
        ]

    def of_kinds(act: str) -> list[Json]:
        made: list[Json] = []
        for kind in KINDS:
            rules = kind.admission()
            met = rules.conditions if act == "mutate" or rules.judged is None else rules.judged
            by_queue = needs_queue(kind.resource)
            made += workloads(act, kind.resource, *met) if by_queue else [webhook(act, kind.resource, both, *met)]
        declared = workloads(act, _DECLARED, NOT_CONTROL, _NOT_OUR_OWN, _WITH_RIGHTS)
        for each in declared:
            each["rules"][0]["apiVersions"] = ["*"]
        return made + declared

    def webhook(
        act: str,
        resource: ApiResource,
        operations: list[str],
        *conditions: Mapping[str, str],
        of: str = "",
    ) -> Json:
        """Of namespaces with this value of their label; empty: of all that have opted in."""
        opt_in = resource.namespaced and not on_karmada
        # Closed only where a namespace has opted in: there, a workload that slipped by would run unqueued.
        closed = resource is BINDINGS or (opt_in and resource not in (POLICIES, OVERRIDES))
        return {
            "name": f"{act}.{_ROUTES[resource]}.{'labelled.' if of == LABELLED else ''}atoll.sh",
            "clientConfig": {
                **_with_path(client_config, f"/{act}/{_ROUTES[resource]}"),
                "caBundle": ca_bundle,
            },
            "rules": [
                {
                    "apiGroups": [resource.group],
                    "apiVersions": [resource.version],
                    "resources": [resource.plural],
                    "operations": operations,
                    "scope": "Namespaced" if resource.namespaced else "Cluster",
                }
            ],
            "namespaceSelector": selector(*filter(None, [of])) if opt_in else {},
            "objectSelector": {},
            "matchConditions": [_NOT_LEAVING, *([_NOT_SYSTEM] if opt_in else []), *conditions],
            "failurePolicy": "Fail" if closed else "Ignore",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": _TIMEOUT,
            "admissionReviewVersions": ["v1"],
        }

    both = ["CREATE", "UPDATE"]
    if on_karmada:
        mutating = [webhook("mutate", QUEUES, both), webhook("mutate", BINDINGS, both, _LEFT_TO_US)]
        validating = [webhook("validate", QUEUES, [*both, "DELETE"])]
        return _both(mutating, validating)
    mutating = [
        *of_kinds("mutate"),
        webhook("mutate", QUEUES, both),
        webhook("mutate", BINDINGS, ["CREATE"], _OUR_BINDING, _NOT_SUSPENDED),
    ]
    validating = [
        *of_kinds("validate"),
        *(webhook("validate", resource, both, NEW_SPEC) for resource in makers.ROUTES),
        webhook("validate", WORKLOAD_KINDS, both, NEW_SPEC),
        webhook("validate", QUEUES, [*both, "DELETE"]),
        webhook("validate", HYPER_NODES, ["CREATE"]),
        webhook("validate", POLICIES, both, NEW_SPEC),
        webhook("validate", CLUSTER_POLICIES, both, NEW_SPEC),
        webhook("validate", OVERRIDES, both, NEW_SPEC),
        webhook("validate", CLUSTER_OVERRIDES, both, NEW_SPEC),
    ]
    return _both(mutating, validating)


def _both(mutating: list[Json], validating: list[Json]) -> tuple[Json, Json]:
    for entry in mutating:
        entry["reinvocationPolicy"] = "Never"
    return _configuration(MUTATING_WEBHOOKS, mutating), _configuration(VALIDATING_WEBHOOKS, validating)


async def registered(host: ApiServer) -> tuple[Json, str] | None:
    """The address that is registered, as `configurations` takes it, and the CAs that are trusted there (base64 of PEM);
    None on a host that has no registration.

    Raises:
        ApiError: the host refused.
    """
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        with contextlib.suppress(errors.NotFound):
            found = await host.get(resource, keys.WEBHOOKS)
            if text := (found["metadata"].get("annotations") or {}).get(keys.CLIENT_CONFIG):
                return orjson.loads(text), authority.ca_bundle(authority.trusted_by(found) or ())
    return None


async def ensure_registration(
    host: ApiServer, client_config: Json, trusted: tuple[bytes, ...], *, on_karmada: bool = False
) -> list[str]:
    """Have the configurations say what this version asks about, at this address. CAs that they trust stay trusted: the
    webhook takes away CAs that no replica serves any more. Rules for declared kinds stay as control left them.

    Args:
        host: with an administrator's credentials.
        client_config: see `configurations`.
        trusted: CA certificates (PEM) of the webhook.
        on_karmada: see `configurations`.

    Returns a line for each of them.

    Raises:
        ApiError: the host refused.
    """
    about = {"labels": MANAGED_BY, "annotations": {keys.CLIENT_CONFIG: orjson.dumps(client_config).decode()}}
    said = []
    for resource, wanted in zip(
        (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS),
        configurations(client_config, "", on_karmada=on_karmada),
        strict=True,
    ):
        try:
            found = await host.get(resource, keys.WEBHOOKS)
        except errors.NotFound:
            found = await host.create(resource, {**wanted, "metadata": {**wanted["metadata"], **about}, "webhooks": []})
        kept = authority.trusted_by(found) or ()
        bundle = authority.ca_bundle(tuple(dict.fromkeys((*trusted, *kept))))
        ruled = {each["name"]: each.get("rules") or [] for each in found.get("webhooks") or ()}
        for each in wanted["webhooks"]:
            each["clientConfig"]["caBundle"] = bundle
            if each["name"].partition(".")[2] in keys.DECLARED_WEBHOOKS:
                each["rules"] = ruled.get(each["name"], each["rules"])
        patch = {"metadata": about, "webhooks": wanted["webhooks"]}
        await host.merge_patch(resource, keys.WEBHOOKS, patch, field_manager=FIELD_MANAGER)
        said.append(f"{resource.kind} {keys.WEBHOOKS}: {len(wanted['webhooks'])} webhooks")
    return said


_ROUTES = {
    **{kind.resource: kind.admission().route for kind in KINDS},
    **makers.ROUTES,
    WORKLOAD_KINDS: "workload-kinds",
    _DECLARED: "declared",
    QUEUES: "queues",
    BINDINGS: "bindings",
    HYPER_NODES: "hypernodes",
    POLICIES: "policies",
    CLUSTER_POLICIES: "cluster-policies",
    OVERRIDES: "overrides",
    CLUSTER_OVERRIDES: "cluster-overrides",
}


def _with_path(client_config: Json, path: str) -> Json:
    if client_config.get("url"):
        return {"url": str(client_config["url"]).rstrip("/") + path}
    return {"service": {**client_config["service"], "path": path}}


def _configuration(resource: ApiResource, webhooks: list[Json]) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": keys.WEBHOOKS},
        "webhooks": webhooks,
    }
