"""What lists have in common: formats, selectors, orders, and verbs for several objects at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from atoll.cli import columns, lookup, moving, scaling, workloads
from atoll.cli.errors import CommandError
from atoll.cli.options import Format, Shape, shape
from atoll.cli.printing import name_of, show_objects
from atoll.model.apiresource import BATCH_JOBS, JOBS
from atoll.view import queues
from tests.kube.servers import serving
from tests.view.made import NOW, queue

QUEUES: list[dict[str, Any]] = [
    {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", **each}
    for each in (
        queue("big", priority=10, capability={"cpu": "9", "memory": "1Gi"}),
        queue("small", priority=9, capability={"cpu": "1500m"}),
        queue("none"),
    )
]


def child(name: str, parent: str, **spec: Any) -> dict[str, Any]:
    return queue(name, parent=parent, **spec)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param(None, Shape(), id="nothing is a table"),
        pytest.param("wide", Shape(Format.WIDE), id="a wide table"),
        pytest.param("jsonpath={.a=b}", Shape(Format.JSONPATH, "{.a=b}"), id="a template"),
        pytest.param("custom-columns=A:.a", Shape(Format.COLUMNS, "A:.a"), id="columns"),
    ],
)
def test_formats(text: str | None, wanted: Shape) -> None:
    assert shape(text) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("xml", "choose one of wide, json", id="no such format"),
        pytest.param("json=x", "is no format", id="a template for none"),
        pytest.param("jsonpath", "write jsonpath=TEMPLATE", id="no template"),
        pytest.param("custom-columns=", "write custom-columns=HEADER:PATH", id="no columns"),
    ],
)
def test_formats_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        shape(text)


@pytest.mark.parametrize(
    ("text", "out"),
    [
        pytest.param("name", "queue.scheduling.volcano.sh/big\nqueue.scheduling.volcano.sh/small\n", id="names"),
        pytest.param("jsonpath={.items[*].spec.priority}", "10 9", id="a template sees the list"),
        pytest.param(
            "custom-columns=NAME:.metadata.name,CPU:.spec.capability.cpu,ALL:{.spec.capability},X:.x",
            "NAME    CPU     ALL                     X\n"
            "big     9       map[cpu:9 memory:1Gi]   <none>\n"
            "small   1500m   map[cpu:1500m]          <none>\n",
            id="columns are of each object",
        ),
    ],
)
def test_objects_are_printed_as_asked(text: str, out: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_objects(QUEUES[:2], shape(text), one=False)
    assert capsys.readouterr().out == out


def test_one_object_is_not_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    show_objects(QUEUES[:1], shape("jsonpath={.metadata.name}"), one=True)
    assert capsys.readouterr().out == "big"
    with pytest.raises(CommandError, match=r"-o jsonpath: .*: unclosed action"):
        show_objects(QUEUES[:1], shape("jsonpath={.metadata.name"), one=True)


def test_objects_of_the_core_group_have_no_group_in_their_name() -> None:
    assert name_of({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}) == "pod/a"


@pytest.mark.parametrize("text", ["NAME", "NAME:", ":.a", "A:.a,", "A:{.a}{.b}"])
def test_columns_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(CommandError, match="-o custom-columns: "):
        columns.parse(text)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        pytest.param(".spec.priority", ["none", "small", "big"], id="numbers"),
        pytest.param("{.spec.capability.cpu}", ["none", "small", "big"], id="quantities"),
        pytest.param("metadata.name", ["big", "none", "small"], id="texts"),
        pytest.param(
            ".spec.capability.memory", ["small", "none", "big"], id="those without it come first, as they were"
        ),
    ],
)
def test_orders(path: str, names: list[str]) -> None:
    assert [each["metadata"]["name"] for each in columns.ordered(QUEUES, path)] == names


def test_texts_with_numbers_are_ordered_as_people_count() -> None:
    found = columns.ordered([queue("n10"), queue("n9"), queue("m")], ".metadata.name")
    assert [each["metadata"]["name"] for each in found] == ["m", "n9", "n10"]


def test_an_order_by_what_none_has_is_refused() -> None:
    with pytest.raises(CommandError, match=r"--sort-by: none of them has a field \.spec\.nope"):
        columns.ordered(QUEUES, ".spec.nope")
    assert columns.ordered([], ".spec.nope") == []


# -- queues as a tree ----------------------------------------------------------------------------------------------------


def test_queues_are_listed_below_their_parents() -> None:
    found = [child("b", "a"), child("a2", "a"), queue("z"), queue("a"), child("c", "b"), child("lost", "gone")]
    names = [row[0] for row in queues.rows(found, NOW, wide=False)]
    assert names == ["a", "  a2", "  b", "    c", "lost", "z"]
    assert [row[0] for row in queues.rows(found, NOW, wide=False, flat=True)] == ["b", "a2", "z", "a", "c", "lost"]


def test_queues_below_the_root_object_and_in_circles_are_listed_once() -> None:
    found = [queue("root"), queue("a"), child("x", "y"), child("y", "x")]
    assert [row[0] for row in queues.rows(found, NOW, wide=False)] == ["root", "  a", "x", "  y"]


# -- several at once -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "selector", "everything", "message"),
    [
        pytest.param(None, None, False, "name queues, or select them by label with -l, or take all", id="none"),
        pytest.param(["a"], "x=y", False, "do not mix several ways", id="names and labels"),
        pytest.param(["a"], None, True, "do not mix several ways", id="names and all"),
    ],
)
def test_objects_are_named_in_one_way(
    names: list[str] | None, selector: str | None, everything: bool, message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        workloads.one_way("queues", names, selector, everything)


def test_all_queues_are_offered_only_by_commands_that_take_them() -> None:
    with pytest.raises(CommandError) as refused:
        workloads.one_way("queues", None, None, all_allowed=False)
    assert "--all" not in str(refused.value)


async def test_labels_are_the_servers_to_compare() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/apis":
            return web.json_response({"groups": []})
        asked.append((request.path, request.query.get("labelSelector")))
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    async with serving(answer) as host:
        assert await lookup.listed(host, "n", "team in (a,b)") == []
    assert asked == [
        ("/apis/atoll.sh/v1alpha1/workloadkinds", None),
        ("/apis/batch.volcano.sh/v1alpha1/namespaces/n/jobs", "team in (a,b)"),
        ("/apis/batch/v1/namespaces/n/jobs", "team in (a,b)"),
        ("/api/v1/namespaces/n/pods", "kueue.x-k8s.io/pod-group-name,team in (a,b)"),
        ("/apis/apps/v1/namespaces/n/deployments", "team in (a,b)"),
        ("/apis/apps/v1/namespaces/n/statefulsets", "team in (a,b)"),
        ("/apis/atoll.sh/v1alpha1/namespaces/n/jobarrays", "team in (a,b)"),
    ]


# -- job scale -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "replicas", "changes"),
    [
        pytest.param("worker", 6, {"1/replicas": 6, "1/minAvailable": 6, "": 7}, id="what needs all of its pods"),
        pytest.param("extra", 6, {"2/replicas": 6, "2/minAvailable": 1, "": 3}, id="what needs fewer"),
        pytest.param("extra", 0, {"2/replicas": 0, "2/minAvailable": 0, "": 2}, id="fewer than it needs"),
    ],
)
async def test_a_task_is_scaled_with_what_is_needed_of_it(task: str, replicas: int, changes: dict[str, int]) -> None:
    tasks = [
        {"name": "master", "replicas": 1},
        {"name": "worker", "replicas": 2, "minAvailable": 2},
        {"name": "extra", "replicas": 4, "minAvailable": 1},
    ]
    found = workload(JOBS, spec={"tasks": tasks, "minAvailable": 3})
    sent = []

    async def answer(request: web.Request) -> web.Response:
        sent.append(json.loads(await request.text()))
        return web.json_response(found)

    async with serving(answer) as host:
        said = await scaling.scaled(host, JOBS, found, task, replicas)
    [patch] = sent
    assert patch[:2] == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/spec/tasks", "value": tasks},
    ]
    paths = {f"/spec/tasks/{at}" if at else "/spec/minAvailable": value for at, value in changes.items()}
    assert {each["path"]: each["value"] for each in patch[2:]} == paths
    assert f"task {task} has {replicas} pods" in said


async def test_what_is_not_scaled_says_why() -> None:
    async with serving(lambda _: pytest.fail("nothing is asked")) as host:
        job = workload(JOBS, spec={"tasks": [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2}]})
        with pytest.raises(CommandError, match="--task: a, b"):
            await scaling.scaled(host, JOBS, job, "", 3)
        assert "b has 2 pods already" in await scaling.scaled(host, JOBS, job, "b", 2)
        with pytest.raises(CommandError, match="kubectl scale"):
            await scaling.scaled(host, BATCH_JOBS, workload(BATCH_JOBS), "", 3)


# -- job move ------------------------------------------------------------------------------------------------------------


def workload(resource: Any, **extra: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"volcano.sh/queue-name": "old"}},
        "spec": {"queue": "old"},
    }
    return {**body, **extra}


@pytest.mark.parametrize(
    ("resource", "labels", "patch"),
    [
        pytest.param(JOBS, {}, {"metadata": {"uid": "u"}, "spec": {"queue": "new"}}, id="a Volcano Job"),
        pytest.param(
            BATCH_JOBS,
            {"volcano.sh/queue-name": "old"},
            {"metadata": {"uid": "u", "labels": {"volcano.sh/queue-name": "new"}}},
            id="a batch Job",
        ),
        pytest.param(
            BATCH_JOBS,
            {"kueue.x-k8s.io/queue-name": "old", "volcano.sh/queue-name": "old"},
            {"metadata": {"uid": "u", "labels": {"kueue.x-k8s.io/queue-name": "new"}}},
            id="a batch Job with the label of Kueue, which goes first",
        ),
    ],
)
async def test_a_job_without_a_binding_is_moved_by_what_names_its_queue(
    resource: Any, labels: dict[str, str], patch: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found, sent = workload(resource), []
    found["metadata"]["labels"] = labels

    async def answer(request: web.Request) -> web.Response:
        if request.method == "PATCH":
            sent.append(json.loads(await request.text()))
            return web.json_response(found)
        return web.json_response({"reason": "NotFound", "message": request.path}, status=404)

    async with serving(answer) as host:
        said = await moving.moved(host, resource, found, "new")
    assert sent == [patch]
    assert said.endswith("/a moved to queue new")
    assert capsys.readouterr().err == "Warning: there is no queue new yet; what names it waits until there is\n"


async def test_what_is_there_or_has_ended_is_not_moved() -> None:
    async with serving(lambda _: pytest.fail("nothing is asked")) as host:
        assert "is in queue old already" in await moving.moved(host, JOBS, workload(JOBS), "old")
        ended = workload(JOBS, status={"state": {"phase": "Completed"}})
        with pytest.raises(CommandError, match=r"has ended \(\w+\): there is nothing to move"):
            await moving.moved(host, JOBS, ended, "new")
