"""Every small fault that can be made in a module: a boundary moved, a condition negated, a statement left out.

Left alone: text for people, type hints, assertions and what only tests call, `strict=True`, and what runs on import,
where limits and times stand that are a choice, not a rule.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_NEGATIONS = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
"""Comparisons of which the mutant is the negation already."""
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_TWINS = {"min": "max", "any": "all", "minimum": "maximum"}
_TWINS |= {other: one for one, other in _TWINS.items()}
_CHECKS = ("check", "verify", "__repr__")
"""Functions that only tests call."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault in one file."""

    path: str
    """Of the file, as it was given."""
    line: int
    kind: str
    start: int
    end: int
    """Bytes of the source that are replaced."""
    text: str
    statement: tuple[int, int]
    """First and last line of the statement it is in, of a compound one its head."""

    def apply(self, source: str) -> str:
        """The source with the fault."""
        raw = source.encode()
        return (raw[: self.start] + self.text.encode() + raw[self.end :]).decode()


def mutations(path: str, source: str) -> list[Mutation]:
    """All faults of a module, in order of their place."""
    found = _Finder(path, source)
    found.statements(ast.parse(source).body, inside=False)
    return sorted(dict.fromkeys(found.all), key=lambda each: (each.start, each.end, each.text))


class _Finder:
    def __init__(self, path: str, source: str) -> None:
        self.all: list[Mutation] = []
        self._path = path
        self._source = source.encode()
        lengths = [len(line) for line in self._source.splitlines(keepends=True)]
        self._starts = [sum(lengths[:number]) for number in range(len(lengths))]
        self._statement = (0, 0)

    # -- statements --------------------------------------------------------------------------------------------------

    def statements(self, body: Iterable[ast.stmt], *, inside: bool) -> None:
        """Go through a block; `inside` a function, or run on import."""
        for statement in body:
            if _is_left_alone(statement):
                continue
            blocks = [*_blocks(statement)]
            if inside:
                last = min((block[0].lineno - 1 for block in blocks), default=statement.end_lineno or statement.lineno)
                self._statement = statement.lineno, max(last, statement.lineno)
                self._of_statement(statement)
            for block in blocks:
                self.statements(block, inside=inside or isinstance(statement, ast.FunctionDef))

    def _of_statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.FunctionDef():
                return
            case ast.AnnAssign(value=value):
                self._expressions(filter(None, [value]))
                return
            case ast.If(test) | ast.While(test):
                self._negate(test)
            case ast.Return(value) if value is not None and not isinstance(value, ast.Constant):
                self._replace(statement, "return None", "returns nothing")
            case ast.Expr(ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name("super"))))):
                return
            case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Break() | ast.Continue():
                self._replace(statement, "pass", "left out")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
                self._replace(statement, "pass", "left out")
        self._expressions(each for each in ast.iter_child_nodes(statement) if not isinstance(each, ast.stmt))

    # -- expressions -------------------------------------------------------------------------------------------------

    def _expressions(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                continue
            self._of_expression(node)
            children: Iterator[ast.AST] = ast.iter_child_nodes(node)
            if isinstance(node, ast.Call):
                children = iter([node.func, *node.args, *(k.value for k in node.keywords if k.arg != "strict")])
            elif isinstance(node, ast.match_case | ast.ExceptHandler):
                children = iter(())
            self._expressions(children)

    def _of_expression(self, node: ast.AST) -> None:
        match node:
            case ast.Compare(ops=operators):
                for index, operator in enumerate(operators):
                    mutant = copy.deepcopy(node)
                    mutant.ops[index] = _COMPARISONS[type(operator)]()
                    self._swap(node, mutant, "comparison")
            case ast.BinOp(op=operation) if type(operation) in _OPERATORS:
                mutated = copy.deepcopy(node)
                mutated.op = _OPERATORS[type(operation)]()
                self._swap(node, mutated, "operator")
            case ast.BoolOp(op=junction, values=values):
                other = ast.Or() if isinstance(junction, ast.And) else ast.And()
                self._swap(node, ast.BoolOp(other, values), "and/or")
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
                self._swap(node, operand, "sign")
            case ast.Constant(value=value):
                if isinstance(value, bool):
                    self._replace(node, str(not value), "constant")
                elif isinstance(value, int):
                    self._replace(node, str(value + 1), "constant")
                elif isinstance(value, float):
                    self._replace(node, str(value * 2 or 1.0), "constant")
            case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)) if name in _TWINS:
                end = self._end(node.func)
                self._add(node.func, end - len(name), end, _TWINS[name], "min/max, any/all")
            case ast.IfExp(test=test):
                self._negate(test)
            case ast.comprehension(ifs=conditions):
                for condition in conditions:
                    self._negate(condition)

    def _negate(self, test: ast.expr) -> None:
        match test:
            case ast.Compare(ops=[operator]) if isinstance(operator, _NEGATIONS):
                return
            case ast.UnaryOp(op=ast.Not()):
                return
        text = self._source[self._start(test) : self._end(test)].decode()
        self._replace(test, f"(not ({text}))", "negated")

    # -- filing ------------------------------------------------------------------------------------------------------

    def _swap(self, node: ast.expr, mutant: ast.expr, kind: str) -> None:
        self._replace(node, f"({ast.unparse(mutant)})", kind)

    def _replace(self, node: ast.expr | ast.stmt, text: str, kind: str) -> None:
        self._add(node, self._start(node), self._end(node), text, kind)

    def _add(self, node: ast.expr | ast.stmt, start: int, end: int, text: str, kind: str) -> None:
        self.all.append(Mutation(self._path, node.lineno, kind, start, end, text, self._statement))

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None, "the node was parsed from text"
        assert node.end_col_offset is not None, "so it has an end"
        return self._starts[node.end_lineno - 1] + node.end_col_offset


def _is_left_alone(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assert() | ast.Raise() | ast.Expr(ast.Constant()):
            return True
        case ast.FunctionDef(name):
            return name in _CHECKS
    return False


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The statements inside a compound one, block by block."""
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(statement, name, None):
            yield block
    for each in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield each.body
