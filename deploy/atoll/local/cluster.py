"""The command lines of one cluster: API server, controller manager, kwok.

Every flag here is one that a local federation needs and a default does not give.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from atoll.kube.transport import ApiServer
from atoll.local import kubelets
from atoll.local.binaries import Binaries
from atoll.local.certificates import Authority, write_private
from atoll.local.layout import RAISED_LIMITS, Kubernetes, Program
from atoll.local.processes import ProcessSpec
from atoll.model import keys

_DATA = Path(__file__).parent
MEMBER_CONTROLLERS = (
    # What every cluster has, so that nothing is true here alone; but no cloud, and kwok gives pods their addresses.
    "*",
    "-cloud-node-lifecycle-controller",
    "-node-ipam-controller",
    "-node-route-controller",
    "-service-lb-controller",
    # They would look for metrics, certificates and storage versions that nobody has.
    "-horizontal-pod-autoscaler-controller",
    "-certificatesigningrequest-signing-controller",
    "-certificatesigningrequest-approving-controller",
    "-certificatesigningrequest-cleaner-controller",
)


@dataclass(frozen=True)
class ClusterHandle:
    """How to reach one running cluster as its administrator."""

    name: str
    url: str
    kubeconfig: Path
    #: One JSON object per line, microsecond time stamps.
    audit_log: Path
    #: PEM of the authority that signed the serving certificate.
    ca: str = field(repr=False)
    token: str = field(repr=False)

    async def connect(self) -> ApiServer:
        """Return a client; close it, or use it as an async context manager."""
        return await ApiServer.from_kubeconfig(self.kubeconfig, user_agent="atoll-local")


@dataclass(frozen=True)
class Keys:
    """Files that all clusters of a federation share."""

    authority: Authority
    serving: tuple[Path, Path]
    proxy: tuple[Path, Path]
    #: of the store, which signs for nobody else; and the certificate of the store and of who may read it
    etcd_authority: Authority
    etcd: tuple[Path, Path]
    #: (private, public)
    service_account: tuple[Path, Path]
    #: of the kubelets of real nodes and of API servers as their clients; None: there are no real nodes
    nodes: Authority | None = None


def at(address: str, port: int) -> str:
    """`address:port` as a URL has it."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def new_handle(
    name: str, directory: Path, logs: Path, port: int, authority: Authority, address: str = "127.0.0.1"
) -> ClusterHandle:
    """Choose a credential for a cluster and write its kubeconfig."""
    directory.mkdir(parents=True, exist_ok=True)
    handle = ClusterHandle(
        name=name,
        url=f"https://{at(address, port)}",
        kubeconfig=directory / "kubeconfig",
        audit_log=logs / f"{name}-audit.log",
        ca=authority.pem.decode(),
        token=secrets.token_urlsafe(32),
    )
    write_kubeconfig(handle, handle.kubeconfig)
    return handle


def write_kubeconfig(handle: ClusterHandle, path: Path, *, url: str | None = None) -> None:
    """Write an administrator's kubeconfig; `url` is where a proxy stands in front."""
    name = handle.name
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": url or handle.url,
                    "certificate-authority-data": base64.b64encode(handle.ca.encode()).decode(),
                },
            }
        ],
        "users": [{"name": f"{name}-admin", "user": {"token": handle.token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": f"{name}-admin"}}],
    }
    write_private(path, yaml.safe_dump(content, sort_keys=False).encode())


def etcd(
    binaries: Binaries, keys: Keys, data: Path, ports: tuple[int, int, int], address: str = "127.0.0.1"
) -> ProcessSpec:
    """Run one store for all clusters, each under a prefix of its own. Other users of the machine reach its ports (gRPC,
    HTTP, peers), and it answers whoever has its own certificate.
    """
    client, http, peer = (f"https://{at(address, port)}" for port in ports)
    certificate, key = keys.etcd
    return ProcessSpec(
        name="etcd",
        argv=[
            str(binaries.etcd),
            "--name=atoll",
            f"--data-dir={data}",
            f"--listen-client-urls={client}",
            # Where both share a port, Go's HTTP server carries gRPC, which costs more of a processor.
            f"--listen-client-http-urls={http}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=atoll={peer}",
            *(
                each
                for kind in ("", "peer-")
                for each in (
                    f"--{kind}cert-file={certificate}",
                    f"--{kind}key-file={key}",
                    f"--{kind}trusted-ca-file={keys.etcd_authority.path}",
                )
            ),
            "--client-cert-auth",
            "--peer-client-cert-auth",
            # Its content dies with the federation: durability would only cost time.
            "--unsafe-no-fsync",
            f"--quota-backend-bytes={8 << 30}",
            # A single voter waits for up to one election timeout before it serves, and wakes up for each heartbeat.
            "--heartbeat-interval=50",
            "--election-timeout=500",
            "--log-level=warn",
        ],
        ready_url=f"{http}/health",
        ready_ca=keys.etcd_authority.path,
        ready_certificate=keys.etcd,
        disposable=True,
    )


def api_server(
    binaries: Binaries,
    handle: ClusterHandle,
    keys: Keys,
    directory: Path,
    etcd_port: int,
    kubernetes: Kubernetes,
    *,
    raised_limits: bool = False,
    real_nodes: bool = False,
) -> ProcessSpec:
    """Run kube-apiserver with everything that Atoll's own servers need from it.

    It admits as many requests at once as Kubernetes ships it with; with `raised_limits`, more than a benchmark sends.
    With `real_nodes`, kubelets are its clients and it is theirs, with certificates of `keys.nodes`.
    """
    tokens = directory / "tokens.csv"
    write_private(tokens, f'{handle.token},admin,admin,"system:masters"\n'.encode())
    address = str(urlsplit(handle.url).hostname)
    issuer = "https://kubernetes.default.svc.cluster.local"
    argv = [
        str(binaries.kube_apiserver),
        f"--etcd-servers=https://{at(address, etcd_port)}",
        f"--etcd-cafile={keys.etcd_authority.path}",
        f"--etcd-certfile={keys.etcd[0]}",
        f"--etcd-keyfile={keys.etcd[1]}",
        f"--etcd-prefix=/{handle.name}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={handle.url.rsplit(':', 1)[1]}",
        f"--tls-cert-file={keys.serving[0]}",
        f"--tls-private-key-file={keys.serving[1]}",
        f"--cert-dir={directory}",
        f"--token-auth-file={tokens}",
        *(_kubelets(keys) if real_nodes and keys.nodes else ("--authorization-mode=RBAC",)),
        f"--service-account-issuer={issuer}",
        f"--api-audiences={issuer}",
        f"--service-account-signing-key-file={keys.service_account[0]}",
        f"--service-account-key-file={keys.service_account[1]}",
        f"--service-cluster-ip-range={'fd00:10:96::/112' if ':' in address else '10.96.0.0/16'}",
        # Aggregated APIs are reached through ExternalName Services, which only the default
        # resolver follows: --enable-aggregator-routing must stay off.
        f"--requestheader-client-ca-file={keys.authority.path}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={keys.proxy[0]}",
        f"--proxy-client-key-file={keys.proxy[1]}",
        *(_limits(*RAISED_LIMITS) if raised_limits else ()),
        f"--audit-policy-file={_DATA / 'audit-policy.yaml'}",
        f"--audit-log-path={handle.audit_log}",
        # Megabytes: a log that rotates would lose the start of a measurement.
        "--audit-log-maxsize=1000000",
        # A loopback address is not allowed in the endpoints that this would write.
        "--endpoint-reconciler-type=none",
        "--profiling=false",
        *_behaviour(kubernetes, "apiserver"),
    ]
    return ProcessSpec(
        name=f"{handle.name}-apiserver",
        argv=argv,
        # Several servers share few cores here, and each collection would stall all that its server answers: they are
        # rarer than Go's default has them, for some 200 MiB more each.
        env={"GOGC": os.environ.get("GOGC", "400")},
        ready_url=f"{handle.url}/readyz",
        ready_ca=keys.authority.path,
        ready_token=handle.token,
        disposable=True,
    )


def _behaviour(kubernetes: Kubernetes, program: Program) -> list[str]:
    gates = ",".join(f"{name}={str(on).lower()}" for name, on in kubernetes.feature_gates.items())
    return [
        *([f"--emulated-version={kubernetes.version}"] if kubernetes.version else ()),
        *([f"--feature-gates={gates}"] if gates else ()),
        *kubernetes.flags.get(program, ()),
    ]


def _kubelets(keys: Keys) -> list[str]:
    assert keys.nodes is not None
    certificate, key = keys.nodes.issue("kube-apiserver-kubelet-client", groups=["system:masters"])
    return [
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={keys.nodes.path}",
        f"--kubelet-certificate-authority={keys.nodes.path}",
        f"--kubelet-client-certificate={certificate}",
        f"--kubelet-client-key={key}",
        # No name of a node is known to the machine's resolver.
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _limits(reads: int, writes: int) -> list[str]:
    return [f"--max-requests-inflight={reads}", f"--max-mutating-requests-inflight={writes}"]


def controller_manager(
    binaries: Binaries,
    handle: ClusterHandle,
    keys: Keys,
    port: int,
    kubernetes: Kubernetes,
    controllers: Sequence[str],
    flags: Sequence[str] = (),
) -> ProcessSpec:
    """Run some of Kubernetes' controllers, such as MEMBER_CONTROLLERS."""
    address = str(urlsplit(handle.url).hostname)
    return ProcessSpec(
        name=f"{handle.name}-controller-manager",
        argv=[
            str(binaries.kube_controller_manager),
            f"--kubeconfig={handle.kubeconfig}",
            f"--controllers={','.join(controllers)}",
            f"--service-account-private-key-file={keys.service_account[0]}",
            f"--root-ca-file={keys.authority.path}",
            "--leader-elect=false",
            f"--bind-address={address}",
            f"--secure-port={port}",
            f"--tls-cert-file={keys.serving[0]}",
            f"--tls-private-key-file={keys.serving[1]}",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            "--profiling=false",
            *flags,
            *_behaviour(kubernetes, "controller-manager"),
        ],
        ready_url=f"https://{at(address, port)}/healthz",
        ready_ca=keys.authority.path,
        disposable=True,
    )


def scheduler(binaries: Binaries, handle: ClusterHandle, keys: Keys, port: int, kubernetes: Kubernetes) -> ProcessSpec:
    """Run kube-scheduler as Kubernetes ships it: it places the pods of `default-scheduler`."""
    address = str(urlsplit(handle.url).hostname)
    return ProcessSpec(
        name=f"{handle.name}-scheduler",
        argv=[
            str(binaries.kube_scheduler),
            f"--kubeconfig={handle.kubeconfig}",
            # Its Lease tells others that it is there. A busy machine is late; whoever loses the Lease exits. A renewal
            # costs a store and a server that have little else to do.
            "--leader-elect-lease-duration=120s",
            "--leader-elect-renew-deadline=90s",
            "--leader-elect-retry-period=15s",
            f"--bind-address={address}",
            f"--secure-port={port}",
            f"--tls-cert-file={keys.serving[0]}",
            f"--tls-private-key-file={keys.serving[1]}",
            "--profiling=false",
            *_behaviour(kubernetes, "scheduler"),
        ],
        ready_url=f"https://{at(address, port)}/healthz",
        ready_ca=keys.authority.path,
        disposable=True,
    )


def kwok(
    binaries: Binaries, handle: ClusterHandle, port: int, kubernetes: Kubernetes, *, lease_seconds: int, strict: bool
) -> ProcessSpec:
    """Run the simulated kubelets of all nodes with annotation `kwok.x-k8s.io/node: fake`.

    One whose node gets label `atoll.sh/dead` falls silent: neither its lease nor its pods change any more.
    With `strict`, pods start once `atoll.local.kubelets` has admitted them.
    """
    address = str(urlsplit(handle.url).hostname)
    stages = _DATA / "stages.yaml"
    if strict:
        stages = handle.kubeconfig.parent / "stages.yaml"
        kubelets.write_stages(stages)
    return ProcessSpec(
        name=f"{handle.name}-kwok",
        argv=[
            str(binaries.kwok),
            f"--kubeconfig={handle.kubeconfig}",
            f"--config={stages}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            f"--manage-nodes-with-label-selector=!{keys.DEAD}",
            f"--node-lease-duration-seconds={lease_seconds}",
            "--cidr=10.0.0.0/8",
            f"--server-address={at(address, port)}",
            *kubernetes.flags.get("kwok", ()),
        ],
        ready_url=f"http://{at(address, port)}/healthz",
        disposable=True,
    )
