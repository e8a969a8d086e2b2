"""What real nodes need from the machine, checked before anything starts.

`python -m atoll.local.realnodes.requirements` also installs the Debian packages that are missing, as root where
there is apt-get.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

CNI_PLUGINS = Path("/usr/lib/cni")
"""Where Debian puts them."""
RUN = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "unshare": "util-linux",
    "busybox": "busybox-static",
}
"""Program -> Debian package that has it."""
BUILD = {"mmdebstrap": "mmdebstrap"}
"""The same, to build an image from Debian packages."""


_APT_S = 900.0
"""Seconds for one run of apt-get."""
_APT_OPTIONS = ("-oAcquire::Retries=1", "-oAcquire::http::Timeout=30", "-oDPkg::Lock::Timeout=120")


class Missing(RuntimeError):
    """The machine can't run real nodes, or can't build an image; the message says what to do."""


def check(programs: Mapping[str, str] = RUN) -> None:
    """Return if this machine can run real nodes (or what else needs these programs).

    Raises:
        Missing: it can't; with the exact command to install the rest.
    """
    if sys.platform != "linux":
        raise Missing(f"real nodes need Linux, this is {sys.platform}")
    if os.geteuid() != 0:
        raise Missing("real nodes need root: mounts, cgroups and a bridge are made; run the command as root")
    if packages := _missing_packages(programs):
        raise Missing(f"real nodes need programs that are not installed; install them: {_command(packages)}")
    run = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        raise Missing(f"real nodes need mount and PID namespaces, which are refused here: {run.stderr.strip()}")
    if not Path("/sys/fs/cgroup").is_mount() or not os.access("/sys/fs/cgroup", os.W_OK):
        raise Missing("real nodes need cgroups that can be written: /sys/fs/cgroup is not mounted so")


def provide(programs: Mapping[str, str], report: Callable[[str], None]) -> None:
    """Install the Debian packages that are missing; no effect without root or apt-get, which `check` then names.

    Args:
        programs: program -> package that has it.
        report: gets a line per step.

    Raises:
        Missing: apt-get can't; with the reason that it gives.
    """
    packages = _missing_packages(programs)
    if not packages or os.geteuid() != 0 or not shutil.which("apt-get", path=search_path()):
        return
    report(f"installing Debian packages, once: {' '.join(packages)}")
    # The lists of a new machine are empty, or name packages that its mirror has replaced.
    if _apt_get("install", *packages):
        report("apt-get update")
        _apt_get("update")
        if reason := _apt_get("install", *packages):
            raise Missing(f"real nodes need programs that could not be installed ({_command(packages)}): {reason}")
    report("installed")


def search_path() -> str:
    """PATH, with the folders of system programs that a user's may lack."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def _command(packages: Sequence[str]) -> str:
    return f"apt-get install --no-install-recommends {' '.join(packages)}"


def _apt_get(*words: str) -> str:
    """Run it; the reason of a failure, in one line."""
    argv = ["apt-get", "-qq", "--yes", "--no-install-recommends", *_APT_OPTIONS, *words]
    environ = {**os.environ, "PATH": search_path(), "DEBIAN_FRONTEND": "noninteractive"}
    try:
        run = subprocess.run(argv, capture_output=True, text=True, check=False, env=environ, timeout=_APT_S)
    except subprocess.TimeoutExpired:
        return f"no end after {_APT_S:.0f} s"
    if run.returncode == 0:
        return ""
    lines = [line for line in (run.stderr + run.stdout).splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("E: ")), lines[-1] if lines else f"exit {run.returncode}")


def _missing_packages(programs: Mapping[str, str]) -> Sequence[str]:
    found = {package for name, package in programs.items() if not shutil.which(name, path=search_path())}
    if RUN.items() <= programs.items() and not all(
        (CNI_PLUGINS / name).exists() for name in ("bridge", "host-local", "loopback")
    ):
        found.add("containernetworking-plugins")
    return sorted(found)


def main() -> int:
    """Install missing programs where that is possible; if this machine can't run real nodes, say why in one line."""
    programs = {**RUN, **BUILD}
    try:
        provide(programs, lambda line: print(line, file=sys.stderr, flush=True))
        check(programs)
    except Missing as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
