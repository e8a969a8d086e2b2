"""A host inside another cluster, the carrier: etcd, API server, controllers and Atoll's processes as pods.

The carrier's own kinds are never in its way, nor is its load the carrier's: the carrier gets one namespace and nothing
beside it. The objects here are plain dicts; `atoll.install.embedding` writes them, `atoll.install.embedded_keys` makes
the Secrets that the pods mount.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
import yaml

from atoll.install.credentials import MANAGED_BY

Json = dict[str, Any]

NAMESPACE: Final = "atoll-host"
CONTROLLERS: Final = (
    "namespace-controller",
    "garbage-collector-controller",
    # Without the account "default" and the authority's certificate no pod is admitted.
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "root-ca-certificate-publisher-controller",
    "resourcequota-controller",
    # Type checks the admission policies, as any other cluster does.
    "validatingadmissionpolicy-status-controller",
    # Roles such as view take up what others add to them.
    "clusterrole-aggregation-controller",
    # Makes Jobs of namespaces that have opted in, which go through the webhook like any other.
    "cronjob-controller",
)
"""Kubernetes' controllers that a host without nodes needs."""
APISERVER: Final = "atoll-apiserver"
ETCD: Final = "atoll-etcd"
CONTROLLER_MANAGER: Final = "atoll-controller-manager"
VALUES: Final = "atoll-host"
"""ConfigMap with the values of the last `init`."""
AUTHORITIES: Final = "atoll-host-authorities"
"""Secret of the authorities' keys, and of the key that signs tokens of accounts; no pod mounts it."""
ADMIN: Final = "atoll-host-kubeconfig"
"""Secret with the administrator's kubeconfig."""
ETCD_CLIENT: Final = "atoll-etcd-client"
INIT: Final = "atoll-host-init"
RENEWAL: Final = "atoll-host-renewal"
BACKUP: Final = "atoll-etcd-backup"
KEYS: Final = "/etc/atoll"
"""Folder of a pod's certificates."""
KUBECONFIG: Final = f"{KEYS}/kubeconfig"

_USER: Final = 65532
_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_DATA: Final = "/var/lib/etcd"
_BACKUPS: Final = "/backup"
_SNAPSHOT: Final = f"{_BACKUPS}/new.db"
_PROCESSES: Final = {"webhook": 8081, "control": 8082, "dispatcher": 8083}
"""Process -> port of its probes."""
SECRETS: Final = (
    *(AUTHORITIES, ETCD, ETCD_CLIENT, APISERVER, CONTROLLER_MANAGER, ADMIN),
    *(f"atoll-{name}" for name in _PROCESSES),
)
"""Names of all Secrets."""
_SERVED: Final = {"webhook": 9443, "dispatcher": 8443}
"""Process -> port at which the API server calls it."""
_PORT_FLAGS: Final = {"webhook": "--port", "dispatcher": "--query-port"}


class Backup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Snapshots of etcd in a volume of their own."""

    schedule: str = "17 */6 * * *"
    keep: int = 12
    storage: str = "20Gi"


class EmbeddedValues(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Block `host.embedded` of a values file."""

    image: str = ""
    """Atoll's image."""
    namespace: str = NAMESPACE
    endpoint: str = ""
    """https URL at which users and members reach the API server."""
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    service_annotations: dict[str, str] = {}
    etcd_replicas: Literal[1, 3, 5] = 1
    storage: str = "10Gi"
    storage_class: str = ""
    """Empty: the carrier's default."""
    backup: Backup = Backup()
    etcd_image: str = "registry.k8s.io/etcd:3.6.8-0"
    apiserver_image: str = "registry.k8s.io/kube-apiserver:v1.36.3"
    controller_manager_image: str = "registry.k8s.io/kube-controller-manager:v1.36.3"
    image_pull_secrets: list[str] = []
    apiserver_flags: list[str] = []
    """Further flags of the API server, such as for OpenID Connect."""
    replicas: int = 2
    """Pods of the API server, the controller manager and each process."""
    priority_class: str = ""
    resources: dict[str, dict[str, Any]] = {}
    """Component -> requests and limits instead of the default ones."""

    @property
    def server(self) -> str:
        """URL of the API server inside the carrier."""
        return f"https://{APISERVER}.{self.namespace}.svc:6443"

    @property
    def webhook_url(self) -> str:
        return f"https://atoll-webhook.{self.namespace}.svc:{_SERVED['webhook']}"

    def apiserver_names(self) -> list[str]:
        """Names and addresses in the API server's certificate."""
        short = [APISERVER, f"{APISERVER}.{self.namespace}", f"{APISERVER}.{self.namespace}.svc"]
        cluster = [f"{short[-1]}.cluster.local", "kubernetes.default.svc", "localhost", "127.0.0.1", "::1"]
        outside = urlsplit(self.endpoint).hostname
        return [*short, *cluster, *([outside] if outside and outside not in (*short, *cluster) else ())]

    def etcd_pods(self) -> list[str]:
        return [f"{ETCD}-{index}" for index in range(self.etcd_replicas)]

    def etcd_names(self) -> list[str]:
        """Names in the certificate of etcd: peers look their addresses up, which a wildcard would not allow."""
        service = f"{ETCD}.{self.namespace}.svc"
        return [service, *(f"{pod}.{service}" for pod in self.etcd_pods()), "localhost", "127.0.0.1", "::1"]


_RESOURCES: Final[dict[str, tuple[str, str, str]]] = {
    "etcd": ("200m", "512Mi", "4Gi"),
    "apiserver": ("250m", "1Gi", "4Gi"),
    "controller-manager": ("50m", "128Mi", "1Gi"),
    "webhook": ("100m", "128Mi", "512Mi"),
    "control": ("100m", "256Mi", "2Gi"),
    "dispatcher": ("200m", "256Mi", "4Gi"),
    "init": ("50m", "128Mi", "512Mi"),
    "renewal": ("50m", "128Mi", "512Mi"),
    "backup": ("50m", "128Mi", "512Mi"),
}
"""Component -> CPU and memory that it asks for, and the limit of memory; CPU has none, which would throttle."""


def objects(values: EmbeddedValues) -> list[Json]:
    """All objects in the carrier in the order of their writes, without Secrets."""
    return [*foundation(values), *control_plane(values), init_job(values), *processes(values), *upkeep(values)]


def foundation(values: EmbeddedValues) -> list[Json]:
    """The namespace, the values, and the network policies."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": values.namespace,
                "labels": {**MANAGED_BY, "pod-security.kubernetes.io/enforce": "restricted"},
            },
        },
        _object(values, "v1", "ConfigMap", VALUES, data={"values.yaml": yaml.safe_dump(msgspec.to_builtins(values))}),
        _policy(values, "atoll-host", {}, []),
        _policy(
            values,
            ETCD,
            _selector("etcd"),
            [
                {"from": [_pods("apiserver"), _pods("backup")], "ports": [_port(2379)]},
                {"from": [_pods("etcd")], "ports": [_port(2379), _port(2380)]},
            ],
        ),
        # Members and users come from anywhere; the API server asks who they are.
        _policy(values, APISERVER, _selector("apiserver"), [{"ports": [_port(6443)]}]),
        *(
            _policy(values, f"atoll-{name}", _selector(name), [{"from": [_pods("apiserver")], "ports": [_port(port)]}])
            for name, port in _SERVED.items()
        ),
        *(_budget(values, name) for name in ("etcd", "apiserver", "controller-manager", *_PROCESSES)),
    ]


# -- the control plane -------------------------------------------------------------------------------------------------


def control_plane(values: EmbeddedValues) -> list[Json]:
    """etcd, API server, controller manager, and the Services of all."""
    outside: Json = {"type": values.service_type, "ports": [_service_port(6443)]}
    return [
        _service(values, ETCD, "etcd", clusterIP="None", publishNotReadyAddresses=True, ports=[_service_port(2379)]),
        _service(values, APISERVER, "apiserver", annotations=values.service_annotations, **outside),
        _service(values, "atoll-webhook", "webhook", ports=[_service_port(_SERVED["webhook"])]),
        _etcd(values),
        _deployment(values, APISERVER, "apiserver", _apiserver(values), [_secret("keys", APISERVER)]),
        _deployment(
            values,
            CONTROLLER_MANAGER,
            "controller-manager",
            _controller_manager(values),
            [_secret("keys", CONTROLLER_MANAGER)],
        ),
    ]


def _etcd(values: EmbeddedValues) -> Json:
    own = f"$(POD_NAME).{ETCD}.{values.namespace}.svc"
    peers = ",".join(f"{pod}=https://{pod}.{ETCD}.{values.namespace}.svc:2380" for pod in values.etcd_pods())
    container = _container(
        values,
        "etcd",
        values.etcd_image,
        [
            "etcd",
            "--name=$(POD_NAME)",
            f"--data-dir={_DATA}/data",
            "--listen-client-urls=https://0.0.0.0:2379",
            f"--advertise-client-urls=https://{own}:2379",
            "--listen-peer-urls=https://0.0.0.0:2380",
            f"--initial-advertise-peer-urls=https://{own}:2380",
            f"--initial-cluster={peers}",
            "--initial-cluster-token=atoll-host",
            *(
                f"--{kind}{flag}={KEYS}/{file}"
                for kind in ("", "peer-")
                for flag, file in (("cert-file", "tls.crt"), ("key-file", "tls.key"), ("trusted-ca-file", "ca.crt"))
            ),
            "--client-cert-auth",
            "--peer-client-cert-auth",
            # Probes have no certificate.
            "--listen-metrics-urls=http://0.0.0.0:2381",
            f"--quota-backend-bytes={8 << 30}",
            "--log-level=warn",
        ],
        mounts=[_mount("keys", KEYS), _mount("data", _DATA, writable=True)],
        probes=_probes("HTTP", 2381, live="/livez"),
    )
    claim = {
        "metadata": {"name": "data"},
        "spec": _claim(values, values.storage),
    }
    spec = {
        "serviceName": ETCD,
        "replicas": values.etcd_replicas,
        # The first one is not ready before a majority is there.
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": _labels("etcd")},
        "template": _template(values, "etcd", [container], [_secret("keys", ETCD)]),
        "volumeClaimTemplates": [claim],
    }
    return _object(values, "apps/v1", "StatefulSet", ETCD, spec=spec)


def _apiserver(values: EmbeddedValues) -> Json:
    endpoints = ",".join(f"https://{pod}.{ETCD}.{values.namespace}.svc:2379" for pod in values.etcd_pods())
    made = _container(
        values,
        "apiserver",
        values.apiserver_image,
        [
            "kube-apiserver",
            f"--etcd-servers={endpoints}",
            f"--etcd-cafile={KEYS}/etcd-ca.crt",
            f"--etcd-certfile={KEYS}/etcd-client.crt",
            f"--etcd-keyfile={KEYS}/etcd-client.key",
            "--secure-port=6443",
            # A network of pods may have no default route to find it by.
            "--advertise-address=$(POD_IP)",
            f"--tls-cert-file={KEYS}/tls.crt",
            f"--tls-private-key-file={KEYS}/tls.key",
            f"--client-ca-file={KEYS}/ca.crt",
            "--authorization-mode=RBAC",
            f"--service-account-issuer={_ISSUER}",
            f"--api-audiences={_ISSUER}",
            f"--service-account-signing-key-file={KEYS}/sa.key",
            f"--service-account-key-file={KEYS}/sa.pub",
            # Of Services that lead nowhere: no node is there.
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--requestheader-client-ca-file={KEYS}/front-proxy-ca.crt",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={KEYS}/front-proxy-client.crt",
            f"--proxy-client-key-file={KEYS}/front-proxy-client.key",
            # The query API is at the address of the leading dispatcher's pod, not at that of a Service.
            "--enable-aggregator-routing",
            "--endpoint-reconciler-type=none",
            "--profiling=false",
            # Connections move to other replicas, and a replica that ends has left the Service before.
            "--goaway-chance=0.001",
            "--shutdown-delay-duration=10s",
            *values.apiserver_flags,
        ],
        mounts=[_mount("keys", KEYS)],
        probes=_probes("HTTPS", 6443, live="/livez"),
    )
    # The program's file carries this capability, and the kernel starts it with no fewer.
    made["securityContext"]["capabilities"]["add"] = ["NET_BIND_SERVICE"]
    return made


def _controller_manager(values: EmbeddedValues) -> Json:
    return _container(
        values,
        "controller-manager",
        values.controller_manager_image,
        [
            "kube-controller-manager",
            f"--kubeconfig={KUBECONFIG}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={KEYS}/sa.key",
            f"--root-ca-file={KEYS}/ca.crt",
            "--leader-elect",
            "--secure-port=10257",
            "--profiling=false",
        ],
        mounts=[_mount("keys", KEYS)],
        probes=_probes("HTTPS", 10257, live="/healthz", ready="/healthz"),
    )


# -- Atoll -------------------------------------------------------------------------------------------------------------


def init_job(values: EmbeddedValues) -> Json:
    """`atollctl init` on the embedded API server."""
    container = _container(
        values,
        "init",
        values.image,
        [
            "atollctl",
            "init",
            f"--kubeconfig={KUBECONFIG}",
            f"--webhook-url={values.webhook_url}",
            "--query-outside=",
            # The API server may be new, and the webhook has its address later.
            "--force",
            "--no-credentials",
        ],
        mounts=[_mount("keys", KEYS), _mount("tmp", "/tmp", writable=True)],
    )
    spec = {
        "backoffLimit": 20,
        "template": _template(values, "init", [container], [_secret("keys", ADMIN), _tmp()], restart="OnFailure"),
    }
    return _object(values, "batch/v1", "Job", INIT, spec=spec)


def processes(values: EmbeddedValues) -> list[Json]:
    """Webhook, control and dispatcher."""
    return [
        _deployment(
            values,
            f"atoll-{name}",
            name,
            _container(
                values,
                name,
                values.image,
                [
                    f"atoll-{name}",
                    f"--kubeconfig={KUBECONFIG}",
                    "--health-host=$(POD_IP)",
                    f"--health-port={health}",
                    *([f"{_PORT_FLAGS[name]}={_SERVED[name]}"] if name in _SERVED else ()),
                ],
                mounts=[_mount("keys", KEYS), _mount("tmp", "/tmp", writable=True)],
                probes=_probes("HTTP", health, live="/healthz"),
            ),
            [_secret("keys", f"atoll-{name}"), _tmp()],
        )
        for name, health in _PROCESSES.items()
    ]


def upkeep(values: EmbeddedValues) -> list[Json]:
    """Renewal of certificates, and snapshots of etcd."""
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [VALUES], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [*SECRETS], "verbs": ["get", "patch"]},
    ]
    renew = _container(
        values,
        "renewal",
        values.image,
        ["atollctl", "init", "--embedded", "--only-certificates", f"--namespace={values.namespace}"],
        mounts=[_mount("tmp", "/tmp", writable=True)],
    )
    backups = _mount("backups", _BACKUPS, writable=True)
    snapshot = _container(
        values,
        "snapshot",
        values.etcd_image,
        [
            "etcdctl",
            f"--endpoints=https://{ETCD}.{values.namespace}.svc:2379",
            f"--cacert={KEYS}/ca.crt",
            f"--cert={KEYS}/tls.crt",
            f"--key={KEYS}/tls.key",
            "snapshot",
            "save",
            _SNAPSHOT,
        ],
        mounts=[_mount("keys", KEYS), backups],
        resources="backup",
    )
    keep = _container(
        values,
        "backup",
        values.image,
        ["python3", "-P", "-m", "atoll.install.snapshots", _SNAPSHOT, f"--keep={values.backup.keep}"],
        mounts=[backups],
    )
    volumes = [
        _secret("keys", ETCD_CLIENT),
        {"name": "backups", "persistentVolumeClaim": {"claimName": BACKUP}},
    ]
    return [
        *_account(values, RENEWAL, rules),
        _cron_job(
            values,
            RENEWAL,
            "41 3 * * *",
            _template(values, "renewal", [renew], [_tmp()], restart="OnFailure", account=RENEWAL),
        ),
        _object(values, "v1", "PersistentVolumeClaim", BACKUP, spec=_claim(values, values.backup.storage)),
        _cron_job(
            values,
            BACKUP,
            values.backup.schedule,
            _template(values, "backup", [keep], volumes, restart="OnFailure", first=[snapshot]),
        ),
    ]


def installer(values: EmbeddedValues) -> list[Json]:
    """The account of the hook that makes Secrets ahead of a chart's objects, with its rights."""
    rules = [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [VALUES],
            "verbs": ["get", "create", "patch"],
        },
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [*SECRETS], "verbs": ["get", "patch"]},
        # A create can't be bound to a name, as the name is in the body.
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
    ]
    return _account(values, "atoll-installer", rules)


# -- parts of objects --------------------------------------------------------------------------------------------------


def _object(values: EmbeddedValues, version: str, kind: str, name: str, **content: Any) -> Json:
    metadata = {"name": name, "namespace": values.namespace, "labels": MANAGED_BY}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


def _account(values: EmbeddedValues, name: str, rules: Sequence[Json]) -> list[Json]:
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": values.namespace}
    role = {"apiGroup": group, "kind": "Role", "name": name}
    return [
        _object(values, "v1", "ServiceAccount", name),
        _object(values, f"{group}/v1", "Role", name, rules=[*rules]),
        _object(values, f"{group}/v1", "RoleBinding", name, roleRef=role, subjects=[subject]),
    ]


def _labels(component: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "atoll-host", "app.kubernetes.io/component": component}


def _selector(component: str) -> Json:
    return {"matchLabels": _labels(component)}


def _pods(component: str) -> Json:
    return {"podSelector": _selector(component)}


def _port(number: int) -> Json:
    return {"port": number, "protocol": "TCP"}


def _service_port(number: int) -> Json:
    return {"name": "https", "port": number, "targetPort": number, "protocol": "TCP"}


def _policy(values: EmbeddedValues, name: str, selector: Json, ingress: Sequence[Json]) -> Json:
    spec = {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": [*ingress]}
    return _object(values, "networking.k8s.io/v1", "NetworkPolicy", name, spec=spec)


def _budget(values: EmbeddedValues, component: str) -> Json:
    spec = {"maxUnavailable": 1, "selector": _selector(component)}
    return _object(values, "policy/v1", "PodDisruptionBudget", f"atoll-{component}", spec=spec)


def _service(
    values: EmbeddedValues, name: str, component: str, annotations: Mapping[str, str] | None = None, **spec: Any
) -> Json:
    made = _object(values, "v1", "Service", name, spec={"selector": _labels(component), **spec})
    if annotations:
        made["metadata"]["annotations"] = annotations
    return made


def _deployment(values: EmbeddedValues, name: str, component: str, container: Json, volumes: Sequence[Json]) -> Json:
    spec = {
        "replicas": values.replicas,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "selector": _selector(component),
        "template": _template(values, component, [container], volumes),
    }
    return _object(values, "apps/v1", "Deployment", name, spec=spec)


def _cron_job(values: EmbeddedValues, name: str, schedule: str, template: Json) -> Json:
    spec = {
        "schedule": schedule,
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 3600,
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {"spec": {"backoffLimit": 3, "activeDeadlineSeconds": 3600, "template": template}},
    }
    return _object(values, "batch/v1", "CronJob", name, spec=spec)


def _claim(values: EmbeddedValues, storage: str) -> Json:
    chosen = {"storageClassName": values.storage_class} if values.storage_class else {}
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}, **chosen}


def _template(
    values: EmbeddedValues,
    component: str,
    containers: Sequence[Json],
    volumes: Sequence[Json],
    *,
    restart: str = "Always",
    account: str = "",
    first: Sequence[Json] = (),
) -> Json:
    spec: Json = {
        "automountServiceAccountToken": bool(account),
        # Variables such as ATOLL_WEBHOOK_PORT would be taken for settings.
        "enableServiceLinks": False,
        "restartPolicy": restart,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [*containers],
        "volumes": [*volumes],
    }
    if account:
        spec["serviceAccountName"] = account
    if first:
        spec["initContainers"] = [*first]
    if restart == "Always":
        spec["terminationGracePeriodSeconds"] = 60
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": _selector(component),
            }
        ]
    if values.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in values.image_pull_secrets]
    if values.priority_class:
        spec["priorityClassName"] = values.priority_class
    return {"metadata": {"labels": {**_labels(component), **MANAGED_BY}}, "spec": spec}


def _container(
    values: EmbeddedValues,
    name: str,
    image: str,
    command: Sequence[str],
    *,
    mounts: Sequence[Json],
    probes: Mapping[str, Json] | None = None,
    resources: str = "",
) -> Json:
    cpu, memory, limit = _RESOURCES[resources or name]
    default = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}}
    return {
        "name": name,
        "image": image,
        "command": [command[0]],
        "args": [*command[1:]],
        "env": [
            {"name": env, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
            for env, path in (("POD_NAME", "metadata.name"), ("POD_IP", "status.podIP"))
        ],
        "resources": values.resources.get(resources or name, default),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [*mounts],
        **(probes or {}),
    }


def _probes(scheme: str, port: int, *, live: str, ready: str = "/readyz") -> dict[str, Json]:
    def probe(path: str, period: int, failures: int) -> Json:
        at = {"scheme": scheme, "port": port, "path": path}
        return {"httpGet": at, "periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": 10}

    # The first list of a large host may take minutes.
    return {
        "startupProbe": probe(ready, 2, 300),
        "livenessProbe": probe(live, 10, 8),
        "readinessProbe": probe(ready, 3, 3),
    }


def _secret(volume: str, name: str) -> Json:
    return {"name": volume, "secret": {"secretName": name, "defaultMode": 0o440}}


def _tmp() -> Json:
    return {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}


def _mount(volume: str, path: str, *, writable: bool = False) -> Json:
    return {"name": volume, "mountPath": path, **({} if writable else {"readOnly": True})}
