"""Values: the ones that Python lacks, equality between all of them, and what work they may cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import total_ordering
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from typing import Any

from atoll.cel.errors import CostExceeded, EvaluationError
from atoll.cel.syntax import UInt
from atoll.cel.types import Type

LIMIT = 1_000_000
"""Kubernetes' bound of what one evaluation may cost (`CELSelectorExpressionMaxCost`)."""
WORK = 4
"""Cost allowed for a step of the work that has none: as many rounds of `exists`."""


class Meter:
    """Cost of one evaluation in upstream's units, and work that those units leave out."""

    __slots__ = ("cost", "device", "limit", "patterns", "variables", "work")

    def __init__(self, device: Map, variables: int, limit: int = LIMIT) -> None:
        self.device = device
        self.variables: list[Any] = [None] * variables
        self.cost = self.work = 0
        self.limit = limit
        #: Patterns that this evaluation has paid for.
        self.patterns: set[str] = set()

    def charge(self, units: int) -> None:
        """Add to the cost.

        Raises:
            CostExceeded: the limit is reached.
        """
        self.cost += units
        if self.cost > self.limit:
            raise CostExceeded(f"costs more than {self.limit:,} units")

    def toil(self, steps: int) -> None:
        """Add to the work, which does not count as cost.

        Raises:
            CostExceeded: the limit is reached.
        """
        self.work += steps
        if self.work * WORK > self.limit:
            raise CostExceeded(f"takes more than {self.limit // WORK:,} steps")


class Map:
    """A map; `True` and 1 are two keys, 1 and 1.0 are one."""

    __slots__ = ("data", "default")

    def __init__(self, data: dict[Any, Any], default: Map | None = None) -> None:
        #: By key; a bool is in a tuple.
        self.data = data
        #: Answers every other text, as the domains of a device do.
        self.default = default

    @classmethod
    def of(cls, entries: Iterable[tuple[Any, Any]]) -> Map:
        """A map of entries.

        Raises:
            EvaluationError: a key comes twice, or is none.
        """
        data: dict[Any, Any] = {}
        for key, value in entries:
            if type(key) not in (str, int, UInt, bool):
                raise EvaluationError(f"{kind(key)} can't be the key of a map")
            if (place := (key,) if type(key) is bool else key) in data:
                raise EvaluationError(f"the key {key!r} comes twice")
            data[place] = value
        return cls(data)

    def keys(self) -> Iterator[Any]:
        """The keys as values."""
        return (each[0] if type(each) is tuple else each for each in self.data)

    def find(self, key: Any) -> tuple[bool, Any]:
        """Whether the key is there, and its value."""
        place = (key,) if type(key) is bool else key
        if type(key) in (str, int, UInt, float, bool) and place in self.data:
            return True, self.data[place]
        return self.default is not None, self.default

    def contains(self, key: Any) -> bool:
        """Whether the key itself is there: a default does not count."""
        return type(key) in (str, int, UInt, float, bool) and ((key,) if type(key) is bool else key) in self.data


EMPTY = Map({})


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    present: bool
    value: Any = None


NONE = Optional(False)


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A moment in nanoseconds since 1970."""

    nanos: int


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span in nanoseconds."""

    nanos: int


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """A Kubernetes quantity."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of an absolute URL."""

    text: str
    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: str


@dataclass(frozen=True, slots=True)
class Format:
    """A named check of text."""

    name: str
    check: Callable[[str], str | None] = field(compare=False)
    cost: int = field(compare=False)


@total_ordering
@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version; build metadata is not compared."""

    numbers: tuple[int, int, int]
    #: Parts of the pre-release; a number sorts before text.
    before: tuple[tuple[bool, int, str], ...] = ()

    def __lt__(self, other: Semver) -> bool:
        return (self.numbers, not self.before, self.before) < (other.numbers, not other.before, other.before)


_KINDS: dict[type, str] = {
    bool: "bool", int: "int", UInt: "uint", float: "double", str: "string", bytes: "bytes", type(None): "null_type",
    tuple: "list", Map: "map", Type: "type", Optional: "optional", Timestamp: "timestamp", Duration: "duration",
    Quantity: "Quantity", Semver: "Semver", Url: "URL", Format: "Format", IPv4Address: "IP", IPv6Address: "IP",
    IPv4Interface: "CIDR", IPv6Interface: "CIDR",
}  # fmt: skip
_NUMBERS = frozenset({"int", "uint", "double"})
STRICT = frozenset({"Quantity", "Semver", "URL", "IP", "CIDR"})
"""Kinds that upstream compares with nothing else: `==` with such a value on the left is an error."""


def kind(value: Any) -> str:
    """The name of a value's type."""
    return _KINDS[type(value)]


def size(value: Any) -> int:
    """The size that costs are computed by: characters, elements, or 1."""
    if isinstance(value, str | bytes | tuple):
        return len(value)
    if type(value) is Map:
        return len(value.data)
    if type(value) is Optional and value.present:
        return size(value.value)
    if isinstance(value, IPv4Address | IPv6Address) and kind(value) == "IP":
        return value.max_prefixlen // 8
    if isinstance(value, IPv4Interface | IPv6Interface):
        return (value.network.prefixlen + 7) // 8
    return 1


def equal(meter: Meter, left: Any, right: Any) -> bool:
    """Whether two values are the same; of different kinds only numbers may be."""
    meter.toil(1)
    one, other = kind(left), kind(right)
    if one != other:
        return one in _NUMBERS and other in _NUMBERS and bool(left == right)
    if one == "list":
        if len(left) != len(right):
            return False
        for mine, its in zip(left, right, strict=True):  # noqa: SIM110 - a generator doubles the frames
            if not equal(meter, mine, its):
                return False
        return True
    if one == "map":
        if left.data.keys() != right.data.keys():
            return False
        for key, value in left.data.items():  # noqa: SIM110 - likewise
            if not equal(meter, value, right.data[key]):
                return False
        return True
    if one == "optional":
        return left.present == right.present and (not left.present or equal(meter, left.value, right.value))
    if one == "type":
        return bool(left.name == right.name)
    if one in ("string", "bytes"):
        meter.toil(min(len(left), len(right)) // 100)
    return bool(left == right)
