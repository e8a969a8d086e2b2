"""One real node: the files of its kubelet, containerd and network, and the process that runs them."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from atoll.local.certificates import Authority, write_private
from atoll.local.cluster import ClusterHandle
from atoll.local.processes import ProcessSpec
from atoll.local.realnodes import init
from atoll.local.realnodes.images import SANDBOX
from atoll.local.realnodes.leftovers import FOLDER
from atoll.local.realnodes.network import Network
from atoll.local.realnodes.requirements import CNI_PLUGINS, search_path

LABEL = "atoll.sh/node"
"""Label of real nodes, with value `real`."""
CDI = "/var/run/cdi"
"""Folder in which a node's drivers of devices say what containers get."""
_HEALTH_PORT = 10248


@dataclass(frozen=True)
class RealNode:
    """What tells one node from the others."""

    name: str
    #: in its member, from 0
    index: int
    network: Network
    #: as a kubelet takes it
    cgroup: str
    lease_seconds: int
    #: of a containerd that knows CDI; empty for the machine's own one
    runtime: Sequence[Path] = ()
    #: thousandths of cores that it keeps from pods
    reserved: int = 0

    @property
    def address(self) -> str:
        """Its InternalIP."""
        return self.network.node(self.index)


def prepare(
    node: RealNode, directory: Path, member: ClusterHandle, kubelet: Path, authority: Authority, images: Sequence[Path]
) -> ProcessSpec:
    """Write the node's files below the federation's `directory` and return what to run.

    `authority` signs the certificate with which the kubelet registers the node, and the one with which it serves.
    """
    folder = directory / FOLDER / node.name
    folder.mkdir(parents=True)
    certificate, key = authority.issue(
        f"system:node:{node.name}", also=[node.name], addresses=[node.address], groups=["system:nodes"]
    )
    kubeconfig = folder / "kubeconfig"
    _write_kubeconfig(kubeconfig, member, certificate, key)
    _write_yaml(folder / "kubelet.yaml", _kubelet(node, folder, authority, certificate, key))
    (folder / "resolv.conf").touch()
    network = folder / "cni"
    network.mkdir()
    (network / "10-bridge.conflist").write_text(json.dumps(_network(node, folder)))
    (folder / "containerd.toml").write_text(_containerd(folder, cdi=bool(node.runtime)))
    settings = {
        "images": [str(each) for each in images],
        "containerd": ["containerd", f"--config={folder / 'containerd.toml'}"],
        "kubelet": [
            str(kubelet),
            f"--config={folder / 'kubelet.yaml'}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={init.KUBELET_FOLDER}",
            f"--cert-dir={init.KUBELET_FOLDER}/pki",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            f"--node-labels={LABEL}=real",
        ],
    }
    (folder / "node.json").write_text(json.dumps(settings))
    return ProcessSpec(
        name=node.name,
        argv=[
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            # Whatever ends this process ends the first one of the namespace, and with that all others.
            "--kill-child",
            "--mount-proc",
            sys.executable,
            "-S",
            "-E",
            str(init.__file__),
            str(folder),
        ],
        env={"PATH": os.pathsep.join([*map(str, node.runtime), search_path()])},
        ready_url=f"http://{node.address}:{_HEALTH_PORT}/healthz",
        once=True,
    )


def containerd_socket(pid: int) -> Path:
    """Where the containerd of a running node is reached from outside; `pid` is of the process that `prepare` names."""
    return Path(f"/proc/{pid}/root{init.SOCKET}")


def _kubelet(node: RealNode, folder: Path, authority: Authority, certificate: Path, key: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzBindAddress": node.address,
        "healthzPort": _HEALTH_PORT,
        "readOnlyPort": 0,
        "tlsCertFile": str(certificate),
        "tlsPrivateKeyFile": str(key),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority.path)},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [node.network.gateway],
        "clusterDomain": "cluster.local",
        # The machine's names are none of the pods'.
        "resolvConf": str(folder / "resolv.conf"),
        "containerRuntimeEndpoint": f"unix://{init.SOCKET}",
        "volumePluginDir": str(folder / "volume-plugins"),
        "nodeLeaseDurationSeconds": node.lease_seconds,
        "cgroupRoot": node.cgroup,
        "cgroupDriver": "cgroupfs",
        # Reservations and classes of service would need cgroups that this machine's users may lack.
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        **({"systemReserved": {"cpu": f"{node.reserved}m"}} if node.reserved else {}),
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        # Images can't be fetched again, and the disk is the machine's.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
    }


def _network(node: RealNode, folder: Path) -> dict[str, Any]:
    first, last = node.network.pods(node.index)
    # Whoever plays kube-proxy on the bridge gets the packets that pods send to Services.
    services = {"dst": "10.96.0.0/16", "gw": node.network.gateway}
    scope = {"subnet": str(node.network.subnet), "rangeStart": first, "rangeEnd": last, "gateway": node.network.gateway}
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": node.network.bridge,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[scope]],
                    "routes": [services],
                    "dataDir": str(folder / "addresses"),
                },
            }
        ],
    }


def _containerd(folder: Path, *, cdi: bool) -> str:
    cri = "io.containerd.grpc.v1.cri"
    devices = f'enable_cdi = true\ncdi_spec_dirs = ["{CDI}"]' if cdi else ""
    return f"""version = 2
root = "{folder / "containerd"}"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
address = "{init.SOCKET}"
[plugins."{cri}"]
sandbox_image = "{SANDBOX}"
# Below a limit that this process can't lift, every sandbox would fail otherwise.
restrict_oom_score_adj = true
{devices}
[plugins."{cri}".containerd]
snapshotter = "overlayfs"
[plugins."{cri}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."{cri}".cni]
bin_dir = "{CNI_PLUGINS}"
conf_dir = "{folder / "cni"}"
"""


def _write_kubeconfig(path: Path, member: ClusterHandle, certificate: Path, key: Path) -> None:
    authority = base64.b64encode(member.ca.encode()).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "node",
        "clusters": [
            {"name": "member", "cluster": {"server": member.url, "certificate-authority-data": authority}},
        ],
        "users": [{"name": "node", "user": {"client-certificate": str(certificate), "client-key": str(key)}}],
        "contexts": [{"name": "node", "context": {"cluster": "member", "user": "node"}}],
    }
    write_private(path, yaml.safe_dump(content, sort_keys=False).encode())


def _write_yaml(path: Path, content: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
