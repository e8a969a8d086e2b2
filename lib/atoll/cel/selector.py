"""Selectors: compile an expression once, prepare a device once, match the two often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from atoll.cel import kubernetes, lists, moments, numbers, text  # noqa: F401 - they declare the functions
from atoll.cel.checker import check
from atoll.cel.errors import CompileError, EvaluationError
from atoll.cel.evaluator import Run, build
from atoll.cel.kubernetes import quantity, semver
from atoll.cel.syntax import parse
from atoll.cel.values import EMPTY, LIMIT, WORK, Map, Meter

_KEPT = 4096
_SCALARS: Mapping[str, type] = {"int": int, "bool": bool, "string": str, "version": str}
_INT = range(-(2**63), 2**63)


class DeviceView:
    """A device as expressions see it; devices of equal content are equal, so that answers can be kept by device."""

    __slots__ = ("_content", "_hash", "problem", "value")

    def __init__(self, driver: str, device: Mapping[str, Any], *, list_attributes: bool = False) -> None:
        """Prepare a device of a ResourceSlice (`attributes`, `capacity`, `allowMultipleAllocations` of the API)."""
        #: Why no expression can be evaluated, as with a value that is no version; else empty.
        self.problem = ""
        domains: dict[str, dict[str, Any]] = {}
        capacity: dict[str, dict[str, Any]] = {}
        content: list[Any] = [driver, bool(device.get("allowMultipleAllocations"))]
        try:
            for name, attribute in sorted((device.get("attributes") or {}).items()):
                domain, _, own = name.partition("/") if "/" in name else (driver, "", name)
                value = _attribute(attribute, list_attributes=list_attributes)
                domains.setdefault(domain, {})[own] = value
                content.append((name, _typed(value)))
            for name, amount in sorted((device.get("capacity") or {}).items()):
                domain, _, own = name.partition("/") if "/" in name else (driver, "", name)
                capacity.setdefault(domain, {})[own] = value = quantity(str(amount["value"]))
                content.append((name, value))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.problem = f"attribute {name}: {error}"
            content.append((name, self.problem))
        self.value = Map(
            {
                "driver": driver,
                "allowMultipleAllocations": content[1],
                "attributes": Map({domain: Map(each) for domain, each in domains.items()}, EMPTY),
                "capacity": Map({domain: Map(each) for domain, each in capacity.items()}, EMPTY),
            }
        )
        self._content = tuple(content)
        self._hash = hash(self._content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceView) and self._content == other._content

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """A compiled expression; equal texts give the same object while it is in the cache."""

    text: str
    run: Run
    variables: int

    def matches(self, device: DeviceView) -> bool:
        """Whether the device is selected.

        Raises:
            EvaluationError: the expression has no answer for the device.
        """
        return self.evaluate(device)[0]

    def evaluate(self, device: DeviceView, *, limit: int = LIMIT) -> tuple[bool, int]:
        """Whether the device is selected, and the cost in Kubernetes' units.

        Raises:
            EvaluationError: the expression has no answer for the device, or costs more than the limit.
        """
        meter = Meter(device.value, self.variables, limit)
        return self._run(device, meter), meter.cost

    def attempt(self, device: DeviceView, *, limit: int = LIMIT) -> tuple[bool | str, int]:
        """Whether the device is selected, or why there is no answer; and the effort: cost, and work that has none."""
        meter = Meter(device.value, self.variables, limit)
        answer: bool | str
        try:
            answer = self._run(device, meter)
        except EvaluationError as error:
            answer = str(error)
        return answer, meter.cost + WORK * meter.work

    def _run(self, device: DeviceView, meter: Meter) -> bool:
        if device.problem:
            raise EvaluationError(device.problem)
        try:
            result = self.run(meter)
        except RecursionError as error:
            raise EvaluationError("the expression is nested too deep to be evaluated here") from error
        meter.charge(0)
        if type(result) is not bool:
            raise EvaluationError("the result is not bool")
        return result


@lru_cache(maxsize=_KEPT)
def _compiled(expression: str, *, list_attributes: bool) -> Selector | tuple[str, int]:
    try:
        root = parse(expression)
        check(root, list_attributes=list_attributes)
        return Selector(expression, *build(root))
    except CompileError as error:
        return error.sentence, error.column
    except RecursionError:
        return "is nested too deep to be compiled here", 1


def compile(expression: str, *, list_attributes: bool = False) -> Selector:
    """A selector over devices; kept, as is the refusal of an expression that is none.

    `list_attributes` is the feature gate DRAListTypeAttributes.

    Raises:
        CompileError: with the column, and a sentence that follows the name of the field.
    """
    found = _compiled(expression, list_attributes=list_attributes)
    if isinstance(found, tuple):
        raise CompileError(*found)
    return found


def _attribute(attribute: Mapping[str, Any], *, list_attributes: bool) -> Any:
    for field, value in attribute.items():
        if value is None:
            continue
        if field in _SCALARS:
            return _scalar(field, value)
        if list_attributes and field[:-1] in _SCALARS and field.endswith("s"):
            return tuple(_scalar(field[:-1], each) for each in value)
    raise ValueError("the value is of no known type")


def _scalar(field: str, value: Any) -> Any:
    if type(value) is not _SCALARS[field] or (field == "int" and value not in _INT):
        raise ValueError(f"{str(value)[:64]!r} is no {field}")
    return semver(str(value)) if field == "version" else value


def _typed(value: Any) -> Any:
    # 1, 1.0 and True are equal in Python.
    return (type(value), tuple(map(_typed, value)) if isinstance(value, tuple) else value)
