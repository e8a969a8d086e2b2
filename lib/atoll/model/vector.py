"""Resource vectors: plain dicts from resource name to integer units (see `atoll.model.quantity`).

A missing resource is zero in a request and in use, and unlimited in a limit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar

from atoll.model import quantity

K = TypeVar("K", bound=Hashable)
N = TypeVar("N", bound=Hashable)
Vector = dict[str, int]
"""Resource name to integer units: milli-CPU, bytes, whole devices, pods."""

MOST_ON_NODE = 2**46
"""What a node has of a resource counts up to this: sums over 2^16 nodes, the most of a member, stay in 63 bits."""


def total(vectors: Iterable[Mapping[str, int]]) -> Vector:
    """The sum of vectors."""
    result: Vector = {}
    for vector in vectors:
        add(result, vector)
    return result


def add(into: dict[N, int], vector: Mapping[N, int], times: int = 1) -> None:
    """Add `times` a vector, or other counts, to another, in place; what becomes zero disappears."""
    for name, amount in vector.items():
        value = into.get(name, 0) + amount * times
        if value:
            into[name] = value
        else:
            into.pop(name, None)


def add_each(into: dict[K, dict[N, int]], vectors: Mapping[K, Mapping[N, int]], times: int = 1) -> None:
    """Add `times` each of several vectors to the one of the same key, in place; those that become empty disappear."""
    for key, vector in vectors.items():
        there = into.setdefault(key, {})
        add(there, vector, times)
        if not there:
            del into[key]


def larger(one: Mapping[str, int], other: Mapping[str, int]) -> Vector:
    """Of each resource the larger amount."""
    result = dict(one)
    _raise_to(result, other)
    return result


def lower(one: Mapping[str, int], other: Mapping[str, int]) -> Vector:
    """The smaller of each, of two limits."""
    result = dict(one)
    for name, value in other.items():
        result[name] = min(value, result.get(name, value))
    return result


def scaled(vector: Mapping[str, int], times: int) -> Vector:
    """A multiple of a vector."""
    return {name: amount * times for name, amount in vector.items()}


def shortage(
    used: Mapping[str, int], request: Mapping[str, int], limit: Mapping[str, int]
) -> tuple[str, int, int] | None:
    """The first resource (by name) in which `used + request` exceeds `limit`.

    Returns (resource, requested, available), or None when it fits. Only resources that are requested count, so a queue
    that is over its limit in GPUs still admits CPU work.
    """
    for name in sorted(request):
        amount = request[name]
        if amount > 0 and name in limit:
            available = limit[name] - used.get(name, 0)
            if amount > available:
                return name, amount, available
    return None


def share(used: Mapping[str, int], limit: Mapping[str, int]) -> float:
    """The dominant share: the largest used/limit; a zero limit that is used counts as 1."""
    return max(
        (used.get(name, 0) / amount if amount else float(name in used) for name, amount in limit.items()), default=0.0
    )


OF_WHOLE_PODS = ("cpu", "memory")
"""What `resources` of a pod as a whole may name, beside hugepages."""


def pod_requests(spec: Mapping[str, Any]) -> Vector:
    """What a pod of this spec takes from a node, the way the Kubernetes scheduler counts it, `pods: 1` included.

    What its containers take, plus overhead. Of resources of the pod as a whole its request wins; its limit stands for
    that where no container requests any, as Kubernetes' defaults have it.
    """
    running = container_requests(spec)
    pod_level = spec.get("resources") or {}
    for name, amount in quantity.requests(pod_level.get("limits")).items():
        if name not in OF_WHOLE_PODS or not running.get(name):
            running[name] = amount
    running.update(quantity.requests(pod_level.get("requests")))
    add(running, quantity.requests(spec.get("overhead")))
    running["pods"] = 1
    return running


def container_requests(spec: Mapping[str, Any]) -> Vector:
    """What the containers of a pod take together: the larger of (sum of containers and sidecars) and (each init
    container beside the sidecars started before it); a missing request is taken from the limit.
    """
    running: Vector = {}
    for container in spec.get("containers") or ():
        add(running, _container_requests(container))
    sidecars: Vector = {}
    peak: Vector = {}
    for container in spec.get("initContainers") or ():
        wanted = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            add(sidecars, wanted)
            wanted = sidecars
        else:
            wanted = total((sidecars, wanted))
        _raise_to(peak, wanted)
    add(running, sidecars)
    _raise_to(running, peak)
    return running


def _container_requests(container: Mapping[str, Any]) -> Vector:
    resources = container.get("resources") or {}
    asked = quantity.requests({**(resources.get("limits") or {}), **(resources.get("requests") or {})})
    if any("gpu" in name for name in asked):
        # Commands that read no such pod start without it.
        from atoll.model import gpu_shares

        add(asked, gpu_shares.of_container(asked))
    return asked


def _raise_to(vector: Vector, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if amount > vector.get(name, 0):
            vector[name] = amount


def describe(vector: Mapping[str, int]) -> str:
    """`cpu 4, nvidia.com/gpu 8`: for messages to people."""
    return ", ".join(f"{name} {quantity.format_units(name, vector[name])}" for name in sorted(vector)) or "nothing"
