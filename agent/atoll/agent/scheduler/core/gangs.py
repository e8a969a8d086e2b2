"""A gang as the scheduler sees it: its declaration, its waiting pods and its pods with a node."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from atoll.agent.objects import Pod, PodGroup
from atoll.agent.scheduler.core import sub_groups
from atoll.agent.scheduler.core.room import Room
from atoll.agent.scheduler.core.sub_groups import Joined, SubGroup, sub_group_of
from atoll.fit import Nodes
from atoll.kinds import nearness
from atoll.model import keys, numbers, pod_rules, selectors
from atoll.model.gang import Gang, Partition, Task, TopologyWish
from atoll.model.pod_rules import PodRules
from atoll.model.timestamps import to_seconds

_BARE = "pod/"


@dataclass(frozen=True)
class Standing:
    """One gang at one moment."""

    key: str
    """`namespace/name` of the PodGroup, or `pod/namespace/name` of a pod on its own."""
    group: PodGroup | None
    waiting: list[Pod]
    """Pods that this scheduler should bind, in order of task and index."""
    nodes: set[str] = field(default_factory=set)
    """Where pods of the gang are, or are about to be."""
    settled: Counter[str] = field(default_factory=Counter)
    """Task -> pods that have a node or have ended."""
    priority: int = 0
    created: str = ""
    uid: str = ""
    binding: str = ""
    """UID of the binding of its first pod."""
    joined: Joined = field(default_factory=Joined)
    """What of its sub-groups is in `settled`."""

    @property
    def rank(self) -> tuple[int, str, str, str]:
        """Sort key: higher priority first, then older; UID and key make the order total."""
        return (-self.priority, self.created, self.uid, self.key)

    @property
    def min_member(self) -> int:
        """Pods that must start together."""
        return self.group.spec.min_member if self.group is not None else 1

    @property
    def missing(self) -> int:
        """Pods that the gang still needs to start."""
        return max(0, self.min_member - self.settled.total())

    @property
    def binding_uid(self) -> str:
        """UID of the binding that the gang was dispatched by; empty where there is none."""
        if self.group is not None and (uid := self.group.binding_uid):
            return uid
        return self.waiting[0].binding_uid if self.waiting else self.binding

    @property
    def epoch(self) -> int:
        """Which dispatch of its binding it came by; -1 where it came by none."""
        text = ""
        if self.group is not None and self.group.binding_uid:
            text = self.group.metadata.annotations.get(keys.EPOCH, "")
        if not text and self.waiting:
            text = self.waiting[0].metadata.annotations.get(keys.EPOCH, "")
        found = numbers.whole(text)
        return -1 if found is None else found


def key_of(pod: Pod) -> str:
    """The gang that a pod belongs to."""
    return pod.group or f"{_BARE}{pod.metadata.key}"


def bare_pod(key: str) -> str:
    """The pod's key where the gang is a pod on its own; empty for a PodGroup."""
    return key.removeprefix(_BARE) if key.startswith(_BARE) and key.count("/") > 1 else ""


def by_name(*schedulers: str) -> Callable[[Pod], bool]:
    """Whether a pod names one of these schedulers, or waits at our gate."""
    return lambda pod: pod.held or pod.scheduler in schedulers


def standing(
    key: str, group: PodGroup | None, pods: Iterable[Pod], room: Room, ours: Callable[[Pod], bool]
) -> Standing:
    """Sort a gang's pods.

    Args:
        key: of the gang.
        group: its declaration; None for a pod on its own.
        pods: all that exist.
        room: knows which of them have a node.
        ours: whether a pod is ours to place.
    """
    waiting, nodes, settled, priority = [], set(), Counter[str](), 0
    leaving = Counter[str]()
    joined, grouped = Joined(), group is not None and bool(group.spec.sub_group_policy)
    oldest: Pod | None = None
    for pod in pods:
        priority = max(priority, pod.priority)
        oldest = oldest or pod
        node = room.node_of(pod)
        if node:
            nodes.add(node)
        if pod.terminating and not pod.finished:
            leaving[pod.task] += bool(node or pod.node)
        elif node or pod.finished or pod.node:
            settled[pod.task] += 1
            of = sub_group_of(group, pod) if grouped else None
            if of is not None and group is not None:
                joined.add([of, *sub_groups.inner_of(group, pod, of)], node or pod.node or "")
            if of is None and keys.APART in pod.metadata.annotations:
                joined.tasks.setdefault(pod.task, []).append(node or pod.node or "")
        elif not pod.gated and ours(pod):
            waiting.append(pod)
    # Pods that are being removed are no company for their replacements; alone, they are a gang that ends.
    if not waiting:
        settled += leaving
    waiting = in_order(waiting)
    meta = group.metadata if group is not None else oldest.metadata if oldest is not None else None
    return Standing(
        key,
        group,
        waiting,
        nodes,
        settled,
        priority,
        meta.creation_timestamp if meta else "",
        meta.uid if meta else "",
        oldest.binding_uid if oldest is not None else "",
        joined,
    )


def in_order(pods: Iterable[Pod]) -> list[Pod]:
    """By task and index."""
    return sorted(pods, key=_order)


def _order(pod: Pod) -> tuple[str, int, str]:
    index = numbers.whole(pod.metadata.labels.get(keys.TASK_INDEX))
    return pod.task, index or 0, pod.metadata.name


def wish_of(group: PodGroup | None) -> TopologyWish | None:
    """The topology wish of a PodGroup; None where it has none or one that can't be read."""
    if group is None or not group.spec.network_topology:
        return None
    return msgspec.convert(group.spec.network_topology, TopologyWish)


def scoring_of(view: Standing) -> str:
    """Preference for nodes of its PodGroup, or else of its pods; empty for none."""
    if view.group is not None and (text := view.group.metadata.annotations.get(keys.NODE_SCORING)):
        return text
    for pod in view.waiting:
        if text := pod.metadata.annotations.get(keys.NODE_SCORING):
            return text
    return ""


def spread_out(view: Standing) -> tuple[TopologyWish | None, TopologyWish | None]:
    """(the tier over which its pods are balanced, the tier of which its groups share no domain), by annotations of its
    PodGroup, or else of its pods.
    """
    declared = [view.group.metadata] if view.group is not None else []
    for meta in (*declared, *(pod.metadata for pod in view.waiting[:1])):
        if not meta.annotations.keys().isdisjoint((keys.BALANCED, keys.APART)):
            return nearness.balanced(meta.annotations), nearness.apart(meta.annotations)
    return None, None


def rules_of(pods: Iterable[Pod], read: set[str] | None) -> list[PodRules | None]:
    """What each of these pods says of others, and what others' rules read of it.

    Args:
        pods: looked at together.
        read: labels that rules of pods that are there read; None where there are no such rules.
    """
    pods = list(pods)
    if read is None and not any(pod.rules is not None for pod in pods):
        return [None] * len(pods)
    # Labels that are not read, such as an index, would make every pod a task of its own.
    keys = (read or set()).union(*[pod.rules.keys() for pod in pods if pod.rules is not None])
    said = (pod.rules or pod_rules.bare(pod.metadata.labels, pod.metadata.namespace) for pod in pods)
    return [each.seen_by(keys) for each in said]


def task_of(pod: Pod, rules: PodRules | None) -> Task:
    """One such pod as a task; `rules` are its own as `rules_of` gives them."""
    return Task(
        "",
        1,
        1,
        pod.requests,
        pod.node_selector,
        pod.node_terms,
        pod.tolerations,
        ports=pod.ports,
        rules=rules,
        preferences=pod.preferences,
        attach=pod.attach,
        shared=pod.shared,
        images=pod.images,
        own_terms=pod.own_terms,
        aligned=pod.aligned,
        numa=pod.numa,
        devices_in=pod.devices_in,
        claims=pod.devices,
        joint=pod.joint,
        priority=least_priority([pod]),
    )


def least_priority(pods: Iterable[Pod]) -> int | None:
    """The lowest of these pods, which hot nodes may be too hot for; None for pods that can run on one node alone."""
    return min((pod.priority for pod in pods if not pod.of_daemon_set), default=None)


def heeding(gang: Gang, nodes: Nodes, priorities: Iterable[int | None]) -> Gang:
    """The gang as hot nodes see it; `priorities` as of `least_priority`, of each task."""
    if not nodes.hot:
        return gang
    tasks = [msgspec.structs.replace(task, priority=each) for task, each in zip(gang.tasks, priorities, strict=True)]
    return msgspec.structs.replace(gang, tasks=tasks)


def too_hot(gang: Gang, nodes: Nodes) -> str:
    """An addition to a sentence about a miss, where nodes are too hot for the gang; else empty."""
    task, count = max(((task, nodes.too_hot(task)) for task in gang.tasks), key=lambda each: each[1])
    if not count:
        return ""
    return f"; nodes too hot for pods of priority {task.priority} (taint {keys.HOT}): {count}"


def _in_sub_groups(view: Standing) -> list[tuple[SubGroup | None, list[Pod]]]:
    """The pods that wait by sub-group, in order of the first of each."""
    if view.group is None or not view.group.spec.sub_group_policy:
        return [(None, view.waiting)]
    found: dict[SubGroup | None, list[Pod]] = {}
    for pod in view.waiting:
        found.setdefault(sub_group_of(view.group, pod), []).append(pod)
    return list(found.items())


def _shape(pod: Pod, rules: PodRules | None) -> tuple[object, ...]:
    """What pods have in common that are one task."""
    return (
        pod.task,
        pod.requests,
        pod.node_selector,
        pod.node_terms,
        pod.tolerations,
        pod.ports,
        rules,
        pod.preferences,
        pod.attach,
        pod.shared,
        pod.own_terms,
        pod.aligned,
        pod.numa,
        pod.devices_in,
        pod.devices,
        pod.joint,
    )


@dataclass
class _Alike:
    """Pods that are one task."""

    pods: list[Pod]
    inside: Partition | None = None
    """The groups inside of their sub-group."""
    domain: str = ""
    """Where they must be, as pods of a group inside of their sub-group are there."""


def _by_shape(pods: Iterable[Pod], of_pods: Mapping[int, PodRules | None]) -> dict[bytes, _Alike]:
    """Those with equal requests and constraints together, in order of the first of each."""
    found: dict[bytes, _Alike] = {}
    before, key = None, b""
    for pod in pods:
        # A pod on its own is like no other one: most gangs are that. In others most pods are like the one before.
        if len(of_pods) > 1 and (shape := _shape(pod, of_pods[id(pod)])) != before:
            before, key = shape, msgspec.json.encode(shape, order="deterministic")
        found.setdefault(key, _Alike([])).pods.append(pod)
    return found


def _parts_of(group: PodGroup, policy: int, alike: Mapping[bytes, _Alike]) -> dict[bytes, tuple[bytes, Partition]]:
    """Task of a whole sub-group -> its key, and the groups of it: equal for equal sub-groups, which are groups of the
    same tasks.
    """
    kind = msgspec.json.encode((policy, [(key.decode(), len(each.pods)) for key, each in sorted(alike.items())]))
    name = str(zlib.crc32(kind)) if len(alike) > 1 else ""
    wish = sub_groups.wish_of(group, policy)
    return {
        key: (b"%s of %s" % (key, kind), Partition(len(each.pods), wish, name, each.inside))
        for key, each in alike.items()
    }


def _divided(
    view: Standing,
    group: PodGroup,
    members: Sequence[tuple[Pod, Sequence[SubGroup]]],
    domains: Mapping[SubGroup, str],
    of_pods: Mapping[int, PodRules | None],
) -> dict[bytes, _Alike]:
    """As `_by_shape`, of pods of one sub-group, each with the groups inside of it that it is in."""
    if not members[0][1]:
        return _by_shape((pod for pod, _ in members), of_pods)
    parts: dict[SubGroup, list[tuple[Pod, Sequence[SubGroup]]]] = {}
    for pod, (inner, *deeper) in members:
        parts.setdefault(inner, []).append((pod, deeper))
    found: dict[bytes, _Alike] = {}
    for inner, pods in parts.items():
        alike = _divided(view, group, pods, domains, of_pods)
        whole = {} if inner in view.joined.inner else _parts_of(group, inner.policy, alike)
        for key, each in alike.items():
            if key in whole:
                name, part = whole[key]
                made = _Alike([], part)
            else:
                domain = each.domain or domains.get(inner, "")
                name, made = b"%s in %s" % (key, domain.encode()), _Alike([], each.inside, domain)
            found.setdefault(name, made).pods.extend(each.pods)
    return found


def gang_of(
    view: Standing,
    read: set[str] | None = None,
    domains: Mapping[SubGroup, str] | None = None,
    used: Mapping[SubGroup | str, Collection[str]] = {},
) -> tuple[Gang, list[list[Pod]]]:
    """Pods to place now, and the pods of each of its tasks; `read` as of `rules_of`.

    Pods of one task that differ in requests or constraints become several tasks, and so do pods of sub-groups that
    differ. A gang that has its minimum already asks for one pod at least, so that the rest grows as capacity
    allows.

    Args:
        view: the gang.
        read: as of `rules_of`.
        domains: sub-groups that partly run -> the domain that their other pods must be in.
        used: partly running groups (sub-groups or tasks) that must be apart -> the domains that others leave
            to them.
    """
    balanced, apart = spread_out(view)
    groups: dict[bytes, list[Pod]] = {}
    #: as in `groups`, for pods of sub-groups: of which policy, how they are divided, where they must be
    partitions: dict[bytes, tuple[int, Partition | None, str]] = {}
    #: as in `groups`, for whole sub-groups
    whole: set[bytes] = set()
    #: as in `groups`, for pods of groups that must be apart: which it is, where that is known by now
    owners: dict[bytes, SubGroup | str] = {}
    rules = rules_of(view.waiting, read)
    of_pods = dict(zip(map(id, view.waiting), rules, strict=True))
    for sub_group, members in _in_sub_groups(view):
        if sub_group is None or view.group is None:
            alike = _by_shape(members, of_pods)
            found = dict.fromkeys(alike, b"")
            if apart is not None:
                owners |= {key: same.pods[0].task for key, same in alike.items()}
        else:
            inner = [(pod, sub_groups.inner_of(view.group, pod, sub_group)) for pod in members]
            alike = _divided(view, view.group, inner, domains or {}, of_pods)
            if sub_group in view.joined.nodes:
                domain = (domains or {}).get(sub_group, "")
                found = {key: b"%s in %s" % (key, domain.encode()) for key in alike}
                if apart is not None:
                    found = {key: b"%s of %s" % (each, repr(sub_group).encode()) for key, each in found.items()}
                    owners |= dict.fromkeys(found.values(), sub_group)
                partitions |= {
                    found[key]: (sub_group.policy, each.inside, each.domain or domain) for key, each in alike.items()
                }
            else:
                parts = _parts_of(view.group, sub_group.policy, alike)
                found = {key: name for key, (name, _) in parts.items()}
                partitions |= {name: (sub_group.policy, part, "") for name, part in parts.values()}
                whole |= set(found.values())
        for key, same in alike.items():
            groups.setdefault(found[key] or key, []).extend(same.pods)
    wanted = dict(view.group.spec.min_task_member) if view.group is not None else {}
    # Task minimums bind only where the gang's minimum covers them all.
    if sum(wanted.values()) > view.min_member:
        wanted = {}
    left = {task: max(0, count - view.settled[task]) for task, count in wanted.items()}
    tasks = []
    for number, (key, pods) in enumerate(groups.items()):
        first = pods[0]
        need = min(left.get(first.task, 0), len(pods))
        left[first.task] = left.get(first.task, 0) - need
        policy, partition, domain = partitions.get(key, (-1, None, ""))
        if key in whole and partition is not None and view.group is not None:
            run = sum(each.policy == policy for each in view.joined.nodes)
            need = max(need, min(partition.size * (sub_groups.needed(view.group, policy) - run), len(pods)))
        owner = owners.get(key)
        tasks.append(
            Task(
                str(number),
                len(pods),
                need,
                first.requests,
                first.node_selector,
                first.node_terms,
                first.tolerations,
                ports=first.ports,
                rules=of_pods[id(first)],
                preferences=first.preferences,
                attach=first.attach,
                shared=first.shared,
                images=first.images,
                aligned=first.aligned,
                numa=first.numa,
                devices_in=first.devices_in,
                claims=first.devices,
                partition=partition,
                domain=domain,
                role="" if owner is None else str(owner),
                away=sorted(set().union(*[names for each, names in used.items() if each != owner])) if used else [],
                own_terms=first.own_terms,
            )
        )
    floor = max(1, view.missing, sum(task.min_available for task in tasks))
    least, wish = min(floor, len(view.waiting)), wish_of(view.group)
    gang = Gang("", tasks, least, network_topology=wish, scoring=scoring_of(view), balanced=balanced)
    if len(tasks) > 1 or used or any(task.partition is not None for task in tasks):
        gang = msgspec.structs.replace(gang, apart=apart)
    return gang, list(groups.values())


def labels_selected(pods: Iterable[Pod | Task]) -> set[str]:
    """Keys of node labels that these pods select by."""
    return set().union(*[selectors.selected_keys(pod.node_selector, pod.node_terms) for pod in pods])


def age(created: str, now: float) -> float:
    """Seconds since a creation time; 0 where it is unknown."""
    return now - to_seconds(created) if created else 0.0
