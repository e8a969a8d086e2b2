"""Text to syntax tree: tokens, six levels of precedence, and macros.

Both the nesting of brackets and the depth of the tree are bounded here, so that checker and evaluator may recurse.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from atoll.cel.errors import CompileError

LONGEST = 10 * 1024
"""Kubernetes' bound of a selector (`CELSelectorExpressionMaxLength`)."""
_BRACKETS = 60
"""Brackets, calls and conditions in each other: each may take eleven frames of Python's 1,000."""
_DEEPEST = 100
"""Levels of the tree: each takes up to four frames of checker, builder and evaluator."""
_INT = range(-(2**63), 2**63)
_UINT = range(2**64)
_RESERVED = frozenset(
    re.findall(
        r"\w+",
        "as break const continue else false for function if import in let loop namespace null package return true var"
        " void while",
    )
)
_TOKEN = re.compile(
    r"""(?P<skip>(?:\s|//[^\n]*)+)
    |(?P<text>(?:[rR][bB]?|[bB][rR]?)?(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}
        |"(?:[^\\"\r\n]|\\.)*"|'(?:[^\\'\r\n]|\\.)*'))
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<int>(?:0x[0-9a-fA-F]+|[0-9]+)[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_RAW = re.compile(
    r"(?:[rR][bB]?|[bB][rR])(?:\"{3}.*?\"{3}|'{3}.*?'{3}|\"[^\"\r\n]*\"|'[^'\r\n]*')", re.DOTALL
)  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\?\"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.|$))",
    re.DOTALL,
)
_SIMPLE = dict(zip("abfnrtv\\?\"'`", "\a\b\f\n\r\t\v\\?\"'`", strict=True))
_LEVEL = {
    "||": 1, "&&": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3, "in": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_LOGIC = {"||": "or", "&&": "and"}
_MACROS = {
    ("all", 2), ("exists", 2), ("exists_one", 2), ("existsOne", 2), ("map", 2), ("map", 3), ("filter", 2),
    ("optMap", 2), ("optFlatMap", 2), ("sortBy", 2),
    ("all", 3), ("exists", 3), ("exists_one", 3), ("existsOne", 3), ("transformList", 3), ("transformList", 4),
    ("transformMap", 3), ("transformMap", 4),
}  # fmt: skip
"""Methods that bind variables, by the number of arguments."""
_PAIRS = frozenset({"transformList", "transformMap"})


@dataclass(slots=True, eq=False)
class Node:
    """One node: `const`, `ident`, `select`, `has`, `call`, `list`, `map`, `fold`, `bind`, `and`, `or` or `if`."""

    kind: str
    column: int
    name: str = ""
    #: The value of a constant; the positions of optional elements of a list or map.
    value: Any = None
    #: Operands; of a method and a fold the target comes first.
    args: tuple[Node, ...] = ()
    variables: tuple[str, ...] = ()
    #: `a.f(x)` rather than `f(x)`; of a selection `.?`.
    flag: bool = False
    #: Set by the checker: type, and for a call the overloads that may run.
    type: Any = None
    overloads: Any = None
    depth: int = 1

    def __post_init__(self) -> None:
        self.depth = 1 + max((each.depth for each in self.args), default=0)
        if self.depth > _DEEPEST:
            raise CompileError(f"is nested deeper than {_DEEPEST} levels", self.column)


class UInt(int):
    """An unsigned integer: a type of its own in CEL."""


def _unescape(body: str, column: int, *, binary: bool) -> str | bytes:
    def replace(match: re.Match[str]) -> str:
        simple, short, four, eight, octal, _ = match.groups()
        if simple:
            return _SIMPLE[simple]
        digits = short or four or eight
        code = int(digits, 16) if digits else int(octal, 8) if octal else -1
        if not (0 <= code < 0x110000) or 0xD800 <= code < 0xE000 or (binary and (four or eight)):
            raise CompileError(f"{match.group()} is no escape sequence", column)
        # Bytes: the code stands for one byte; 0xDC80 and above is Python's way to carry it through text.
        return chr(code) if not binary or code < 0x80 else chr(0xDC00 + code)

    text = _ESCAPE.sub(replace, body)
    return text.encode(errors="surrogateescape") if binary else text


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0
        self.depth = 0

    def peek(self) -> str:
        kind, text, _ = self.tokens[self.at]
        return text if kind in ("mark", "name", "end") else ""

    def column(self) -> int:
        return self.tokens[self.at][2]

    def take(self, text: str) -> bool:
        found = self.peek() == text and self.tokens[self.at][0] != "end"
        self.at += found
        return found

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.unexpected(f"; {text} is missing")

    def unexpected(self, more: str = "") -> CompileError:
        _, text, column = self.tokens[self.at]
        return CompileError(
            f"{text!r} is not expected here{more}" if text else f"the expression ends too early{more}", column
        )

    def name(self) -> str:
        kind, text, _ = self.tokens[self.at]
        if kind != "name" or text in ("in", "true", "false", "null"):
            raise self.unexpected("; a name is missing")
        self.at += 1
        return text

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > _BRACKETS:
            raise CompileError(f"has more than {_BRACKETS} brackets or conditions in each other", self.column())
        node = self.binary(1)
        if self.peek() == "?":
            column = self.column()
            self.at += 1
            yes = self.binary(1)
            self.expect(":")
            node = Node("if", column, args=(node, yes, self.expression()))
        self.depth -= 1
        return node

    def binary(self, level: int) -> Node:
        left = self.unary()
        while (found := _LEVEL.get(mark := self.peek(), 0)) >= level:
            column = self.column()
            if mark in _LOGIC:
                # One node for a chain of any length, so that it adds no depth.
                parts = [left]
                while self.take(mark):
                    parts.append(self.binary(found + 1))
                left = Node(_LOGIC[mark], column, args=tuple(parts))
                continue
            self.at += 1
            name = "@in" if mark == "in" else f"_{mark}_"
            left = Node("call", column, name, args=(left, self.binary(found + 1)))
        return left

    def unary(self) -> Node:
        mark, column, count = self.peek(), self.column(), 0
        if mark not in ("!", "-"):
            return self.member()
        while self.take(mark):
            count += 1
        kind, text, at = self.tokens[self.at]
        if mark == "-" and kind in ("int", "float") and not text.endswith(("u", "U")):
            # The last sign belongs to the number, so that the smallest integer can be written.
            self.tokens[self.at] = (kind, f"-{text}", at)
            count -= 1
        operand = self.member()
        return Node("call", column, f"{mark}_", args=(operand,)) if count % 2 else operand

    def member(self) -> Node:
        node = self.primary()
        while True:
            column = self.column()
            if self.take("."):
                optional = self.take("?")
                kind, name, at = self.tokens[self.at]
                if kind != "name":
                    raise self.unexpected("; a name is missing")
                self.at += 1
                if not optional and self.take("("):
                    node = _method(node, name, self.arguments(")"), at)
                elif name in ("in", "true", "false", "null"):
                    raise CompileError(f"{name!r} is no name", at)
                else:
                    node = Node("select", column, name, args=(node,), flag=optional)
            elif self.take("["):
                name = "_[?_]" if self.take("?") else "_[_]"
                index = self.expression()
                self.expect("]")
                node = Node("call", column, name, args=(node, index))
            else:
                return node

    def arguments(self, end: str) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self.take(end):
            found.append(self.expression())
            if self.peek() != end:
                self.expect(",")
                if self.peek() == end and end == ")":
                    raise self.unexpected()
        return tuple(found)

    def primary(self) -> Node:
        kind, text, column = self.tokens[self.at]
        self.at += kind != "end"
        if kind == "text":
            return Node("const", column, value=_text(text, column))
        if kind == "float":
            return Node("const", column, value=float(text))
        if kind == "int":
            return Node("const", column, value=_integer(text, column))
        if text == "(":
            inner = self.expression()
            self.expect(")")
            return inner
        if text == "[":
            return self.list(column)
        if text == "{":
            return self.map(column)
        if text == ".":
            text = self.name()
        elif kind != "name":
            self.at -= kind != "end"
            raise self.unexpected()
        if text in ("true", "false", "null"):
            return Node("const", column, value={"true": True, "false": False, "null": None}[text])
        if text in _RESERVED:
            raise CompileError(f"{text!r} is a reserved word", column)
        if self.take("("):
            return _function(text, self.arguments(")"), column)
        return Node("ident", column, text)

    def list(self, column: int) -> Node:
        elements: list[Node] = []
        optional: set[int] = set()
        while not self.take("]"):
            if self.take("?"):
                optional.add(len(elements))
            elements.append(self.expression())
            if self.peek() != "]":
                self.expect(",")
        return Node("list", column, value=frozenset(optional), args=tuple(elements))

    def map(self, column: int) -> Node:
        entries: list[Node] = []
        optional: set[int] = set()
        while not self.take("}"):
            if self.take("?"):
                optional.add(len(entries) + 1)
            entries.append(self.expression())
            self.expect(":")
            entries.append(self.expression())
            if self.peek() != "}":
                self.expect(",")
        return Node("map", column, value=frozenset(optional), args=tuple(entries))


def _tokens(text: str) -> list[tuple[str, str, int]]:
    found, at = [], 0
    while at < len(text):
        match = _RAW.match(text, at) if text[at] in "rRbB" else None
        kind = "text"
        if match is None:
            match = _TOKEN.match(text, at)
            if match is None:
                raise CompileError(f"{text[at]!r} is no part of an expression", at + 1)
            kind = match.lastgroup or ""
        if kind != "skip":
            found.append((kind, match.group(), at + 1))
        at = match.end()
    return [*found, ("end", "", at + 1)]


def _text(token: str, column: int) -> str | bytes:
    start = next(place for place, character in enumerate(token) if character in "\"'")
    prefix, quoted = token[:start].lower(), token[start:]
    width = 3 if len(quoted) >= 6 and quoted[:3] in ('"""', "'''") else 1
    body = quoted[width:-width]
    if "r" in prefix:
        return body.encode() if "b" in prefix else body
    return _unescape(body, column, binary="b" in prefix)


def _integer(token: str, column: int) -> int:
    unsigned = token[-1] in "uU"
    digits = token[:-1] if unsigned else token
    # 20 digits are beyond every integer; Python refuses to read thousands of them.
    value = int(digits, 16 if "0x" in digits else 10) if len(digits.lstrip("-0x")) <= 20 else 2**64
    if value not in (_UINT if unsigned else _INT):
        raise CompileError(f"{token} is beyond 64 bits", column)
    return UInt(value) if unsigned else value


def _function(name: str, args: tuple[Node, ...], column: int) -> Node:
    if name == "has" and len(args) == 1:
        if args[0].kind != "select" or args[0].flag:
            raise CompileError("has() takes a selection, such as has(a.b)", column)
        return Node("has", column, args[0].name, args=args[0].args)
    return Node("call", column, name, args=args)


def _method(target: Node, name: str, args: tuple[Node, ...], column: int) -> Node:
    if name == "bind" and target.kind == "ident" and target.name == "cel" and len(args) == 3:
        return Node("bind", column, args=args[1:], variables=_names(args[:1], column))
    if (name, len(args)) not in _MACROS:
        return Node("call", column, name, args=(target, *args), flag=True)
    pair = name in _PAIRS or (len(args) == 3 and name != "map")
    names = _names(args[: 1 + pair], column)
    return Node(
        "fold", column, "existsOne" if name == "exists_one" else name, args=(target, *args[1 + pair :]), variables=names
    )


def _names(args: tuple[Node, ...], column: int) -> tuple[str, ...]:
    if any(each.kind != "ident" for each in args) or len({each.name for each in args}) < len(args):
        raise CompileError("a variable of a macro must be a simple name, each its own", column)
    return tuple(each.name for each in args)


def parse(text: str) -> Node:
    """The syntax tree of an expression.

    Raises:
        CompileError: no expression, too long or too deep.
    """
    if len(text) > LONGEST or len(text.encode(errors="replace")) > LONGEST:
        raise CompileError(f"has {len(text)} characters; the most is {LONGEST}", LONGEST)
    parser = _Parser(text)
    node = parser.expression()
    if parser.tokens[parser.at][0] != "end":
        raise parser.unexpected()
    return node
