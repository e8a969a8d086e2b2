"""Submit the workload to the host as a user would, and see it through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from atoll.kube.errors import AlreadyExists, ApiError, Busy, Unreachable
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.local.install import wait_until
from atoll.model.apiresource import JOBS, QUEUES
from atoll.model.objects import Full, decode_full
from demo.scales import Scale
from demo.workload import NAMESPACE, Submission, Workload, job_object, queue_object

PATIENCE_S = 60.0
"""How long after the last submission plus the longest run time everything must be over."""
_AGAIN_S = 0.5
_FINAL = ("Completed", "Failed", "Terminated", "Aborted")

Step = Callable[[int, int, int], None]
"""Told (submitted, running, final) jobs whenever one of them changes."""


async def create_queues(api: ApiServer, scale: Scale) -> None:
    """Create the queues and return once each of them is open.

    Raises:
        ApiError: one was refused.
        TimeoutError: one does not open.
    """
    for name, gpus in scale.queues.items():
        await api.create(QUEUES, queue_object(name, gpus))

    async def missing() -> str:
        found = {item["metadata"]["name"]: (item.get("status") or {}).get("state") for item in await api.list(QUEUES)}
        late = [name for name in scale.queues if found.get(name) != "Open"]
        return f"{', '.join(late)} not open" if late else ""

    await wait_until(missing, "queues", 20)


class Drive:
    """One run of a workload."""

    def __init__(self, api: ApiServer, workload: Workload, step: Step, *, insist: bool = False) -> None:
        """No I/O happens here.

        Args:
            api: the host.
            workload: what to submit.
            step: told about progress.
            insist: submit again what the host could not take for the moment, as users do.
        """
        self._insist = insist
        self._api, self._workload, self._step = api, workload, step
        self._jobs = Reflector(api, JOBS, decode_full, namespace=NAMESPACE)
        self._jobs.on_change(self._changed)
        self._submitted = 0
        self._phases: dict[str, str] = {}
        self._over = asyncio.Event()
        #: job -> why the host did not take it
        self.refused: dict[str, str] = {}
        #: how often a job was submitted again
        self.repeated = 0

    async def run(self) -> list[str]:
        """Submit everything at its time.

        Returns:
            The jobs that are not final although their time is over.
        """
        watch = asyncio.create_task(self._jobs.run())
        try:
            await self._jobs.synced.wait()
            start = asyncio.get_running_loop().time()
            async with asyncio.TaskGroup() as group:
                for job in self._workload.submissions:
                    group.create_task(self._submit(job, start))
            self._look()
            try:
                async with asyncio.timeout(PATIENCE_S + max(job.run_time for job in self._workload.submissions)):
                    await self._over.wait()
            except TimeoutError:
                return [job.name for job in self._workload.submissions if self._phases.get(job.name) not in _FINAL]
            return []
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _submit(self, job: Submission, start: float) -> None:
        await asyncio.sleep(start + job.offset - asyncio.get_running_loop().time())
        try:
            await self._create(job)
        except ApiError as error:
            self.refused[job.name] = str(error)
        self._submitted += 1
        self._look()

    async def _create(self, job: Submission) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + PATIENCE_S
        while True:
            try:
                await self._api.create(JOBS, job_object(job))
            except AlreadyExists:
                if not self._insist:
                    raise
            except (Busy, Unreachable):
                if not self._insist or clock() > end:
                    raise
                self.repeated += 1
                await asyncio.sleep(_AGAIN_S)
                continue
            return

    def _changed(self, old: Full | None, new: Full | None) -> None:
        if new is not None:
            self._phases[new.metadata.name] = ((new.body.get("status") or {}).get("state") or {}).get("phase") or ""
            self._look()

    def _look(self) -> None:
        phases = list(self._phases.values())
        final = sum(phase in _FINAL for phase in phases)
        self._step(self._submitted, phases.count("Running"), final)
        if self._submitted == len(self._workload.submissions) and final + len(self.refused) >= self._submitted:
            self._over.set()
