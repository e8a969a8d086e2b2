"""Queues: defaults, what a queue may look like, and whether it takes new work.

A queue that does not exist is no reason to refuse a workload (it waits until the queue is there); one that exists and
can never admit it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from atoll.admission import jsonpatch, own_names, trust
from atoll.admission.problems import (
    MAX_ITEMS,
    SUBDOMAIN_RULE,
    Json,
    Problem,
    amounts,
    exceeding,
    integer,
    is_subdomain,
    mapping,
    sequence,
)
from atoll.kube import strategies
from atoll.model import (
    cards,
    duration,
    fairness,
    flavors,
    gpu_shares,
    keys,
    notify,
    quantity,
    scoring,
    selectors,
    spelling,
    vector,
)
from atoll.model import queues as tree
from atoll.model.plurals import counted
from atoll.model.queue_object import QueueObject
from atoll.model.strategies import SCORE, SPLIT
from atoll.model.vector import Vector
from atoll.webhook import resources

_MAX_WEIGHT = 65535
_MOST_WARNINGS = 5
_CLOSED = ("Closed", "Closing")
GUARANTEE = "spec.guarantee.resource"


class Queue(QueueObject, frozen=True):
    """A queue as the cache keeps it."""

    @property
    def parent(self) -> str:
        """Name of the queue above; empty for the root itself."""
        if self.metadata.name == keys.ROOT_QUEUE:
            return ""
        return self.spec.parent or keys.ROOT_QUEUE

    @property
    def state(self) -> str:
        """Open unless its status says otherwise."""
        return self.status.state or "Open"

    @property
    def workloads(self) -> int:
        """How many of its workloads have not ended, by its status."""
        return self.status.pending + self.dispatched

    @property
    def dispatched(self) -> int:
        """Number of its admitted workloads that have not ended, by its status."""
        return self.status.inqueue + self.status.running

    @property
    def resources(self) -> set[str]:
        """Names of all that its quotas bound."""
        spec = self.spec
        return {*spec.capability, *spec.deserved, *(spec.guarantee.resource if spec.guarantee else ())}

    @property
    def guarantee(self) -> Vector:
        """Amounts that it takes from its siblings; none where unreadable."""
        return _reserved(self.spec.guarantee.resource if self.spec.guarantee else {}, self.spec.capability)


_decoder = msgspec.json.Decoder(Queue)


def decode(raw: bytes | msgspec.Raw) -> Queue:
    """A queue for the cache.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    return _decoder.decode(raw)


def queue_problem(
    name: str,
    queue: Queue | None,
    leaves: Sequence[str],
    namespace: str = "",
    namespace_labels: Mapping[str, str] | None = None,
    field: str = "spec.queue",
    lookup: Callable[[str], Queue | None] = lambda _: None,
) -> Problem | None:
    """Why new work can't go to this queue, or None.

    Args: name: what the workload asks for. queue: that queue; None if it is not known, which is
        admitted: the workload waits for it. leaves: names of the queues below it that are not
        divided themselves. namespace: where the workload is. namespace_labels: labels of that
        namespace; None if not known, then the queue's namespace selector is not checked. field:
        where the workload names its queue. lookup: the known queue of a name.
    """
    if name == keys.ROOT_QUEUE:
        return Problem(field, "the root queue takes no workloads; name a queue without children")
    if queue is None:
        return None
    if queue.state in _CLOSED:
        return Problem(
            field,
            f"queue {name!r} is {queue.state} and takes no new workloads; use another queue, or have it opened again",
        )
    closed = next((above for above in _above(queue, lookup) if above.state in _CLOSED), None)
    if closed is not None:
        return Problem(
            field,
            f"queue {name!r} is below queue {closed.metadata.name!r}, which is {closed.state}, and takes no new"
            " workloads; use another queue, or have that one opened again",
        )
    if leaves:
        shown = ", ".join(sorted(leaves)[:5])
        return Problem(
            field,
            f"queue {name!r} is divided into other queues and takes no workloads itself; use one of: {shown}",
        )
    selector = queue.metadata.annotations.get(keys.NAMESPACE_SELECTOR)
    if selector is not None and namespace_labels is not None and not _selects(selector, namespace_labels):
        return Problem(
            field,
            f"queue {name!r} is not open to namespace {namespace!r} (its annotation"
            f" {keys.NAMESPACE_SELECTOR} is {selector}); use another queue,"
            " or have the namespace labelled so",
        )
    return None


def leaves(name: str, children: Callable[[str], Sequence[str]]) -> list[str]:
    """Names of the queues below one that are not divided themselves; in a circle of queues those right below it."""
    found, seen, rest = [], {name}, [*children(name)]
    while rest:
        each = rest.pop()
        if each not in seen:
            seen.add(each)
            rest += (below := children(each))
            found += [] if below else [each]
    return found or [*children(name)]


def _above(queue: Queue, lookup: Callable[[str], Queue | None]) -> Iterator[Queue]:
    """The known queues above one, the nearest first; of a circle each once."""
    seen = {queue.metadata.name}
    above = lookup(queue.parent)
    while above is not None and above.metadata.name not in seen:
        seen.add(above.metadata.name)
        yield above
        above = lookup(above.parent)


def default_queue(queue: Json) -> list[jsonpatch.Operation]:
    """The patch that fills in weight and reclaimable; empty when both are there."""
    spec = queue.get("spec")
    if spec is None:
        return [jsonpatch.add({"weight": 1, "reclaimable": True}, "spec")]
    if not isinstance(spec, dict):
        return []
    operations = []
    if spec.get("weight") is None:
        operations.append(jsonpatch.add(1, "spec", "weight"))
    if spec.get("reclaimable") is None:
        operations.append(jsonpatch.add(True, "spec", "reclaimable"))
    return operations


def validate_queue(
    queue: Json,
    lookup: Callable[[str], Queue | None],
    children: Callable[[str], Sequence[Queue]] = lambda _: (),
    *,
    moved: bool = True,
) -> list[Problem]:
    """Everything that is wrong with a new or changed queue.

    Args:
        queue: the object, defaulted.
        lookup: the known queue of a name.
        children: the known queues below one of a name.
        moved: it was not below its parent before.
    """
    problems: list[Problem] = []
    name = mapping(queue.get("metadata")).get("name")
    spec = mapping(queue.get("spec"))
    if name and not is_subdomain(name):
        problems.append(Problem("metadata.name", f"{name!r} can't name a queue; {SUBDOMAIN_RULE}"))
    weight = spec.get("weight")
    if weight is not None and not 1 <= (integer(weight) or 0) <= _MAX_WEIGHT:
        problems.append(Problem("spec.weight", f"is {weight}; use 1 to {_MAX_WEIGHT}"))
    above = _parent_problems(name, spec.get("parent"), lookup)
    quota = _quota_problems(spec)
    problems += [*above, *quota, *_member_problems(spec), *_annotation_problems(queue)]
    problems += _flavor_problems(queue, lookup, children)
    # Sums over queues that are wrong in themselves would only confuse.
    return problems if above or quota else [*problems, *_tree_problems(str(name), spec, lookup, children, moved)]


def undeserved(
    obj: Json, lookup: Callable[[str], Queue | None], children: Callable[[str], Sequence[Queue]]
) -> list[Problem]:
    """Warnings of amounts that a queue, or one below it, deserves beyond the capability of a queue above it."""
    try:
        queue = msgspec.convert(obj, Queue)
    except msgspec.ValidationError:
        return []
    pairs = [(queue, above) for above in _above(queue, lookup)]
    pairs += [(each, queue) for each in _below(queue.metadata.name, children)]
    return [
        Problem(
            f"spec.{'deserved' if lower is queue else 'capability'}.{resource}",
            f"queue {lower.metadata.name} deserves {lower.spec.deserved[resource]}, and the capability of queue"
            f" {upper.metadata.name} above it is {upper.spec.capability[resource]}: it never gets more than that",
        )
        for lower, upper in pairs
        for resource in _beyond(lower.spec.deserved, upper.spec.capability)
    ][:_MOST_WARNINGS]


def unread(queue: Json, old: Json | None) -> Iterator[Problem]:
    """Warnings of labels and annotations with Atoll's prefix that have no effect on a queue."""
    return own_names.unread_of_queue(queue, old, (*_READERS, keys.DEFAULT_POLICY, keys.PRIORITY_CLASSES))


def below_use(queue: Json, old: Json) -> Iterator[Problem]:
    """Warnings of capabilities that a change brings below what the queue uses, by its status."""
    now, before = (mapping(mapping(each.get("spec")).get("capability")) for each in (queue, old))
    used = mapping(mapping(queue.get("status")).get("allocated"))
    for name in _beyond(used, now):
        if name in _beyond({name: before[name]} if name in before else used, now):
            text = (
                f"is {now[name]}, and the queue uses {used[name]}: no workload is evicted for that alone, and one in it"
                f" that asks for {name} starts only once enough others have ended, or were evicted for it"
            )
            yield Problem(f"spec.capability.{name}", text)


def unknown_names(
    queue: Json,
    members: Collection[resources.Cluster],
    classes: Collection[str] | None,
    has_policy: Callable[[str], bool] = lambda _: True,
) -> Iterator[Problem]:
    """Warnings of members, a policy and priority classes that a queue names and that do not exist.

    Args:
        queue: the object.
        members: all; none while that is not known, or none has joined.
        classes: names of the host's PriorityClasses; None while they are not known.
        has_policy: whether there is a policy, by its text in the annotation.
    """
    names = [each.metadata.name for each in members]
    for index, each in enumerate(sequence(mapping(queue.get("spec")).get("extendClusters")) if names else ()):
        name = mapping(each).get("name")
        if isinstance(name, str) and name not in names:
            yield Problem(
                f"spec.extendClusters[{index}].name", f"no member is named {name!r}{spelling.meant(name, names)}"
            )
    notes = mapping(mapping(queue.get("metadata")).get("annotations"))
    selector = notes.get(keys.CLUSTER_AFFINITY)
    if isinstance(selector, str) and names and not any(_selects(selector, each.metadata.labels) for each in members):
        text = "no member has such labels, and its workloads wait until one has: atollctl cluster label NAME KEY=VALUE"
        yield Problem(f"metadata.annotations[{keys.CLUSTER_AFFINITY}]", text)
    policy = notes.get(keys.DEFAULT_POLICY)
    if isinstance(policy, str) and policy and not has_policy(policy):
        namespace, slash, name = policy.rpartition("/")
        what = f"PropagationPolicy {name} in namespace {namespace}" if slash else f"ClusterPropagationPolicy {name}"
        text = f"there is no {what}; until there is, workloads without a policy may go to any one member"
        yield Problem(f"metadata.annotations[{keys.DEFAULT_POLICY}]", text)
    if classes is None:
        return
    for name in trust.classes_allowed(notes) or ():
        if name not in classes:
            text = f"there is no PriorityClass {name!r} on the host{spelling.meant(name, classes)}"
            yield Problem(f"metadata.annotations[{keys.PRIORITY_CLASSES}]", text)


def one_name(queue: Json, offered: Collection[str]) -> Iterator[Problem]:
    """Warnings of GPUs that a queue bounds by name while `ANY` has no bound there.

    Args:
        queue: the object.
        offered: resources of all members; empty while none has reported.
    """
    spec = mapping(queue.get("spec"))
    for path in ("capability", "deserved"):
        bounds = mapping(spec.get(path))
        if cards.ANY in {*bounds, *mapping(spec.get("capability"))}:
            continue
        ours = {name: flavors.split(name)[0] for name in sorted(map(str, bounds))}
        others = [each for each in sorted(offered) if gpu_shares.is_gpu(each) and each not in ours.values()]
        example = others[0] if others else "a MIG profile or a part"
        for name, resource in ours.items() if others or not offered else ():
            if gpu_shares.is_gpu(resource):
                text = (
                    f"{bounds[name]} counts GPUs under this name alone, and pods leave it by another ({example});"
                    f" bound {cards.ANY} (1000 for each GPU) in spec.{path} as well"
                )
                yield Problem(f"spec.{path}.{name}", text)


def _beyond(deserved: Mapping[str, Any], capability: Mapping[str, Any]) -> list[str]:
    """The resources of which more is deserved; none where an amount can't be read, which is a problem of its own."""
    try:
        return exceeding(quantity.capacity(deserved), quantity.capacity(capability))
    except (TypeError, ValueError):
        return []


def validate_queue_update(
    old: Json,
    new: Json,
    lookup: Callable[[str], Queue | None],
    children: Callable[[str], Sequence[Queue]] = lambda _: (),
) -> list[Problem]:
    """As `validate_queue`; a change outside of checked fields is never refused."""
    if old.get("spec") == new.get("spec") and _annotations(old) == _annotations(new):
        return []
    return validate_queue(new, lookup, children, moved=_parent_of(old) != _parent_of(new))


def validate_queue_deletion(name: str, children: Sequence[str], dispatched: int = 0) -> list[Problem]:
    """Why this queue can't be deleted.

    Args:
        name: of the queue.
        children: queues below it.
        dispatched: its workloads that are admitted: without the queue nothing would be charged for them.
    """
    if name == keys.DEFAULT_QUEUE:
        return [
            Problem(
                "metadata.name",
                f"queue {name!r} is built in and can't be deleted; close it instead",
            )
        ]
    if children:
        shown = ", ".join(sorted(children)[:5])
        return [
            Problem(
                "metadata.name",
                f"queue {name!r} still has queues below it; delete or move them first: {shown}",
            )
        ]
    if dispatched and name != keys.ROOT_QUEUE:
        return [
            Problem(
                "metadata.name",
                f"queue {name!r} has {dispatched} dispatched workloads, for which no queue would be charged; close it"
                f" (`atollctl queue close {name}`) and let them finish, or delete them",
            )
        ]
    return []


def _parent_problems(name: object, parent: object, lookup: Callable[[str], Queue | None]) -> list[Problem]:
    field = "spec.parent"
    if not parent or not isinstance(parent, str):
        return []
    if name == keys.ROOT_QUEUE:
        return [Problem(field, "the root queue has no parent; remove the field")]
    if parent == name:
        return [Problem(field, "a queue can't be its own parent; name another queue or leave it out")]
    if parent == keys.ROOT_QUEUE:
        return []
    above = lookup(parent)
    if above is None:
        return [Problem(field, f"queue {parent!r} does not exist; create it first, or leave the parent out")]
    seen = [parent]
    while above is not None and above.parent and above.parent not in seen:
        if above.parent == name:
            path = " -> ".join([str(name), *seen, str(name)])
            return [Problem(field, f"the queues would form a circle: {path}; choose a parent outside of it")]
        seen.append(above.parent)
        above = lookup(above.parent)
    return []


def _tree_problems(
    name: str,
    spec: Json,
    lookup: Callable[[str], Queue | None],
    children: Callable[[str], Sequence[Queue]],
    moved: bool,
) -> list[Problem]:
    """Where the queue does not fit the one above it, or those below it."""
    problems: list[Problem] = []
    guarantee = _reserved(mapping(mapping(spec.get("guarantee")).get("resource")), mapping(spec.get("capability")))
    pledged = vector.total(each.guarantee for each in children(name)) if name != keys.ROOT_QUEUE else {}
    if over := tree.over_guarantee(pledged, guarantee):
        text = f"the queues below it are guaranteed {over} of this queue; raise it, or lower theirs first"
        problems.append(Problem(GUARANTEE, text))
    parent = spec.get("parent")
    above = lookup(parent) if isinstance(parent, str) and parent not in ("", keys.ROOT_QUEUE) else None
    if above is None or name == keys.ROOT_QUEUE:
        return problems
    siblings = [each for each in children(above.metadata.name) if each.metadata.name != name]
    pledged = vector.total([guarantee, *(each.guarantee for each in siblings)])
    if over := tree.over_guarantee(pledged, above.guarantee):
        text = f"all queues below {parent!r} together would be guaranteed {over} that {parent!r} itself is"
        problems.append(Problem(GUARANTEE, f"{text}; lower it, or raise spec.guarantee.resource of {parent!r} first"))
    if moved and not siblings and above.workloads:
        text = (
            f"queue {parent!r} holds {counted(above.workloads, 'workload')}, and a queue with others below it takes"
            f" none itself; wait for them to end (`atollctl queue close {parent}` keeps new ones out), or choose"
            " another parent"
        )
        problems.append(Problem("spec.parent", text))
    return problems


def _member_problems(spec: Json) -> list[Problem]:
    problems: list[Problem] = []
    seen: set[str] = set()
    for index, each in enumerate(sequence(spec.get("extendClusters"))):
        field, name = f"spec.extendClusters[{index}].name", mapping(each).get("name")
        if not isinstance(name, str) or not name:
            problems.append(Problem(field, "is empty; name the member cluster"))
        elif name in seen:
            problems.append(Problem(field, f"{name!r} is listed twice; give each member one item"))
        else:
            seen.add(name)
    return problems


def _annotation_problems(queue: Json) -> list[Problem]:
    problems: list[Problem] = []
    for key, text in _annotations(queue).items():
        try:
            _READERS[key](text)
        except ValueError as error:
            problems.append(Problem(f"metadata.annotations[{key}]", str(error)))
    notes = _annotations(queue)
    if keys.FAIR_HALF_LIFE in notes and not problems and notes.get(keys.ORDER) != "fair-namespaces":
        text = f"has no effect unless {keys.ORDER} is fair-namespaces; set that, or remove this"
        problems.append(Problem(f"metadata.annotations[{keys.FAIR_HALF_LIFE}]", text))
    return problems


def _flavor_problems(
    queue: Json, lookup: Callable[[str], Queue | None], children: Callable[[str], Sequence[Queue]]
) -> list[Problem]:
    """Quotas of flavors that there are not, in this queue or, where it is the one that names them, in others."""
    name, own = mapping(queue.get("metadata")).get("name"), _annotations(queue).get(keys.FLAVORS)
    if name != keys.ROOT_QUEUE:
        problems = list(resources.unknown_flavors(queue, _flavors_of(lookup(keys.ROOT_QUEUE))))
        if own is not None:
            text = f"flavors are for all queues: annotate queue {keys.ROOT_QUEUE} instead"
            problems.append(Problem(f"metadata.annotations[{keys.FLAVORS}]", text))
        return problems
    try:
        known = flavors.parse(own) if own is not None else flavors.NONE
    except ValueError:
        return []
    problems = list(resources.unknown_flavors(queue, known))
    for each in _below(keys.ROOT_QUEUE, children):
        for resource, flavor in sorted(map(flavors.split, each.resources)):
            if flavor and flavor not in flavors.of(known, resource):
                text = f"queue {each.metadata.name!r} has a quota of flavor {flavor!r} of {resource}; remove that first"
                problems.append(Problem(f"metadata.annotations[{keys.FLAVORS}]", text))
    return problems


def _flavors_of(root: Queue | None) -> flavors.Flavors:
    try:
        return flavors.parse(root.metadata.annotations[keys.FLAVORS]) if root is not None else flavors.NONE
    except (KeyError, ValueError):
        return flavors.NONE


def _below(name: str, children: Callable[[str], Sequence[Queue]]) -> Iterator[Queue]:
    """All queues below one; of a circle each once."""
    seen, rest = {name}, [*children(name)]
    while rest:
        each = rest.pop()
        if each.metadata.name not in seen:
            seen.add(each.metadata.name)
            yield each
            rest += children(each.metadata.name)


def _strategy(text: str) -> None:
    if text not in list(tree.Strategy):
        *several, last = tree.Strategy
        raise ValueError(f"{text!r} is not a strategy; use {', '.join(several)} or {last}")


def _installed(group: str, name: str) -> None:
    known = strategies.found(group)
    if name not in known:
        there = f"there are {', '.join(known)}" if known else "there is none"
        raise ValueError(
            f"{name!r} is no strategy of group {group} ({there}); install its package beside Atoll's processes"
        )


_READERS: dict[str, Callable[[str], object]] = {
    keys.NAMESPACE_SELECTOR: selectors.parse,
    keys.CLUSTER_AFFINITY: selectors.parse,
    keys.DEQUEUE_STRATEGY: _strategy,
    keys.FLAVORS: flavors.parse,
    keys.ORDER: fairness.order,
    keys.FAIR_HALF_LIFE: fairness.half_life,
    keys.SCORE_STRATEGY: lambda text: _installed(SCORE, text),
    keys.SPLIT_STRATEGY: lambda text: _installed(SPLIT, text),
    keys.RUNNING_ESTIMATE: duration.parse,
    keys.SLA_WAITING_TIME: duration.parse,
    keys.PROTECTED_FOR: duration.parse,
    keys.RECLAIM_UNPREEMPTABLE: tree.truth,
    keys.READY_TIMEOUT: duration.parse,
    keys.EVICT_TIMEOUT: duration.parse,
    keys.LOST_TOLERATION: duration.parse,
    keys.NODE_SCORING: scoring.parse,
    keys.NOTIFY: notify.parse,
}


def _quota_problems(spec: Json) -> list[Problem]:
    clusters = sequence(spec.get("extendClusters"))
    lists = [mapping(spec.get("guarantee")).get("resource"), spec.get("deserved"), spec.get("capability")]
    lists += [mapping(cluster).get("capacity") for cluster in clusters]
    if (count := len(clusters) + sum(len(mapping(each)) for each in lists)) > MAX_ITEMS:
        return [Problem("spec", f"has {count} clusters and resources in all; at most {MAX_ITEMS}: leave some out")]
    problems: list[Problem] = []
    levels = {
        "spec.guarantee.resource": mapping(spec.get("guarantee")).get("resource"),
        "spec.deserved": spec.get("deserved"),
        "spec.capability": spec.get("capability"),
    }
    values = {path: amounts(quantities, path, problems) for path, quantities in levels.items()}
    for index, cluster in enumerate(clusters):
        path = f"spec.extendClusters[{index}].capacity"
        problems += resources.fractions(amounts(mapping(cluster).get("capacity"), path, problems), path)
    for path, found in values.items():
        problems += resources.fractions(found, path)
    paths = list(levels)
    for position, lower in enumerate(paths):
        for upper in paths[position + 1 :]:
            for resource in exceeding(values[lower], values[upper]):
                less, more = mapping(levels[lower])[resource], mapping(levels[upper])[resource]
                problems.append(
                    Problem(
                        f"{lower}.{resource}",
                        f"{less} is more than {upper}.{resource} ({more}); lower it, or raise that",
                    )
                )
    return problems


def _annotations(queue: Json) -> dict[str, str]:
    """Annotations of a queue that Atoll reads."""
    found = mapping(mapping(queue.get("metadata")).get("annotations"))
    return {key: found[key] for key in _READERS if isinstance(found.get(key), str)}


def _parent_of(queue: Json) -> object:
    return mapping(queue.get("spec")).get("parent") or keys.ROOT_QUEUE


def _reserved(guarantee: Mapping[str, Any], capability: Mapping[str, Any]) -> Vector:
    """As the dispatcher counts it; a queue that can't be read is invalid there and takes nothing from others."""
    try:
        return tree.reserved(quantity.capacity(guarantee), quantity.capacity(capability))
    except ValueError:
        return {}


def _selects(text: str, labels: Mapping[str, str]) -> bool:
    try:
        return selectors.label_selector_matches(selectors.parse(text), labels)
    except ValueError:
        # It was meant to keep namespaces out.
        return False
