"""What `init` left for the webhook: where API servers find it, and which CAs they trust.

The webhook writes the CAs and nothing else; the rest of its configuration is `init`'s (`atoll.install.registration`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from atoll.model import keys

Json = dict[str, Any]


def trusting(configuration: Mapping[str, Any], bundle: str) -> list[Json]:
    """The JSON patch by which all webhooks of a configuration trust this bundle; it tests that they are those."""
    operations: list[Json] = []
    for index, entry in enumerate(configuration.get("webhooks") or ()):
        operations += [
            {"op": "test", "path": f"/webhooks/{index}/name", "value": entry["name"]},
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle},
        ]
    return operations


def client_config_of(configuration: Json) -> Json:
    """The address that the installer left on a configuration.

    Raises:
        ValueError: there is none, or it can't be read.
    """
    text = ((configuration.get("metadata") or {}).get("annotations") or {}).get(keys.CLIENT_CONFIG)
    if not text:
        raise ValueError(f"annotation {keys.CLIENT_CONFIG} is missing")
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ValueError(f"annotation {keys.CLIENT_CONFIG} is no JSON object: {text}") from error


def names_of(client_config: dict[str, Any]) -> list[str]:
    """The names by which the API server calls the webhook of a client config.

    The config is `{url}` or `{service}`.

    Raises:
        ValueError: it has neither.
    """
    if client_config.get("url"):
        host = urlsplit(str(client_config["url"])).hostname
        if host:
            return [host]
    service = client_config.get("service") or {}
    name, namespace = service.get("name"), service.get("namespace")
    if not name or not namespace:
        raise ValueError(
            'neither a url such as {"url": "https://127.0.0.1:9443"} nor a service with name and namespace'
        )
    return [name, f"{name}.{namespace}", f"{name}.{namespace}.svc"]
