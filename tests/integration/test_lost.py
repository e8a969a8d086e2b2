"""Members that are lost and drained, on real API servers: work runs elsewhere in time, and what is stale goes first."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from atoll.kinds.job_array import states_in
from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.audit import read
from atoll.local.layout import FederationConfig
from atoll.model import array_states, keys
from atoll.model.apiresource import BATCH_JOBS, BINDINGS, CLUSTERS, JOB_ARRAYS, JOBS, POLICIES, WORKS
from atoll.model.conditions import condition
from atoll.model.lost import STALE_GONE
from atoll.model.timestamps import to_seconds
from tests.chaos.checks import gangs_whole, one_epoch_at_a_time
from tests.chaos.plan import NAMESPACE, Submission
from tests.chaos.record import Record, build
from tests.faults.proxies import Proxies
from tests.faults.proxy import FaultProxy, Request
from tests.integration.arrays import in_phase, made, running, scattered
from tests.integration.command_line import atollctl
from tests.integration.federation import DEADLINE, Site, batch_job, job, member, until
from tests.integration.gangs import allow_division, gpus

pytestmark = pytest.mark.integration

MEMBERS = ("alpha", "beta")
TOLERATION = 8.0
FENCE = 10.0
"""An agent that is killed is there again long before."""
QUICK_LOSS = ("--set=heartbeat.period=0.5", "--set=heartbeat.silent=2", "--set=heartbeat.duration=3")
FLAGS = {
    "control": QUICK_ELECTION,
    "dispatcher": QUICK_ELECTION,
    "agent": (*QUICK_ELECTION, *QUICK_LOSS, f"--set=heartbeat.fence={FENCE:g}"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def proxies(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxies]:
    async with Proxies(tmp_path_factory.mktemp("proxies"), seed=1) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def fed(tmp_path_factory: pytest.TempPathFactory, proxies: Proxies) -> AsyncIterator[AtollFederation]:
    async with AtollFederation(
        FederationConfig(members=[member(name, 4) for name in MEMBERS]),
        tmp_path_factory.mktemp("lost"),
        flags=FLAGS,
        through=lambda name, path: proxies.through(name, path) if "agent" in name else path,
    ) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(fed: AtollFederation) -> AsyncIterator[Site]:
    async with (
        await fed.host.connect() as host,
        await fed.members["alpha"].connect() as alpha,
        await fed.members["beta"].connect() as beta,
    ):
        made = Site(fed, host, {"alpha": alpha, "beta": beta})
        # Of what is written there the audit logs keep whole objects.
        made.namespace = NAMESPACE
        await made.open()
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def site(shared: Site) -> AsyncIterator[Site]:
    yield shared
    await shared.no_jobs()
    for policy in await shared.host.list(POLICIES, shared.namespace):
        await shared.host.delete(POLICIES, policy["metadata"]["name"], shared.namespace)


def recorded(site: Site, name: str, pods: int = 1, *, batch: bool = False) -> Record:
    """What the members' audit logs say of the pods of a job."""
    logs = {cluster: read(site.federation.members[cluster].audit_log) for cluster in MEMBERS}
    return build(Record({name: Submission(name, "default", pods, 0, 1.0, batch=batch)}, {}, {}), logs)


def never_in_part_and_never_twice(site: Site, name: str, pods: int) -> None:
    """What the chaos suite asks of every gang."""
    record = recorded(site, name, pods)
    assert record.of(name), "the audit logs tell of no pods"
    found = [*gangs_whole(record), *one_epoch_at_a_time(record)]
    assert [each for each in found if each.workload == name] == []


def tolerant(name: str, seconds: float = TOLERATION, **more: Any) -> dict[str, Any]:
    made = job(name, seconds=None, **more)
    made["metadata"].setdefault("annotations", {})[keys.LOST_TOLERATION] = f"{seconds:g}s"
    return made


async def runs_in(site: Site, name: str, cluster: str, *, deadline: float = DEADLINE) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        binding = await site.find(BINDINGS, f"{name}-job") or {}
        there = [each["name"] for each in (binding.get("spec") or {}).get("clusters") or ()]
        running = condition(binding, "Running").get("status") == "True"
        return binding if there == [cluster] and running else None

    return await until(look, deadline=deadline, what=f"{name} runs in {cluster}")


async def test_a_lost_member(site: Site) -> None:
    """1. The agent of the member dies, the pods there run on. 2. control is killed meanwhile: the time goes on. 3. After
    its toleration the workload runs elsewhere, one that waits does not. 4. The agent is back: what is stale goes, and
    only then the member counts as free of it.
    """
    await site.submit(tolerant("moves", replicas=2, minAvailable=2))
    waits = tolerant("waits")
    waits["metadata"]["annotations"][keys.ON_LOST] = "wait"
    away = await site.where("moves")
    other = next(each for each in MEMBERS if each != away)
    await runs_in(site, "moves", away)
    agent = site.federation.process(f"agent-{away}")
    selector = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": "waits"}
    policy = {"resourceSelectors": [selector], "placement": {"clusterAffinity": {"clusterNames": [away]}}}
    about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    await site.host.create(
        POLICIES, {**about, "metadata": {"name": "waits", "namespace": site.namespace}, "spec": policy}
    )
    await site.submit(waits)
    await runs_in(site, "waits", away)
    await agent.stop(0)

    async def lost() -> float | None:
        since = ((await site.host.get(CLUSTERS, away)).get("status") or {}).get("lost")
        return to_seconds(since["since"]) if since else None

    try:
        since = await until(lost, what="the host knows that the member is lost")
        for name, process in site.federation.processes.items():
            if "control" in name:
                process.kill()
        binding = await runs_in(site, "moves", other)
        assert await lost() == since, "the time began anew"
        assert to_seconds(condition(binding, "Running")["lastTransitionTime"]) <= since + TOLERATION + DEADLINE
        story = [(line["reason"]) for line in _decision(binding)["story"]]
        assert "MemberLost" in story
        works = await site.host.list(WORKS, keys.execution_namespace(away))
        assert {keys.LOST in work["metadata"]["annotations"] for work in works if _of(work, "moves")} == {True}
        assert [pod for pod in await site.pods(away) if pod["metadata"]["name"].startswith("moves-")], "nothing stale"
        kept = await site.find(BINDINGS, "waits-job") or {}
        assert [each["name"] for each in kept["spec"]["clusters"]] == [away]
    finally:
        await agent.start()

    async def clean() -> bool:
        cluster = await site.host.get(CLUSTERS, away)
        stale = [pod for pod in await site.pods(away) if pod["metadata"]["name"].startswith("moves-")]
        if condition(cluster, STALE_GONE).get("status") == "True":
            assert not stale, "the member counts, and something stale runs there"
            return bool(condition(cluster, "Ready")["status"] == "True")
        return False

    await until(clean, what="what is stale is gone, and the member is ready")
    await runs_in(site, "moves", other)
    await runs_in(site, "waits", away)
    record = recorded(site, "moves", 2)
    assert list(gangs_whole(record)) == []
    assert {(pod.cluster, pod.epoch) for pod in record.of("moves")} == {(away, 1), (other, 3)}


async def test_indices_of_a_lost_member_run_elsewhere_and_the_others_run_once(site: Site) -> None:
    """1. An array runs in both members. 2. control is killed: the next leader goes on. 3. The agent of one dies, and does
    not return before the end. 4. After the toleration its indices that have not ended run in the other one.
    """
    indices, away, other = 60, "beta", "alpha"
    # Tests of this file share a namespace, and so does a second try.
    sweep = f"sweep-{uuid.uuid4().hex[:6]}"
    array = scattered(sweep, indices, at_once=8, seconds=2.0)
    array["metadata"]["annotations"][keys.LOST_TOLERATION] = f"{TOLERATION:g}s"
    await site.submit(array)

    async def status() -> dict[str, Any]:
        return dict(((await site.find(JOB_ARRAYS, sweep)) or {}).get("status") or {})

    def ran(name: str) -> dict[str, int]:
        return {each: times for each, times in made(site, name, "jobs").items() if each.startswith(sweep)}

    async def in_both(done: int = 0) -> bool:
        here, there = [await running(site, name) for name in MEMBERS]
        assert not here & there, "an index runs in two members"
        found = await status()
        assert found.get("phase") != "Completed", "all indices ended before"
        return bool(here) and bool(there) and int(found.get("succeeded") or 0) >= done

    await until(lambda: in_both(4), what="it runs in both members, and some indices have ended")
    for name, process in site.federation.processes.items():
        if "control" in name:
            process.kill()
    before = int((await status())["succeeded"])
    await until(lambda: in_both(before + 4), what="the next leader of control goes on in both members")
    agent = site.federation.process(f"agent-{away}")
    await agent.stop(0)
    try:
        known = await status()
        done = await in_phase(site, sweep, "Completed", "Failed")
        assert (done["status"]["phase"], done["status"]["succeeded"]) == ("Completed", indices)
        runs = {name: ran(name) for name in MEMBERS}
        twice = {int(each.rpartition("-")[2]) for each in runs[away].keys() & runs[other].keys()}
        succeeded = set(array_states.positions(states_in(array, known), array_states.SUCCEEDED))
        assert len(runs[away].keys() | runs[other].keys()) == indices
        assert not twice & succeeded, "an index that had succeeded runs again"
        assert max((runs[away] | runs[other]).values()) == 1, "an index ran twice in one member"
    finally:
        await agent.start()

    async def clean() -> bool:
        return condition(await site.host.get(CLUSTERS, away), STALE_GONE).get("status") == "True"

    await until(clean, what="what is stale is gone")
    assert (await status())["succeeded"] == indices
    again = {name: ran(name) for name in MEMBERS}
    assert again == runs, "nothing is started after the end"


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_member_that_returns_after_ten_minutes(site: Site) -> None:
    """With the toleration that is the default."""
    await site.submit(tolerant("minutes", 60, replicas=2, minAvailable=2))
    away = await site.where("minutes")
    other = next(each for each in MEMBERS if each != away)
    await runs_in(site, "minutes", away)
    agent = site.federation.process(f"agent-{away}")
    await agent.stop(0)

    async def lost() -> float | None:
        since = ((await site.host.get(CLUSTERS, away)).get("status") or {}).get("lost")
        return to_seconds(since["since"]) if since else None

    try:
        since = await until(lost, what="the host knows that the member is lost")
        binding = await runs_in(site, "minutes", other)
        assert to_seconds(condition(binding, "Running")["lastTransitionTime"]) <= since + 60.0 + DEADLINE

        async def ten_minutes_over() -> bool:
            assert await lost() == since
            return time.time() >= since + 600

        await until(ten_minutes_over, deadline=620, what="ten minutes are over")
        assert [pod for pod in await site.pods(away) if pod["metadata"]["name"].startswith("minutes-")], "nothing stale"
    finally:
        await agent.start()

    async def clean() -> bool:
        stale = [pod for pod in await site.pods(away) if pod["metadata"]["name"].startswith("minutes-")]
        return not stale and condition(await site.host.get(CLUSTERS, away), STALE_GONE).get("status") == "True"

    await until(clean, what="what is stale is gone")
    await runs_in(site, "minutes", other)
    record = recorded(site, "minutes", 2)
    assert list(gangs_whole(record)) == []
    assert {(pod.cluster, pod.epoch) for pod in record.of("minutes")} == {(away, 1), (other, 3)}


_EXCLUSIVE = {keys.ON_LOST: "exclusive", keys.LOST_TOLERATION: "1s"}


async def exclusive(site: Site, name: str) -> str:
    """A job that must not run twice, on its way; the member where it runs."""
    made = tolerant(name, replicas=2, minAvailable=2)
    made["metadata"]["annotations"].update(_EXCLUSIVE)
    made["spec"]["tasks"][0]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    await site.submit(made)
    away = await site.where(name)
    await runs_in(site, name, away)
    return away


async def exclusive_batch_job(site: Site, name: str, cluster: str) -> None:
    """The same as a batch/v1 Job that goes to this member first."""
    selectors = [{"apiVersion": BATCH_JOBS.api_version, "kind": BATCH_JOBS.kind}]
    groups = [
        {"affinityName": each, "clusterNames": [each]} for each in sorted(MEMBERS, key=lambda each: each != cluster)
    ]
    about = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind}
    spec = {"resourceSelectors": selectors, "placement": {"clusterAffinities": groups}}
    metadata = {"name": "in-turn", "namespace": site.namespace}
    await site.host.create(POLICIES, {**about, "metadata": metadata, "spec": spec})
    made = batch_job(name, parallelism=2, seconds=None, metadata={"annotations": _EXCLUSIVE})
    made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    await site.submit(made)
    await runs_in(site, name, cluster)


async def ended_in(site: Site, cluster: str, name: str) -> None:
    """Wait until a member that is cut off has no pods of a job."""

    async def ended() -> bool:
        return not [pod for pod in await site.pods(cluster) if pod["metadata"]["name"].startswith(f"{name}-")]

    await until(ended, deadline=FENCE + 20, what=f"the agent of {cluster} ends {name}")


async def test_a_member_that_is_cut_off_from_the_host_alone_never_runs_what_is_exclusive_twice(
    site: Site, proxies: Proxies
) -> None:
    """1. The agent can't reach the host, and is killed: the next one goes on counting. 2. It ends the pods. 3. Only then
    they run elsewhere. 4. The host is there again: nothing of the old epoch is made.
    """
    away = await exclusive(site, "once")
    await exclusive_batch_job(site, "batch", away)
    other = next(each for each in MEMBERS if each != away)
    proxy = proxies[f"atoll-agent-{away}"]
    proxy.cut()
    try:
        site.federation.process(f"agent-{away}").kill()
        for name in ("once", "batch"):
            await ended_in(site, away, name)
        for name in ("once", "batch"):
            await runs_in(site, name, other, deadline=FENCE + 60)
    finally:
        proxy.heal()

    async def clean() -> bool:
        cluster = await site.host.get(CLUSTERS, away)
        works = await site.host.list(WORKS, keys.execution_namespace(away))
        stale = [work for work in works if _of(work, "once") or _of(work, "batch")]
        return condition(cluster, "Ready")["status"] == "True" and not stale

    await until(clean, what="the member is ready, and nothing stale is there")
    for name, batch in (("once", False), ("batch", True)):
        pods = recorded(site, name, 2, batch=batch).of(name)
        old, new = [pod for pod in pods if pod.cluster == away], [pod for pod in pods if pod.cluster == other]
        assert len(old) == len(new) == 2, name
        assert max(pod.over for pod in old) < min(pod.created for pod in new), name


async def test_what_the_fence_ended_runs_again_where_its_epoch_still_stands(site: Site, proxies: Proxies) -> None:
    away = await exclusive(site, "again")
    proxy = proxies[f"atoll-agent-{away}"]
    proxy.cut()
    try:
        await ended_in(site, away, "again")
    finally:
        proxy.heal()
    await runs_in(site, "again", away)

    async def two() -> bool:
        return len([pod for pod in await site.pods(away) if pod["metadata"]["name"].startswith("again-")]) == 2

    await until(two, what="its pods are there again")
    assert {(pod.cluster, pod.epoch) for pod in recorded(site, "again").of("again")} == {(away, 1)}


async def divided(site: Site, name: str) -> None:
    """Submit a gang of twelve that neither member holds alone."""
    await allow_division(site, *MEMBERS, least=2)
    made = gpus(name, 12, 4, seconds=None, minAvailable=12)
    made["metadata"].setdefault("annotations", {})[keys.LOST_TOLERATION] = f"{TOLERATION:g}s"
    await site.submit(made)


async def runs_whole(site: Site, name: str, *, deadline: float = DEADLINE) -> None:
    async def look() -> bool:
        pods = [pod for cluster in MEMBERS for pod in await site.pods(cluster)]
        bound = [pod for pod in pods if pod["metadata"]["name"].startswith(name) and pod["spec"].get("nodeName")]
        return len(bound) == len(pods) == 12

    await until(look, deadline=deadline, what=f"all pods of {name} are bound")


def once_it_reserved(proxy: FaultProxy, strike: Callable[[], Awaitable[object]]) -> asyncio.Future[None]:
    """Strike when the agent behind the proxy has said for the first time what became of a reservation; done after it."""
    struck: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def now() -> None:
        await strike()
        struck.set_result(None)

    def answered(request: Request, code: int) -> None:
        if (request.verb, request.path) == ("update", "works/status") and code == 200:
            proxy.on_answer = None
            tasks.append(asyncio.create_task(now()))

    tasks: list[asyncio.Task[None]] = []
    proxy.on_answer = answered
    return struck


async def test_a_member_that_dies_between_reserve_and_commit(site: Site, proxies: Proxies) -> None:
    """1. Both members reserve. 2. The agent of one dies. 3. The gang is committed, and bound in the other alone.
    4. After its toleration it goes whole, and nothing of it is left. 5. The agent is back: all of it runs.
    """
    agent = site.federation.process("agent-beta")
    struck = once_it_reserved(proxies["atoll-agent-beta"], lambda: agent.stop(0))
    await divided(site, "halfway")
    await asyncio.wait_for(struck, 30)

    async def gone() -> bool:
        binding = await site.find(BINDINGS, "halfway-job") or {}
        story = [line["reason"] for line in _decision(binding)["story"]]
        pods = [pod for cluster in MEMBERS for pod in await site.pods(cluster)]
        return bool({"MemberLost", "DeadlineExceeded"} & set(story)) and not pods

    try:
        await until(gone, deadline=TOLERATION + 30, what="the gang went whole")
    finally:
        await agent.start()
    await runs_whole(site, "halfway")
    never_in_part_and_never_twice(site, "halfway", 12)


async def test_a_host_that_dies_between_reserve_and_commit(site: Site, proxies: Proxies) -> None:
    """1. A member said that it reserved. 2. The API server of the host dies, and is back after seconds. 3. All of it
    runs.
    """
    processes = site.federation.federation.processes.processes
    [server] = [each for each in processes if each.spec.name == "host-apiserver"]

    async def die() -> None:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await server.wait()
        await server.start()
        await server.wait_ready(60)

    struck = once_it_reserved(proxies["atoll-agent-beta"], die)
    await divided(site, "headless")
    await asyncio.wait_for(struck, 90)
    await runs_whole(site, "headless")
    never_in_part_and_never_twice(site, "headless", 12)


async def test_a_drain_under_load(site: Site) -> None:
    names = ["a", "b", "c"]
    for name in names:
        await site.submit(tolerant(name, replicas=2, minAvailable=2))
    where = {name: await site.where(name) for name in names}
    for name, cluster in where.items():
        await runs_in(site, name, cluster)
    drained = where["a"]
    other = next(each for each in MEMBERS if each != drained)
    try:
        said = await atollctl(site, "drain", drained, "--one-by-one", "--timeout", "60s")
        assert f"{drained}: empty" in said
        for name in names:
            await runs_in(site, name, other)
    finally:
        await atollctl(site, "uncordon", drained)
    assert not (await site.host.get(CLUSTERS, drained))["spec"].get("taints")
    for name in names:
        never_in_part_and_never_twice(site, name, 2)


def _decision(binding: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(binding["metadata"]["annotations"][keys.DECISION]))


def _of(work: dict[str, Any], name: str) -> bool:
    return str(work["metadata"]["annotations"].get(keys.BINDING_NAME, "")).startswith(f"{name}-")
