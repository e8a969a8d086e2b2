"""`python -m tests.readers`: one module decodes each object of an API server.

A reader is a subclass of `Slim`; its object is its name without `Object`, `Raw` and underscore. The exceptions have
reasons and may only get fewer.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEVERAL = {
    "Binding": (2, "control compares parts as received, the dispatcher decides on typed ones"),
    "Cluster": (3, "control writes what the others read; admission reads resources alone"),
    "Node": (2, "the operator of HyperNodes runs without an agent"),
    "Pod": (2, "the operator of HyperNodes runs without an agent"),
    "Queue": (2, "an agent reads the Queues of its member, whose status is Volcano's"),
}
"""Object -> (modules, why)."""


def readers(folders: list[Path]) -> dict[str, set[Path]]:
    """Object -> modules with a struct for it."""
    found: dict[str, set[Path]] = defaultdict(set)
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Slim" for base in node.bases):
                name = node.name.lstrip("_").removesuffix("Object")
                found[name.removeprefix("Raw") or name].add(path)
    return found


def findings(found: Mapping[str, set[Path]], several: Mapping[str, tuple[int, str]]) -> list[str]:
    """Objects with more modules, or fewer, than they may have."""
    return [
        f"{name}: {len(modules)} modules decode it, {allowed} may: {', '.join(sorted(map(str, modules)))}"
        for name, modules in sorted(found.items())
        if len(modules) != (allowed := several.get(name, (1, ""))[0])
    ]


def main() -> int:
    found = findings(readers([path.parent for path in ROOT.glob("*/atoll")]), SEVERAL)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
