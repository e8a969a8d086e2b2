"""`python -m tests.forks FD`: runs `atollctl` in forks of one process that has imported all of it.

Imports take nine tenths of what a short command takes. A fork has descriptors, environment and memory of its own, so that
a command changes nothing for the next one. `tests.atollctl` starts this and asks it.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import select
import signal
import socket
import sys
import traceback
import warnings
from contextlib import suppress
from typing import Any

import orjson

import atoll.cli
import atoll.kube
import atoll.view
from atoll.cli import app

LARGEST = 1 << 20
"""Bytes of one request: words, environment and folder."""
DEADLINE_S = 120
"""What runs longer is ended by a signal, and has no exit code."""


def preload() -> None:
    """Import what commands import as they run."""
    for package in (atoll.cli, atoll.view, atoll.kube):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    app.tree()
    # A collection in a fork would copy every page that it marks.
    gc.collect()
    gc.freeze()


def run(asked: dict[str, Any]) -> int:
    """Be that command; its exit code."""
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = ["atollctl", *asked["words"]]
    try:
        app.main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def become(asked: dict[str, Any], out: int, said: int, result: int) -> None:
    """In a fork: run the command with these descriptors, and write its exit code to `result`. Does not return."""
    signal.alarm(DEADLINE_S)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, given in enumerate((nothing, out, said)):
        os.dup2(given, number)
        os.close(given)
    code = run(asked)
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    os.write(result, b"%d" % code)
    os._exit(0)


def reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def serve(asks: socket.socket) -> None:
    """Fork for each request, until the other end is closed."""
    while True:
        ready, _, _ = select.select([asks], [], [], 1.0)
        reap()
        if not ready:
            continue
        request, given, _, _ = socket.recv_fds(asks, LARGEST, 3)
        if not request:
            return
        if os.fork() == 0:
            asks.close()
            become(orjson.loads(request), *given)
        for each in given:
            os.close(each)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Libraries of other languages may have threads of theirs, which no fork has and no command misses.
    warnings.simplefilter("ignore", DeprecationWarning)
    preload()
    with socket.socket(fileno=int(sys.argv[1])) as asks:
        serve(asks)


if __name__ == "__main__":
    main()
