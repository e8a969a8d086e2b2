"""What the agent tells the host of its member and itself: it travels with the sign of life, with no other write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Node, Pod
from atoll.agent.settings import FactSettings
from atoll.kinds import known
from atoll.kube import errors
from atoll.kube.token_renewal import Renewal
from atoll.kube.transport import ApiServer
from atoll.kube.version import Version, version_of
from atoll.model import quantity, vector
from atoll.model.apiresource import ApiResource
from atoll.model.member import AgentFacts, Figures, kind_feature
from atoll.model.vector import Vector

log = structlog.get_logger(__name__)


class Tally:
    """Nodes and requests of a member, added up change by change."""

    def __init__(self, cache: MemberCache) -> None:
        """Follows the cache; call it before that runs."""
        self._nodes = self._ready = 0
        self._allocatable: Vector = {}
        self._allocated: Vector = {}
        self._allocating: Vector = {}
        cache.nodes.on_change(self._node_changed)
        cache.pods.on_change(self._pod_changed)

    def figures(self) -> Figures:
        """As it is now."""
        return Figures(self._nodes, self._ready, dict(self._allocatable), dict(self._allocated), dict(self._allocating))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        for node, times in ((old, -1), (new, 1)):
            if node is not None:
                self._nodes += times
                self._ready += times * node.ready
                vector.add(self._allocatable, _allocatable(node.status.allocatable), times)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        for pod, times in ((old, -1), (new, 1)):
            if pod is not None and not pod.finished:
                vector.add(self._allocated if pod.node else self._allocating, pod.requests, times)


def _allocatable(said: Mapping[str, str | int | float]) -> Vector:
    try:
        return quantity.capacity(said)
    except quantity.QuantityError:
        return {}


class Facts:
    """The member's version and this agent's features, as reported to the host."""

    def __init__(
        self,
        member: ApiServer,
        renewals: Mapping[str, Renewal] | None = None,
        *,
        settings: FactSettings = FactSettings(),
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            member: is asked for its version.
            renewals: of this agent's tokens, `host` and `member`.
            settings: its times and bounds.
        """
        self._settings = settings
        self._member = member
        self.renewals = renewals or {}
        self._version: Version | None = None

    async def run(self) -> None:
        """Ask the member for its version, now and then, until cancelled."""
        while True:
            try:
                self._version = await version_of(self._member)
            except (ValueError, errors.ApiError) as error:
                log.debug("the member does not tell its version", error=str(error))
            await asyncio.sleep(self._settings.every if self._version is not None else self._settings.again)

    def said(self, served: Iterable[ApiResource] = (), unserved: Mapping[str, str] | None = None) -> AgentFacts:
        """As it is known now.

        Args:
            served: served kinds with CRDs of other projects.
            unserved: features of declared kinds that this agent has no rights to or permissions.
        """
        there = set(served)
        found = self._version
        return AgentFacts(
            version=_own_version(),
            kubernetes=found.text if found is not None else "",
            behaves=f"{found.number[0]}.{found.number[1]}" if found is not None else "",
            unserved=dict(unserved or {}),
            tokens={name: int(each.expires) for name, each in self.renewals.items() if each.expires},
            credentials="; ".join(
                f"for the {name}: {each.problem}" for name, each in self.renewals.items() if each.problem
            ),
            kinds=tuple(
                sorted(
                    kind_feature(kind.resource)
                    for kind in known()
                    if kind.in_member is not None and (not kind.optional or kind.resource in there)
                )
            ),
        )


def _own_version() -> str:
    try:
        return installed("atoll")
    except PackageNotFoundError:
        return "0"
