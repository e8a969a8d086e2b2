"""`python -m tests.dispatcher.private`: nobody outside of the dispatcher's core reads a private attribute of it.

Ruff sees `object._name` where it is not `self`, except in files that it is told to leave alone. This leaves no file alone, and
sees imports as well; it looks for names that the core alone defines.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ROOT / "dispatcher" / "atoll" / "dispatcher" / "core"
PLACES = (
    "lib",
    "global",
    "webhook",
    "dispatcher",
    "agent",
    "sim",
    "topology",
    "cli",
    "deploy",
    "tests",
    "bench",
    "demo",
)

TUPLES = {"_replace", "_asdict", "_fields", "_make"}
"""What named tuples call their public methods."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined(tree: ast.AST) -> Iterator[str]:
    """Private names that are assigned or defined here."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.Name(id=name, ctx=ast.Store())
            ):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def foreign(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Private names that are read of something else than `self` or `cls`, or imported from the core."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name, lineno=line) if private(name):
                yield line, name
            case ast.ImportFrom(module=str(module), names=names, lineno=line) if module.startswith(
                "atoll.dispatcher.core"
            ):
                yield from ((line, each.name) for each in names if private(each.name))


def findings(places: list[Path], core: Path) -> list[str]:
    """Where private names of the core are read, as `file:line: name`."""
    trees = {path: ast.parse(path.read_text("utf-8")) for place in places for path in sorted(place.rglob("*.py"))}
    inside = {path for path in trees if path.is_relative_to(core)}
    own = {path: {name for name in defined(tree) if private(name)} for path, tree in trees.items()}
    names = set().union(*(own[path] for path in inside)) - set().union(*(own[path] for path in own.keys() - inside))
    return [
        f"{path}:{line}: {name}"
        for path in sorted(trees.keys() - inside)
        for line, name in foreign(trees[path])
        if name in names - TUPLES
    ]


def main() -> int:
    found = findings([ROOT / place for place in PLACES], CORE)
    for each in found:
        print(
            f"{each} is private to the dispatcher's core: assert on commands, verdicts and check(), or make it public"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
