"""Every label, annotation, finalizer and well-known name that Atoll reads or writes: one word, one spelling."""

from __future__ import annotations

from typing import Final

# -- own -------------------------------------------------------------------------------------------------------------
ENABLED: Final = "atoll.sh/enabled"
"""Namespace label: `true` opts the namespace in, `labelled` what of it names a queue (`atoll.model.namespaces`)."""
HOST_PROFILE: Final = "atoll.sh/host-profile"
"""Label of the system namespace on the host: `shared` where controllers of the host run Deployments there."""
HOST_RUNS: Final = "host-runs.atoll.sh/"
"""Beginning of labels of that namespace, then `plural.group`: of what controllers of such a host run, which has no
switch that would hold it; without any, all that has none.
"""
GANG: Final = "atoll.sh/gang"
"""Annotation of a binding and, for its part of the workload, of a Work: the gang as JSON (`atoll.model.gang.Gang`)."""
EPOCH: Final = "atoll.sh/epoch"
"""Binding, Work and pod annotation: which decision of the binding this is."""
DECISION: Final = "atoll.sh/decision"
"""Binding annotation: the dispatcher's last word as JSON (`atoll.model.decision.Decision`)."""
SEEN: Final = "atoll.sh/seen"
"""Binding annotation, on any one of them: the resourceVersion from which on a dispatcher decided that had followed
another. It matters to no process: only the change that it makes does.
"""
BINDING_UID: Final = "atoll.sh/binding-uid"
"""Work and member workload annotation: the binding's UID, with the epoch the identity of a dispatch."""
BINDING_NAME: Final = "atoll.sh/binding"
"""Work annotation: name of the binding."""
BINDING_NAMESPACE: Final = "atoll.sh/binding-namespace"
"""Work annotation: namespace of the binding."""
QUESTION: Final = "atoll.sh/question"
"""Work annotation: the member is only asked whether the part would fit if the pods named here were gone (JSON, binding
UID to task to pods that stay, or to null).
"""
EXPECTED: Final = "atoll.sh/expected"
"""Work annotation: nodes on which the part is in nobody's way (JSON, a list of task, node and pods)."""
PLAN: Final = "atoll.sh/plan"
"""PodGroup annotation in a member: nodes that are reserved for a part as JSON."""
RUN_TIME: Final = "atoll.sh/run-time"
"""Pod annotation, read by the local federation only: how long the pod runs (a Go duration)."""
FAIL: Final = "atoll.sh/fail"
"""Pod annotation, read by the local federation only: `true` ends it with code 1, `image` has it wait for an image, any
other word has the kubelet reject it with that reason. The last also as an annotation of a node of strict kubelets.
"""
DEAD: Final = "atoll.sh/dead"
"""Node label, read by the local federation only: the node's simulated kubelet is silent, whatever the value."""
ACTION: Final = "atoll.sh/action"
"""Binding and member workload annotation: what the host wants done, `AbortJob/3`; a new number is a new wish."""
ACTION_REQUIRED: Final = "ActionRequired"
"""Reason in a member workload's status.state: a policy asks for what only the host may decide."""
PLACER: Final = "atoll.sh/placer"
"""Cluster annotation: who places pods in the member (`atoll.model.placer.Placer`), set by an administrator; without it,
or with `auto`, its agent finds out. Lease annotation by the agent: who does.
"""
MADE_FOR: Final = "atoll.sh/made-for"
"""Annotation of a workload in a member: how it was made for it (JSON, `atoll.model.placer.MadeFor`)."""
PLACER_WHY: Final = "atoll.sh/placer-why"
"""Lease annotation by the agent: why that one places."""
NODES: Final = "atoll.sh/nodes"
"""Cluster annotation: label selector of the member's nodes that are Atoll's; without it, all are. Their taint's key."""
GRACE: Final = "atoll.sh/grace"
"""Work annotation: seconds that the pods of the workload may take to end, whatever its templates ask for."""
CORDONED: Final = "atoll.sh/cordoned"
"""Key of the taint of a member that gets no new work; what runs there goes on."""
DRAINED: Final = "atoll.sh/drained"
"""Key of the NoExecute taint of a member that is emptied: value `all`, or `one-by-one`, with `-SECONDS` after which all
that is left goes at once.
"""
MOVE_ASKED: Final = "atoll.sh/move-asked"
"""PodGroup annotation in a member: when the descheduler asked for the move of the gang of the host (RFC 3339)."""
HOT: Final = "atoll.sh/hot"
"""Key of the PreferNoSchedule taint of a node that the descheduler takes pods off; with value `below-N` Atoll's placer
puts no pods of a priority below N there.
"""
KEPT_PLACES: Final = "atoll.sh/kept-places"
"""Node annotation: JSON, places that the descheduler keeps there for pods that leave hot nodes."""
RECLAIMED: Final = "atoll.sh/reclaimed"
"""Node annotation: JSON, the batch resources that colocation published there; other amounts are another agent's."""
ON_LOST: Final = "atoll.sh/on-lost"
"""Workload and policy annotation: what becomes of it when its member is lost: `requeue`, `exclusive` or `wait`. Label
of what is delivered: `exclusive` where the agent ends it once it has had no contact to the host for too long.
"""
FENCE: Final = "atoll.sh/fence-after"
"""Annotation of the agent's Lease on the host: seconds without contact to the host after which it ends what is
exclusive."""
CLASS_BY_RESOURCE: Final = "atoll.sh/extended-resource"
"""Annotation of a DeviceClass in a member, by its administrator: `counted` says that queues bound its
`extendedResourceName` by that name, so that pods may ask for it.
"""
ALL_DEVICES: Final = "atoll.sh/all-devices"
"""Annotation of ResourceClaims, in `spec.metadata` of their templates: the devices of each request with
`allocationMode: All`, `8` for all of them or `gpu=8,nic/fast=4` by name (`atoll.model.device_claims.stated`).
"""
CHARGED_CLAIMS: Final = "atoll.sh/charged-claims"
"""Work and pod annotation: devices by resource of their class that the queue is charged for each of the ResourceClaims
and templates that the workload names (JSON); a member gives no pod more.
"""
CLAIM_SHAPES: Final = "atoll.sh/claim-shapes"
"""Annotation of the agent's Lease on the host, by the host: shapes of ResourceClaims that wait (JSON)."""
CONTACT: Final = "atoll.sh/host-contact"
"""Annotation of the agents' Lease in the member: when the leader last had contact to the host."""
NOTIFY: Final = "atoll.sh/notify"
"""Workload and queue annotation: targets that hear of its events (`atoll.model.notify`)."""
LOST_TOLERATION: Final = "atoll.sh/lost-toleration"
"""Workload, policy and queue annotation: how long its member may be away before it runs elsewhere, such as `5m`."""
LOST: Final = "atoll.sh/lost"
"""Work annotation: `true` says that its binding goes on without the member's word; it stays until the member has
removed what came by it.
"""
LEAVING: Final = "atoll.sh/leaving"
"""Work annotation: `true` says that its binding runs elsewhere or is about to; it stays until the eviction task of its
member is over.
"""
CEILING: Final = "atoll.sh/ceiling"
"""Cluster annotation: the most of the member that is believed and used, such as `nvidia.com/gpu=16,cpu=200`."""
CLAIMS_IN: Final = "atoll.sh/claims-in"
"""Binding annotation: members, by commas, that may have PersistentVolumeClaims that were made for the workload."""
MADE: Final = "atoll.sh/made"
"""Label of what Atoll made in a member for workloads that need it: `true`; where it may, it removes that again."""
ACCEPT: Final = "atoll.sh/accept"
"""Label of a namespace in a member, set by its administrator: `true` lets in work from the namespace of that name on
the host, though the namespace was not made by Atoll.
"""
PROPAGATE: Final = "atoll.sh/propagate"
"""Namespace annotation: which of its rules hold in members, too: `limitranges`, `resourcequotas`, `networkpolicies`,
with commas between; `secrets`, `persistentvolumeclaims` and `serviceaccounts` let those that workloads refer to go
along with their contents. Of the namespace in a member: which rules were brought there.
"""
SECRET_READER: Final = "atoll-secret-reader"
"""ClusterRole that `init` does not bind: a RoleBinding to it lets control read the Secrets of one namespace."""
WITHHELD: Final = "atoll.sh/withheld"
"""Annotation of a ConfigMap or Secret in a Work that comes without its contents: `true`."""
SOURCE_VERSION: Final = "atoll.sh/source-version"
"""Annotation of a ConfigMap or Secret in a Work: resourceVersion of the one on the host."""
FINAL: Final = "atoll.sh/final"
"""Work annotation: `true` says that its workload is deleted, so what it left in the member goes with the Work."""
MEMBER_QUEUE: Final = "atoll.sh/member-queue"
"""Cluster annotation: the queue, of Volcano or Kueue in the member, that everything sent there goes through."""
GANG_GATE: Final = GANG
"""Scheduling gate of pods that another scheduler is to bind: lifted for a whole gang when it has a plan."""
PLANNED_NODE: Final = "atoll.sh/planned-node"
"""Pod annotation: the node that a gang's plan chose and that the pod was restricted to when its gate was lifted."""
INDEX_OFFSET: Final = "atoll.sh/index-offset"
"""Annotation of a Volcano Job in one of several members: task name to the pods of it in the members before this one and
in all members (JSON), so that ranks and sizes are job-wide.
"""
NETWORK: Final = "atoll.sh/network"
"""Policy annotation: how pods name those of other members, in a network that joins them (`atoll.model.network`)."""
PEERS: Final = "atoll.sh/peers"
"""Annotation of a Volcano Job in one of several members that a network joins: `names`, how pods are named there, and
`pods`, task name to the pods of it in each member (JSON), so that lists of hosts are job-wide.
"""
UPDATED: Final = "atoll.sh/updated"
"""Annotation of a Volcano Job in a member, where its policies ask about it: generation of its spec on the host."""
PROBES: Final = "atoll.sh/probes"
"""Annotation of a Volcano Job of a JobFlow: requests that its pods must answer (JSON, `atoll.model.probes`); what comes
of them is in its status, in their order.
"""
GENERATION: Final = "atoll.sh/generation"
"""Member workload annotation: generation of the host's object that its spec was made from."""
PARTS: Final = "atoll.sh/parts"
"""Member workload annotation: in how many members the workload runs at once."""
DELIVERED: Final = "atoll.sh/delivered"
"""Member workload annotation: labels, annotations and spec as they were delivered last, long values as digests (JSON,
zlib, base64)."""
AT_ONCE: Final = "atoll.sh/at-once"
"""Annotation of a Volcano Job in a member: how many pods of a task may exist beside those that have ended (JSON, task
name to pods); a task that is not named has all of its pods.
"""
CLIENT_CONFIG: Final = "atoll.sh/client-config"
WEBHOOKS: Final = "atoll"
"""Name of the webhook's two configurations."""
"""Webhook configuration annotation: where the API server finds the webhook (JSON `{url}` or `{service}`)."""
DEFAULT_POLICY: Final = "atoll.sh/default-policy"
"""Queue annotation: the policy of workloads that no policy selects, `name` of a ClusterPropagationPolicy or
`namespace/name` of a PropagationPolicy.
"""
POLICY_ACTIVE: Final = "atoll.sh/policy-active"
"""Binding annotation, where its policy is Lazy: the workload's generation with which the policy was followed last."""
SUBMITTED_BY: Final = "atoll.sh/submitted-by"
"""Workload annotation by the webhook: the user who created the workload, cut to so many characters:"""
MOST_SUBMITTER: Final = 253
HOLD: Final = "atoll.sh/hold"
"""Workload annotation: `true` says that its user does not want it to run now."""
RETRY: Final = "atoll.sh/retry"
"""Workload annotation: any text; another one than before has a workload tried again that was deactivated."""
RESCHEDULE: Final = "atoll.sh/reschedule"
"""Workload annotation: a time (RFC 3339). Once it has come, an earlier dispatch is placed anew."""
BREAK_GLASS: Final = "atoll.sh/break-glass"
"""Annotation with which an administrator overrides an admission policy: the reason, set or changed in that request."""
RUNTIME: Final = "atoll.sh/runtime"
"""Annotation of a TrainJob: the spec of its training runtime (JSON) as it was when the TrainJob came."""
ABORTED: Final = "atoll.sh/aborted"
"""Annotation of a Volcano Job on the host that a Command stopped: one of the two words below; it is held as well."""
ABORTED_FOR_GOOD: Final = "true"
ABORTED_TO_RESTART: Final = "restart"
RETRIES: Final = "atoll.sh/retries"
"""Annotation of a Volcano Job on the host: how often Commands resumed or restarted it."""
ARRAY_STATES: Final = "atoll.sh/array-states"
"""Annotation of a JobArray in a member: states of its indices when it was sent there (`atoll.model.array_states`)."""
ARGUMENT_VARIABLE: Final = "ATOLL_ARRAY_ARGUMENT"
"""Environment variable of the containers of an index: its text of `spec.arguments`."""
ARRAY_FAILURES: Final = "atoll.sh/array-failures"
"""Annotation of the same: why indices had failed by then, as JSON (`atoll.model.array_failures`)."""
ARRAY_SHARE: Final = "atoll.sh/array-share"
"""Annotation of the same, where the array may run in several members: 1 for each index that this one may start, in the
form of states.
"""
ARRAY_LAST: Final = "atoll.sh/array-last"
"""Annotation of the same: `true` where no member gets any more indices."""
ARRAY_RETRY_OF: Final = "atoll.sh/retry-of"
"""Annotation of a JobArray: the array whose failed indices it runs again."""
ARRAY: Final = "atoll.sh/array"
"""Label of Jobs and pods of a JobArray in members: its name."""
ARRAY_INDEX: Final = "atoll.sh/array-index"
"""Label of the same: their index."""
ARRAY_TRY: Final = "atoll.sh/array-try"
"""Annotation of a Job of a JobArray in a member: how often its index had failed before."""
CARRIED: Final = "atoll.sh/carried"
"""Work annotation: counts of the workload's earlier dispatches as JSON, which this one adds to."""
CONTROLLER: Final = "atoll.sh/control"
"""spec.managedBy of workloads whose status Atoll writes on the host."""
NAMESPACE_SELECTOR: Final = "atoll.sh/namespace-selector"
DEQUEUE_STRATEGY: Final = "atoll.sh/dequeue-strategy"
"""Queue annotation: `fifo`, `traverse` or `backfill`; wins over spec.dequeueStrategy, which a foreign CRD restricts."""
ORDER: Final = "atoll.sh/order"
"""Queue annotation: `priority`, `fair-namespaces` or `fair-jobs`: which workload of a priority class goes first."""
FAIR_HALF_LIFE: Final = "atoll.sh/fair-half-life"
"""Queue annotation: the time in which past use counts half as much for `fair-namespaces`, such as `24h`."""
SITE: Final = "atoll.sh/site"
"""Cluster label: members with the same value are nearer each other than those of one zone."""
SCORE_STRATEGY: Final = "atoll.sh/score-strategy"
"""Queue annotation: entry point of group `atoll.score` that orders members for its workloads."""
SPLIT_STRATEGY: Final = "atoll.sh/split-strategy"
"""Queue annotation: entry point of group `atoll.split` that divides its workloads over members."""
FAIR_WEIGHT: Final = "atoll.sh/fair-weight"
"""Namespace annotation: its weight in queues with `fair-namespaces`, a number above 0; 1 where it is not there."""
CLUSTER_AFFINITY: Final = "atoll.sh/cluster-affinity"
"""Queue annotation: label selector in JSON of the members that serve the queue."""
FLAVORS: Final = "atoll.sh/flavors"
"""Annotation of the root queue, JSON: resource -> flavor -> `key=value`, the label of its nodes."""
PRIORITY_CLASSES: Final = "atoll.sh/priority-classes"
"""Queue annotation: the PriorityClasses that its workloads may name, with commas between; any where it is not there."""
RUNNING_ESTIMATE: Final = "atoll.sh/running-estimate"
"""Queue and workload annotation: how long a workload is expected to run, such as `2h`."""
SLA_WAITING_TIME: Final = "atoll.sh/sla-waiting-time"
"""Queue and workload annotation: how long a workload may wait before room is kept for it, such as `30m`."""
READY_TIMEOUT: Final = "atoll.sh/ready-timeout"
"""Queue and workload annotation: how long after its pods are bound a workload's minimum may take to run, such as `30m`;
else it is taken back.
"""
EVICT_TIMEOUT: Final = "atoll.sh/evict-timeout"
"""Queue annotation: how long the pods of a workload that was taken back may take to go until its quota is returned,
such as `10m`; that of the root queue is for all that say nothing.
"""
PROTECTED_FOR: Final = "atoll.sh/protected-for"
RECLAIM_UNPREEMPTABLE: Final = "atoll.sh/reclaim-unpreemptable"
"""Queue annotation: how long after its start a workload is not taken back for others, such as `10m`."""
READYZ: Final = "atoll.sh/readyz"
"""Lease annotation by the agent: `ok`, or why the member's API server is not ready."""
SHARDS: Final = "atoll.sh/shards"
"""Lease annotation by whoever leads a shard of control: how many shards there are."""
RELEASE: Final = "atoll.sh/release"
"""Lease annotation by whoever leads in atoll-system, and annotation of CRDs: the version of Atoll that runs there, or
brought them.
"""
AGENT_FACTS: Final = "atoll.sh/agent"
"""Lease annotation by the agent: versions and kinds as JSON (`atoll.model.member.AgentFacts`)."""
FIGURES: Final = "atoll.sh/figures"
"""Lease annotation by the agent: nodes and resources of the member as JSON (`atoll.model.member.Figures`)."""
NAME_ALONE: Final = "0"
"""Value of `SOURCE_VERSION` on what comes without contents, and is kept so."""
KIND_FINALIZER: Final = "atoll.sh/workloads"
"""On a WorkloadKind: it stays while workloads of it have bindings."""
KIND_RIGHTS: Final = "atoll-workload-kinds"
"""ClusterRole of the host and of members: what Atoll may do with declared kinds, put together from labelled ones."""
KIND_RIGHTS_LABEL: Final = "atoll.sh/aggregate-to-workload-kinds"
"""On ClusterRoles whose rules `KIND_RIGHTS` takes up, with value `true`."""
DECLARED_WEBHOOKS: Final = ("declared.atoll.sh", "declared.labelled.atoll.sh")
"""Ends of the names of webhooks for declared kinds, whose rules control keeps."""
BINDING_FINALIZER: Final = "atoll.sh/binding"
WORK_FINALIZER: Final = "atoll.sh/delivery"

# -- of the systems that Atoll is wire-compatible with -----------------------------------------------------------------
MANAGED: Final = "karmada.io/managed"
CONFLICT_RESOLUTION: Final = "work.karmada.io/conflict-resolution"
"""Work annotation: `overwrite` says that what the member has of that name goes."""
APPLIED_OVERRIDES: Final = "policy.karmada.io/applied-overrides"
"""Work annotation: the overriders of OverridePolicies that its workload has, as JSON: [{policyName, overriders}]."""
OVERRIDDEN: Final = "atoll.sh/overridden"
"""Work annotation: digests of what overrides were applied to, and of the result."""
OVERRIDES_FAILED: Final = "atoll.sh/overrides-failed"
"""Binding annotation: JSON, member -> {of, policy, why}: overrides that failed, with a digest of their input."""
APPLIED_CLUSTER_OVERRIDES: Final = "policy.karmada.io/applied-cluster-overrides"
"""The same of ClusterOverridePolicies."""
QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
GROUP_MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
NUMA_POLICY: Final = "volcano.sh/numa-topology-policy"
TOPOLOGY_MODE: Final = "volcano.sh/network-topology-mode"
TOPOLOGY_SOURCE: Final = "volcano.sh/network-topology-source"
"""Label of a HyperNode: which discovery found it; none where somebody wrote it."""
TOPOLOGY_TREE: Final = "atoll.sh/topology-tree"
"""Label of a HyperNode: the name of the tree that it is in, where a cluster has several."""
GPU_CARDS: Final = "atoll.sh/gpu-cards"
"""Pod annotation, set with the binding: the cards of its node that a pod has a share of, `0,3`."""
KOORDINATOR_DEVICES: Final = "scheduling.koordinator.sh/device-allocated"
"""Pod annotation, set with the binding where Koordinator reports the cards: devices by type, for koordlet."""
NODE_SCORING: Final = "atoll.sh/node-scoring"
"""Workload, pod and queue annotation: which nodes are preferred (`atoll.model.scoring`)."""
BALANCED: Final = "atoll.sh/balanced-over"
"""Workload and pod annotation: the tier, by name or number, over whose domains its pods are shared out evenly."""
DEVICES_IN: Final = "atoll.sh/devices-in"
"""Pod annotation: what the devices of each of its containers must be in together (`atoll.model.numa.Together`)."""
APART: Final = "atoll.sh/groups-apart"
"""Workload and pod annotation: the tier, by name or number, of which no domain has pods of two of its groups."""
APART_MODE: Final = "atoll.sh/groups-apart-mode"
"""Workload and pod annotation: `hard`, which holds without it, or `soft`."""
TOPOLOGY: Final = "atoll.sh/topology"
"""Annotation of pods in members: `networkTopology` and `subGroupPolicy` of their PodGroup, as JSON."""
HIGHEST_TIER: Final = "volcano.sh/network-topology-highest-tier"
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
GROUP_NAMES: Final = (GROUP_NAME, "scheduling.volcano.sh/group-name")
"""By either a pod names its PodGroup."""
TASK_SPEC: Final = "volcano.sh/task-spec"
GANG_TASK: Final = "atoll.sh/gang-task"
"""Annotation of the template of a pod group's pod in a member: the task of the host's gang that the pod counts for."""
TASK_INDEX: Final = "volcano.sh/task-index"
PARTITION: Final = "volcano.sh/partition-id"
RANKS: Final = "atoll.sh/pods-of-each-job"
"""Annotation of pods in members of several equal Jobs: how many each Job has, whose indices begin anew."""
INNER_SLICES: Final = ("atoll.sh/slice-of-layer-2", "atoll.sh/slice-of-layer-3")
"""Labels of pods of a pod group in members: the slice inside the partition, and the one inside of that."""
JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
JOB_VERSION: Final = "volcano.sh/job-version"
MADE_BY_TEMPLATE: Final = "volcano.sh/createdByJobTemplate"
MADE_BY_FLOW: Final = "volcano.sh/createdByJobFlow"
"""Label and annotation of a Job of a JobFlow: `namespace.name` of its JobTemplate, and of the flow."""
MADE_BY_HYPER_JOB: Final = "volcano.sh/hyperjob-name"
MADE_BY_REPLICATED_JOB: Final = "volcano.sh/replicatedjob-name"
"""Labels of a Job of a HyperJob: its name, and that of the group in it."""
ONLY_CLUSTERS: Final = "atoll.sh/only-clusters"
"""Workload annotation: the members that it may use, of those that its policy allows, with commas between."""
DIVIDED: Final = "atoll.sh/divided"
"""Workload annotation: the most members over which it may be divided, `any` for any number, whatever its policy says of
that but for a lower number.
"""
TOGETHER: Final = "atoll.sh/together"
"""Workload annotation: the gang group with which it starts or not at all, as JSON (`atoll.model.together`)."""
SCHEDULED_FOR: Final = "volcano.sh/cronjob-scheduled-timestamp"
"""Annotation of a Job of a CronJob: for when it was made (RFC 3339)."""
WAITING_TIMES: Final = (SLA_WAITING_TIME, "volcano.sh/sla-waiting-time", "sla-waiting-time")
"""Workload annotations that say so, Atoll's own and those of the sla plugin: the first that is set counts."""
PREEMPTABLE: Final = "volcano.sh/preemptable"
"""Annotation or label of a workload or of its pods: `false` keeps it from making room for others."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation of `kubectl apply`: the object as its user wrote it."""
QUEUE_LABEL: Final = "volcano.sh/queue-name"
KUEUE_MINIMUM: Final = "kueue.x-k8s.io/job-min-parallelism"
"""Annotation of a batch Job: how many of its pods must start together."""
KUEUE_TIME: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""Label of a batch Job: the seconds that it may run."""
KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"

SYSTEM_NAMESPACE: Final = "atoll-system"
CONTROL_ACCOUNT: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:atoll-control"
"""The user name of atoll-control, which alone moves suspend switches."""
QUERY_SERVICE: Final = "atoll-query"
"""Service by which the host's API server finds the dispatcher that leads."""
QUERY_ENDPOINTS: Final = {QUERY_SERVICE: "IPv4", f"{QUERY_SERVICE}-ipv6": "IPv6"}
"""Its EndpointSlices: name -> type of address, which can't be changed."""
QUERY_API: Final = "v1alpha1.query.atoll.sh"
"""APIService of the query API."""
SCHEDULER_NAME: Final = "atoll"
DEFAULT_QUEUE: Final = "default"
ROOT_QUEUE: Final = "root"
EXECUTION_PREFIX: Final = "karmada-es-"
JOIN_PREFIX: Final = "atoll-join-"
"""Begins the names of all objects of an invitation in `atoll-system` of the host; the member's name follows."""
HOST_SECRET: Final = "atoll-host"
"""Secret in `atoll-system` of a member that joined by invitation: the kubeconfig of its agent for the host."""


def execution_namespace(cluster: str) -> str:
    """The host namespace that holds everything of one member: its Works, capacity and lease."""
    return EXECUTION_PREFIX + cluster


def cluster_of(namespace: str) -> str:
    """The member whose execution namespace this is.

    Raises:
        ValueError: the namespace is not an execution namespace.
    """
    if not namespace.startswith(EXECUTION_PREFIX):
        raise ValueError(f"namespace {namespace!r} is not an execution namespace ({EXECUTION_PREFIX}<cluster>)")
    return namespace.removeprefix(EXECUTION_PREFIX)
