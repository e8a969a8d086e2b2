"""`atoll.client` without a host: its imports, its words, and a client that is not open."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from typing import Any

import orjson
import pytest
from aiohttp import web

from atoll.admission.rules import Change
from atoll.cli import submitted_warnings
from atoll.cli.errors import CommandError
from atoll.client import AsyncClient, BadSubmission, Client, Explanation, Job, JobExecutor, State, Usage
from atoll.kinds import job_array
from atoll.kube.transport import ApiServer
from atoll.model import array_states, keys
from atoll.model.apiresource import BINDINGS, NAMESPACES, QUEUES, WHAT_IFS
from atoll.model.verdict import Reason
from tests.cli.web_host import Host as QueueHost
from tests.cli.web_pages import queue_run, ran, tree
from tests.kube.servers import serving

_NOT = ("kubernetes", "pydantic", "pyarrow", "tenacity", "atoll.control", "atoll.dispatcher", "atoll.install")


def test_the_extra_has_all_that_it_imports() -> None:
    """Its processes are people's own programs: it takes few packages along."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import atoll.client; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name in _NOT]


def test_both_clients_have_the_same_methods() -> None:
    def public(of: type) -> set[str]:
        return {name for name in vars(of) if not name.startswith("_")} - {"namespace"}

    assert public(Client) == public(AsyncClient)


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="with statement"):
        await AsyncClient(namespace="a").submit(Job(command=["true"], image="i"))


def test_the_manifest_is_there_before_anything_is_sent() -> None:
    made = Client(namespace="research").manifest(Job(command=["true"], image="i", gpus=8, workers=4))
    assert (made["metadata"]["namespace"], made["spec"]["minAvailable"]) == ("research", 4)
    assert not State.PENDING.final


def test_a_host_that_can_t_be_reached_leaves_no_thread(tmp_path) -> None:
    before = threading.active_count()
    with pytest.raises(Exception, match="kubeconfig"), Client(kubeconfig=str(tmp_path / "none")):
        pass
    assert threading.active_count() == before


OPTED_IN = {"metadata": {"name": "a", "labels": {keys.ENABLED: "true"}}}


class Host:
    """Keeps submitted Jobs; each ends as the last word of its command says, when it is looked at."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.most = 0
        self.looked: set[str] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            made = await request.json()
            name = made["metadata"]["name"]
            made["metadata"] |= {"uid": name, "resourceVersion": "1"}
            self.jobs[name] = made
            self.most = max(self.most, len(self.jobs) - len(self.looked))
            return web.json_response(made, status=201)
        if request.path == NAMESPACES.path(name="a"):
            return web.json_response(OPTED_IN)
        name = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        if "watch" in request.query:
            answer = web.StreamResponse()
            await answer.prepare(request)
            return answer
        job = self.jobs[name]
        self.looked.add(name)
        word = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["command"][-1]
        ended = {**job, "status": {"state": {"phase": word}}}
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [ended]})


class Served(AsyncClient):
    """Has its connection from a test."""

    def __init__(self, api: ApiServer, namespace: str = "a") -> None:
        super().__init__(namespace=namespace)
        self._host = api


ENDS = ["Completed", "Failed", "Completed", "Completed", "Failed"]
STATES = [State.FAILED if each == "Failed" else State.SUCCEEDED for each in ENDS]


def ending(phase: str) -> Job:
    return Job(command=["run", phase], image="i")


class Asked:
    """Takes every Job of an opted-in namespace; without an answer to a WhatIf it breaks off."""

    def __init__(self, answer: dict[str, Any] | None) -> None:
        self.what_if, self.made = answer, list[str]()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response(OPTED_IN)
        if request.path != WHAT_IFS.path("a"):
            made = await request.json()
            self.made.append(made["metadata"]["name"])
            made["metadata"]["uid"] = "u"
            return web.json_response(made, status=201)
        if self.what_if is None:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(self.what_if, status=201)


JOB = Job(command=["true"], image="i", name="train", queue="q", within="rak")


async def test_a_host_that_goes_away_after_the_creation_costs_no_more_than_a_warning() -> None:
    host = Asked(None)
    async with serving(host.answer) as api:
        with pytest.warns(UserWarning, match="^train is created; .* could not be checked: "):
            made = await Served(api).submit(JOB)
        assert [made.name] == host.made
        with pytest.warns(UserWarning, match="^train would be created; .* could not be checked: "):
            await Served(api).submit(JOB, dry_run=True)


async def test_a_host_that_answers_no_look_at_the_namespace_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({}, status=500)
        return await Asked(None).answer(request)

    monkeypatch.setattr(submitted_warnings, "PATIENCE_S", 0.05)
    async with serving(answer) as api:
        with pytest.warns(UserWarning, match="^train is created; .* could not be checked: no answer in 0.05 s$"):
            await Served(api).submit(JOB)


async def test_a_misspelt_tier_is_warned_of_by_its_parameter() -> None:
    room = {"cluster": "east", "reason": Reason.NO_TOPOLOGY, "message": "did you mean rack?"}
    async with serving(Asked({"status": {"clusters": [room]}}).answer) as api:
        with pytest.warns(UserWarning, match="^within rak: no member .* did you mean rack?"):
            await Served(api).submit(JOB)


class ArrayHost:
    """Keeps one JobArray, and shows it with each of the given states, one after the other."""

    def __init__(self, *statuses: dict[str, Any]) -> None:
        self.statuses, self.made = list(statuses), list[dict[str, Any]]()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            [made] = self.made = [await request.json()]
            made["metadata"] |= {"uid": "u", "resourceVersion": "1"}
            return web.json_response(made, status=201)
        [array] = self.made
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [array]})
        answer = web.StreamResponse()
        await answer.prepare(request)
        for version, status in enumerate(self.statuses, 2):
            meta = {**array["metadata"], "resourceVersion": str(version)}
            event = {"type": "MODIFIED", "object": {**array, "metadata": meta, "status": status}}
            await answer.write(orjson.dumps(event) + b"\n")
        self.statuses = []
        return answer


def indices(phase: str, *states: int) -> dict[str, Any]:
    return {"phase": phase, "states": array_states.encode(bytes(states))}


async def test_map_makes_one_array_with_an_argument_for_each_index() -> None:
    host = ArrayHost(indices("Running", 1, 2, 0), indices("Running", 3, 2, 1), indices("Failed", 3, 2, 2))
    async with serving(host.answer) as api:
        ends = Served(api).map(Job(command=["run", "--seed"], image="i", name="sweep"), [7, 8, 9], at_once=2)
        assert [state async for state in ends] == [State.FAILED, State.SUCCEEDED, State.SUCCEEDED]
    [made] = host.made
    assert job_array.KIND.admission().problems(Change(new=made, namespace={})) == []
    assert (made["spec"]["indices"], made["spec"]["atOnce"], made["spec"]["arguments"]) == ("0-2", 2, ["7", "8", "9"])
    [task] = made["spec"]["template"]["spec"]["tasks"]
    assert task["template"]["spec"]["containers"][0]["command"] == ["run", "--seed", "$(ATOLL_ARRAY_ARGUMENT)"]


async def test_map_of_an_array_that_ends_whole_yields_an_end_for_each_argument() -> None:
    host = ArrayHost(indices("Failed", 2, 0, 0))
    async with serving(host.answer) as api:
        ends = [state async for state in Served(api).map(Job(command=["run"], image="i"), "abc")]
    assert ends == [State.SUCCEEDED, State.FAILED, State.FAILED]


@pytest.mark.parametrize(
    "job", [Job(command=["x"], image="i", array="0-3"), Job(command=["x"], image="i", arguments=["a"])]
)
async def test_map_refuses_a_job_that_is_an_array_already(job: Job) -> None:
    with pytest.raises(BadSubmission, match="map makes the array"):
        await anext(aiter(AsyncClient(namespace="a").map(job, [1])))


def test_nothing_that_comes_from_a_host_is_markup_in_a_notebook() -> None:
    data: dict[str, Any] = {
        "workload": {"kind": "JobArray", "apiVersion": "atoll.sh/v1alpha1", "namespace": "a", "name": "<b>", "status": "<i>",
                     "created": ""},
        "steps": [],
        "why": {"reason": "X", "message": "<script>", "help": ["<u>"]},
        "indices": {"pending": 1, "running": 2, "succeeded": 6, "failed": 1, "retried": 0, "failedIndices": "<3>",
                    "failures": [], "retry": ""},
    }  # fmt: skip
    page = Explanation.of(data)._repr_html_()
    assert not [each for each in ("<b>", "<i>", "<script>", "<u>", "<3>") if each in page]
    assert "6 succeeded, 2 running, 1 failed, 1 pending" in page
    assert "width:60.00%" in page


def test_usage_is_a_table_of_a_notebook_and_a_frame() -> None:
    row = {"queue": "<q>", "runs": 2, "evicted": 0, "waited": 1.0, "resource": "cpu", "asked": 4.0, "held": 3.14159,
           "measured": 0.0, "busy": None, "lost": 0.0, "unit": "core-hours"}  # fmt: skip
    used = Usage("queue", [row])
    page = used._repr_html_()
    assert "3.14" in page
    assert "&lt;q&gt;" in page
    pandas = pytest.importorskip("pandas")
    assert pandas.DataFrame.equals(used.to_frame(), pandas.DataFrame([row]))


async def test_usage_of_a_queue_is_of_all_namespaces_for_who_administers_it() -> None:
    host = QueueHost()
    host.put(QUEUES, *tree())
    host.put(BINDINGS, ran("a"))
    host.refused |= {(BINDINGS.path(), "")}
    async with serving(host.answer) as api:
        client = Served(api, namespace="team")
        with pytest.warns(UserWarning, match="the right to get queueruns of research or lab is missing"):
            found = await client.usage(queue="research")
        assert ([(row["queue"], row["runs"]) for row in found.rows], found.tree) == ([("research", 1)], False)
        host.queue_runs["lab"] = [queue_run("mine", "team"), queue_run("theirs", "others")]
        found = await client.usage(queue="lab", since="4h")
        figures = [(row["queue"], row["runs"], row["held"], row["subtree"], row["share"]) for row in found.rows]
        assert figures == [("lab", 0, 0.0, 8.0, pytest.approx(8 / 64, rel=1e-3)), ("research", 2, 8.0, 8.0, None)]
        assert [(row["waited"], row["borrowed"], row["lent"]) for row in found.rows] == [
            (None, 0, None),
            (0, None, None),
        ]
        assert "subtree" in found._repr_html_()
        assert {row["namespace"] for row in (await client.usage(by="namespace", queue="lab")).rows} == {
            "team",
            "others",
        }
        with pytest.raises(CommandError, match="there is no queue typo"):
            await client.usage(queue="typo")


async def test_map_yields_the_ends_in_order_and_keeps_to_its_bound() -> None:
    host = Host()
    async with serving(host.answer) as api:
        client = Served(api)
        assert [state async for state in client.map(ending, ENDS, at_once=2)] == STATES
    assert len(host.jobs) == 5


async def test_map_has_no_more_jobs_on_the_host_than_its_bound() -> None:
    host = Host()
    async with serving(host.answer) as api:
        client = Served(api)
        async for _ in client.map(ending, ENDS, at_once=1):
            pass
    assert host.most == 1


async def test_map_submits_nothing_further_once_its_iterator_is_closed() -> None:
    host = Host()
    async with serving(host.answer) as api:
        client = Served(api)
        ends = client.map(ending, ENDS, at_once=1)
        assert await anext(ends) is State.SUCCEEDED
        await ends.aclose()  # type: ignore[attr-defined]
        before = len(host.jobs)
    assert before < len(ENDS)


class Waiting(AsyncClient):
    """A host without end: jobs go on for ever."""

    waits = threading.Semaphore(0)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def submit(self, job: Job, *, dry_run: bool = False) -> Any:
        if list(job.command) == ["bad"]:
            raise ValueError("refused")
        return job

    async def wait(self, job: Any, *, timeout: float | None = None) -> State:
        if list(job.command) == ["run", "7"]:
            return State.SUCCEEDED
        self.waits.release()
        await asyncio.Event().wait()
        raise AssertionError


def test_an_executor_gives_futures_and_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.client.blocking.AsyncClient", Waiting)
    client = Client(namespace="a")
    with client:
        executor = JobExecutor(client, at_once=1)
        assert executor.submit(Job(command=["run"], image="i"), 7).result(30) is State.SUCCEEDED
        with pytest.raises(ValueError, match="refused"):
            executor.submit(lambda word: Job(command=[word], image="i"), "bad").result(30)
        endless, later = (executor.submit(Job(command=["run"], image="i"), each) for each in (1, 7))
        assert Waiting.waits.acquire(timeout=30)
        assert later.cancel()
    with pytest.raises(CancelledError):
        endless.result(30)
    executor.shutdown()
