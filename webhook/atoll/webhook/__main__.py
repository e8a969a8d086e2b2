"""Entry point of `atoll-webhook`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from atoll.kube import errors
from atoll.kube.authority import CA_LIFE, LEAF_LIFE, SETTLE
from atoll.kube.config import BadKubeconfig
from atoll.kube.process import arguments, run
from atoll.webhook.process import LINGER_SECONDS, CannotStart, set_up

_EXAMPLE = """\
example:
  atoll-webhook --kubeconfig host.kubeconfig --health-port 8081

The address at which the API server finds the webhook comes from the annotation that
`atollctl init` left on MutatingWebhookConfiguration atoll; the webhook registers itself
there once it answers.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the webhook until it is told to stop."""
    parser = arguments(
        "webhook",
        "Admission server: defaults and checks workloads and queues, and suspends bindings.",
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLE
    parser.add_argument("--port", type=int, help="port of the HTTPS server (default: the one of its URL, or 9443)")
    parser.add_argument("--host", help="address that it listens on (default: loopback if its URL is, else all)")
    seconds = {
        "linger": (LINGER_SECONDS, "time after SIGTERM in which it still serves, not ready any more, before it drains"),
        "leaf": (LEAF_LIFE.total_seconds(), "life of its serving certificates, renewed after a third of it"),
        "ca": (CA_LIFE.total_seconds(), "life of the CA in Secret atoll-webhook-ca, rotated after half of it"),
        "settle": (SETTLE.total_seconds(), "how long API servers are told of a CA before it is used"),
    }
    for name, (default, text) in seconds.items():
        parser.add_argument(
            f"--{name}-seconds", type=_seconds, default=default, metavar="S", help=f"{text} (default: {default:.10g})"
        )
    options = parser.parse_args(argv)
    try:
        run("webhook", options, lambda process: set_up(process, options))
    except (CannotStart, BadKubeconfig, errors.ApiError) as error:
        sys.exit(f"atoll-webhook: {error}")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds")
    return seconds


if __name__ == "__main__":
    main()
