"""Kueue's queues, cohorts, flavors and priority classes (v1beta1, v1beta2) as Atoll's Queues and PriorityClasses.

A cohort becomes an inner queue, a ClusterQueue a queue below it, and a LocalQueue a queue below that, so that workloads
keep their label. Where several ClusterQueues back LocalQueues of one name the label has to change: Atoll's queues have
no namespace.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from atoll.cli.imported import (
    Amount,
    Imported,
    Json,
    amount,
    by_parents,
    metadata,
    new_queue,
    priority_class,
    read,
    resources,
    rest,
    title,
)
from atoll.model import flavors, keys, quantity

_GROUP = "kueue.x-k8s.io/"
_BUILT_IN = (keys.ROOT_QUEUE, keys.DEFAULT_QUEUE)
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_OTHER_KINDS = {
    "AdmissionCheck": "no counterpart; a MultiKueue check becomes `atollctl join` of each worker",
    "MultiKueueConfig": "members serve a queue by `atollctl queue update --clusters`; join each worker",
    "MultiKueueCluster": "`atollctl join NAME --member-kubeconfig FILE`",
    "Topology": "`atollctl topology discover --kueue NAME` in each member makes HyperNodes of its levels",
    "Workload": "apply the job itself to the host; Atoll makes a ResourceBinding of it",
}
_NOTED = {
    "admissionChecks": "no counterpart; members are chosen by what fits, and a MultiKueue check by `atollctl join`",
    "admissionChecksStrategy": "no counterpart; see admissionChecks",
    "concurrentAdmissionPolicy": "no counterpart; a workload takes the first flavor with quota and room, and stays",
    "excludeResourcePrefixes": "no counterpart; take the 0 of such resources out of capability",
}
_USUAL = {
    "whenCanBorrow": ("MayStopSearch", "Borrow"),
    "whenCanPreempt": ("TryNextFlavor",),
    "preference": ("BorrowingOverPreemption",),
}


class Quota(msgspec.Struct, frozen=True, rename="camel"):
    """Of one resource of one flavor."""

    name: str
    nominal_quota: Amount
    borrowing_limit: Amount | None = None
    lending_limit: Amount | None = None


class FlavorQuotas(msgspec.Struct, frozen=True):
    """Of one flavor."""

    name: str
    resources: list[Quota]


class Group(msgspec.Struct, frozen=True, rename="camel"):
    """Resources with their flavors."""

    covered_resources: list[str]
    flavors: list[FlavorQuotas]


class Fair(msgspec.Struct, frozen=True):
    """The weight of fair sharing."""

    weight: Amount | None = None


class Scope(msgspec.Struct, frozen=True, rename="camel"):
    """Admission fair sharing."""

    admission_mode: str = ""


class Preemption(msgspec.Struct, frozen=True, rename="camel"):
    """Policies of a ClusterQueue as a preemptor."""

    reclaim_within_cohort: str = "Never"
    within_cluster_queue: str = "Never"
    borrow_within_cohort: Json | None = None


class ClusterQueue(msgspec.Struct, frozen=True, rename="camel"):
    """Spec of a ClusterQueue of both versions."""

    resource_groups: list[Group] | None = None
    cohort: str = ""
    cohort_name: str = ""
    queueing_strategy: str = "BestEffortFIFO"
    namespace_selector: Json | None = None
    flavor_fungibility: dict[str, str] | None = None
    preemption: Preemption | None = None
    admission_checks: Any = None
    admission_checks_strategy: Any = None
    stop_policy: str | None = None
    fair_sharing: Fair | None = None
    admission_scope: Scope | None = None
    concurrent_admission_policy: Any = None
    exclude_resource_prefixes: Any = None

    @property
    def above(self) -> str:
        """Its cohort, by the field of either version; empty without one."""
        return self.cohort_name or self.cohort


class Cohort(msgspec.Struct, frozen=True, rename="camel"):
    """Spec of a Cohort of both versions."""

    parent: str = ""
    parent_name: str = ""
    resource_groups: list[Group] | None = None
    fair_sharing: Fair | None = None

    @property
    def above(self) -> str:
        """Its parent, by the field of either version; empty without one."""
        return self.parent_name or self.parent


class LocalQueue(msgspec.Struct, frozen=True, rename="camel"):
    """Spec of a LocalQueue."""

    cluster_queue: str = ""
    stop_policy: str | None = None
    fair_sharing: Fair | None = None
    wall_time_policy: Any = None


class ResourceFlavor(msgspec.Struct, frozen=True, rename="camel"):
    """Spec of a ResourceFlavor."""

    node_labels: dict[str, str] | None = None
    node_taints: Any = None
    tolerations: Any = None
    topology_name: str | None = None
    resource_weights: Any = None


def imported(objects: Sequence[Json]) -> Imported:
    """Atoll's objects for those of Kueue.

    Args:
        objects: as `flattened` gives them.

    Raises:
        CommandError: one can't be read, or cohorts are in a circle.
    """
    return _Import(objects).result


class _Amounts:
    """What a node of the quota tree has, by resource; a flavor of a resource is one more resource."""

    def __init__(self) -> None:
        self.nominal: dict[str, Fraction] = defaultdict(Fraction)
        self.kept: dict[str, Fraction] = defaultdict(Fraction)
        self.borrowed: dict[str, Fraction] = defaultdict(Fraction)
        self.unlimited: set[str] = set()


class _Import:
    def __init__(self, objects: Sequence[Json]) -> None:
        self.result = Imported()
        self._notes = self.result.notes
        by_kind: dict[str, list[Json]] = defaultdict(list)
        for obj in objects:
            if not str(obj.get("apiVersion")).startswith(_GROUP):
                self._note(obj, "it is not of Kueue, and is left out; apply it yourself where the host needs it")
                continue
            by_kind[obj["kind"]].append(obj)
        known = {
            "ClusterQueue": ClusterQueue,
            "Cohort": Cohort,
            "LocalQueue": LocalQueue,
            "ResourceFlavor": ResourceFlavor,
        }
        self._specs: dict[str, list[tuple[Json, Any]]] = {}
        for kind, into in known.items():
            self._specs[kind] = [(obj, self._read(obj, into)) for obj in by_kind.pop(kind, ())]
        for obj in by_kind.pop("WorkloadPriorityClass", ()):
            self._priority(obj)
        for obj in (each for kind in by_kind.values() for each in kind):
            self._note(obj, _OTHER_KINDS.get(obj["kind"], "it has no counterpart and is left out"))
        self._flavors = self._read_flavors()
        self._own = {_key(obj): self._amounts(obj, spec) for obj, spec in self._nodes()}
        self._covered = {name for each in self._own.values() for name in each.nominal}
        self._queues: dict[str, Json] = {}
        self._names = {obj["metadata"]["name"] for obj, _ in self._specs["ClusterQueue"]}
        self._cohorts()
        for obj, spec in self._specs["ClusterQueue"]:
            self._cluster_queue(obj, spec)
        self._local_queues()
        self._write_flavors()
        self.result.objects += by_parents(self._guaranteed())
        if self._queues:
            text = "resources that no queue names are not limited in Atoll; Kueue admits nothing that asks for them"
            self._notes.append(f"all queues: {text}. Set their capability to 0 where that matters")

    def _note(self, obj: Json, text: str) -> None:
        self._notes.append(f"{title(obj)}: {text}")

    def _read(self, obj: Json, into: type[Any]) -> Any:
        self._notes.extend(rest(obj, "spec"))
        return read(obj, into, obj.get("spec"), self._notes)

    def _nodes(self) -> Iterator[tuple[Json, Any]]:
        yield from self._specs["Cohort"]
        yield from self._specs["ClusterQueue"]

    def _priority(self, obj: Json) -> None:
        if found := priority_class(obj, self._notes):
            self.result.objects.append(found)
            text = "becomes a PriorityClass; set priorityClassName in pod templates, the label has no effect in Atoll"
            self._note(obj, f"{text}. In members it is the priority of the pods as well")

    # -- flavors --

    def _read_flavors(self) -> dict[str, dict[str, tuple[str, str]]]:
        """Resource -> flavor -> label, for extended resources whose flavors Atoll can tell apart."""
        used: dict[str, list[str]] = defaultdict(list)
        for _, spec in self._nodes():
            for group in spec.resource_groups or ():
                for each in group.flavors:
                    for quota in each.resources:
                        if each.name not in used[quota.name]:
                            used[quota.name].append(each.name)
        specs = {obj["metadata"]["name"]: (obj, spec) for obj, spec in self._specs["ResourceFlavor"]}
        for obj, spec in specs.values():
            metadata(obj, self._notes)
            self._flavor_notes(obj, spec)
        for name in sorted({name for names in used.values() for name in names} - specs.keys()):
            self._notes.append(f"ResourceFlavor {name}: it is not among the objects, and its nodes are not known")
        found: dict[str, dict[str, tuple[str, str]]] = {}
        for resource, names in used.items():
            labels = {name: dict(specs[name][1].node_labels or {}) for name in names if name in specs}
            if not any(labels.values()):
                self._merged(resource, names)
                continue
            chosen = {name: _distinct(name, labels) for name in labels if labels[name]}
            text = json.dumps({resource: {name: "=".join(label) for name, label in chosen.items()}})
            try:
                flavors.parse(text)
            except flavors.FlavorError as error:
                self._merged(resource, names, f" ({error})")
                continue
            found[resource] = chosen
            for name, label in chosen.items():
                if len(labels[name]) > 1:
                    self._note(specs[name][0], f"Atoll tells nodes of {resource} apart by {'='.join(label)} alone")
        if len(found) > flavors.MOST_RESOURCES:
            for resource in list(found)[flavors.MOST_RESOURCES :]:
                self._merged(resource, [*found.pop(resource)], f" (at most {flavors.MOST_RESOURCES} have flavors)")
        return found

    def _flavor_notes(self, obj: Json, spec: ResourceFlavor) -> None:
        if spec.node_taints:
            self._note(obj, "nodeTaints: members read the taints of their nodes themselves; nothing to do")
        if spec.tolerations:
            self._note(obj, "tolerations are not added to pods; write them in pod templates, or in an OverridePolicy")
        if spec.topology_name:
            text = f"topologyName: run `atollctl topology discover --kueue {spec.topology_name} --apply` in each member"
            self._note(obj, text)
        if spec.resource_weights:
            self._note(obj, "resourceWeights has no counterpart; shares count every resource alike")

    def _merged(self, resource: str, names: Sequence[str], why: str = "") -> None:
        if len(names) > 1 or why:
            text = f"its flavors {', '.join(names)} become one quota, the sum{why}"
            self._notes.append(f"resource {resource}: {text}; only extended resources have flavors, by a node label")

    def _places(self, resource: str, flavor: str) -> list[str]:
        """The names under which Atoll counts a quota of a flavor."""
        if resource not in self._flavors:
            return [resource]
        known = flavor if flavor in self._flavors[resource] else flavors.OTHER
        return [resource, f"{resource}{flavors.SIGN}{known}"]

    def _write_flavors(self) -> None:
        if not self._flavors:
            return
        root = new_queue(keys.ROOT_QUEUE, {})
        _annotate(root, keys.FLAVORS, flavors.text(self._flavors))
        self.result.objects.append(root)
        self._notes.append(
            "Queue root: its annotation names the flavors; flavors that the host has already are replaced"
        )

    # -- amounts --

    def _amounts(self, obj: Json, spec: Any) -> _Amounts:
        found = _Amounts()
        for group in spec.resource_groups or ():
            for flavor in group.flavors:
                for quota in flavor.resources:
                    self._add(found, obj, flavor.name, quota)
        return found

    def _add(self, found: _Amounts, obj: Json, flavor: str, quota: Quota) -> None:
        nominal = amount(obj, f"nominalQuota of {quota.name}", quota.nominal_quota)
        for name in self._places(quota.name, flavor):
            found.nominal[name] += nominal
            if quota.lending_limit is not None:
                lent = amount(obj, f"lendingLimit of {quota.name}", quota.lending_limit)
                found.kept[name] += max(nominal - lent, Fraction(0))
            if quota.borrowing_limit is None:
                found.unlimited.add(name)
            else:
                found.borrowed[name] += amount(obj, f"borrowingLimit of {quota.name}", quota.borrowing_limit)

    # -- queues --

    def _cohorts(self) -> None:
        there = {obj["metadata"]["name"]: (obj, spec) for obj, spec in self._specs["Cohort"]}
        named = {spec.above for _, spec in self._specs["ClusterQueue"]}
        named |= {spec.above for _, spec in there.values()}
        for name in sorted(named - there.keys() - {""}):
            obj = {"kind": "Cohort", "metadata": {"name": name}}
            there[name] = obj, Cohort()
            self._own[_key(obj)] = _Amounts()
            self._note(obj, "it is not among the objects, and becomes a queue without a quota of its own")
        self._cohort_names = {name: self._free(name, "cohort", obj) for name, (obj, _) in there.items()}
        for name, (obj, spec) in there.items():
            total = self._total(name, there, ())
            queue = self._queue(obj, self._cohort_names[name], spec)
            own = self._own[_key(obj)]
            if own.borrowed or own.kept:
                self._note(obj, "its lendingLimit and borrowingLimit bound its own quota alone, not all of its subtree")
            self._quota(queue, total, own, capped=not spec.above)

    def _total(self, name: str, there: Mapping[str, tuple[Json, Any]], seen: tuple[str, ...]) -> dict[str, Fraction]:
        """What a cohort and all below it have."""
        found: dict[str, Fraction] = defaultdict(Fraction, self._own[_key(there[name][0])].nominal)
        if name in seen:
            return found
        parts = [self._own[_key(obj)].nominal for obj, spec in self._specs["ClusterQueue"] if spec.above == name]
        below = [each for each, (_, spec) in there.items() if spec.above == name]
        for part in [*parts, *(self._total(each, there, (*seen, name)) for each in below)]:
            for resource, value in part.items():
                found[resource] += value
        return found

    def _cluster_queue(self, obj: Json, spec: ClusterQueue) -> None:
        name = obj["metadata"]["name"]
        queue = self._queue(obj, self._renamed(name, obj), spec)
        own = self._own[_key(obj)]
        self._quota(queue, own.nominal, own, capped=not spec.above)
        if missing := sorted(self._covered - own.nominal.keys()):
            queue["spec"].setdefault("capability", {}).update(dict.fromkeys(missing, "0"))
            self._note(
                obj, f"it does not cover {', '.join(missing)}: capability 0, as Kueue admits nothing that asks for it"
            )
        if spec.queueing_strategy == "StrictFIFO":
            queue["spec"]["dequeueStrategy"] = "fifo"
        if spec.namespace_selector is None:
            self._note(obj, "without namespaceSelector no namespace may use it; the queue is closed to all of them")
        for field, advice in _NOTED.items():
            if (obj.get("spec") or {}).get(field):
                self._note(obj, f"{field}: {advice}")
        for field, value in (spec.flavor_fungibility or {}).items():
            if value not in _USUAL.get(field, ()):
                text = "Atoll takes the first flavor with quota, borrowed or not, and room, before it evicts anything"
                self._note(obj, f"flavorFungibility.{field} {value} has no counterpart; {text}")
        self._preemption(obj, spec.preemption or Preemption())
        self._stopped(obj, spec.stop_policy, queue["metadata"]["name"])
        if spec.admission_scope and spec.admission_scope.admission_mode == "UsageBasedAdmissionFairSharing":
            _annotate(queue, keys.ORDER, "fair-namespaces")
            text = "set the half-life of Kueue's configuration with `atollctl queue update --fair-half-life`"
            self._note(obj, f"admissionScope becomes order fair-namespaces; {text}")

    def _preemption(self, obj: Json, rules: Preemption) -> None:
        if rules.reclaim_within_cohort != "Any":
            text = "Atoll's queues reclaim what others borrow, of any priority; the lender's side is `reclaimable`"
            self._note(obj, f"preemption.reclaimWithinCohort {rules.reclaim_within_cohort} has no counterpart: {text}")
        if rules.within_cluster_queue != "LowerPriority":
            text = "Atoll preempts lower priorities alone; PriorityClasses with preemptionPolicy Never preempt nothing"
            self._note(obj, f"preemption.withinClusterQueue {rules.within_cluster_queue} has no counterpart: {text}")
        if (rules.borrow_within_cohort or {}).get("policy", "Never") != "Never":
            self._note(obj, "preemption.borrowWithinCohort has no counterpart: who would borrow reclaims nothing")

    def _stopped(self, obj: Json, policy: str | None, queue: str) -> None:
        if policy in ("Hold", "HoldAndDrain"):
            drain = "; `atollctl job hold` ends what runs" if policy == "HoldAndDrain" else ""
            self._note(obj, f"stopPolicy {policy}: run `atollctl queue close {queue}` once it is applied{drain}")

    def _local_queues(self) -> None:
        backed: dict[str, set[str]] = defaultdict(set)
        below: dict[str, dict[str, list[tuple[Json, LocalQueue]]]] = defaultdict(lambda: defaultdict(list))
        for obj, spec in self._specs["LocalQueue"]:
            meta = metadata(obj, self._notes)
            if spec.wall_time_policy:
                self._note(obj, "wallTimePolicy has no counterpart; set activeDeadlineSeconds in each job")
            if spec.fair_sharing and spec.fair_sharing.weight is not None:
                text = f"kubectl annotate namespace {meta.namespace} {keys.FAIR_WEIGHT}={spec.fair_sharing.weight}"
                self._note(obj, f"fairSharing.weight acts as `{text}`, in queues with order fair-namespaces")
            if spec.cluster_queue not in self._names:
                text = f"ClusterQueue {spec.cluster_queue or '(none)'} is not among the objects; it is left out"
                self._note(obj, text)
                continue
            backed[meta.name].add(spec.cluster_queue)
            below[spec.cluster_queue][meta.name].append((obj, spec))
        taken = {*self._queues}
        queues = {
            obj["metadata"]["name"]: (obj, spec, self._renamed(obj["metadata"]["name"]))
            for obj, spec in self._specs["ClusterQueue"]
        }
        for name, (obj, spec, own) in queues.items():
            if not below[name]:
                self._selected(own, spec, ())
            for local, members in below[name].items():
                alone = len(below[name]) == 1
                free = len(backed[local]) == 1 and local not in taken and local not in _BUILT_IN
                target = own if alone and (not free or local == own) else local if free else f"{name}.{local}"
                if target != own:
                    parent = self._queues[own]
                    kept = {key: value for key, value in parent["spec"].items() if key == "dequeueStrategy"}
                    made = self._queues[target] = new_queue(target, {**kept, "parent": own})
                    if order := (parent["metadata"].get("annotations") or {}).get(keys.ORDER):
                        _annotate(made, keys.ORDER, order)
                self._selected(target, spec, [each["metadata"].get("namespace", "") for each, _ in members])
                for each, one in members:
                    self._stopped(each, one.stop_policy, target)
                    if target != local:
                        self._relabel(each, target)
            if len(below[name]) > 1:
                text = "each becomes a queue; workloads wait in order of priority within each, not across them"
                self._note(obj, f"LocalQueues of {len(below[name])} names use it; {text}")

    def _relabel(self, obj: Json, target: str) -> None:
        text = f"label its workloads {keys.KUEUE_QUEUE_LABEL}={target}"
        if obj["metadata"]["name"] == keys.DEFAULT_QUEUE:
            space = obj["metadata"].get("namespace")
            command = f"kubectl annotate namespace {space} {keys.QUEUE_ANNOTATION}={target}"
            text += f", and run `{command}` for those without label"
        self._note(obj, f"becomes queue {target}, since queues have no namespace: {text}")

    def _selected(self, target: str, spec: ClusterQueue, namespaces: Sequence[str]) -> None:
        """Open a queue to the namespaces that its ClusterQueue selects and that have a LocalQueue for it."""
        wanted = spec.namespace_selector
        if wanted is None:
            wanted = {"matchExpressions": [{"key": _NAMESPACE_NAME, "operator": "DoesNotExist"}]}
        elif namespaces:
            own = {"key": _NAMESPACE_NAME, "operator": "In", "values": sorted({*namespaces})}
            wanted = {**wanted, "matchExpressions": [*(wanted.get("matchExpressions") or ()), own]}
        if wanted:
            _annotate(self._queues[target], keys.NAMESPACE_SELECTOR, json.dumps(wanted))

    def _free(self, name: str, suffix: str, obj: Json) -> str:
        if name not in self._names and name not in _BUILT_IN:
            return name
        self._note(obj, f"becomes queue {name}.{suffix}, as {name} is taken")
        return f"{name}.{suffix}"

    def _renamed(self, name: str, obj: Json | None = None) -> str:
        if name not in _BUILT_IN:
            return name
        if obj is not None:
            self._note(obj, f"becomes queue {name}.queue, as Atoll has a queue {name}; label its workloads so")
        return f"{name}.queue"

    def _queue(self, obj: Json, name: str, of: ClusterQueue | Cohort) -> Json:
        meta, fair = metadata(obj, self._notes), of.fair_sharing
        spec: Json = {}
        if parent := self._cohort_names.get(of.above):
            spec["parent"] = parent
        if fair is not None and fair.weight is not None:
            weight = amount(obj, "fairSharing.weight", fair.weight)
            if weight.denominator == 1 and 1 <= weight <= 65535:
                spec["weight"] = int(weight)
                text = "acts where no sibling deserves a resource; what a queue has nominally it deserves"
                self._note(obj, f"fairSharing.weight {fair.weight} becomes weight, which {text}")
            else:
                self._note(obj, f"fairSharing.weight {fair.weight} is left out; weights are whole, 1 to 65535")
        queue = self._queues[name] = new_queue(name, spec, meta.labels)
        return queue

    def _quota(self, queue: Json, total: Mapping[str, Fraction], own: _Amounts, *, capped: bool) -> None:
        if not total:
            return
        spec = queue["spec"]
        spec["deserved"] = resources(total)
        limits = {
            name: value + own.borrowed[name]
            for name, value in total.items()
            if capped or (name in own.nominal and name not in own.unlimited)
        }
        limits.update(
            {
                f"{each}{flavors.SIGN}{flavors.OTHER}": Fraction(0)
                for each in self._flavors
                if capped and f"{each}{flavors.SIGN}{flavors.OTHER}" not in total
            }
        )
        if limits:
            spec["capability"] = resources(limits)
        if kept := {name: value for name, value in own.kept.items() if value}:
            spec["guarantee"] = {"resource": resources(kept)}

    def _guaranteed(self) -> list[Json]:
        """The queues, each guaranteed at least the sum of those below it, as admission asks for."""
        ordered = by_parents(self._queues.values())
        by_name = {each["metadata"]["name"]: each for each in ordered}
        for each in reversed(ordered):
            above = by_name.get(each["spec"].get("parent", ""))
            if above is None or "guarantee" not in each["spec"]:
                continue
            more = above["spec"].setdefault("guarantee", {"resource": {}})["resource"]
            for name, text in each["spec"]["guarantee"]["resource"].items():
                both = quantity.parse(more.get(name, 0)) + quantity.parse(text)
                more.update(resources({name: both}))
        return ordered


def _annotate(queue: Json, key: str, text: str) -> None:
    queue["metadata"].setdefault("annotations", {})[key] = text


def _key(obj: Json) -> tuple[str, str]:
    return obj["kind"], obj["metadata"]["name"]


def _distinct(name: str, labels: Mapping[str, Mapping[str, str]]) -> tuple[str, str]:
    """The label of a flavor that no other flavor of the resource has; its first one where all are shared."""
    own = labels[name]
    others = {item for other, found in labels.items() if other != name for item in found.items()}
    return next((item for item in own.items() if item not in others), next(iter(own.items())))
