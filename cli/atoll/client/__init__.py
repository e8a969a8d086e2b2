"""Atoll for Python programs: submit, wait, logs, explain, cancel. The kubeconfig is the login.

    from atoll.client import Client, Job

    with Client(namespace="research") as atoll:
        job = atoll.submit(Job(command=["python", "train.py"], image="train:7", gpus=8, workers=4))
        state = atoll.wait(job, timeout=3600)

`AsyncClient` has the same methods to await. A job is one object on the host: any later process may `find` it again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import Any, TypeVar

from atoll.cli import explain as explaining
from atoll.cli import what_if as asking
from atoll.cli.lookup import binding_of, find
from atoll.cli.options import default_namespace
from atoll.cli.submission import BadSubmission, manifest
from atoll.cli.submission import Submission as Job
from atoll.kinds import BY_RESOURCE
from atoll.kube import errors
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import JOB_ARRAYS, JOBS, VERDICTS, ApiResource
from atoll.model.objects import Full, decode_full
from atoll.view import explanation, verdicts

__all__ = ["AsyncClient", "BadSubmission", "Client", "Job", "JobExecutor", "State", "Submitted", "Vanished"]

Json = dict[str, Any]
T = TypeVar("T")
Template = Job | Callable[..., Job]
"""A job to whose command arguments are added, or a function that makes one of them."""
_NOT_OPEN = "the client is not open: use it in a with statement"


class State(StrEnum):
    """Where a job is."""

    PENDING = "Pending"
    """Not over; `explain` says the rest."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def final(self) -> bool:
        """Whether it stays so."""
        return self is not State.PENDING


class Vanished(RuntimeError):
    """The job was deleted before it ended."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job on the host."""

    resource: ApiResource
    namespace: str
    name: str
    uid: str

    @property
    def ref(self) -> str:
        """As the command line names it: `vcjob/train`."""
        return f"{self.resource.plural}.{self.resource.group}/{self.name}"


class AsyncClient:
    """One connection to the host; `async with` opens and closes it."""

    def __init__(
        self, *, namespace: str | None = None, kubeconfig: str | None = None, context: str | None = None
    ) -> None:
        """No I/O happens here.

        Args:
            namespace: of the jobs; None for the kubeconfig's.
            kubeconfig: None for $KUBECONFIG, or the pod's own account.
            context: in the kubeconfig; None for the current one.
        """
        self._kubeconfig, self._context = kubeconfig, context
        self._namespace = namespace
        self._host: ApiServer | None = None

    async def __aenter__(self) -> AsyncClient:
        self._host = await ApiServer.from_kubeconfig(self._kubeconfig, self._context, user_agent="atoll-client")
        await self._host.__aenter__()
        if self._namespace is None:
            self._namespace = default_namespace(self._kubeconfig, self._context)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connected.__aexit__(kind, error, trace)

    @property
    def _connected(self) -> ApiServer:
        if self._host is None:
            raise RuntimeError(_NOT_OPEN)
        return self._host

    @property
    def namespace(self) -> str:
        """Where jobs are submitted."""
        return self._namespace or "default"

    def manifest(self, job: Job) -> Json:
        """The object that `submit` creates.

        Raises:
            BadSubmission: it can't be made.
        """
        return manifest(replace(job, namespace=self.namespace))

    async def submit(self, job: Job, *, dry_run: bool = False) -> Submitted:
        """Create the job; with `dry_run` the host only checks it.

        Raises:
            BadSubmission: it can't be made.
            ApiError: the host refused.
        """
        made = self.manifest(job)
        resource = JOB_ARRAYS if made["kind"] == JOB_ARRAYS.kind else JOBS
        answer = await self._connected.create(resource, made, field_manager="atoll-client", dry_run=dry_run)
        return _submitted(resource, answer)

    async def find(self, name: str) -> Submitted:
        """A job by its name, or kind and name as `atollctl` takes them.

        Raises:
            NotFound: there is none.
        """
        return _submitted(*await find(self._connected, name, self.namespace))

    async def state(self, job: Submitted) -> State:
        """Where it is now.

        Raises:
            Vanished: it is not there any more.
        """
        try:
            found = await self._connected.get(job.resource, job.name, job.namespace)
        except errors.NotFound:
            found = None
        return _state(job, found)

    async def wait(self, job: Submitted, *, timeout: float | None = None) -> State:
        """Its end, over lost connections and restarts of the host.

        Raises:
            Vanished: it was deleted.
            TimeoutError: it has not ended in time; it goes on.
        """
        watch: Reflector[Full] = Reflector(
            self._connected, job.resource, decode_full, namespace=job.namespace,
            field_selector=f"metadata.name={job.name}",
        )  # fmt: skip
        changed = asyncio.Event()
        watch.on_change(lambda old, new: changed.set())
        watching = asyncio.create_task(watch.run())
        try:
            async with asyncio.timeout(timeout):
                await watch.synced.wait()
                while True:
                    changed.clear()
                    found = watch.get(f"{job.namespace}/{job.name}")
                    state = _state(job, found.body if found is not None else None)
                    if state.final:
                        return state
                    await changed.wait()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def logs(self, job: Submitted, *, follow: bool = False, tail: int = 100) -> AsyncIterator[str]:
        """Output of its pods, in all members, as it comes; of several pods with their names before each line.

        Raises:
            ApiError: the host refused, or a member does not answer.
        """
        host = self._connected
        found = await host.get(job.resource, job.name, job.namespace)
        kind = {"apiVersion": job.resource.api_version, "kind": job.resource.kind}
        binding = await binding_of(host, job.resource, {**kind, **found})
        if binding is None:
            return
        meta, query = binding["metadata"], {"tail": str(tail), **({"follow": "true"} if follow else {})}
        path = VERDICTS.path(meta["namespace"], meta["name"], "log")
        async for chunk in host.stream(VERDICTS, path, query):
            yield chunk.decode(errors="replace")

    async def explain(self, job: Submitted) -> str:
        """What `atollctl explain` prints."""
        facts = await explaining.gather(self._connected, job.ref, job.namespace)
        return explanation.text(explanation.explain(facts, time.time()))

    async def what_if(self, job: Job) -> str:
        """What `atollctl what-if` prints of a job that is not submitted: where it would start, or what would let it.

        Raises:
            BadSubmission: it can't be made.
            ApiError: the host refused it, or the question.
        """
        made = self.manifest(job)
        answer = await asking.ask(self._connected, made, self.namespace)
        name = f"{made['kind']} {self.namespace}/{made['metadata'].get('name') or made['metadata'].get('generateName')}"
        return verdicts.answer(name, answer["status"], time.time())

    async def cancel(self, job: Submitted) -> None:
        """Delete it, unless another one has its name by now."""
        try:
            await self._connected.delete(job.resource, job.name, job.namespace, uid=job.uid)
        except errors.Conflict:
            return

    async def map(self, job: Template, arguments: Iterable[Any], *, at_once: int = 20) -> AsyncIterator[State]:
        """Run a job for each argument and yield their ends in the order of the arguments.

        Whoever stops iterating leaves submitted jobs alone; no others are submitted.

        Args:
            job: gets the argument as the last word of its command; or a function that makes the job of an argument.
            arguments: one for each job.
            at_once: jobs on the host that have not ended, at most.

        Raises:
            ApiError: the host refused a job.
            Vanished: a job was deleted.
        """
        places = asyncio.Semaphore(at_once)

        async def end(each: Job) -> State:
            async with places:
                return await self.wait(await self.submit(each))

        running = [asyncio.create_task(end(each)) for each in [_made(job, argument) for argument in arguments]]
        try:
            for task in running:
                yield await task
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


class Client:
    """The same, blocking: an `AsyncClient` whose loop runs in a thread."""

    def __init__(
        self, *, namespace: str | None = None, kubeconfig: str | None = None, context: str | None = None
    ) -> None:
        """See `AsyncClient`."""
        self._client = AsyncClient(namespace=namespace, kubeconfig=kubeconfig, context=context)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        #: held while work is given to the loop: none may come after the last
        self._giving = threading.Lock()

    def __enter__(self) -> Client:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="atoll-client", daemon=True)
        self._thread.start()
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(self._client.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def _stop(self) -> None:
        with self._giving:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            # Threads that still wait for a job would wait for ever.
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._giving:
            if self._loop is None:
                work.close()
                raise RuntimeError(_NOT_OPEN)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C ends the wait and never the job.
            future.cancel()
            raise

    def manifest(self, job: Job) -> Json:
        """See `AsyncClient.manifest`."""
        return self._client.manifest(job)

    def submit(self, job: Job, *, dry_run: bool = False) -> Submitted:
        """See `AsyncClient.submit`."""
        return self._run(self._client.submit(job, dry_run=dry_run))

    def find(self, name: str) -> Submitted:
        """See `AsyncClient.find`."""
        return self._run(self._client.find(name))

    def state(self, job: Submitted) -> State:
        """See `AsyncClient.state`."""
        return self._run(self._client.state(job))

    def wait(self, job: Submitted, *, timeout: float | None = None) -> State:
        """See `AsyncClient.wait`."""
        return self._run(self._client.wait(job, timeout=timeout))

    def logs(self, job: Submitted, *, follow: bool = False, tail: int = 100) -> Iterator[str]:
        """See `AsyncClient.logs`."""
        chunks = self._client.logs(job, follow=follow, tail=tail)
        try:
            while (chunk := self._run(_next(chunks))) is not None:
                yield chunk
        finally:
            self._run(_closed(chunks))

    def explain(self, job: Submitted) -> str:
        """See `AsyncClient.explain`."""
        return self._run(self._client.explain(job))

    def what_if(self, job: Job) -> str:
        """See `AsyncClient.what_if`."""
        return self._run(self._client.what_if(job))

    def cancel(self, job: Submitted) -> None:
        """See `AsyncClient.cancel`."""
        self._run(self._client.cancel(job))

    def map(self, job: Template, arguments: Iterable[Any], *, at_once: int = 20) -> Iterator[State]:
        """See `AsyncClient.map`."""
        ends = self._client.map(job, arguments, at_once=at_once)
        try:
            while (state := self._run(_next(ends))) is not None:
                yield state
        finally:
            self._run(_closed(ends))


class JobExecutor(ThreadPoolExecutor):
    """Runs jobs on the host, for programs that know `concurrent.futures`; a result is the `State` in which one ended.

    A future that is cancelled before its turn submits nothing. No function runs on the host: a function makes a job.
    """

    def __init__(self, client: Client, *, at_once: int = 20) -> None:
        """No I/O happens here.

        Args:
            client: is open as long as jobs run.
            at_once: jobs on the host that have not ended, at most.
        """
        super().__init__(at_once, thread_name_prefix="atoll-job")
        self._client = client

    def submit(  # type: ignore[override]
        self, job: Template, /, *arguments: Any, **named: Any
    ) -> Future[State]:
        """Run one job.

        Args:
            job: a `Job`, to whose command the arguments are added; or a function that makes one of the arguments.
            arguments: words of the command, or of the function.
            named: of the function.
        """
        return super().submit(self._end, job, arguments, named)

    def _end(self, job: Template, arguments: tuple[Any, ...], named: dict[str, Any]) -> State:
        return self._client.wait(self._client.submit(_made(job, *arguments, **named)))


def _made(job: Template, *arguments: Any, **named: Any) -> Job:
    if isinstance(job, Job):
        return replace(job, command=[*job.command, *map(str, arguments)])
    return job(*arguments, **named)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _next(chunks: AsyncIterator[T]) -> T | None:
    return await anext(chunks, None)


async def _closed(chunks: Any) -> None:
    await chunks.aclose()


def _submitted(resource: ApiResource, found: Json) -> Submitted:
    meta = found["metadata"]
    return Submitted(resource, meta["namespace"], meta["name"], meta["uid"])


def _state(job: Submitted, found: Json | None) -> State:
    if found is None or found["metadata"]["uid"] != job.uid:
        raise Vanished(f"{job.ref} of namespace {job.namespace} was deleted before it ended")
    outcome = BY_RESOURCE[job.resource].finished(found.get("status") or {})
    return State(str(outcome)) if outcome is not None else State.PENDING
