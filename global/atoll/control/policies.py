"""Which policy a workload follows.

A PropagationPolicy of its namespace, else a ClusterPropagationPolicy, else the one that its queue names as default.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from atoll.control.caches import Caches
from atoll.control.objects import PolicyObject
from atoll.model import keys, selectors
from atoll.model.apiresource import ApiResource
from atoll.model.objects import Full

Json = dict[str, Any]


def choose(caches: Caches, resource: ApiResource, obj: Full, queue: str) -> PolicyObject | None:
    """The policy of a workload; None means all members, one cluster.

    Args:
        caches: policies and queues.
        resource: of the workload.
        obj: the workload.
        queue: the one that it goes to.
    """
    namespaced = (policy for policy in caches.policies if policy.metadata.namespace == obj.metadata.namespace)
    return best(namespaced, resource, obj) or best(caches.cluster_policies, resource, obj) or _default_of(caches, queue)


def best(policies: Iterable[PolicyObject], resource: ApiResource, obj: Full) -> PolicyObject | None:
    """Of those that select the workload the one of the highest priority; then the one that does so most exactly; then
    by name.
    """
    found = []
    for policy in policies:
        exactness = max((_exactness(selector, resource, obj) for selector in policy.spec.resource_selectors), default=0)
        if exactness:
            found.append((-policy.spec.priority, -exactness, policy.metadata.name, policy))
    return min(found, key=lambda each: each[:3])[3] if found else None


def _default_of(caches: Caches, queue: str) -> PolicyObject | None:
    """The policy in the queue's annotation: `name` of a cluster-scoped one, or `namespace/name`."""
    found = caches.queues.get(queue)
    named = found.metadata.annotations.get(keys.DEFAULT_POLICY, "") if found is not None else ""
    return caches.policies.get(named) if "/" in named else caches.cluster_policies.get(named)


def _exactness(selector: Json, resource: ApiResource, obj: Full) -> int:
    """How exactly a resource selector matches: 3 by name, 2 by labels, 1 by kind, 0 not at all."""
    if (selector.get("apiVersion"), selector.get("kind")) != (resource.api_version, resource.kind):
        return 0
    if (selector.get("namespace") or obj.metadata.namespace) != obj.metadata.namespace:
        return 0
    if selector.get("name"):
        return 3 if selector["name"] == obj.metadata.name else 0
    if selector.get("labelSelector"):
        return 2 if selectors.label_selector_matches(selector["labelSelector"], obj.metadata.labels) else 0
    return 1
