"""The client to await."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from types import TracebackType
from typing import Any

from atoll.cli import explain as explaining
from atoll.cli import submitted_warnings
from atoll.cli import what_if as asking
from atoll.cli.array_retry import again
from atoll.cli.available import gather as asked_available
from atoll.cli.lookup import binding_of, find
from atoll.cli.options import default_namespace
from atoll.cli.submission import BadSubmission, manifest
from atoll.cli.submission import Submission as Job
from atoll.client import usage as used
from atoll.client.display import Explanation
from atoll.client.submitted import State, Submitted, state_of, submitted
from atoll.kinds.job_array import states_in
from atoll.kube import errors
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import array_states
from atoll.model.apiresource import JOB_ARRAYS, JOBS, VERDICTS
from atoll.model.objects import Full, decode_full
from atoll.view import available, explanation, verdicts

Json = dict[str, Any]
Template = Job | Callable[..., Job]
"""A job to whose command arguments are added, or a function that makes one of them."""
NOT_OPEN = "the client is not open: use it in a with statement"
_ENDS = {array_states.SUCCEEDED: State.SUCCEEDED, array_states.FAILED: State.FAILED}


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
        self._host = await ApiServer.from_kubeconfig(
            self._kubeconfig, self._context, user_agent="atoll-client", on_warning=warnings.warn
        )
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
            raise RuntimeError(NOT_OPEN)
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
        """Create the job; with `dry_run` the host only checks it. Warns of what keeps it from running as things are.

        Raises:
            BadSubmission: it can't be made.
            ApiError: the host refused.
        """
        made = self.manifest(job)
        resource = JOB_ARRAYS if made["kind"] == JOB_ARRAYS.kind else JOBS
        answer = await self._connected.create(resource, made, field_manager="atoll-client", dry_run=dry_run)
        for text in await submitted_warnings.warnings(
            self._connected, resource, answer, within=job.within, dry_run=dry_run
        ):
            warnings.warn(text, stacklevel=2)
        return submitted(resource, answer)

    async def find(self, name: str) -> Submitted:
        """A job by its name, or kind and name as `atollctl` takes them.

        Raises:
            NotFound: there is none.
        """
        return submitted(*await find(self._connected, name, self.namespace))

    async def state(self, job: Submitted) -> State:
        """Where it is now.

        Raises:
            Vanished: it is not there any more.
        """
        try:
            found = await self._connected.get(job.resource, job.name, job.namespace)
        except errors.NotFound:
            found = None
        return state_of(job, found)

    async def wait(self, job: Submitted, *, timeout: float | None = None) -> State:
        """Its end, over lost connections and restarts of the host.

        Raises:
            Vanished: it was deleted.
            TimeoutError: it has not ended in time; it goes on.
        """
        async with asyncio.timeout(timeout), aclosing(self._looks(job)) as looks:
            async for _, state in looks:
                if state.final:
                    return state
        raise AssertionError("a watch has no end")

    async def _looks(self, job: Submitted) -> AsyncGenerator[tuple[Json, State]]:
        """The object and its state, now and after each change."""
        watch: Reflector[Full] = Reflector(
            self._connected, job.resource, decode_full, namespace=job.namespace,
            field_selector=f"metadata.name={job.name}",
        )  # fmt: skip
        changed = asyncio.Event()
        watch.on_change(lambda old, new: changed.set())
        watching = asyncio.create_task(watch.run())
        try:
            await watch.synced.wait()
            while True:
                changed.clear()
                found = watch.get(f"{job.namespace}/{job.name}")
                body = found.body if found is not None else None
                state = state_of(job, body)
                yield body or {}, state
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

    async def explain(self, job: Submitted) -> Explanation:
        """What `atollctl explain` prints; a notebook shows it as a table, with a bar of the indices of an array."""
        facts = await explaining.gather(self._connected, job.ref, job.namespace)
        return Explanation.of(explanation.explain(facts, time.time()))

    async def retry(self, job: Submitted, indices: str = "") -> Submitted:
        """Run failed indices of a JobArray again, in a new array.

        Args:
            job: the array.
            indices: such as `3,17-20`; empty for all that failed.

        Raises:
            BadSubmission: it is no array, or one of the indices did not fail.
            NotFound: it is not there any more.
        """
        if job.resource != JOB_ARRAYS:
            raise BadSubmission(f"{job.ref} has no indices: a JobArray has")
        found = await self._connected.get(JOB_ARRAYS, job.name, job.namespace)
        made = again(found, indices)
        return submitted(JOB_ARRAYS, await self._connected.create(JOB_ARRAYS, made, field_manager="atoll-client"))

    async def usage(
        self, *, by: str = "queue", since: str = "30d", store: str | None = None, queue: str = ""
    ) -> used.Usage:
        """What runs held: `atollctl usage`.

        Args:
            by: queue, namespace, user, member or class.
            since: how long ago the time begins: `90m`, `36h`, `7d`.
            store: folder or URL of records; None for the last runs of workloads that exist.
            queue: only runs of this queue and the ones below it, in all namespaces: of a store, or of a queue that the
                user administers; else, with a warning, in the client's namespace. Empty for all of that namespace.

        Raises:
            ValueError: no such `by` or `since`.
            CommandError: there is no such queue, no dispatcher answers, or the store can't be read.
            ApiError: the host refuses.
        """
        return await used.gather(self._connected, self.namespace, by, since, store, queue)

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

    async def available(self, queue: str = "") -> list[Json]:
        """What the namespace may use now: the columns of `atollctl available`, for each resource of each member.

        Args:
            queue: only its members and amounts; empty for all queues.

        Raises:
            CommandError: no dispatcher answers, or the queue takes nothing of the namespace.
        """
        items = await asked_available(self._connected, self.namespace, queue)
        return [dict(zip(available.KEYS, row, strict=True)) for row in available.rows(items)]

    async def cancel(self, job: Submitted) -> None:
        """Delete it, unless another one has its name by now."""
        try:
            await self._connected.delete(job.resource, job.name, job.namespace, uid=job.uid)
        except errors.Conflict:
            return

    async def map(self, job: Template, arguments: Iterable[Any], *, at_once: int = 20) -> AsyncIterator[State]:
        """Run a job for each argument and yield their ends in the order of the arguments.

        A `Job` becomes one JobArray with an index for each argument, which goes on where its iterator is left: find it
        by the job's name. A function makes an object for each argument; who leaves that iterator leaves submitted jobs
        alone, and no others are submitted.

        Args:
            job: gets the argument as the last word of its command; or a function that makes the job of an argument.
            arguments: one for each job; of an array at most 128 kB in all.
            at_once: jobs that have not ended, at most.

        Raises:
            BadSubmission: no array can be made of it.
            ApiError: the host refused a job.
            Vanished: a job was deleted.
        """
        ends = self._map_array(job, arguments, at_once) if isinstance(job, Job) else self._map(job, arguments, at_once)
        async with aclosing(ends):
            async for state in ends:
                yield state

    async def _map_array(self, job: Job, arguments: Iterable[Any], at_once: int) -> AsyncGenerator[State]:
        words = [str(each) for each in arguments]
        if job.array or job.arguments:
            raise BadSubmission("map makes the array: leave out the job's own array and arguments")
        if not words:
            return
        array = f"0-{len(words) - 1}%{at_once}"
        made = await self.submit(replace(job, array=array, arguments=words))
        yielded = 0
        async with aclosing(self._looks(made)) as looks:
            async for body, state in looks:
                states = array_states.states_of(states_in(body, body.get("status") or {}))
                while yielded < len(words) and (state.final or states[yielded] in _ENDS):
                    # An array may end whole, with indices that never ran.
                    yield _ENDS.get(states[yielded], state)
                    yielded += 1
                if yielded == len(words):
                    return

    async def _map(self, job: Callable[..., Job], arguments: Iterable[Any], at_once: int) -> AsyncGenerator[State]:
        places = asyncio.Semaphore(at_once)

        async def end(each: Job) -> State:
            async with places:
                return await self.wait(await self.submit(each))

        running = [asyncio.create_task(end(each)) for each in [job(argument) for argument in arguments]]
        try:
            for task in running:
                yield await task
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


def made_of(job: Template, *arguments: Any, **named: Any) -> Job:
    """The job of these arguments."""
    if isinstance(job, Job):
        return replace(job, command=[*job.command, *map(str, arguments)])
    return job(*arguments, **named)
