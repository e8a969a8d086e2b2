"""The faults themselves: what is changed, what is left alone, and that a fault that matters is noticed."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.mutants.__main__ import SOURCES, modules
from tests.mutants.mutations import mutations


def mutants(source: str) -> list[str]:
    """The changed lines of every mutant, without what stayed."""
    text = dedent(source)
    before = text.splitlines()
    return [
        " ".join(line.strip() for line in each.apply(text).splitlines() if line not in before)
        for each in mutations("a.py", text)
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("x = a < b", ["x = (a <= b)"], id="a boundary is moved"),
        pytest.param("x = a is None", ["x = (a is not None)"], id="a test is turned round"),
        pytest.param("x = a - b", ["x = (a + b)"], id="an operator is another one"),
        pytest.param("x = a and b", ["x = (a or b)"], id="and is or"),
        pytest.param("x = not a", ["x = (a)"], id="a negation is dropped"),
        pytest.param("x = min(a, b)", ["x = max(a, b)"], id="the least is the most"),
        pytest.param("x = room.any(axis)", ["x = room.all(axis)"], id="any is all"),
        pytest.param("x = 7", ["x = 8"], id="a figure is one more"),
        pytest.param("x = True", ["x = False"], id="true is false"),
        pytest.param("self.x = a", ["pass"], id="what is kept is not kept"),
        pytest.param("go(a)", ["pass"], id="a call is left out"),
        pytest.param("return a", ["return None"], id="nothing is returned"),
        pytest.param("return None", [], id="nothing stays nothing"),
        pytest.param("if a:\n    x = b", ["if (not (a)):"], id="a condition is negated"),
        pytest.param("if a == b:\n    x = b", ["if (a != b):"], id="but not twice"),
        pytest.param("x = [a for a in b if a]", ["x = [a for a in b if (not (a))]"], id="a filter is negated"),
        pytest.param("x = zip(a, b, strict=True)", [], id="strict stays"),
        pytest.param("assert a < b", [], id="assertions stay"),
        pytest.param('raise E(f"{a + b}")', [], id="so does what is said of errors"),
        pytest.param('x = f"{a + 1}"', [], id="and text"),
        pytest.param('"""Not 1."""', [], id="and docstrings"),
        pytest.param("x: A | B = b", [], id="and types"),
    ],
)
def test_the_mutants_of_a_statement(body: str, expected: list[str]) -> None:
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    assert mutants(f"def f(a: A | B, b: int) -> A | B:\n{indented}\n") == expected


def test_what_runs_on_import_and_what_only_tests_call_stays() -> None:
    assert (
        mutants("LIMIT = 5\nclass A:\n    b: int = 3\ndef f(a=3):\n    pass\ndef check(a):\n    return a < 3\n") == []
    )


def test_mutants_of_the_core_compile_and_are_other_programs() -> None:
    paths = [path for source in SOURCES for path in modules(source)]
    for path in paths[::5]:
        text = path.read_text()
        original = ast.dump(ast.parse(text))
        for each in mutations(str(path), text)[::10]:
            assert ast.dump(ast.parse(each.apply(text))) != original, each
