"""The wheels of Atoll's image: the pins of `requirements.txt` that its processes import.

`python -m atoll.local.image.requirements` writes them beside this file, without and with the store of records, which
makes the image half as large again; with `--check` it compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from atoll.local.image.rootfs import PYTHON

_FROM: Final = Path("requirements.txt")
_EXTRAS: Final = ("cli", "descheduler", "topology", "web")
FILES: Final = {
    Path(__file__).parent / "requirements.txt": _EXTRAS,
    Path(__file__).parent / "requirements-records.txt": (*_EXTRAS, "records"),
}
"""Of the image -> its extras."""
# Pods have accounts: the package that reads people's kubeconfigs is larger than everything else together.
_WITHOUT: Final = frozenset(("kubernetes",))
_PYTHON: Final = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0"}


def pinned(text: str, extras: Iterable[str] = _EXTRAS) -> str:
    """The part of a file of pins that the image needs.

    Args:
        text: pins with hashes, as pip-compile writes them: one package begins each line that is not indented.
        extras: of Atoll, that it has.
    """
    wanted = _closure("atoll", set(extras))
    kept, keeping = [], False
    for line in text.splitlines():
        if line[:1].isalnum():
            keeping = canonicalize_name(line.partition("==")[0]) in wanted
        if keeping and "# via" not in line and not line.lstrip().startswith("#"):
            kept.append(line)
    return "\n".join(kept) + "\n"


def _closure(root: str, extras: set[str]) -> set[str]:
    """Names of all packages that `root` needs with these extras, itself left out."""
    found: set[str] = set()
    ahead = list(_needs(root, extras))
    while ahead:
        name = ahead.pop()
        if name not in found and name not in _WITHOUT:
            found.add(name)
            ahead.extend(_needs(name, set()))
    return found


def _needs(package: str, extras: set[str]) -> Iterator[str]:
    for line in metadata.requires(package) or ():
        needed = Requirement(line)
        if needed.marker is None or any(
            needed.marker.evaluate({**_PYTHON, "extra": extra}) for extra in (extras or {""})
        ):
            yield canonicalize_name(needed.name)


def main() -> int:
    """Write the files, or compare them; exit code 1 where one differs."""
    differing = 0
    for path, extras in FILES.items():
        fresh = pinned(_FROM.read_text(), extras)
        if "--check" not in sys.argv[1:]:
            path.write_text(fresh)
        elif not path.exists() or path.read_text() != fresh:
            print(f"{path.name} of the image is not up to date: run `make generate`", file=sys.stderr)
            differing = 1
    return differing


if __name__ == "__main__":
    sys.exit(main())
