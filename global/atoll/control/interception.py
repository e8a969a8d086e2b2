"""The webhooks' rules for declared kinds: the API server asks about the resources of WorkloadKinds, and no others.

`init` registers these webhooks for all custom resources, which costs every write in namespaces that have opted in;
the leader of the first shard narrows them. It is control and not the webhook that does: the webhook's credentials can't
stop the API server from asking, and while no webhook answers new kinds are registered all the same.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any, Final

import structlog

from atoll.kinds.templated import Templated
from atoll.kube import errors
from atoll.kube.declared import Declared
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, ApiResource
from atoll.model.objects import Full, decode_full

Json = dict[str, Any]

_SPREADS_S: Final = 1.0
"""API servers learn of a changed configuration by a watch, as this process does."""
_AGAIN_S: Final = 15.0

log = structlog.get_logger(__name__)


class Interception:
    """Keeps the rules as the WorkloadKinds are."""

    def __init__(self, host: ApiServer, declared: Declared) -> None:
        """No I/O happens here."""
        self._host, self._declared = host, declared
        #: a role of the release before does not let control read them
        self.configurations: dict[ApiResource, Reflector[Full]] = {
            resource: Reflector(
                host, resource, decode_full, field_selector=f"metadata.name={keys.WEBHOOKS}", withheld=True
            )
            for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        }
        #: (group, plural) -> loop time since when both configurations name it
        self._since: dict[tuple[str, str], float] = {}
        #: set once the configurations are read
        self.known = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Watch and write until cancelled."""
        # Others may have led, and written other rules, since this process led last.
        self.known.clear()
        self._since = {}
        for configuration in self.configurations.values():
            configuration.begin_anew()
        caches = (self._declared.objects, *self.configurations.values())
        try:
            async with asyncio.TaskGroup() as group:
                for configuration in self.configurations.values():
                    group.create_task(configuration.run())
                for cache in caches:
                    await cache.synced.wait()
                for cache in caches:
                    cache.on_change(self._heard)
                self._note(-math.inf)
                self.known.set()
                while True:
                    self._changed.clear()
                    try:
                        await self._write()
                        pause = None
                    except errors.ApiError as error:
                        log.warning("rules for declared kinds are written again later", error=str(error))
                        pause = _AGAIN_S
                    try:
                        async with asyncio.timeout(pause):
                            await self._changed.wait()
                    except TimeoutError:
                        continue
        finally:
            for cache in caches:
                cache.remove_handler(self._heard)

    def spread(self, kind: Templated) -> float:
        """Seconds until every API server asks about objects of this kind; infinite while the rules don't name it."""
        if any(each.absent for each in self.configurations.values()):
            return 0.0
        since = self._since.get((kind.resource.group, kind.resource.plural), math.inf)
        return max(since + _SPREADS_S - asyncio.get_running_loop().time(), 0.0)

    def _heard(self, *_: object) -> None:
        self._note(asyncio.get_running_loop().time())
        self._changed.set()

    def _note(self, now: float) -> None:
        asked = [
            [entry.get("rules") or [] for _, entry in _entries(cache.get(keys.WEBHOOKS))]
            for cache in self.configurations.values()
        ]
        named = {(kind.resource.group, kind.resource.plural) for kind in self._declared.all()}
        self._since = {
            each: self._since.get(each, now)
            for each in named
            if all(found and all(any(_covers(rule, *each) for rule in rules) for rules in found) for found in asked)
        }

    async def _write(self) -> None:
        if self._declared.objects.absent:
            return
        wanted = rules(self._declared.all())
        for resource, cache in self.configurations.items():
            patch: list[Json] = []
            for index, entry in _entries(cache.get(keys.WEBHOOKS)):
                if (entry.get("rules") or []) != wanted:
                    patch += [
                        {"op": "test", "path": f"/webhooks/{index}/name", "value": entry["name"]},
                        {"op": "add", "path": f"/webhooks/{index}/rules", "value": wanted},
                    ]
            if patch:
                await self._host.json_patch(resource, keys.WEBHOOKS, patch, field_manager="atoll-control")
                log.info("API servers ask about declared kinds", kind=resource.kind, rules=wanted)


def _entries(configuration: Full | None) -> Iterator[tuple[int, Json]]:
    """Webhooks of declared kinds, by their index."""
    for index, entry in enumerate((configuration.body.get("webhooks") if configuration is not None else None) or ()):
        if str(entry["name"]).partition(".")[2] in keys.DECLARED_WEBHOOKS:
            yield index, entry


def _covers(rule: Json, group: str, plural: str) -> bool:
    return bool({"*", group} & {*rule["apiGroups"]}) and bool({"*", plural} & {*rule["resources"]})


def rules(kinds: list[Templated]) -> list[Json]:
    """Rules of webhooks for workloads of these kinds, as the API server stores them."""
    by_group: dict[str, list[str]] = {}
    for kind in sorted(kinds, key=lambda kind: (kind.resource.group, kind.resource.plural)):
        by_group.setdefault(kind.resource.group, []).append(kind.resource.plural)
    return [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": plurals,
            "scope": "Namespaced",
        }
        for group, plurals in by_group.items()
    ]
