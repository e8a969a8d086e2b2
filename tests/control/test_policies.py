"""Which policy a workload follows, and when its suspend switch moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from atoll.control import objects, policies
from atoll.control.caches import Caches
from atoll.control.holds import should_suspend
from atoll.control.objects import BindingObject
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS
from atoll.model.objects import Full, Meta
from atoll.model.policies import PolicyObject, decode_policy

Json = dict[str, Any]
JOB = Full(Meta(name="train", namespace="team-a", labels={"size": "big"}), {})
ANY: Json = {"apiVersion": "batch/v1", "kind": "Job"}


def policy(name: str, *selectors: Json, priority: int = 0, namespace: str = "") -> PolicyObject:
    body = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"resourceSelectors": list(selectors) or [ANY], "priority": priority},
    }
    return decode_policy(msgspec.json.encode(body))


class Store(dict[str, Any]):
    """A cache that nothing keeps."""

    def __iter__(self) -> Any:
        return iter(self.values())


def caches(*found: PolicyObject, default: str = "") -> Caches:
    queue = SimpleNamespace(metadata=Meta(name="q", annotations={keys.DEFAULT_POLICY: default} if default else {}))
    store = {
        "policies": Store({each.metadata.key: each for each in found if each.metadata.namespace}),
        "cluster_policies": Store({each.metadata.key: each for each in found if not each.metadata.namespace}),
        "queues": Store({"q": queue}),
    }
    return cast(Caches, SimpleNamespace(**store))


NOBODY: Json = {**ANY, "name": "nobody"}


@pytest.mark.parametrize(
    ("found", "default", "chosen"),
    [
        pytest.param([], "", None, id="none: all members"),
        pytest.param([policy("a", namespace="team-b")], "", None, id="none of another namespace"),
        pytest.param([policy("a", namespace="team-a"), policy("b", priority=9)], "", "a", id="the namespace's wins"),
        pytest.param([policy("a", NOBODY, namespace="team-a"), policy("b")], "", "b", id="then that of all namespaces"),
        pytest.param([policy("b"), policy("c", NOBODY)], "c", "b", id="before the queue's default"),
        pytest.param([policy("c", NOBODY)], "c", "c", id="then the queue's default, whatever it selects"),
        pytest.param(
            [policy("d", NOBODY, namespace="team-b")], "team-b/d", "d", id="which may be in any namespace by its name"
        ),
        pytest.param([], "gone", None, id="a default that does not exist is none"),
        pytest.param([policy("a"), policy("b", priority=1)], "", "b", id="the higher priority"),
        pytest.param([policy("a"), policy("b", {**ANY, "name": "train"})], "", "b", id="the one that names it"),
        pytest.param(
            [policy("a"), policy("b", {**ANY, "labelSelector": {"matchLabels": {"size": "big"}}})],
            "",
            "b",
            id="the one that selects its labels",
        ),
        pytest.param([policy("b"), policy("a")], "", "a", id="the first name"),
        pytest.param([policy("b", {**ANY, "namespace": "team-b"})], "", None, id="none for another namespace"),
    ],
)
def test_the_policy(found: list[PolicyObject], default: str, chosen: str | None) -> None:
    outcome = policies.choose(caches(*found, default=default), BATCH_JOBS, JOB, "q")
    assert (outcome.metadata.name if outcome else None) == chosen


def binding(*conditions: str, suspended: bool = False) -> BindingObject:
    body = {
        "metadata": {"name": "b"},
        "spec": {"suspension": {"scheduling": suspended}},
        "status": {"conditions": [{"type": each, "status": "True"} for each in conditions]},
    }
    return objects.decode_binding(msgspec.json.encode(body))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param(binding(suspended=True), True, id="it waits"),
        pytest.param(binding("Bound", suspended=True), True, id="it is being taken back"),
        pytest.param(binding("Scheduled"), None, id="it is dispatched and its pods have no nodes yet"),
        pytest.param(binding("Bound"), False, id="it is bound"),
        pytest.param(binding("Finished"), False, id="it ended before anybody saw it bound"),
    ],
)
def test_the_suspend_switch(given: BindingObject, wanted: bool | None) -> None:
    assert should_suspend(given) is wanted
