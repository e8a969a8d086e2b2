"""The scheduler's configuration in a member: ConfigMap `atoll-scheduler`, which acts as soon as it changes.

Its keys are `node-scoring`, as on queues and workloads, and `volcano-scheduler.conf`. What of it does not act is named
in Events of the ConfigMap and in the agent's log. One that can't be read changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from atoll.agent.scheduler import volcano_conf
from atoll.agent.scheduler.core.events import Configured
from atoll.kube.events import Recorder
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys, scoring
from atoll.model.apiresource import CONFIGMAPS
from atoll.model.objects import Meta

NAME: Final = "atoll-scheduler"
OWN: Final = "node-scoring"
VOLCANO: Final = "volcano-scheduler.conf"
_KNOWN: Final = frozenset({OWN, VOLCANO})

log = structlog.get_logger(__name__)


class ConfigMap(msgspec.Struct, frozen=True):
    """Fields read of one."""

    metadata: Meta
    data: dict[str, str] = {}


_decoder = msgspec.json.Decoder(ConfigMap)


def read(data: dict[str, str]) -> tuple[Configured, list[str]]:
    """What acts, and sentences on what does not.

    Raises:
        ValueError: something of it can't be read.
    """
    found, idle = Configured(), [f"key {key}: there is no such key" for key in sorted(data) if key not in _KNOWN]
    if text := data.get(VOLCANO):
        try:
            conf = volcano_conf.read(text)
        except volcano_conf.ConfError as error:
            raise ValueError(f"{VOLCANO} {error}") from error
        found = Configured(conf.scoring, conf.preempts, conf.waiting_time)
        idle += conf.without_effect
    if text := data.get(OWN, "").strip():
        try:
            found = msgspec.structs.replace(found, scoring=found.scoring.but(scoring.parse(text)))
        except scoring.ScoringError as error:
            raise ValueError(f"{OWN} {error}") from error
    return found, idle


class Configuration:
    """Tells the scheduler's core what the ConfigMap says."""

    def __init__(self, member: ApiServer, recorder: Recorder, handle: Callable[[Configured], None]) -> None:
        """No I/O happens here; `run` does it."""
        self._recorder, self._handle = recorder, handle
        self._reflector: Reflector[ConfigMap] = Reflector(
            member,
            CONFIGMAPS,
            _decoder.decode,
            namespace=keys.SYSTEM_NAMESPACE,
            field_selector=f"metadata.name={NAME}",
            withheld=True,
        )
        self._reflector.on_change(self._changed)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._reflector.run()

    async def wait(self) -> None:
        """Return once it is known."""
        await self._reflector.synced.wait()

    def _changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        if new is None:
            self._handle(Configured())
            return
        if old is not None and old.data == new.data:
            return
        about: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": new.metadata.namespace}
        about |= {"name": new.metadata.name, "uid": new.metadata.uid}
        try:
            found, idle = read(new.data)
        except ValueError as error:
            log.warning("the scheduler's configuration is not used", problem=str(error))
            note = f"not used, what was before holds: {error}"
            self._recorder.record(about, "ConfigurationRefused", note, warning=True)
            return
        for each in idle:
            log.warning("part of the scheduler's configuration has no effect", part=each)
        if idle:
            self._recorder.record(about, "WithoutEffect", "; ".join(idle), warning=True)
        self._handle(found)
