"""Targets of notifications: a webhook, a chat like Slack, or mail; only the administrator's file names addresses.

A message goes once or more to its target, with an `id` that stays the same. Of an answer the code alone is read, and
no redirect is followed.
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable
from email.message import EmailMessage
from typing import Any, Final

import aiohttp
import msgspec
import prometheus_client
import structlog

from atoll.control.settings import NotificationSettings
from atoll.kube.backoff import pause
from atoll.model import documents
from atoll.model.timestamps import rfc3339

_ANSWER_S: Final = 10.0
_WINDOW_S: Final = 60.0
_AGAIN: Final = (408, 425, 429)
"""HTTP codes of a client's error after which trying again helps."""

log = structlog.get_logger(__name__)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message, as webhooks get it in `data`."""

    id: str
    event: str
    at: str
    text: str
    namespace: str = ""
    name: str = ""
    kind: str = ""
    queue: str = ""
    user: str = ""
    members: list[str] = []
    done: Callable[[], None] | None = None
    """Call it once the message has left, was counted, or was given up."""

    @property
    def body(self) -> dict[str, Any]:
        """All but `done`."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name != "done"}


class Mail(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Recipients, and the relay that takes mail for them."""

    to: list[str]
    sender: str
    relay: str
    """`HOST:PORT`."""
    start_tls: bool = True
    user: str = ""
    password: str = ""


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One of webhook, slack and mail."""

    webhook: str = ""
    """URL that gets a CloudEvent."""
    slack: str = ""
    """URL that gets {"text": ...}."""
    mail: Mail | None = None
    headers: dict[str, str] = {}
    """Of requests, such as Authorization."""
    namespaces: list[str] = []
    """Whose workloads may name it; empty for all."""


class Permanent(Exception):
    """The target refuses this message for good."""


def parse(text: bytes) -> dict[str, Target]:
    """The targets of a file.

    Raises:
        ValueError: it has no targets, or a field is missing, unknown or wrong.
    """
    class_ = dict[str, dict[str, Target]]
    found = msgspec.convert(documents.read_yaml(text) or {}, class_)
    targets = found.get("targets", {})
    for name, each in targets.items():
        ways = [way for way in (each.webhook, each.slack, each.mail) if way]
        if len(ways) != 1 or any(
            not url.startswith(("https://", "http://")) for url in (each.webhook, each.slack) if url
        ):
            raise ValueError(f"target {name}: name one of webhook and slack (a URL), and mail")
    if found.keys() != {"targets"}:
        raise ValueError("write `targets:` and the targets by name below it")
    return targets


class Outlet:
    """One target: at most so many messages a minute; the others are counted, in a message of their own."""

    def __init__(
        self,
        name: str,
        target: Callable[[], Target | None],
        settings: NotificationSettings,
        count: prometheus_client.Counter,
    ) -> None:
        """No I/O happens here.

        Args:
            name: of the target.
            target: gives it as it is now; None once it is gone.
            settings: bounds.
            count: of messages by target and result.
        """
        self._name, self._target, self._settings, self._count = name, target, settings, count
        self._waiting: deque[Message] = deque()
        self._suppressed: list[Message] = []
        self._wake = asyncio.Event()
        #: begin of the present minute, and messages that were sent in it
        self._since, self._sent = 0.0, 0

    def offer(self, message: Message) -> None:
        """Send it, or count it."""
        full = len(self._waiting) >= self._settings.queued
        (self._suppressed if full else self._waiting).append(message)
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S), trust_env=True) as session:
            while True:
                await self._next(session)

    async def _next(self, session: aiohttp.ClientSession) -> None:
        now = time.monotonic()
        if now - self._since >= _WINDOW_S:
            self._since, self._sent = now, 0
        if self._sent < self._settings.per_minute and (self._suppressed or self._waiting):
            counted, self._suppressed = self._suppressed, []
            message = self._counted(counted) if counted else self._waiting.popleft()
            self._sent += 1
            result = await self._deliver(session, message)
            self._count.labels(self._name, result).inc()
            for each in counted or [message]:
                if each.done is not None:
                    each.done()
            return
        # The minute is full: what comes now is counted.
        self._suppressed += self._waiting
        self._waiting.clear()
        self._wake.clear()
        left = self._since + _WINDOW_S - now if self._suppressed else None
        try:
            await asyncio.wait_for(self._wake.wait(), left)
        except TimeoutError:
            return

    def _counted(self, messages: list[Message]) -> Message:
        self._count.labels(self._name, "suppressed").inc(len(messages))
        kinds = ", ".join(f"{count} {event}" for event, count in sorted(Counter(m.event for m in messages).items()))
        text = f"{len(messages)} further notifications were not sent one by one ({kinds}): the limit is"
        text += f" {self._settings.per_minute} a minute"
        return Message(id=f"{messages[0].id}+{len(messages)}", event="suppressed", at=rfc3339(time.time()), text=text)

    async def _deliver(self, session: aiohttp.ClientSession, message: Message) -> str:
        began, failures = time.monotonic(), 0
        while (target := self._target()) is not None:
            try:
                await _send(session, target, message)
            except Permanent as error:
                # Addresses are secrets.
                log.warning("a target refuses a notification", target=self._name, error=str(error))
                return "failed"
            except (aiohttp.ClientError, OSError, smtplib.SMTPException, TimeoutError) as error:
                failures += 1
                if time.monotonic() - began > self._settings.patience:
                    log.warning("a notification is given up", target=self._name, error=type(error).__name__)
                    return "failed"
                await asyncio.sleep(pause(1.0, failures, 60.0))
            else:
                return "sent"
        return "failed"


async def _send(session: aiohttp.ClientSession, target: Target, message: Message) -> None:
    if target.mail is not None:
        await asyncio.to_thread(_mail, target.mail, message)
        return
    if target.webhook:
        kind = "application/cloudevents+json"
        body: dict[str, Any] = {
            "specversion": "1.0", "id": message.id, "source": "atoll", "type": f"sh.atoll.workload.{message.event}",
            "time": message.at, "subject": f"{message.namespace}/{message.name}", "data": message.body,
        }  # fmt: skip
    else:
        kind = "application/json"
        # Names of channels and users are words in <>.
        text = message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        body = {"text": text}
    headers = {**target.headers, "Content-Type": kind}
    url = target.webhook or target.slack
    async with session.post(url, data=msgspec.json.encode(body), headers=headers, allow_redirects=False) as answer:
        status = answer.status
    if status in _AGAIN or status >= 500:
        raise aiohttp.ClientError(f"HTTP {status}")
    if status >= 300:
        raise Permanent(f"HTTP {status}")


def _mail(mail: Mail, message: Message) -> None:
    letter = EmailMessage()
    letter["From"], letter["To"] = mail.sender, ", ".join(mail.to)
    letter["Subject"] = f"Atoll: {message.namespace}/{message.name} {message.event}" if message.name else "Atoll"
    letter["Message-ID"] = f"<{message.id.replace('/', '.')}@atoll>"
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(message.text)
    host, _, port = mail.relay.rpartition(":")
    with smtplib.SMTP(host, int(port), timeout=_ANSWER_S) as relay:
        if mail.start_tls:
            relay.starttls(context=ssl.create_default_context())
        if mail.user:
            relay.login(mail.user, mail.password)
        try:
            relay.send_message(letter)
        except smtplib.SMTPRecipientsRefused as error:
            # Codes below 500 ask to try again.
            if all(code >= 500 for code, _ in error.recipients.values()):
                raise Permanent("all recipients are refused") from error
            raise
