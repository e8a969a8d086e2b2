"""From a checked tree to closures, which count their cost as upstream does.

Upstream's cost has rules of its own: a name, a selection and an index cost 1, logic nothing, a constant list nothing,
and each function by its own formula. Errors are exceptions; `&&`, `||`, `all` and `exists` hold them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from atoll.cel.declarations import Overload, declare
from atoll.cel.errors import CompileError, CostExceeded, EvaluationError
from atoll.cel.syntax import Node, UInt
from atoll.cel.text import pattern
from atoll.cel.types import Type
from atoll.cel.values import EMPTY, NONE, STRICT, Map, Meter, Optional, equal, kind, size

Run = Callable[[Meter], Any]
_FIXED = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
"""Conversions: of a constant they are made when the expression is compiled, and fail there."""
_PATTERNS = frozenset({"matches", "find", "findAll"})


def _built_in(*_: Any) -> Any:
    raise AssertionError("the evaluator has a closure of its own for it")


for _name, _args, _result in (
    ("_==_", "A, A", "bool"),
    ("_!=_", "A, A", "bool"),
    ("_[_]", "list(A), int", "A"),
    ("_[_]", "map(A, B), A", "B"),
    ("_[_]", "optional(list(V)), int", "optional(V)"),
    ("_[_]", "optional(map(K, V)), K", "optional(V)"),
    ("_[?_]", "list(V), int", "optional(V)"),
    ("_[?_]", "optional(list(V)), int", "optional(V)"),
    ("_[?_]", "map(K, V), K", "optional(V)"),
    ("_[?_]", "optional(map(K, V)), K", "optional(V)"),
    (".or", "optional(V), optional(V)", "optional(V)"),
    (".orValue", "optional(V), V", "V"),
):
    declare(_name, _args, _result, _built_in)


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Any

    def __call__(self, meter: Meter) -> Any:
        return self.value


def build(root: Node) -> tuple[Run, int]:
    """A checked tree as a closure, and the number of variables that it needs.

    Raises:
        CompileError: a constant can't be converted, or a constant pattern is none.
    """
    builder = _Builder()
    return builder.build(root), builder.variables


class _Builder:
    def __init__(self) -> None:
        self.variables = 0
        self.scope: dict[str, int] = {}

    def build(self, node: Node) -> Run:
        return getattr(self, f"build_{node.kind}")(node)  # type: ignore[no-any-return]

    def build_const(self, node: Node) -> Run:
        return _Constant(node.value)

    def build_ident(self, node: Node) -> Run:
        if node.name in self.scope:
            slot = self.scope[node.name]

            def local(meter: Meter) -> Any:
                meter.cost += 1
                return meter.variables[slot]

            return local
        if node.name == "device":
            return _device
        return _Constant(Type(node.name))

    def build_select(self, node: Node) -> Run:
        operand, name, optional = self.build(node.args[0]), node.name, node.flag
        own = 1 + (not _is_attribute(node.args[0]))

        def select(meter: Meter) -> Any:
            value = operand(meter)
            meter.cost += own
            if type(value) is Map and not optional:
                if name in value.data:
                    return value.data[name]
                if value.default is not None:
                    return value.default
                raise EvaluationError(f"there is no {name!r}")
            return _optionally(meter, value, name) if optional or type(value) is Optional else _no_field(value, name)

        return select

    def build_index(self, node: Node) -> Run:
        operand, index = self.build(node.args[0]), self.build(node.args[1])
        optional = node.name == "_[?_]"
        # As with the branch of a condition, upstream does not charge a name that is the index.
        own = 1 + (not _is_attribute(node.args[0])) - (_is_attribute(node.args[1]) and node.args[1].kind != "if")

        def at(meter: Meter) -> Any:
            value = operand(meter)
            key = index(meter)
            meter.cost += own
            if optional or type(value) is Optional:
                return _optionally(meter, value, key)
            found, result = _lookup(value, key)
            if not found:
                raise EvaluationError(f"there is no {key!r}")
            return result

        return at

    def build_has(self, node: Node) -> Run:
        operand, name = self.build(node.args[0]), node.name
        own = int(not _is_attribute(node.args[0]))

        def has(meter: Meter) -> bool:
            value = operand(meter)
            meter.cost += own
            if type(value) is Optional:
                if not value.present:
                    return False
                value = value.value
            return value.find(name)[0] if type(value) is Map else _no_field(value, name)

        return has

    def build_and(self, node: Node) -> Run:
        parts = tuple(map(self.build, node.args))
        decides = node.kind == "or"

        def logic(meter: Meter) -> bool:
            error: EvaluationError | None = None
            for part in parts:
                try:
                    if _truth(part(meter)) is decides:
                        return decides
                except CostExceeded:
                    raise
                except EvaluationError as caught:
                    error = error or caught
            if error is not None:
                raise error
            return not decides

        return logic

    build_or = build_and

    def build_if(self, node: Node) -> Run:
        condition, yes, no = map(self.build, node.args)
        # The branch of a condition is not looked up as a name of its own: upstream charges 1 less.
        less_yes, less_no = (int(_is_attribute(each) and each.kind != "if") for each in node.args[1:])

        def choose(meter: Meter) -> Any:
            if _truth(condition(meter)):
                meter.cost -= less_yes
                return yes(meter)
            meter.cost -= less_no
            return no(meter)

        return choose

    def build_list(self, node: Node) -> Run:
        parts, optional = tuple(map(self.build, node.args)), node.value
        if not optional and all(isinstance(each, _Constant) for each in parts):
            return _Constant(tuple(each.value for each in parts if isinstance(each, _Constant)))

        def make(meter: Meter) -> tuple[Any, ...]:
            values = [each(meter) for each in parts]
            meter.charge(10)
            if not optional:
                return tuple(values)
            return tuple(
                _present(value) if at in optional else value
                for at, value in enumerate(values)
                if at not in optional or _is_present(value)
            )

        return make

    def build_map(self, node: Node) -> Run:
        parts, optional = tuple(map(self.build, node.args)), node.value
        constant = not optional and all(isinstance(each, _Constant) for each in parts)

        def make(meter: Meter) -> Map:
            values = [each(meter) for each in parts]
            meter.charge(30)
            entries = []
            for at in range(0, len(values), 2):
                key, value = values[at], values[at + 1]
                if at in optional or at + 1 in optional:
                    if not _is_present(value):
                        continue
                    value = _present(value)
                entries.append((key, value))
            return Map.of(entries)

        if constant:
            try:
                return _Constant(make(Meter(EMPTY, 0)))
            except EvaluationError as error:
                raise CompileError(str(error), node.column) from error
        return make

    def build_call(self, node: Node) -> Run:
        name = node.name
        if name in ("_[_]", "_[?_]"):
            return self.build_index(node)
        args = tuple(map(self.build, node.args))
        if name in ("or", "orValue"):
            return _or(args[0], args[1], whole=name == "or")
        if name in ("_==_", "_!=_"):
            return _equality(args[0], args[1], same=name == "_==_")
        if name in _PATTERNS and len(args) > 1 and isinstance(args[1], _Constant) and isinstance(args[1].value, str):
            try:
                pattern(args[1].value)
            except ValueError as error:
                raise CompileError(str(error), node.args[1].column) from error
        free = name == "@in" and isinstance(args[1], _Constant) and isinstance(args[1].value, tuple)
        if free and args[1](Meter(EMPTY, 0)) == ():
            return _Constant(False)
        call = _call(name, args, node.overloads, free=free)
        if name in _FIXED and all(isinstance(each, _Constant) for each in args):
            try:
                return _Constant(call(Meter(EMPTY, 0)))
            except EvaluationError as error:
                raise CompileError(str(error), node.column) from error
        return call

    def within(self, node: Node, parts: tuple[Node, ...]) -> tuple[tuple[int, ...], tuple[Run, ...]]:
        """Build parts with the node's variables in scope: their slots, and the closures."""
        outer = self.scope
        slots = tuple(range(self.variables, self.variables + len(node.variables)))
        self.variables += len(slots)
        self.scope = {**outer, **dict(zip(node.variables, slots, strict=True))}
        runs = tuple(map(self.build, parts))
        self.scope = outer
        return slots, runs

    def build_bind(self, node: Node) -> Run:
        value = self.build(node.args[0])
        (slot,), (body,) = self.within(node, node.args[1:])

        def bind(meter: Meter) -> Any:
            meter.variables[slot] = value(meter)
            return body(meter)

        return bind

    def build_fold(self, node: Node) -> Run:
        target = self.build(node.args[0])
        slots, body = self.within(node, node.args[1:])
        if node.name in ("optMap", "optFlatMap"):
            return _on_optional(target, slots[0], body[0], flat=node.name == "optFlatMap")
        if node.name in ("all", "exists"):
            return _quantifier(target, slots, body[0], decides=node.name == "exists")
        if node.name == "existsOne":
            return _exists_one(target, slots, body[0])
        return _transform(node.name, target, slots, body)


def _device(meter: Meter) -> Map:
    meter.cost += 1
    return meter.device


def _is_attribute(node: Node) -> bool:
    return node.kind in ("ident", "select", "if") or (node.kind == "call" and node.name in ("_[_]", "_[?_]"))


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise EvaluationError(f"{kind(value)} is no bool")
    return value


def _no_field(value: Any, name: str) -> Any:
    raise EvaluationError(f"{kind(value)} has no field {name!r}")


def _is_present(value: Any) -> bool:
    if type(value) is not Optional:
        raise EvaluationError(f"{kind(value)} is not optional")
    return value.present


def _present(value: Any) -> Any:
    return value.value


def _lookup(value: Any, key: Any) -> tuple[bool, Any]:
    """What a list or map has at a key."""
    if type(value) is Map:
        return value.find(key)
    if type(value) is tuple and type(key) in (int, UInt, float):
        if key != key // 1 or not 0 <= key < len(value):
            return False, None
        return True, value[int(key)]
    raise EvaluationError(f"{kind(value)} has nothing at a key of type {kind(key)}")


def _optionally(meter: Meter, value: Any, key: Any) -> Optional:
    if type(value) is Optional:
        if not value.present:
            meter.cost -= 1
            return NONE
        value = value.value
    found, result = _lookup(value, key)
    # An absent part costs nothing upstream.
    meter.cost -= not found
    return Optional(True, result) if found else NONE


def _or(left: Run, right: Run, *, whole: bool) -> Run:
    def either(meter: Meter) -> Any:
        value = left(meter)
        if not _is_present(value):
            return right(meter)
        return value if whole else value.value

    return either


def _equality(left: Run, right: Run, *, same: bool) -> Run:
    def compare(meter: Meter) -> bool:
        try:
            one, other = left(meter), right(meter)
        except EvaluationError:
            meter.cost += 1
            raise
        strict = (of := kind(one)) in STRICT
        meter.charge(1 if strict else -(-min(size(one), size(other)) // 10))
        if strict and of != kind(other):
            if same:
                raise EvaluationError(f"{of} and {kind(other)} can't be compared")
            return True
        return equal(meter, one, other) is same

    return compare


def _call(name: str, args: tuple[Run, ...], overloads: tuple[Overload, ...], *, free: bool) -> Run:
    # Upstream knows the cost of an operator only where the types of its operands are known.
    vague = len(overloads) > 1 and name[0] in "_@"
    candidates = tuple(
        (
            each.run,
            each.metered,
            0 if free else 1 if vague else each.cost,
            tuple(None if type_.is_dyn or type_.name[0] == "$" else type_.name for type_ in each.args),
        )
        for each in overloads
    )

    def call(meter: Meter) -> Any:
        try:
            values = [each(meter) for each in args]
        except EvaluationError:
            meter.cost += 1
            raise
        kinds = [kind(each) for each in values]
        for run, metered, cost, wanted in candidates:
            for of, want in zip(kinds, wanted, strict=True):
                if want is not None and of != want:
                    break
            else:
                meter.charge(cost if isinstance(cost, int) else cost(values))
                try:
                    return run(meter, *values) if metered else run(*values)
                except (ValueError, ArithmeticError) as error:
                    raise EvaluationError(str(error)) from error
        raise EvaluationError(f"{name} does not take ({', '.join(kinds)})")

    return call


def _rounds(meter: Meter, value: Any, slots: tuple[int, ...]) -> Iterator[Any]:
    """Set the variables for each element in turn; gives the first of them."""
    pair = len(slots) == 2
    entries: Iterable[tuple[Any, Any]]
    if type(value) is Map:
        entries = zip(value.keys(), value.data.values(), strict=True)
    elif type(value) is tuple:
        entries = enumerate(value) if pair else zip(value, value, strict=True)
    else:
        raise EvaluationError(f"{kind(value)} can't be gone through")
    for first, second in entries:
        meter.toil(1)
        meter.variables[slots[0]] = first
        if pair:
            meter.variables[slots[1]] = second
        yield first


def _quantifier(target: Run, slots: tuple[int, ...], body: Run, *, decides: bool) -> Run:
    step, look = (4, 3) if decides else (3, 2)

    def quantify(meter: Meter) -> bool:
        error: EvaluationError | None = None
        stopped = False
        value = target(meter)
        for _ in _rounds(meter, value, slots):
            if stopped:
                meter.charge(look)
                break
            meter.charge(step)
            try:
                stopped = _truth(body(meter)) is decides
            except CostExceeded:
                raise
            except EvaluationError as caught:
                error = error or caught
        meter.cost += 1
        if error is not None and not stopped:
            raise error
        return stopped is decides

    return quantify


def _exists_one(target: Run, slots: tuple[int, ...], body: Run) -> Run:
    def exists_one(meter: Meter) -> bool:
        count = 0
        for _ in _rounds(meter, target(meter), slots):
            if _truth(body(meter)):
                count += 1
                meter.charge(2)
        meter.charge(2)
        return count == 1

    return exists_one


def _on_optional(target: Run, slot: int, body: Run, *, flat: bool) -> Run:
    def apply(meter: Meter) -> Optional:
        before = meter.cost
        value = target(meter)
        meter.charge(2)
        if not _is_present(value):
            return NONE
        # The macro names its target twice.
        meter.charge(meter.cost - 2 - before + (not flat))
        meter.variables[slot] = value.value
        result = body(meter)
        if flat:
            _is_present(result)
            return result  # type: ignore[no-any-return]
        return Optional(True, result)

    return apply


def _transform(name: str, target: Run, slots: tuple[int, ...], body: tuple[Run, ...]) -> Run:
    """`map`, `filter`, `sortBy`, `transformList` and `transformMap`, each with its condition where it has one."""
    into_map = name == "transformMap"
    condition = body[0] if name == "filter" or len(body) == 2 else None
    result = body[-1] if name != "filter" else None

    def transform(meter: Meter) -> Any:
        made: list[Any] = []
        value = target(meter)
        for first in _rounds(meter, value, slots):
            if condition is not None and not _truth(condition(meter)):
                continue
            meter.charge(3 if into_map else 13 if result is None else 12)
            new = first if result is None else result(meter)
            made.append((first, new) if into_map else new)
        meter.charge(1)
        if into_map:
            return Map.of(made)
        if name == "sortBy":
            return _sorted_by(meter, value, made)
        return tuple(made)

    return transform


def _sorted_by(meter: Meter, values: Any, keys: list[Any]) -> tuple[Any, ...]:
    meter.charge(11 + 2 * len(keys) ** 2)
    if len({kind(each) for each in keys}) > 1 or type(values) is not tuple:
        raise EvaluationError("sortBy takes a list and keys of one type")
    try:
        return tuple(values[at] for at in sorted(range(len(keys)), key=lambda at: keys[at]))
    except TypeError as error:
        raise EvaluationError("the keys have no order") from error
