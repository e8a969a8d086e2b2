"""`python -m tests.forks FD`: runs Atoll's programs in forks of one process that has imported them.

Imports take nine tenths of what a short command takes, and a second of each process of a federation. A fork has
descriptors, environment and memory of its own, so that a program changes nothing for the next one. `tests.forked` starts
this and asks it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import pkgutil
import random
import runpy
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
"""A command that runs longer is ended by a signal, and has no exit code."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def preload() -> None:
    """Import what commands import as they run."""
    for package in (atoll.cli, atoll.view, atoll.kube):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    app.tree()
    freeze()


def freeze() -> None:
    """A collection in a fork would copy every page that it marks."""
    gc.collect()
    gc.freeze()


def code_of(run: Any) -> int:
    """The exit code of a program that ends as Python programs do."""
    try:
        run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def become(asked: dict[str, Any], out: int, errors: int) -> int:
    """In a fork: run the program with these descriptors; its exit code."""
    for each in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(each, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    random.seed()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, given in enumerate((nothing, out, errors)):
        os.dup2(given, number)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    module, words = asked["module"], asked["words"]
    if module is None:
        signal.alarm(DEADLINE_S)
        sys.argv = ["atollctl", *words]
        code = code_of(app.main)
    else:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        sys.argv = [module, *words]
        # It runs as `__main__` now.
        del sys.modules[f"{module}.__main__"]
        code = code_of(lambda: runpy.run_module(module, run_name="__main__", alter_sys=True))
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    return code


class Forks:
    """The forks that run, each with the pipe that gets its process id and its exit code, a line each."""

    def __init__(self) -> None:
        self._results: dict[int, int] = {}

    def start(self, asked: dict[str, Any], out: int, errors: int, result: int) -> None:
        """Fork for a request."""
        if (module := asked["module"]) and f"{module}.__main__" not in sys.modules:
            importlib.import_module(f"{module}.__main__")
            freeze()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os._exit(become(asked, out, errors))
        # The one that asks may signal the group at once.
        with suppress(PermissionError):
            os.setpgid(pid, pid)
        self._results[pid] = result
        with suppress(BrokenPipeError):
            os.write(result, b"%d\n" % pid)
        os.close(out)
        os.close(errors)

    def reap(self) -> None:
        """Report exit codes, negative ones of those that a signal ended."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                result = self._results.pop(ended[0])
                with suppress(BrokenPipeError):
                    os.write(result, b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
                os.close(result)


def serve(asks: socket.socket) -> None:
    """Fork for each request, until the other end is closed."""
    forks = Forks()
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([asks.fileno(), ended], [], [])
        if ended in ready:
            os.read(ended, 512)
            forks.reap()
        if asks.fileno() in ready:
            request, given, _, _ = socket.recv_fds(asks, LARGEST, 3)
            if not request:
                return
            forks.start(orjson.loads(request), *given)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Libraries of other languages may have threads of theirs, which no fork has and no program misses.
    warnings.simplefilter("ignore", DeprecationWarning)
    preload()
    with socket.socket(fileno=int(sys.argv[1])) as asks:
        serve(asks)


if __name__ == "__main__":
    main()
