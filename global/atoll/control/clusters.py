"""Whether members are alive: the Ready condition of each Cluster follows its agent's lease; condition Placer says who
places there, and the rest of the status what the agent says of versions, nodes and resources.

The agent renews its lease while it runs and says in it whether the member's API server is ready. How long a lease has
been silent is measured here by when it last changed, on the loop's clock, never by the dates in it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import structlog

from atoll.control.caches import Caches
from atoll.control.objects import ClusterObject, LeaseObject
from atoll.control.settings import ClusterSettings
from atoll.delivery.work import WorkObject
from atoll.kinds import known
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys
from atoll.model import placer as placers
from atoll.model.apiresource import CLUSTERS
from atoll.model.conditions import find, with_condition
from atoll.model.lost import STALE_GONE
from atoll.model.member import (
    AgentFacts,
    Figures,
    enablements,
    features_of,
    read_facts,
    read_figures,
    resource_list,
)
from atoll.model.plurals import counted
from atoll.model.release import VERSION
from atoll.model.reports import BadReport, readable
from atoll.model.skew import wrong_with_agent
from atoll.model.timestamps import rfc3339, rfc3339_seconds

Json = dict[str, Any]


_NO_FENCE = {"fencedAt": None, "heartbeat": None}
"""In a merge patch: nothing of an earlier absence stays."""
_LONGEST_FENCE = 86400.0
"""Seconds; what an agent says beyond is not believed."""

log = structlog.get_logger(__name__)


class Clusters:
    """Keeps the status of every Cluster."""

    def __init__(
        self, host: ApiServer, caches: Caches, recorder: Recorder, *, settings: ClusterSettings = ClusterSettings()
    ) -> None:
        self._settings = settings
        self._host, self._caches, self._recorder = host, caches, recorder
        self._queue: WorkQueue[str] = WorkQueue("clusters", lambda key: {"cluster": key})
        #: cluster -> when its lease last changed, on the loop's clock
        self._heard: dict[str, float] = {}
        #: clusters whose lease was renewed while this process looked
        self._renewed: set[str] = set()
        #: cluster -> when its figures were last written, on the loop's clock
        self._summarised: dict[str, float] = {}
        caches.clusters.on_change(self._cluster_changed)
        caches.leases.on_change(self._lease_changed)
        caches.works.on_change(self._work_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._queue.run(self._reconcile)

    def _cluster_changed(self, old: ClusterObject | None, new: ClusterObject | None) -> None:
        if new is not None:
            self._queue.add(new.metadata.name)

    def _work_changed(self, old: WorkObject | None, new: WorkObject | None) -> None:
        work = new or old
        if work is not None and keys.LOST in work.metadata.annotations:
            self._queue.add(keys.cluster_of(work.metadata.namespace))

    def _lease_changed(self, old: LeaseObject | None, new: LeaseObject | None) -> None:
        lease = new or old
        if lease is None or not lease.metadata.namespace.startswith(keys.EXECUTION_PREFIX):
            return
        cluster = keys.cluster_of(lease.metadata.namespace)
        if new is not None and (old is None or old.spec.renew_time != new.spec.renew_time):
            self._heard[cluster] = asyncio.get_running_loop().time()
            # One that is there when this process begins may be of an agent that is gone.
            if old is not None or self._caches.leases.synced.is_set():
                self._renewed.add(cluster)
        self._queue.add(cluster)

    async def _reconcile(self, name: str) -> None:
        cluster = self._caches.clusters.get(name)
        if cluster is None:
            self._heard.pop(name, None)
            self._summarised.pop(name, None)
            return
        lease = self._caches.leases.get(f"{keys.execution_namespace(name)}/atoll-agent")
        ready, reason, message = self._judge(cluster, lease)
        conditions = list(cluster.status.get("conditions") or ())
        wanted = with_condition(conditions, "Ready", ready, reason, message, now=time.time())
        wanted = self._with_stale(name, wanted)
        lost = self._lost(cluster, ready, reason, lease)
        if (
            lease is not None
            and (placer := placers.REASONS.get(lease.metadata.annotations.get(keys.PLACER, ""))) is not None
        ):
            why = readable(lease.metadata.annotations.get(keys.PLACER_WHY, ""))
            wanted = with_condition(wanted, "Placer", True, placer, why, now=time.time())
        said, due, facts = self._said(name, cluster, lease)
        if facts is not None and (facts.tokens or facts.credentials):
            wanted = with_condition(wanted, "CredentialsValid", *_credentials(facts), now=time.time())
        if facts is not None:
            wrong = wrong_with_agent(facts.version)
            goes, why = wrong or ("Supported", f"Atoll {facts.version} goes with the host's {VERSION}")
            wanted = with_condition(wanted, "AgentVersionSupported", wrong is None, goes, why, now=time.time())
        undated = dated(cluster, time.time())
        changed = wanted != conditions or undated != (cluster.status.get("undatedTaints") or [])
        if changed or due or lost != (cluster.status.get("lost") or None):
            if said:
                self._summarised[name] = asyncio.get_running_loop().time()
            await self._host.merge_patch(
                CLUSTERS,
                name,
                # The list of conditions is replaced whole, and the dispatcher writes some of them.
                {
                    "metadata": {"resourceVersion": cluster.metadata.resource_version},
                    "status": {
                        **said,
                        "conditions": wanted,
                        "lost": lost and {**_NO_FENCE, **lost},
                        "undatedTaints": undated or None,
                    },
                },
                subresource="status",
                field_manager="atoll-control",
            )
            before = cluster.ready
            if before and before.get("status") != str("Unknown" if ready is None else ready):
                about = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "name": name}
                self._recorder.record(
                    {**about, "uid": cluster.metadata.uid}, reason, message, warning=ready is not True
                )
        if lease is not None and name in self._heard:
            silent = asyncio.get_running_loop().time() - self._heard[name]
            if silent < self._patience(lease):
                self._queue.add(name, after=self._patience(lease) - silent + 0.1)

    def _said(
        self, name: str, cluster: ClusterObject, lease: LeaseObject | None
    ) -> tuple[Json, bool, AgentFacts | None]:
        """What of the status follows from what the agent says and is new; and whether it is worth a write of its own
        now. Figures, which change all the time, are at most every `self._settings.figures` seconds.
        """
        annotations = lease.metadata.annotations if lease is not None else {}
        try:
            facts, figures = read_facts(annotations), read_figures(annotations)
        except BadReport as error:
            log.warning("what the agent says of its member is not believed", cluster=name, error=str(error))
            return {}, False, None
        now = asyncio.get_running_loop().time()
        upgraded = _changed(cluster.status, _versions(facts) if facts is not None else {})
        counted = _changed(cluster.status, _summary(figures) if figures is not None else {})
        due = bool(counted) and now - self._summarised.get(name, -self._settings.figures) >= self._settings.figures
        return {**upgraded, **counted}, bool(upgraded) or due, facts

    def _with_stale(self, name: str, conditions: list[Json]) -> list[Json]:
        """The conditions with a note about Works whose bindings went on without the member's word."""
        works = self._caches.works.by_index("namespace", keys.execution_namespace(name))
        stale = [work for work in works if keys.LOST in work.metadata.annotations]
        if not stale and find(conditions, STALE_GONE) is None:
            return conditions
        note = f"{counted(len(stale), 'workload')} of before it was lost must be removed before it gets new ones"
        reason, text = ("BeingRemoved", note) if stale else ("Gone", "")
        return with_condition(conditions, STALE_GONE, not stale, reason, text, now=time.time())

    def _lost(self, cluster: ClusterObject, ready: bool | None, reason: str, lease: LeaseObject | None) -> Json | None:
        """Since when a member is away, and when its agent ends exclusive work; None where it is there."""
        if ready is True:
            return None
        known = dict(cluster.status.get("lost") or {})
        since = {"since": known["since"]} if known else self._away_since(cluster, reason)
        if since is None or lease is None or reason != "AgentSilent":
            # An agent that reports a problem has contact to the host, and one that never came ends nothing.
            return since
        heard = time.time() - (asyncio.get_running_loop().time() - self._heard[cluster.metadata.name])
        return {**since, **fenced(known, lease, heard)}

    def _away_since(self, cluster: ClusterObject, reason: str) -> Json | None:
        """Since when a member is away, which neither another reason nor a restart changes."""
        if cluster.ready.get("status") in ("False", "Unknown"):
            # Its status is of an earlier version.
            return {"since": cluster.ready["lastTransitionTime"]}
        silent = 0.0
        if reason == "AgentSilent":
            silent = asyncio.get_running_loop().time() - self._heard[cluster.metadata.name]
        return {"since": rfc3339(time.time() - silent)} if cluster.ready else None

    def _judge(self, cluster: ClusterObject, lease: LeaseObject | None) -> tuple[bool | None, str, str]:
        name, said = cluster.metadata.name, cluster.ready
        if cluster.status.get("lost") and name not in self._renewed and said.get("status") in ("False", "Unknown"):
            # A lease that merely is there says nothing: this process began after the member was lost.
            return (None if said["status"] == "Unknown" else False), said["reason"], said["message"]
        if lease is None or name not in self._heard:
            return (
                False,
                "AgentNotSeen",
                f"no agent has reported from {name} yet: is atoll-agent --cluster {name} running?",
            )
        silent = asyncio.get_running_loop().time() - self._heard[name]
        if silent >= self._patience(lease):
            return None, "AgentSilent", f"the agent has not reported for {self._patience(lease)} s"
        health = lease.metadata.annotations.get(keys.READYZ, "ok")
        if health != "ok":
            return False, "MemberNotReady", f"the member's API server is not ready: {health}"
        return True, "ClusterReady", "the agent reports and the member's API server is ready"

    def _patience(self, lease: LeaseObject) -> int:
        return patience(lease, self._settings.longest_lease)


def patience(lease: LeaseObject, longest: int) -> int:
    """Seconds of silence after which an agent is taken for gone: its own figure, within bounds."""
    return min(max(lease.spec.lease_duration_seconds, 1), longest)


def _fence(lease: LeaseObject) -> float | None:
    """Seconds without contact after which an agent ends exclusive work; None without a figure."""
    text = lease.metadata.annotations.get(keys.FENCE, "")
    try:
        after = float(text)
    except ValueError:
        return None
    return after if 0 < after <= _LONGEST_FENCE else None


def dated(cluster: ClusterObject, now: float) -> list[Json]:
    """`status.undatedTaints`: since when those NoExecute taints are known that don't say it themselves."""
    known = {(each["key"], each.get("value", "")): each["since"] for each in cluster.status.get("undatedTaints") or ()}
    return [
        {"key": key, **({"value": value} if value else {}), "since": known.get((key, value)) or rfc3339(now)}
        for key, value in cluster.undated_taints
    ]


def fenced(known: Json, lease: LeaseObject, heard: float) -> Json:
    """What `status.lost` says of the fence of an agent that is silent; nothing where it can't be relied on.

    Args:
        known: `status.lost` as it is.
        lease: the agent's, as it was last renewed.
        heard: when that was at the latest, in seconds since the epoch; a control that begins later takes its begin.
    """
    after = _fence(lease)
    if after is None or lease.metadata.annotations.get(keys.READYZ) != "ok":
        return {}
    if known.get("fencedAt") and known.get("heartbeat") == lease.spec.renew_time:
        return {name: known[name] for name in _NO_FENCE}
    # The agent had contact since this absence was noted, and no fence of before counts.
    return {"fencedAt": rfc3339(heard + after), "heartbeat": lease.spec.renew_time}


def _credentials(facts: AgentFacts) -> tuple[bool, str, str]:
    until = ", ".join(
        f"the token for the {name} expires at {rfc3339_seconds(end)}" for name, end in sorted(facts.tokens.items())
    )
    if facts.credentials:
        return False, "NotRenewed", f"{until}; it can't be renewed {facts.credentials}"
    return True, "Renewed", f"{until}; the agent renews it before"


def _versions(facts: AgentFacts) -> Json:
    return {
        "kubernetesVersion": facts.kubernetes,
        "apiEnablements": enablements(facts.kinds, [kind.resource for kind in known() if kind.in_member is not None]),
        "agent": {
            "version": facts.version,
            "features": sorted(features_of(facts)),
            # A merge patch keeps fields that it does not name.
            "unserved": {feature: readable(why) for feature, why in sorted(facts.unserved.items())} or None,
        },
    }


def _summary(figures: Figures) -> Json:
    amounts = {
        "allocatable": resource_list(figures.allocatable),
        "allocated": resource_list(figures.allocated),
        "allocating": resource_list(figures.allocating),
    }
    return {"nodeSummary": {"totalNum": figures.nodes, "readyNum": figures.ready}, "resourceSummary": amounts}


def _changed(status: Json, wanted: Json) -> Json:
    """A merge patch to the wanted status; unwanted names of a mapping go."""
    patch: Json = {}
    for name, value in wanted.items():
        before = status.get(name)
        if before == value:
            continue
        if isinstance(value, dict) and isinstance(before, dict):
            patch[name] = {**dict.fromkeys(before.keys() - value.keys()), **_changed(before, value)}
        else:
            patch[name] = value
    return patch
