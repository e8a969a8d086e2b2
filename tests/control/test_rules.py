"""Which rules of a namespace go to members: the oldest, within a bound of number and size."""

from __future__ import annotations

import pytest

from atoll.control.caches import Caches
from atoll.control.rules import Rules
from atoll.control.settings import RuleSettings
from atoll.model import keys
from atoll.model.apiresource import LIMIT_RANGES, NETWORK_POLICIES, ApiResource
from atoll.model.objects import Full, Meta
from tests.control.recorders import Told
from tests.kube.servers import client


@pytest.mark.parametrize(
    ("settings", "there", "told"),
    [
        pytest.param(RuleSettings(), ["limits", "new", "old", "wide"], [], id="all within the bound"),
        pytest.param(RuleSettings(most=2), ["limits", "old"], ["wide"], id="the oldest where there are too many"),
        pytest.param(RuleSettings(size=900), ["limits", "old"], ["wide"], id="up to the first that is too large"),
        pytest.param(RuleSettings(size=1), [], ["old"], id="none where the oldest is too large"),
    ],
)
async def test_the_oldest_rules_go_along_and_the_first_beyond_is_told_of(
    settings: RuleSettings, there: list[str], told: list[str]
) -> None:
    caches, recorder = Caches(client(9)), Told()

    def put(kind: ApiResource, name: str, day: int, text: str = "") -> None:
        created = f"2026-01-0{day}T00:00:00Z"
        metadata = Meta(name=name, namespace="n", uid=name, creation_timestamp=created)
        caches.rules[kind].put(f"n/{name}", Full(metadata, {"spec": {"podSelector": {"matchLabels": {"a": text}}}}))

    put(NETWORK_POLICIES, "new", 4)
    put(NETWORK_POLICIES, "wide", 3, "x" * 1000)
    put(NETWORK_POLICIES, "old", 1)
    put(LIMIT_RANGES, "limits", 2)
    namespace = Meta(name="n", annotations={keys.PROPAGATE: "networkpolicies,limitranges"})
    rules = Rules(caches, recorder, settings=settings)
    assert [each["metadata"]["name"] for each in rules.of(namespace)] == there
    assert recorder.about == [(name, "NotPropagated") for name in told]
