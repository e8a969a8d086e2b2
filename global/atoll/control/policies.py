"""Which policy a workload follows.

A PropagationPolicy of its namespace, else a ClusterPropagationPolicy, else the one that its queue names as default.
"""

from __future__ import annotations

from atoll.control.caches import Caches
from atoll.model import keys
from atoll.model import policies as model
from atoll.model.apiresource import ApiResource
from atoll.model.objects import Full
from atoll.model.policies import PolicyObject


def choose(caches: Caches, resource: ApiResource, obj: Full, queue: str) -> PolicyObject | None:
    """The policy of a workload; None means all members, one cluster.

    Args:
        caches: policies and queues.
        resource: of the workload.
        obj: the workload.
        queue: the one that it goes to.
    """
    found = caches.queues.get(queue)
    return model.choose(
        resource,
        obj,
        own=(policy for policy in caches.policies if policy.metadata.namespace == obj.metadata.namespace),
        common=caches.cluster_policies,
        default=found.metadata.annotations.get(keys.DEFAULT_POLICY, "") if found is not None else "",
        others=caches.policies,
    )
