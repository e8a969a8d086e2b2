"""Rules of webhooks for declared kinds, over two leaderships of one process."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from aiohttp import web

from atoll.control.interception import Interception, rules
from atoll.kinds import declared
from atoll.kube.declared import Declared
from atoll.model import keys
from atoll.model.apiresource import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, WORKLOAD_KINDS
from tests.kinds.builders import workload_kind
from tests.kube.servers import eventually, serving

KIND = declared.kind_of(workload_kind())


class Host:
    """Has one WorkloadKind, and the webhooks with these rules; `answers` holds lists of them back."""

    def __init__(self) -> None:
        self.rules: list[dict[str, Any]] = rules([KIND])
        self.answers = asyncio.Event()
        self.answers.set()
        self.version, self.asked = "2", 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        items: list[dict[str, Any]] = []
        if request.path == WORKLOAD_KINDS.path():
            items = [workload_kind()]
        elif request.path in (MUTATING_WEBHOOKS.path(), VALIDATING_WEBHOOKS.path()):
            self.asked += 1
            await self.answers.wait()
            hooks = [{"name": f"a.{end}", "rules": self.rules} for end in keys.DECLARED_WEBHOOKS]
            items = [
                {"metadata": {"name": keys.WEBHOOKS, "uid": "u", "resourceVersion": self.version}, "webhooks": hooks}
            ]
        if request.method != "GET":
            return web.json_response({"reason": "Forbidden", "message": "not now"}, status=403)
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": self.version}, "items": items})
        answer = web.StreamResponse()
        await answer.prepare(request)
        await asyncio.Event().wait()
        return answer


async def test_the_second_leadership_trusts_no_rules_before_it_has_read_them() -> None:
    """1. A leader reads rules that name the kind. 2. It loses the lead, and they change. 3. It leads again."""
    host = Host()
    async with serving(host.answer) as api:
        kinds = Declared(api, api, ())
        interception = Interception(api, kinds)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(kinds.run())
            leading = group.create_task(interception.run())
            await interception.known.wait()
            assert interception.spread(KIND) == 0
            leading.cancel()
            await asyncio.wait({leading})
            host.answers.clear()
            host.rules, host.version, host.asked = [], "3", 0
            leading = group.create_task(interception.run())
            await eventually(lambda: host.asked == 2)
            assert not interception.known.is_set()
            assert interception.spread(KIND) == math.inf
            host.answers.set()
            await interception.known.wait()
            assert interception.spread(KIND) == math.inf
            for each in (leading, following):
                each.cancel()
