"""Policies as the host's processes read them, and which of several a workload follows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from atoll.model import selectors
from atoll.model.apiresource import ApiResource
from atoll.model.objects import Full, Meta, Slim

Json = dict[str, Any]


class PolicySpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """spec of a PropagationPolicy."""

    resource_selectors: list[Json] = []
    placement: Json | None = None
    priority: int = 0
    propagate_deps: bool | None = None


class PolicyObject(Slim, frozen=True, rename="camel"):
    """A PropagationPolicy."""

    spec: PolicySpec = PolicySpec()


decode_policy = msgspec.json.Decoder(PolicyObject).decode


def choose(
    resource: ApiResource,
    obj: Full,
    *,
    own: Iterable[PolicyObject],
    common: Iterable[PolicyObject],
    default: str = "",
    others: Iterable[PolicyObject] = (),
) -> PolicyObject | None:
    """The policy of a workload: of its namespace, else of the cluster, else the default of its queue; None means all
    members, one cluster.

    Args:
        resource: of the workload.
        obj: the workload.
        own: the policies of its namespace.
        common: those of the cluster.
        default: that the queue names: `name` of a cluster-scoped one, or `namespace/name`.
        others: the policies of that namespace, or more.
    """
    common = [*common]
    chosen = best(own, resource, obj) or best(common, resource, obj)
    if chosen is not None or not default:
        return chosen
    namespace, _, name = default.rpartition("/")
    named = (each for each in (others if namespace else common) if each.metadata.name == name)
    return next((each for each in named if (each.metadata.namespace or "") == namespace), None)


def best(policies: Iterable[PolicyObject], resource: ApiResource, obj: Full) -> PolicyObject | None:
    """Of those that select the workload the one of the highest priority; then the one that does so most exactly; then
    by name.
    """
    found = []
    for policy in policies:
        exact = max((exactness(each, resource, obj.metadata) for each in policy.spec.resource_selectors), default=0)
        if exact:
            found.append((-policy.spec.priority, -exact, policy.metadata.name, policy))
    return min(found, key=lambda each: each[:3])[3] if found else None


def exactness(selector: Json, resource: ApiResource, metadata: Meta) -> int:
    """How exactly a resource selector matches: 3 by name, 2 by labels, 1 by kind, 0 not at all."""
    if (selector.get("apiVersion"), selector.get("kind")) != (resource.api_version, resource.kind):
        return 0
    if (selector.get("namespace") or metadata.namespace) != metadata.namespace:
        return 0
    if selector.get("name"):
        return 3 if selector["name"] == metadata.name else 0
    if selector.get("labelSelector"):
        return 2 if selectors.label_selector_matches(selector["labelSelector"], metadata.labels) else 0
    return 1
