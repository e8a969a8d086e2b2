"""How the API server learns of the webhook: two configurations, both named `atoll`.

`atollctl init` creates them empty, with the address in an annotation, so that nothing is intercepted before somebody
answers; the running webhook adds the webhooks and its CA by server-side apply. What must not depend on the webhook
(system namespaces, objects on their way out) is excluded in the API server, so that a broken webhook can't hold up
the cluster's own work.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import orjson

from atoll.model import keys
from atoll.model.apiresource import (
    BATCH_JOBS,
    BINDINGS,
    JOBS,
    MUTATING_WEBHOOKS,
    QUEUES,
    VALIDATING_WEBHOOKS,
    ApiResource,
)

Json = dict[str, Any]

NAME: Final = "atoll"
FIELD_MANAGER: Final = "atoll-webhook"
SYSTEM_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease", keys.SYSTEM_NAMESPACE)

_TIMEOUT = 5
_NOT_SYSTEM = {
    "name": "not-in-a-system-namespace",
    "expression": f"!(request.namespace in {orjson.dumps(SYSTEM_NAMESPACES).decode()})",
}
# Only status and finalizers change on these, by controllers that must be able to finish.
_NOT_LEAVING = {
    "name": "not-being-deleted",
    "expression": 'request.operation == "DELETE" || !has(object.metadata.deletionTimestamp)',
}
_NOT_ANOTHERS = {
    "name": "not-managed-by-somebody-else",
    "expression": f'!has(object.spec.managedBy) || object.spec.managedBy == "{keys.CONTROLLER}"',
}
_NOT_SUSPENDED = {
    "name": "not-suspended-yet",
    "expression": (
        "!(has(object.spec) && has(object.spec.suspension)"
        " && has(object.spec.suspension.scheduling) && object.spec.suspension.scheduling == true)"
    ),
}


def configurations(client_config: Json, ca_bundle: str) -> tuple[Json, Json]:
    """The mutating and the validating configuration, ready for server-side apply.

    Args: client_config: `{"url": ...}` without a path, or `{"service": {"namespace", "name",
        "port"}}`. ca_bundle: base64 of the PEM certificates to trust.
    """

    def webhook(act: str, resource: ApiResource, operations: list[str], conditions: list[Json], opt_in: bool) -> Json:
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
            "matchConditions": conditions,
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": _TIMEOUT,
            "admissionReviewVersions": ["v1"],
        }

    both = ["CREATE", "UPDATE"]
    mutating = [
        # Updates too: a manifest applied again brings its tasks without the names and counts that
        # were filled in.
        webhook("mutate", JOBS, both, [_NOT_SYSTEM, _NOT_LEAVING], True),
        webhook("mutate", BATCH_JOBS, both, [_NOT_SYSTEM, _NOT_LEAVING, _NOT_ANOTHERS], True),
        webhook("mutate", QUEUES, both, [_NOT_LEAVING], False),
        webhook("mutate", BINDINGS, ["CREATE"], [_NOT_SYSTEM, _NOT_SUSPENDED], False),
    ]
    validating = [
        webhook("validate", JOBS, both, [_NOT_SYSTEM, _NOT_LEAVING], True),
        webhook("validate", BATCH_JOBS, both, [_NOT_SYSTEM, _NOT_LEAVING, _NOT_ANOTHERS], True),
        webhook("validate", QUEUES, [*both, "DELETE"], [_NOT_LEAVING], False),
    ]
    for entry in mutating:
        entry["reinvocationPolicy"] = "Never"
    return _configuration(MUTATING_WEBHOOKS, mutating), _configuration(VALIDATING_WEBHOOKS, validating)


def empty_configurations(client_config: Json) -> tuple[Json, Json]:
    """The same two without webhooks: what an installer creates, for the webhook to fill in."""
    address = {keys.CLIENT_CONFIG: orjson.dumps(client_config).decode()}
    first, second = _configuration(MUTATING_WEBHOOKS, []), _configuration(VALIDATING_WEBHOOKS, [])
    for configuration in (first, second):
        configuration["metadata"]["annotations"] = dict(address)
        del configuration["webhooks"]
    return first, second


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


def trusts(configuration: Json, ca_bundle: str) -> bool:
    """Whether the configuration has webhooks and all of them trust this CA."""
    webhooks = configuration.get("webhooks") or []
    return bool(webhooks) and all(entry["clientConfig"].get("caBundle") == ca_bundle for entry in webhooks)


_ROUTES = {JOBS: "jobs", BATCH_JOBS: "batch-jobs", QUEUES: "queues", BINDINGS: "bindings"}


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
