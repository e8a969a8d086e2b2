"""Certificates over time: which leaf is served, which CAs the configurations trust, and when the authority goes on.

Every replica runs the same rounds on the same Secret; whoever is first writes the next step, the others find it
written. Three rules keep every call of an API server answerable, in any order in which replicas learn:
a new authority's leaf is served only after the configurations have trusted it for `Times.settle`; a served one
stays trusted; and a CA that signs no more is forgotten only when all that it signed has expired, so no replica needs to
be asked whether it still serves one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import aiohttp
import structlog
from prometheus_client import CollectorRegistry, Gauge

from atoll.kube import authority as authorities
from atoll.kube import certificates, errors
from atoll.kube.authority import SECRET, Authority, BadSecret, Signer, Times
from atoll.kube.certificates import Leaf, renewal
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, ApiResource
from atoll.model.objects import Full, decode_full
from atoll.webhook import registration

_SECRET_KEY: Final = f"{keys.SYSTEM_NAMESPACE}/{SECRET}"
_EXTRA_FOR: Final = 3
"""Times `settle`: how long a CA that this replica does not know stays trusted, as another one may serve it still."""
_PAUSE: Final = (0.02, 3600.0)

log = structlog.get_logger(__name__)


class Keeper:
    """The rounds of one replica."""

    def __init__(
        self,
        api: ApiServer,
        client_config: dict[str, Any],
        *,
        times: Times,
        again: float,
        serve: Callable[[Leaf], Awaitable[None]],
        metrics: CollectorRegistry,
    ) -> None:
        """No I/O happens here.

        Args:
            api: of the host.
            client_config: where API servers find the webhook.
            times: of certificates and overlaps.
            again: seconds until a round that failed is tried again.
            serve: serves this leaf from now on; the first time it returns once reviews are answered.
            metrics: gets `atoll_webhook_certificate_expiry_timestamp_seconds` of the leaf and of the CA that signs.

        Raises:
            ValueError: the client config names no host.
        """
        self._api, self._times, self._serve = api, times, serve
        self._again = again
        self.names = registration.names_of(client_config)
        #: set once API servers that call it trust it, or none calls it yet; this replica answers from then on
        self.registered = asyncio.Event()
        self._secret = Reflector(
            api, SECRETS, decode_full, namespace=keys.SYSTEM_NAMESPACE, field_selector=f"metadata.name={SECRET}"
        )
        self._configurations: dict[ApiResource, Reflector[Full]] = {
            resource: Reflector(api, resource, decode_full, field_selector=f"metadata.name={keys.WEBHOOKS}")
            for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        }
        self._changed = asyncio.Event()
        for cache in (self._secret, *self._configurations.values()):
            cache.on_change(lambda *_: self._changed.set())
        #: both None until the Secret was good once; `_signer` is whose leaf is served, even if the Secret moved on
        self._leaf: Leaf | None = None
        self._signer: Signer | None = None
        #: loop time since when both configurations trust all that is wanted; None if they don't
        self._trusted_since: float | None = None
        #: loop time since when a configuration trusts more than the wanted CAs
        self._extra_since: dict[ApiResource, float] = {}
        self._complained = ""
        self._expiry = Gauge(
            "atoll_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate that is served, and the CA that signs, expire.",
            ("certificate",),
            registry=metrics,
        )

    async def run(self) -> None:
        """Serve, register and rotate until cancelled."""
        caches = (self._secret, *self._configurations.values())
        async with asyncio.TaskGroup() as watches:
            for cache in caches:
                watches.create_task(cache.run())
            for cache in caches:
                await cache.synced.wait()
            while True:
                self._changed.clear()
                try:
                    pause = await self._round(datetime.now(UTC))
                except (errors.ApiError, aiohttp.ClientError, TimeoutError) as error:
                    log.warning("certificates and registration are tried again", error=str(error))
                    pause = self._again
                try:
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                except TimeoutError:
                    continue

    # -- one round ---------------------------------------------------------------------------------------------------

    async def _round(self, now: datetime) -> float:
        """Do due steps and give the seconds until something else may be."""
        authority = self._read(self._present())
        if authority is not None and now >= authority.signer.ends:
            step = authorities.next_step(authority, now, self._times, None)
            assert step is not None
            log.warning("the CA has expired and is replaced", ended=authority.signer.ends.isoformat())
            await self._write(authority, step)
            return self._again
        # Renewed before anything that needs the API server: a leaf must not expire because that is away.
        if self._leaf is None and authority is not None:
            await self._use(authority.signer, now)
        elif self._leaf is not None and self._signer is not None and now >= renewal(self._leaf):
            await self._use(self._signer, now)
        if authority is None or self._leaf is None:
            return _PAUSE[1] if self._leaf is None else _until(renewal(self._leaf), now)
        await self._register(authority)
        trusted_for = self._trusted_for()
        settled = trusted_for is not None and trusted_for >= self._times.settle
        if self._leaf.issuer != authority.signer.certificate and settled:
            await self._use(authority.signer, now)
            # Fewer CAs are trusted for our sake.
            return _PAUSE[0]
        step = authorities.next_step(authority, now, self._times, trusted_for)
        if step is not None:
            await self._write(authority, step)
            return _PAUSE[0]
        return self._pause(authority, now)

    def _read(self, secret: dict[str, Any] | None) -> Authority | None:
        """The authority of a Secret; None, and one line in the log, if there is none that can be used."""
        where = f"Secret {_SECRET_KEY}"
        try:
            if secret is None:
                raise BadSecret("it does not exist; run `atollctl init`, which makes it")
            authority = authorities.from_secret(secret)
        except BadSecret as error:
            self._complain(f"{where}: {error}")
            return None
        return authority

    def _complain(self, problem: str) -> None:
        """One line for each problem that comes after another one."""
        if problem != self._complained:
            consequence = "what was good last is used on" if self.registered.is_set() else "not ready"
            log.error("the webhook can't be registered", problem=problem, consequence=consequence)
        self._complained = problem

    def _present(self) -> dict[str, Any] | None:
        found = self._secret.get(_SECRET_KEY)
        return found.body if found is not None else None

    async def _use(self, signer: Signer, now: datetime) -> None:
        """Serve a new leaf of this CA."""
        leaf = certificates.issue(signer, self.names, now, self._times.leaf)
        await self._serve(leaf)
        again = self._leaf is not None
        changed = self._leaf is None or self._leaf.issuer != leaf.issuer
        self._leaf, self._signer = leaf, signer
        self._expiry.labels("leaf").set(leaf.ends.timestamp())
        self._expiry.labels("ca").set(signer.ends.timestamp())
        if again:
            log.info("certificate renewed", ends=leaf.ends.isoformat(), of_another_ca=changed)

    async def _write(self, before: Authority, after: Authority) -> None:
        """Replace the Secret that was read; another replica may have been faster."""
        found = self._present()
        if found is None or self._read(found) != before:
            return
        try:
            await self._api.replace(SECRETS, authorities.to_secret(after, found["metadata"]))
        except (errors.Conflict, errors.NotFound):
            return
        log.info(
            "authority rotated",
            trusted=len(after.trusted),
            signs_since=after.since.isoformat(),
            step="prepared" if after.following else "promoted" if after.retired else "old one forgotten",
        )

    # -- configurations ----------------------------------------------------------------------------------------------

    async def _register(self, authority: Authority) -> None:
        """See to it that the configurations trust the wanted CAs, and little else."""
        clock = asyncio.get_running_loop().time
        wanted = self._wanted(authority)
        good = True
        for resource, cache in self._configurations.items():
            found = cache.get(keys.WEBHOOKS)
            trusted = authorities.trusted_by(found.body) if found is not None else None
            if found is None or trusted is None:
                # Uninstalled, or not registered yet: a chart does that once the replicas are ready.
                self._complain(
                    f"{resource.kind} {keys.WEBHOOKS} has no webhooks; run `atollctl init`, which writes them"
                )
                self._trusted_since = None
                if found is not None:
                    self._ready()
                return
            if not set(wanted) <= set(trusted):
                good = False
                await self._trust(resource, found.body, trusted)
            elif set(wanted) == set(trusted):
                self._extra_since.pop(resource, None)
            else:
                since = self._extra_since.setdefault(resource, clock())
                if clock() - since >= _EXTRA_FOR * self._times.settle.total_seconds():
                    log.info("a CA that is not needed is trusted no more", kind=resource.kind)
                    await self._trust(resource, found.body, ())
        self._complained = ""
        self._ready()
        if not good:
            self._trusted_since = None
        elif self._trusted_since is None:
            self._trusted_since = clock()

    def _ready(self) -> None:
        if not self.registered.is_set():
            self.registered.set()
            log.info("registered", names=self.names)

    def _wanted(self, authority: Authority) -> tuple[bytes, ...]:
        """The CAs to trust: all of the authority, and the one whose leaf is served here."""
        mine = (self._leaf.issuer,) if self._leaf is not None else ()
        return tuple(dict.fromkeys((*authority.trusted, *mine)))

    async def _trust(self, resource: ApiResource, found: dict[str, Any], kept: Sequence[bytes]) -> None:
        # The cache may be behind: with an authority that was replaced, others would be locked out.
        newest = self._read(await self._api.get(SECRETS, SECRET, keys.SYSTEM_NAMESPACE))
        if newest is None:
            return
        bundle = authorities.ca_bundle(tuple(dict.fromkeys((*self._wanted(newest), *kept))))
        log.info("what API servers trust is written", kind=resource.kind)
        await self._api.json_patch(resource, keys.WEBHOOKS, registration.trusting(found, bundle))

    def _trusted_for(self) -> timedelta | None:
        if self._trusted_since is None:
            return None
        return timedelta(seconds=asyncio.get_running_loop().time() - self._trusted_since)

    # -- time --------------------------------------------------------------------------------------------------------

    def _pause(self, authority: Authority, now: datetime) -> float:
        assert self._leaf is not None
        clock, settle = asyncio.get_running_loop().time, self._times.settle.total_seconds()
        due = [_until(renewal(self._leaf), now), _until(authorities.next_due(authority, self._times), now)]
        if self._trusted_since is not None and clock() < self._trusted_since + settle:
            due.append(self._trusted_since + settle - clock())
        due += [since + _EXTRA_FOR * settle - clock() for since in self._extra_since.values()]
        return min(max(min(due), _PAUSE[0]), _PAUSE[1])


def _until(when: datetime, now: datetime) -> float:
    return (when - now).total_seconds()
