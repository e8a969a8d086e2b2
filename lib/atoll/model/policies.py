"""Policies as the host's processes read them, and which of several a workload follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from atoll.model import selectors
from atoll.model.apiresource import ApiResource
from atoll.model.objects import Full, HasMeta, Meta, Slim

Json = dict[str, Any]


class PolicySpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """spec of a PropagationPolicy."""

    resource_selectors: list[Json] = []
    placement: Json | None = None
    priority: int = 0
    propagate_deps: bool | None = None
    association: bool | None = None
    preemption: str = "Never"
    conflict_resolution: str = "Abort"
    activation_preference: str | None = None
    dependent_overrides: list[str] = []
    suspension: Json | None = None
    schedule_priority: Json | None = None
    failover: Json | None = None
    preserve_resources_on_deletion: bool | None = None

    @property
    def propagates(self) -> bool | None:
        """Whether what workloads refer to goes along; None where that is not said."""
        return True if self.propagate_deps is None and self.association else self.propagate_deps


class SelectingSpec(Protocol):
    """spec of any policy."""

    @property
    def resource_selectors(self) -> list[Json]: ...


class Selecting(HasMeta, Protocol):
    """Any policy that selects objects."""

    @property
    def spec(self) -> SelectingSpec: ...


class PolicyObject(Slim, frozen=True, rename="camel"):
    """A PropagationPolicy."""

    spec: PolicySpec = PolicySpec()


decode_policy = msgspec.json.Decoder(PolicyObject).decode

_NAMESPACED: Final = "propagationpolicy.karmada.io"
_CLUSTER: Final = "clusterpropagationpolicy.karmada.io"
ALL_MEMBERS: Final = "*"
MOST_SELECTING: Final = 100
"""Policies of a namespace, or of the cluster, that may select one object by kind and name."""


class TooMany(ValueError):
    """More policies may select an object than are compared."""


class Claim(NamedTuple):
    """The policy that a workload follows until another one preempts it; as Karmada writes it, on the binding."""

    namespace: str
    """Empty for one of the cluster."""
    name: str


def claim_of(annotations: Mapping[str, str]) -> Claim | None:
    """The claim that a binding says; None where it has none."""
    if name := annotations.get(f"{_NAMESPACED}/name"):
        return Claim(annotations.get(f"{_NAMESPACED}/namespace", ""), name)
    name = annotations.get(f"{_CLUSTER}/name")
    return Claim("", name) if name else None


def claim_metadata(policy: PolicyObject | None) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """(labels, annotations) of a binding that follows a policy; None where it is to have none."""
    labels: dict[str, str | None] = {f"{each}/permanent-id": None for each in (_NAMESPACED, _CLUSTER)}
    notes: dict[str, str | None] = dict.fromkeys(
        (f"{_NAMESPACED}/namespace", f"{_NAMESPACED}/name", f"{_CLUSTER}/name")
    )
    if policy is not None:
        scope, metadata = _NAMESPACED if policy.metadata.namespace else _CLUSTER, policy.metadata
        labels[f"{scope}/permanent-id"] = metadata.labels.get(f"{scope}/permanent-id") or metadata.uid
        notes[f"{scope}/name"] = metadata.name
        if metadata.namespace:
            notes[f"{scope}/namespace"] = metadata.namespace
    return labels, notes


def suspended_on(policy: PolicyObject | None) -> list[str]:
    """Members to which a policy sends nothing new; `ALL_MEMBERS` for all."""
    suspension = (policy.spec.suspension if policy is not None else None) or {}
    if suspension.get("dispatching"):
        return [ALL_MEMBERS]
    return sorted(set((suspension.get("dispatchingOnClusters") or {}).get("clusterNames") or ()))


Lookup = Callable[[str], Iterable[PolicyObject]]
"""The policies under a value of the index `selected`."""


def choose(
    resource: ApiResource,
    obj: Full,
    *,
    own: Lookup,
    common: Lookup,
    default: PolicyObject | None = None,
    claim: Claim | None = None,
) -> PolicyObject | None:
    """The policy of a workload: of its namespace, else of the cluster, else the default of its queue; None means all
    members, one cluster.

    Args:
        resource: of the workload.
        obj: the workload.
        own: the policies of namespaces.
        common: those of the cluster.
        default: the one that the queue names.
        claim: the policy that it follows already: it does so while that selects it, until one with preemption Always
            and a higher priority does; one of the namespace preempts those of the cluster whatever the priorities.

    Raises:
        TooMany: may select it.
    """
    groups = [
        _candidates(lookup, namespace, resource, obj.metadata.name)
        for lookup, namespace in ((own, obj.metadata.namespace), (common, ""))
    ]
    held = next((each for each in chain(*groups) if claim == (each.metadata.namespace or "", each.metadata.name)), None)
    if held is not None and best([held], resource, obj) is not None:
        takers = [[each for each in group if _preempts(each, held)] for group in groups]
        return best(takers[0], resource, obj) or best(takers[1], resource, obj) or held
    return best(groups[0], resource, obj) or best(groups[1], resource, obj) or default


def lookup(policies: Iterable[PolicyObject]) -> Lookup:
    """Policies that no cache indexes, by their selectors."""
    found: defaultdict[str, list[PolicyObject]] = defaultdict(list)
    for each in policies:
        for value in selected(each):
            found[value].append(each)
    return lambda value: found.get(value, ())


def _candidates(lookup: Lookup, namespace: str, resource: ApiResource, name: str) -> list[PolicyObject]:
    found = {each.metadata.name: each for value in selecting(namespace, resource, name) for each in lookup(value)}
    if len(found) > MOST_SELECTING:
        scope = f"of namespace {namespace}" if namespace else "of the cluster"
        text = f"{len(found)} propagation policies {scope} may select it; {MOST_SELECTING} are compared at most"
        raise TooMany(f"{text}: select workloads by name, or delete some")
    return list(found.values())


def best(policies: Iterable[PolicyObject], resource: ApiResource, obj: Full) -> PolicyObject | None:
    """Of those that select the workload the one of the highest priority; then the one that does so most exactly; then
    by name.
    """
    found = []
    for policy in policies:
        exact = max((exactness(each, resource, obj.metadata) for each in policy.spec.resource_selectors), default=0)
        if exact:
            found.append((-policy.spec.priority, -exact, policy.metadata.name, policy))
    return min(found, key=lambda each: each[:3])[3] if found else None


def _preempts(policy: PolicyObject, held: PolicyObject) -> bool:
    if policy.spec.preemption != "Always":
        return False
    scopes = bool(policy.metadata.namespace), bool(held.metadata.namespace)
    return policy.spec.priority > held.spec.priority if scopes[0] == scopes[1] else scopes[0]


def selected(policy: Selecting) -> list[str]:
    """What an index files a policy under: its namespace, and the kinds and names that it selects."""
    own, selectors = policy.metadata.namespace, policy.spec.resource_selectors
    named = {f"{own}/{each.get('apiVersion')}/{each.get('kind')}/{each.get('name') or ''}" for each in selectors}
    return sorted(named) or [f"{own}///"]


def selecting(namespace: str, resource: ApiResource, name: str) -> tuple[str, ...]:
    """Under which values that index has the policies that may select an object.

    Args:
        namespace: of the policies; empty for the cluster's.
        resource: of the object.
        name: of the object.
    """
    kind = f"{namespace}/{resource.api_version}/{resource.kind}"
    return f"{kind}/{name}", f"{kind}/", f"{namespace}///"


def exactness(selector: Json, resource: ApiResource, metadata: Meta) -> int:
    """How exactly a resource selector matches: 3 by name, 2 by labels, 1 by kind, 0 not at all."""
    if (selector.get("apiVersion"), selector.get("kind")) != (resource.api_version, resource.kind):
        return 0
    if (selector.get("namespace") or metadata.namespace) != metadata.namespace:
        return 0
    if selector.get("name"):
        return 3 if selector["name"] == metadata.name else 0
    if selector.get("labelSelector"):
        return 2 if selectors.label_selector_matches(selector["labelSelector"], metadata.labels) else 0
    return 1
