"""The network of one member's real nodes: a bridge with an address for each node and a range for its pods.

Pods reach each other, the nodes and the cluster's DNS. They have no other route: members don't reach each other's pods,
and nothing leaves the machine.
"""

from __future__ import annotations

import ipaddress
import json
import os
import random
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll.local.processes import start_ticks
from atoll.local.realnodes.requirements import search_path
from atoll.local.realnodes.tag import tag

_SPACE = ipaddress.IPv4Network("100.64.0.0/10")
"""Shared address space: neither the simulated pods' (10.0.0.0/8) nor a usual office's or container engine's."""
_PREFIX = 20
MOST_NODES = 15
"""Of a member: each takes one of the 16 blocks of its network, the first is for the nodes' own addresses."""


@dataclass(frozen=True)
class Network:
    """Addresses of one member."""

    bridge: str
    subnet: ipaddress.IPv4Network

    @property
    def gateway(self) -> str:
        """Address of the bridge itself, where the cluster's DNS listens."""
        return str(self.subnet[1])

    def node(self, index: int) -> str:
        """Address of a node, its InternalIP."""
        return str(self.subnet[2 + index])

    def pods(self, index: int) -> tuple[str, str]:
        """First and last address of a node's pods."""
        block = list(self.subnet.subnets(new_prefix=24))[1 + index]
        return str(block[1]), str(block[254])


def create(directory: Path, index: int, nodes: int) -> Network:
    """Make the bridge of member number `index` of the federation in `directory`, with the addresses of its nodes."""
    network = Network(bridge=f"at{tag(directory)}-{index}", subnet=_free_subnet())
    _ip("link", "add", network.bridge, "type", "bridge")
    # Whoever finds it later can tell whether its federation still runs.
    _ip("link", "set", network.bridge, "alias", f"{os.getpid()} {start_ticks(os.getpid())} {directory}")
    length = network.subnet.prefixlen
    for address in (network.gateway, *(network.node(each) for each in range(nodes))):
        _ip("addr", "add", f"{address}/{length}", "dev", network.bridge)
    _ip("link", "set", network.bridge, "up")
    return network


def orphans() -> set[Path]:
    """Folders of federations that have bridges and whose process has ended."""
    found = set()
    for link in _bridges():
        owner = re.fullmatch(r"(\d+) (\d+) (/.*)", link.get("ifalias") or "")
        if owner and re.fullmatch(r"at[0-9a-f]{8}-\d+", link["ifname"]) and start_ticks(int(owner[1])) != int(owner[2]):
            found.add(Path(owner[3]))
    return found


def remove(directory: Path) -> None:
    """Remove all bridges of the federation in `directory`, and their ports."""
    prefix = f"at{tag(directory)}-"
    for link in _bridges():
        if link["ifname"].startswith(prefix):
            _ip("link", "delete", link["ifname"])


def _bridges() -> list[dict[str, Any]]:
    # It prints empty objects for links that are no bridges.
    links: list[dict[str, Any]] = json.loads(_ip("-json", "link", "show", "type", "bridge") or "[]")
    return [link for link in links if "ifname" in link]


def _free_subnet() -> ipaddress.IPv4Network:
    used = [
        ipaddress.IPv4Interface(f"{address['local']}/{address['prefixlen']}").network
        for link in json.loads(_ip("-json", "-4", "addr", "show") or "[]")
        for address in link.get("addr_info", ())
    ]
    candidates = list(_SPACE.subnets(new_prefix=_PREFIX))
    # Others may choose at this moment as well.
    random.shuffle(candidates)
    for each in candidates:
        if not any(each.overlaps(other) for other in used):
            return each
    raise RuntimeError(f"no /{_PREFIX} of {_SPACE} is free")


def _ip(*words: str) -> str:
    run = subprocess.run(
        ["ip", *words], capture_output=True, text=True, check=False, env={"PATH": search_path(), "LC_ALL": "C"}
    )
    if run.returncode != 0:
        raise RuntimeError(f"`ip {' '.join(words)}` failed: {run.stderr.strip()}")
    return run.stdout
