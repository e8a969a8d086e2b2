"""Which API resources exist and where their URLs are: pure data, so that every layer may name a resource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One resource type of an API server."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path of a collection, an object or a subresource.

        No namespace for a namespaced resource means the collection over all namespaces.

        Raises:
            ValueError: an object of a namespaced resource is named without its namespace.
        """
        prefix = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            prefix += f"/namespaces/{namespace}"
        elif self.namespaced and name is not None:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        prefix += f"/{self.plural}"
        if name is not None:
            prefix += f"/{name}"
        return prefix + (f"/{subresource}" if subresource else "")


NAMESPACES: Final = ApiResource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES: Final = ApiResource("", "v1", "nodes", "Node", namespaced=False)
PODS: Final = ApiResource("", "v1", "pods", "Pod")
SECRETS: Final = ApiResource("", "v1", "secrets", "Secret")
NETWORK_POLICIES: Final = ApiResource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
CONFIGMAPS: Final = ApiResource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS: Final = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
RESOURCE_SLICES: Final = ApiResource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
DEVICE_CLASSES: Final = ApiResource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
RESOURCE_CLAIM_TEMPLATES: Final = ApiResource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"
)
DEVICE_TAINT_RULES: Final = ApiResource(
    "resource.k8s.io", "v1beta2", "devicetaintrules", "DeviceTaintRule", namespaced=False
)
RESOURCE_CLAIMS: Final = ApiResource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
CLAIMS: Final = ApiResource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES: Final = ApiResource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
NUMA_TOPOLOGIES: Final = ApiResource(
    "nodeinfo.volcano.sh", "v1alpha1", "numatopologies", "Numatopology", namespaced=False
)
NODE_TOPOLOGIES: Final = ApiResource(
    "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", namespaced=False
)
KOORDINATOR_DEVICES: Final = ApiResource("scheduling.koordinator.sh", "v1alpha1", "devices", "Device", namespaced=False)
KOORDINATOR_NODE_METRICS: Final = ApiResource(
    "slo.koordinator.sh", "v1alpha1", "nodemetrics", "NodeMetric", namespaced=False
)
CSI_NODES: Final = ApiResource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
BUDGETS: Final = ApiResource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NODE_METRICS: Final = ApiResource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", namespaced=False)
POD_METRICS: Final = ApiResource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
STORAGE_CLASSES: Final = ApiResource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
LEASES: Final = ApiResource("coordination.k8s.io", "v1", "leases", "Lease")
LIMIT_RANGES: Final = ApiResource("", "v1", "limitranges", "LimitRange")
RESOURCE_QUOTAS: Final = ApiResource("", "v1", "resourcequotas", "ResourceQuota")
EVENTS: Final = ApiResource("events.k8s.io", "v1", "events", "Event")
PRIORITY_CLASSES: Final = ApiResource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = ApiResource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
CLUSTER_ROLES: Final = ApiResource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CRDS: Final = ApiResource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
MUTATING_WEBHOOKS: Final = ApiResource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)
VALIDATING_WEBHOOKS: Final = ApiResource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)
ADMISSION_POLICIES: Final = ApiResource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False
)
ADMISSION_POLICY_BINDINGS: Final = ApiResource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False
)
FLOW_SCHEMAS: Final = ApiResource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False)
API_SERVICES: Final = ApiResource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
SERVICES: Final = ApiResource("", "v1", "services", "Service")
SERVICE_EXPORTS: Final = ApiResource("multicluster.x-k8s.io", "v1alpha1", "serviceexports", "ServiceExport")
CLUSTER_PROFILES: Final = ApiResource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "ClusterProfile")
ENDPOINT_SLICES: Final = ApiResource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
ACCESS_REVIEWS: Final = ApiResource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
SELF_REVIEWS: Final = ApiResource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
SUBJECT_REVIEWS: Final = ApiResource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)

JOBS: Final = ApiResource("batch.volcano.sh", "v1alpha1", "jobs", "Job")
DEPLOYMENTS: Final = ApiResource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS: Final = ApiResource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS: Final = ApiResource("apps", "v1", "statefulsets", "StatefulSet")
BATCH_JOBS: Final = ApiResource("batch", "v1", "jobs", "Job")
QUEUES: Final = ApiResource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
POD_GROUPS: Final = ApiResource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
KUEUE_TOPOLOGIES: Final = ApiResource("kueue.x-k8s.io", "v1beta1", "topologies", "Topology", namespaced=False)
HYPER_NODES: Final = ApiResource("topology.volcano.sh", "v1alpha1", "hypernodes", "HyperNode", namespaced=False)
CRON_JOBS: Final = ApiResource("batch", "v1", "cronjobs", "CronJob")
VOLCANO_CRON_JOBS: Final = ApiResource("batch.volcano.sh", "v1alpha1", "cronjobs", "CronJob")
JOB_FLOWS: Final = ApiResource("flow.volcano.sh", "v1alpha1", "jobflows", "JobFlow")
HYPER_JOBS: Final = ApiResource("training.volcano.sh", "v1alpha1", "hyperjobs", "HyperJob")
JOB_TEMPLATES: Final = ApiResource("flow.volcano.sh", "v1alpha1", "jobtemplates", "JobTemplate")
COMMANDS: Final = ApiResource("bus.volcano.sh", "v1alpha1", "commands", "Command")
BINDINGS: Final = ApiResource("work.karmada.io", "v1alpha2", "resourcebindings", "ResourceBinding")
WORKS: Final = ApiResource("work.karmada.io", "v1alpha1", "works", "Work")
CLUSTERS: Final = ApiResource("cluster.karmada.io", "v1alpha1", "clusters", "Cluster", namespaced=False)
POLICIES: Final = ApiResource("policy.karmada.io", "v1alpha1", "propagationpolicies", "PropagationPolicy")
CLUSTER_POLICIES: Final = ApiResource(
    "policy.karmada.io", "v1alpha1", "clusterpropagationpolicies", "ClusterPropagationPolicy", namespaced=False
)
OVERRIDES: Final = ApiResource("policy.karmada.io", "v1alpha1", "overridepolicies", "OverridePolicy")
CLUSTER_OVERRIDES: Final = ApiResource(
    "policy.karmada.io", "v1alpha1", "clusteroverridepolicies", "ClusterOverridePolicy", namespaced=False
)
CAPACITIES: Final = ApiResource("atoll.sh", "v1alpha1", "clustercapacities", "ClusterCapacity")
JOB_ARRAYS: Final = ApiResource("atoll.sh", "v1alpha1", "jobarrays", "JobArray")
WORKLOAD_KINDS: Final = ApiResource("atoll.sh", "v1alpha1", "workloadkinds", "WorkloadKind", namespaced=False)
SIGNING_REQUESTS: Final = ApiResource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False
)
SIGNERS: Final = ApiResource("certificates.k8s.io", "v1", "signers", "Signer", namespaced=False)
"""No objects: who may approve for which signer."""
CLUSTER_REQUESTS: Final = ApiResource("atoll.sh", "v1alpha1", "clusterrequests", "ClusterRequest", namespaced=False)
VERDICTS: Final = ApiResource("query.atoll.sh", "v1alpha1", "verdicts", "Verdict")
TUNNELS: Final = ApiResource("query.atoll.sh", "v1alpha1", "tunnels", "Tunnel", namespaced=False)
WHAT_IFS: Final = ApiResource("query.atoll.sh", "v1alpha1", "whatifs", "WhatIf")
AVAILABILITIES: Final = ApiResource("query.atoll.sh", "v1alpha1", "availabilities", "Availability")
QUEUE_RUNS: Final = ApiResource("query.atoll.sh", "v1alpha1", "queueruns", "QueueRuns", namespaced=False)
"""Named as queues are: the right to one is the right to the runs in that queue and all below it."""

MADE: Final[dict[ApiResource, ApiResource]] = {
    CRON_JOBS: BATCH_JOBS,
    VOLCANO_CRON_JOBS: JOBS,
    JOB_FLOWS: JOBS,
    HYPER_JOBS: JOBS,
}
"""The workloads that each maker makes, with itself as their controller; the host's own CronJobs as well."""
