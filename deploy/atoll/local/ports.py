"""Ports for servers that start a while after they were chosen, also while others choose theirs."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

#: Below the range from which Linux takes the local ports of outgoing connections, so that no
#: client can occupy a port between its choice and the start of its server.
_PORTS = range(20_000, 32_000)
#: files whose locks keep a port for this process as long as it lives
_KEPT: list[int] = []


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Different ports on which nobody listens now; they are this process's own among all that choose by this function.

    Raises:
        RuntimeError: there are not so many.
    """
    folder = Path(tempfile.gettempdir()) / f"atoll-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    ports: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(ports) == count:
            break
        if _is_free(port, address) and _keep(folder / str(port)):
            ports.append(port)
    if len(ports) < count:
        raise RuntimeError(f"no {count} free ports on {address} in {_PORTS}")
    return ports


def _is_free(port: int, address: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _keep(file: Path) -> bool:
    """Whether no other process keeps it; this one does from now on, until it ends."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return False
    _KEPT.append(handle)
    return True
