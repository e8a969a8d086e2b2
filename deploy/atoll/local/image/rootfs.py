"""The root file system of Atoll's image: Debian's Python, pinned wheels, Atoll and a list of all three (SBOM).

Needs root, mmdebstrap and pip, and nothing of Atoll's environment: a build stage of Docker runs this very file. The
same sources give the same files, apart from updates that Debian publishes in between.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

PYTHON: Final = "3.13"
"""Debian 13's; the machine's own Python may be another."""
USER: Final = 65532
"""Owner of every process in the image."""
SUITE: Final = "trixie"
_PACKAGES: Final = (
    f"python{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "libc6", "libstdc++6", "ca-certificates", "tzdata",
)  # fmt: skip
_LINKS: Final = {
    "bin": "usr/bin",
    "sbin": "usr/sbin",
    "lib": "usr/lib",
    "lib64": "usr/lib64",
    "usr/bin/python3": f"python{PYTHON}",
}
# `extract` runs no maintainer scripts; these programs are of no use without a shell.
_USELESS: Final = (
    "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian", "usr/share/debconf",
    "usr/share/perl5", "usr/share/pixmaps", "usr/sbin", "usr/lib/apt", "etc/apt", "var/lib/apt", "var/cache",
    *(f"usr/lib/python*/{each}" for each in ("ensurepip", "idlelib", "pydoc_data", "test", "turtledemo")),
    "usr/lib/python*/lib-dynload/_test*", "usr/lib/*/gconv", "usr/lib/*/libdb-*", "usr/lib/*/libsqlite3*",
)  # fmt: skip
# Wheels bring their tests, type stubs and C headers.
_USELESS_IN_WHEELS: Final = (
    "**/tests", "**/*.pyi", "**/*.pxd", "**/*.a", "numpy/_core/include", "numpy/f2py", "bin",
    # rich imports pygments, and Atoll shows no code.
    "pygments/lexers/[!_]*", "pygments/lexers/_*_builtins.py",
    # fsspec opens the store of records.
    "pyarrow/include", "pyarrow/src", "pyarrow/*flight*", "pyarrow/libarrow_s3*", "pyarrow/_s3fs*",
)  # fmt: skip
SITE: Final = f"usr/lib/python{PYTHON}/dist-packages"
BILL: Final = "usr/share/sbom/atoll.cdx.json"
"""The software bill of materials."""
_FILES: Final = {
    "etc/passwd": f"root:x:0:0:root:/:/sbin/nologin\natoll:x:{USER}:{USER}:atoll:/:/sbin/nologin\n",
    "etc/group": f"root:x:0:\natoll:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}

Component = dict[str, Any]


class Failed(Exception):
    """The file system can't be made; the message says which program ended and how."""


def make_base(root: Path, requirements: Path, *, mirror: Path | None = None) -> None:
    """Fill the empty folder `root` with everything but Atoll. Blocks, for a minute or two.

    Args:
        root: of the image.
        requirements: wheels with hashes.
        mirror: apt's list of sources (`*.list`); None for Debian's own mirrors.

    Raises:
        Failed: a package or wheel can't be had.
    """
    debian = _debian(root, mirror)
    for name, text in _FILES.items():
        (root / name).write_text(text)
    for name, target in _LINKS.items():
        (root / name).symlink_to(target)
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    (root / "etc/ssl/certs/ca-certificates.crt").write_text("".join(each.read_text() for each in authorities))
    site = root / SITE
    _install(site, "--require-hashes", f"--requirement={requirements}")
    _remove(site, _USELESS_IN_WHEELS)
    _compile(root, f"usr/lib/python{PYTHON}")
    (root / BILL).parent.mkdir(parents=True)
    _write_bill(root, [*debian, *(_wheel_component(each) for each in sorted(site.glob("*.dist-info/METADATA")))])


def add_atoll(root: Path, wheel: Path) -> list[str]:
    """Install Atoll's wheel in a base; return the paths that it adds or changes, relative to `root`.

    Raises:
        Failed: it can't be installed.
    """
    site = root / SITE
    _install(site, str(wheel))
    shutil.rmtree(site / "bin", ignore_errors=True)
    _compile(root, f"{SITE}/atoll")
    metadata = next(site.glob("atoll-*.dist-info"))
    programs = []
    for line in (metadata / "entry_points.txt").read_text().splitlines():
        name, found, target = (each.strip() for each in line.partition("="))
        if not found:
            continue
        module, _, function = target.partition(":")
        program = root / "usr/bin" / name
        lines = ["#!/usr/bin/python3 -P", "import sys", f"from {module} import {function}", f"sys.exit({function}())"]
        program.write_text("\n".join(lines) + "\n")
        program.chmod(0o755)
        programs.append(f"usr/bin/{name}")
    components = json.loads((root / BILL).read_text())["components"]
    _write_bill(root, [*components, _wheel_component(metadata / "METADATA")])
    return [BILL, f"{SITE}/atoll", f"{SITE}/{metadata.name}", *programs]


def _debian(root: Path, mirror: Path | None) -> list[Component]:
    """Extract Debian packages; return the entry of each in the bill of materials."""
    with tempfile.NamedTemporaryFile("r", prefix="atoll-packages-") as listed:
        shown = r"\${Package} \${Version}\n"
        hook = f'for each in "$1"/var/cache/apt/archives/*.deb; do dpkg-deb -W --showformat="{shown}" $each; done'
        _run(
            ["mmdebstrap", "--quiet", "--variant=extract", "--format=directory", f"--include={','.join(_PACKAGES)}",
             f"--extract-hook=({hook}) > {listed.name}", SUITE, str(root), *([str(mirror)] if mirror else [])],
            "Debian's packages",
        )  # fmt: skip
        found = sorted(tuple(line.split()) for line in listed.read().splitlines())
    _remove(root, _USELESS)
    kept = {f"python{PYTHON}"}
    for program in (root / "usr/bin").iterdir():
        if program.name not in kept:
            program.unlink()
    return [_component(name, version, f"pkg:deb/debian/{name}@{version}?distro={SUITE}") for name, version in found]


def _install(site: Path, *what: str) -> None:
    """Install wheels for the image's Python, whichever Python runs this."""
    machine = platform.machine()
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    argv += ["--no-deps", "--only-binary=:all:", f"--python-version={PYTHON}", f"--target={site}"]
    argv += [f"--platform=manylinux_2_28_{machine}", f"--platform=manylinux2014_{machine}"]
    _run([*argv, *what], "wheels")


def _remove(folder: Path, patterns: Sequence[str]) -> None:
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _compile(root: Path, folder: str) -> None:
    """Write bytecode, without which each start takes seconds: nothing can be written where the image runs."""
    python = ["chroot", str(root), "/usr/bin/python3", "-m", "compileall", "-q"]
    _run([*python, "--invalidation-mode=unchecked-hash", f"/{folder}"], "bytecode")


def _wheel_component(metadata: Path) -> Component:
    fields: dict[str, str] = {}
    for line in metadata.read_text().partition("\n\n")[0].splitlines():
        key, _, value = line.partition(": ")
        fields.setdefault(key, value)
    name, version = fields["Name"], fields["Version"]
    made = _component(name, version, f"pkg:pypi/{name.lower()}@{version}")
    if licence := fields.get("License-Expression"):
        made["licenses"] = [{"expression": licence}]
    return made


def _component(name: str, version: str, url: str) -> Component:
    return {"type": "library", "name": name, "version": version, "purl": url}


def _write_bill(root: Path, components: Sequence[Component]) -> None:
    """Write the software bill of materials, in CycloneDX's form."""
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}
    (root / BILL).write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")


def _run(argv: list[str], of: str) -> None:
    environ = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "SOURCE_DATE_EPOCH": "0"}
    run = subprocess.run(argv, capture_output=True, text=True, check=False, env=environ)
    if run.returncode != 0:
        raise Failed(f"{of} of the image: {argv[0]} ended with {run.returncode}: {run.stderr.strip()[-2000:]}")


def main() -> int:
    """Make the file system in a folder; for build stages that have nothing of Atoll installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="empty folder to fill")
    parser.add_argument("--wheel", type=Path, required=True, help="Atoll's own")
    parser.add_argument("--requirements", type=Path, required=True, help="pinned wheels, with hashes")
    options = parser.parse_args()
    try:
        make_base(options.root, options.requirements)
        add_atoll(options.root, options.wheel)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
