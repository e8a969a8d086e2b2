"""Tries out whether pods of Volcano Jobs answer, where a JobFlow on the host asks: from here, as the host reaches none.

Only pods of the Job itself are tried, on the addresses that their kubelets report. What the network of this process
does not reach counts as no answer, and says why.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Any

import aiohttp
import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.jobs import state
from atoll.agent.objects import Pod
from atoll.agent.settings import ProbeSettings
from atoll.model import keys, probes
from atoll.model.objects import Full
from atoll.model.probes import Probe
from atoll.model.reports import readable

log = structlog.get_logger(__name__)

Json = dict[str, Any]
_SAID = 160


class Probes:
    """Tries all of them again and again."""

    def __init__(
        self, cache: MemberCache, news: Callable[[str], None], *, settings: ProbeSettings = ProbeSettings()
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            cache: of the member.
            news: is called with the key of a Job of which `of` says something else.
            settings: times and bounds.
        """
        self._cache, self._news, self._settings = cache, news, settings
        #: job UID -> what came of its probes, in their order
        self._known: dict[str, list[Json]] = {}
        self._tries = asyncio.Semaphore(settings.at_once)

    def of(self, uid: str) -> list[Json] | None:
        """What came of the probes of a Job; None where nothing was tried."""
        return self._known.get(uid)

    async def run(self) -> None:
        """Try until cancelled."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._settings.patience)) as session:
            while True:
                asked = [job for job in self._cache.jobs if _asks(job)]
                try:
                    await asyncio.gather(*(self._look(session, job) for job in asked))
                except Exception:
                    # A defect of ours here is no reason to make no pods.
                    log.exception("probes of Jobs failed")
                uids = {job.metadata.uid for job in asked}
                self._known = {uid: known for uid, known in self._known.items() if uid in uids}
                await asyncio.sleep(self._settings.every)

    async def _look(self, session: aiohttp.ClientSession, job: Full) -> None:
        pods = self._cache.pods.by_index("owner", job.metadata.uid)
        wanted = probes.decode(job.metadata.annotations.get(keys.PROBES))
        found = list(await asyncio.gather(*(self._outcome(session, probe, pods) for probe in wanted)))
        if found != self._known.get(job.metadata.uid):
            self._known[job.metadata.uid] = found
            self._news(job.metadata.key)

    async def _outcome(self, session: aiohttp.ClientSession, probe: Probe, pods: Iterable[Pod]) -> Json:
        """How many pods answered, and why the first one that did not did not."""
        mine = [pod for pod in pods if pod.task == probe.task and pod.phase == "Running" and not pod.terminating]
        tried = sorted(mine, key=lambda pod: pod.metadata.name)[: self._settings.pods]
        outcomes = await asyncio.gather(*(self._why_not(session, probe, pod.ip) for pod in tried))
        why = next((f"pod {pod.metadata.name}: {text}" for pod, text in zip(tried, outcomes, strict=True) if text), "")
        return {"answered": outcomes.count(""), **({"message": why} if why else {})}

    async def _why_not(self, session: aiohttp.ClientSession, probe: Probe, address: str) -> str:
        """Empty where it answers."""
        if not address:
            return "it has no address"
        try:
            async with self._tries, asyncio.timeout(self._settings.patience):
                return await (_request(session, probe, address) if probe.path else _connect(probe, address))
        except TimeoutError:
            return f"no answer within {self._settings.patience:g} s"
        except (OSError, aiohttp.ClientError, ValueError, ArithmeticError) as error:
            return readable(str(error), _SAID)


def _asks(job: Full) -> bool:
    return keys.PROBES in job.metadata.annotations and (state.phase_of(job.body) or "Pending") in state.MAKING


async def _request(session: aiohttp.ClientSession, probe: Probe, address: str) -> str:
    host = f"[{address}]" if ":" in address else address
    url = f"http://{host}:{probe.port}{probe.path if probe.path.startswith('/') else f'/{probe.path}'}"
    headers = dict([probe.header] if probe.header else [])
    async with session.get(url, headers=headers, allow_redirects=False) as response:
        return "" if 200 <= response.status < 400 else f"it answers {response.status}"


async def _connect(probe: Probe, address: str) -> str:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    _, writer = await asyncio.open_connection(address, probe.port, family=family)
    writer.close()
    return ""
