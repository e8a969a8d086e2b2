"""Entry point of `atoll-webhook`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from atoll.kube import errors
from atoll.kube.config import BadKubeconfig
from atoll.kube.process import run
from atoll.kube.settings import load
from atoll.webhook.process import CannotStart, set_up
from atoll.webhook.settings import WebhookSettings

_EXAMPLE = """\
example:
  atoll-webhook --kubeconfig host.kubeconfig --health-port 8081

The address at which the API server finds the webhook comes from the annotation that
`atollctl init` left on MutatingWebhookConfiguration atoll; the webhook registers itself
there once it answers.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the webhook until a signal stops it."""
    about = "Admission server: defaults and checks workloads and queues, and suspends bindings."
    settings = load(WebhookSettings, "webhook", about, argv, epilog=_EXAMPLE)
    try:
        run("webhook", settings, lambda process: set_up(process, settings))
    except (CannotStart, BadKubeconfig, errors.ApiError) as error:
        sys.exit(f"atoll-webhook: {error}")


if __name__ == "__main__":
    main()
