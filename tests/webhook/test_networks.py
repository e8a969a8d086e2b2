"""Plugins whose pods talk to each other, where a policy may divide their Job over members."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.kube.config import Connection
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import CLUSTER_POLICIES, JOBS, NAMESPACES, POLICIES, QUEUES
from atoll.model.objects import decode_meta
from atoll.model.policies import decode_policy
from atoll.webhook import networks, placements, protocol, queues, reviews
from tests.webhook.builders import Json, make_job, make_task
from tests.webhook.reviews import nobody, review

NAMES = "{pod}.{cluster}.{service}.{namespace}.svc.clusterset.local"
DIVIDED: Json = {"replicaScheduling": {}}


def policy(placement: Json, **annotations: str) -> Json:
    selector = {"apiVersion": JOBS.api_version, "kind": JOBS.kind}
    notes = {keys.NETWORK: annotations["network"]} if annotations else {}
    return {
        "metadata": {"name": "spread", "annotations": notes},
        "spec": {"resourceSelectors": [selector], "placement": placement},
    }


def told(job: Json, *policies: Json) -> list[str]:
    """Fields that admission says of what they need."""
    api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    known = networks.Policies(
        Reflector(api, POLICIES, decode_policy), Reflector(api, CLUSTER_POLICIES, decode_policy)
    )  # fmt: skip
    answers = reviews.Reviews(
        Reflector(api, QUEUES, queues.decode), Reflector(api, NAMESPACES, decode_meta), policies=known
    )
    for each in policies:
        known.common.take_line(json.dumps({"type": "ADDED", "object": each}).encode())
    for cache in (known.own, known.common):
        cache.synced.set()
    request = protocol.decode(json.dumps(review(job)).encode())
    return [each.field for each in answers.routes["/validate/jobs"].warn(request) if "reach each other" in each.message]


def job(*names: str, replicas: int = 2, notes: Json | None = None, **task: Any) -> Json:
    made = make_job(make_task(replicas=replicas) | task, plugins={name: [] for name in names})
    made["metadata"]["annotations"] = notes or {}
    return made


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("obj", "policies", "fields"),
    [
        pytest.param(job("pytorch", "svc"), [policy(DIVIDED)], ["svc", "pytorch"], id="a policy that divides"),
        pytest.param(job("env"), [policy(DIVIDED)], [], id="a plugin that needs no network"),
        pytest.param(job("svc"), [], [], id="no policy"),
        pytest.param(job("svc"), [policy({})], [], id="a policy that does not divide"),
        pytest.param(job("svc"), [policy(DIVIDED, network=NAMES)], [], id="a policy that names a network"),
        pytest.param(job("svc"), [policy(DIVIDED, network="x")], ["svc"], id="a network that can't be used"),
        pytest.param(
            job("svc"),
            [policy(DIVIDED | {"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}]})],
            [],
            id="one cluster at most",
        ),
        pytest.param(job("svc", notes={keys.DIVIDED: "2"}), [], ["svc"], id="the Job itself asks for it"),
        pytest.param(job("svc", replicas=1), [policy(DIVIDED)], [], id="a single pod"),
        pytest.param(job("svc", dependsOn={"name": ["a"]}), [policy(DIVIDED)], [], id="a Job that is never divided"),
    ],
)
async def test_what_needs_a_network(obj: Json, policies: list[Json], fields: list[str]) -> None:
    assert told(obj, *policies) == [f"spec.plugins.{name}" for name in fields]


def test_a_network_without_usable_names_is_refused() -> None:
    [problem] = placements.policy_problems(policy(DIVIDED, network="{pod}.net"), "")
    assert (problem.field, "{cluster} is missing" in problem.message) == (
        f"metadata.annotations[{keys.NETWORK}]", True,
    )  # fmt: skip
    assert placements.policy_problems(policy(DIVIDED, network=NAMES), "") == []
