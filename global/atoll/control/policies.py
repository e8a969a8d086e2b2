"""Which policy a workload follows.

A PropagationPolicy of its namespace, else a ClusterPropagationPolicy, else the one that its queue names as default.
"""

from __future__ import annotations

from functools import partial

from atoll.control.caches import Caches
from atoll.model import keys
from atoll.model import policies as model
from atoll.model.apiresource import ApiResource
from atoll.model.objects import Full
from atoll.model.policies import Claim, PolicyObject


def choose(
    caches: Caches, resource: ApiResource, obj: Full, queue: str, claim: Claim | None = None
) -> PolicyObject | None:
    """The policy of a workload; None means all members, one cluster.

    Args:
        caches: policies and queues.
        resource: of the workload.
        obj: the workload.
        queue: the one that it goes to.
        claim: the policy that it follows already.
    """
    found = caches.queues.get(queue)
    return model.choose(
        resource,
        obj,
        own=partial(caches.policies.by_index, "selected"),
        common=partial(caches.cluster_policies.by_index, "selected"),
        default=caches.policy(found.metadata.annotations.get(keys.DEFAULT_POLICY, "")) if found is not None else None,
        claim=claim,
    )


def missing_overrides(caches: Caches, policy: PolicyObject) -> list[str]:
    """The override policies, of the policy's own scope, that it waits for."""
    namespace = policy.metadata.namespace
    if namespace:
        return [each for each in policy.spec.dependent_overrides if caches.overrides.get(f"{namespace}/{each}") is None]
    return [each for each in policy.spec.dependent_overrides if caches.cluster_overrides.get(each) is None]


def class_of(policy: PolicyObject | None) -> str:
    """The PriorityClass that a policy gives its workloads; empty where their own counts."""
    wish = (policy.spec.schedule_priority if policy is not None else None) or {}
    return str(wish.get("priorityClassName") or "") if wish.get("priorityClassSource") == "KubePriorityClass" else ""
