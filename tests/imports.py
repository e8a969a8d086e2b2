"""`python -m tests.imports`: what several test modules use is in a module of its own, never in a `test_*.py`, and every
module of the product is used by the product.
"""

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


def modules(folders: list[Path]) -> dict[str, Path]:
    """Full name -> file of each module below these folders of packages."""
    return {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in folders
        for path in folder.rglob("*.py")
    }


def unused(product: dict[str, Path], users: dict[str, Path], named: str) -> list[str]:
    """Modules of the product that neither another one nor one of `users` imports or names, that are no programs, and
    are not in `named`.

    `atollctl` names its modules without their package.
    """
    used: set[str] = set()
    programs = {name for name in product if name.endswith("__main__")}
    for name, path in (product | users).items():
        tree = ast.parse(path.read_text("utf-8"))
        package = name.rpartition(".")[0]
        found = {each for _, full in imported(tree) for each in (full, full.rpartition(".")[0])}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value, f"{package}.{node.value}"}
                if node.value == "__main__":
                    programs.add(name)
        used |= found - {name}
    return [name for name in sorted(product) if name not in used | programs and name not in named]


def main() -> int:
    found = findings([ROOT / place for place in PLACES])
    product = modules(sorted(path.parent for path in ROOT.glob("*/atoll")))
    users = modules([ROOT / "bench", ROOT / "demo"])
    tests_only = unused(product, users, (ROOT / "pyproject.toml").read_text("utf-8"))
    for each in tests_only:
        print(f"{each}: no module of the product uses it: use it there, or delete it with its tests")
    for each in found:
        print(f"{each} is of a test module: move what both use to a module beside them")
    return 1 if found or tests_only else 0


if __name__ == "__main__":
    sys.exit(main())
