"""Names of container images in their parts: `registry/repository:tag@digest`."""

from __future__ import annotations

import re
from typing import NamedTuple

LEAST = 23 * 1024 * 1024
"""Bytes below which it makes no difference whether a node has an image, as in kube-scheduler."""
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}")


class Image(NamedTuple):
    """An image by its parts; absent ones are empty."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        name = f"{self.registry}/{self.repository}" if self.registry else self.repository
        return name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def parse(text: str) -> Image:
    """The parts of an image's name.

    What stands before the first slash is a registry where it has a dot or a port, or is `localhost`.
    """
    name, _, digest = text.partition("@")
    path, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        path, tag = name, ""
    first, slash, rest = path.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return Image(first, rest, tag, digest)
    return Image("", path, tag, digest)


def on_node(text: str) -> str:
    """The name by which a node lists the image; what else nodes call it is not guessed, as in kube-scheduler."""
    return text if text.rfind(":") > text.rfind("/") else f"{text}:latest"


def changed(text: str, component: str, operator: str, value: str) -> str:
    """The image with one part of it changed, as Karmada's image overriders do.

    Args:
        text: the image.
        component: Registry, Repository or Tag; Tag is the digest where it has no tag.
        operator: add appends to the part, replace writes it, remove takes it away.
        value: that is appended or written.

    Raises:
        ValueError: the result names no image.
    """
    image = parse(text)
    if component == "Tag":
        tagged = image.tag or not image.digest
        now = _written(image.tag if tagged else image.digest, operator, value)
        if operator == "remove":
            image = image._replace(tag="") if tagged else image._replace(digest="")
        elif _TAG.fullmatch(now):
            # A digest names other contents than the tag now does.
            image = image._replace(tag=now, digest="")
        elif _DIGEST.fullmatch(now):
            image = image._replace(tag="", digest=now)
        else:
            raise ValueError(f"{now!r} is neither a tag nor a digest")
    elif component == "Registry":
        image = image._replace(registry=_written(image.registry, operator, value))
    else:
        image = image._replace(repository=_written(image.repository, operator, value))
    if not image.repository:
        raise ValueError(f"image {text!r} would have no repository")
    return str(image)


def _written(there: str, operator: str, value: str) -> str:
    return {"add": there + value, "replace": value, "remove": ""}[operator]
