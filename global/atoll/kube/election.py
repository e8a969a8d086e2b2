"""One leader at a time, by a Lease, with the work stopped *before* the lease can expire.

Durations are measured on the loop's monotonic clock; a candidate judges another's lease by when it last saw it
change, never by the dates in it. Any error is a failed renewal; each request has a deadline of its own; the lease is
released on the way out.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import structlog

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import LEASES
from atoll.model.timestamps import rfc3339_micro

log = structlog.get_logger(__name__)


LEASE_SECONDS = 15.0
RENEW_DEADLINE = 10.0
RETRY_PERIOD = 2.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags from which `elector` makes one."""
    for flag, default, meaning in (
        ("--lease-seconds", LEASE_SECONDS, "without a renewal for so long, another replica takes over"),
        ("--renew-deadline", RENEW_DEADLINE, "seconds without a renewal after which the leader stops its work"),
        ("--retry-period", RETRY_PERIOD, "seconds between attempts to get or renew the lease"),
    ):
        parser.add_argument(flag, type=float, default=default, metavar="S", help=f"{meaning} (default: {default:g})")


def elector(api: ApiServer, name: str, identity: str, options: argparse.Namespace) -> Elector:
    """The elector for the flags of `arguments`; ends the process where their times can't keep its promise."""
    try:
        return Elector(
            api,
            name,
            identity,
            lease_seconds=options.lease_seconds,
            renew_deadline=options.renew_deadline,
            retry_period=options.retry_period,
        )
    except ValueError as error:
        given = (
            f"--lease-seconds={options.lease_seconds:g} --renew-deadline={options.renew_deadline:g}"
            f" --retry-period={options.retry_period:g}"
        )
        raise SystemExit(f"{name}: {given}: {error}") from None


class Elector:
    """Runs work while this process holds the lease."""

    def __init__(
        self,
        api: ApiServer,
        name: str,
        identity: str,
        *,
        namespace: str = keys.SYSTEM_NAMESPACE,
        lease_seconds: float = LEASE_SECONDS,
        renew_deadline: float = RENEW_DEADLINE,
        retry_period: float = RETRY_PERIOD,
    ) -> None:
        """No I/O happens here.

        Args:
            api: where the lease lives.
            name: of the Lease, `atoll-<process>`.
            identity: unique per process instance.
            namespace: of the Lease.
            lease_seconds: after so long without a renewal others may take over.
            renew_deadline: after so long without a renewal the work is cancelled; smaller than `lease_seconds`.
            retry_period: pause between attempts, jittered.

        Raises:
            ValueError: with these times two could lead at once, or a leader would get one attempt only.
        """
        if not (0 < retry_period < renew_deadline and renew_deadline + 2 * retry_period < lease_seconds):
            # A pause and an attempt may both pass after the deadline before the work is cancelled.
            raise ValueError(
                "0 < retry_period < renew_deadline and renew_deadline + 2 * retry_period < lease_seconds must hold"
            )
        self._api, self._name, self._identity, self._namespace = api, name, identity, namespace
        self._lease_seconds, self._renew_deadline, self._retry_period = lease_seconds, renew_deadline, retry_period
        #: the last lease seen and when it last changed, on the loop's clock
        self._seen: dict[str, Any] | None = None
        self._seen_at = 0.0
        #: set while the work runs
        self.leading = asyncio.Event()

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Become the leader, do the work while it lasts, start over; ends when the work ends by itself or on
        cancellation.
        """
        loop = asyncio.get_running_loop()
        while True:
            renewed = await self._win()
            log.info("leading", lease=self._name, identity=self._identity)
            task = asyncio.ensure_future(work())
            self.leading.set()
            try:
                while not task.done() and loop.time() - renewed < self._renew_deadline:
                    await asyncio.wait({task}, timeout=self._retry_period * random.uniform(0.8, 1.0))
                    started = loop.time()
                    if not task.done() and await self._attempt():
                        renewed = started
                if task.done():
                    return task.result()
                log.error("lost the lease, stopping work", lease=self._name)
            finally:
                self.leading.clear()
                try:
                    if not task.done():
                        task.cancel()
                        with suppress(asyncio.CancelledError):
                            await task
                finally:
                    await self._release()

    async def _win(self) -> float:
        """Try until it succeeds; gives the time at which the successful attempt began."""
        while True:
            started = asyncio.get_running_loop().time()
            if await self._attempt():
                return started
            await asyncio.sleep(self._retry_period * random.uniform(0.8, 1.2))

    async def _attempt(self) -> bool:
        try:
            async with asyncio.timeout(self._retry_period):
                return await self._acquire()
        except (errors.ApiError, TimeoutError) as error:
            log.warning("lease attempt failed", lease=self._name, error=str(error) or "timed out")
            return False

    async def _acquire(self) -> bool:
        loop = asyncio.get_running_loop()
        try:
            lease = await self._api.get(LEASES, self._name, self._namespace)
        except errors.NotFound:
            metadata = {"name": self._name, "namespace": self._namespace}
            lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": {}}
            self._seen = await self._api.create(LEASES, {**lease, "spec": self._claim({})})
            self._seen_at = loop.time()
            return True
        spec = lease.get("spec") or {}
        if self._seen is None or self._seen.get("spec") != spec:
            self._seen, self._seen_at = lease, loop.time()
        holder = spec.get("holderIdentity") or ""
        lasts = float(spec.get("leaseDurationSeconds") or self._lease_seconds)
        if holder not in ("", self._identity) and loop.time() - self._seen_at < lasts:
            return False
        # The resourceVersion in it makes this a compare-and-swap.
        self._seen = await self._api.replace(LEASES, {**lease, "spec": self._claim(spec)})
        self._seen_at = loop.time()
        return True

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
        with suppress(errors.ApiError, TimeoutError):
            async with asyncio.timeout(self._retry_period):
                # Read anew: a renewal that was cancelled on its way may have been carried out.
                lease = await self._api.get(LEASES, self._name, self._namespace)
                spec = lease.get("spec") or {}
                if spec.get("holderIdentity") == self._identity:
                    released = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
                    self._seen = await self._api.replace(LEASES, {**lease, "spec": released})
