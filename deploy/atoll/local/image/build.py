"""Build Atoll's image on this machine: an archive as `docker save` writes it."""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atoll.local.image import requirements as wheels
from atoll.local.image import rootfs
from atoll.local.realnodes import images, requirements
from atoll.model.release import VERSION

REPOSITORY: Final = "atoll.local/atoll"
"""Name of the image where none is given: no registry has it, so that nothing of that name can be pulled by mistake."""
_CHECKOUT: Final = Path(__file__).parents[4]
_LABELS: Final = {
    "org.opencontainers.image.title": "atoll",
    "org.opencontainers.image.description": "Batch federation for Kubernetes: every process and atollctl.",
    "org.opencontainers.image.version": VERSION,
    "org.opencontainers.image.licenses": "Apache-2.0",
}


@dataclass(frozen=True, slots=True)
class Built:
    """An image and its archive."""

    name: str
    archive: Path
    compressed: int
    """Bytes of all layers together, each compressed as a registry keeps it."""


def build(
    report: Callable[[str], None], *, repository: str = REPOSITORY, tag: str = VERSION, records: bool = False
) -> Built:
    """Build the image of this checkout, with the store of records or without. Blocks: seconds once Debian's packages
    and the wheels are there.

    Raises:
        ImageError: this is no checkout, or a package or wheel can't be had.
        Missing: a program for it is not installed, or this is not root.
    """
    if not (_CHECKOUT / "pyproject.toml").exists():
        raise images.ImageError("Atoll's image is built from a checkout of its sources; this Atoll is installed")
    requirements.check(requirements.BUILD)
    cache = images.cache()
    pins = list(wheels.FILES)[records]
    recipe = Path(rootfs.__file__).read_bytes() + pins.read_bytes()
    base = cache / f"atoll-base-{hashlib.sha256(recipe).hexdigest()[:16]}.tar"
    with images.locked(base), tempfile.TemporaryDirectory(dir=cache, prefix=".new-") as folder:
        scratch = Path(folder)
        root = scratch / "root"
        root.mkdir(mode=0o755)
        try:
            if base.exists():
                subprocess.run(["tar", "--extract", f"--file={base}", f"--directory={root}"], check=True)
            else:
                report("Debian's packages and wheels: a minute or two, once")
                rootfs.make_base(root, pins)
                _pack(root, (path.name for path in root.iterdir()), scratch / "base.tar")
                (scratch / "base.tar").replace(base)
            report(f"Atoll {VERSION}")
            added = rootfs.add_atoll(root, _wheel(scratch))
        except rootfs.Failed as error:
            raise images.ImageError(str(error)) from error
        layer = scratch / "atoll.tar"
        _pack(root, added, layer)
        name = f"{repository}:{tag}"
        archive = cache / f"atoll-{tag}-{platform.machine()}.tar"
        images.archive(
            images.Recipe(name=name, command=["atollctl"], env={"PYTHONDONTWRITEBYTECODE": "1"}),
            [base, layer], scratch, archive, user=f"{rootfs.USER}:{rootfs.USER}", labels=_LABELS,
        )  # fmt: skip
        return Built(name, archive, sum(_compressed(each) for each in (base, layer)))


def _wheel(scratch: Path) -> Path:
    argv = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(scratch)]
    run = subprocess.run(
        argv, cwd=_CHECKOUT, env={**os.environ, "SOURCE_DATE_EPOCH": "315532800"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if run.returncode != 0:
        raise images.ImageError(f"the wheel of Atoll can't be built: {run.stderr.strip()[-2000:]}")
    return next(scratch.glob("atoll-*.whl"))


def _pack(root: Path, names: Iterable[str], layer: Path) -> None:
    """Write a layer that depends on contents alone: sorted, of root, without times."""
    with tarfile.open(layer, "w") as tar:
        for name in sorted(names):
            tar.add(root / name, name, filter=_plain)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.mtime = 0
    return images.as_root(info)


def _compressed(layer: Path) -> int:
    size = _Size()
    with gzip.GzipFile(fileobj=size, mode="wb", compresslevel=6, mtime=0) as packed, layer.open("rb") as plain:
        shutil.copyfileobj(plain, packed)
    return size.bytes


class _Size:
    """A file that only counts."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: bytes) -> int:
        self.bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is kept."""
