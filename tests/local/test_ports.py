from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from atoll.local import ports


def test_two_processes_that_choose_at_once_never_choose_the_same() -> None:
    """The one that chose first has not started its server yet."""
    mine = ports.free_ports(5)
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path[:] = {sys.path!r}\n"
            f"from atoll.local import ports\nports._PORTS = [{mine[0]}, {mine[1]}]\n"
            "try: print(ports.free_ports(1))\nexcept RuntimeError as error: print(error)",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path.cwd(),
    )
    assert found.stdout.startswith("no 1 free ports")


def test_ports_of_one_call_differ() -> None:
    assert len(set(ports.free_ports(20))) == 20
