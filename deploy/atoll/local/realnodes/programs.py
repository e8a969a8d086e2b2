"""The programs of a real node that no Debian package has: kubelet, and CoreDNS for its cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from atoll.local import binaries, download
from atoll.local.binaries import Report, Tool

COREDNS_MODULE = Path(__file__).parent / "coredns"
KUBELET = Tool("kubelet", "k8s.io/kubernetes/cmd/kubelet", ("--version",), (1, 34))
COREDNS = Tool("coredns", "atoll.sh/local/coredns", ("-version",), (1, 11))


@dataclass(frozen=True)
class NodePrograms:
    """Paths of the programs."""

    kubelet: Path
    coredns: Path


def ensure(report: Report | None = None) -> NodePrograms:
    """Return the programs; download or build what is missing, as `binaries.ensure` does.

    Raises:
        BinariesError: one can be neither found, nor downloaded, nor built.
    """
    kubelet = binaries.obtain([KUBELET], binaries.MODULE, os.environ, report=report)
    coredns = binaries.obtain([COREDNS], COREDNS_MODULE, os.environ, report=report, fetch=_not_published)
    return NodePrograms(kubelet["kubelet"], coredns["coredns"])


def _not_published(name: str, target: Path, versions: dict[str, str]) -> None:
    raise download.Unavailable("its releases have more in them than is wanted", unreachable=True)
