"""The command tree of `atollctl`; a call builds its own part only, as all of it takes as long as a command."""

from __future__ import annotations

import copy
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from atoll.cli import errors
from atoll.cli.options import AnywhereGroup, Settings, hoisted

NAMES = {"kubectl-atoll": "kubectl atoll"}
"""Program file -> how its user calls it."""
_COMPLETION = ("_ATOLLCTL_COMPLETE", "_KUBECTL ATOLL_COMPLETE")
"""In the environment when a shell asks for completions."""


@dataclass(frozen=True, slots=True)
class _Entry:
    module: str
    function: str = "app"
    """`app` is a group of commands."""
    epilog: str = ""
    """Empty where the module has one."""


COMMANDS = {
    "init": _Entry(
        "installing",
        "init",
        "Example: atollctl init --kubeconfig host.yaml --out credentials; atollctl init --dry-run -o yaml;"
        " atollctl init --enable-namespace research=labelled;"
        " atollctl init --embedded --image registry.example.org/atoll:0.1.0",
    ),
    "join": _Entry(
        "installing",
        "join",
        "Example: atollctl join east --member-kubeconfig east.yaml --region eu-1 --label gpu=h100 --dry-run; atollctl"
        " join east --cluster-profile fleet/east-1 --access-command gke-gcloud-auth-plugin",
    ),
    "member": _Entry("members"),
    "render": _Entry("rendering"),
    "hooks": _Entry("hooks"),
    "unjoin": _Entry(
        "installing",
        "unjoin",
        "Example: atollctl unjoin east --member-kubeconfig east.yaml; atollctl unjoin lost --force",
    ),
    "uninstall": _Entry(
        "installing",
        "uninstall",
        "Example: atollctl uninstall --dry-run; atollctl uninstall; atollctl uninstall --crds --yes; atollctl uninstall"
        " --embedded --yes",
    ),
    "nodes": _Entry("nodes", "nodes"),
    "available": _Entry("available", "available"),
    "web": _Entry("web.command", "web"),
    "top": _Entry("top", "top"),
    "kinds": _Entry("kinds", "kinds"),
    "submit": _Entry("submit", "submit"),
    "usage": _Entry(
        "records",
        "usage",
        "Example: atollctl usage --by user --month 2026-10 --records s3://accounting/atoll --prices prices.yaml -o csv;"
        " atollctl usage --by member --since 7d -A; atollctl usage --queue lab",
    ),
    "efficiency": _Entry(
        "records",
        "efficiency",
        "Example: atollctl efficiency --by workload --since 7d; atollctl efficiency --by queue -A -o csv",
    ),
    "history": _Entry(
        "records",
        "history",
        "Example: atollctl history -n research; atollctl history --user ann --outcome Failed,Evicted --since 30d"
        " --records /srv/records -o json",
    ),
    "preemptions": _Entry(
        "records", "preemptions", "Example: atollctl preemptions -A; atollctl preemptions --month 2026-10 -o csv"
    ),
    "explain": _Entry(
        "explain", "explain", "Example: atollctl explain vcjob/train -n research; atollctl explain train -o json"
    ),
    "what-if": _Entry("what_if", "what_if"),
    "simulate": _Entry("simulate", "simulate"),
    "version": _Entry("versions", "version", "Example: atollctl version -o json; atollctl --version"),
    "local": _Entry("local"),
    "queue": _Entry("queues"),
    "job": _Entry("jobs"),
    "cluster": _Entry("clusters"),
    "cordon": _Entry("clusters", "cordon", "Example: atollctl cordon east   # as atollctl cluster cordon"),
    "uncordon": _Entry("clusters", "uncordon", "Example: atollctl uncordon east   # as atollctl cluster uncordon"),
    "drain": _Entry(
        "clusters",
        "drain",
        "Example: atollctl drain east --one-by-one --deadline 30m   # as atollctl cluster drain",
    ),
    "topology": _Entry("topology"),
    "devices": _Entry("devices"),
    "import": _Entry("importing"),
}
"""What follows the program's name -> where it is."""


def tree(words: Sequence[str] = ()) -> typer.Typer:
    """The commands.

    Args:
        words: of a command line without its global options; only what they name is built. All where they name nothing.
    """
    app = typer.Typer(
        cls=AnywhereGroup,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Batch federation for Kubernetes: queues, gangs and members at a glance.",
        epilog="Examples: atollctl local up | atollctl queue list | atollctl explain vcjob/train -n research",
    )
    app.callback(invoke_without_command=True)(root)
    named = [*words[:1]] if words and words[0] in COMMANDS else list(COMMANDS)
    for name in named:
        entry = COMMANDS[name]
        module = importlib.import_module(f"atoll.cli.{entry.module}")
        found = getattr(module, entry.function)
        if entry.function == "app":
            app.add_typer(_narrowed(found, words[1:2]), name=name)
        else:
            app.command(name, epilog=entry.epilog or module.EPILOG)(found)
    return app


def _narrowed(group: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """The group with the one command that is named; as it is where there is none of that name."""
    named = [each for each in group.registered_commands if [_name_of(each)] == [*words]]
    if not named:
        return group
    narrowed = copy.copy(group)
    narrowed.registered_commands = named
    return narrowed


def _name_of(command: Any) -> str:
    return str(command.name or command.callback.__name__)


def root(
    ctx: typer.Context,
    kubeconfig: Annotated[str | None, typer.Option(help="Kubeconfig of the host (default: $KUBECONFIG).")] = None,
    context: Annotated[str | None, typer.Option(help="Context in the kubeconfig.")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace of the workload.")] = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="List all namespaces.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print versions, the host's as well, and exit.")] = False,
) -> None:
    """Take the global options; they may stand anywhere on the command line."""
    ctx.obj = Settings(kubeconfig, context, namespace, all_namespaces)
    if version:
        from atoll.cli import versions

        versions.show(ctx.obj)
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        ctx.fail("Missing command.")


def main() -> None:
    """Entry point of `atollctl` and `kubectl-atoll`."""
    program = Path(sys.argv[0]).name
    completes = any(name in os.environ for name in _COMPLETION)
    try:
        tree(() if completes else hoisted(sys.argv[1:])[1])(prog_name=NAMES.get(program, "atollctl"))
    except Exception as error:
        errors.fail(error)
