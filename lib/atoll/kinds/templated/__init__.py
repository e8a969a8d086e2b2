"""Kinds that are replicated pod templates: components, each with a number of pods and a template.

Such a kind declares the places of its components and its suspend switch, and the meaning of its status; all that
follows is alike: the gang, the manifest for a member, admission, and the status on the host, which is the member's own
beside a condition `Dispatched`. Its pods are made by the kind's own controller in the member, at whatever depth:
annotations of the templates make them one gang there.

A workload is taken over when it is created, and its queue is written on it as a label: one without that label was there
before its namespace opted in.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import orjson

from atoll.kinds import metadata, nearness
from atoll.kinds.interface import (
    NOTHING,
    Assembly,
    DividedByPods,
    Guard,
    InMember,
    Json,
    LeftAlone,
    Outcome,
    Part,
    Referred,
    Report,
    Scaling,
    Standing,
    Support,
    Words,
)
from atoll.model import features, keys, needs, numbers, quantity, reports, vector
from atoll.model.apiresource import PRIORITY_CLASSES, SERVICE_ACCOUNTS, ApiResource
from atoll.model.gang import MOST_PODS, Gang, Partition, Task, TopologyWish
from atoll.model.objects import MALFORMED
from atoll.model.placer import MadeFor, Placer, Unplaceable
from atoll.model.verdict import WITHHELD, Reason

if TYPE_CHECKING:
    from atoll.admission.rules import Rules

Path = tuple[str | int, ...]
"""Steps from an object to one of its fields."""
DISPATCHED: Final = "Dispatched"
"""The condition by which a workload says on the host whether it is in a member, and if not why."""

_MIN_RESOURCES = "scheduling.volcano.sh/group-min-resources"
_SET: Final = "set"
_SERVICE_ENDS: Final = "never; it goes on in another member when its own is lost"
_JOB_ENDS: Final = "as its controller says; what failed is not sent again"
RECONCILING: Final = "Reconciling"
"""The condition by which tools that wait for an object (kstatus) see that it is not done yet."""
OF_HOST: Final = frozenset({DISPATCHED, RECONCILING})
"""Conditions that members do not report."""
ADDED = ("placement", "reservation", "refused", "unmade", "suspended", "delivered", "released")
"""What Atoll adds to a status."""
_KEPT = "none before its end: its status does not count them by component, or its controller makes them again"
_OF_ITS_SERVER: Final = "collisionCount"
"""A counter that API servers refuse to lower: each cluster keeps its own."""
_ABNORMAL: Final = re.compile("Fail|Stalled|Degraded|Unhealthy|Suspended|Reconciling")
"""In types of conditions that hold for the whole as soon as they hold for one part."""
_SHARE_OF: Final = {"availableReplicas": "readyReplicas"}
"""A count -> the count that is no smaller, where that is not the first."""
_SETTLED: Final = "NewReplicaSetAvailable"
"""Reason of a condition that is true before and after the end of a rollout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Equal pods of one role."""

    name: str
    pods: int
    template: Path
    """Of its PodTemplateSpec."""
    minimum: int | None = None
    """Pods of it that must be admitted together; None: all."""
    count: Path = ()
    """Of the number of its pods in the object, or of its units; empty where that is fixed."""
    unit: int = 1
    """Pods that one more there makes."""
    ranks: int = 0
    """Pods of each Job of several, where all of their indices run at once: slices go on from one Job to the next."""
    unnumbered: str = ""
    """Why its pods have no index, so that there are no slices of them; empty where they have one."""
    annotations: Path = ()
    """Of its pods' annotations, where they are not in a PodTemplateSpec."""
    pod: Json | None = None
    """The spec of its pods, where the object does not say it as one."""


class Reading(NamedTuple):
    """What a status says."""

    state: str = ""
    """In the words of the kind."""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    outcome: Outcome | None = None
    ended: str | None = None
    """When (RFC 3339)."""
    suspended: bool = False
    known: bool = False
    """Whether its controller has looked at it."""
    pods: bool = True
    """Whether the counts are of pods."""


Problems = Iterable[tuple[str, str]]
"""(field, problem with its remedy)."""


def _nothing(_: Mapping[str, Any]) -> Problems:
    return ()


def _as_it_is(_: Json, __: Part) -> None:
    pass


@dataclass(slots=True, kw_only=True, eq=False)
class Templated(DividedByPods):
    """A kind by its particulars; `Kind` has the contract of the methods."""

    resource: ApiResource
    words: Words
    route: str
    """Of its webhooks."""
    pods: str
    """Name of its components, for people."""
    order: str = ""
    """Which pods are made after others, for people; empty where `starts` is None."""
    fewer: str = ""
    """What of it asks for fewer pods to start with, for people, besides the annotation of all."""
    scales: str = ""
    """Fields that make its pods more or fewer, for people; empty: none."""
    components: Callable[[Mapping[str, Any]], Sequence[Component]]
    """Raises ValueError or what `objects.MALFORMED` lists where a field can't be read."""
    read: Callable[[Mapping[str, Any]], Reading]
    pods_label: str = ""
    """Label of its pods in members whose value is its name."""
    switch: Path = ()
    """Of its suspend switch; empty: it has none, and no controller may reconcile it on the host."""
    switched_off: Any = True
    """Value of the switch by which it is suspended."""
    switched_on: Any = False
    """Value of the switch by which it is not."""
    manager: Path = ()
    """Field that keeps its own controller away, where that accepts Atoll's name: then the host's switch follows."""
    starts: Callable[[Mapping[str, Any]], int | None] | None = None
    """Pods that the placer waits for, where not all of the gang's are made at once; None: the gang's minimum."""
    sets: Callable[[Mapping[str, Any], Component], int] | None = None
    """Pods of a component in each of its sets, where its template's nearness holds for a set by itself."""
    sets_label: str = ""
    """Label of pods whose value tells sets apart."""
    divisible: bool = False
    service: bool = False
    """It runs until it is deleted."""
    problems: Callable[[Mapping[str, Any]], Problems] = _nothing
    warnings: Callable[[Mapping[str, Any]], Problems] = _nothing
    made: Callable[[Json, Part], None] = _as_it_is
    """Changes the manifest for a member, in place."""
    referred: Referred | None = None
    folded: Callable[[Json], None] = lambda _: None
    """Makes of a manifest that is entire (`Referred`) one that the member takes, in place."""
    host_only: Sequence[Path] = ()
    """Fields that members do not get."""
    observes: bool = False
    """Its status counts generations of its object."""
    counts: Sequence[str] = ()
    """Counts of its status that add up over parts; each but the first is a share of the first."""
    concluded: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[Json]] = lambda _, __: ()
    """Conditions, without times, that follow from the object and the counts of the whole."""
    told: Callable[[Json, str, str], Json] = lambda status, _, __: status
    """A status that says reason and message of what waits, besides the condition."""
    over: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, int]] = lambda _, __: NOTHING
    """(manifest, status) -> component -> pods that have ended and are never made again."""
    released_when: str = _KEPT
    """Which are such pods, for people."""
    makes_claims: Callable[[Mapping[str, Any]], bool] = lambda _: False
    placers: Collection[Placer] = (Placer.ATOLL, Placer.KUBE_SCHEDULER, Placer.KUEUE)
    """Placers that take its gangs."""
    optional: bool = True
    in_member: InMember | None = field(default_factory=lambda: InMember(groups=True))
    assembly: Assembly | None = None
    scaling: Scaling | None = None
    commands: Collection[str] = ()
    dedicated: bool = field(init=False)
    guard: Guard = field(init=False)
    support: Support = field(init=False)

    def __post_init__(self) -> None:
        self.dedicated = not self.switch
        self.support, self.guard = _support(self), _guard(self)

    # -- on the host ---------------------------------------------------------------------------------------------------

    def takes(self, obj: Mapping[str, Any]) -> bool:
        """What the webhook took over: it has the label of its queue, and the field that keeps others away."""
        return self.left_alone(obj) is None

    def left_alone(self, obj: Mapping[str, Any]) -> LeftAlone | None:
        """Another controller runs it, by its own word or as it was there first."""
        again = "delete it and create it again"
        if not value_at(obj, ("metadata", "labels", keys.QUEUE_LABEL)):
            text = f"it has no label {keys.QUEUE_LABEL}, which a {self.words.title} gets when it is created in a"
            return LeftAlone("OlderThanOptIn", f"{text} namespace that has opted in", again)
        if self.manager and (managed := value_at(obj, self.manager)) != keys.CONTROLLER:
            text = f"its {dotted(self.manager)} is {managed}: that controller runs it, and Atoll leaves it alone"
            return LeftAlone("ManagedByAnother", text, f"{again} without {dotted(self.manager)}")
        if self.switch and not self.manager and not self.is_suspended(obj):
            text = f"its {dotted(self.switch)} is not {said(self.switched_off)}: others may run it"
            return LeftAlone("NotSuspended", text, again)
        return None

    def is_suspended(self, obj: Mapping[str, Any]) -> bool:
        """Whether its switch keeps others from running it."""
        found = value_at(obj, self.switch)
        return type(found) is type(self.switched_off) and bool(found == self.switched_off)

    def admission(self) -> Rules:
        """The rules of all such kinds."""
        from atoll.kinds.templated.admission import rules_of

        return rules_of(self)

    def queue_of(self, obj: Mapping[str, Any], *, default: str = keys.DEFAULT_QUEUE) -> str:
        """Labels and annotations of the workload, then of its pods."""
        return metadata.queue_of(obj, [template for _, template in self.templates(obj)], default=default)

    def priority_class_of(self, obj: Mapping[str, Any]) -> str:
        """That of the first pods that name one."""
        return next((str(pod["priorityClassName"]) for pod in self._pods(obj) if pod.get("priorityClassName")), "")

    def gang(
        self,
        obj: Mapping[str, Any],
        *,
        priority: int,
        default_class: str = "",
        default_queue: str = keys.DEFAULT_QUEUE,
        carried: Mapping[str, int] = NOTHING,
    ) -> Gang:
        """All pods of all components; all of them start together unless the object asks for fewer."""
        obj = self.entire(obj)
        components = self.components(obj)
        pods, said = self._pods(obj), [_template(obj, each) for each in components]
        parts = zip(components, pods, said, strict=True)
        tasks = [_task(each, pod, template, components, default_class) for each, pod, template in parts]
        tasks, wish = _near(obj, components, tasks, said, self.sets)
        replicas = sum(task.replicas for task in tasks)
        minimum = min(minimum_of(obj) or sum(task.min_available for task in tasks), replicas)
        templates = [template for _, template in self.templates(obj)]
        gang = Gang(
            queue=self.queue_of(obj, default=default_queue),
            tasks=tasks,
            min_available=minimum,
            priority=priority,
            submitted=obj["metadata"].get("creationTimestamp") or "",
            network_topology=wish,
            running_estimate=metadata.running_estimate(obj),
            patience=metadata.patience(obj),
            ready_timeout=metadata.ready_timeout(obj),
            preemptable=metadata.preemptable(obj, *templates),
            hold=metadata.held(obj) or replicas == 0,
            attempt=metadata.attempt(obj),
            whole=not self.divisible,
            needs=needs.of(pods),
            features=features.of(self.resource, pods),
        )
        return metadata.spread_out(gang, obj, *templates)

    def namespaced_needs(self, obj: Mapping[str, Any]) -> Sequence[tuple[ApiResource, str]]:
        """The PriorityClasses and ServiceAccounts of its pods."""
        named = ((PRIORITY_CLASSES, "priorityClassName"), (SERVICE_ACCOUNTS, "serviceAccountName"))
        found = [(resource, pod[key]) for pod in self._pods(obj) for resource, key in named if pod.get(key)]
        return list(dict.fromkeys(found))

    def entire(self, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """With parts read elsewhere at their places.

        Raises:
            ValueError: that can't be read, or what `objects.MALFORMED` lists.
        """
        return self.referred.entire(obj) if self.referred is not None else obj

    def templates(self, obj: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
        """(path, PodTemplateSpec) of each component; none where they can't be read."""
        try:
            obj = self.entire(obj)
            found = [(dotted(each.template), _template(obj, each)) for each in self.components(obj)]
        except MALFORMED:
            return []
        return [(path, each) for path, each in found if isinstance(each, Mapping)]

    def _pods(self, obj: Mapping[str, Any]) -> list[Json]:
        obj = self.entire(obj)
        return [dict(_template(obj, each).get("spec") or {}) for each in self.components(obj)]

    # -- to a member ---------------------------------------------------------------------------------------------------

    def rewrite(self, obj: Mapping[str, Any], part: Part) -> Json:
        """Its switch lifted, its pods annotated as one gang, and no more of them than this part has."""
        obj = self.entire(obj)
        made: Json = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": metadata.for_member(obj),
            "spec": copy.deepcopy(obj["spec"]),
        }
        if self.observes:
            made["metadata"]["annotations"][keys.GENERATION] = str(obj["metadata"].get("generation") or 0)
        components = self.components(obj)
        gang = self.gang(obj, priority=0)
        notes = {
            **metadata.topology_carried(obj),
            **metadata.topology_told(gang, {task.name: self.sets_label for task in gang.tasks if self.sets_label}),
            keys.GROUP_MIN_MEMBER: str((self.starts(obj) if self.starts else None) or part.min_available),
            _MIN_RESOURCES: orjson.dumps(_minimum_requests(part.gang(gang))).decode(),
            **part.identity,
        }
        for each in components:
            told = {**notes, keys.TASK_SPEC: each.name, **({keys.RANKS: str(each.ranks)} if each.ranks else {})}
            if each.pod is not None:
                set_at(made, each.annotations, {**(value_at(made, each.annotations) or {}), **told})
            else:
                template = value_at(made, each.template) or {}
                set_at(made, each.template, _for_member(template, each.name, part, told))
        for path, count in _counts(components, part).items():
            set_at(made, path, count)
        for path in (*self.host_only, self.manager):
            remove_at(made, path)
        if self.switch:
            set_at(made, self.switch, self.switched_on)
        self.made(made, part)
        self.folded(made)
        return made

    def placed(self, manifest: Json, how: MadeFor) -> Json:
        """Its templates; suspended and in its queue for Kueue, which lifts the suspension."""
        if how.placer not in self.placers:
            known = ", ".join(sorted(self.placers))
            raise Unplaceable(
                f"the member's placer is {how.placer}, which does not take a {self.words.title} as one gang: send it to"
                f" a member of {known}"
            )
        made = dict(copy.deepcopy(self.entire(manifest)))
        for each in self.components(made):
            if each.pod is None:
                template = metadata.template_for(value_at(made, each.template) or {}, how)
                set_at(made, each.template, template)
                if how.placer is Placer.VOLCANO and how.queue:
                    set_at(made, (*each.template, "metadata", "annotations", keys.QUEUE_ANNOTATION), how.queue)
        labels = {k: v for k, v in (made["metadata"].get("labels") or {}).items() if k != keys.KUEUE_QUEUE_LABEL}
        if how.placer is Placer.KUEUE:
            if not how.queue:
                raise Unplaceable(
                    "the member's placer is kueue and no LocalQueue is named: atollctl join --member-queue"
                )
            labels[keys.KUEUE_QUEUE_LABEL] = how.queue
            if self.switch:
                set_at(made, self.switch, self.switched_off)
        made["metadata"]["labels"] = labels
        self.folded(made)
        return made

    # -- what a status says --------------------------------------------------------------------------------------------

    def reported(self, manifest: Mapping[str, Any], status: Any, *, field: str = "status") -> Json:
        """Whatever the kind's own controller says, in bounds; it is not charged by, only shown."""
        names = status if isinstance(status, Mapping) else ()
        own = {name: reports.plain for name in names if isinstance(name, str) and name not in ADDED}
        return reports.part_of(status, self._count(manifest, MOST_PODS), own, field)

    def _count(self, obj: Mapping[str, Any], unknown: int) -> int:
        """Its pods; `unknown` where they can't be read."""
        try:
            return sum(each.pods for each in self.components(self.entire(obj)))
        except MALFORMED:
            return unknown

    def _reading(self, status: Mapping[str, Any]) -> Reading:
        try:
            return self.read(status)
        except MALFORMED:
            return Reading()

    def started(self, status: Mapping[str, Any]) -> int:
        """By its counts; where not all pods are made at once, all of them once present pods have nodes."""
        reading = self._reading(status)
        placement = status.get("placement") or {}
        if self.starts is not None and placement.get("nodes"):
            return 0 if placement.get("waiting") else MOST_PODS
        return reading.running + reading.succeeded if reading.pods else 0

    def ended(self, status: Mapping[str, Any]) -> int:
        """As many as are released; its controller may make others again."""
        return sum((status.get("released") or NOTHING).values())

    def released(self, manifest: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, int]:
        """As the kind says, in bounds."""
        try:
            entire = self.entire(manifest)
            found = self.over(entire, status)
            most = {each.name: each.pods for each in self.components(entire)} if found else {}
            return {name: min(count, most[name]) for name, count in found.items() if count > 0 and name in most}
        except MALFORMED:
            return NOTHING

    def running(self, status: Mapping[str, Any]) -> bool:
        """Something of it runs, or did."""
        reading = self._reading(status)
        return bool(reading.running or reading.succeeded or reading.outcome)

    def healthy(self, status: Mapping[str, Any]) -> bool | None:
        """Unless it failed; nothing is known of one that is suspended, or that its controller has not looked at."""
        reading = self._reading(status)
        if reading.outcome is Outcome.FAILED:
            return False
        return True if reading.known and not reading.suspended else None

    def suspended(self, status: Mapping[str, Any]) -> str:
        """Its controller says so."""
        return f"the {self.words.title} is suspended there" if self._reading(status).suspended else ""

    def stopped(self, status: Mapping[str, Any]) -> bool:
        """Never: it has no such policies."""
        return False

    def asked(self, status: Mapping[str, Any]) -> str | None:
        """Nothing."""
        return None

    def retries(self, status: Mapping[str, Any]) -> int:
        """None that count here."""
        return 0

    def finished(self, status: Mapping[str, Any]) -> Outcome | None:
        """As its controller says; a service never is."""
        return None if self.service else self._reading(status).outcome

    def ended_at(self, status: Mapping[str, Any]) -> str | None:
        """As its controller says."""
        return self._reading(status).ended

    # -- back on the host ----------------------------------------------------------------------------------------------

    def carried(self, status: Mapping[str, Any]) -> dict[str, int]:
        """Nothing: every dispatch starts from the beginning."""
        return {}

    def suspension(self, obj: Mapping[str, Any], *, suspended: bool) -> Sequence[Json]:
        """Its switch, where its own controller keeps away by another field; else that stays set on the host."""
        if not self.manager or not self.switch or self.is_suspended(obj) == suspended:
            return ()
        value = self.switched_off if suspended else self.switched_on
        return ({"op": "add", "path": "/" + "/".join(map(str, self.switch)), "value": value},)

    def aggregate(
        self, obj: Mapping[str, Any], reports: Sequence[Report], *, waiting: tuple[str, str], now: str
    ) -> Json:
        """What the member says, and the condition; an end is not taken back."""
        old: Json = dict(obj.get("status") or {})
        if self.finished(old) is not None:
            return old
        reason, message = waiting
        status = _of_parts(obj, reports, self.counts) if reports else {}
        if reports and not message:
            reason, message = DISPATCHED, f"in {', '.join(sorted(each.cluster for each in reports))}"
        # A service that asks for no pods, and has none left, is done.
        idle = not reports and self.service and reason == Reason.NO_PODS
        if idle and self.observes:
            status["observedGeneration"] = obj["metadata"].get("generation") or 0
        own = [*_list(status.get("conditions"))]
        if reports or idle:
            for each in self.concluded(obj, status):
                _conclude(own, each)
        sent = bool(reports) or reason == DISPATCHED
        own.append({"type": DISPATCHED, "status": "True" if sent else "False", "reason": reason or "Waiting",
                    "message": message})  # fmt: skip
        if not reports and reason not in WITHHELD:
            own.append({"type": RECONCILING, "status": "True", "reason": reason or "Waiting", "message": message})
        before = {each.get("type"): each for each in _list(old.get("conditions"))}
        status["conditions"] = [_timed(each, before.get(each.get("type")), now) for each in own]
        if _OF_ITS_SERVER in old:
            status[_OF_ITS_SERVER] = old[_OF_ITS_SERVER]
        if reports or idle:
            return status
        # Nothing else is known of a dispatched object before its operator has written.
        return self.told(status, *(("", "") if sent else (reason, message)))

    # -- for people ----------------------------------------------------------------------------------------------------

    def standing(self, obj: Mapping[str, Any]) -> Standing:
        """In its own words; pods that do not run are pending."""
        status = obj.get("status") or {}
        reading = self._reading(status)
        ended = reading.succeeded + reading.failed
        pending = 0 if reading.outcome is not None else max(0, self._count(obj, 0) - reading.running - ended)
        state = reading.state or ("Running" if reading.running else "Pending")
        return Standing(state, pending, reading.running, reading.succeeded, reading.failed)

    def moved(self, obj: Mapping[str, Any], queue: str) -> Json:
        """By the label that counts."""
        return metadata.moved_by_label(obj, queue)

    def pods_selector(self, namespace: str, name: str) -> str:
        """The label that its controller gives them."""
        return f"{self.pods_label}={name}"


def _support(kind: Templated) -> Support:
    fewer = f"annotation `{keys.GROUP_MIN_MEMBER}`" + (f" or {kind.fewer}" if kind.fewer else "")
    return Support(
        components=kind.pods,
        minimum=f"all; fewer by {fewer}",
        order=kind.order or "all at once",
        division="by replicas" if kind.divisible else "one member",
        scaling=kind.scales or "-",
        end=_SERVICE_ENDS if kind.service else _JOB_ENDS,
        released=kind.released_when,
        status=f"the member's, and condition `{DISPATCHED}`",
    )


def _guard(kind: Templated) -> Guard:
    # Admission policies know the kinds of Atoll's own, whose switches are true and false.
    spec = f"dyn(oldObject){''.join(f'.?{step}' for step in kind.switch)}.orValue(false) == true"
    label = f'"{keys.QUEUE_LABEL}" in dyn(oldObject).metadata.?labels.orValue({{}})'
    return Guard(
        ours=f"{label} && ({spec if kind.switch and not kind.manager else 'true'})",
        charged="dyn(oldObject).?status.?conditions.orValue([]).exists(each,"
        f' each.?type.orValue("") == "{DISPATCHED}" && each.?status.orValue("") == "True")',
        suspended=f"{label} && {spec}" if kind.manager and kind.switch == ("spec", "suspend") else "",
    )


# -- for such kinds ----------------------------------------------------------------------------------------------------


def value_at(obj: Any, path: Path) -> Any:
    """The field, or None."""
    for step in path:
        if isinstance(obj, Mapping):
            obj = obj.get(step)
        elif isinstance(obj, list) and isinstance(step, int) and 0 <= step < len(obj):
            obj = obj[step]
        else:
            return None
    return obj


def set_at(obj: Json, path: Path, value: Any) -> None:
    """Set a field; objects on the way to it are made where they are missing."""
    place: Any = obj
    *above, last = path
    for step in above:
        if isinstance(place, dict) and place.get(str(step)) is None:
            place[str(step)] = {}
        place = place[step]
    place[last] = value


def remove_at(obj: Json, path: Path) -> None:
    """Remove a field that may be there."""
    holder = value_at(obj, path[:-1])
    if path and isinstance(holder, dict):
        holder.pop(str(path[-1]), None)


def dotted(path: Path) -> str:
    """As messages name it: `spec.replicatedJobs[0].template`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def said(value: Any) -> str:
    """A value of a field, as messages show it: `true`, `"Paused"`."""
    return orjson.dumps(value).decode()


def count_at(obj: Mapping[str, Any], *path: str | int, default: int = 1) -> int:
    """A number of pods.

    Raises:
        ValueError: it is none; the message names the field.
    """
    value = value_at(obj, path)
    if value is None:
        return default
    if type(value) is not int or not 0 <= value <= numbers.INT32:
        raise ValueError(f"{dotted(path)}: {value!r} is no whole number of 0 or more")
    return value


def minimum_of(obj: Mapping[str, Any]) -> int | None:
    """How many pods must start together, where an annotation says so.

    Raises:
        ValueError: it is no whole number of 1 or more.
    """
    text = ((obj.get("metadata") or {}).get("annotations") or {}).get(keys.GROUP_MIN_MEMBER)
    if text is None:
        return None
    if not (minimum := numbers.whole(text)):
        raise ValueError(f"annotation {keys.GROUP_MIN_MEMBER}: {text!r} is no whole number of 1 or more")
    return minimum


def condition_of(status: Mapping[str, Any], *types: str) -> Json | None:
    """The first condition of one of these types that holds."""
    found = _list(status.get("conditions"))
    return next((each for each in found if each.get("type") in types and each.get("status") == "True"), None)


def number(status: Mapping[str, Any], name: str) -> int:
    """A count of a status; 0 where it is none."""
    value = status.get(name)
    return value if type(value) is int and value > 0 else 0


def _of_parts(obj: Mapping[str, Any], reports: Sequence[Report], counts: Sequence[str]) -> Json:
    """The status of the whole: counts added up, conditions of all parts, the rest as the first part says."""
    parts = [_on_host(each.status) for each in reports]
    status = dict(parts[0])
    for name in counts:
        status.pop(name, None)
        if amount := sum(number(each, name) for each in parts):
            status[name] = amount if name == counts[0] else min(amount, status.get(_SHARE_OF.get(name, counts[0]), 0))
    status["conditions"] = _conditions_of({each.cluster: part for each, part in zip(reports, parts, strict=True)})
    observed = [each.get("observedGeneration") for each in parts]
    if any(each is not None for each in observed):
        # A part that has not looked yet leaves the number that was true before.
        least = min(each or 0 for each in observed) or (obj.get("status") or {}).get("observedGeneration")
        status["observedGeneration"] = least
    if not status.get("observedGeneration"):
        status.pop("observedGeneration", None)
    return status


def _on_host(reported: Mapping[str, Any]) -> Json:
    """A part's status with generations of the host's object: 0 for one that the member's controller has not observed
    as it was delivered.
    """
    delivered = reported.get("delivered") or {}

    def observed(said: Any) -> int:
        return int(delivered.get("generation") or 0) if said and said == delivered.get("own") else 0

    status = {name: value for name, value in reported.items() if name not in (*ADDED, _OF_ITS_SERVER)}
    if "observedGeneration" in status:
        status["observedGeneration"] = observed(status["observedGeneration"])
    status["conditions"] = [each for each in _list(status.get("conditions")) if each.get("type") not in OF_HOST]
    for index, each in enumerate(status["conditions"]):
        if "observedGeneration" in each:
            rest = {name: value for name, value in each.items() if name != "observedGeneration"}
            told = {"observedGeneration": observed(each["observedGeneration"])} if delivered else {}
            status["conditions"][index] = {**rest, **told}
    return status


def _conditions_of(parts: Mapping[str, Json]) -> list[Json]:
    """Conditions of a whole: an abnormal one holds if it does in one part, any other if it does in each.

    Args:
        parts: member -> its status.
    """
    if len(parts) == 1:
        [only] = parts.values()
        return list(only["conditions"])
    found = []
    for type_ in dict.fromkeys(each.get("type") for part in parts.values() for each in part["conditions"]):
        abnormal = _ABNORMAL.search(str(type_)) is not None
        worst = ("True", "Unknown", "False") if abnormal else ("False", "Unknown", "True")
        absent = {"type": type_, "status": "False" if abnormal else "Unknown", "reason": "NotReported"}
        said = {
            name: next((each for each in part["conditions"] if each.get("type") == type_), absent)
            for name, part in parts.items()
        }
        name, decisive = min(
            said.items(),
            key=lambda item: (
                worst.index(item[1]["status"]) if item[1].get("status") in worst else 1,
                item[1].get("reason") == _SETTLED,
            ),
        )
        found.append({**decisive, "message": f"{name}: {decisive.get('message') or 'it says nothing of this yet'}"})
    return found


def _conclude(conditions: list[Json], wanted: Json) -> None:
    """Have a condition in the list; one that says the same keeps its words and its times."""
    for index, each in enumerate(conditions):
        if each.get("type") == wanted["type"]:
            if each.get("status") != wanted["status"]:
                conditions[index] = wanted
            return
    conditions.append(wanted)


def _timed(condition: Json, before: Json | None, now: str) -> Json:
    """A condition that has no time yet, with that of its last change."""
    if condition.get("lastTransitionTime"):
        return condition
    same = before is not None and before.get("status") == condition.get("status")
    return {**condition, "lastTransitionTime": (before or {}).get("lastTransitionTime") if same else now}


def _list(value: Any) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _task(component: Component, pod: Json, template: Json, components: Sequence[Component], default_class: str) -> Task:
    """Its task, with the pods that one more in its count makes, beside pods of other components of the same count."""
    least = component.pods if component.minimum is None else min(component.minimum, component.pods)
    task = metadata.task_of(
        component.name,
        pod,
        replicas=component.pods,
        min_available=least,
        default_class=default_class,
        annotations=(template.get("metadata") or {}).get("annotations"),
    )
    shared = sum(each.count == component.count for each in components) > 1
    if not component.count or not (shared or component.unit > 1):
        return task
    name = dotted(component.count) if shared else ""
    return msgspec.structs.replace(task, unit=max(component.unit, 1), unit_name=name)


def _near(
    obj: Mapping[str, Any],
    components: Sequence[Component],
    tasks: Sequence[Task],
    templates: Sequence[Json],
    sets: Callable[[Mapping[str, Any], Component], int] | None,
) -> tuple[list[Task], TopologyWish | None]:
    """The tasks with the groups of their pods, and the wish of all: that of the object, or of its only component.

    Annotations of one of several templates are for its own pods; with a `unit`, for the pods of each set of pods;
    with a group's name, for pods of all templates that name it. Where it asks for slices as well, their level holds
    for the slices and the other one for all.
    """
    whole = metadata.topology_wish(obj)
    found = [
        task if each.unnumbered else metadata.partitioned(task, template, obj)
        for each, task, template in zip(components, tasks, templates, strict=True)
    ]
    groups = [metadata.topology_annotations(template).get(nearness.GROUP, "") for template in templates]
    of_groups: dict[str, TopologyWish] = {}
    for name, template in zip(groups, templates, strict=True):
        if name and (said := metadata.topology_wish(template)) is not None:
            of_groups.setdefault(name, said)
    together = len(set(groups)) == 1 and bool(groups[0]) and not sets
    for number, (each, task, template) in enumerate(zip(components, found, templates, strict=True)):
        own = metadata.topology_wish(template) or of_groups.get(groups[number])
        if own is None:
            continue
        size = sets(obj, each) if sets else task.replicas
        alone = len(found) == 1 or together
        if (not alone or sets) and task.partition is None and size and whole is None:
            name = f"group-{groups[number]}" if groups[number] else ""
            part = Partition(size, own, _SET if sets else name)
            found[number] = msgspec.structs.replace(task, partition=part)
        elif whole is None:
            whole = own
    return found, whole


def _counts(components: Sequence[Component], part: Part) -> dict[Path, int]:
    """Counts to write where a part has fewer pods than the object asks for: whole units, no more than it has."""
    found: dict[Path, int] = {}
    for each in components:
        pods = part.counts.get(each.name, 0)
        if each.count and pods != each.pods:
            found[each.count] = min(pods // max(each.unit, 1), found.get(each.count, pods))
    return found


def _template(obj: Mapping[str, Any], component: Component) -> Any:
    if component.pod is not None:
        return {"metadata": {"annotations": value_at(obj, component.annotations) or {}}, "spec": component.pod}
    return value_at(obj, component.template) or {}


def _minimum_requests(gang: Gang) -> dict[str, str]:
    total: vector.Vector = {}
    for task in gang.tasks:
        requests = {name: amount for name, amount in task.requests.items() if name != "pods"}
        vector.add(total, requests, task.min_available)
    return {name: quantity.format_units(name, amount) for name, amount in sorted(total.items())}


def _for_member(template: Mapping[str, Any], task: str, part: Part, notes: Mapping[str, str]) -> Json:
    """A pod template of the gang: for Atoll's scheduler, and without what the host's API server filled in."""
    made = metadata.ending_in_time(metadata.template_for_member(template, task, part.flavors), part.grace)
    head, pod = made.get("metadata") or {}, dict(made.get("spec") or {})
    if pod.get("schedulerName") in (None, "", "default-scheduler"):
        pod["schedulerName"] = keys.SCHEDULER_NAME
    kept = {key: value for key, value in head.items() if key != "creationTimestamp"}
    return {**made, "metadata": {**kept, "annotations": {**(head.get("annotations") or {}), **notes}}, "spec": pod}
