"""One leader at a time, by a Lease, with the work stopped *before* the lease can expire.

Durations are measured on the loop's monotonic clock; a candidate judges another's lease by when it last saw it
change, never by the dates in it. Any error is a failed renewal; each request has a deadline of its own; the lease is
released on the way out, but only after the work has ended. Work that does not end when it is cancelled takes the
process with it: nothing else is certain to stop it before another leads.

A leader can't be stopped from outside while it does not run (SIGSTOP, a loop that is blocked, a machine asleep). When
it runs again it may act before its elector does: `certain` is what a writer asks right before a write. A write that is
under way at that moment is dropped by its server once the renew deadline has passed; one that the network holds back
for longer is the business of whoever is written to: decisions test the epoch that they were made on.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import structlog

from atoll.kube import errors
from atoll.kube.settings import Election
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import LEASES
from atoll.model.release import VERSION
from atoll.model.timestamps import rfc3339_micro

log = structlog.get_logger(__name__)


_MARGIN = 0.01
_LAST_WORDS = 1.0
"""Seconds in which work that was cancelled too late must end, before the process is."""


def elector(
    api: ApiServer,
    name: str,
    identity: str,
    settings: Election,
    *,
    annotations: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _: {},
) -> Elector:
    """The elector of a process; its arguments are `Elector`'s.

    From then on `api` writes only while it is certain that no other leads, and its server drops a write that it could
    carry out only later; only leases are written at any time.
    """
    made = Elector(api, name, identity, settings, annotations=annotations)
    api.writes.guard, api.writes.lasts = lambda: made.certain, lambda: made.left
    return made


class _Taken(Exception):
    """Another holds the lease."""


def _die() -> None:
    # Not SystemExit: that would wait for the very task that does not end.
    os._exit(1)


class Elector:
    """Runs work while this process holds the lease."""

    def __init__(
        self,
        api: ApiServer,
        name: str,
        identity: str,
        settings: Election = Election(),
        *,
        namespace: str = keys.SYSTEM_NAMESPACE,
        overdue: Callable[[], None] = _die,
        annotations: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """No I/O happens here.

        Args:
            api: where the lease lives.
            name: of the Lease, `atoll-<process>`.
            identity: unique per process instance.
            settings: its times.
            namespace: of the Lease.
            overdue: called when the lease can have expired and the work still runs; ends the process.
            annotations: called with the Lease's annotations before each claim; returns further ones.
        """
        self._api, self._name, self._identity, self._namespace = api, name, identity, namespace
        self._lease_seconds, self._retry_period = settings.lease, settings.retry_period
        self._renew_deadline = settings.renew_deadline
        #: of one attempt. A slow server may take longer than the pause between attempts; one that hangs leaves time
        #: for a second attempt, on another connection.
        self._patience = max(settings.retry_period, settings.renew_deadline / 3)
        self._overdue, self._annotations = overdue, annotations
        #: when the last attempt began that is known to have got or renewed the lease, on the loop's clock; minus
        #: infinity once another is known to have it
        self._renewed = -math.inf
        #: renewTime of the claim that was last sent, and when its attempt began
        self._sent = ("", -math.inf)
        #: spec of the lease as it was last seen, None once it is gone; and when that changed, on the loop's clock
        self._seen: dict[str, Any] | None = None
        self._seen_at = -math.inf
        #: how long the lease binds others from then on
        self._lasts = settings.lease
        #: the lease as our last write left it, None where that is not known
        self._written: dict[str, Any] | None = None
        #: set while the work runs
        self.leading = asyncio.Event()
        #: when an attempt was last answered, whoever has the lease; on the loop's clock
        self._answered_at = -math.inf

    @property
    def can_lead(self) -> bool:
        """Whether this candidate could take the lease over: its last answered attempt is younger than a lease."""
        return asyncio.get_running_loop().time() - self._answered_at < self._lease_seconds

    @property
    def certain(self) -> bool:
        """Whether no other can lead now: the work runs and the lease was renewed within the renew deadline."""
        return self.leading.is_set() and self.left > 0

    async def tries(self) -> bool:
        """One attempt for the lease; whether it is held."""
        await self._attempt(self._patience)
        return self.left > 0

    async def run(self, work: Callable[[], Awaitable[None]], *, early: bool = False, once: bool = False) -> None:
        """Become the leader, do the work while it lasts, start over; ends when the work ends by itself or on
        cancellation.

        Args:
            work: to do; it may end the process by failing.
            early: the work begins before the lease is held, and waits for `leading` before it decides or writes.
            once: end also when the lease is lost.
        """
        while True:
            task = asyncio.ensure_future(work()) if early else None
            if task is not None or self.left <= 0:
                await self._win(task)
            if task is None:
                task = asyncio.ensure_future(work())
            try:
                if self.left > 0 and not task.done():
                    log.info("leading", lease=self._name, identity=self._identity)
                    self.leading.set()
                    await self._keep(task)
                if task.done():
                    return task.result()
                log.error("lost the lease, stopping work", lease=self._name)
            finally:
                await self._step_down(task)
            if once:
                return

    async def _win(self, early: asyncio.Future[None] | None) -> None:
        """Return with the lease, or once the work that began early has ended."""
        waiting = early or asyncio.get_running_loop().create_future()
        try:
            while True:
                await self._attempt(self._patience)
                if self.left > 0 or waiting.done():
                    return
                pause = self._retry_period * random.uniform(0.8, 1.2)
                # Another's lease that expires during the pause is tried for right then.
                expires = self._seen_at + self._lasts - asyncio.get_running_loop().time()
                await asyncio.wait({waiting}, timeout=expires + _MARGIN if 0 < expires < pause else pause)
        except asyncio.CancelledError:
            waiting.cancel()
            await asyncio.wait({waiting})
            raise

    async def _keep(self, task: asyncio.Future[None]) -> None:
        """Renew until the work ends, another has the lease, or the renew deadline has passed."""
        while not task.done() and (left := self.left) > 0:
            await asyncio.wait({task}, timeout=min(self._retry_period * random.uniform(0.8, 1.0), left))
            # A pause may have taken longer than it was to: an attempt then could only prolong a lease that must end.
            left = self.left
            if not task.done() and left > 0:
                await self._attempt(min(self._patience, left))

    @property
    def left(self) -> float:
        """Seconds until the renew deadline."""
        return self._renewed + self._renew_deadline - asyncio.get_running_loop().time()

    async def _step_down(self, task: asyncio.Future[None]) -> None:
        """Stop the work, then give the lease back; raises what the work raised."""
        loop = asyncio.get_running_loop()
        self.leading.clear()
        task.cancel()
        cancelled: asyncio.CancelledError | None = None
        # After a stop of the whole process the lease has expired already: then no write begins any more, and the work
        # deserves the chance to end.
        end = max(self._renewed + self._lease_seconds, loop.time() + _LAST_WORDS)
        while not task.done():
            left = end - loop.time()
            if left <= 0:
                log.critical("the work goes on although the lease may have expired", lease=self._name)
                return self._overdue()
            try:
                await asyncio.wait({task}, timeout=left)
            except asyncio.CancelledError as error:
                # Meant for us: the work has been asked to end, and must not be disturbed in that.
                cancelled = error
        self._renewed = -math.inf
        await self._release()
        if not task.cancelled() and (failure := task.exception()) is not None:
            raise failure
        if cancelled is not None:
            raise cancelled

    async def _attempt(self, patience: float) -> None:
        """Get or renew the lease; `left` tells afterwards whether it is ours."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(patience):
                await self._acquire()
            self._answered_at = loop.time()
        except _Taken:
            self._answered_at = loop.time()
            self._renewed = -math.inf
        except Exception as error:
            # Of whatever kind: a renewal without an answer counts as none.
            log.warning("lease attempt failed", lease=self._name, error=str(error) or type(error).__name__)

    async def _acquire(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        # Forgotten meanwhile: a write whose answer is lost may have been carried out.
        written, self._written = self._written, None
        if written is not None and self.left > 0:
            # A known Lease is not read again: had another written since, this would be refused.
            with suppress(errors.Conflict, errors.NotFound):
                return await self._write(written, began)
        lease: dict[str, Any] | None = None
        with suppress(errors.NotFound):
            lease = await self._api.get(LEASES, self._name, self._namespace)
        spec = None if lease is None else lease.get("spec") or {}
        if spec != self._seen:
            self._see(spec)
        # A lease that was deleted binds as if another held it: another process may still lead without knowing.
        free = self.left > 0 if spec is None else spec.get("holderIdentity") in (None, "", self._identity)
        if not free and loop.time() - self._seen_at < self._lasts:
            raise _Taken
        if spec and spec.get("holderIdentity") == self._identity and spec.get("renewTime") == self._sent[0]:
            # The answer to our last write was lost, the write was not. Without this a candidate that never gets an
            # answer would keep the lease alive and never lead.
            self._renewed = max(self._renewed, self._sent[1])
        await self._write(lease, began)

    async def _write(self, lease: dict[str, Any] | None, began: float) -> None:
        """Claim the lease as it was last seen, by an attempt that began then."""
        claim = self._claim((lease or {}).get("spec") or {})
        self._sent = (claim["renewTime"], began)
        present = {} if lease is None else lease["metadata"].get("annotations") or {}
        annotations = {**present, keys.RELEASE: VERSION, **self._annotations(present)}
        if lease is None:
            metadata = {"name": self._name, "namespace": self._namespace, "annotations": annotations}
            lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
            written = await self._api.create(LEASES, {**lease, "spec": claim})
        else:
            # The resourceVersion in it makes this a compare-and-swap.
            metadata = {**lease["metadata"], "annotations": annotations}
            written = await self._api.replace(LEASES, {**lease, "metadata": metadata, "spec": claim})
        self._see(written["spec"])
        self._written, self._renewed = written, began

    def _see(self, spec: dict[str, Any] | None) -> None:
        self._seen, self._seen_at = spec, asyncio.get_running_loop().time()
        if spec is not None:
            self._lasts = float(spec.get("leaseDurationSeconds") or self._lease_seconds)

    def _claim(self, previous: dict[str, Any]) -> dict[str, Any]:
        now = rfc3339_micro(time.time())
        mine = previous.get("holderIdentity") == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, math.ceil(self._lease_seconds)),
            "renewTime": now,
            "acquireTime": previous.get("acquireTime", now) if mine else now,
            "leaseTransitions": int(previous.get("leaseTransitions") or 0) + (0 if mine else 1),
        }

    async def _release(self) -> None:
        """Let others take over at once; where that fails they wait until the lease has expired."""
        with suppress(Exception):
            async with asyncio.timeout(self._patience):
                # Read anew: a renewal that was cancelled on its way may have been carried out.
                lease = await self._api.get(LEASES, self._name, self._namespace)
                spec = lease.get("spec") or {}
                if spec.get("holderIdentity") == self._identity:
                    released = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
                    self._see((await self._api.replace(LEASES, {**lease, "spec": released}))["spec"])
