"""`svc`: pods find each other by name, and know the names of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from atoll.kinds.volcano_job.plugins.interface import JobView, Json, KeyPair, Task, Values, mount, set_env
from atoll.kinds.volcano_job.plugins.options import Option
from atoll.model import keys, network

_PATH = "/etc/volcano"
_EXPORT = "multicluster.x-k8s.io/v1alpha1"


class Svc:
    name = "svc"
    requires: Sequence[str] = ()
    options: Sequence[Option] = (
        Option("publish-not-ready-addresses", False),
        Option("disable-network-policy", False),
        Option("inject-hosts-env", True),
    )

    def problems(self, tasks: Mapping[str, int], values: Values) -> Sequence[str]:
        return ()

    def objects(self, job: JobView, values: Values, key_pair: Callable[[], KeyPair]) -> Sequence[Json]:
        chosen = {keys.JOB_NAME: job.name, keys.JOB_NAMESPACE: job.namespace}
        service = job.made("v1", "Service", job.name)
        service["spec"] = {
            "clusterIP": "None",
            "selector": chosen,
            "publishNotReadyAddresses": values["publish-not-ready-addresses"],
            # A Service has a port, also one that only gives names.
            "ports": [{"name": "placeholder-volcano", "port": 1, "protocol": "TCP", "targetPort": 1}],
        }
        hosts = job.made("v1", "ConfigMap", _config_map(job))
        hosts["data"] = _data(job)
        if job.network:
            # A NetworkPolicy knows the pods of its own cluster alone, and would keep the others out.
            exported = network.CLUSTER_SET in job.network
            return (service, hosts, *([job.made(_EXPORT, "ServiceExport", job.name)] if exported else ()))
        if values["disable-network-policy"]:
            return (service, hosts)
        policy = job.made("networking.k8s.io/v1", "NetworkPolicy", job.name)
        selector = {"matchLabels": chosen}
        policy["spec"] = {
            "podSelector": selector,
            "ingress": [{"from": [{"podSelector": selector}]}],
            "policyTypes": ["Ingress"],
        }
        return (service, hosts, policy)

    def decorate(self, job: JobView, values: Values, pod: Json, task: Task, index: int) -> None:
        spec = pod["spec"]
        if not spec.get("hostname"):
            spec["hostname"] = pod["metadata"]["name"]
        if not spec.get("subdomain"):
            spec["subdomain"] = job.name
        if spec.get("hostNetwork") and not spec.get("dnsPolicy"):
            spec["dnsPolicy"] = "ClusterFirstWithHostNet"
        mount(pod, {"name": _config_map(job), "configMap": {"name": _config_map(job)}}, _PATH)
        if values["inject-hosts-env"]:
            # By reference: what the environment of a process may hold is bounded, and the Job may be resized.
            names = [name for name in _data(job) if name.startswith("VC_")]
            reference = {name: {"configMapKeyRef": {"name": _config_map(job), "key": name}} for name in names}
            set_env(pod, {name: {"valueFrom": each} for name, each in reference.items()})


def _config_map(job: JobView) -> str:
    return f"{job.name}-svc"


def size_of_hosts(job: JobView) -> int:
    """Bytes of the data that names all pods of a Job that is in one member, at most."""
    size = 0
    for task in job.tasks:
        name = task.hostname or f"{job.name}-{task.name}-{max(task.replicas - 1, 0)}"
        size += 2 * task.replicas * len(f"{name}.{task.subdomain or job.name},") + 3 * len(f"VC_{task.name}_HOSTS")
    return size


def _data(job: JobView) -> dict[str, str]:
    data: dict[str, str] = {}
    for task in job.tasks:
        hosts = job.hosts(task.name)
        name = task.name.replace("-", "_")
        variable = f"VC_{name.upper()}"
        data[f"{name}.host"] = "\n".join(hosts)
        data[f"{variable}_HOSTS"] = ",".join(hosts)
        data[f"{variable}_NUM"] = str(len(hosts))
    return data


PLUGIN = Svc()
