"""Which gang goes where, decided without input or output: the same view gives the same plans.

Gangs are taken by priority, then age. One that does not fit is passed by gangs behind it: the host has ordered them
already, and gangs in a member were meant to start. So is one that breaks the planner, by a defect of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TypeGuard

import msgspec

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core import sub_groups
from atoll.agent.scheduler.core.expected import Expected
from atoll.agent.scheduler.core.gangs import (
    Standing,
    gang_of,
    heeding,
    labels_selected,
    least_priority,
    rules_of,
    scoring_of,
    spread_out,
    task_of,
    too_hot,
    wish_of,
)
from atoll.agent.scheduler.core.grants import Grants
from atoll.agent.scheduler.core.holds import Holds
from atoll.agent.scheduler.core.kept import Kept, owners_of
from atoll.agent.scheduler.core.nominations import Nominations
from atoll.agent.scheduler.core.queues import Queues
from atoll.agent.scheduler.core.room import Room
from atoll.agent.scheduler.core.sub_groups import SubGroup
from atoll.agent.volumes import narrowed
from atoll.fit import Miss, Nodes, Placement, grow, place
from atoll.fit.constraints import Attachments, Devices, Numa
from atoll.model import gang as gangs
from atoll.model import keys, scoring, selectors, vector
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.needs import HONOURED
from atoll.model.plurals import counted
from atoll.model.reports import readable
from atoll.model.topology import NO_DOMAIN, Tree
from atoll.model.vector import Vector

NOT_ENOUGH_TASKS = "NotEnoughTasks"
NOT_ENOUGH_RESOURCES = "NotEnoughResources"
SCHEDULER_ERROR = "SchedulerError"
NO_POD_GROUP = "PodGroupNotFound"
NOT_BOUND = "Unschedulable"
VOLUMES = "VolumesNotReady"
DEVICES = "DevicesNotReady"
_MOST_BESIDE = 16
"""Nodes that are tried for pods that share a claim."""


@dataclass(frozen=True)
class Plan:
    """A node for every pod that can start now; never fewer than the gang still needs."""

    gang: Standing
    nodes: list[tuple[Pod, str]]


@dataclass(frozen=True)
class Wait:
    """Why the gang's waiting pods stay where they are."""

    gang: Standing
    reason: str
    """NotEnoughTasks or NotEnoughResources, as Volcano calls them; SchedulerError, or Unschedulable where another
    scheduler was to bind them, as Kubernetes does; VolumesNotReady or DevicesNotReady where their claims
    can't be used; or PodGroupNotFound.
    """
    message: str
    error: Exception | None = None
    """What broke while it was looked at or planned; only of a SchedulerError."""
    shape: tuple[object, ...] | None = None
    """Shape that does not fit, so that evictions may help; None where it waits for something else."""


@dataclass
class Parked:
    """Shapes that are known not to fit; empty it when capacity grew."""

    misses: dict[tuple[str, int | None, tuple[str, ...]], str] = field(default_factory=dict)
    """(shape, domain to stay inside, gangs whose nominations were out of its way) -> shortage."""


def plan(
    room: Room,
    gangs: Iterable[Standing],
    parked: Parked | None = None,
    holds: Holds | None = None,
    expected: Expected | None = None,
    stale: Callable[[str], bool] = lambda _: False,
    nominations: Nominations | None = None,
    queues: Queues | None = None,
    grants: Grants | None = None,
    places: Kept | None = None,
) -> Iterator[Plan | Wait]:
    """Decide gang by gang, best rank first, and assume in `room` what each plan takes.

    Args:
        room: changed by `assume`, so that later gangs see the use of earlier ones.
        gangs: with pods that wait.
        parked: what earlier passes found not to fit; added to.
        holds: nodes that are reserved in `room`; handed over to the gangs that they were kept for.
        expected: nodes that gangs get if they fit there, and others leave to them if they fit elsewhere.
        stale: whether a gang, by its key, is another one by now and must be looked at before it is planned.
        nominations: nodes that are kept in `room` while others leave them; handed over likewise.
        queues: of the member, by which gangs that entered there take turns and are limited.
        grants: of the host, which limit the gangs that it sent.
        places: places that the descheduler keeps in `room`; handed over likewise.
    """
    nominations = nominations if nominations is not None else Nominations(room)
    holds = holds if holds is not None else Holds(room)
    parked = parked if parked is not None else Parked()
    expected = expected if expected is not None else Expected()
    queues = queues if queues is not None else Queues(room)
    grants = grants if grants is not None else Grants()
    places = places if places is not None else Kept(room)
    views = list(gangs)
    #: key of a gang whose turn is still to come -> its expected use
    wishes = {view.key: wanted for view in views if (wanted := expected.wanted(view)) is not None}
    for view in queues.order(views):
        if stale(view.key):
            wishes.pop(view.key, None)
            continue
        outcome: Plan | Wait
        if first := queues.before(view):
            text = f"{first} is first, which has waited longer than its waiting time"
            yield Wait(view, NOT_ENOUGH_RESOURCES, _message(view, text))
            continue
        may = queues.within(view)
        if not isinstance(may, str):
            may = grants.within(may)
        if isinstance(may, str):
            yield Wait(view, NOT_ENOUGH_RESOURCES, _message(view, may))
            continue
        view = may
        kept = nominations.get(view.key)
        lifted = nominations.lift(view.key, view.priority)
        owners = owners_of(view) if places else set()
        wanted = wishes.pop(view.key, None) or (kept.wanted() if kept is not None else places.wanted(owners))
        open_to_it = places.lift(owners, view.priority)
        try:
            room.arrays.select_by(labels_selected(view.waiting))
            aside = tuple(sorted({*(each.gang for each in lifted), *(place.owner for _, place, _ in open_to_it)}))
            decide = partial(
                _decide, room, parked=parked, holds=holds, wanted=wanted, others=wishes.values(), lifted=aside
            )
            shares = any(pod.joins for pod in view.waiting)
            outcome = _beside(room, view, decide) if shares else decide(view)
        except Exception as error:
            outcome = failed(view, error)
        nominations.put_back(lifted)
        places.put_back(open_to_it)
        if isinstance(outcome, Plan) and (refused := _promise(room, outcome)):
            outcome = Wait(view, NOT_ENOUGH_RESOURCES, _message(view, refused))
        if isinstance(outcome, Plan):
            outcome = _assumed(room, outcome)
        if isinstance(outcome, Plan):
            nominations.drop(view.key, handed_over=True)
            expected.placed(view, outcome.nodes)
            places.placed(owners, outcome.nodes)
        yield outcome


def _assumed(room: Room, plan: Plan) -> Plan | Wait:
    """The plan, of which each pod now counts on its node; or why some pod did not get its devices there."""
    for pod, node in plan.nodes:
        if room.gpus.cards:
            room.gpus.typical.see(task_of(pod, None))
        room.assume(pod, node)
        if room.gpus.lacks(pod):
            for each, _ in plan.nodes:
                room.forget(each)
            text = f"pod {pod.metadata.name} did not get the devices on node {node} that the plan had for it"
            return Wait(plan.gang, NOT_ENOUGH_RESOURCES, _message(plan.gang, text))
    return plan


def _promise(room: Room, plan: Plan) -> str:
    """Keep devices for all pods; why one has none, or nothing. Devices that several nodes reach go once only."""
    # Pods that share claims come after the one that gets the devices.
    for pod, node in sorted(plan.nodes, key=lambda each: bool(each[0].joins)):
        refused = room.devices.promise(pod, node) if pod.devices else ""
        if refused := refused or room.devices.join(pod):
            for each, _ in plan.nodes:
                room.devices.withdraw(each.metadata.key, grew=False)
            return f"devices for pod {pod.metadata.name} on node {node}: {refused}"
    return ""


def _beside(room: Room, view: Standing, decide: Callable[[Standing], Plan | Wait]) -> Plan | Wait:
    """The plan of a gang of which several pods share claims that have no devices yet: these start on one node."""
    joined = {claim for pod in view.waiting for claim in pod.joins}
    sharing = {pod.metadata.key: pod for pod in view.waiting if joined.intersection(pod.joins + pod.device_claims)}
    total = vector.total(pod.requests for pod in sharing.values())
    getting = [pod.devices for pod in sharing.values() if pod.devices]
    book, names, tried = room.devices, room.arrays.nodes().names, list[Wait]()
    for name in names:
        free = room.amounts.free(name)
        short = any(amount > free.get(resource, 0) for resource, amount in total.items())
        if short or not all(book.count(devices, name, book.taken) for devices in getting):
            continue
        pinned = [_on(pod, name) if pod.metadata.key in sharing else pod for pod in view.waiting]
        outcome = decide(replace(view, waiting=pinned))
        if isinstance(outcome, Plan):
            return outcome
        tried.append(outcome)
        if len(tried) == _MOST_BESIDE:
            break
    text = f"{len(sharing)} pods share {', '.join(sorted(joined)[:3])}, which has no devices yet, and start on one node"
    if tried:
        return Wait(view, tried[-1].reason, f"{text}; {counted(len(tried), 'node')} tried: {tried[-1].message}")
    why = next(filter(None, (book.reasons(devices, names) for devices in getting)), "")
    text += f"; devices: {why}" if why else "; no node with such devices has capacity for all of them"
    return Wait(view, NOT_ENOUGH_RESOURCES, _message(view, text))


def _on(pod: Pod, node: str) -> Pod:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return narrowed(pod, [[term]]) or pod


def failed(view: Standing, error: Exception) -> Wait:
    """What a gang that breaks us waits for: nothing was decided on it."""
    why = readable(f"{type(error).__name__}: {error}")
    text = f"planning it failed and is tried again ({why}); the agent's log tells more"
    return Wait(view, SCHEDULER_ERROR, text, error)


def _decide(
    room: Room,
    view: Standing,
    parked: Parked,
    holds: Holds,
    wanted: dict[str, Vector] | None,
    others: Collection[dict[str, Vector]],
    lifted: tuple[str, ...],
) -> Plan | Wait:
    existing = view.settled.total() + len(view.waiting)
    if existing < view.min_member:
        return Wait(view, NOT_ENOUGH_TASKS, f"{existing} of at least {view.min_member} pods exist")
    if short := next(sub_groups.missing(view.group, view.waiting, view.joined), ""):
        return Wait(view, NOT_ENOUGH_TASKS, short)
    if insisted := sorted({need for pod in view.waiting if not pod.held for need in pod.needs if need not in HONOURED}):
        text = f"Atoll's placer does not look at what its pods insist on: {', '.join(insisted)}"
        return Wait(view, NOT_ENOUGH_RESOURCES, _message(view, text))
    if unknown := sorted(
        {pod.devices_in for pod in view.waiting if pod.devices_in and not room.numa.tells(pod.devices_in)}
    ):
        text = f"annotation {keys.DEVICES_IN}: no NodeResourceTopology tells which devices are in one {unknown[0]}"
        return Wait(view, NOT_ENOUGH_RESOURCES, _message(view, text))
    if text := scoring_of(view):
        try:
            room.arrays.use_matters |= "usage" in scoring.parse(text).terms
        except scoring.ScoringError as error:
            return Wait(view, NOT_ENOUGH_RESOURCES, _message(view, f"annotation {keys.NODE_SCORING} {error}"))
    # Slots kept before the pods existed may be out of their volumes' reach.
    kept = holds.claim(view)
    nodes = room.arrays.nodes()
    if kept and view.group is not None and view.group.spec.sub_group_policy:
        # Which pod goes to which of these nodes follows from its sub-group.
        wanted = {}
        for pod, node in kept:
            vector.add(wanted.setdefault(node, {}), pod.requests)
    elif kept and all(_reaches(room, pod, node) for pod, node in kept) and _bear(room, kept):
        return Plan(view, _along(nodes, kept))
    try:
        gang, pods, within = asked(room, view)
    except msgspec.ValidationError as error:
        return Wait(view, NOT_ENOUGH_RESOURCES, f"spec.networkTopology can't be read: {error}")
    if wanted is not None:
        outcome = place(nodes.at_most(wanted), gang, within=within)
        if _is_whole(outcome, gang):
            return Plan(view, spread(pods, nodes, outcome))

    @cache
    def shape() -> tuple[str, int | None, tuple[str, ...]]:
        return gangs.encode(gang), within, lifted

    if parked.misses and (known := parked.misses.get(shape())) is not None:
        return Wait(view, NOT_ENOUGH_RESOURCES, _message(view, known), shape=shape())
    if others:
        outcome = place(nodes.without(others), gang, within=within)
        if _is_whole(outcome, gang):
            return Plan(view, spread(pods, nodes, outcome))
    for near in _nearer(nodes.seen_by(gang.network_topology), view, within):
        outcome = place(nodes, gang, within=near)
        if _is_whole(outcome, gang):
            return Plan(view, spread(pods, nodes, outcome))
    # Most that come many at a time are single pods that are alike.
    quick = room.arrays.singles.place(gang)
    # With the minimum running, any fitting pods go; each task may be short of capacity by itself.
    put = place if view.missing or any(task.min_available for task in gang.tasks) else grow
    outcome = quick if quick is not None else put(nodes, gang, within=within)
    if isinstance(outcome, Miss) and (anyhow := _anyhow(gang)) is not None:
        outcome = put(nodes, anyhow, within=within)
    if isinstance(outcome, Miss):
        sentence = outcome.sentence() + _without_devices(room, gang) + too_hot(gang, nodes)
        parked.misses[shape()] = sentence
        return Wait(view, NOT_ENOUGH_RESOURCES, _message(view, sentence), shape=shape())
    return Plan(view, spread(pods, nodes, outcome))


def _without_devices(room: Room, gang: Gang) -> str:
    """Why claims of the gang get no devices, as an addition to a sentence; empty where each task has a node."""
    names = room.arrays.nodes().names
    found = (room.devices.reasons(task.claims, names) for task in gang.tasks if task.claims)
    return "".join(f"; devices: {why}" for why in dict.fromkeys(filter(None, found)))


def _reaches(room: Room, pod: Pod, name: str) -> bool:
    """Whether the nodes of the pod's volumes are this one, too."""
    if pod.own_terms is None:
        return True
    node = room.fleet.node(name)
    return node is not None and selectors.node_affinity_matches(pod.node_terms, node.metadata.labels, name)


def _bear(room: Room, kept: Sequence[tuple[Pod, str]]) -> bool:
    """Whether the pods may be on these nodes, by the rules between them and present pods, in some order, and by
    the nodes' limits of attachments.
    """
    rules = rules_of((pod for pod, _ in kept), room.peers.read_keys() if room.peers.keep_others_away else None)
    if not any(rules) and not any(pod.attach or pod.devices or (room.aligns and pod.aligned) for pod, _ in kept):
        return True
    nodes = room.arrays.nodes().copy()
    columns = {name: column for column, name in enumerate(nodes.names)}
    left = [(task_of(pod, said), columns.get(node, -1)) for (pod, node), said in zip(kept, rules, strict=True)]
    while left:
        later = []
        for task, column in left:
            if column >= 0 and nodes.room_by_rules(task, column) and _attaches(nodes, task, column):
                nodes.count_pieces(task, column, 1)
            else:
                later.append((task, column))
        if len(later) == len(left):
            return False
        left = later
    return True


def _attaches(nodes: Nodes, task: Task, column: int) -> bool:
    rooms = (each.room(task, len(nodes)) for each in nodes.exact if isinstance(each, Attachments | Devices | Numa))
    return all(room is None or room[column] > 0 for room in rooms)


def _is_whole(outcome: Placement | Miss, gang: Gang) -> TypeGuard[Placement]:
    return isinstance(outcome, Placement) and sum(outcome.counts) == gang.replicas


def asked(room: Room, view: Standing) -> tuple[Gang, list[list[Pod]], int | None]:
    """Gang to place now, the pods of each of its tasks, and the domain to stay inside.

    Raises:
        msgspec.ValidationError: its topology can't be read.
    """
    nodes = room.arrays.nodes()
    domains = {}
    for sub_group, names in (view.joined.nodes | view.joined.inner).items():
        wish = sub_groups.wish_of(view.group, sub_group.policy) if view.group is not None else None
        if (domain := _widest(nodes, set(names), wish)) is not None:
            domains[sub_group] = nodes.seen_by(wish).tree.domains[domain].name
    read = room.peers.read_keys() if room.peers.keep_others_away else None
    gang, pods = gang_of(view, read, domains, _used(nodes, view))
    gang = heeding(gang, nodes, map(least_priority, pods))
    return gang, pods, _widest(nodes, view.nodes, wish_of(view.group))


def _used(nodes: Nodes, view: Standing) -> dict[SubGroup | str, set[str]]:
    """Groups of a gang that partly run and must be apart -> the domains, of that tier, where they do."""
    if not view.joined.nodes and not view.joined.tasks:
        return {}
    _, apart = spread_out(view)
    inside = None if apart is None else nodes.at(apart)
    if apart is None or inside is None:
        return {}
    names = nodes.seen_by(apart).tree.domains
    around = {node: names[at].name for node, at in zip(nodes.names, inside.tolist(), strict=True) if at != NO_DOMAIN}
    found: dict[SubGroup | str, set[str]] = {}
    for running in (view.joined.nodes, view.joined.tasks):
        for group, there in running.items():
            found[group] = {around[node] for node in there if node in around}
    return found


def _anyhow(gang: Gang) -> Gang | None:
    """The gang as it may be placed where its groups can't be apart; None where they must be."""
    if gang.apart is None or gang.apart.mode == "hard":
        return None
    tasks = [msgspec.structs.replace(task, away=[]) for task in gang.tasks]
    return msgspec.structs.replace(gang, tasks=tasks, apart=None)


def _along(nodes: Nodes, kept: Sequence[tuple[Pod, str]]) -> list[tuple[Pod, str]]:
    """The same nodes for the pods of each task, along the tree in the order of the pods; see `spread`."""
    column = {name: number for number, name in enumerate(nodes.names)}
    places: dict[str, list[str]] = {}
    for pod, node in kept:
        places.setdefault(pod.task, []).append(node)
    for task, names in places.items():
        alike = len({tuple(sorted(pod.requests.items())) for pod, _ in kept if pod.task == task}) == 1
        if alike and all(name in column for name in names):
            names.sort(key=lambda name: (_path(nodes, column[name]), name))
    order = {task: iter(names) for task, names in places.items()}
    return [(pod, next(order[pod.task])) for pod, _ in kept]


def spread(pods: Sequence[Sequence[Pod]], nodes: Nodes, placement: Placement) -> list[tuple[Pod, str]]:
    """Which pod of each task goes where. Neighbours in index order share nodes, then the smallest domains around these,
    which is what ring-shaped communication wants.
    """
    order = [iter(task) for task in pods]
    spots: Sequence[tuple[int, int, int]] = placement.pods
    if not placement.grouped:
        spots = sorted(spots, key=lambda spot: (spot[0], _path(nodes, spot[1]), nodes.names[spot[1]]))
    return [(next(order[task]), nodes.names[node]) for task, node, count in spots for _ in range(count)]


def _path(nodes: Nodes, node: int) -> list[str]:
    """The names of the domains around a node, the largest first."""
    around = [domain for domain in nodes.domain[::-1, node].tolist() if domain != NO_DOMAIN]
    return [nodes.tree.domains[domain].name for domain in around]


def _nearer(nodes: Nodes, view: Standing, within: int | None) -> list[int]:
    """The domains around what runs of a gang, nearest first, below that in which it must stay: where a pod that takes
    the place of another one is to go if it can.
    """
    found = _around(nodes, view.nodes) if view.nodes else []
    return found[: found.index(within)] if within in found else found


def _message(view: Standing, sentence: str) -> str:
    total = view.settled.total() + len(view.waiting)
    return f"{len(view.waiting)}/{total} tasks in gang unschedulable: {sentence}"


def _widest(nodes: Nodes, names: set[str], wish: TopologyWish | None) -> int | None:
    """For pods with a highest tier some of which are on nodes: the largest allowed domain around these, of the tree
    that the wish is about; None = anywhere allowed.
    """
    nodes = nodes.seen_by(wish)
    allowed = nodes.tree.ceiling(wish) if names else None
    if allowed is None:
        return None
    chosen = None
    for domain in _around(nodes, names):
        if nodes.tree.domains[domain].tier <= allowed:
            chosen = domain
    return chosen


def _around(nodes: Nodes, names: set[str]) -> list[int]:
    """Domains that hold all of these nodes, nearest first; nodes that are gone do not count."""
    columns = [column for column, name in enumerate(nodes.names) if name in names]
    common: list[int] | None = None
    for column in columns:
        lowest = int(nodes.layout.lowest[column])
        above = list(nodes.tree.ancestors(lowest))
        common = above if common is None else [domain for domain in common if domain in above]
    return common or []


def smallest_domain(nodes: Nodes, names: set[str]) -> tuple[str, int]:
    """Name and tier of the smallest domain around these nodes; ("", 0) where there is none."""
    tree: Tree = nodes.tree
    around = _around(nodes, names)
    return (tree.domains[around[0]].name, tree.domains[around[0]].tier) if around else ("", 0)


__all__ = [
    "DEVICES",
    "NOT_BOUND",
    "NOT_ENOUGH_RESOURCES",
    "NOT_ENOUGH_TASKS",
    "SCHEDULER_ERROR",
    "VOLUMES",
    "Parked",
    "Plan",
    "Wait",
    "asked",
    "failed",
    "plan",
    "smallest_domain",
    "spread",
]
