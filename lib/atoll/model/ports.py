"""Ports of nodes that pods take for themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

HostPort = tuple[str, str, int]
"""(address, protocol, port); an empty address stands for all of the node."""
_ANY = ("", "0.0.0.0", "::")


def of(pod_spec: Mapping[str, Any]) -> list[HostPort]:
    """The ports that a pod takes on its node, sorted, each once; malformed ones are left out.

    As kube-scheduler counts: those of containers and of sidecars; with hostNetwork every port of a container is one.
    """
    sidecars = [each for each in _mappings(pod_spec.get("initContainers")) if each.get("restartPolicy") == "Always"]
    found: set[HostPort] = set()
    for container in (*sidecars, *_mappings(pod_spec.get("containers"))):
        for port in _mappings(container.get("ports")):
            number = port.get("hostPort") or (pod_spec.get("hostNetwork") is True and port.get("containerPort"))
            if isinstance(number, int) and number > 0:
                address = str(port.get("hostIP") or "")
                found.add(("" if address in _ANY else address, str(port.get("protocol") or "TCP"), number))
    return sorted(found)


def conflict(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Whether a port is wanted that is taken: the same of one address, or of all and of any."""
    there = list(taken)
    return any(
        (protocol, port) == (other, number) and (address == place or not address or not place)
        for address, protocol, port in wanted
        for place, other, number in there
    )


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
