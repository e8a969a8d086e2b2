"""`python -m tests.imports`: what several test modules use is in a module of its own, never in a `test_*.py`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = ("tests", "bench", "demo")


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of what is imported, wherever in the module."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names, lineno=line):
                yield from ((line, each.name) for each in names)
            case ast.ImportFrom(module=module, names=names, lineno=line):
                yield from ((line, f"{module or ''}.{each.name}") for each in names)


def findings(places: list[Path]) -> list[str]:
    """Imports of a test module, as `file:line: name`."""
    return [
        f"{path}:{line}: {name}"
        for place in places
        for path in sorted(place.rglob("*.py"))
        for line, name in imported(ast.parse(path.read_text("utf-8")))
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split("."))
    ]


def main() -> int:
    found = findings([ROOT / place for place in PLACES])
    for each in found:
        print(f"{each} is of a test module: move what both use to a module beside them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
