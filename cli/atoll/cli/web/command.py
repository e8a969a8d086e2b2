"""The command: pages on loopback, with the kubeconfig of the caller."""

from __future__ import annotations

from typing import Annotated

import typer

from atoll.cli.errors import CommandError
from atoll.cli.options import settings

EPILOG = (
    "Example: atollctl web; atollctl web -n research --port 8080; ssh -L 8410:127.0.0.1:8410 HOST   # to one on HOST"
)


def web(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 for any free one.")] = 8410,
) -> None:
    """Serve pages on this machine: members, queues, waiting workloads, one workload; with the rights of the kubeconfig.

    Only a browser that opens the printed address gets in. Nothing can be changed there.
    """
    try:
        import jinja2 as jinja2
    except ModuleNotFoundError:
        raise CommandError("the page needs the package jinja2: pip install 'atoll[web]'") from None
    from atoll.cli.connection import call
    from atoll.cli.web import local
    from atoll.kube import logs

    logs.configure("error", process="atollctl")
    options = settings(ctx)
    try:
        call(options, lambda host: local.serve(host, options.namespace, options.one_namespace, port, print))
    except KeyboardInterrupt:
        print("stopped")
