"""Which policy a workload follows.

A PropagationPolicy of its namespace, else a ClusterPropagationPolicy, else the one that its queue names as default.
"""

from __future__ import annotations

from atoll.control.caches import Caches
from atoll.model import keys
from atoll.model.apiresource import ApiResource
from atoll.model.objects import Full
from atoll.model.policies import PolicyObject, best


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


def _default_of(caches: Caches, queue: str) -> PolicyObject | None:
    """The policy in the queue's annotation: `name` of a cluster-scoped one, or `namespace/name`."""
    found = caches.queues.get(queue)
    named = found.metadata.annotations.get(keys.DEFAULT_POLICY, "") if found is not None else ""
    return caches.policies.get(named) if "/" in named else caches.cluster_policies.get(named)
