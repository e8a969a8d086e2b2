"""Namespaces with `atoll.sh/enabled=labelled`: what names no queue is not Atoll's; and a host that runs work itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.admission import jsonpatch
from atoll.install.registration import configurations
from atoll.kinds import KINDS
from atoll.kube.config import Connection
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import JOBS, NAMESPACES, QUEUES
from atoll.model.objects import decode_meta
from atoll.webhook import protocol, queues, reviews
from atoll.webhook.settings import ReviewSettings
from tests.webhook.reviews import nobody, review

Json = dict[str, Any]
pytestmark = pytest.mark.asyncio

QUEUED = {keys.QUEUE_LABEL: "q"}
OWNER = {"apiVersion": "db.example/v1", "kind": "Database", "name": "orders", "uid": "u", "controller": True}
CHILD_OF_OURS = {**OWNER, "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}


def answers(enabled: str, *, shared: bool = True, runs: tuple[str, ...] = ()) -> reviews.Reviews:
    """Answers for namespace team-a with this label, on a host that runs work itself, or not."""
    api = ApiServer(Connection("http://127.0.0.1:9", None, nobody))
    namespaces, known = Reflector(api, NAMESPACES, decode_meta), Reflector(api, QUEUES, queues.decode)
    profile = {keys.HOST_PROFILE: "shared", **{keys.HOST_RUNS + each: "true" for each in runs}} if shared else {}
    for name, labels in (("team-a", {keys.ENABLED: enabled}), (keys.SYSTEM_NAMESPACE, profile)):
        line = {"type": "ADDED", "object": {"metadata": {"name": name, "labels": labels}}}
        namespaces.take_line(json.dumps(line).encode())
    queue = {"metadata": {"name": "q", "resourceVersion": "1"}, "spec": {}, "status": {"state": "Open"}}
    known.take_line(json.dumps({"type": "ADDED", "object": queue}).encode())
    return reviews.Reviews(known, namespaces, settings=ReviewSettings(settle=0.01))


def workload(labels: Json | None = None, owner: Json | None = None, **spec: Any) -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    metadata: Json = {"name": "web", "namespace": "team-a", "labels": labels or {}}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"metadata": metadata, "spec": {"template": template, **spec}}


OPERATOR = "system:serviceaccount:databases:operator"


def asked(new: Json, old: Json | None, user: str) -> protocol.Request:
    content = review(new, old, "UPDATE" if old else "CREATE")
    content["request"]["userInfo"] = {"username": user}
    return protocol.decode(json.dumps(content).encode())


async def refused(found: reviews.Reviews, route: str, new: Json, old: Json | None = None, *, user: str = "me") -> str:
    request = asked(new, old, user)
    problems = await found.routes[f"/validate/{route}"].validate(request)
    return "; ".join(map(str, problems))


def changes(
    found: reviews.Reviews, route: str, new: Json, old: Json | None = None, *, user: str = "me"
) -> list[jsonpatch.Operation]:
    request = asked(new, old, user)
    assert found.routes[f"/mutate/{route}"].warn(request) == []
    return found.routes[f"/mutate/{route}"].mutate(request)


# -- what the API server asks ------------------------------------------------------------------------------------------


async def test_of_a_labelled_namespace_the_api_server_asks_only_about_what_names_a_queue() -> None:
    for configuration in configurations({"url": "https://127.0.0.1:9443"}, "Q0E="):
        entries = configuration["webhooks"]
        assert len({each["name"] for each in entries}) == len(entries)
        for kind in KINDS:
            route = kind.admission().route
            mine = [each for each in entries if each["clientConfig"]["url"].endswith(f"/{route}")]
            by = {tuple(each["namespaceSelector"]["matchExpressions"][0]["values"]): each for each in mine}
            if kind.resource == JOBS:
                assert [*by] == [("true", "labelled")], "nobody else runs Volcano Jobs on a host"
                continue
            assert [*by] == [("true",), ("labelled",)]
            names = [[each["name"] for each in entry["matchConditions"]] for entry in by.values()]
            assert "names-a-queue" not in names[0]
            assert [each for each in names[1] if each != "names-a-queue"] == names[0]
            assert {each["failurePolicy"] for each in mine} == {"Fail"}


# -- what is answered --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({keys.QUEUE_LABEL: "q"}, id="Volcano's label"),
        pytest.param({keys.KUEUE_QUEUE_LABEL: "q"}, id="Kueue's label"),
    ],
)
async def test_a_batch_job_with_a_queue_label_is_taken_over_in_a_labelled_namespace(labels: Json) -> None:
    found = answers("labelled")
    patch = changes(found, "batch-jobs", workload(labels))
    made = jsonpatch.applied(workload(labels), patch)
    assert made["spec"]["managedBy"] == keys.CONTROLLER
    assert made["metadata"]["labels"][keys.QUEUE_LABEL] == "q"
    assert await refused(found, "batch-jobs", made) == ""


async def test_a_deployment_with_a_queue_label_is_refused_where_the_hosts_controllers_would_run_it_too() -> None:
    new = workload(QUEUED)
    said = await refused(answers("labelled"), "deployments", new)
    assert "own controllers" in said
    assert "without a queue" in said
    assert await refused(answers("labelled", shared=False), "deployments", new) == ""


async def test_what_no_operator_of_the_host_would_run_is_taken_there() -> None:
    found = answers("labelled", runs=("deployments.apps",))
    spec = {"leaderWorkerTemplate": {"size": 1, "workerTemplate": workload()["spec"]["template"]}}
    group = {"metadata": {"name": "web", "namespace": "team-a", "labels": QUEUED}, "spec": spec}
    assert await refused(found, "leaderworkersets", group) == ""
    assert "own controllers" in await refused(found, "deployments", workload(QUEUED))
    assert "own controllers" in await refused(answers("labelled"), "leaderworkersets", group), "by an older init"


async def test_a_deployment_without_one_is_refused_only_where_all_is_atolls_and_that_names_the_way_out() -> None:
    said = await refused(answers("true"), "deployments", workload())
    assert "atoll.sh/enabled=labelled" in said


async def test_a_queue_label_that_comes_later_is_refused_in_words() -> None:
    old = workload()
    new = workload(QUEUED)
    for route in ("deployments", "batch-jobs", "grouped-pods"):
        said = await refused(answers("labelled"), route, new, old)
        assert "when it is created" in said
        assert changes(answers("labelled"), route, new, old) == []
    assert "when it is created" in await refused(answers("true"), "deployments", new, old)
    assert await refused(answers("true", shared=False), "deployments", new, old) == ""


async def test_what_had_its_queue_label_before_its_namespace_opted_in_can_be_changed() -> None:
    old, new = workload(QUEUED), workload({**QUEUED, "x": "y"})
    for route in ("deployments", "batch-jobs"):
        assert await refused(answers("labelled"), route, new, old) == ""


async def test_a_queue_label_that_goes_is_refused_or_put_back() -> None:
    found = answers("labelled", shared=False)
    ours = workload(QUEUED, managedBy=keys.CONTROLLER, suspend=True)
    gone = workload(managedBy=keys.CONTROLLER, suspend=True)
    assert "names no queue" in await refused(found, "batch-jobs", gone, ours)
    [back] = changes(found, "deployments", workload(), workload(QUEUED))
    assert back["value"] == "q"
    theirs = workload(QUEUED)
    assert await refused(found, "batch-jobs", workload(), theirs) == "", "it was never Atoll's"


# -- what controllers of the host make ---------------------------------------------------------------------------------


async def test_what_an_operator_of_the_host_makes_goes_on_where_all_is_atolls() -> None:
    found = answers("true")
    made = workload(owner=OWNER)
    for route in ("deployments", "statefulsets"):
        assert changes(found, route, made, user=OPERATOR) == []
        assert await refused(found, route, made, user=OPERATOR) == ""
    assert "own controllers" in await refused(found, "statefulsets", workload(QUEUED, owner=OWNER), user=OPERATOR)
    alone = answers("true", shared=False)
    assert changes(alone, "statefulsets", made, user=OPERATOR) != [], (
        "on a host of Atoll's own nobody else would run it"
    )


async def test_what_a_controller_makes_for_a_workload_that_atoll_left_alone_goes_on() -> None:
    made = workload(owner=CHILD_OF_OURS)
    for enabled in ("true", "labelled"):
        found = answers(enabled)
        assert changes(found, "batch-jobs", made, user=OPERATOR) == []
        assert await refused(found, "batch-jobs", made, user=OPERATOR) == ""
    cron = {**OWNER, "apiVersion": "batch/v1", "kind": "CronJob"}
    assert changes(answers("true"), "batch-jobs", workload(owner=cron)) != [], "its Jobs are queued"


@pytest.mark.parametrize("user", ["me", "system:serviceaccount:team-a:robot", ""])
async def test_an_owner_that_a_tenant_names_leaves_nothing_to_the_host(user: str) -> None:
    found = answers("true")
    assert "own controllers" in await refused(found, "statefulsets", workload(owner=OWNER), user=user)
    assert changes(found, "batch-jobs", workload(owner=CHILD_OF_OURS), user=user) != []
    assert changes(found, "batch-jobs", workload(owner=CHILD_OF_OURS), user=OPERATOR) == []
