"""Which policy a workload follows, and when its suspend switch moves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.control import objects, policies
from atoll.control.caches import Caches
from atoll.control.objects import BindingObject
from atoll.control.suspend_switches import should_suspend
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS
from atoll.model.objects import Full, Meta
from atoll.model.policies import (
    MOST_SELECTING,
    Claim,
    PolicyObject,
    TooMany,
    claim_metadata,
    claim_of,
    decode_policy,
    suspended_on,
)
from atoll.model.queue_object import QueueObject
from tests.kube.servers import client

Json = dict[str, Any]
JOB = Full(Meta(name="train", namespace="team-a", labels={"size": "big"}), {})
ANY: Json = {"apiVersion": "batch/v1", "kind": "Job"}


def policy(name: str, *selectors: Json, priority: int = 0, namespace: str = "", **spec: Any) -> PolicyObject:
    body = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"resourceSelectors": list(selectors) or [ANY], "priority": priority, **spec},
    }
    return decode_policy(msgspec.json.encode(body))


def caches(*found: PolicyObject, default: str = "") -> Caches:
    made = Caches(client(9))
    notes = {keys.DEFAULT_POLICY: default} if default else {}
    made.queues.put("q", QueueObject(metadata=Meta(name="q", annotations=notes)))
    for each in found:
        (made.policies if each.metadata.namespace else made.cluster_policies).put(each.metadata.key, each)
    return made


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


def test_more_policies_than_are_compared_are_refused_where_they_may_select_a_workload() -> None:
    many = [policy(f"p{number}", namespace="team-a") for number in range(MOST_SELECTING + 1)]
    with pytest.raises(TooMany, match=f"{MOST_SELECTING} are compared at most"):
        policies.choose(caches(*many), BATCH_JOBS, JOB, "q")
    elsewhere = [policy(f"e{number}", {**ANY, "name": f"j{number}"}, namespace="team-a") for number in range(200)]
    assert policies.choose(caches(*elsewhere, *many[:1]), BATCH_JOBS, JOB, "q") is many[0]


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


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        pytest.param([policy("b", priority=9)], "a", id="a higher priority alone changes nothing"),
        pytest.param([policy("b", priority=9, preemption="Always")], "b", id="one that preempts does"),
        pytest.param([policy("b", preemption="Always")], "a", id="but not of the same priority"),
        pytest.param([policy("b", namespace="team-a", priority=-1)], "a", id="nor the namespace's alone"),
        pytest.param(
            [policy("b", namespace="team-a", priority=-1, preemption="Always")],
            "b",
            id="which preempts the cluster's whatever its priority",
        ),
        pytest.param([policy("b", NOBODY, priority=9, preemption="Always")], "a", id="nor one of other workloads"),
    ],
)
def test_a_claim_holds_until_it_is_preempted(found: list[PolicyObject], chosen: str) -> None:
    claim = Claim("", "a")
    outcome = policies.choose(caches(policy("a", priority=1), *found), BATCH_JOBS, JOB, "q", claim)
    assert outcome is not None
    assert outcome.metadata.name == chosen


def test_a_policy_of_the_cluster_never_preempts_the_namespaces() -> None:
    own, other = policy("a", namespace="team-a"), policy("b", priority=9, preemption="Always")
    outcome = policies.choose(caches(own, other), BATCH_JOBS, JOB, "q", Claim("team-a", "a"))
    assert outcome is own


@pytest.mark.parametrize("gone", [[], [policy("a", NOBODY)]], ids=["it was deleted", "it selects the workload no more"])
def test_a_claim_ends_with_its_policy(gone: list[PolicyObject]) -> None:
    outcome = policies.choose(caches(policy("b"), *gone), BATCH_JOBS, JOB, "q", Claim("", "a"))
    assert outcome is not None
    assert outcome.metadata.name == "b"


@pytest.mark.parametrize("namespace", ["", "team-a"])
def test_what_is_written_of_a_claim_says_who_has_it(namespace: str) -> None:
    labels, notes = claim_metadata(policy("a", namespace=namespace))
    written = {key: value for key, value in notes.items() if value is not None}
    assert claim_of(written) == Claim(namespace, "a")
    assert [value for value in labels.values() if value] == ["uid-a"]
    labels, notes = claim_metadata(None)
    assert not any([*labels.values(), *notes.values()])


@pytest.mark.parametrize(
    ("suspension", "members"),
    [
        ({}, []),
        ({"dispatching": True}, ["*"]),
        ({"dispatching": False}, []),
        ({"dispatchingOnClusters": {"clusterNames": ["b", "a"]}}, ["a", "b"]),
    ],
)
def test_members_to_which_a_policy_sends_nothing(suspension: Json, members: list[str]) -> None:
    assert suspended_on(policy("a", suspension=suspension)) == members
    assert suspended_on(None) == []
