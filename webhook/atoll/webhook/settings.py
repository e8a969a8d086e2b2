"""Settings of `atoll-webhook`."""

from __future__ import annotations

from typing import Annotated

from atoll.kube.authority import CA_LIFE, LEAF_LIFE, SETTLE
from atoll.kube.settings import Health, ProcessSettings
from atoll.model.settings import Section, number, seconds, words


class Certificates(Section, frozen=True):
    """The webhook's own CA and its leaves; all three must go together, see docs/operations.md."""

    leaf: Annotated[
        float,
        seconds("Life of a serving certificate, renewed after a third of it.", above=0, flag="--leaf-seconds"),
    ] = LEAF_LIFE.total_seconds()
    ca: Annotated[
        float,
        seconds("Life of the CA in Secret atoll-webhook-ca, rotated after half of it.", above=0, flag="--ca-seconds"),
    ] = CA_LIFE.total_seconds()
    settle: Annotated[
        float,
        seconds(
            "How long API servers are told of a CA before it is used: they learn of it by a watch, and no answer"
            " says when they have.",
            above=0,
            flag="--settle-seconds",
        ),
    ] = SETTLE.total_seconds()
    again: Annotated[float, seconds("Until a round that the API server did not answer is tried again.", above=0)] = 1.0


class ReviewSettings(Section, frozen=True):
    """Answers to reviews."""

    settle: Annotated[
        float,
        seconds(
            "That a refusal waits for its caches to show what was made a moment before; below the 5 s that an API"
            " server waits."
        ),
    ] = 0.5
    settle_status: Annotated[
        float, seconds("The same where it depends on the status of a queue, which the dispatcher writes once a second.")
    ] = 3.0
    cut: Annotated[float, seconds("That a request under way may still take at the very end.")] = 2.0
    last_accepted: Annotated[
        float, seconds("For which what was accepted in the last moment may take to its handshake.")
    ] = 0.5


class WebhookSettings(ProcessSettings, frozen=True):
    """All of `atoll-webhook`."""

    health: Health = Health(port=8081)
    port: Annotated[
        int, number("Port of the HTTPS server; 0: the one of its URL, or 9443.", least=0, most=65535, flag="--port")
    ] = 0
    host: Annotated[
        str, words("Address that it listens on; by default loopback if its URL is, else all.", flag="--host")
    ] = ""
    linger: Annotated[
        float,
        seconds(
            "After SIGTERM in which it still serves, not ready any more, before it drains: Endpoints of a Service"
            " follow readiness within a second or two, and a kubelet asks for it every few seconds.",
            flag="--linger-seconds",
        ),
    ] = 5.0
    certificates: Certificates = Certificates()
    reviews: ReviewSettings = ReviewSettings()
