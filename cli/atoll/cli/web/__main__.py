"""The process `atoll-web`: pages for users with their own tokens; it has no rights of its own."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.cli.web.settings import WebSettings
from atoll.kube import config, process
from atoll.kube.process import Process
from atoll.kube.settings import load


async def setup(running: Process, settings: WebSettings) -> None:
    """Listen, and add the sweeper of users who have gone.

    Raises:
        BadKubeconfig: the kubeconfig names no host.
    """
    from atoll.cli.web.site import Site
    from atoll.cli.web.tokens import Tokens, without_credentials

    users = Tokens(without_credentials(await config.access(settings.kubeconfig or None)), settings)
    runner = await Site(users, settings.streams).listen(host=settings.address, port=settings.port)
    running.stack.push_async_callback(runner.cleanup)
    running.add_task("users", users.sweep())


def main(argv: Sequence[str] | None = None) -> None:
    """Console script `atoll-web`."""
    settings = load(
        WebSettings,
        "web",
        "Serves pages to users with their own tokens.",
        argv,
        epilog="Example: atoll-web --names atoll.example.org --address 0.0.0.0 --kubeconfig /etc/atoll/host.yaml",
    )
    process.run("web", settings, lambda running: setup(running, settings))


if __name__ == "__main__":
    main()
