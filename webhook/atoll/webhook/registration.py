"""How the API server learns of the webhook: two configurations, both named `atoll`.

`atollctl init` creates them empty, with the address in an annotation, so that nothing is intercepted before somebody
answers; the running webhook adds the webhooks and its CA by server-side apply. What must not depend on the webhook
(system namespaces, objects on their way out, namespaces that have not opted in) is excluded in the API server, so that
a broken webhook can't hold up the cluster's own work. Queues are nobody's namespace: without the webhook they are taken
as they come. What our own accounts write again and again, and what changes no spec, never gets here.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from atoll.admission.rules import NEW_SPEC
from atoll.kinds import KINDS
from atoll.kube.authority import split_pem
from atoll.model import keys
from atoll.model.apiresource import (
    BINDINGS,
    CLUSTER_POLICIES,
    HYPER_NODES,
    MUTATING_WEBHOOKS,
    POLICIES,
    QUEUES,
    VALIDATING_WEBHOOKS,
    ApiResource,
)
from atoll.model.namespaces import system_rule

Json = dict[str, Any]

NAME: Final = "atoll"
FIELD_MANAGER: Final = "atoll-webhook"

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


def configurations(client_config: Json, ca_bundle: str) -> tuple[Json, Json]:
    """The mutating and the validating configuration, ready for server-side apply.

    Args: client_config: `{"url": ...}` without a path, or `{"service": {"namespace", "name",
        "port"}}`. ca_bundle: base64 of the PEM certificates to trust.
    """

    def webhook(act: str, resource: ApiResource, operations: list[str], *conditions: Mapping[str, str]) -> Json:
        opt_in = resource.namespaced
        return {
            "name": f"{act}.{_ROUTES[resource]}.atoll.sh",
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
            "namespaceSelector": {"matchLabels": {keys.ENABLED: "true"}} if opt_in else {},
            "objectSelector": {},
            "matchConditions": [_NOT_LEAVING, *([_NOT_SYSTEM] if opt_in else []), *conditions],
            # Closed only where somebody opted in: there, a workload that slipped by would run unqueued.
            "failurePolicy": "Fail" if opt_in and resource is not POLICIES else "Ignore",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": _TIMEOUT,
            "admissionReviewVersions": ["v1"],
        }

    both = ["CREATE", "UPDATE"]
    mutating = [
        *(webhook("mutate", kind.resource, both, *kind.admission().conditions) for kind in KINDS),
        webhook("mutate", QUEUES, both),
        webhook("mutate", BINDINGS, ["CREATE"], _OUR_BINDING, _NOT_SUSPENDED),
    ]
    validating = [
        *(webhook("validate", kind.resource, both, *kind.admission().conditions) for kind in KINDS),
        webhook("validate", QUEUES, [*both, "DELETE"]),
        webhook("validate", HYPER_NODES, ["CREATE"]),
        webhook("validate", POLICIES, both, NEW_SPEC),
        webhook("validate", CLUSTER_POLICIES, both, NEW_SPEC),
    ]
    for entry in mutating:
        entry["reinvocationPolicy"] = "Never"
    return _configuration(MUTATING_WEBHOOKS, mutating), _configuration(VALIDATING_WEBHOOKS, validating)


def names(client_config: Json) -> list[str]:
    """The names of all webhooks."""
    return [entry["name"] for each in configurations(client_config, "") for entry in each["webhooks"]]


def client_config_of(configuration: Json) -> Json:
    """The address that the installer left on a configuration.

    Raises:
        ValueError: there is none, or it can't be read.
    """
    text = ((configuration.get("metadata") or {}).get("annotations") or {}).get(keys.CLIENT_CONFIG)
    if not text:
        raise ValueError(f"annotation {keys.CLIENT_CONFIG} is missing")
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ValueError(f"annotation {keys.CLIENT_CONFIG} is no JSON object: {text}") from error


def names_of(client_config: dict[str, Any]) -> list[str]:
    """The names by which the API server calls the webhook of a client config.

    The config is `{url}` or `{service}`.

    Raises:
        ValueError: it has neither.
    """
    if client_config.get("url"):
        host = urlsplit(str(client_config["url"])).hostname
        if host:
            return [host]
    service = client_config.get("service") or {}
    name, namespace = service.get("name"), service.get("namespace")
    if not name or not namespace:
        raise ValueError(
            'neither a url such as {"url": "https://127.0.0.1:9443"} nor a service with name and namespace'
        )
    return [name, f"{name}.{namespace}", f"{name}.{namespace}.svc"]


def trusted_by(configuration: Json) -> tuple[bytes, ...] | None:
    """The CA certificates (PEM) that all webhooks of a configuration trust; None if it has no webhooks."""
    bundles = [entry["clientConfig"].get("caBundle") or "" for entry in configuration.get("webhooks") or ()]
    if not bundles:
        return None
    found = []
    for bundle in dict.fromkeys(bundles):
        try:
            found.append(split_pem(base64.b64decode(bundle)))
        except ValueError:
            # Somebody else's writing: nothing in it is worth keeping.
            return ()
    return tuple(each for each in found[0] if all(each in others for others in found))


_ROUTES = {
    **{kind.resource: kind.admission().route for kind in KINDS},
    QUEUES: "queues",
    BINDINGS: "bindings",
    HYPER_NODES: "hypernodes",
    POLICIES: "policies",
    CLUSTER_POLICIES: "cluster-policies",
}


def _with_path(client_config: Json, path: str) -> Json:
    if client_config.get("url"):
        return {"url": str(client_config["url"]).rstrip("/") + path}
    return {"service": {**client_config["service"], "path": path}}


def _configuration(resource: ApiResource, webhooks: list[Json]) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": NAME},
        "webhooks": webhooks,
    }
