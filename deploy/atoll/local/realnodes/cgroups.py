"""The cgroups of a federation's containers, one below each hierarchy's root for every node."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from atoll.local.realnodes.tag import tag

_MOUNT = Path("/sys/fs/cgroup")
_DEADLINE_S = 10.0
_POLL_S = 0.02


def create(directory: Path, node: str) -> str:
    """Make the cgroups below which all containers of a node are; return their path as a kubelet takes it."""
    name = f"{_prefix(directory)}{node}"
    for hierarchy in _hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        # Without processors and memory nothing can enter a cpuset of the first version.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (hierarchy / file).exists() and (group / file).exists() and not (group / file).read_text().strip():
                (group / file).write_text((hierarchy / file).read_text())
    if _unified():
        for group in (_MOUNT, _MOUNT / name):
            wanted = (group / "cgroup.controllers").read_text().split()
            (group / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in wanted))
    return f"/{name}"


def remove(directory: Path) -> None:
    """Kill processes left in the cgroups of a federation and remove these.

    Raises:
        TimeoutError: something in them does not end.
    """
    ends = time.monotonic() + _DEADLINE_S
    left = [group for hierarchy in _hierarchies() for group in hierarchy.glob(f"{_prefix(directory)}*")]
    while left:
        for top in left:
            for group in _bottom_up(top):
                with contextlib.suppress(OSError):
                    for pid in (group / "cgroup.procs").read_text().split():
                        os.kill(int(pid), signal.SIGKILL)
                # Busy as long as a process is on its way out.
                with contextlib.suppress(OSError):
                    group.rmdir()
        left = [group for group in left if group.exists()]
        if left and time.monotonic() > ends:
            raise TimeoutError(f"cgroup {left[0]} can't be removed: something in it does not end")
        if left:
            time.sleep(_POLL_S)


def _prefix(directory: Path) -> str:
    return f"atoll-{tag(directory)}-"


def _unified() -> bool:
    return (_MOUNT / "cgroup.controllers").exists()


def _hierarchies() -> Iterator[Path]:
    if _unified():
        yield _MOUNT
        return
    for each in _MOUNT.iterdir() if _MOUNT.exists() else ():
        # Links such as cpu -> cpu,cpuacct lead to one that is there anyway.
        if each.is_dir() and not each.is_symlink() and (each / "cgroup.procs").exists():
            yield each


def _bottom_up(top: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        for each in top.iterdir():
            if each.is_dir():
                yield from _bottom_up(each)
    yield top
