"""What each process may do: every rule of every role, in one place.

A process has exactly the rules that it uses. A test compares them with the audit logs of a run: a request that was
refused, or an unused rule, fails it. A rule for events outside of a normal run (the first start, a
recovery, a cluster that is set up otherwise) says so in `rare`; the test lets it pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from atoll.kinds import BROUGHT, BY_RESOURCE, DELIVERED, KINDS, Kind, makers, unserved
from atoll.kube import authority
from atoll.model import certificates, keys, shards, tunnel
from atoll.model.apiresource import (
    ACCESS_REVIEWS,
    API_SERVICES,
    BATCH_JOBS,
    BINDINGS,
    BUDGETS,
    CAPACITIES,
    CLAIMS,
    CLUSTER_OVERRIDES,
    CLUSTER_POLICIES,
    CLUSTER_PROFILES,
    CLUSTER_REQUESTS,
    CLUSTER_ROLES,
    CLUSTERS,
    COMMANDS,
    CONFIGMAPS,
    CRDS,
    CSI_NODES,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    ENDPOINT_SLICES,
    EVENTS,
    HYPER_NODES,
    JOB_TEMPLATES,
    JOBS,
    KOORDINATOR_DEVICES,
    LEASES,
    LIMIT_RANGES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NETWORK_POLICIES,
    NODE_METRICS,
    NODE_TOPOLOGIES,
    NODES,
    NUMA_TOPOLOGIES,
    OVERRIDES,
    POD_GROUPS,
    POD_METRICS,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    QUEUES,
    REPLICA_SETS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICE_EXPORTS,
    SERVICES,
    SIGNERS,
    SIGNING_REQUESTS,
    STORAGE_CLASSES,
    TUNNELS,
    VALIDATING_WEBHOOKS,
    VOLUMES,
    WORKLOAD_KINDS,
    WORKS,
    ApiResource,
)
from atoll.model.namespaces import PROPAGATED

Json = dict[str, Any]

_AGENT_LEASE: Final = "atoll-agent"


@dataclass(frozen=True, slots=True)
class Rule:
    """Verbs on one resource or subresource, or on URLs that are none."""

    group: str
    resource: str
    """`works`, `works/status`; a URL path where it begins with `/`."""
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Only objects of these names; empty means all."""
    rare: str = ""
    """Why a run may not use it; empty where every run does."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Rules that an account has in one namespace, or everywhere."""

    namespace: str | None
    """None: cluster-scoped resources, and namespaced ones in all namespaces."""
    rules: tuple[Rule, ...]


def _on(resource: ApiResource, *verbs: str, sub: str = "", names: tuple[str, ...] = (), rare: str = "") -> Rule:
    path = f"{resource.plural}/{sub}" if sub else resource.plural
    return Rule(resource.group, path, verbs, names, rare)


def _election(*leases: str) -> Grant:
    """Leases of a process with a leader."""
    return Grant(
        keys.SYSTEM_NAMESPACE,
        (
            # A create can't be bound to a name, as the name is in the body.
            _on(LEASES, "create"),
            _on(LEASES, "get", "update", names=leases),
        ),
    )


def _owner(resource: ApiResource) -> Rule:
    return _on(
        resource,
        "update",
        sub="finalizers",
        rare="needed where admission plugin OwnerReferencesPermissionEnforcement is on: objects made for a workload"
        " block its deletion",
    )


_BROUGHT: Final = "only where that CRD is there"
_DEVICES: Final = "only once a pod with a ResourceClaim is there"
_QUIET: Final = "a watch that has nothing to tell is not in audit logs"


def _workload(kind: Kind) -> Iterator[Rule]:
    """What control does to each workload kind on the host."""
    resource = kind.resource
    if kind.assembly is not None:
        yield _on(resource, "list", "watch", rare=_QUIET)
        yield _on(resource, "patch", sub="status", rare="only once a workload of that kind was submitted")
        return
    yield _on(resource, "list", "watch", rare=_BROUGHT if kind.optional else "")
    yield _on(resource, "patch", rare="only kinds with a suspend switch, and Jobs that a Command aborts or resumes")
    yield _on(resource, "delete", rare="only finished workloads with ttlSecondsAfterFinished")
    yield _on(resource, "patch", sub="status", rare="only once a workload of that kind was submitted")
    yield _owner(resource)


def _maker(resource: ApiResource) -> Iterator[Rule]:
    """What control does to what makes Volcano Jobs."""
    yield _on(resource, "list", "watch")
    if resource != JOB_TEMPLATES:
        yield _on(resource, "patch", sub="status", rare="only once one is there")
        yield _owner(resource)


_DECLARES: Final = "only once a user has declared a kind"
_KIND_RIGHTS: Final = _on(CLUSTER_ROLES, "list", "watch", names=(keys.KIND_RIGHTS,))

_ROTATES: Final = "only when another CA is to be trusted"
_BOTH_WEBHOOKS: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)

WEBHOOK: Final = (
    Grant(
        keys.SYSTEM_NAMESPACE,
        (
            # `init` makes it: a create can't be bound to a name, and would let other Secrets be planted here.
            _on(SECRETS, "list", "watch", names=(authority.SECRET,)),
            _on(SECRETS, "get", names=(authority.SECRET,), rare="only before a CA is written"),
            _on(SECRETS, "update", names=(authority.SECRET,), rare="only when the authority is rotated"),
        ),
    ),
    Grant(
        None,
        (
            # An admission policy leaves it the CA and nothing else of them.
            _on(MUTATING_WEBHOOKS, "get", "list", "watch", names=(keys.WEBHOOKS,)),
            _on(VALIDATING_WEBHOOKS, "list", "watch", names=(keys.WEBHOOKS,)),
            _on(MUTATING_WEBHOOKS, "patch", names=(keys.WEBHOOKS,), rare=_ROTATES),
            _on(VALIDATING_WEBHOOKS, "patch", names=(keys.WEBHOOKS,), rare=_ROTATES),
            _on(QUEUES, "list", "watch"),
            _on(NAMESPACES, "list", "watch"),
            _on(PRIORITY_CLASSES, "list", "watch"),
            _on(CLUSTERS, "list", "watch"),
            _on(POLICIES, "list", "watch"),
            _on(CLUSTER_POLICIES, "list", "watch"),
            _on(OVERRIDES, "list", "watch"),
            _on(CLUSTER_OVERRIDES, "list", "watch"),
            _on(WORKLOAD_KINDS, "list", "watch"),
            # What pods name, and their workloads' wishes are read from.
            _on(POD_GROUPS, "list", "watch"),
            # What workloads name and their pods are read from.
            *(
                _on(resource, "list", "watch", rare=_BROUGHT)
                for kind in KINDS
                if kind.referred is not None
                for resource in kind.referred.resources
            ),
        ),
    ),
)

_CERTIFIED: Final = "only where a member has joined with certificates"
_PROFILES: Final = "only where atoll-control runs with --cluster-profiles"

CONTROL: Final = (
    Grant(
        keys.SYSTEM_NAMESPACE,
        (
            *_election(*shards.NAMES).rules,
            _on(CLUSTER_PROFILES, "list", "watch", "create", "patch", "delete", rare=_PROFILES),
            _on(CLUSTER_PROFILES, "patch", sub="status", rare=_PROFILES),
            # Runs of workloads that went before they were recorded.
            _on(CONFIGMAPS, "list", "watch", "create", "patch", "delete", rare="only with a store of records"),
        ),
    ),
    Grant(
        None,
        (
            *(rule for kind in KINDS for rule in _workload(kind)),
            # Metadata of workloads that it does not run, to say so.
            *(
                _on(resource, "list", "watch", rare=_QUIET)
                for resource in unserved.BUILT_IN
                if resource not in BY_RESOURCE
            ),
            *(_on(resource, "list", "watch", rare=_BROUGHT) for resource in unserved.BY_CRD),
            *(rule for resource in makers.ROUTES for rule in _maker(resource)),
            _on(JOBS, "get", "create", rare="only once a JobFlow, a CronJob or a HyperJob is there"),
            _on(CRDS, "list", "watch"),
            # Kinds that users declare; another role, which this one reads, has the rights to them.
            _on(WORKLOAD_KINDS, "list", "watch"),
            _on(WORKLOAD_KINDS, "patch", rare=_DECLARES),
            _on(WORKLOAD_KINDS, "patch", sub="status", rare=_DECLARES),
            _KIND_RIGHTS,
            # An admission policy leaves it the rules for declared kinds and nothing else of them.
            *(_on(each, "list", "watch", "patch", names=(keys.WEBHOOKS,)) for each in _BOTH_WEBHOOKS),
            _on(NAMESPACES, "list", "watch"),
            # What namespaces may hand on to members.
            *(_on(resource, "list", "watch", rare=_QUIET) for resource in PROPAGATED.values()),
            # Of namespaces whose dispatched workloads refer to them, one namespace at a time.
            *(
                _on(resource, "list", "watch", rare="only where workloads refer to such objects")
                for resource in (CONFIGMAPS, SERVICE_ACCOUNTS, CLAIMS)
            ),
            # Devices that claims of pods ask for.
            *(_on(resource, "list", "watch") for resource in (RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)),
            _on(PRIORITY_CLASSES, "list", "watch"),
            _on(POLICIES, "list", "watch"),
            _on(CLUSTER_POLICIES, "list", "watch"),
            _on(OVERRIDES, "list", "watch"),
            _on(CLUSTER_OVERRIDES, "list", "watch"),
            _on(BINDINGS, "list", "watch", "create", "patch"),
            _on(BINDINGS, "delete", rare="the collector of the host may be faster when a workload is deleted"),
            _on(BINDINGS, "update", sub="status"),
            _on(BINDINGS, "patch", sub="status", rare="only a leader of the release before"),
            # Works are in one namespace per member; members come and go, so their namespaces can't be listed here.
            _on(WORKS, "list", "watch", "create", "delete"),
            _on(WORKS, "patch", rare="only when a workload that runs is changed, or a divided gang is committed"),
            _on(WORKS, "get", rare="only a Work whose making the cache has not shown when its binding is evicted"),
            _on(QUEUES, "list", "watch"),
            _on(QUEUES, "patch", sub="status"),
            _on(COMMANDS, "list", "watch"),
            _on(COMMANDS, "delete", rare="only once a Command was sent"),
            _on(CLUSTERS, "list", "watch"),
            _on(CLUSTERS, "patch", sub="status"),
            _on(LEASES, "list", "watch", names=(_AGENT_LEASE,)),
            _on(LEASES, "patch", names=(_AGENT_LEASE,), rare="only once a workload with ResourceClaims waits"),
            # A policy leaves it the requests of members' agents.
            _on(SIGNING_REQUESTS, "list", "watch", rare=_QUIET),
            _on(SIGNING_REQUESTS, "patch", sub="approval", rare=_CERTIFIED),
            _on(SIGNERS, "approve", names=(certificates.SIGNER,), rare=_CERTIFIED),
            _on(EVENTS, "create", "patch", rare="only what a user must know: a Command that can't be obeyed"),
        ),
    ),
)

SECRETS_OF_NAMESPACES: Final = Grant(
    None, (_on(SECRETS, "list", "watch", rare="only where pods refer to Secrets and the namespace hands them on"),)
)
"""ClusterRole `keys.SECRET_READER`: control has it in namespaces whose administrators bind it there, nowhere else."""

_ASKED: Final = "only once a what-if is asked"
_SERVES: Final = "only where the query API is served, for which --query-port can be 0"

DISPATCHER: Final = (
    Grant(
        keys.SYSTEM_NAMESPACE,
        (
            *_election("atoll-dispatcher").rules,
            _on(SERVICES, "get", names=(keys.QUERY_SERVICE,), rare=_SERVES),
            _on(
                SERVICES, "patch", names=(keys.QUERY_SERVICE,), rare="only a leader outside the host, at a new address"
            ),
            _on(
                ENDPOINT_SLICES,
                "patch",
                names=tuple(keys.QUERY_ENDPOINTS),
                rare="only a leader that runs in the host",
            ),
        ),
    ),
    Grant(
        "kube-system",
        (_on(CONFIGMAPS, "get", names=("extension-apiserver-authentication",), rare=_SERVES),),
    ),
    Grant(
        None,
        (
            # An admission policy binds the create to that name as well.
            _on(API_SERVICES, "create", rare="the apply that makes it is logged as a patch"),
            _on(API_SERVICES, "patch", names=(keys.QUERY_API,), rare=_SERVES),
            _on(API_SERVICES, "delete", names=(keys.QUERY_API,), rare="only when a leader ends in order"),
            _on(ACCESS_REVIEWS, "create", rare="only once the query API is asked"),
            _on(NAMESPACES, "get", rare=_ASKED),
            _on(NAMESPACES, "list", "watch"),
            _on(POLICIES, "list", rare=_ASKED),
            _on(CLUSTER_POLICIES, "list", rare=_ASKED),
            _on(PRIORITY_CLASSES, "list", rare=_ASKED),
            _on(WORKLOAD_KINDS, "list", rare=_ASKED),
            _on(RESOURCE_CLAIMS, "get", rare=_ASKED),
            _on(RESOURCE_CLAIM_TEMPLATES, "get", rare=_ASKED),
            _on(BINDINGS, "list", "watch", "patch"),
            _on(BINDINGS, "get", rare="only once runs of a queue are asked"),
            _on(QUEUES, "list", "watch"),
            _on(QUEUES, "patch", sub="status"),
            _on(CLUSTERS, "list", "watch"),
            _on(CLUSTERS, "patch", sub="status", rare="only of a member that fails, or publishes what can't be so"),
            _on(EVENTS, "create", "patch", rare="only of such a member, or if an invariant of its own is broken"),
            _on(CAPACITIES, "list", "watch"),
            _on(RESOURCE_QUOTAS, "list", "watch"),
        ),
    ),
)

HOST: Final[Mapping[str, tuple[Grant, ...]]] = {"webhook": WEBHOOK, "control": CONTROL, "dispatcher": DISPATCHER}
"""Process -> its grants on the host."""

_BY_KARMADA: Final = "only once a workload was left to Atoll by its policy"

CONTROL_ON_KARMADA: Final = (
    _election(*shards.NAMES),
    Grant(
        None,
        (
            # The gang of a workload is read from its template.
            *(_on(kind.resource, "list", "watch", rare=_BROUGHT) for kind in KINDS if kind.assembly is None),
            _on(CRDS, "list", "watch"),
            _on(NAMESPACES, "list", "watch"),
            _on(PRIORITY_CLASSES, "list", "watch"),
            _on(BINDINGS, "list", "watch"),
            _on(BINDINGS, "patch", rare=_BY_KARMADA),
            _on(BINDINGS, "patch", sub="status", rare=_BY_KARMADA),
            # Their metadata: leftovers of an evicted workload.
            _on(WORKS, "list", "watch"),
            _on(QUEUES, "list", "watch"),
            _on(CLUSTERS, "list", "watch"),
            _on(CLUSTERS, "patch", sub="status"),
            # In the execution namespaces of Karmada, one for each member.
            _on(CAPACITIES, "patch"),
            _on(CAPACITIES, "create", rare="the apply that makes one is logged as a patch"),
            _on(EVENTS, "create", "patch", rare="only of a binding that can't be queued"),
        ),
    ),
)

ON_KARMADA: Final[Mapping[str, tuple[Grant, ...]]] = {**HOST, "control": CONTROL_ON_KARMADA}
"""Process -> its grants on a Karmada."""


_RENEWED: Final = "only its own token, once four fifths of its life are over"


def agent_on_host(cluster: str) -> tuple[Grant, ...]:
    """The agent of this member, in its own execution namespace and nowhere else."""
    return (
        Grant(
            keys.execution_namespace(cluster),
            (
                _on(WORKS, "list", "watch"),
                _on(WORKS, "patch", rare="only to let a Work go, once one was deleted"),
                _on(WORKS, "get", rare="only to be sure that no Work asks for an object that is to be removed"),
                _on(WORKS, "update", sub="status", rare="only once a workload was sent to this member"),
                _on(WORKS, "patch", sub="status", rare="only agents of the release before"),
                _on(CAPACITIES, "list"),
                _on(CAPACITIES, "patch", rare="a member without nodes has no capacity to publish"),
                _on(CAPACITIES, "create", rare="the apply that makes one is logged as a patch"),
                _on(CAPACITIES, "delete", rare="only when a topmost domain of the member is gone"),
                _on(SERVICE_ACCOUNTS, "create", sub="token", names=(_AGENT_LEASE,), rare=_RENEWED),
                _on(LEASES, "patch", names=(_AGENT_LEASE,)),
                _on(LEASES, "get", names=(_AGENT_LEASE,), rare="only an agent that does not lead"),
                _on(LEASES, "create", names=(_AGENT_LEASE,), rare="the apply that makes it is logged as a patch"),
            ),
        ),
    )


def reader_of_cluster(cluster: str) -> tuple[Grant, ...]:
    """What an agent needs besides: its own Cluster, which says who places in the member, and its tunnel.

    Give it roles of a name of their own (`ensure_rights`), as the Cluster is not in a namespace.
    """
    rare = "only with --member-secret"
    return (
        Grant(
            None,
            (
                _on(CLUSTERS, "list", "watch", names=(cluster,)),
                _on(WORKLOAD_KINDS, "list", "watch"),
                _on(CLUSTERS, "get", names=(cluster,), rare=rare),
                _on(
                    TUNNELS, "get", sub=tunnel.SUBRESOURCE, names=(cluster,), rare="only where the query API is served"
                ),
            ),
        ),
    )


def reader_of_secret(namespace: str, name: str) -> tuple[Grant, ...]:
    """What an agent needs besides for `--member-secret`: that Secret by name, nothing of its kind."""
    rare = "read and renewed only by an agent that is started with --member-secret"
    return (Grant(namespace, (_on(SECRETS, "get", "patch", names=(name,), rare=rare),)),)


def asker_of_certificate(cluster: str) -> tuple[Grant, ...]:
    """What an agent needs besides for certificates: the one request of its member, whose content a policy binds."""
    rare = "only at its beginning, and once four fifths of the life of a certificate are over"
    return (
        Grant(
            None,
            (
                # A create can't be bound to a name, as the name is in the body.
                _on(SIGNING_REQUESTS, "create", rare=rare),
                _on(SIGNING_REQUESTS, "get", "delete", names=(certificates.request_name(cluster),), rare=rare),
            ),
        ),
    )


def joiner(cluster: str) -> tuple[Grant, ...]:
    """The token of an invitation: it asks once, reads the answer, and withdraws."""
    rare = "only while a member joins by invitation"
    return (
        Grant(
            None,
            (
                _on(CLUSTER_REQUESTS, "get", "delete", names=(cluster,), rare=rare),
                # The status alone can be written by it, and that once.
                _on(CLUSTER_REQUESTS, "patch", sub="status", names=(cluster,), rare=rare),
            ),
        ),
    )


def joined(cluster: str) -> tuple[Grant, ...]:
    """The token of an invitation once the request is approved: it gets tokens of the agent's account."""
    rare = "only while a member joins by invitation"
    rule = _on(SERVICE_ACCOUNTS, "create", sub="token", names=(_AGENT_LEASE,), rare=rare)
    return (Grant(keys.execution_namespace(cluster), (rule,)),)


def reader_of_authority(name: str) -> tuple[Grant, ...]:
    """Everybody, strangers included: the host's CA, in that one ConfigMap."""
    rare = "only while a member joins by invitation"
    return (Grant(keys.SYSTEM_NAMESPACE, (_on(CONFIGMAPS, "get", names=(name,), rare=rare),)),)


_PLUGGED: Final = "only for Volcano Jobs with plugins that need them"
_CREATED: Final = "the apply that makes one is logged as a patch"
_DELIVERED: Final = "only once a workload of that kind was sent to this member"

AGENT_IN_MEMBER: Final = (
    Grant(
        keys.SYSTEM_NAMESPACE,
        (
            *_election("atoll-agent").rules,
            _on(SERVICE_ACCOUNTS, "create", sub="token", names=(_AGENT_LEASE,), rare=_RENEWED),
            _on(
                SECRETS,
                "get",
                "patch",
                names=(keys.HOST_SECRET,),
                rare="its own credentials, if it joined by invitation",
            ),
            # How its scheduler is configured.
            _on(CONFIGMAPS, "list", "watch", names=("atoll-scheduler",)),
        ),
    ),
    Grant(
        None,
        (
            # It makes pods in every namespace that workloads come from, as any controller of pods does.
            _on(PODS, "list", "watch"),
            _on(PODS, "create", "delete", rare=_DELIVERED),
            _on(PODS, "get", sub="log", rare="only once a user reads the output of a workload"),
            _on(PODS, "get", rare="only to look at a pod whose binding was answered with a conflict"),
            _on(PODS, "patch", rare="only pods that come without a PodGroup and are to get one"),
            _on(PODS, "patch", sub="status", rare="only pods that wait for a node"),
            _on(PODS, "create", sub="binding", rare=_DELIVERED),
            _on(PODS, "create", sub="eviction", rare="only pods that came to the member without the host"),
            # Budgets that its evictions respect.
            _on(BUDGETS, "list", "watch"),
            _on(NODES, "list", "watch"),
            _on(
                NODE_METRICS,
                "list",
                rare="only once a scoring asks for it, or use is measured for records",
            ),
            _on(POD_METRICS, "list", rare="only where use is measured for records (setting busy.every)"),
            # Which nodes the volumes of pods can be reached from.
            *(_on(resource, "list", "watch") for resource in (CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES)),
            # Which CPUs are in which NUMA node, where something writes it.
            *(_on(resource, "list", "watch", rare=_BROUGHT) for resource in (NUMA_TOPOLOGIES, NODE_TOPOLOGIES)),
            # GPUs one by one, where Koordinator reports them.
            _on(KOORDINATOR_DEVICES, "list", "watch", rare=_BROUGHT),
            # Devices that drivers publish, and claims to them: the account writes allocations as kube-scheduler does.
            *(_on(resource, "list", "watch") for resource in (RESOURCE_SLICES, DEVICE_CLASSES, RESOURCE_CLAIMS)),
            _on(DEVICE_TAINT_RULES, "list", "watch", rare="only where resource.k8s.io/v1beta2 is served"),
            _on(RESOURCE_CLAIMS, "patch", rare=_DEVICES),
            _on(RESOURCE_CLAIMS, "patch", sub="status", rare=_DEVICES),
            _on(RESOURCE_CLAIMS, "patch", sub="binding", rare=_DEVICES),
            _on(CLAIMS, "patch", rare="only claims whose class waits for their first pod's node"),
            # Kinds that other systems bring, which may come and go; their controllers make what makes the pods.
            _on(CRDS, "list", "watch"),
            _KIND_RIGHTS,
            _on(REPLICA_SETS, "list", "watch"),
            _on(HYPER_NODES, "list", "watch"),
            _on(HYPER_NODES, "patch", sub="status", rare="only HyperNodes that are wrong, or were"),
            # What work that enters there takes turns by.
            _on(QUEUES, "list", "watch"),
            _on(POD_GROUPS, "list", "watch"),
            _on(POD_GROUPS, "create", "patch", rare=_DELIVERED),
            _on(POD_GROUPS, "delete", rare="only the plan of a part that was released, or that is not asked for"),
            *(
                rule
                for resource, rare in ((kind.resource, _BROUGHT if kind.optional else "") for kind in DELIVERED)
                for rule in (
                    _on(resource, "list", "watch", rare=rare),
                    _on(resource, "create", "delete", rare=_DELIVERED),
                    _on(resource, "get", rare="only to be sure that a workload is gone before its Work goes"),
                    _on(resource, "patch", rare="only when a workload is changed while it runs"),
                    _owner(resource),
                )
            ),
            # What goes along with workloads of some kinds. A patch first tests for a label of Atoll's.
            *(_on(resource, "create", "patch", "delete", rare=_DELIVERED) for resource in BROUGHT),
            # The status of others is their own controllers'.
            *(
                _on(kind.resource, "patch", sub="status", rare=_DELIVERED)
                for kind in DELIVERED
                if kind.in_member is not None and kind.in_member.status
            ),
            _on(NAMESPACES, "list", "watch"),
            _on(NAMESPACES, "create", rare=_DELIVERED),
            _on(NAMESPACES, "patch", rare="only once a namespace on the host says what its pods may"),
            _on(PRIORITY_CLASSES, "create", "list", "delete", rare="only for workloads that name a PriorityClass"),
            # A patch returns the object, so it reads: it first tests for a label of Atoll's.
            _on(SERVICE_ACCOUNTS, "create", "patch", "delete", rare="only for workloads that name a ServiceAccount"),
            _on(CLAIMS, "create", "delete", rare="only for Volcano Jobs with a volumeClaim"),
            _on(RESOURCE_CLAIMS, "create", "delete", rare=_DEVICES),
            _on(RESOURCE_CLAIM_TEMPLATES, "create", "patch", "delete", rare=_DEVICES),
            *(
                _on(resource, "list", "patch", "delete", rare="only where a namespace on the host hands its rules on")
                for resource in PROPAGATED.values()
            ),
            *(_on(resource, "create", rare=_CREATED) for resource in (LIMIT_RANGES, RESOURCE_QUOTAS)),
            *(_on(resource, "create", "get", rare=_PLUGGED) for resource in (SERVICES, CONFIGMAPS, NETWORK_POLICIES)),
            _on(SERVICE_EXPORTS, "create", "get", rare="only for divided Jobs whose policy names a network"),
            # References of pods. A patch returns the object, so it reads: it first tests for a label of Atoll's.
            _on(
                CONFIGMAPS, "patch", "delete", rare="only for workloads whose pods refer to ConfigMaps, and plugin svc"
            ),
            _on(SECRETS, "create", rare="only for Volcano Jobs with plugin ssh or mpi, and pods that refer to Secrets"),
            _on(SECRETS, "patch", "delete", rare="only for pods that refer to Secrets, and plugins ssh and mpi"),
            _on(REPLICA_SETS, "get", rare="only for pods of a Deployment that are to get a PodGroup"),
            # Volcano and Kueue are known by their images, in Deployments, and webhooks, under any name.
            _on(MUTATING_WEBHOOKS, "list", "watch"),
            _on(VALIDATING_WEBHOOKS, "list", "watch"),
            # Of pods that a workload's controller could not make.
            _on(EVENTS, "list", "watch"),
            _on(EVENTS, "create", "patch", rare="only once there is something to tell about a workload"),
            Rule("", "/readyz", ("get",), rare="health requests are not in audit logs"),
        ),
    ),
    Grant("kube-system", (_on(LEASES, "get", names=("kube-scheduler",)),)),
)
"""The agent in its member."""


EXEC_IN_MEMBER: Final = (
    Grant(
        None,
        tuple(_on(PODS, "create", "get", sub=sub, rare="only once a user asks") for sub in ("exec", "portforward")),
    ),
)
"""The agent in a member whose administrator lets users of the host into their pods: ClusterRole `atoll-agent-exec`."""

LOCKS_IN_MEMBER: Final = (Grant(None, (_on(NODES, "patch", rare="only with --hami, for HAMi's lock of a node"),)),)
"""The agent in a member with `--hami`: ClusterRole `atoll-agent-hami` of its chart."""


INSTALLER: Final = (
    Grant(
        "kube-system",
        (
            _on(BATCH_JOBS, "create", rare="a dry run that shows whether spec.managedBy is kept"),
            _on(CONFIGMAPS, "create", rare="a dry run by which the API server calls the webhook"),
        ),
    ),
    Grant(
        keys.SYSTEM_NAMESPACE,
        (
            _on(SECRETS, "create"),
            _on(SECRETS, "get", "delete", names=(authority.SECRET,)),
            _on(ENDPOINT_SLICES, "create"),
            _on(ENDPOINT_SLICES, "delete", names=tuple(keys.QUERY_ENDPOINTS)),
            _on(LEASES, "list"),
            _on(LEASES, "delete", names=(*shards.NAMES, "atoll-dispatcher")),
            _on(DEPLOYMENTS, "patch", names=("atoll-webhook", "atoll-control", "atoll-dispatcher")),
        ),
    ),
    Grant(
        None,
        (
            # By which other systems are recognised.
            *(_on(resource, "list") for resource in (DEPLOYMENTS, API_SERVICES, *_BOTH_WEBHOOKS)),
            _on(LEASES, "get", names=("karmada-controller-manager",)),
            _on(CRDS, "list", "create", "patch"),
            _on(NAMESPACES, "get", "patch", names=(keys.SYSTEM_NAMESPACE,)),
            *(_on(resource, "create") for resource in _BOTH_WEBHOOKS),
            *(_on(resource, "get", "patch", "delete", names=(keys.WEBHOOKS,)) for resource in _BOTH_WEBHOOKS),
            _on(VALIDATING_WEBHOOKS, "patch", "delete", names=("atoll-probe",)),
            _on(QUEUES, "create"),
            _on(QUEUES, "update", names=(keys.ROOT_QUEUE,), rare="asked for by policy atoll-queue-parents, never used"),
            *(_on(resource, "list") for resource in (CLUSTERS, BINDINGS, WORKS)),
            _on(WORKLOAD_KINDS, "list", "patch"),
            _on(API_SERVICES, "delete", names=(keys.QUERY_API,)),
        ),
    ),
)
"""Account `atoll-installer` of the hooks of chart `atoll`, which exists while they run."""

INSTALLER_IN_MEMBER: Final = (
    Grant(
        keys.SYSTEM_NAMESPACE,
        (
            _on(LEASES, "list"),
            _on(LEASES, "delete", names=(_AGENT_LEASE,)),
            _on(DEPLOYMENTS, "patch", names=(_AGENT_LEASE,)),
        ),
    ),
    Grant(None, (_on(CRDS, "list", "create", "patch"),)),
)
"""The same of chart `atoll-agent`."""


def manifest_rules(grant: Grant) -> list[Json]:
    """The rules of a grant as a (Cluster)Role has them; equal verbs on resources of one group are one rule."""
    merged: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    result: list[Json] = []
    for (group, path, names), verbs in _by_resource(grant).items():
        if path.startswith("/"):
            result.append({"nonResourceURLs": [path], "verbs": list(verbs)})
        else:
            merged.setdefault((group, verbs, names), []).append(path)
    for (group, verbs, names), paths in merged.items():
        rule: Json = {"apiGroups": [group], "resources": paths, "verbs": list(verbs)}
        result.append({**rule, "resourceNames": list(names)} if names else rule)
    return result


def _by_resource(grant: Grant) -> dict[tuple[str, str, tuple[str, ...]], tuple[str, ...]]:
    found: dict[tuple[str, str, tuple[str, ...]], tuple[str, ...]] = {}
    for rule in grant.rules:
        key = (rule.group, rule.resource, rule.names)
        found[key] = (*found.get(key, ()), *rule.verbs)
    return found
