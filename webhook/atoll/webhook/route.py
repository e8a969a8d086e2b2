"""One path of the webhook, with all that answers a review there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from atoll.admission import jsonpatch
from atoll.admission.problems import Problem
from atoll.webhook.protocol import Request


async def _no_problem(_: Request) -> list[Problem]:
    return []


async def _at_once(_: Request) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Route:
    """Answers of one path; by default an object is admitted as it is."""

    path: str
    title: str = ""
    """Of the object, for messages; empty: the object says it."""
    mutate: Callable[[Request], list[jsonpatch.Operation]] = lambda _: []
    validate: Callable[[Request], Awaitable[list[Problem]]] = _no_problem
    warn: Callable[[Request], list[Problem]] = lambda _: []
    """About an accepted object."""
    audit: Callable[[Request], str] = lambda _: ""
    """For the audit log."""
    prepare: Callable[[Request], Awaitable[None]] = _at_once
    """Before the answer."""
