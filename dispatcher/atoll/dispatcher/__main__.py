"""The process `atoll-dispatcher`: one active, the others stand by."""

from __future__ import annotations

import argparse
from pathlib import Path

from atoll.dispatcher.recording import Recorder
from atoll.dispatcher.shell import Metrics, Shell
from atoll.kube import election, process
from atoll.kube.transport import ApiServer


def main() -> None:
    """Run until a signal or until leadership is lost for good."""
    parser = process.arguments("dispatcher", "Orders suspended bindings by queue and places them on member clusters.")
    election.arguments(parser)
    parser.add_argument(
        "--record", type=Path, help="append all that the core is told and decides to this file (see atoll.sim.replay)"
    )
    parser.epilog = "example: atoll-dispatcher --kubeconfig atoll-dispatcher.kubeconfig --health-port 8083"
    options = parser.parse_args()
    process.run("dispatcher", options, lambda running: _setup(running, options))


async def _setup(running: process.Process, options: argparse.Namespace) -> None:
    host = await ApiServer.from_kubeconfig(
        options.kubeconfig, user_agent="atoll-dispatcher", rate=process.rate_limit(options)
    )
    running.stack.push_async_callback(host.close)
    elector = election.elector(host, "atoll-dispatcher", running.identity, options)
    metrics = Metrics(running.metrics)
    recorder = running.stack.enter_context(Recorder(options.record)) if options.record else None
    shell: Shell | None = None

    async def lead() -> None:
        # Everything is read anew: what an earlier leader decided is on the bindings.
        nonlocal shell
        shell = Shell(host, metrics, recorder=recorder)
        await shell.run()

    def ready() -> bool:
        return shell is not None and shell.synced if elector.leading.is_set() else elector.can_lead

    running.ready_when(ready)
    running.add_task("election", elector.run(lead))


if __name__ == "__main__":
    main()
