"""Label selectors as Kubernetes takes them: read with all of its checks, printed in its one form, and matched.

`selectors` reads what an API server has taken already and is lenient; this module is for what users type.
The grammar of the text form, and which operator takes how many values, follow the Kubernetes documentation of labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Labels = Mapping[str, str]

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_PREFIX = 253
_INTEGER = re.compile(r"[+-]?[0-9]+")
_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_WORD = re.compile(r"[^\s=!(),<>]+")

_OF_API = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": ">", "Lt": "<"}
_EXACT = ("=", "==", "!=")


class SelectorError(ValueError):
    """It is no selector; the message says which part is wrong, and what would be right."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one label must be; made by `requirement`, which checks it."""

    key: str
    operator: str
    """As in text: in, notin, exists, !, =, ==, !=, >, <."""
    values: tuple[str, ...] = ()
    """Sorted."""

    def matches(self, labels: Labels) -> bool:
        """Whether labels are so; where the key is missing `notin` and `!=` are met."""
        have = labels.get(self.key)
        match self.operator:
            case "in" | "=" | "==":
                return have is not None and have in self.values
            case "notin" | "!=":
                return have is None or have not in self.values
            case "exists":
                return have is not None
            case "!":
                return have is None
            case _:
                number = int64(have) if have is not None else None
                wanted = int64(self.values[0])
                assert wanted is not None, "checked when it was made"
                return number is not None and (number > wanted if self.operator == ">" else number < wanted)

    def __str__(self) -> str:
        """The text form."""
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(self.values)})"
            case _:
                return f"{self.key}{self.operator}{self.values[0]}"


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that must all be met."""

    requirements: tuple[Requirement, ...] = ()
    """Sorted by key."""
    nothing: bool = False
    """Matches nothing, whatever it requires: a selector that is not there."""

    def matches(self, labels: Labels) -> bool:
        """Whether labels meet all of it; without requirements any do."""
        return not self.nothing and all(each.matches(labels) for each in self.requirements)

    def __str__(self) -> str:
        """The text form; empty for everything and for nothing."""
        return ",".join(map(str, self.requirements))


def requirement(key: str, operator: str, values: Sequence[str] = ()) -> Requirement:
    """One requirement, checked.

    Raises:
        SelectorError: the key or a value is no label's, or the operator takes another number of values.
    """
    check_key(key)
    if operator in ("in", "notin"):
        if not values:
            raise SelectorError(f"{key}: {operator} needs at least one value")
    elif operator in ("exists", "!"):
        if values:
            raise SelectorError(f"{key}: that a label exists, or does not, is asked without values")
    elif len(values) != 1:
        raise SelectorError(f"{key}: {operator} needs exactly one value")
    elif operator in ("<", ">") and int64(values[0]) is None:
        raise SelectorError(f"{key}: {operator} needs an integer of 64 bits, not {values[0]!r}")
    for value in values:
        check_value(key, value)
    return Requirement(key, operator, tuple(sorted(values)))


def check_key(key: str) -> None:
    """Refuse what is no key of a label.

    Raises:
        SelectorError: saying what a key looks like.
    """
    prefix, slash, name = key.rpartition("/")
    well = bool(_NAME.fullmatch(name)) and (not slash or (bool(_PREFIX.fullmatch(prefix))))
    if not well or len(prefix) > _LONGEST_PREFIX:
        raise SelectorError(
            f"{key!r} is no key of a label: [prefix/]name, the name of at most 63 letters, digits, '-', '_' and '.', "
            "the prefix a DNS name"
        )


def check_value(key: str, value: str) -> None:
    """Refuse what is no value of a label.

    Raises:
        SelectorError: saying what a value looks like.
    """
    if not _VALUE.fullmatch(value):
        raise SelectorError(
            f"{key}: {value!r} is no value of a label: at most 63 letters, digits, '-', '_' and '.', "
            "beginning and ending with a letter or digit, or nothing"
        )


def of_api(selector: Mapping[str, Any] | None) -> Selector:
    """A metav1.LabelSelector; None matches nothing, an empty one everything.

    Raises:
        SelectorError: it has a requirement that Kubernetes would not take.
    """
    if selector is None:
        return Selector(nothing=True)
    wanted = [requirement(key, "=", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        if each.get("operator") in ("Gt", "Lt"):
            raise SelectorError(f"{each.get('key')}: a label selector has no operator {each['operator']}")
        wanted.append(of_expression(each))
    return _sorted(wanted)


def of_expression(expression: Mapping[str, Any]) -> Requirement:
    """One expression of a label selector or of a node selector.

    Raises:
        SelectorError: Kubernetes would not take it.
    """
    key, operator = expression.get("key", ""), expression.get("operator")
    if operator not in _OF_API:
        raise SelectorError(f"{key}: unknown operator {operator!r}; there are {', '.join(_OF_API)}")
    return requirement(key, _OF_API[operator], expression.get("values") or ())


def parse(text: str) -> Selector:
    """A selector as typed after `-l`: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3`; nothing at all matches everything.

    Raises:
        SelectorError: saying what was expected, and instead of what.
    """
    tokens = _tokens(text)
    if not tokens:
        return Selector()
    wanted, at = [], 0
    while True:
        found, at = _requirement_at(tokens, at)
        wanted.append(found)
        if at == len(tokens):
            return _sorted(wanted)
        if tokens[at] != ",":
            raise SelectorError(f"expected ',' before {tokens[at]!r} in {text!r}")
        at += 1


def int64(text: str) -> int | None:
    """The integer that a text is, None where it is none or needs more than 64 bits."""
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _sorted(wanted: list[Requirement]) -> Selector:
    return Selector(tuple(sorted(wanted, key=lambda each: each.key)))


def _tokens(text: str) -> list[str]:
    stripped = text.rstrip()
    found, at = [], 0
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        assert match is not None, "every character is a symbol or part of a word"
        found.append(match[1])
        at = match.end()
    return found


def _word(tokens: Sequence[str], at: int, what: str) -> str:
    if at < len(tokens) and _WORD.fullmatch(tokens[at]):
        return tokens[at]
    raise SelectorError(f"expected {what}, not {tokens[at]!r}" if at < len(tokens) else f"expected {what} at the end")


def _requirement_at(tokens: Sequence[str], at: int) -> tuple[Requirement, int]:
    """The requirement that begins there, and where the next token is."""
    if tokens[at : at + 1] == ["!"]:
        return requirement(_word(tokens, at + 1, "the key of a label"), "!"), at + 2
    key = _word(tokens, at, "the key of a label")
    at += 1
    operator = tokens[at] if at < len(tokens) else ","
    if operator == ",":
        return requirement(key, "exists"), at
    if operator in ("in", "notin"):
        values, at = _values(tokens, at + 1)
        return requirement(key, operator, values), at
    if operator not in (*_EXACT, "<", ">"):
        raise SelectorError(f"{key}: expected in, notin, =, ==, !=, < or >, not {operator!r}")
    at += 1
    if at == len(tokens) or tokens[at] == ",":
        return requirement(key, operator, ("",)), at
    return requirement(key, operator, (_word(tokens, at, "a value"),)), at + 1


def _values(tokens: Sequence[str], at: int) -> tuple[list[str], int]:
    """What stands between parentheses, and where the next token is; where there is none it is empty."""
    if tokens[at : at + 1] != ["("]:
        raise SelectorError("expected '(' after in or notin")
    at += 1
    values, last = [""], ","
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token == ")":
            return sorted(set(values)), at
        if token == ",":
            values.append("")
        elif last == "," and _WORD.fullmatch(token):
            values[-1] = token
        else:
            raise SelectorError(f"expected ',' or ')' before {token!r}")
        last = token
    raise SelectorError("expected ')' at the end")
