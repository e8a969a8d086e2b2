"""Reports → status: what members say of a binding's Works becomes the binding's status and then the workload's own.

Status follows decisions and reports only; it is never read back as a wish. Changes that are not final are collected
for a moment, because each costs two writes on the host.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from atoll.control.caches import Caches
from atoll.control.notifications import Notifications
from atoll.control.objects import BindingObject, ClusterObject
from atoll.control.overrides import Overrides
from atoll.control.records import Records
from atoll.control.settings import StatusSettings
from atoll.control.statuses import STATUS_REFUSED, breaks_rules, put_status
from atoll.control.story import sizes, tell, tell_workload
from atoll.control.work_drafts import parts_of
from atoll.control.works import binding_key, works_gone
from atoll.delivery import work_name
from atoll.delivery.work import WorkObject, gang_of
from atoll.delivery.written import as_written, replace_status
from atoll.kinds import Kind, Outcome, Report, kind_of, statuses
from atoll.kube import errors
from atoll.kube.errors import Retry
from atoll.kube.events import Recorder
from atoll.kube.pace import URGENT
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import numbers
from atoll.model.apiresource import BINDINGS, WORKS
from atoll.model.conditions import Condition, find, with_condition
from atoll.model.decision import Phase
from atoll.model.failover import EvictionTask
from atoll.model.keys import LEAVING, LOST, cluster_of, execution_namespace
from atoll.model.objects import Full
from atoll.model.timestamps import rfc3339_seconds
from atoll.model.verdict import PODS_LOST, Blocker, Reason, Verdict, reason_of_refusal

Json = dict[str, Any]
_OF_PARTS = (
    "MemberReady",
    "FullyApplied",
    "Resized",
    "Limited",
    "Bound",
    "Running",
    "ReportsAccepted",
    "AcceptedByMembers",
    "NeedsAgree",
    "Healthy",
)
"""Conditions about dispatched pods."""

_DECIDES = ("reservation", "refused", "unmade", "suspended", "delivered")
"""What agents add to the status of a workload, beside its placement."""

_SAID_ELSEWHERE = ("Scheduled", "FullyApplied")
"""Conditions that follow from the spec and the Works."""

_TRUST = 5.0
"""Seconds for which a status counts as written that no watch shows yet: the store may have been put back."""

_REFUSED = 60.0
"""Seconds after which a status that broke a rule of its API is offered again; another one is at once."""

_STALE = 0.5
"""The same where the object had changed meanwhile: the cache will show it."""

log = structlog.get_logger(__name__)


class Status:
    """Keeps the status of bindings and workloads as members report."""

    def __init__(
        self,
        host: ApiServer,
        caches: Caches,
        recorder: Recorder,
        overrides: Overrides,
        records: Records,
        notifications: Notifications,
        *,
        starts: Sequence[WorkQueue[Any]] = (),
        settings: StatusSettings = StatusSettings(),
    ) -> None:
        """No I/O happens here.

        Args:
            host: its API server.
            caches: of the host.
            recorder: of Events.
            overrides: tell of parts that can't be sent.
            records: of runs.
            notifications: of workloads.
            starts: queues of looks that may start a workload.
            settings: its times and bounds.
        """
        self._settings, self._overrides, self._records = settings, overrides, records
        self._notifications = notifications
        notifications.on_sent(lambda key: self._queue.add(key))
        records.on_written(lambda key: self._queue.add(key))
        overrides.on_failure(lambda key: self._queue.add(key))
        self._host, self._caches, self._recorder = host, caches, recorder
        self._queue: WorkQueue[str] = WorkQueue("status", caches.about, owns=caches.owns)
        self._starts = starts
        #: binding key -> since when its status differs, or its workload's, but not by news that goes at once
        self._changed_at: dict[str, float] = {}
        #: binding key -> its status as this process wrote it last, the resourceVersion of that, and when
        self._written: dict[str, tuple[Json, str, float]] = {}
        caches.bindings.on_change(self._binding_changed)
        caches.works.on_change(self._work_changed)
        caches.clusters.on_change(self._cluster_changed)
        # A workload's status depends on its suspension.
        caches.on_edited_workload(self._queue.add)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._queue.run(self.reconcile, workers=self._settings.workers)

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        if new is None:
            if old is not None:
                self._written.pop(old.metadata.key, None)
                self._changed_at.pop(old.metadata.key, None)
            return
        if old is None:
            self._queue.add(new.metadata.key, after=self._settings.undecided)
        elif old.status != new.status and not self._wrote(new):
            # Another writer's, perhaps what an earlier leader had on its way.
            self._queue.add(new.metadata.key, after=self._settings.reported)
        elif old.decision != new.decision or old.metadata.generation != new.metadata.generation:
            pause = self._settings.reported if new.suspended else self._settings.unreported + self._pace()
            self._queue.add(new.metadata.key, after=pause)

    def _work_changed(self, old: WorkObject | None, new: WorkObject | None) -> None:
        if old is None and new is not None:
            binding = self._caches.bindings.get(binding_key(new))
            if binding is not None and binding.scattered:
                self._queue.add(binding_key(new), after=self._settings.reported)
        given_up = new is not None and not {LOST, LEAVING}.isdisjoint(new.metadata.annotations)
        if old is not None and (new is None or given_up or (new.status, new.refused) != (old.status, old.refused)):
            kind = kind_of(old.manifest)
            ended = new is not None and kind is not None and kind.finished(new.reported) is not None
            self._queue.add(binding_key(old), priority=URGENT if ended else 0, after=self._settings.reported)

    def _cluster_changed(self, old: ClusterObject | None, new: ClusterObject | None) -> None:
        """What runs in a member, or is to leave it, says whether that answers; one by one, for it may be much."""
        before, after = (each.ready.get("status") if each is not None else None for each in (old, new))
        found = new or old
        if found is None or before == after or old is None:
            return
        name = found.metadata.name
        mine = [binding.metadata.key for binding in self._caches.bindings.by_index("cluster", name)]
        mine += [binding_key(work) for work in self._caches.works.by_index("namespace", execution_namespace(name))]
        for number, key in enumerate(dict.fromkeys(mine)):
            self._queue.add(key, after=self._settings.reported + number / self._settings.news)

    async def reconcile(self, key: str) -> None:
        binding = self._caches.bindings.get(key)
        if binding is None or binding.metadata.deletion_timestamp is not None:
            return
        binding = self._as_written(binding)
        found = self._caches.workload_of(binding)
        if found is None:
            return
        kind, obj = found
        works = self._caches.current_works(binding)
        status = await self._binding_status(kind, binding, works)
        if _may_wait(binding.status, status) and self._waits(key, self._settings.counts):
            return
        if status != binding.status:
            meta = binding.metadata
            # Only over this version, which has the epoch that all of this was reported for.
            answer = await replace_status(self._host, BINDINGS, meta, status, field_manager="atoll-control")
            if answer is not None and key in self._caches.bindings.store:
                version = answer["metadata"]["resourceVersion"]
                self._written[key] = (status, version, asyncio.get_running_loop().time())
            tell(self._recorder, binding, binding.status.get("conditions") or (), status["conditions"])
        # What waits has no part that could tell of itself: members may be asked about it, no more.
        parts = [] if binding.suspended else works
        if not any(work.reported for work in parts):
            # Until the new copy says something, the one that stays in a member that it leaves is all that runs.
            parts = self._caches.leaving_works(binding.metadata.uid) or parts
        await self._workload_status(kind, obj, msgspec.structs.replace(binding, status=status), parts)

    async def _workload_status(self, kind: Kind, obj: Full, binding: BindingObject, works: list[WorkObject]) -> None:
        reports = _reports(kind, binding, works)
        refusing = refusals(works)
        waiting = (str(reason_of_refusal(refusing)), refusing) if refusing else ("", "")
        if not reports:
            # An ended workload stays ended, also when it was about to be evicted.
            if kind.finished(obj.body.get("status") or {}) is not None or _finished(binding):
                return
            waiting = _waiting(binding, works)
        now = rfc3339_seconds(time.time())
        before: Mapping[str, Any] = obj.body
        if binding.scattered or kind.division(before) is not None:
            before = kind.joined(before, await self._holders(kind, obj, binding), scattered=binding.scattered, now=now)
        elif not reports:
            before = self._as_left(kind, before, binding)
        status = kind.aggregate(before, reports, waiting=waiting, now=now)
        found = list(statuses(kind, obj.body, status))
        key, ended = binding.metadata.key, kind.finished(status) is not None
        if found and not ended and self._waits(key, 0.0):
            return
        self._changed_at.pop(key, None)
        for each, wanted in found:
            # A leader that was stopped with such a write on its way goes on with it, through any final report
            # meanwhile.
            final = bool(reports) and kind.finished(wanted) is not None
            seen = "" if final else each["metadata"]["resourceVersion"]
            try:
                await put_status(self._host, kind.resource, each, wanted, seen=seen)
            except errors.Invalid as error:
                if not breaks_rules(error):
                    raise
                if final and await self._is_stale(kind, each):
                    # Such as a start that was written a moment before, and is the first one for good.
                    raise Retry(_STALE, error.said) from error
                tell_workload(self._recorder, binding, STATUS_REFUSED, error.said, warning=True)
                raise Retry(_REFUSED, error.said) from error

    async def _holders(self, kind: Kind, obj: Full, binding: BindingObject) -> list[Report]:
        """One for each Work by which a member may have some of it, unless the binding goes on without."""
        works = {work.metadata.uid: work for work in self._caches.works.by_index("binding", binding.metadata.uid)}
        gang = binding.gang
        parts = (
            {} if binding.suspended or gang is None else {part.cluster: part.counts for part in parts_of(binding, gang)}
        )
        found = []
        for uid, work in works.items():
            name = cluster_of(work.metadata.namespace)
            if LOST in work.metadata.annotations or work.question is not None:
                continue
            stays = str(work.epoch) == binding.epoch and work.metadata.deletion_timestamp is None
            found.append(Report(name, work.reported, pods=parts.get(name, {}) if stays else {}, work=uid))
        known, about = kind.division(obj.body), obj.metadata
        group = kind.resource.api_version.rpartition("/")[0]
        for uid, name in known.works.items() if known is not None else ():
            if uid in works:
                continue
            # The cache may not have seen it yet, as that of a leader that begins.
            there = await self._host.named(
                WORKS, work_name(about.namespace, about.name, kind.resource.kind, group), execution_namespace(name)
            )
            marks = [each["metadata"].get("annotations") or {} for each in there if each["metadata"]["uid"] == uid]
            found += [Report(name, {}, work=uid) for each in marks if LOST not in each]
        return found

    def _as_left(self, kind: Kind, obj: Mapping[str, Any], binding: BindingObject) -> Mapping[str, Any]:
        """A workload that waits, with the last report of the member that it left if the next one goes on from there."""
        kept = kind.in_member.keeps if kind.in_member is not None else ""
        works = self._caches.works_of(binding.metadata.uid) if kept else []
        last = max((each for each in works if each.reported.get(kept)), key=lambda each: each.epoch, default=None)
        return {**obj, "status": {**(obj.get("status") or {}), kept: last.reported[kept]}} if last is not None else obj

    def _waits(self, key: str, least: float) -> bool:
        """Whether a change that is not final is still to wait for what comes next; it is looked at again then."""
        now = asyncio.get_running_loop().time()
        left = self._changed_at.setdefault(key, now) + max(least, self._pace()) - now
        if left > 0:
            self._queue.add(key, after=left)
        return left > 0

    def _pace(self) -> float:
        return self._host.pace.delay(sum(each.due for each in self._starts) + self._queue.waiting(URGENT))

    def _wrote(self, binding: BindingObject) -> bool:
        return self._written.get(binding.metadata.key, ({}, "", 0.0))[1] == binding.metadata.resource_version

    def _as_written(self, binding: BindingObject) -> BindingObject:
        """The binding with the status that it got here, where the watch is behind: else that is written once more, and
        refused.
        """
        status, version, at = self._written.get(binding.metadata.key, ({}, "", -_TRUST))
        return as_written(binding, status, version, at + _TRUST)

    async def _is_stale(self, kind: Kind, obj: Json) -> bool:
        """Whether the host has another status of this object by now than the one that the cache shows."""
        about = obj["metadata"]
        found = await self._host.named(kind.resource, about["name"], about["namespace"])
        return any(each.get("status") != obj.get("status") for each in found)

    def _kept(self, binding: BindingObject) -> str:
        """What keeps the pods of a binding that was evicted, member by member; empty where nothing is known to."""
        said = {}
        for work in self._caches.works_of(binding.metadata.uid):
            name = cluster_of(work.metadata.namespace)
            leaving = (work.reported.get("placement") or {}).get("leaving")
            if away := self._caches.away(name):
                said[name] = f"{away}: only its agent can say that nothing of it is left"
            elif leaving:
                said[name] = f"{name}: {leaving}"
        return "; ".join(text for _, text in sorted(said.items()))

    # -- the binding's own -------------------------------------------------------------------------------------------

    async def _binding_status(self, kind: Kind, binding: BindingObject, works: list[WorkObject]) -> Json:
        old = binding.status
        status = {key: value for key, value in old.items() if key not in ("aggregatedStatus", "conditions")}
        wish = binding.gang
        unhealthy = unhealthy_parts(works, kind) if wish is not None and wish.unhealthy is not None else {}
        status["aggregatedStatus"] = [
            _item(work, unhealthy) for work in works if work.applied is not None or work.reported
        ]
        status["aggregatedStatus"] += [
            _not_sent(cluster, why, binding.epoch) for cluster, why in self._overrides.failures(binding).items()
        ]
        now, generation = time.time(), binding.metadata.generation
        conditions = list(old.get("conditions") or ())

        def say(type_: str, value: bool | None, reason: str, message: str = "") -> None:
            nonlocal conditions
            conditions = with_condition(conditions, type_, value, reason, message, now=now, generation=generation)

        decision = binding.decision
        if not binding.suspended and binding.spec.clusters:
            names = ", ".join(target.name for target in binding.spec.clusters)
            if binding.reserving:
                say("Scheduled", False, str(Reason.RESERVING), f"parts are being reserved in {names}")
            else:
                say("Scheduled", True, "Success", f"dispatched to {names}")
            for type_, line in zip(("Resized", "Limited"), sizes(decision), strict=True):
                if line is None:
                    conditions = [each for each in conditions if each["type"] != type_]
                else:
                    say(type_, True, str(line.reason), line.text)
            applied = [work.applied for work in works]
            complete = len(works) == len(binding.spec.clusters)
            if complete and all(applied):
                say("FullyApplied", True, "FullyAppliedSuccess")
            elif any(each is False for each in applied):
                message = "; ".join(work.applied_message for work in works if work.applied is False)
                say("FullyApplied", False, "FullyAppliedFailed", message)
            if complete and all(_bound(work, kind) for work in works):
                say("Bound", True, "PodsBound", f"{sum(_minimum(work, kind) for work in works)} pods")
            away = [text for target in binding.spec.clusters if (text := self._caches.away(target.name))]
            bound = find(conditions, "Bound")
            if bound is not None and not away and (said := _regained(works, kind, bound)):
                say("Bound", *said)
            if away and not _finished(binding):
                say("MemberReady", False, "MemberNotReady", "; ".join(away))
            elif any(each["type"] == "MemberReady" for each in conditions):
                say("MemberReady", True, "MembersReady")
            ran = any((each["type"], each["status"]) == ("Running", "True") for each in conditions)
            if ran or (complete and all(_started(work, kind) for work in works)):
                # Whatever becomes of its pods later, it was not its start that failed.
                say("Running", True, "MinimumRuns")
            elif held_up := _held_up(works):
                say("Running", False, "NotStarting", held_up)
            else:
                # What held its containers up is over, though they don't run yet.
                conditions = [each for each in conditions if (each["type"], each["status"]) != ("Running", "False")]
            if wish is None or wish.unhealthy is None or _finished(binding):
                conditions = [each for each in conditions if each["type"] != "Healthy"]
            elif bound is not None and not away and complete:
                why = "; ".join(f"{name}: {text}" for name, text in sorted(unhealthy.items()))
                say("Healthy", not unhealthy, "Unhealthy" if unhealthy else "Healthy", why)
            outcomes = [kind.finished(work.reported) for work in works]
            if Outcome.FAILED in outcomes:
                say("Finished", True, Outcome.FAILED)
            elif complete and all(outcomes):
                say("Finished", True, Outcome.SUCCEEDED)
            refused = [f"{cluster_of(work.metadata.namespace)}: {work.refused}" for work in works if work.refused]
            if differing := [work.differences for work in works if work.differences[0]]:
                say("NeedsAgree", False, differing[0][0], "; ".join(text for _, text in differing))
            elif any(condition["type"] == "NeedsAgree" for condition in conditions):
                say("NeedsAgree", True, "NeedsAgree")
            if refusing := refusals(works):
                say("AcceptedByMembers", False, str(reason_of_refusal(refusing)), refusing)
            elif any(condition["type"] == "AcceptedByMembers" for condition in conditions):
                say("AcceptedByMembers", True, "NothingRefused")
            if refused:
                say("ReportsAccepted", False, "ReportRefused", "; ".join(refused))
            elif any(condition["type"] == "ReportsAccepted" for condition in conditions):
                say("ReportsAccepted", True, "ReportsMakeSense")
        elif decision.story:
            verdict = Verdict(decision.reason, decision.blocker)
            say("Scheduled", False, str(decision.reason), verdict.sentence())
            conditions = [each for each in conditions if each["type"] not in _OF_PARTS]
        if decision.phase.going:
            if await works_gone(self._host, self._caches, binding):
                say("Released", True, str(Reason.EVICTED), "no Work of it is left")
            elif kept := self._kept(binding):
                say("Released", False, "PodsNotGone", kept)
            elif any((each["type"], each["status"]) == ("Released", "False") for each in conditions):
                conditions = [each for each in conditions if each["type"] != "Released"]
        if staying := [task for task in binding.spec.graceful_eviction_tasks if task.stays]:
            say("Leaving", True, staying[0].reason, "; ".join(_stays(task) for task in staying))
        else:
            conditions = [each for each in conditions if each["type"] != "Leaving"]
        status["conditions"] = conditions
        runs = self._records.status_of(binding, status, works, kind)
        return {**status, **runs, **self._notifications.status_of(binding)}


def _may_wait(old: Json, new: Json) -> bool:
    """Whether nothing is decided by what differs: members count other pods than before, or it was dispatched."""

    def rest(status: Json) -> list[Json]:
        items = []
        for item in status.get("aggregatedStatus") or ():
            said = item.get("status") or {}
            told = {name: value for name, value in said.items() if name in _DECIDES}
            told["placement"] = {**(said.get("placement") or {}), "running": None}
            items.append({**item, "status": told})
        conditions = [each for each in status.get("conditions") or () if each["type"] not in _SAID_ELSEWHERE]
        return [{**status, "aggregatedStatus": None, "conditions": conditions}, *items]

    return old != new and rest(old) == rest(new)


def _stays(task: EvictionTask) -> str:
    until = task.over_at()
    end = "suppressDeletion of its eviction task is set to false" if until is None else rfc3339_seconds(until)
    return f"its copy in {task.from_cluster} stays until it runs elsewhere, or {end}"


def _finished(binding: BindingObject) -> bool:
    conditions = binding.status.get("conditions") or ()
    return any(each["type"] == "Finished" and each["status"] == "True" for each in conditions)


def refusals(works: list[WorkObject]) -> str:
    """What members refuse of the parts that they were sent, in their words; empty where they refuse nothing."""
    said = [
        (cluster_of(work.metadata.namespace), (work.reported.get("refused") or {}).get("message")) for work in works
    ]
    return "; ".join(
        Verdict(reason_of_refusal(words), Blocker("Cluster", name, message=words)).sentence()
        for name, words in said
        if words
    )


def _item(work: WorkObject, unhealthy: Mapping[str, str]) -> Json:
    """One aggregatedStatus item."""
    name = cluster_of(work.metadata.namespace)
    item: Json = {
        "clusterName": name,
        "applied": bool(work.applied),
        "health": "Unhealthy" if name in unhealthy else work.health,
    }
    if work.applied_message:
        item["appliedMessage"] = work.applied_message
    if work.reported:
        item["status"] = work.reported
    return item


def _not_sent(cluster: str, why: str, epoch: str) -> Json:
    """The aggregatedStatus item of a part that can't be sent: it counts as refused there."""
    refused = {"epoch": int(epoch), "message": why}
    return {"clusterName": cluster, "applied": False, "appliedMessage": why, "status": {"refused": refused}}


def _bound(work: WorkObject, kind: Kind) -> bool:
    """Whether the part has its pods on nodes, or had: one may be over before another begins."""
    if kind.finished(work.reported) is Outcome.SUCCEEDED:
        return True
    return _placed(work, kind) >= _minimum(work, kind)


def _placed(work: WorkObject, kind: Kind) -> int:
    """Pods that have nodes, or had until they ended."""
    nodes: dict[str, int] = (work.reported.get("placement") or {}).get("nodes") or {}
    # Where others make or place the pods, their counts may be all that tells.
    return max(sum(nodes.values()) + kind.ended(work.reported), kind.started(work.reported))


def _minimum(work: WorkObject, kind: Kind) -> int:
    return max(gang_of(work, kind).at_first(), 1)


def _regained(works: list[WorkObject], kind: Kind, bound: Condition) -> tuple[bool, str, str] | None:
    """(status, reason, message) of condition Bound of a gang that was bound before, as far as its minimum of then has
    nodes; None for no condition.

    Later growth may wait for any time: only the minimum that was bound once counts.
    """
    if any(kind.finished(work.reported) is not None for work in works):
        return None
    said = bound.get("message") or ""
    minimum = numbers.whole((said if bound["status"] == "True" else said.partition(" of ")[2]).partition(" ")[0]) or 0
    have = sum(_placed(work, kind) for work in works)
    if have >= minimum:
        return True, "PodsBound", f"{minimum} pods"
    waiting = {cluster_of(work.metadata.namespace): _waits(work) for work in works}
    why = "; ".join(f"{name}: {text}" for name, text in sorted(waiting.items()) if text)
    return (False, PODS_LOST, f"{have} of {minimum} pods have a node: {why}") if why else None


def _waits(work: WorkObject) -> str:
    placement = work.reported.get("placement") or {}
    return str(placement.get("waiting") or work.reported.get("suspended") or "")


def _started(work: WorkObject, kind: Kind) -> bool:
    """Whether the minimum of the part runs, not merely has nodes; or did."""
    if kind.finished(work.reported) is not None:
        return True
    running = (work.reported.get("placement") or {}).get("running")
    if running is None:
        # An agent from without this report.
        return kind.running(work.reported)
    return int(running) >= _minimum(work, kind)


def _held_up(works: list[WorkObject]) -> str:
    """Why containers of pods that have nodes don't run, member by member; empty where nothing is known to be wrong."""
    said = {
        cluster_of(work.metadata.namespace): (work.reported.get("placement") or {}).get("starting") for work in works
    }
    return "; ".join(f"{name}: {text}" for name, text in sorted(said.items()) if text)


def _reports(kind: Kind, binding: BindingObject, works: list[WorkObject]) -> list[Report]:
    """Reports of members; none before the first.

    A part that has not been heard of counts as one that has not begun, so that the others' end is not taken for the
    whole's. Once one has failed the others are stopped, and then only the remaining ones count.
    """
    said = {
        name: Report(name, work.reported, work.carried)
        for work in works
        for name in [cluster_of(work.metadata.namespace)]
    }
    heard = [report for report in said.values() if report.status]
    if not heard or Outcome.FAILED in [kind.finished(report.status) for report in heard]:
        return heard
    silent = [target.name for target in binding.spec.clusters if target.name not in said]
    return [*said.values(), *(Report(name, {}, heard[0].carried) for name in silent)]


def unhealthy_parts(works: list[WorkObject], kind: Kind) -> dict[str, str]:
    """Member -> why its part is unhealthy: its status says so, or its minimum does not run. Ended parts are not."""
    found = {}
    for work in works:
        name, placement = cluster_of(work.metadata.namespace), work.reported.get("placement") or {}
        if kind.finished(work.reported) is not None or not work.reported:
            continue
        counts = [int(placement["running"])] if "running" in placement else []
        if kind.service and kind.healthy(work.reported) is not None:
            # Of a service only pods that are ready count.
            counts.append(kind.started(work.reported))
        minimum = _minimum(work, kind)
        if kind.healthy(work.reported) is False:
            found[name] = "it failed there"
        elif counts and min(counts) < minimum:
            why = placement.get("starting") or placement.get("waiting") or ""
            found[name] = f"{min(counts)} of {minimum} pods run" + (f": {why}" if why else "")
    return found


def _waiting(binding: BindingObject, works: list[WorkObject]) -> tuple[str, str]:
    """(reason, message) for a workload without a report of any member yet."""
    for work in works:
        if work.applied is False:
            return "NotApplied", work.applied_message
    decision = binding.decision
    if binding.evicting:
        why = Verdict(decision.reason, decision.blocker).sentence()
        released = find(binding.status.get("conditions") or [], "Released")
        kept = released["message"] if released is not None and released["status"] == "False" else ""
        return str(Phase.EVICTING), f"its pods are being removed: {why}" + (f"; {kept}" if kept else "")
    if binding.suspended and decision.story:
        return str(decision.reason), Verdict(decision.reason, decision.blocker).sentence()
    if not binding.suspended and binding.spec.clusters:
        names = ", ".join(target.name for target in binding.spec.clusters)
        return str(Reason.DISPATCHED), f"in {names}, where nothing has reported on it yet"
    return "", ""
