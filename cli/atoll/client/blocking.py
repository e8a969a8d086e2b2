"""The blocking client, and an executor for programs that know `concurrent.futures`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from atoll.cli.submission import Submission as Job
from atoll.client.asynchronous import NOT_OPEN, AsyncClient, Template, made_of
from atoll.client.display import Explanation
from atoll.client.submitted import State, Submitted
from atoll.client.usage import Usage

Json = dict[str, Any]
T = TypeVar("T")


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
                raise RuntimeError(NOT_OPEN)
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

    def explain(self, job: Submitted) -> Explanation:
        """See `AsyncClient.explain`."""
        return self._run(self._client.explain(job))

    def retry(self, job: Submitted, indices: str = "") -> Submitted:
        """See `AsyncClient.retry`."""
        return self._run(self._client.retry(job, indices))

    def usage(self, *, by: str = "queue", since: str = "30d", store: str | None = None, queue: str = "") -> Usage:
        """See `AsyncClient.usage`."""
        return self._run(self._client.usage(by=by, since=since, store=store, queue=queue))

    def what_if(self, job: Job) -> str:
        """See `AsyncClient.what_if`."""
        return self._run(self._client.what_if(job))

    def available(self, queue: str = "") -> list[Json]:
        """See `AsyncClient.available`."""
        return self._run(self._client.available(queue))

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
        return self._client.wait(self._client.submit(made_of(job, *arguments, **named)))


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _next(chunks: AsyncIterator[T]) -> T | None:
    return await anext(chunks, None)


async def _closed(chunks: Any) -> None:
    await chunks.aclose()
