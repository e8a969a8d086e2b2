"""Settings of `atoll-web`."""

from __future__ import annotations

from typing import Annotated

from atoll.kube.settings import Health, ProcessSettings
from atoll.model.settings import number, seconds, words


class WebSettings(ProcessSettings, frozen=True):
    """Pages for users with their own tokens."""

    names: Annotated[
        str,
        words(
            "Names under which browsers reach it, as their Host header has them, with commas between, such as"
            " atoll.example.org; any other is refused.",
            flag="--names",
            needed=True,
        ),
    ] = ""
    kubeconfig: Annotated[
        str,
        words(
            "Names the host's address and certificate authority; its credentials are not used. By default those of"
            " the pod's service account.",
            flag="--kubeconfig",
        ),
    ] = ""
    address: Annotated[
        str,
        words("Address to listen on. It speaks plain HTTP: a proxy in front of it ends TLS.", flag="--address"),
    ] = "127.0.0.1"
    port: Annotated[int, number("Port to listen on.", most=65535, flag="--port")] = 8411
    users: Annotated[
        int,
        number("Users at once; each has watches of its own, as each has rights of its own.", most=1024, flag="--users"),
    ] = 32
    streams: Annotated[int, number("Open pages that follow changes at once.", most=4096, flag="--streams")] = 64
    session: Annotated[
        float, seconds("How long a pasted token is kept, in memory alone.", above=0, flag="--session-seconds")
    ] = 28800.0
    health: Health = Health(port=8086)
