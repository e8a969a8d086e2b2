"""The form of `what-if`: a workload in a few words or as a manifest, and the answer that `atollctl what-if` prints."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import yaml
from aiohttp import web

from atoll.cli import what_if
from atoll.cli.errors import CommandError
from atoll.cli.submission import BadSubmission, Submission, manifest
from atoll.cli.web.page import Page, rendered
from atoll.cli.web.world import World
from atoll.kube.errors import ApiError
from atoll.model import documents
from atoll.model.apiresource import CAPACITIES, QUEUES
from atoll.view import nodes, verdicts

Json = dict[str, Any]

PATH: Final = "/what-if"
_MOST_QUEUES: Final = 500
"""Names that the form suggests."""
_LONGEST: Final = 253
_WORDS: Final = {
    "namespace": "", "queue": "", "workers": "1", "gpus": "0", "gpu_resource": "nvidia.com/gpu", "cpu": "1",
    "memory": "", "time": "", "within": "", "priority_class": "",
}  # fmt: skip
"""Fields of the form in a few words, as `atollctl submit` has them, and their defaults."""


async def page(world: World, fields: Mapping[str, str], *, asks: bool) -> Page:
    """The form with the values of the fields, and the answer where it was sent.

    Raises:
        HTTPBadRequest: a field is longer than any name may be.
    """
    said = {name: fields.get(name, "").strip() or default for name, default in _WORDS.items()}
    if any(len(value) > _LONGEST for value in said.values()):
        raise web.HTTPBadRequest(text=f"a field is longer than {_LONGEST} letters")
    said["namespace"] = said["namespace"] or world.shown
    context: Json = {"fields": said, "manifest": fields.get("manifest", "")}
    if asks:
        context |= await _answered(world, said, context["manifest"])
    return rendered(
        world,
        "What if",
        PATH,
        "what-if.html",
        live=False,
        queues=[each["metadata"]["name"] for each in world.bodies(QUEUES)][:_MOST_QUEUES],
        devices=[name for name in nodes.resources(world.bodies(CAPACITIES)) if "/" in name],
        **context,
    )


async def _answered(world: World, said: Mapping[str, str], text: str) -> Json:
    """What the answer adds to the page: the answer, or the reason why there is none."""
    remarks: list[str] = []
    try:
        workload = _read(text) if text.strip() else _made(said)
        found = await what_if.ask(world.host, workload, said["namespace"], remarks.append)
    except ApiError as error:
        return {"problem": error.said}
    except (CommandError, ValueError) as error:
        return {"problem": str(error)}
    name = what_if.named(workload, said["namespace"])
    first, *lines = verdicts.answer(name, found["status"], time.time()).splitlines()
    made = "" if text.strip() else yaml.safe_dump(workload, sort_keys=False)
    return {
        "starts": bool(found["status"].get("starts")),
        "first": first,
        "lines": lines,
        "remarks": remarks,
        "made": made,
    }


def _read(text: str) -> Json:
    try:
        found = documents.read_yaml(text)
    except documents.BadDocument as error:
        raise CommandError(f"the manifest: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        raise CommandError("a manifest of a workload is wanted")
    return found


def _made(said: Mapping[str, str]) -> Json:
    """The manifest that `atollctl submit` would make; its image and command do not matter here."""
    counts: dict[str, int] = {}
    for name in ("workers", "gpus"):
        if not said[name].isdecimal() or len(said[name]) > 6:
            raise BadSubmission("write a number", **{name: repr(said[name])})
        counts[name] = int(said[name])
    words = {name: value for name, value in said.items() if name not in counts}
    wish = Submission(command=["true"], image="image", name="what-if", **counts, **words)  # type: ignore[arg-type]
    return manifest(wish)
