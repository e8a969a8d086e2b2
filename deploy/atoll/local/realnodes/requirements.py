"""What real nodes need from the machine, checked before anything starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
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


class Missing(RuntimeError):
    """The machine can't run real nodes, or can't build an image; the message says what to do."""


def check(programs: Mapping[str, str] = RUN) -> None:
    """Return if this machine can run real nodes (or what else needs these programs).

    Raises:
        Missing: it can't; with the exact command to install what is missing.
    """
    if sys.platform != "linux":
        raise Missing(f"real nodes need Linux, this is {sys.platform}")
    if os.geteuid() != 0:
        raise Missing("real nodes need root: mounts, cgroups and a bridge are made; run the command as root")
    if packages := _missing_packages(programs):
        raise Missing(
            f"real nodes need programs that are not installed; install them: "
            f"apt-get install --no-install-recommends {' '.join(packages)}"
        )
    run = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        raise Missing(f"real nodes need mount and PID namespaces, which are refused here: {run.stderr.strip()}")
    if not Path("/sys/fs/cgroup").is_mount() or not os.access("/sys/fs/cgroup", os.W_OK):
        raise Missing("real nodes need cgroups that can be written: /sys/fs/cgroup is not mounted so")


def search_path() -> str:
    """PATH, with the folders of system programs that a user's may lack."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def _missing_packages(programs: Mapping[str, str]) -> Iterable[str]:
    found = {package for name, package in programs.items() if not shutil.which(name, path=search_path())}
    if RUN.items() <= programs.items() and not all(
        (CNI_PLUGINS / name).exists() for name in ("bridge", "host-local", "loopback")
    ):
        found.add("containernetworking-plugins")
    return sorted(found)


def main() -> int:
    """Say whether this machine can run real nodes; in one line why not."""
    try:
        check({**RUN, **BUILD})
    except Missing as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
