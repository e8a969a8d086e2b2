"""Propagation policies: what Karmada refuses of them, and selectors of clusters as all policies have them."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.admission.problems import Json, Problem, integer, mapping, sequence
from atoll.kinds import BY_GVK
from atoll.model import keys, labels, network
from atoll.model.failover import path_of

_FIELDS = ("provider", "region", "zone")


def policy_problems(policy: Json, namespace: str) -> list[Problem]:
    """All that is wrong with a PropagationPolicy, or with a ClusterPropagationPolicy where `namespace` is empty."""
    spec = mapping(policy.get("spec"))
    selectors = [*_network(policy), *selector_problems(spec.get("resourceSelectors"), namespace)]
    failover = _failover(mapping(spec.get("failover")))
    return [*selectors, *_preemption(spec), *_suspension(spec), *failover, *_placement(mapping(spec.get("placement")))]


def policy_warnings(policy: Json) -> list[Problem]:
    """What of a propagation policy does not act on all kinds that it selects."""
    spec = mapping(policy.get("spec"))
    scheduling = mapping(mapping(spec.get("placement")).get("replicaScheduling"))
    if scheduling.get("replicaSchedulingType") != "Duplicated":
        return []
    selected = [mapping(each) for each in sequence(spec.get("resourceSelectors"))]
    kinds = [BY_GVK.get((str(each.get("apiVersion")), str(each.get("kind")))) for each in selected]
    jobs = sorted({kind.resource.kind for kind in kinds if kind is not None and not kind.service})
    field = "spec.placement.replicaScheduling.replicaSchedulingType"
    text = f"has no effect on {', '.join(jobs)}: a job runs once, in one cluster; services run in each"
    return [Problem(field, text)] if jobs else []


def selector_problems(selectors: object, namespace: str) -> Iterator[Problem]:
    """A policy of a namespace speaks of that namespace's objects only."""
    for index, selector in enumerate(sequence(selectors)):
        named = mapping(selector).get("namespace")
        if namespace and named and named != namespace:
            field = f"spec.resourceSelectors[{index}].namespace"
            yield Problem(
                field, f"is {named!r}; a policy of namespace {namespace!r} selects that namespace's objects only"
            )


def affinity_problems(affinity: object, path: str) -> Iterator[Problem]:
    """Problems of a selector of clusters."""
    expressions = mapping(mapping(affinity).get("fieldSelector")).get("matchExpressions")
    for index, each in enumerate(sequence(expressions)):
        field, each = f"{path}.fieldSelector.matchExpressions[{index}]", mapping(each)
        if each.get("key") not in _FIELDS:
            yield Problem(f"{field}.key", f"is {each.get('key')!r}; use provider, region or zone")
        if each.get("operator") not in ("In", "NotIn"):
            yield Problem(f"{field}.operator", f"is {each.get('operator')!r}; use In or NotIn")


def _network(policy: Json) -> Iterator[Problem]:
    text = mapping(mapping(policy.get("metadata")).get("annotations")).get(keys.NETWORK)
    if text:
        try:
            network.check(str(text))
        except network.BadNetwork as error:
            yield Problem(f"metadata.annotations[{keys.NETWORK}]", str(error))


def _preemption(spec: Json) -> Iterator[Problem]:
    if spec.get("preemption") != "Always":
        return
    for index, selector in enumerate(sequence(spec.get("resourceSelectors"))):
        if not mapping(selector).get("name"):
            text = "is needed with preemption Always: the policy would take over workloads that it does not name"
            yield Problem(f"spec.resourceSelectors[{index}].name", text)


def _suspension(spec: Json) -> Iterator[Problem]:
    suspension = mapping(spec.get("suspension"))
    if suspension.get("dispatching") and mapping(suspension.get("dispatchingOnClusters")).get("clusterNames"):
        yield Problem("spec.suspension", "set dispatching or dispatchingOnClusters, not both")


def _failover(failover: Json) -> Iterator[Problem]:
    application = mapping(failover.get("application"))
    grace, path = application.get("gracePeriodSeconds"), "spec.failover.application.gracePeriodSeconds"
    if grace is not None and application.get("purgeMode") not in (None, "Gracefully", "Graciously"):
        yield Problem(path, "is for purgeMode Gracefully only")
    elif grace is not None and (integer(grace) or 0) < 1:
        yield Problem(path, f"is {grace}; at least a second")
    for name in ("application", "cluster"):
        rules = mapping(mapping(failover.get(name)).get("statePreservation")).get("rules")
        for index, rule in enumerate(map(mapping, sequence(rules))):
            field = f"spec.failover.{name}.statePreservation.rules[{index}]"
            try:
                labels.check_key(str(rule.get("aliasLabelName")))
            except labels.SelectorError as error:
                yield Problem(f"{field}.aliasLabelName", str(error))
            try:
                path_of(str(rule.get("jsonPath")))
            except ValueError as error:
                yield Problem(f"{field}.jsonPath", str(error))


def _placement(placement: Json) -> Iterator[Problem]:
    path, terms = "spec.placement", sequence(placement.get("clusterAffinities"))
    if placement.get("clusterAffinity") is not None and terms:
        yield Problem(path, "set clusterAffinity or clusterAffinities, not both")
    yield from affinity_problems(placement.get("clusterAffinity"), f"{path}.clusterAffinity")
    overflows = _by_room(mapping(placement.get("replicaScheduling")))
    names = set()
    for index, term in enumerate(map(mapping, terms)):
        field = f"{path}.clusterAffinities[{index}]"
        yield from affinity_problems(term, field)
        if term.get("affinityName") in names:
            yield Problem(
                f"{field}.affinityName", f"{term.get('affinityName')!r} is taken; each group needs its own name"
            )
        names.add(term.get("affinityName"))
        tiers = sequence(term.get("overflowAffinities"))
        if tiers and not overflows:
            text = "needs replicas divided by room: replicaDivisionPreference Aggregated, or dynamicWeight"
            yield Problem(f"{field}.overflowAffinities", text)
        if tiers and not any(term.get(each) for each in ("labelSelector", "fieldSelector", "clusterNames", "exclude")):
            yield Problem(
                f"{field}.overflowAffinities", "needs a group that selects clusters: all would be in the first tier"
            )
        tier_names = {term.get("affinityName")}
        for number, tier in enumerate(map(mapping, tiers)):
            at = f"{field}.overflowAffinities[{number}]"
            yield from affinity_problems(tier, at)
            if not tier.get("affinityName") or tier["affinityName"] in tier_names:
                yield Problem(f"{at}.affinityName", "each tier needs a name of its own")
            tier_names.add(tier.get("affinityName"))
    yield from _spread(placement)
    yield from _workload_affinity(mapping(placement.get("workloadAffinity")), f"{path}.workloadAffinity")
    for index, toleration in enumerate(sequence(placement.get("clusterTolerations"))):
        operator = mapping(toleration).get("operator")
        if operator not in (None, "", "Exists", "Equal"):
            yield Problem(f"{path}.clusterTolerations[{index}].operator", f"is {operator!r}; use Exists or Equal")


def _by_room(scheduling: Json) -> bool:
    """Whether replicas are divided by clusters' free capacity."""
    if scheduling.get("replicaSchedulingType", "Divided") != "Divided":
        return False
    preference = scheduling.get("replicaDivisionPreference")
    return preference == "Aggregated" or bool(mapping(scheduling.get("weightPreference")).get("dynamicWeight"))


def _spread(placement: Json) -> Iterator[Problem]:
    path, fields = "spec.placement.spreadConstraints", list[str]()
    for index, each in enumerate(map(mapping, sequence(placement.get("spreadConstraints")))):
        field = f"{path}[{index}]"
        by, label = each.get("spreadByField"), each.get("spreadByLabel")
        if by and label:
            yield Problem(field, "set spreadByField or spreadByLabel, not both")
        least, most = integer(each.get("minGroups")) or 0, integer(each.get("maxGroups")) or 0
        for name, value in (("minGroups", least), ("maxGroups", most)):
            if value < 0:
                yield Problem(f"{field}.{name}", f"is {value}; use 0 or more")
        if 0 < most < least:
            yield Problem(f"{field}.maxGroups", f"{most} is less than minGroups, {least}")
        if by and by in fields:
            yield Problem(field, f"there is a constraint by {by} already; keep one")
        if by or not label:
            fields.append(str(by or "cluster"))
    if fields and "cluster" not in fields:
        yield Problem(path, f"a constraint by {fields[0]} needs one by cluster as well: how many clusters in all")


def _workload_affinity(affinity: Json, path: str) -> Iterator[Problem]:
    beside, apart = (mapping(affinity.get(each)).get("groupByLabelKey") for each in ("affinity", "antiAffinity"))
    if beside and beside == apart:
        yield Problem(path, "affinity and antiAffinity name the same label")
