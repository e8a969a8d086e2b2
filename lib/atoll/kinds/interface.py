"""What every workload kind answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from atoll.model import keys
from atoll.model.apiresource import ApiResource
from atoll.model.flavors import Assigned, kept_to_nodes
from atoll.model.gang import Gang
from atoll.model.placer import MadeFor

if TYPE_CHECKING:
    from atoll.admission.rules import Rules

Json = dict[str, Any]
NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


class Outcome(StrEnum):
    """How a finished workload ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Part:
    """What of a workload goes to one member."""

    cluster: str
    counts: Mapping[str, int]
    """Task name to pods."""
    min_available: int
    minimums: Mapping[str, int] = field(default_factory=dict)
    """Task name to the least of its pods; a task that is not named needs all."""
    parts: int = 1
    """How many members the workload runs in at once."""
    preceding: Mapping[str, int] = field(default_factory=dict)
    """Task name to the pods in the parts before this one."""
    shares: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)
    """Task name to (member, pods) of all parts, in their order."""
    network: str = ""
    """How pods name pods of other parts (`atoll.model.network`); empty where they can't."""
    identity: Mapping[str, str] = field(default_factory=dict)
    """Annotations that say which dispatch this is; for objects and pods."""
    carried: Mapping[str, int] = field(default_factory=dict)
    """Counts of the workload's earlier dispatches."""
    flavors: Sequence[Assigned] = ()
    """That it got: its pods are kept to their nodes."""
    grace: int | None = None
    """Seconds that its pods may take to end at most, and without finalizers; None leaves both as they are."""
    scattered: bool = False
    """Whether it may get further parts while it runs (`Gang.scattered`)."""
    work: str = ""
    """UID of the Work that the manifest is for; empty before that is made."""

    def gang(self, whole: Gang) -> Gang:
        """The part's gang: its tasks that have pods, kept to the nodes of their flavors.

        Args:
            whole: the workload's.
        """
        tasks = [
            msgspec.structs.replace(task, replicas=count, min_available=self.minimums.get(task.name, count))
            for task in whole.tasks
            if (count := self.counts.get(task.name, 0))
        ]
        part = msgspec.structs.replace(whole, tasks=tasks, min_available=self.min_available)
        return kept_to_nodes(part, self.flavors)


@dataclass(frozen=True, slots=True)
class Report:
    """What one member says of its part: the status of the object there, as received."""

    cluster: str
    status: Mapping[str, Any]
    carried: Mapping[str, int] = field(default_factory=dict)
    """Counts of earlier dispatches, the same for all parts."""
    pods: Mapping[str, int] = field(default_factory=dict)
    """Task name to pods of the part; empty where it is not known, or the part is to go."""
    work: str = ""
    """UID of the Work by which it came there; empty where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How people name the workloads of a kind."""

    title: str
    """In sentences: `Volcano Job`."""
    names: Sequence[str]
    """Texts before the slash of KIND/NAME, besides the API server's names of the resource; the first one is
    for messages.
    """
    held: str
    """What keeps others from running them on the host."""
    prefix: str = ""
    """Before the name in tables that show several kinds."""
    needs: str = ""
    """The controller that each member must have to make its pods; empty: what every member has."""
    runs_as: str = ""
    """What members run instead, where that is of another kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """What of a kind acts, in words, for its page."""

    components: str
    """Name of the unit by which its pods are counted and charged."""
    minimum: str
    """How many of them must start together."""
    order: str
    """Which of them are made after others."""
    division: str
    """Whether it may run in several members at once."""
    scaling: str
    """Fields by which its pods become more or fewer while it runs."""
    end: str
    """When it is over, and what becomes of one that fails."""
    released: str
    """Which pods give their quota back before that."""
    status: str
    """What the host shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What admission policies know of a kind, without the webhook: CEL about `oldObject`."""

    ours: str = "true"
    """Whether Atoll runs it."""
    charged: str
    """Whether its queue is charged for it, so that it may not leave it now."""
    suspended: str = ""
    """Whether Atoll has its suspend switch set, which only Atoll may lift; empty for a kind without spec.suspend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InMember:
    """What the agent does about a kind in its member."""

    status: bool = False
    """It writes the status, being the controller of the kind."""
    quiet: float = 0.0
    """Least seconds between two reports of one that runs, where its counts change all the time."""
    keeps: str = ""
    """Field of its status from which the next member goes on; empty where each dispatch begins anew."""
    groups: bool = False
    """It makes a PodGroup for the pods of each of them, unless their controller made one that they name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """Another number of pods for one task."""

    task: str
    had: int
    needed: int
    """Of the new number, how many the workload needs to start."""
    patch: Sequence[Json]
    """JSON patch of the workload, which fails where its tasks are others by now; empty where it has so many already."""


Scaling = Callable[[Mapping[str, Any], str, int], Scaled]
"""(workload, name of a task or nothing for the only one, pods from now on).

Raises:
    ValueError: it has no such task; the message says which it has.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """How several objects on the host are one workload."""

    selector: str
    """Label selector of the objects, all of the kind's resource."""
    name: Callable[[Mapping[str, Any]], str]
    """Name of the workload that an object is a part of, as a whole or its metadata alone; empty for none."""
    workload: Callable[[Sequence[Json], str], Json]
    """The workload of these objects, one at least, in one object; with this UID, or one of its own choice where that is
    empty. Its generation changes with any change of them.
    """
    waits: Callable[[Mapping[str, Any]], tuple[str, str] | None]
    """Reason and message of a workload that can't be run yet; None for one that can."""
    objects: Callable[[Mapping[str, Any]], Sequence[Json]]
    """The objects of a workload."""
    statuses: Callable[[Mapping[str, Any], Mapping[str, Any]], Sequence[tuple[Json, Json]]]
    """(object, its status) of objects that get another one by the result of `aggregate` for the workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Referred:
    """The part that a kind reads from an object of the host that its workloads name: admission writes it on the
    workload as an annotation, so that charge and manifest follow the object of that moment.
    """

    resources: Sequence[ApiResource]
    """What that object may be."""
    field: str
    """Of the workload that names it, for messages."""
    of: Callable[[Mapping[str, Any]], tuple[ApiResource, str] | None]
    """Resource and name that a workload names; None where it names none that can be."""
    annotation: str
    """Where it is written."""
    written: Callable[[Mapping[str, Any]], str]
    """Text written of the object."""
    entire: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """The workload with the written part at its place, where pod templates are looked for."""
    brings: Sequence[ApiResource] = ()
    """What members get beside the workload."""
    brought: Callable[[Mapping[str, Any]], Sequence[Json]] = lambda _: ()
    """Those objects, from the manifest of the workload."""


class Ownership(NamedTuple):
    """Parts that are more than numbers of pods."""

    works: Mapping[str, str]
    """UID of a Work that has some of it -> its member."""
    version: Sequence[str]
    """Changes when manifests do."""


class DividedByPods:
    """Of kinds whose parts are numbers of pods."""

    def division(self, obj: Mapping[str, Any]) -> Ownership | None:
        """Its status does not divide it."""
        return None

    def joined(
        self, obj: Mapping[str, Any], holders: Sequence[Report], *, scattered: bool, now: str
    ) -> Mapping[str, Any]:
        """Nothing but reports says how parts are."""
        return obj


class Standing(NamedTuple):
    """Where a workload stands, for lists."""

    state: str
    """In the words of its kind."""
    pending: int
    running: int
    succeeded: int
    failed: int


class LeftAlone(NamedTuple):
    """Why Atoll leaves an object of a kind alone, for whoever asks about it."""

    reason: str
    message: str
    help: str
    """What to do."""


class Kind(Protocol):
    """One workload kind. Every method is pure."""

    resource: ApiResource
    words: Words
    support: Support
    guard: Guard
    in_member: InMember | None
    """None where members run it as a workload of another kind: `rewrite` gives that one's manifest."""
    assembly: Assembly | None
    """None where a workload is one object."""
    scaling: Scaling | None
    """None where the API server scales the kind (`kubectl scale`), or its size can't be changed."""
    referred: Referred | None
    """None where a workload says all by itself."""
    commands: Collection[str]
    """Actions of Volcano's Commands that it obeys."""
    dedicated: bool
    """Nothing of the object keeps others from running it on the host: it is accepted on hosts where no controller
    does.
    """
    service: bool
    """It runs until it is deleted, and its controller replaces pods whose template changes."""
    optional: bool
    """Its CRD is others', who may not have brought it: the kind is served where it is."""

    # -- on the host ---------------------------------------------------------------------------------------------------

    def takes(self, obj: Mapping[str, Any]) -> bool:
        """Whether this object is Atoll's to run."""

    def left_alone(self, obj: Mapping[str, Any]) -> LeftAlone | None:
        """Why it does not take this object; None where it does."""

    def admission(self) -> Rules:
        """Its rules for the webhook; imported on request, as no other process needs them."""

    def queue_of(self, obj: Mapping[str, Any], *, default: str = keys.DEFAULT_QUEUE) -> str:
        """The queue by the order of the design; `default`, the namespace's, when the object names none."""

    def priority_class_of(self, obj: Mapping[str, Any]) -> str:
        """Name of the PriorityClass, or empty."""

    def gang(
        self,
        obj: Mapping[str, Any],
        *,
        priority: int,
        default_class: str = "",
        default_queue: str = keys.DEFAULT_QUEUE,
        carried: Mapping[str, int] = NOTHING,
    ) -> Gang:
        """Its needs.

        Args:
            obj: the object, on the host or as it was rewritten for a member.
            priority: the value of its PriorityClass.
            default_class: name of the PriorityClass of pods that name none.
            default_queue: the namespace's.
            carried: counts of its earlier dispatches.

        Raises:
            ValueError: a field can't be read; the message names it.
        """

    def namespaced_needs(self, obj: Mapping[str, Any]) -> Sequence[tuple[ApiResource, str]]:
        """Objects that must be in the member before it: (resource, name)."""

    def makes_claims(self, obj: Mapping[str, Any]) -> bool:
        """Whether PersistentVolumeClaims are made for it in members."""

    # -- to a member ---------------------------------------------------------------------------------------------------

    def rewrite(self, obj: Mapping[str, Any], part: Part) -> Json:
        """The manifest for a member: spec for this part, user metadata, no server fields."""

    def placed(self, manifest: Json, how: MadeFor) -> Json:
        """What `rewrite` gave, for a member with this placer.

        Args:
            manifest: not changed.
            how: it is made for that member.

        Raises:
            Unplaceable: that placer does not take it.
        """

    # -- what a status says --------------------------------------------------------------------------------------------

    def reported(self, manifest: Mapping[str, Any], status: Any, *, field: str = "status") -> Json:
        """What a member says of its part, with what can't be left out: the only status that the methods below are
        given, besides that of the host's own object.

        Args:
            manifest: what the member was sent.
            status: as it was received.
            field: how to call it in errors.

        Raises:
            BadReport: a field is of the wrong type or form.
        """

    def started(self, status: Mapping[str, Any]) -> int:
        """Pods that run or have succeeded, as the object of this status counts them."""

    def ended(self, status: Mapping[str, Any]) -> int:
        """Pods that have ended and are not made again."""

    def released(self, manifest: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, int]:
        """Task name -> pods that have ended and are never made again, so that their queue is charged no more for them.

        Args:
            manifest: the manifest sent to the member.
            status: the member's report on it.
        """

    def running(self, status: Mapping[str, Any]) -> bool:
        """Whether its minimum runs."""

    def healthy(self, status: Mapping[str, Any]) -> bool | None:
        """Health for the Work; None when nothing is known yet."""

    def suspended(self, status: Mapping[str, Any]) -> str:
        """Why the object of this status has no pods though nothing keeps them from being made; empty where that is not
        so.
        """

    def stopped(self, status: Mapping[str, Any]) -> bool:
        """Whether a policy of its own stopped the object of this status until a user resumes it."""

    def asked(self, status: Mapping[str, Any]) -> str | None:
        """The action that a part of a divided gang asks for, to be done in all of its parts."""

    def retries(self, status: Mapping[str, Any]) -> int:
        """How often the object of this status was started again."""

    def finished(self, status: Mapping[str, Any]) -> Outcome | None:
        """How the object of this status ended; None while it has not."""

    def ended_at(self, status: Mapping[str, Any]) -> str | None:
        """When the object of this status ended (RFC 3339), from when its time to live counts."""

    # -- back on the host ----------------------------------------------------------------------------------------------

    def carried(self, status: Mapping[str, Any]) -> dict[str, int]:
        """What of the host's status the next dispatch must add to."""

    def suspension(self, obj: Mapping[str, Any], *, suspended: bool) -> Sequence[Json]:
        """The JSON patch by which the object on the host says this; empty when it does, or has no such field."""

    def division(self, obj: Mapping[str, Any]) -> Ownership | None:
        """How the status of the object on the host divides it over Works; None for all that is divided by its pods."""

    def joined(
        self, obj: Mapping[str, Any], holders: Sequence[Report], *, scattered: bool, now: str
    ) -> Mapping[str, Any]:
        """The object with a status that knows the parts, for `aggregate`, and by which `rewrite` divides it.

        Args:
            obj: the object on the host.
            holders: one for each member that may have something of it, whatever becomes of that.
            scattered: see `Part`.
            now: RFC 3339.
        """

    def aggregate(
        self, obj: Mapping[str, Any], reports: Sequence[Report], *, waiting: tuple[str, str], now: str
    ) -> Json:
        """The status on the host.

        Args:
            obj: the object on the host.
            reports: one per member that has a part.
            waiting: (reason, message) while it is not dispatched, or a member refuses it; empty strings otherwise.
            now: RFC 3339, for transitions.
        """

    # -- for people ----------------------------------------------------------------------------------------------------

    def standing(self, obj: Mapping[str, Any]) -> Standing:
        """Its row in a list, from the object on the host."""

    def moved(self, obj: Mapping[str, Any], queue: str) -> Json:
        """The merge patch by which the object on the host goes to another queue."""

    def pods_selector(self, namespace: str, name: str) -> str:
        """The label selector of its pods in members."""
