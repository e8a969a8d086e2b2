"""The first process of a real node, in namespaces of its own: `python init.py FOLDER`.

It hides the machine's own folders that kubelet, containerd and the network's plugins write to, starts containerd and
then the kubelet, and reaps. When it ends, the kernel ends all that it started and unmounts all that was mounted.
It imports nothing of the project, so that it needs little memory.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

SOCKET = "/run/containerd/containerd.sock"
KUBELET_FOLDER = "/var/lib/kubelet"
_CONTAINERD_S = 60.0
_TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_POLL_S = 0.02


def main(folder: Path) -> int:
    """Run the node whose files are in `folder` until it is told to end, or one of its programs ends."""
    signal.signal(signal.SIGTERM, _end)
    settings = json.loads((folder / "node.json").read_text())
    _hide(folder)
    started = {}
    containerd = subprocess.Popen(settings["containerd"])
    started[containerd.pid] = "containerd"
    _wait_for_containerd(containerd)
    for image in settings["images"]:
        subprocess.run(["ctr", "--namespace", "k8s.io", "images", "import", image], check=True, stdout=sys.stderr)
    kubelet = subprocess.Popen(settings["kubelet"])
    started[kubelet.pid] = "kubelet"
    while True:
        # Shims and their orphans become children of this process.
        pid, status = os.wait()
        if pid in started:
            print(f"{started[pid]} exited with {os.waitstatus_to_exitcode(status)}", file=sys.stderr, flush=True)
            return 1


def _end(_: int, __: FrameType | None) -> None:
    os._exit(0)


def _hide(folder: Path) -> None:
    below = {name: folder / "hidden" / name for name in ("lib", "work", "log", "kubelet")}
    for each in below.values():
        each.mkdir(parents=True, exist_ok=True)
    # Shared within the namespace: containers may ask for mounts that appear later.
    _mount("--make-rshared", "/")
    _mount("-t", "tmpfs", "tmpfs", "/run")
    layers = f"lowerdir=/var/lib,upperdir={below['lib']},workdir={below['work']}"
    _mount("-t", "overlay", "overlay", "-o", layers, "/var/lib")
    _mount("--bind", str(below["log"]), "/var/log")
    # The kubelet makes sockets below its folder, whose paths have to be short.
    Path(KUBELET_FOLDER).mkdir()
    _mount("--bind", str(below["kubelet"]), KUBELET_FOLDER)
    for name, value in _TUNABLES.items():
        # A kubelet sets them for the whole machine; it finds files with its values instead.
        file = folder / "hidden" / name.replace("/", "-")
        file.write_text(value)
        _mount("--bind", str(file), f"/proc/sys/{name}")


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _wait_for_containerd(containerd: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + _CONTAINERD_S
    while containerd.poll() is None and time.monotonic() < ends:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(SOCKET)
            except OSError:
                time.sleep(_POLL_S)
            else:
                return
    sys.exit("containerd does not answer")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
