"""The page of production functions names every suite and benchmark, and functions that the product calls."""

from __future__ import annotations

import ast
import pkgutil
import re
from pathlib import Path

import pytest

from bench.__main__ import BENCHMARKS
from tests.conformance.suites import SUITES

_ROOT = Path(__file__).parents[2]
_ROWS = re.findall(
    r"\| ([\w-]+) \| `([\w.]+)` \| `([\w/]+\.py)` \|", (Path(__file__).parent / "FUNCTIONS.md").read_text("utf-8")
)


def test_every_suite_and_benchmark_has_a_row() -> None:
    assert {name for name, _, _ in _ROWS} == {*SUITES, *(name.replace("-", "_") for name in BENCHMARKS)}


@pytest.mark.parametrize(("function", "caller"), sorted({row[1:] for row in _ROWS}))
def test_product_calls_the_function(function: str, caller: str) -> None:
    pkgutil.resolve_name(function)
    name = function.rpartition(".")[2]
    nodes = list(ast.walk(ast.parse((_ROOT / caller).read_text("utf-8"))))
    used = {each.id for each in nodes if isinstance(each, ast.Name)}
    used |= {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    assert name in used
