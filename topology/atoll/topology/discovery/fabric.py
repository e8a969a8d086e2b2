"""Domains from the links of a fabric: who is connected to which switch, as InfiniBand's tools and managers say it.

Two nodes are as near as the lowest switches that join them: the domains of tier 1 are what leaf switches join (rails
of one node join their leaves), those of tier 2 what the switches above them join as well, and so on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atoll.topology.discovery.domains import Found, compressed, named

_BLOCK = re.compile(r'^(?P<kind>Switch|Ca|Rt)\s+\d+\s+"(?P<guid>[^"]+)"\s*#\s*"(?P<name>[^"]*)"')
_PORT = re.compile(r'^\[\d+\](?:\([0-9a-f]+\))?\s+"(?P<peer>[^"]+)"\[\d+\]')


@dataclass
class Links:
    """Who is connected to whom; names as the fabric says them."""

    nodes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Node -> switches."""
    switches: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Switch -> switches."""

    def join(self, one: str, other: str) -> None:
        """Two switches are connected."""
        self.switches[one].add(other)
        self.switches[other].add(one)


def of_ibnetdiscover(text: str) -> Links:
    """The links in the output of `ibnetdiscover`; a host's name is the first word of its adapter's description.

    Raises:
        ValueError: there is no switch in it.
    """
    names: dict[str, str] = {}
    kinds: dict[str, str] = {}
    peers: list[tuple[str, str]] = []
    here = ""
    for line in text.splitlines():
        if block := _BLOCK.match(line):
            here, words = block["guid"], block["name"].split()
            kinds[here] = block["kind"]
            names[here] = (words[0] if block["kind"] == "Ca" and words else block["name"]) or here
        elif (port := _PORT.match(line)) and here:
            peers.append((here, port["peer"]))
    if "Switch" not in kinds.values():
        raise ValueError("no switch is in it; give the output of ibnetdiscover as it is")
    links = Links()
    for one, other in peers:
        pair = {kinds.get(one), kinds.get(other)}
        if pair == {"Switch"}:
            links.join(names[one], names[other])
        elif pair == {"Switch", "Ca"}:
            node, switch = (one, other) if kinds[one] == "Ca" else (other, one)
            links.nodes[names[node]].add(names[switch])
    return links


def of_ufm(ports: Iterable[Mapping[str, Any]]) -> Links:
    """The links in the list of ports that UFM's `/ufmRest/resources/ports` gives."""
    links = Links()
    for port in ports:
        system, peer = port.get("system_name"), port.get("peer_node_name")
        if not system or not peer:
            continue
        if "Computer" in str(port.get("description") or ""):
            links.nodes[str(system)].add(str(peer))
        elif "Computer" not in str(port.get("peer_description") or port.get("peer_node_description") or ""):
            links.join(str(system), str(peer))
    return Links(links.nodes, {switch: peers for switch, peers in links.switches.items() if switch not in links.nodes})


def domains(links: Links, known: Iterable[str], *, kind: str = "fabric") -> list[Found]:
    """The trees that links make of these nodes.

    Args:
        links: of the fabric, which may have other hosts as well.
        known: names of the cluster's nodes; a fabric may know them by the first part of theirs.
        kind: the first part of the names of domains.
    """
    short = {name.partition(".")[0]: name for name in known}
    nodes = {
        short[host.partition(".")[0]]: found for host, found in links.nodes.items() if host.partition(".")[0] in short
    }
    levels = _levels(nodes.values(), links.switches)
    below = [Found(node, (node,)) for node in sorted(nodes)]
    for tier, switches in enumerate(levels, start=1):
        below = _joined(below, tier, switches, nodes, links, kind)
    return [compressed(each) for each in below if levels]


def _levels(leaves: Iterable[set[str]], switches: Mapping[str, set[str]]) -> list[set[str]]:
    """Switches by their distance from nodes."""
    level = {switch for found in leaves for switch in found}
    seen: set[str] = set()
    levels = []
    while level:
        levels.append(level)
        seen |= level
        level = {peer for switch in level for peer in switches.get(switch, ())} - seen
    return levels


def _joined(
    below: Sequence[Found], tier: int, switches: set[str], nodes: Mapping[str, set[str]], links: Links, kind: str
) -> list[Found]:
    """The domains of a tier: those below that switches of this level join."""
    reach: dict[str, set[int]] = defaultdict(set)
    for number, domain in enumerate(below):
        for switch in _reached(domain, tier, nodes, links) & switches:
            reach[switch].add(number)
    parent = list(range(len(below)))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    for numbers in reach.values():
        first, *rest = sorted(numbers)
        for number in rest:
            low, high = sorted((root(first), root(number)))
            parent[high] = low
    groups: dict[int, list[int]] = defaultdict(list)
    for number in range(len(below)):
        groups[root(number)].append(number)
    by: dict[int, str] = {}
    for switch in sorted(reach):
        for number in reach[switch]:
            by.setdefault(number, switch)
    found = []
    for group in groups.values():
        inside = [below[number] for number in group]
        via = min((by[number] for number in group if number in by), default="")
        if not via:
            found += inside
            continue
        members = tuple(sorted(node for each in inside for node in each.nodes))
        children = () if tier == 1 else tuple(inside)
        found.append(Found(named(kind, f"t{tier}", via), members, children))
    return found


def _reached(domain: Found, tier: int, nodes: Mapping[str, set[str]], links: Links) -> set[str]:
    """Switches of at most this level above the nodes of a domain."""
    reached = {switch for node in domain.nodes for switch in nodes[node]}
    for _ in range(tier - 1):
        reached |= {peer for switch in reached for peer in links.switches.get(switch, ())}
    return reached
