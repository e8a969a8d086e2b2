"""Looks at the cluster, one after the other: figures in, a plan, evictions out, and a report of all of it.

Pods go by the Eviction API, which keeps PodDisruptionBudgets and grace. The report is ConfigMap
`atoll-descheduler-report`; Events on pods tell of moves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from atoll.agent.descheduler import sources
from atoll.agent.descheduler.cluster import Cluster
from atoll.agent.descheduler.places import Places
from atoll.agent.descheduler.plan import Ask, Memory, Move, Plan, Skip, plan, source_key
from atoll.agent.descheduler.policy import Policy, PolicyError, Prometheus, Requests, parse
from atoll.agent.descheduler.reports import write_report
from atoll.agent.descheduler.rules import Rules
from atoll.agent.descheduler.settings import RENEWED, DeschedulerSettings
from atoll.agent.descheduler.world import Figures
from atoll.agent.evictions import ask_host, evict
from atoll.agent.objects import Node
from atoll.fit.constraints import taints
from atoll.kube import errors
from atoll.kube.events import Recorder, reference
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import CONFIGMAPS, NODES, PODS
from atoll.model.timestamps import is_time, rfc3339_micro, rfc3339_seconds, to_seconds

REPORT: Final = "atoll-descheduler-report"
FIELD_MANAGER: Final = "atoll-descheduler"
_MOST_SKIPS: Final = 300

log = structlog.get_logger(__name__)


@dataclass
class Outcome:
    """One look, and what became of its moves."""

    plan: Plan
    done: list[Move] = field(default_factory=list)
    refused: list[Skip] = field(default_factory=list)
    problem: str = ""
    """Why nothing could be decided; empty where something was."""


class Metrics:
    """Counters and gauges of the process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.evictions = Counter(
            "atoll_descheduler_evictions", "Pods that a look moved, by result.", ["result"], registry=registry
        )
        self.hot = Gauge("atoll_descheduler_hot_nodes", "Nodes above targetThresholds.", registry=registry)
        self.blind = Gauge(
            "atoll_descheduler_blind",
            "1 while nothing is decided: no policy that can be read, or no figures.",
            registry=registry,
        )


class Looks:
    """Looks at one cluster and moves its pods."""

    def __init__(
        self,
        api: ApiServer,
        cluster: Cluster,
        settings: DeschedulerSettings,
        *,
        recorder: Recorder | None = None,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """No I/O happens here."""
        self._api, self._cluster, self._settings = api, cluster, settings
        self._recorder, self._metrics, self._clock = recorder, metrics, clock
        self._memory = Memory()
        self._places = Places(api, cluster, field_manager=FIELD_MANAGER)
        self._changed = asyncio.Event()
        #: the policy in use, and the text that it was read of
        self._policy: Policy | None = None
        self._text = ""
        cluster.on_policy(self._changed.set)

    async def run(self) -> None:
        """Look until cancelled; a changed policy is looked by at once."""
        await self._cluster.wait()
        while True:
            self._changed.clear()
            try:
                outcome = await self.once()
            except Exception as error:
                # One odd object must not end all looks; evictions before the failure stand.
                log.exception("a look failed")
                outcome = Outcome(Plan(), problem=f"the look failed: {type(error).__name__}: {error}"[:500])
            await self._tell(outcome)
            try:
                async with asyncio.timeout(self._settings.every):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def once(self) -> Outcome:
        """One look, with its evictions unless this is a dry run."""
        names = [each.metadata.name for each in self._cluster.nodes]
        policy = self._read()
        if isinstance(policy, str):
            if self._cluster.policy is None:
                await self._taint(Plan(cool=set(names)))
            return Outcome(Plan(), problem=policy)
        figures: dict[str, Figures] = {}
        for each in policy.balances:
            if not isinstance(each.source, Requests) and source_key(each) not in figures:
                figures[source_key(each)] = await sources.take(
                    each.source,
                    self._api,
                    names,
                    self._settings.prometheus,
                    stale=self._settings.rules.stale,
                    clock=self._clock,
                )
        rules = self._rules(policy)
        found = plan(self._cluster.world(), policy, figures, self._memory, rules, now=self._clock(), wall=time.time())
        problems = [each.problem for each in figures.values() if each.problem]
        outcome = Outcome(found, problem="; ".join(problems) if len(problems) == len(figures) else "")
        if self._settings.dry_run == "off":
            await self._taint(found)
            for move in found.moves:
                if any(each.older_than(rules.stale, self._clock()) for each in figures.values()):
                    outcome.refused.append(Skip(f"pod {move.key}", "figures became too old before its turn"))
                    continue
                await self._places.keep(move.kept)
                await self._evict(move, policy, outcome)
            for ask in found.asks:
                await self._places.keep(ask.kept)
                await self._ask(ask, policy, outcome)
            await self._places.tidy()
        return outcome

    def _rules(self, policy: Policy) -> Rules:
        """Bounds; a move is counted until the longest window has passed, and the figures with it."""
        rules = self._settings.rules
        windows = [each.source.window for each in policy.balances if isinstance(each.source, Prometheus)]
        return msgspec.structs.replace(rules, settle=max([rules.settle, *(each + rules.stale for each in windows)]))

    def _read(self) -> Policy | str:
        """The policy; a sentence where there is none that can be read, and the one before holds no more."""
        found = self._cluster.policy
        if found is None:
            return f"ConfigMap {self._settings.policy} is not there"
        if self._policy is None or found.text != self._text:
            try:
                self._policy, self._text = parse(found.text), found.text
            except PolicyError as error:
                self._policy = None
                self._about(found.metadata.uid, "PolicyRefused", str(error), warning=True)
                return f"ConfigMap {self._settings.policy}: {error}"
            log.info("policy read", profiles=len(self._policy.profiles))
            for each in self._policy.without_effect:
                log.warning("part of the policy has no effect", part=each)
            if self._policy.without_effect:
                self._about(found.metadata.uid, "WithoutEffect", "; ".join(self._policy.without_effect), warning=True)
        return self._policy

    def _about(self, uid: str, reason: str, note: str, *, warning: bool) -> None:
        if self._recorder is not None:
            namespace, _, name = self._settings.policy.partition("/")
            about = reference(CONFIGMAPS, namespace, name, uid)
            self._recorder.record(about, reason, note, warning=warning)

    async def _ask(self, ask: Ask, policy: Policy, outcome: Outcome) -> None:
        """Write the request on the gang's PodGroup: the agent reports it, the host moves the gang."""
        try:
            await ask_host(self._api, ask.group, field_manager=FIELD_MANAGER)
        except errors.ApiError as error:
            outcome.refused.append(Skip(f"gang {ask.group}", f"not asked for: {error.said}"))
            await self._places.drop(ask.kept)
            return
        self._memory.ask(ask, self._clock(), self._rules(policy))
        self._count("asked")
        log.info("the host is asked to move a gang", gang=ask.group, node=ask.node, reason=ask.reason)

    async def _evict(self, move: Move, policy: Policy, outcome: Outcome) -> None:
        namespace, _, name = move.key.partition("/")
        about = reference(PODS, namespace, name, move.uid)
        try:
            await evict(self._api, move.key, move.uid, policy.grace)
        except errors.ApiError as error:
            if isinstance(error, errors.Unreachable):
                # It may have been carried out: the move counts, so that no more follows than the plan has.
                self._memory.moved(move, self._clock(), self._rules(policy))
            else:
                await self._places.drop(move.kept)
            self._count("refused")
            outcome.refused.append(Skip(f"pod {move.key}", f"not evicted: {error.said}"))
            log.warning("not evicted", pod=move.key, error=str(error))
            if policy.failure_events and self._recorder is not None:
                self._recorder.record(about, "EvictionFailed", error.said, warning=True)
            return
        self._memory.moved(move, self._clock(), self._rules(policy))
        self._count("evicted")
        outcome.done.append(move)
        log.info("evicted", pod=move.key, node=move.node, place=move.target, reason=move.reason)
        if self._recorder is not None:
            note = f"{move.reason}; {move.target} has a place for it ({move.plugin})"
            self._recorder.record(about, "Descheduled", note, action="Evicting")

    def _count(self, result: str) -> None:
        if self._metrics is not None:
            self._metrics.evictions.labels(result).inc()

    async def _taint(self, found: Plan) -> None:
        """Hot nodes have our taint, cool ones have not; all others stay as they are."""
        value = taints.hot(found.below if self._settings.taint == "on" else None)
        clock = time.time()
        hot = {"key": keys.HOT, "effect": "PreferNoSchedule", **({"value": value} if value else {})}
        for node in list(self._cluster.nodes):
            has = [each for each in node.spec.taints if each.get("key") == keys.HOT]
            wanted = has
            if self._settings.taint == "off" or node.metadata.name in found.cool:
                wanted = []
            elif node.metadata.name in found.lasting:
                wanted = [hot]
            elif node.metadata.name not in found.shares:
                continue
            same = [_untimed(each) for each in has] == [_untimed(each) for each in wanted]
            if (not same or any(_fades(each, clock) for each in has)) and self._settings.dry_run == "off":
                timed = [{**_untimed(each), "timeAdded": rfc3339_seconds(clock)} for each in wanted]
                await self._set_taints(node, [each for each in node.spec.taints if each not in has] + timed)

    async def _set_taints(self, node: Node, wanted: list[dict[str, Any]]) -> None:
        patch: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version},
            {"op": "add", "path": "/spec/taints", "value": wanted},
        ]
        try:
            await self._api.json_patch(NODES, node.metadata.name, patch, field_manager=FIELD_MANAGER)
        except errors.ApiError as error:
            # Kubelets write their nodes all the time; the next look tries again.
            log.info("the taint of a node was not changed", node=node.metadata.name, error=str(error))

    async def _tell(self, outcome: Outcome) -> None:
        if self._metrics is not None:
            self._metrics.hot.set(len(outcome.plan.hot))
            self._metrics.blind.set(bool(outcome.problem))
        if outcome.problem:
            log.warning("nothing is decided", problem=outcome.problem)
        told = report(outcome, dry_run=self._settings.dry_run == "on")
        await write_report(self._api, REPORT, told, field_manager=FIELD_MANAGER)


def _untimed(taint: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in taint.items() if key != "timeAdded"}


def _fades(taint: Mapping[str, Any], clock: float) -> bool:
    """Whether the number of our taint ends soon, unless it is renewed."""
    at = str(taint.get("timeAdded") or "")
    return bool(taint.get("value")) and not (is_time(at) and 0 <= clock - to_seconds(at) < RENEWED)


def report(outcome: Outcome, *, dry_run: bool) -> Mapping[str, Any]:
    """A look as JSON: its condition, hot nodes, moves, and each skip with its reason, up to 300."""
    found = outcome.plan
    refused = {each.about for each in outcome.refused}
    skips = [*outcome.refused, *found.skips]
    return {
        "time": rfc3339_micro(time.time()),
        "dryRun": dry_run,
        "condition": {
            "type": "FiguresAvailable",
            "status": "False" if outcome.problem else "True",
            "message": outcome.problem,
        },
        "hot": {
            name: {key: round(share, 3) for key, share in found.shares.get(name, {}).items()}
            for name in sorted(found.hot)
        },
        "moves": [
            {"pod": each.key, "from": each.node, "place": each.target, "plugin": each.plugin, "reason": each.reason}
            for each in found.moves
            if f"pod {each.key}" not in refused
        ],
        "asked": [
            {"gang": each.group, "from": each.node, "places": dict(each.places), "reason": each.reason}
            for each in found.asks
            if f"gang {each.group}" not in refused
        ],
        "skips": [{"about": each.about, "reason": each.reason} for each in skips[:_MOST_SKIPS]],
        "skipsLeftOut": max(0, len(skips) - _MOST_SKIPS),
    }
