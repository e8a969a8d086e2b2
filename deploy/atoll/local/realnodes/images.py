"""Container images made on this machine: from Debian packages, PyPI wheels and files, without a registry.

An image is described by `image.yaml` in a folder of its own, and kept as an archive that containerd imports. What is
built once is found again by what it was built from.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from atoll.local.binaries import cache_directory
from atoll.local.realnodes import requirements

RECIPE = "image.yaml"
FILES = "files"
"""Folder beside the recipe: its content is copied to the image's root."""
SANDBOX = "atoll.local/sandbox:1"
BUSYBOX = "atoll.local/busybox:1"
_FORMAT = "2"
"""Raised whenever the same recipe gives another image."""
_FORMAT_OF_WHEELS = "2"
"""The same for recipes with wheels."""
_SHEBANG = re.compile(rb"\A#!(?:[^\n]*python[^\n]*|/bin/sh\n'{3}exec' [^\n]*\n' '{3})\n")
"""What pip begins a program with; the second form where the interpreter's path is long."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9._-]+")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~=_-]*")
_SKIPPED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_SOURCES = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources"))
_PYTHON = re.compile(r"(?:\./)?usr/bin/python(3\.\d+)")


class ImageError(ValueError):
    """An image can't be built; the message says which and why."""


class Recipe(BaseModel):
    """`image.yaml`: what an image is made of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="Name and tag, as pods give them: `example.org/mpi:1`.")
    debian: list[str] = Field(default_factory=list, description="Debian packages; without any there is only busybox.")
    suite: str = Field(default="bookworm", pattern=r"^[a-z-]+$", description="Release of Debian.")
    wheels: list[str] = Field(
        default_factory=list, description="Wheels from PyPI as pip takes them; list python3 in `debian`."
    )
    command: list[str] = Field(default_factory=list, description="What runs where a pod gives no command.")
    env: dict[str, str] = Field(default_factory=dict, description="Environment of every process.")
    workdir: str = Field(default="/", pattern="^/", description="Folder in which processes start.")

    @field_validator("name")
    @classmethod
    def _has_a_tag(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(f"{value!r} must be a lower-case name and a tag, such as example.org/mpi:1")
        return value

    @field_validator("debian")
    @classmethod
    def _are_packages(cls, value: list[str]) -> list[str]:
        for each in value:
            if not _WORD.fullmatch(each):
                raise ValueError(f"{each!r} is not a name of a Debian package")
        return value


Report = Callable[[str], None]


def build(folder: Path, report: Report, environ: Mapping[str, str] | None = None) -> tuple[str, Path]:
    """Build the image that `folder` describes, unless that was done before; return (name, archive). Blocks.

    Raises:
        ImageError: the recipe is wrong, or a package or wheel can't be had.
        Missing: a program for it is not installed.
    """
    recipe = _read(folder)
    target = cache(environ) / f"{_digest(folder, _FORMAT + (_FORMAT_OF_WHEELS if recipe.wheels else ''))}.tar"
    with locked(target):
        if target.exists():
            report(f"{recipe.name}: built before")
        else:
            if recipe.debian:
                requirements.check(requirements.BUILD)
            report(f"{recipe.name}: building (a minute or more, once)")
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
                _build(recipe, folder, Path(scratch), target)
    return recipe.name, target


def builtin(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Archives of the images that every real node has: the sandbox of a pod, and busybox."""
    program = _needed_busybox()
    digest = hashlib.sha256(program.read_bytes() + _FORMAT.encode()).hexdigest()[:16]
    found = []
    for name, command in ((SANDBOX, ["/bin/sleep", "2147483647"]), (BUSYBOX, ["/bin/sh"])):
        target = cache(environ) / f"{digest}-{name.partition('/')[2].replace(':', '-')}.tar"
        with locked(target):
            if not target.exists():
                with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
                    layer = Path(scratch) / "layer.tar"
                    _busybox_layer(program, layer)
                    archive(Recipe(name=name, command=command), [layer], Path(scratch), target)
        found.append(target)
    return found


def busybox() -> Path | None:
    """The program that stands for a whole system in images without Debian packages, if it is installed."""
    found = shutil.which("busybox", path=requirements.search_path())
    return Path(found) if found else None


def load(archive: Path, socket: Path) -> None:
    """Import an archive into the containerd behind `socket`. Blocks."""
    run = subprocess.run(
        ["ctr", f"--address={socket}", "--namespace=k8s.io", "images", "import", str(archive)],
        capture_output=True, text=True, check=False, env={"PATH": requirements.search_path()},
    )  # fmt: skip
    if run.returncode != 0:
        raise ImageError(f"{archive} can't be imported: {run.stderr.strip()}")


def for_image(program: bytes) -> bytes:
    """A program of a wheel, run by the image's Python instead of the one that unpacked the wheel."""
    return _SHEBANG.sub(b"#!/usr/bin/python3\n", program)


def _read(folder: Path) -> Recipe:
    path = folder / RECIPE
    try:
        return Recipe.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise ImageError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ImageError(f"{path} is not YAML: {error}") from error
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, each['loc'])) or '(file)'}: {each['msg']}" for each in error.errors()]
        raise ImageError(f"{path} cannot be used:\n" + "\n".join(lines)) from error


def _build(recipe: Recipe, folder: Path, scratch: Path, target: Path) -> None:
    layers = [scratch / "base.tar"]
    if recipe.debian:
        _debian_layer(recipe, layers[0])
    else:
        _busybox_layer(_needed_busybox(), layers[0])
    if recipe.wheels:
        layers.append(scratch / "wheels.tar")
        _wheels_layer(recipe, scratch, layers[0], layers[-1])
    if (folder / FILES).is_dir():
        layers.append(scratch / "files.tar")
        with tarfile.open(layers[-1], "w") as tar:
            for path in sorted((folder / FILES).rglob("*")):
                tar.add(path, str(path.relative_to(folder / FILES)), recursive=False, filter=as_root)
    archive(recipe, layers, scratch, target)


def _debian_layer(recipe: Recipe, layer: Path) -> None:
    sources = [str(each) for each in _SOURCES if each.exists()]
    argv = ["mmdebstrap", "--quiet", "--variant=essential", f"--include={','.join(recipe.debian)}"]
    argv += [f"--dpkgopt=path-exclude={each}" for each in _SKIPPED]
    _run([*argv, recipe.suite, str(layer), *sources], f"Debian packages of {recipe.name}")


def _wheels_layer(recipe: Recipe, scratch: Path, base: Path, layer: Path) -> None:
    with tarfile.open(base) as tar:
        version = next((found[1] for each in tar.getnames() if (found := _PYTHON.fullmatch(each))), None)
    if version is None:
        raise ImageError(f"{recipe.name}: wheels need a Python: add python3 to `debian`")
    packages = scratch / "packages"
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    argv += ["--only-binary=:all:", f"--python-version={version}", "--implementation=cp", f"--target={packages}"]
    _run([*argv, *recipe.wheels], f"wheels of {recipe.name}")
    with tarfile.open(layer, "w") as tar:
        tar.add(packages, f"usr/local/lib/python{version}/dist-packages", filter=as_root)
        for program in sorted((packages / "bin").glob("*")):
            _add_file(tar, f"usr/local/bin/{program.name}", for_image(program.read_bytes()), 0o755)


def _needed_busybox() -> Path:
    found = busybox()
    if found is None:
        raise requirements.Missing("busybox is not installed: apt-get install --no-install-recommends busybox-static")
    return found


def _busybox_layer(program: Path, layer: Path) -> None:
    programs = subprocess.run([str(program), "--list"], capture_output=True, text=True, check=True).stdout.split()
    with tarfile.open(layer, "w") as tar:
        for name, mode in (("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777), ("var", 0o755)):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            tar.addfile(folder)
        _add_file(tar, "bin/busybox", program.read_bytes(), 0o755)
        for name in sorted(set(programs) - {"busybox"}):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        _add_file(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
        _add_file(tar, "etc/group", b"root:x:0:\nnogroup:x:65534:\n")


def archive(
    recipe: Recipe,
    layers: Sequence[Path],
    scratch: Path,
    target: Path,
    *,
    user: str = "",
    labels: Mapping[str, str] | None = None,
) -> None:
    """Write an archive of the form of `docker save`: a configuration, the layers, and a list of both."""
    digests = [_file_digest(layer) for layer in layers]
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {"PATH": path, **recipe.env}
    config: dict[str, Any] = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
        "os": "linux",
        "config": {
            "Env": [f"{name}={value}" for name, value in environment.items()],
            "Cmd": recipe.command or ["/bin/sh"],
            "WorkingDir": recipe.workdir,
            **({"User": user} if user else {}),
            **({"Labels": dict(labels)} if labels else {}),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{each}" for each in digests]},
    }
    content = json.dumps(config).encode()
    name = f"{hashlib.sha256(content).hexdigest()}.json"
    listed = [f"{digest}.tar" for digest in digests]
    fresh = scratch / "image.tar"
    with tarfile.open(fresh, "w") as tar:
        _add_file(tar, name, content)
        for layer, file in zip(layers, listed, strict=True):
            tar.add(layer, file)
        manifest = [{"Config": name, "RepoTags": [recipe.name], "Layers": listed}]
        _add_file(tar, "manifest.json", json.dumps(manifest).encode())
    fresh.replace(target)


def _add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def as_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """The entry of an archive, owned by root whoever made the file."""
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def _digest(folder: Path, form: str) -> str:
    digest = hashlib.sha256(form.encode())
    files = [folder / RECIPE, *sorted(each for each in (folder / FILES).rglob("*") if each.is_file())]
    for path in files:
        described = f"{path.relative_to(folder)} {path.stat().st_mode:o}\n"
        digest.update(described.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cache(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of archives."""
    folder = cache_directory(os.environ if environ is None else environ).parent.parent / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Keep others from making `target` meanwhile."""
    with target.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(argv: list[str], what: str) -> None:
    environ = {**os.environ, "PATH": requirements.search_path()}
    run = subprocess.run(argv, capture_output=True, text=True, check=False, env=environ)
    if run.returncode != 0:
        raise ImageError(f"{what} can't be had: {(run.stderr or run.stdout).strip()[-2000:]}")
