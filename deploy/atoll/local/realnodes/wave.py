"""All real nodes of a federation, prepared in one go."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from atoll.local.certificates import Authority
from atoll.local.cluster import ClusterHandle
from atoll.local.layout import FederationConfig
from atoll.local.processes import ProcessSpec
from atoll.local.realnodes import cgroups, dns, images, leftovers, network, node, programs, requirements
from atoll.local.realnodes.leftovers import FOLDER
from atoll.local.realnodes.node import RealNode


class RealNodes:
    """The real nodes and the DNS of all members that have some."""

    def __init__(
        self,
        config: FederationConfig,
        directory: Path,
        members: Mapping[str, ClusterHandle],
        authority: Authority,
        report: Callable[[str], None],
    ) -> None:
        """No I/O happens here."""
        self._config, self._directory, self._members = config, directory, members
        self._authority, self._report = authority, report

    def prepare(self) -> list[ProcessSpec]:
        """Make bridges, cgroups and files; return what to run. Blocks, for minutes where programs or images are built.

        Raises:
            Missing: the machine can't run real nodes.
            BinariesError: a program can't be had.
            ImageError: an image can't be built.
        """
        offered = (os.cpu_count() or 1) * 1000
        for each in self._config.members:
            if (each.real_cpu or 0) > offered:
                raise requirements.Missing(
                    f"member {each.name}: real_cpu is {each.real_cpu}, and this machine has {offered}: lower it"
                )
        requirements.check()
        leftovers.reap()
        found = programs.ensure(report=lambda _: None)
        archives = [*images.builtin(), *(images.build(each, self._report)[1] for each in self._config.images)]
        runtime = programs.with_cdi(lambda _: None) if any(each.cdi for each in self._config.members) else []
        # Before anything else is made, so that whoever cleans up knows that there is something.
        (self._directory / FOLDER).mkdir()
        specs = []
        for number, member in enumerate(self._config.members):
            if not member.real_nodes:
                continue
            handle = self._members[member.name]
            net = network.create(self._directory, number, member.real_nodes)
            specs.append(dns.prepare(self._directory, handle, found.coredns, net))
            for index, name in enumerate(member.real_node_names()):
                cgroup = cgroups.create(self._directory, name)
                made = RealNode(
                    name, index, net, cgroup, member.lease_seconds,
                    runtime if member.cdi else (), offered - (member.real_cpu or offered),
                )  # fmt: skip
                specs.append(node.prepare(made, self._directory, handle, found.kubelet, self._authority, archives))
        return specs
