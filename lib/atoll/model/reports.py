"""What members report is checked here, field by field, before anything on the host believes it.

A member may be wrong, old or hostile; its reports reach the status of users' workloads and the dispatcher's books.
A check takes a value and says what of it may be kept: fields that nobody knows are dropped, texts are cut and freed
of control characters, counts are cut to what was sent. A value of the wrong type is refused with the name of its
field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from atoll.model import timestamps
from atoll.model.vector import MOST_ON_NODE

Json = dict[str, Any]
T = TypeVar("T")
Check = Callable[[Any, str], T]
"""(value, name of its field) -> what of it is kept; raises BadReport."""

MAX_MESSAGE = 1024
MAX_WORD = 128
_LARGEST = 2**53
_MOST_RESOURCES = 128
_MOST_TASKS = 1024
RESOURCE = re.compile(r"[a-z0-9]([-a-zA-Z0-9._/]{0,251}[a-zA-Z0-9])?")
"""The name of a resource."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_INDICES = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*", re.ASCII)


class BadReport(ValueError):
    """A member says something that can't be so; the message names the field."""


def readable(text: str, limit: int = MAX_MESSAGE) -> str:
    """The text in one line without control characters, cut to `limit` characters."""
    text = text[: limit * 4]
    if not text.isprintable():
        text = "".join(each if each.isprintable() else " " for each in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def text(limit: int = MAX_MESSAGE) -> Check[str]:
    """Text for people, or a word."""

    def check(value: Any, field: str) -> str:
        return readable(_typed(value, str, field), limit)

    return check


def number(most: int = _LARGEST) -> Check[int]:
    """A count, cut to `most`."""

    def check(value: Any, field: str) -> int:
        if _typed(value, int, field) < 0:
            raise BadReport(f"{field}: {value} is below 0")
        return int(min(value, most))

    return check


def flag(value: Any, field: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise BadReport(f"{field}: {readable(repr(value), 40)} is neither true nor false")
    return value


def moment(value: Any, field: str) -> str:
    """A time in RFC 3339."""
    if not _TIME.fullmatch(_typed(value, str, field)) or not timestamps.is_time(value):
        raise BadReport(f"{field}: {readable(value, 40)!r} is no time")
    return str(value)


def matching(pattern: re.Pattern[str]) -> Check[str]:
    """Text of a form; give a pattern whose matches are short."""

    def check(value: Any, field: str) -> str:
        if not pattern.fullmatch(_typed(value, str, field)):
            raise BadReport(f"{field}: {readable(value, 40)!r} is not of the form that it must have")
        return str(value)

    return check


def indices(most: int) -> Check[str]:
    """Ascending runs of pod indices below `most`, such as `0,2-4`."""

    def check(value: Any, field: str) -> str:
        if not _typed(value, str, field):
            return ""
        last = -1
        if len(value) > 16 * most or not _INDICES.fullmatch(value):
            raise BadReport(f"{field}: {readable(value, 40)!r} are no indices")
        for run in value.split(","):
            first, _, end = run.partition("-")
            if not last < int(first) <= int(end or first) < most:
                raise BadReport(f"{field}: {run} is out of order, or beyond the {most} indices that were sent")
            last = int(end or first)
        return str(value)

    return check


def record(**fields: Check[Any]) -> Check[Json]:
    """An object of these fields, all optional; null is as good as absent."""

    def check(value: Any, field: str) -> Json:
        given = _typed(value, dict, field)
        return {
            name: each(given[name], f"{field}.{name}") for name, each in fields.items() if given.get(name) is not None
        }

    return check


def table(each: Check[T], names: Check[str], most: int) -> Check[dict[str, T]]:
    """A mapping from names; the first `most` of it are kept."""

    def check(value: Any, field: str) -> dict[str, T]:
        given = _typed(value, dict, field)
        keys = list(given)[:most]
        return {
            names(key, f"{field} (a name in it)"): each(given[key], f"{field}[{readable(key, 60)}]") for key in keys
        }

    return check


def items(each: Check[T], most: int) -> Check[list[T]]:
    """A list; the first `most` of it are kept."""

    def check(value: Any, field: str) -> list[T]:
        given = _typed(value, list, field)[:most]
        return [each(one, f"{field}[{index}]") for index, one in enumerate(given)]

    return check


def _typed(value: Any, kind: type[T], field: str) -> T:
    # bool is an int to Python, and to nobody else.
    if not isinstance(value, kind) or isinstance(value, bool):
        raise BadReport(f"{field}: {kind.__name__} is wanted, not {type(value).__name__}")
    return value


def _nodes(pods: int) -> Check[dict[str, int]]:
    """Node -> pods on it: together no more than were sent."""
    raw = table(number(pods), matching(_NAME), max(4 * pods, 64))

    def check(value: Any, field: str) -> dict[str, int]:
        left, kept = pods, {}
        for name, count in sorted(raw(value, field).items()):
            if min(count, left):
                kept[name] = min(count, left)
                left -= kept[name]
        return kept

    return check


_requests = table(
    table(number(MOST_ON_NODE), matching(RESOURCE), _MOST_RESOURCES), matching(re.compile(r".{0,253}")), _MOST_TASKS
)
"""Task -> what one pod of it requests in the member."""


def _use(value: Any, field: str) -> float:
    """Cores or bytes in use."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise BadReport(f"{field}: {readable(repr(value), 40)} is no amount")
    return float(min(value, _LARGEST))


def placement(pods: int) -> Check[Json]:
    """Where the pods of a part are; `pods` were sent."""
    return record(
        generation=number(),
        nodes=_nodes(pods),
        domain=text(253),
        tier=number(10**6),
        waiting=text(MAX_MESSAGE),
        running=number(pods),
        starting=text(MAX_MESSAGE),
        leaving=text(MAX_MESSAGE),
        move=moment,
        moves=text(MAX_MESSAGE),
        requests=_requests,
        busy=table(_use, matching(RESOURCE), _MOST_RESOURCES),
    )


def reservation(pods: int) -> Check[Json]:
    """What became of a hold for `pods` pods."""
    return record(
        epoch=number(),
        state=text(MAX_WORD),
        nodes=_nodes(pods),
        domain=text(253),
        tier=number(10**6),
        message=text(MAX_MESSAGE),
        requested=number(_LARGEST),
        available=number(_LARGEST),
        generation=number(),
        expires=moment,
    )


CONDITIONS: Check[list[Json]] = items(
    record(
        type=text(MAX_WORD),
        status=text(MAX_WORD),
        reason=text(MAX_WORD),
        message=text(MAX_MESSAGE),
        lastTransitionTime=moment,
        lastProbeTime=moment,
        observedGeneration=number(),
    ),
    16,
)
"""Conditions as most kinds have them."""


def conditions(value: Any, field: str) -> list[Json]:
    """Conditions; each must have a type and a status."""
    kept = CONDITIONS(value, field)
    for index, each in enumerate(kept):
        if not (each.get("type") and each.get("status")):
            raise BadReport(f"{field}[{index}]: it has no type or no status")
    return kept


_DEEPEST, _WIDEST = 8, 1000


def plain(value: Any, field: str, depth: int = 0) -> Any:
    """Any report of a foreign controller, in bounds: lists, objects and deeper levels are cut."""
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict | list) and depth >= _DEEPEST:
        return None
    if isinstance(value, dict):
        some = list(value.items())[:_WIDEST]
        return {readable(str(name), 253): plain(each, field, depth + 1) for name, each in some}
    if isinstance(value, list):
        return [plain(each, field, depth + 1) for each in value[:_WIDEST]]
    if isinstance(value, float) or (type(value) is int and abs(value) > _LARGEST):
        return min(max(value, -_LARGEST), _LARGEST)
    return value


def refusal() -> Check[Json]:
    """What the member's API server or admission refused of a part."""
    return record(epoch=number(), message=text(MAX_MESSAGE))


def delivered() -> Check[Json]:
    """Generations of a part: of the host's object that it was made from, and its own in the member."""
    return record(generation=number(), own=number())


def part_of(given: Mapping[str, Any], pods: int, own: Mapping[str, Check[Any]], field: str) -> Json:
    """The status of a workload of `pods` pods: the kind's own fields, and what Atoll's agent adds to any kind."""
    added = {"placement": placement(pods), "reservation": reservation(pods), "refused": refusal()}
    added["delivered"] = delivered()
    return record(**own, **added, unmade=flag, suspended=text(MAX_MESSAGE))(given, field)
