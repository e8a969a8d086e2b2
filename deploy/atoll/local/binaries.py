"""The control-plane programs: found, downloaded or built, never assumed.

A federation must start from a bare checkout, with or without the official download sites. Each
program is looked for in `KUBEBUILDER_ASSETS`, in the cache, on PATH; what is still missing is
downloaded and verified, and where that cannot be reached, built from the modules that the go.mod
beside this file pins. `python -m atoll.local.binaries` does it for all of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from atoll.local import build, download

DIGESTS = "digests.json"
"""File in the cache that says what the first download of each version was."""
MODULE = Path(__file__).parent / "binaries"
Report = Callable[[str], None]
Fetch = Callable[[str, Path, dict[str, str]], None]
"""Given a program's name, where to put it and the pinned versions; raises download.Unavailable."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True)
class Tool:
    """One program and the versions of it that will do."""

    name: str
    package: str
    version_args: tuple[str, ...]
    #: Oldest (major, minor) that is taken from elsewhere; None: any.
    minimum: tuple[int, int] | None


TOOLS = (
    Tool("etcd", "go.etcd.io/etcd/server/v3", ("--version",), (3, 5)),
    Tool("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", ("--version",), (1, 34)),
    Tool(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        ("--version",),
        (1, 34),
    ),
    Tool("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", ("--version",), (1, 34)),
    Tool("kubectl", "k8s.io/kubernetes/cmd/kubectl", ("version", "--client"), None),
    Tool("kwok", "sigs.k8s.io/kwok/cmd/kwok", ("--version",), (0, 6)),
)


class BinariesError(RuntimeError):
    """A program is missing and could not be had. The message says what to install."""


@dataclass(frozen=True)
class Binaries:
    """Paths of the programs."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path
    kwok: Path


def ensure(
    environ: Mapping[str, str] | None = None,
    *,
    report: Report | None = None,
    fetch: Fetch | None = None,
    install: Callable[..., None] | None = None,
) -> Binaries:
    """Return all programs; download or build missing ones.

    Blocks, up to some minutes the first time. `report` gets one line per program that says where
    it came from (default: standard error). `fetch` and `install` replace download and build.

    Raises:
        BinariesError: a program could be neither found, nor downloaded, nor built.
    """
    found = obtain(TOOLS, MODULE, environ, report=report, fetch=fetch, install=install)
    return Binaries(**{name.replace("-", "_"): path for name, path in found.items()})


def obtain(
    tools: Sequence[Tool],
    module: Path,
    environ: Mapping[str, str] | None = None,
    *,
    report: Report | None = None,
    fetch: Fetch | None = None,
    install: Callable[..., None] | None = None,
) -> dict[str, Path]:
    """Return these programs by name, of the versions that the go.mod in `module` pins; otherwise as `ensure`.

    Raises:
        BinariesError: a program could be neither found, nor downloaded, nor built.
    """
    env = os.environ if environ is None else environ
    report = report or _to_stderr
    cache = cache_directory(env, module)
    found = {tool.name: hit for tool in tools if (hit := find(tool, env, cache, report=report))}
    if len(found) < len(tools):
        cache.mkdir(parents=True, exist_ok=True)
        with _lock(cache / ".lock", report):
            # Somebody else may have built them while this process waited for the lock.
            for tool in tools:
                if tool.name not in found and (hit := _cached(tool, cache)):
                    found[tool.name] = hit
            missing = [tool for tool in tools if tool.name not in found]
            if missing:
                found |= _obtain(missing, module, cache, fetch or download.fetch, install or build.install, report)
    for tool in tools:
        path, source = found[tool.name]
        report(f"{tool.name}: {path} ({source})")
    return {name: path for name, (path, _) in found.items()}


def cache_directory(environ: Mapping[str, str], module: Path | None = None) -> Path:
    """Return the folder of the binaries that belong to exactly this go.mod (default: MODULE's) and platform."""
    root = environ.get("ATOLL_CACHE")
    if not root:
        home = environ.get("HOME") or str(Path.home())
        root = str(Path(environ.get("XDG_CACHE_HOME") or f"{home}/.cache") / "atoll")
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update(((module or MODULE) / name).read_bytes())
    system, machine = target()
    return Path(root) / "binaries" / f"{digest.hexdigest()[:16]}-{system}-{machine}"


def target() -> tuple[str, str]:
    """Return (system, machine) as Go and the release pages call them."""
    machine = platform.machine().lower()
    return sys.platform, {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def find(
    tool: Tool, environ: Mapping[str, str], cache: Path | None = None, *, report: Report | None = None
) -> tuple[Path, str] | None:
    """Return (path, source) of a program that is there already and will do, or None."""
    assets = environ.get("KUBEBUILDER_ASSETS")
    if assets:
        path = Path(assets) / tool.name
        if path.exists() and _will_do(tool, path, "KUBEBUILDER_ASSETS", report):
            return path, "KUBEBUILDER_ASSETS"
    if hit := _cached(tool, cache or cache_directory(environ)):
        return hit
    on_path = shutil.which(tool.name, path=environ.get("PATH", ""))
    if on_path and _will_do(tool, Path(on_path), "PATH", report):
        return Path(on_path), "PATH"
    return None


def pinned_versions(tools: Sequence[Tool] = TOOLS, module: Path | None = None) -> dict[str, str]:
    """Return the version of each program that go.mod pins, such as `{"etcd": "v3.6.8"}`."""
    text = ((module or MODULE) / "go.mod").read_text()
    versions = {}
    for tool in tools:
        for line in text.splitlines():
            words = line.split()
            is_pin = len(words) >= 2 and words[1].startswith("v")
            if is_pin and (tool.package == words[0] or tool.package.startswith(words[0] + "/")):
                versions[tool.name] = words[1]
                break
    return versions


def _cached(tool: Tool, cache: Path) -> tuple[Path, str] | None:
    # Files appear in the cache only by a rename of something complete: no need to run them.
    path = cache / tool.name
    return (path, "cache") if os.access(path, os.X_OK) else None


def _will_do(tool: Tool, path: Path, source: str, report: Report | None) -> bool:
    try:
        run = subprocess.run([str(path), *tool.version_args], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = f"it does not run: {error}"
    else:
        match = _VERSION.search(run.stdout or run.stderr)
        if match is None or run.returncode != 0:
            reason = "it does not tell its version"
        elif tool.minimum and (int(match[1]), int(match[2])) < tool.minimum:
            reason = f"{match[0]} is older than {tool.minimum[0]}.{tool.minimum[1]}"
        else:
            return True
    if report:
        report(f"{tool.name}: {path} ({source}) is not used: {reason}")
    return False


def _obtain(
    tools: list[Tool],
    module: Path,
    cache: Path,
    fetch: Fetch,
    install: Callable[..., None],
    report: Report,
) -> dict[str, tuple[Path, str]]:
    found: dict[str, tuple[Path, str]] = {}
    versions = pinned_versions(tools, module)
    # Inside the cache, because a rename is atomic only within one file system.
    with tempfile.TemporaryDirectory(dir=cache, prefix=".new-") as scratch:
        fresh = Path(scratch)
        for tool in tools:
            try:
                fetch(tool.name, fresh / tool.name, versions)
            except download.Unavailable as error:
                report(f"{tool.name}: no download ({error})")
                if error.unreachable:
                    break
            else:
                _check_first(tool.name, versions[tool.name], fresh / tool.name, cache.parent / DIGESTS, report)
                _publish(fresh / tool.name, cache / tool.name)
                found[tool.name] = (cache / tool.name, "download")
        to_build = {tool.name: tool.package for tool in tools if tool.name not in found}
        if to_build:
            report(f"building {', '.join(to_build)} from source (some minutes, once)")
            try:
                install(to_build, fresh, module, pinned_versions()["kube-apiserver"], cache / ".go-build", report)
            except build.BuildError as error:
                raise BinariesError(
                    f"{', '.join(to_build)} can be neither found, downloaded nor built: {error}"
                ) from error
            for name in to_build:
                _publish(fresh / name, cache / name)
                found[name] = (cache / name, "build")
    return found


def _check_first(name: str, version: str, program: Path, record: Path, report: Report) -> None:
    """Take a download only if it is what the first one of its version was: who can replace a release on its site can
    replace the digest that is published beside it as well.

    Raises:
        BinariesError: it is not.
    """
    with program.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    known: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
    key = " ".join((name, version, *target()))
    if known.get(key) == digest:
        return
    if key in known:
        raise BinariesError(
            f"{name} {version}: SHA-256 {digest} is not {known[key]}, that of the first download, so it is refused; if"
            f" its publisher says why, remove that line of {record}"
        )
    report(f"{name}: trusted from now on: SHA-256 {digest} of {version}, recorded in {record}")
    known[key] = digest
    # Others may fill the folder of another go.mod meanwhile; additions are asked for again.
    fresh = record.with_name(f".{record.name}-{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        json.dump(known, out, indent=1, sort_keys=True)
    fresh.replace(record)


def _publish(fresh: Path, final: Path) -> None:
    fresh.chmod(0o755)
    fresh.replace(final)


@contextlib.contextmanager
def _lock(path: Path, report: Report) -> Iterator[None]:
    """Let one process at a time fill a cache folder.

    The descriptor is close-on-exec: otherwise a child that outlives this process would keep the
    lock.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another process that prepares the same binaries")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Make sure that all programs are there; print where each came from."""
    try:
        ensure()
    except BinariesError as error:
        _to_stderr(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
