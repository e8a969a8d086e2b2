"""Types, and which value may stand where: unification with type variables as cel-go does it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Type:
    """A type by name; a name that begins with `$` is a variable."""

    name: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.params))})" if self.params else self.name.replace("$", "")

    @property
    def is_dyn(self) -> bool:
        """True if anything may be there."""
        return self.name in ("dyn", "any")


DYN, ANY, BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL = map(
    Type, ("dyn", "any", "bool", "int", "uint", "double", "string", "bytes", "null_type")
)
_PART = re.compile(r"[A-Za-z_]+|[(),]")
_NULLABLE = frozenset(
    {"optional", "timestamp", "duration", "Quantity", "Semver", "URL", "IP", "CIDR", "Format", "Device"}
)
Substitution = dict[str, Type]


def parse_types(text: str) -> tuple[Type, ...]:
    """`list(A), int` as types; one capital letter is a variable."""
    parts = _PART.findall(text)

    def read(at: int) -> tuple[tuple[Type, ...], int]:
        found: list[Type] = []
        while at < len(parts) and parts[at] != ")":
            if parts[at] == ",":
                at += 1
                continue
            name = f"${parts[at]}" if len(parts[at]) == 1 else parts[at]
            params: tuple[Type, ...] = ()
            at += 1
            if at < len(parts) and parts[at] == "(":
                params, at = read(at + 1)
                at += 1
            found.append(Type(name, params))
        return tuple(found), at

    return read(0)[0]


def substitute(known: Substitution, type_: Type, *, close: bool = False) -> Type:
    """The type with its variables replaced; `close` makes `dyn` of free ones."""
    while type_.name in known:
        type_ = known[type_.name]
    if type_.name[0] == "$":
        return DYN if close else type_
    if not type_.params:
        return type_
    return Type(type_.name, tuple(substitute(known, each, close=close) for each in type_.params))


def general(left: Type, right: Type) -> Type:
    """The one of two assignable types that says less."""
    return left if _less_specific(left, right) else right


def _less_specific(left: Type, right: Type) -> bool:
    if left.is_dyn or left.name[0] == "$":
        return True
    if right.is_dyn or right.name[0] == "$" or left.name != right.name or len(left.params) != len(right.params):
        return False
    return left.name == "type" or all(map(_less_specific, left.params, right.params))


def _occurs(known: Substitution, variable: Type, within: Type) -> bool:
    if variable == within:
        return True
    if within.name in known:
        return _occurs(known, variable, known[within.name])
    return any(_occurs(known, variable, each) for each in within.params)


def _bind(known: Substitution, type_: Type, variable: Type) -> tuple[bool, bool]:
    """Whether the variable may be the type, and whether it was something already."""
    if type_ == variable:
        return True, True
    if (found := known.get(variable.name)) is not None:
        if type_ == found:
            return True, True
        if not _assign(known, type_, found):
            return False, True
        wider = general(type_, found)
        if not _occurs(known, variable, wider):
            known[variable.name] = wider
        return True, True
    if _occurs(known, variable, type_):
        return False, False
    known[variable.name] = type_
    return True, False


def _assign(known: Substitution, left: Type, right: Type) -> bool:
    if right.name[0] == "$":
        valid, had = _bind(known, left, right)
        if valid or had:
            return valid
    if left.name[0] == "$":
        return _bind(known, right, left)[0]
    if left.is_dyn or right.is_dyn:
        return True
    if NULL in (left, right):
        other = right if left == NULL else left
        return other == NULL or other.name in _NULLABLE
    if left.name != right.name or left.name == "type":
        return left.name == right.name
    return len(left.params) == len(right.params) and all(
        _assign(known, *pair) for pair in zip(left.params, right.params, strict=True)
    )


def assignable(known: Substitution, left: tuple[Type, ...], right: tuple[Type, ...]) -> bool:
    """Whether values of the left types may stand where the right ones are asked for; learns variables if so."""
    trial = dict(known)
    if len(left) != len(right) or not all(_assign(trial, *pair) for pair in zip(left, right, strict=True)):
        return False
    known.update(trial)
    return True
