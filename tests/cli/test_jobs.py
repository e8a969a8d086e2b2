"""`atollctl job`: the list against a host, and a command that is looked for in vain."""

from __future__ import annotations

import pytest
from aiohttp import web

from atoll.cli import lookup
from atoll.cli.errors import USAGE, CommandError
from atoll.cli.reference import page
from atoll.kube import errors
from tests.cli.command_line import parse
from tests.kube.servers import serving


def allows(*groups: str):
    """A host that lists one job of these groups, and forbids the others."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/apis":
            return web.json_response({"groups": []})
        if request.path.startswith("/api/v1/"):
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        if request.path.split("/")[2] not in groups:
            return web.json_response({"reason": "Forbidden", "message": "jobs is forbidden"}, status=403)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "a"}}]})

    return answer


async def test_who_may_not_list_batch_jobs_sees_volcano_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(allows("batch", "batch.volcano.sh", "apps", "atoll.sh")) as host:
        found = await lookup.listed(host, "n")
    versions = ["batch.volcano.sh/v1alpha1", "batch/v1", "apps/v1", "apps/v1", "atoll.sh/v1alpha1"]
    assert [each["apiVersion"] for each in found] == versions
    assert capsys.readouterr().err == ""
    async with serving(allows("batch.volcano.sh")) as host:
        [found_one] = await lookup.listed(host, "n")
    assert found_one["apiVersion"] == "batch.volcano.sh/v1alpha1"
    assert capsys.readouterr().err.startswith("batch Jobs are left out: jobs is forbidden")
    async with serving(allows("batch")) as host:
        with pytest.raises(errors.Forbidden):
            await lookup.listed(host, "n")


def test_whoever_looks_for_cancel_is_sent_to_delete() -> None:
    context = parse(["job", "cancel", "train", "-f"])
    with pytest.raises(CommandError, match="`atollctl job delete train -f` stops it and removes it") as raised:
        context.command.invoke(context)
    assert raised.value.code == USAGE
    assert "cancel" not in page(), "it is no command of its own"
