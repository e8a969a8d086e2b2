"""The programs of a real node that no Debian package has: kubelet, CoreDNS for its cluster, a containerd with CDI."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from atoll.local import binaries, download
from atoll.local.binaries import Report, Tool

COREDNS_MODULE = Path(__file__).parent / "coredns"
CONTAINERD_MODULE = Path(__file__).parent / "containerd"
KUBELET = Tool("kubelet", "k8s.io/kubernetes/cmd/kubelet", ("--version",), (1, 34))
COREDNS = Tool("coredns", "atoll.sh/local/coredns", ("-version",), (1, 11))
_CONTAINERD = "github.com/containerd/containerd/cmd"
CONTAINERD = (
    Tool("containerd", f"{_CONTAINERD}/containerd", ("--version",), (1, 7)),
    Tool("containerd-shim-runc-v2", f"{_CONTAINERD}/containerd-shim-runc-v2", ("-v",), (1, 7)),
)
"""Versions with CDI, by which drivers of devices say what containers get."""


@dataclass(frozen=True)
class NodePrograms:
    """Paths of the programs."""

    kubelet: Path
    coredns: Path


def ensure(report: Report | None = None) -> NodePrograms:
    """Return the programs; download or build missing ones, as `binaries.ensure` does.

    Raises:
        BinariesError: one can be neither found, nor downloaded, nor built.
    """
    kubelet = binaries.obtain([KUBELET], binaries.MODULE, os.environ, report=report)
    coredns = binaries.obtain([COREDNS], COREDNS_MODULE, os.environ, report=report, fetch=_not_published)
    return NodePrograms(kubelet["kubelet"], coredns["coredns"])


def with_cdi(report: Report | None = None) -> list[Path]:
    """Return folders with a containerd that knows CDI and its shim, as `ensure` does; Debian 12 has an older one.

    Raises:
        BinariesError: one can be neither found nor built.
    """
    found = binaries.obtain(CONTAINERD, CONTAINERD_MODULE, os.environ, report=report, fetch=_not_published)
    return sorted({path.parent for path in found.values()})


def _not_published(name: str, target: Path, versions: dict[str, str]) -> None:
    raise download.Unavailable("its releases have more in them than is wanted", unreachable=True)
