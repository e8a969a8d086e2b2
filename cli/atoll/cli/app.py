"""The command tree of `atollctl`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from atoll.cli import clusters, errors, explain, installing, jobs, local, queues, simulate, top, what_if
from atoll.cli.options import AnywhereGroup, DataFormat, DataOutput, Settings

NAMES = {"kubectl-atoll": "kubectl atoll"}
"""Program file -> how its user calls it."""

app = typer.Typer(
    cls=AnywhereGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Batch federation for Kubernetes: queues, gangs and members at a glance.",
    epilog="Examples: atollctl local up | atollctl queue list | atollctl explain vcjob/train -n research",
)
app.add_typer(local.app, name="local")
app.command(epilog="Example: atollctl init --kubeconfig host.yaml --out credentials")(installing.init)
app.command(epilog="Example: atollctl join east --member-kubeconfig east.yaml --region eu-1 --label gpu=h100")(
    installing.join
)
app.command(epilog="Example: atollctl unjoin east --member-kubeconfig east.yaml; atollctl unjoin lost --force")(
    installing.unjoin
)
app.command(epilog="Example: atollctl uninstall --dry-run; atollctl uninstall; atollctl uninstall --crds --yes")(
    installing.uninstall
)
app.add_typer(queues.app, name="queue")
app.add_typer(jobs.app, name="job")
app.add_typer(clusters.app, name="cluster")
app.command(epilog=top.EPILOG)(top.top)
app.command(epilog="Example: atollctl explain vcjob/train -n research; atollctl explain train -o json")(explain.explain)

app.command("what-if", epilog=what_if.EPILOG)(what_if.what_if)
app.command(epilog=simulate.EPILOG)(simulate.simulate)


@app.callback()
def root(
    ctx: typer.Context,
    kubeconfig: Annotated[str | None, typer.Option(help="Kubeconfig of the host (default: $KUBECONFIG).")] = None,
    context: Annotated[str | None, typer.Option(help="Context in the kubeconfig.")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace of the workload.")] = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="List all namespaces.")] = False,
) -> None:
    """Take the global options; they may stand anywhere on the command line."""
    ctx.obj = Settings(kubeconfig, context, namespace, all_namespaces)


@app.command(epilog="Example: atollctl version -o json")
def version(output: DataOutput = None) -> None:
    """Print the version of this program."""
    from atoll.cli.printing import show_data
    from atoll.model.release import VERSION

    content = {"client": {"atoll": VERSION, "python": sys.version.split()[0]}}
    if output is DataFormat.JSON or output is DataFormat.YAML:
        show_data(content, output)
    else:
        print(f"atollctl {VERSION}")


def main() -> None:
    """Entry point of `atollctl` and `kubectl-atoll`."""
    program = Path(sys.argv[0]).name
    try:
        app(prog_name=NAMES.get(program, "atollctl"))
    except Exception as error:
        errors.fail(error)
