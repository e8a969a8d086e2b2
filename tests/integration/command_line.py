"""Runs `atollctl` as a user would."""

from __future__ import annotations

import sys

from tests import atollctl as commands
from tests.integration.federation import Site


def argv(*args: str) -> list[str]:
    """For what is about the process itself; a command that merely runs takes a fortieth of it by `atollctl`."""
    return [
        sys.executable,
        "-c",
        f"import sys; sys.path[:] = {sys.path!r}; from atoll.cli.app import main; main()",
        *args,
    ]


async def atollctl(site: Site, *args: str, ok: bool = True) -> str:
    """Run a command; its output, or its error text when it is expected to fail."""
    ran = await commands.atollctl(
        *args, f"--kubeconfig={site.federation.host.kubeconfig}", f"--namespace={site.namespace}"
    )
    assert (ran.code == 0) == ok, f"atollctl {' '.join(args)}: {ran.out}{ran.said}"
    return ran.out if ok else ran.said
