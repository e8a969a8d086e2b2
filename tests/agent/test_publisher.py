"""How often capacity is published: twice a second, and less often where the host takes long for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

import pytest

from atoll.agent.publisher import Publisher
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import ApiResource
from tests.kube.virtual_time import run


class Host:
    """Takes its time for each write."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun: list[float] = []

    async def list(self, resource: ApiResource, namespace: str) -> list[Any]:
        return []

    async def apply(self, resource: ApiResource, obj: Mapping[str, Any], *, field_manager: str) -> dict[str, Any]:
        self.begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.seconds)
        return {}


@pytest.mark.parametrize(
    ("answer", "interval"), [(0.01, 0.5), (0.2, 1.0), (1.5, 2.0)], ids=["quick", "slow", "never rarer than that"]
)
def test_the_interval_follows_the_time_that_an_update_takes(answer: float, interval: float) -> None:
    host, free = Host(answer), iter(range(1000))

    async def publish() -> None:
        publisher = Publisher(cast(ApiServer, host), "east", lambda: {"r": {"free": next(free)}})
        task = asyncio.create_task(publisher.run())
        for _ in range(200):
            publisher.wake()
            await asyncio.sleep(0.05)
        task.cancel()

    run(publish())
    between = [later - earlier for earlier, later in pairwise(host.begun)]
    assert len(between) >= 4
    assert all(each == pytest.approx(interval, abs=0.06) for each in between)
