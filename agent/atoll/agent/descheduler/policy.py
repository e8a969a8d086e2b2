"""`DeschedulerPolicy` of descheduler/v1alpha2 as its users write it: upstream's fields and Volcano's LoadAware. Pure.

A field either acts or is refused with a sentence. Old fields of DefaultEvictor, which articles use, act as new ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
import orjson

from atoll.agent.descheduler.world import CPU, MEMORY
from atoll.model import documents, duration, placer, selectors

MOST: Final = 64
"""Profiles, plug-ins of a profile, names in a list."""
PODS: Final = "pods"
_PERCENT: Final = 100.0

LOAD_AWARE: Final = "LoadAware"
LOW_NODE_UTILIZATION: Final = "LowNodeUtilization"
NODE_TAINTS: Final = "RemovePodsViolatingNodeTaints"
NODE_AFFINITY: Final = "RemovePodsViolatingNodeAffinity"
_EVICTOR: Final = "DefaultEvictor"
_BALANCE: Final = (LOAD_AWARE, LOW_NODE_UTILIZATION)
_DESCHEDULE: Final = (NODE_TAINTS, NODE_AFFINITY)
_SERVED: Final = (_EVICTOR, *_BALANCE, *_DESCHEDULE)
_REFUSED: Final = {
    "HighNodeUtilization": "emptied nodes fill up again unless the scheduler packs: choose `binpack` (docs/scoring.md)",
    "RemoveDuplicates": "pods that must be apart say so by topologySpreadConstraints, which placers keep",
    "RemovePodsViolatingInterPodAntiAffinity": "rules between running pods are not looked at again",
    "RemovePodsViolatingTopologySpreadConstraint": "rules between running pods are not looked at again",
    "RemovePodsHavingTooManyRestarts": "pods move by load alone; policies of their workload end failing ones",
    "RemoveFailedPods": "pods move by load alone; finished pods hold no capacity",
    "PodLifeTime": "pods move by load alone; activeDeadlineSeconds of the workload bounds its life",
}
"""Upstream's plug-in -> why it has no counterpart here."""


class PolicyError(ValueError):
    """The policy is not used; the message names the field and says what to do."""


class _Args(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Arguments of a plug-in."""


class Threshold(_Args, frozen=True, kw_only=True):
    """A priority: pods below it may go."""

    name: str = ""
    value: int | None = None


class _Typed(_Args, frozen=True, kw_only=True):
    kind: str = ""
    api_version: str = ""


class _Protections(_Args, frozen=True, kw_only=True):
    default_disabled: list[
        Literal["PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods"]
    ] = []
    extra_enabled: list[Literal["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"]] = []


class Evictor(_Typed, frozen=True, kw_only=True):
    """Arguments of DefaultEvictor: which pods may go. `nodeFit` is always on: nothing goes without a place."""

    node_fit: bool = True
    node_selector: str = ""
    label_selector: dict[str, Any] | None = None
    namespace_label_selector: dict[str, Any] | None = None
    priority_threshold: Threshold = Threshold()
    min_replicas: int = 0
    min_pod_age: str = ""
    no_eviction_policy: Literal["Preferred", "Mandatory"] = "Preferred"
    pod_protections: _Protections = _Protections()
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    evict_failed_bare_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = msgspec.field(name="ignorePodsWithoutPDB", default=False)

    def __post_init__(self) -> None:
        old = self.evict_local_storage_pods or self.evict_daemon_set_pods or self.evict_system_critical_pods
        old = old or self.evict_failed_bare_pods or self.ignore_pvc_pods or self.ignore_pods_without_pdb
        if old and (self.pod_protections.default_disabled or self.pod_protections.extra_enabled):
            raise ValueError("podProtections and the old fields that it replaces exclude each other")
        if self.priority_threshold.name and self.priority_threshold.value is not None:
            raise ValueError("priorityThreshold has both name and value; one is wanted")
        if "DaemonSetPods" in self.pod_protections.default_disabled or self.evict_daemon_set_pods:
            raise ValueError("a DaemonSet makes its pod again on the same node, so none is moved")
        if "FailedBarePods" in self.pod_protections.default_disabled or self.evict_failed_bare_pods:
            raise ValueError("finished pods hold no capacity, so failed bare pods are not evicted")
        if self.min_pod_age:
            duration.parse(self.min_pod_age)
        _selects(self.node_selector)
        _selects_labels(self.label_selector)
        _selects_labels(self.namespace_label_selector)

    @property
    def local_storage(self) -> bool:
        """Whether pods with emptyDir or hostPath may go."""
        return self.evict_local_storage_pods or "PodsWithLocalStorage" in self.pod_protections.default_disabled

    @property
    def system_critical(self) -> bool:
        """Whether pods of system priorities may go."""
        return self.evict_system_critical_pods or "SystemCriticalPods" in self.pod_protections.default_disabled

    @property
    def budget_needed(self) -> bool:
        """Whether pods without a PodDisruptionBudget stay."""
        return self.ignore_pods_without_pdb or "PodsWithoutPDB" in self.pod_protections.extra_enabled

    @property
    def least_age(self) -> float:
        """Seconds that a pod must have lived."""
        return duration.parse(self.min_pod_age) if self.min_pod_age else 0.0


class Namespaces(_Args, frozen=True, kw_only=True):
    """Namespaces whose pods may go; all without a list."""

    include: list[str] = []
    exclude: list[str] = []

    def __post_init__(self) -> None:
        if self.include and self.exclude:
            raise ValueError("include and exclude exclude each other")
        if max(len(self.include), len(self.exclude)) > MOST:
            raise ValueError(f"more than {MOST} names")

    def hold(self, namespace: str) -> bool:
        """Whether pods of this namespace may go."""
        return namespace in self.include if self.include else namespace not in self.exclude


_EVERYWHERE: Final = Namespaces()


class _Metrics(_Args, frozen=True, kw_only=True):
    type: str = ""
    address: str = ""


class _Utilization(_Args, frozen=True, kw_only=True):
    source: Literal["", "KubernetesMetrics", "Prometheus"] = ""
    metrics_server: bool = False
    prometheus: dict[str, Any] | None = None


class _PerNode(_Args, frozen=True, kw_only=True):
    node: int | None = None


class _Balance(_Typed, frozen=True, kw_only=True):
    thresholds: dict[str, float]
    target_thresholds: dict[str, float]
    use_deviation_thresholds: bool = False
    number_of_nodes: int = 0
    evictable_namespaces: Namespaces = Namespaces()

    def __post_init__(self) -> None:
        low, high = self.thresholds, self.target_thresholds
        if not low or low.keys() != high.keys():
            raise ValueError("thresholds and targetThresholds must name the same resources, at least one")
        if len(low) > MOST:
            raise ValueError(f"more than {MOST} thresholds")
        for name in low:
            if not all(0 <= each <= _PERCENT and math.isfinite(each) for each in (low[name], high[name])):
                raise ValueError(f"thresholds of {name} are percentages from 0 to 100")
            if not self.use_deviation_thresholds and low[name] > high[name]:
                raise ValueError(f"targetThresholds.{name} is below thresholds.{name}")
        if self.number_of_nodes < 0:
            raise ValueError("numberOfNodes is below 0")


class _LoadAware(_Balance, frozen=True, kw_only=True):
    metrics: _Metrics = _Metrics()
    duration: str = "2m"
    node_fit: bool = True
    node_selector: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if duration.parse(self.duration) <= 0:
            raise ValueError("duration is 0")
        _selects(self.node_selector)
        if wrong := sorted(self.thresholds.keys() - {CPU, MEMORY, PODS}):
            raise ValueError(f"no figure tells the use of {', '.join(wrong)}: cpu, memory and pods are known")


class _LowNodeUtilization(_Balance, frozen=True, kw_only=True):
    metrics_utilization: _Utilization = _Utilization()
    eviction_limits: _PerNode = _PerNode()


class _Misfits(_Typed, frozen=True, kw_only=True):
    namespaces: Namespaces = Namespaces()
    label_selector: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        _selects_labels(self.label_selector)


class _NodeAffinity(_Misfits, frozen=True, kw_only=True):
    node_affinity_type: list[Literal["requiredDuringSchedulingIgnoredDuringExecution"]] = []


@dataclass(frozen=True, slots=True)
class Requests:
    """Use by requests: nothing is measured."""


@dataclass(frozen=True, slots=True)
class MetricsApi:
    """Use as metrics.k8s.io tells."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Use as a Prometheus tells."""

    address: str
    window: float
    """Seconds over which it is averaged."""


@dataclass(frozen=True, slots=True)
class Balance:
    """Move pods from nodes above the target to nodes below the threshold."""

    plugin: str
    low: Mapping[str, float]
    """Resource -> share of allocatable, or distance from the mean."""
    high: Mapping[str, float]
    deviation: bool = False
    number_of_nodes: int = 0
    namespaces: Namespaces = _EVERYWHERE
    source: Requests | MetricsApi | Prometheus = Requests()
    node_selector: str = ""
    """Of targets."""
    per_node: int | None = None
    """Evictions from one node in a cycle."""


@dataclass(frozen=True, slots=True)
class Misfits:
    """Move pods that their own node would not take any more, by its taints or their required node affinity."""

    plugin: str
    namespaces: Namespaces = _EVERYWHERE
    labels: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """Strategies of one profile, deschedule before balance, and the pods that may go by it."""

    name: str
    evictor: Evictor
    strategies: tuple[Balance | Misfits, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """What of a policy acts."""

    profiles: tuple[Profile, ...]
    node_selector: str = ""
    """Of nodes that are looked at."""
    per_node: int | None = None
    per_namespace: int | None = None
    total: int | None = None
    grace: int | None = None
    """Seconds for evicted pods; None for their own."""
    failure_events: bool = False
    """Whether a refused eviction is an Event of its pod."""
    without_effect: tuple[str, ...] = field(default=())
    """Sentences on arguments that no enabled plug-in reads."""

    @property
    def balances(self) -> list[Balance]:
        """All strategies that need figures."""
        return [each for profile in self.profiles for each in profile.strategies if isinstance(each, Balance)]


class _PluginConfig(_Args, frozen=True, kw_only=True):
    name: str
    args: dict[str, Any] = {}


class _Set(_Args, frozen=True, kw_only=True):
    enabled: list[str] = []
    disabled: list[str] = []


class _Plugins(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="lower"):
    presort: _Set = _Set()
    sort: _Set = _Set()
    deschedule: _Set = _Set()
    balance: _Set = _Set()
    filter: _Set = _Set()
    preevictionfilter: _Set = _Set()


class _Profile(_Args, frozen=True, kw_only=True):
    name: str = ""
    plugin_config: list[_PluginConfig] = []
    plugins: _Plugins = _Plugins()


class _Secret(_Args, frozen=True, kw_only=True):
    secret_reference: dict[str, str] = {}


class _ProviderPrometheus(_Args, frozen=True, kw_only=True):
    url: str = ""
    auth_token: _Secret | None = None


class _Provider(_Args, frozen=True, kw_only=True):
    source: Literal["KubernetesMetrics", "Prometheus"]
    prometheus: _ProviderPrometheus | None = None


class _Document(_Args, frozen=True, kw_only=True):
    api_version: Literal["descheduler/v1alpha2"]
    kind: Literal["DeschedulerPolicy"]
    profiles: list[_Profile]
    node_selector: str = ""
    max_no_of_pods_to_evict_per_node: int | None = None
    max_no_of_pods_to_evict_per_namespace: int | None = None
    max_no_of_pods_to_evict_total: int | None = None
    grace_period_seconds: int | None = None
    eviction_failure_event_notification: bool = False
    metrics_providers: list[_Provider] = []


def parse(text: str) -> Policy:
    """The policy in this text.

    Raises:
        PolicyError: something of it can't act as it stands; the message names the field.
    """
    try:
        found = documents.read_yaml(text)
    except documents.BadDocument as error:
        raise PolicyError(f"the policy can't be read: {error}") from error
    raw = _read(_Document, found, "the policy")
    _selects(raw.node_selector)
    if not 0 < len(raw.profiles) <= MOST:
        raise PolicyError(f"the policy has {len(raw.profiles)} profiles; from 1 to {MOST} are read")
    limits = {
        "maxNoOfPodsToEvictPerNode": raw.max_no_of_pods_to_evict_per_node,
        "maxNoOfPodsToEvictPerNamespace": raw.max_no_of_pods_to_evict_per_namespace,
        "maxNoOfPodsToEvictTotal": raw.max_no_of_pods_to_evict_total,
        "gracePeriodSeconds": raw.grace_period_seconds,
    }
    for name, value in limits.items():
        if value is not None and value < 0:
            raise PolicyError(f"{name} is {value}, below 0")
    address = ""
    for provider in raw.metrics_providers[:MOST]:
        if provider.source == "Prometheus":
            address = provider.prometheus.url if provider.prometheus is not None else ""
            if not address:
                raise PolicyError("metricsProviders: Prometheus needs prometheus.url")
            if provider.prometheus is not None and provider.prometheus.auth_token is not None:
                raise PolicyError(
                    "metricsProviders: authToken is not read from a Secret; mount it, and name the file by setting"
                    " prometheus.tokenFile"
                )
    idle: list[str] = []
    profiles = tuple(_profile(each, address, idle) for each in raw.profiles)
    return Policy(
        profiles,
        raw.node_selector,
        raw.max_no_of_pods_to_evict_per_node,
        raw.max_no_of_pods_to_evict_per_namespace,
        raw.max_no_of_pods_to_evict_total,
        raw.grace_period_seconds,
        failure_events=raw.eviction_failure_event_notification,
        without_effect=tuple(idle),
    )


def _profile(raw: _Profile, address: str, idle: list[str]) -> Profile:
    where = f"profile {raw.name!r}"
    if len(raw.plugin_config) > MOST:
        raise PolicyError(f"{where} has more than {MOST} plug-ins")
    configured: dict[str, dict[str, Any]] = {}
    for each in raw.plugin_config:
        _known(each.name, where)
        if each.name in configured:
            raise PolicyError(f"{where}: plug-in {each.name} is configured twice")
        configured[each.name] = each.args
    points = {name: getattr(raw.plugins, name) for name in raw.plugins.__struct_fields__}
    for point, chosen in points.items():
        if len(chosen.enabled) + len(chosen.disabled) > MOST:
            raise PolicyError(f"{where}: plugins.{point} has more than {MOST} names")
        for name in (*chosen.enabled, *chosen.disabled):
            _known(name, where)
        for name in chosen.enabled:
            right = {"balance": _BALANCE, "deschedule": _DESCHEDULE}.get(point, (_EVICTOR, LOAD_AWARE))
            if name not in right:
                raise PolicyError(f"{where}: plugins.{point} can't enable {name}; it takes {', '.join(right)}")
    evictor: Evictor = _read(Evictor, configured.pop(_EVICTOR, {}), f"{where}, {_EVICTOR}")
    if not evictor.node_fit:
        idle.append(f"{where}: nodeFit is always on: no pod is evicted without a place")
    strategies: list[Balance | Misfits] = []
    for point in ("deschedule", "balance"):
        for name in points[point].enabled:
            if name in points[point].disabled:
                raise PolicyError(f"{where}: plugins.{point} both enables and disables {name}")
            strategies.append(_strategy(name, configured.pop(name, {}), address, f"{where}, {name}"))
    idle += [f"{where}: {name} is configured and not enabled" for name in sorted(configured)]
    if not strategies:
        raise PolicyError(f"{where} enables no plug-in; write plugins.balance.enabled: [{LOAD_AWARE}]")
    return Profile(raw.name, evictor, tuple(strategies))


def _strategy(name: str, args: dict[str, Any], address: str, where: str) -> Balance | Misfits:
    if name == LOAD_AWARE:
        raw = _read(_LoadAware, args, where)
        kind = raw.metrics.type.lower().replace("_", "-")
        source: Requests | MetricsApi | Prometheus
        if kind in ("prometheus", ""):
            url = raw.metrics.address or address
            if not url.startswith(("http://", "https://")):
                raise PolicyError(f"{where}: metrics.address is {url!r}; write http://HOST:PORT of a Prometheus")
            source = Prometheus(url.rstrip("/"), duration.parse(raw.duration))
        elif kind in ("metrics-server", "metricsserver", "kubernetesmetrics", "prometheus-adaptor"):
            source = MetricsApi()
        else:
            raise PolicyError(f"{where}: metrics.type is {raw.metrics.type!r}; write Prometheus or metrics-server")
        return _balance(name, raw, source, node_selector=raw.node_selector)
    if name == LOW_NODE_UTILIZATION:
        low = _read(_LowNodeUtilization, args, where)
        use = low.metrics_utilization
        if use.source == "Prometheus" or use.prometheus is not None:
            raise PolicyError(f"{where}: one query weighs no pods; use {LOAD_AWARE} with metrics.type Prometheus")
        measured = use.source == "KubernetesMetrics" or use.metrics_server
        if measured and (wrong := sorted(low.thresholds.keys() - {CPU, MEMORY, PODS})):
            raise PolicyError(f"{where}: no figure tells the use of {', '.join(wrong)}")
        return _balance(name, low, MetricsApi() if measured else Requests(), per_node=low.eviction_limits.node)
    misfits: _Misfits = _read(_NodeAffinity if name == NODE_AFFINITY else _Misfits, args, where)
    if isinstance(misfits, _NodeAffinity) and not misfits.node_affinity_type:
        raise PolicyError(f"{where}: nodeAffinityType is needed: [requiredDuringSchedulingIgnoredDuringExecution]")
    return Misfits(name, misfits.namespaces, misfits.label_selector)


def _balance(
    name: str,
    raw: _Balance,
    source: Requests | MetricsApi | Prometheus,
    *,
    node_selector: str = "",
    per_node: int | None = None,
) -> Balance:
    return Balance(
        name,
        {resource: value / _PERCENT for resource, value in raw.thresholds.items()},
        {resource: value / _PERCENT for resource, value in raw.target_thresholds.items()},
        raw.use_deviation_thresholds,
        raw.number_of_nodes,
        raw.evictable_namespaces,
        source,
        node_selector,
        per_node,
    )


def _known(name: str, where: str) -> None:
    if why := _REFUSED.get(name):
        raise PolicyError(f"{where}: {name} is not served: {why}")
    if name not in _SERVED:
        raise PolicyError(f"{where}: there is no plug-in {name[:MOST]!r}; known are {', '.join(_SERVED)}")


def _selects(text: str) -> None:
    if text:
        placer.parse_selector(text)


def _selects_labels(selector: Mapping[str, Any] | None) -> None:
    if selector is not None:
        selectors.parse(orjson.dumps(selector).decode())


def _read(model: type[Any], value: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, model)
    except (msgspec.ValidationError, ValueError) as error:
        raise PolicyError(f"{where}: {error}") from error
