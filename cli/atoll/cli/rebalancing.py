"""`atollctl member rebalance`: a look of the descheduler, from the terminal, that moves nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import NoHeaders
from atoll.cli.printing import show_table


def rebalance(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Needed: only atoll-descheduler moves pods.")] = False,
    policy: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME", help="ConfigMap with the DeschedulerPolicy.")
    ] = "atoll-system/atoll-descheduler",
    prometheus: Annotated[
        str, typer.Option(metavar="URL", help="Ask here, such as a forwarded port, not at the policy's address.")
    ] = "",
    member_kubeconfig: Annotated[
        Path | None, typer.Option(help="Kubeconfig of the cluster. Default: $KUBECONFIG.", exists=True, dir_okay=False)
    ] = None,
    member_context: Annotated[str | None, typer.Option(help="Context in that kubeconfig.")] = None,
    no_headers: NoHeaders = False,
) -> None:
    """Show which pods the descheduler would move in this cluster now, and why all others stay."""
    if not dry_run:
        raise CommandError("atoll-descheduler moves pods; add --dry-run to see what it would do now", USAGE)
    from atoll.agent.descheduler.cluster import Cluster
    from atoll.agent.descheduler.looks import Looks, Outcome
    from atoll.agent.descheduler.rules import Rules
    from atoll.agent.descheduler.settings import DeschedulerSettings, PrometheusSettings
    from atoll.kube.transport import ApiServer

    try:
        # A terminal gets its answer from one look, not from three.
        settings = DeschedulerSettings(
            policy=policy, dry_run="on", rules=Rules(looks=1), prometheus=PrometheusSettings(address=prometheus)
        )
    except ValueError as error:
        raise CommandError(str(error), USAGE) from error

    async def work() -> Outcome:
        async with await ApiServer.from_kubeconfig(member_kubeconfig, member_context, user_agent="atollctl") as member:
            cluster = Cluster(member, policy)
            watching = asyncio.create_task(cluster.run())
            try:
                await cluster.wait()
                return await Looks(member, cluster, settings).once()
            finally:
                watching.cancel()

    outcome = asyncio.run(work())
    if outcome.problem:
        raise CommandError(outcome.problem)
    found = outcome.plan
    rows = [(each.key, each.node, each.target, each.reason) for each in found.moves]
    rows += [(skip.about.removeprefix("pod "), "", "stays", skip.reason) for skip in found.skips]
    show_table(("POD", "FROM", "TO", "REASON"), rows, no_headers=no_headers)
