"""An agent that starts while its member's API server comes back asks until it is answered."""

from __future__ import annotations

import pytest
from aiohttp import web

from atoll.kube import schedulers
from tests.kube.servers import serving


@pytest.mark.parametrize("there", [True, False], ids=["kube-scheduler runs in the member", "it does not"])
async def test_a_refusal_is_no_answer(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedulers, "AGAIN", 0.01)
    answers = [401, 403, 200 if there else 404]

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Lease"}, status=answers.pop(0))

    async with serving(answer) as member:
        assert await schedulers.asks_until_told(member) is there
    assert not answers
