"""Builders of what the core is told, and a scene that plays the API server around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

from atoll.dispatcher.core import (
    Ask,
    BindingGone,
    BindingSet,
    BindingView,
    CapacitySet,
    CapacityView,
    ClusterSet,
    ClusterView,
    Command,
    Commit,
    Dispatch,
    Dispatcher,
    Event,
    Evict,
    Explain,
    MemberAnswer,
    Nominate,
    Pass,
    QueueSet,
    QueueView,
    Refused,
    Resize,
    Strategy,
)
from atoll.dispatcher.core.events import NodeClass
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model.decision import Decision
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.timestamps import rfc3339
from atoll.model.verdict import Reason

GPU = "nvidia.com/gpu"
START = 1_800_000_000.0


class BindingBuilder:
    """A suspended binding of one task with one pod of one GPU unless told otherwise."""

    def __init__(self, name: str) -> None:
        self._view: dict[str, Any] = {
            "uid": f"uid-{name}",
            "namespace": "default",
            "name": name,
            "generation": 1,
            "epoch": 0,
            "decision": Decision(),
            "created": "2026-01-01T00:00:00Z",
        }
        self._gang: dict[str, Any] = {"queue": "q", "tasks": [], "min_available": None}
        self._readable = True

    def having(self, **fields: Any) -> Self:
        self._view.update(fields)
        return self

    def gang(self, **fields: Any) -> Self:
        self._gang.update(fields)
        return self

    def uid(self, uid: str) -> Self:
        return self.having(uid=uid)

    def queue(self, name: str) -> Self:
        self._gang["queue"] = name
        return self

    def tasks(self, replicas: int, *, gpu: int = 1, minimum: int | None = None, **more: Any) -> Self:
        """One more task of equal pods."""
        requests = {"pods": 1, GPU: gpu, **more.pop("requests", {})}
        name = f"t{len(self._gang['tasks'])}"
        floor = replicas if minimum is None else minimum
        self._gang["tasks"].append(Task(name, replicas, floor, requests, **more))
        return self

    def minimum(self, pods: int) -> Self:
        self._gang["min_available"] = pods
        return self

    def priority(self, value: int) -> Self:
        self._gang["priority"] = value
        return self

    def submitted(self, when: str) -> Self:
        self._gang["submitted"] = when
        return self

    def created(self, when: str) -> Self:
        return self.having(created=when)

    def apart(self, tier: int) -> Self:
        self._gang["apart"] = TopologyWish("hard", tier)
        return self

    def hard(self, tier: int) -> Self:
        self._gang["network_topology"] = TopologyWish("hard", tier)
        return self

    def within(self, tier: str) -> Self:
        self._gang["network_topology"] = TopologyWish("hard", highest_tier_name=tier)
        return self

    def affinity(self, **affinity: Any) -> Self:
        return self.having(affinities=(affinity,))

    def tolerating(self, *tolerations: Mapping[str, Any]) -> Self:
        return self.having(tolerations=tolerations)

    def divided(self, *, least: int = 1, most: int | None = None) -> Self:
        """Its policy lets it run in several clusters."""
        return self.having(divided=True, least_clusters=least, most_clusters=most)

    def scattered(self, *, most: int = 8) -> Self:
        """It may grow into further clusters."""
        self._gang.update(whole=True, scattered=True)
        return self.having(scattered=True, most_clusters=most)

    def runs(self, seconds: float) -> Self:
        """Its user expects it to run so long."""
        self._gang["running_estimate"] = seconds
        return self

    def patient(self, seconds: float) -> Self:
        """Its user wants room kept for it after so long."""
        self._gang["patience"] = seconds
        return self

    def firm(self) -> Self:
        """It must not be taken back for others."""
        self._gang["preemptable"] = False
        return self

    def held(self) -> Self:
        """Its user does not want it to run."""
        self._gang["hold"] = True
        return self

    def when_lost(self, on_lost: str = "", toleration: float | None = None) -> Self:
        """What becomes of it when its member is lost."""
        self._gang.update(on_lost=on_lost, lost_toleration=toleration)
        return self

    def unreadable(self) -> Self:
        """Its gang annotation is nonsense."""
        self._readable = False
        return self

    def build(self) -> BindingView:
        if not self._gang["tasks"]:
            self.tasks(1)
        tasks = self._gang["tasks"]
        minimum = self._gang["min_available"]
        gang = Gang(
            **{**self._gang, "min_available": sum(t.min_available for t in tasks) if minimum is None else minimum}
        )
        return BindingView(gang=gang if self._readable else None, **self._view)


def make_binding(name: str) -> BindingBuilder:
    return BindingBuilder(name)


def make_queue(name: str, *, priority: int = 0, is_open: bool = True, view: Any = None, **capability: int) -> QueueSet:
    """A queue; `gpu=8` limits GPUs, other names are resources as they are, none is unlimited; `view` has more fields."""
    limits = {GPU if key == "gpu" else key: value for key, value in capability.items()}
    return QueueSet(QueueView(name, limits, priority, is_open, **(view or {})))


def make_cluster(
    name: str, *, ready: bool = True, labels: Mapping[str, str] | None = None, taints: Any = (), region: str = ""
) -> ClusterSet:
    return ClusterSet(ClusterView(name, ready, labels or {}, tuple(taints), {"region": (region,)}))


def make_capacity(
    cluster: str,
    free: Iterable[int] | Mapping[str, Iterable[int]],
    *,
    generation: int = 1,
    root: str = "",
    labels: Mapping[str, str] | None = None,
    taints: Any = (),
) -> CapacitySet:
    """Free GPUs per node, either flat or per rack; racks are of tier 1 below a spine of tier 2."""
    racks = dict(free) if isinstance(free, Mapping) else {"": free}
    names = [name for name in racks if name]
    spine = f"{cluster}-spine"
    domains = ((spine, 2, "spine", ""), *((name, 1, "rack", spine) for name in names)) if names else ()
    classes = tuple(
        NodeClass(rack, labels or {}, tuple(taints), 1, {GPU: gpus, "pods": 100})
        for rack, nodes in racks.items()
        for gpus in nodes
    )
    return CapacitySet(CapacityView(cluster, root or (spine if names else ""), generation, domains, classes))


def named(cluster: str, free: Iterable[int] | Mapping[str, int], *, generation: int = 1) -> CapacitySet:
    """As `make_capacity`, of nodes with names: m-0, m-1 and so on, or those that are given; an empty one is none."""
    if not isinstance(free, Mapping):
        free = {f"{cluster}-{number}": gpus for number, gpus in enumerate(free)}
    capacity = make_capacity(cluster, free.values(), generation=generation).capacity
    classes = (
        dataclasses.replace(each, names=(name,) if name else ())
        for name, each in zip(free, capacity.classes, strict=True)
    )
    return CapacitySet(dataclasses.replace(capacity, classes=tuple(classes)))


def no_execute(key: str = "broken", value: str = "", *, at: float = START) -> dict[str, str]:
    """A taint that evicts from then on."""
    return {"key": key, "value": value, "effect": "NoExecute", "timeAdded": rfc3339(at)}


def written(view: BindingView, command: Command) -> BindingView:
    """The binding as the API server has it once the command's patch was applied."""
    if command.only_tells:
        return dataclasses.replace(view, decision=command.decision)
    if isinstance(command, Ask):
        return dataclasses.replace(view, decision=command.decision, epoch=command.decision.epoch, reserved={})
    parts: tuple[tuple[str, tuple[int, ...]], ...] = ()
    if isinstance(command, Commit):
        parts = view.parts
    elif isinstance(command, Dispatch | Resize):
        parts = tuple((part.cluster, tuple(count for _, count in part.tasks)) for part in command.parts)
    return dataclasses.replace(
        view,
        decision=command.decision,
        epoch=command.decision.epoch,
        generation=view.generation + 1,
        parts=parts,
        suspended=isinstance(command, Evict),
        reserved=view.reserved if command.decision.epoch == view.epoch else {},
    )


class Scene:
    """A core, a clock, and the bindings as the API server has them; invariants are verified after every event, or by the
    test itself where `checked` is false: a hundred shapes make that slow.
    """

    def __init__(self, *events: Event, settings: CoreSettings = CoreSettings(), checked: bool = True) -> None:
        self.core = Dispatcher(settings)
        self.checked = checked
        self.now = START
        self.log: list[Event] = []
        self.answers: list[list[Command]] = []
        self.views: dict[str, BindingView] = {}
        self.tell(*events)

    def handle(self, event: Event) -> list[Command]:
        self.log.append(event)
        commands = self.core.handle(event)
        self.answers.append(commands)
        if self.checked:
            self.core.check()
        return commands

    def tell(self, *events: Event) -> Self:
        for event in events:
            assert self.handle(event) == []
        return self

    def submit(self, *bindings: BindingBuilder | BindingView) -> Self:
        for each in bindings:
            self.see(each if isinstance(each, BindingView) else each.build())
        return self

    def see(self, view: BindingView) -> BindingView:
        """The API server has the binding like this now, and says so."""
        self.views[view.uid] = view
        self.tell(BindingSet(view))
        return view

    def change(self, name: str, **fields: Any) -> BindingView:
        return self.see(dataclasses.replace(self.view(name), **fields))

    def view(self, name: str) -> BindingView:
        return next(view for view in self.views.values() if view.name == name)

    def restart(self) -> None:
        """Another core goes on from what the API server has."""
        self.core = Dispatcher(self.core.settings)
        self.core.handle(Pass(self.now - 1))
        for event in [each for each in self.log if not isinstance(each, BindingSet | BindingGone | Refused | Pass)]:
            self.core.handle(event)
        self.tell(*(BindingSet(view) for view in self.views.values()))

    def gone(self, name: str) -> None:
        view = self.view(name)
        del self.views[view.uid]
        self.tell(BindingGone(view.uid))

    def decide(self, *, after: float = 0.001) -> list[Command]:
        """A pass; nothing is written yet."""
        self.now += after
        return self.handle(Pass(self.now))

    def write(self, *commands: Command) -> None:
        """The patches are applied and the watch says so."""
        for command in commands:
            self.see(written(self.views[command.uid], command))

    def run(self, *, after: float = 0.001) -> list[Command]:
        """A pass whose commands are all written; where members are asked they agree, and that is decided on as well."""
        commands = self.decide(after=after)
        self.write(*commands)
        asked = [command for command in commands if isinstance(command, Ask)]
        for command in asked:
            self.answer(command.name)
        return [*commands, *self.run()] if asked else commands

    def answer(self, name: str, **answers: MemberAnswer) -> BindingView:
        """Members answer what they are asked; those that are not named say yes."""
        view = self.view(name)
        assert view.decision.question is not None, f"nobody is asked about {name}"
        said = {member: answers.get(member, MemberAnswer(True)) for member in view.decision.question.parts}
        return self.change(name, reserved=said)

    def refuse(self, command: Command) -> None:
        self.tell(Refused(command.uid, command.decision.epoch, command.generation))

    def bound(self, name: str, *, generation: int, pods: int | None = None) -> None:
        """The member reports that its pods are on nodes, contained in the figures of this generation."""
        view = self.view(name)
        assert view.gang is not None
        count = view.gang.replicas if pods is None else pods
        self.change(name, placed={view.parts[0][0]: (generation, count)})

    def verdict(self, name: str) -> Reason | None:
        verdict = self.core.verdict(self.view(name).uid)
        return verdict.reason if verdict else None

    def used(self, queue: str) -> int:
        return self.core.tree.queue(queue).used.get(GPU, 0)


def dispatched(commands: Iterable[Command]) -> list[tuple[str, str]]:
    """(binding, member) in the order of the decisions."""
    return [(c.name, c.parts[0].cluster) for c in commands if isinstance(c, Dispatch)]


def names(commands: Iterable[Command]) -> list[str]:
    return [name for name, _ in dispatched(commands)]


def explained(commands: Iterable[Command]) -> dict[str, Explain | Nominate]:
    return {c.name: c for c in commands if isinstance(c, Explain | Nominate)}


def evicted(commands: Iterable[Command]) -> list[str]:
    return [c.name for c in commands if isinstance(c, Evict)]


def share(name: str, deserved: int, **view: object) -> QueueSet:
    return make_queue(name, view={"deserved": {GPU: deserved}, **view})


def let_go(s: Scene, *victims: str) -> None:
    """Their pods are gone."""
    for name in victims:
        s.change(name, released=s.view(name).generation, placed={})


def wishes(s: Scene, name: str, **fields: Any) -> None:
    """Its user asks for something else."""
    gang = s.view(name).gang
    assert gang is not None
    s.change(name, gang=msgspec.structs.replace(gang, **fields))


NEVER = 99
"""A generation of capacity that is not published: the core goes on counting by itself."""
OLD = 100.0
"""Seconds after which nothing is protected any more by its youth."""
ROOM = (make_cluster("m"), make_capacity("m", [8]))
BACKFILL = {"strategy": Strategy.BACKFILL}
"""View of a queue that keeps room for its head."""
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def scene(*more: object, room: object = ROOM) -> Scene:
    """A scene with queue q and one member of 8 GPUs, unless told otherwise."""
    return Scene(make_queue("q"), *room, *more)  # type: ignore[misc,arg-type]


def two_members() -> Scene:
    s = scene(room=(make_cluster("m1"), make_cluster("m2"), make_capacity("m1", [4]), make_capacity("m2", [8])))
    s.submit(make_binding("a").tasks(4).submitted(EARLY))
    assert dispatched(s.run()) == [("a", "m1")]
    return s


HOUR = 3600.0


def with_amounts(event: CapacitySet, **amounts: int) -> CapacitySet:
    """The same nodes, which have more resources."""
    classes = [dataclasses.replace(each, free={**each.free, **amounts}) for each in event.capacity.classes]
    return CapacitySet(dataclasses.replace(event.capacity, classes=tuple(classes)))


def problems_of(views: Iterable[QueueView]) -> dict[str, str]:
    """What is wrong with a set of queues: queue -> why it would admit nothing, those below a wrong one included."""
    tree = Tree()
    tree.set_queues(views)
    return {name: queue.problem for name, queue in sorted(tree.queues.items()) if queue.problem}
