"""The DNS of one member with real nodes: CoreDNS, for names of Services and pods and no others."""

from __future__ import annotations

from pathlib import Path

from atoll.local.cluster import ClusterHandle
from atoll.local.processes import ProcessSpec
from atoll.local.realnodes.leftovers import FOLDER
from atoll.local.realnodes.network import Network

_READY_PORT = 8181


def prepare(directory: Path, member: ClusterHandle, coredns: Path, network: Network) -> ProcessSpec:
    """Write its configuration below the federation's `directory` and return what to run."""
    folder = directory / FOLDER
    folder.mkdir(exist_ok=True)
    corefile = folder / f"{member.name}.Corefile"
    corefile.write_text(
        f""".:53 {{
    bind {network.gateway}
    ready {network.gateway}:{_READY_PORT}
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {member.kubeconfig} {member.name}
        ttl 1
    }}
}}
"""
    )
    return ProcessSpec(
        name=f"{member.name}-dns",
        argv=[str(coredns), "-conf", str(corefile)],
        ready_url=f"http://{network.gateway}:{_READY_PORT}/ready",
    )
