"""Build the control-plane programs from the pinned modules with the local Go toolchain."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

_GO_MINIMUM = (1, 26)
_QUIET_PROGRESS_S = 20.0
_VERSION_SUFFIX = re.compile(r"/v\d+$")


class BuildError(RuntimeError):
    """Go is missing, too old, or the build failed; the message says which and what to do."""


def install(
    packages: Mapping[str, str],
    target: Path,
    module: Path,
    kubernetes: str,
    store: Path,
    report: Callable[[str], None],
) -> None:
    """Build `packages` (program name to Go package) into `target`, versions from `module`.

    `kubernetes` is the version, such as v1.36.3, that the Kubernetes programs are to report. `store` holds the 3 GB of
    compiled packages unless $GOCACHE names another folder. It goes once the build has passed: one that was interrupted
    goes on from there.

    Raises:
        BuildError: Go is missing or too old, or the build failed.
    """
    with tempfile.TemporaryDirectory(prefix="atoll-build-") as scratch:
        work = Path(scratch)
        for file in (module / "go.mod", module / "go.sum", *module.glob("*.go")):
            shutil.copyfile(file, work / file.name)
        check_go(work)
        built = work / "bin"
        _run(
            [
                "go",
                "install",
                "-v",
                "-mod=readonly",
                f"-ldflags={_ldflags(kubernetes)}",
                *packages.values(),
            ],
            work,
            {"GOCACHE": str(store), **environment(), "GOBIN": str(built)},
            report,
        )
        for name, package in packages.items():
            # `go install` names a program after the last element of its path, a version suffix left out.
            shutil.move(built / _VERSION_SUFFIX.sub("", package).rpartition("/")[2], target / name)
    shutil.rmtree(store, ignore_errors=True)


def check_go(directory: Path, environ: Mapping[str, str] | None = None) -> None:
    """Raise BuildError unless Go can build the module in `directory`."""
    env = environment() if environ is None else dict(environ)
    needs = f"Go >= {_GO_MINIMUM[0]}.{_GO_MINIMUM[1]}"
    go = shutil.which("go", path=env.get("PATH", ""))
    if go is None:
        raise BuildError(f"{needs} is needed to build them and `go` is not on PATH: install it")
    # Run inside the module: Go may fetch the toolchain that its go.mod asks for.
    run = subprocess.run(
        [go, "env", "GOVERSION"],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    match = re.search(r"go(\d+)\.(\d+)", run.stdout)
    if run.returncode != 0 or match is None:
        raise BuildError(f"{needs} is needed to build them; {go} says: {run.stderr.strip()}")
    if (int(match[1]), int(match[2])) < _GO_MINIMUM:
        raise BuildError(f"{needs} is needed to build them; {go} is {match[0]}: install a newer one")


_WEAKEN = ("GOFLAGS", "GOINSECURE", "GONOSUMCHECK", "GONOSUMDB", "GOSUMDB")
"""Variables that could keep Go from comparing its downloads with go.sum and the checksum database."""


def environment() -> dict[str, str]:
    """Of Go, in which modules are those that go.mod and go.sum pin."""
    kept = {name: value for name, value in os.environ.items() if name not in _WEAKEN}
    # A workspace file in some parent folder would change which modules are used.
    return {**kept, "CGO_ENABLED": "0", "GOWORK": "off"}


def _ldflags(version: str) -> str:
    major, minor = version.removeprefix("v").split(".")[:2]
    package = "k8s.io/component-base/version"
    return f"-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"


def _run(argv: list[str], cwd: Path, env: dict[str, str], report: Callable[[str], None]) -> None:
    """Run a build, showing elapsed time and its last line: it is silent for minutes otherwise."""
    child = subprocess.Popen(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: deque[str] = deque(maxlen=30)

    def read() -> None:
        assert child.stdout is not None
        with child.stdout:
            lines.extend(line.rstrip() for line in child.stdout)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    terminal = sys.stderr.isatty()
    began = shown = time.monotonic()
    try:
        while reader.is_alive():
            reader.join(0.5)
            now = time.monotonic()
            status = f"building: {now - began:.0f} s, {lines[-1][:60] if lines else 'resolving'}"
            if terminal:
                print(f"\r{status:<79}", end="", file=sys.stderr, flush=True)
            elif now - shown >= _QUIET_PROGRESS_S:
                shown = now
                report(status)
        code = child.wait()
    except BaseException:
        child.kill()
        child.wait()
        raise
    finally:
        if terminal:
            print(file=sys.stderr)
    if code != 0:
        raise BuildError("`" + " ".join(argv[:2]) + "` failed:\n" + "\n".join(lines))
