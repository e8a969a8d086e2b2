"""What pods ask of their node that only some placers look at.

The figures of a member tell of resources, selectors, required node affinity, taints and HyperNodes. What else a pod
insists on is a need: a gang that has one goes only where who places honours it; what is in `HONOURED` our own scheduler
does, but the figures of its member don't tell whether it is met. What a pod merely
prefers is no need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

Json = Mapping[str, Any]
HAMI: Final = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
VOLCANO: Final = "volcano.sh/vgpu-memory", "volcano.sh/vgpu-memory-percentage", "volcano.sh/vgpu-cores"
VOLCANO_CARDS: Final = "volcano.sh/vgpu-number"
KOORDINATOR_OTHERS: Final = "koordinator.sh/rdma", "koordinator.sh/fpga"


class Need(StrEnum):
    """What a placer must look at."""

    POD_AFFINITY = "pod-affinity"
    TOPOLOGY_SPREAD = "topology-spread"
    HOST_PORTS = "host-ports"
    RESOURCE_CLAIMS = "resource-claims"
    VOLUMES = "volumes"
    HAMI = "hami-gpu-shares"
    VOLCANO_VGPU = "volcano-vgpu"
    KOORDINATOR_DEVICES = "koordinator-devices"


class Asked(NamedTuple):
    """A need, and what asks for it."""

    need: Need
    field: str
    """Below the pod's spec."""


HONOURED = (
    Need.HAMI,
    Need.HOST_PORTS,
    Need.KOORDINATOR_DEVICES,
    Need.POD_AFFINITY,
    Need.RESOURCE_CLAIMS,
    Need.TOPOLOGY_SPREAD,
)
"""Needs that Atoll's own placer looks at."""
OF_A_MEMBER = (Need.VOLUMES,)
"""Needs of which only the member knows whether they are met already: a claim may be bound, to a volume of no zone."""


def of(pod_specs: Iterable[Json]) -> list[str]:
    """The needs of a gang with these pods, by which members are chosen; sorted."""
    return sorted({each.need for spec in pod_specs for each in asked(spec) if each.need not in OF_A_MEMBER})


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_SHARES: Final = {
    **dict.fromkeys(HAMI, Need.HAMI),
    **dict.fromkeys((*VOLCANO, VOLCANO_CARDS), Need.VOLCANO_VGPU),
    **dict.fromkeys(KOORDINATOR_OTHERS, Need.KOORDINATOR_DEVICES),
}
_CONTAINERS = ("initContainers", "containers")


def asked(pod_spec: Json) -> Iterator[Asked]:
    """What a pod insists on. Malformed parts ask for nothing: readers of the rest name the problem."""
    affinity = _mapping(pod_spec.get("affinity"))
    for kind in ("podAffinity", "podAntiAffinity"):
        if _mapping(affinity.get(kind)).get(_REQUIRED):
            yield Asked(Need.POD_AFFINITY, f"affinity.{kind}.{_REQUIRED}")
    for index, each in enumerate(_list(pod_spec.get("topologySpreadConstraints"))):
        if _mapping(each).get("whenUnsatisfiable") == "DoNotSchedule":
            yield Asked(Need.TOPOLOGY_SPREAD, f"topologySpreadConstraints[{index}]")
    host_network = pod_spec.get("hostNetwork") is True
    for kind in _CONTAINERS:
        for index, container in enumerate(_list(pod_spec.get(kind))):
            for number, port in enumerate(_list(_mapping(container).get("ports"))):
                if _mapping(port).get("hostPort") or host_network:
                    yield Asked(Need.HOST_PORTS, f"{kind}[{index}].ports[{number}].hostPort")
            for name in _mapping(_mapping(_mapping(container).get("resources")).get("limits")):
                if name in _SHARES:
                    yield Asked(_SHARES[name], f"{kind}[{index}].resources.limits.{name}")
    if _list(pod_spec.get("resourceClaims")):
        yield Asked(Need.RESOURCE_CLAIMS, "resourceClaims")
    for index, volume in enumerate(_list(pod_spec.get("volumes"))):
        for kind in ("persistentVolumeClaim", "ephemeral"):
            if _mapping(volume).get(kind):
                yield Asked(Need.VOLUMES, f"volumes[{index}].{kind}")


def device_claims(pod: Json) -> list[str]:
    """`claims/NAME` or `templates/NAME` of each ResourceClaim of a pod, in order."""
    found = []
    for each in _list(pod.get("resourceClaims")):
        for field, kind in (("resourceClaimName", "claims"), ("resourceClaimTemplateName", "templates")):
            if isinstance(name := _mapping(each).get(field), str) and name:
                found.append(f"{kind}/{name}")
    return found


def _mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
