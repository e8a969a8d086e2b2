"""The claims of one pod on one node, from pools to allocation results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atoll.fit.devices.problem import NodeError, Selects, prepare
from atoll.fit.devices.results import Json, allocation_results
from atoll.fit.devices.search import STEPS, Refused, Undecided, solve
from atoll.model.device_claims import Claim, DeviceClass
from atoll.model.devices import Pool, Taken


def allocate(
    claims: Sequence[Claim], pools: Sequence[Pool], classes: Mapping[str, DeviceClass], taken: Taken, node: str,
    labels: Mapping[str, str], selects: Selects, steps: int = STEPS,
) -> list[Json] | Refused | Undecided:  # fmt: skip
    """An AllocationResult per claim, the ones that Kubernetes would write.

    Args:
        claims: of one pod, allocated together.
        pools: that the node reaches.
        classes: by name.
        taken: held by other claims.
        node: its name.
        labels: of the node.
        selects: whether a CEL expression selects a device.
        steps: after which the search gives up, undecided.

    Raises:
        ClaimError: the pod's claims can be allocated nowhere.
        NodeError: there is no allocation, and a pool of the node is invalid.
    """
    problem = prepare(claims, pools, classes, selects, node, labels)
    found = solve(problem, taken, steps)
    if not isinstance(found, (Refused, Undecided)):
        return allocation_results(problem, found, node)
    if invalid := next((pool for pool in pools if pool.problem), None):
        raise NodeError(f"pool {invalid.driver}/{invalid.name}: {invalid.problem}")
    return found
