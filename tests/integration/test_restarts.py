"""Every process may be stopped or killed at any moment: another takes over, or it starts again, and nothing is lost.

The federation of these tests has one member and a standby for each process that has a leader.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from atoll.kube import errors
from atoll.local import audit
from atoll.local.atoll_federation import QUICK_ELECTION, Atoll, AtollFederation
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.keeper import KeptProcess
from atoll.local.layout import FederationConfig
from atoll.model import keys
from atoll.model.apiresource import JOBS, LEASES, MUTATING_WEBHOOKS, PODS, SECRETS, VALIDATING_WEBHOOKS
from tests.integration.federation import DEADLINE, Site, job, member, until

pytestmark = pytest.mark.integration

MEMBER = "alpha"
AGENT = f"agent-{MEMBER}"
LEASE = 5.0
"""Seconds, as in QUICK_ELECTION."""
EXIT = 15.0
"""Seconds that a process may take to end in order."""
PARTIAL = 60.0
"""Seconds that a gang may be bound in part: a restart of its agent on a busy machine."""
USERS = 8
"""They submit at the same time."""

_decode = msgspec.json.Decoder(audit.Event).decode


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def fed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    async with AtollFederation(
        FederationConfig(members=[member(MEMBER, 4)]),
        tmp_path_factory.mktemp("restarts"),
        replicas={"control": 2, "dispatcher": 2},
        flags={"control": QUICK_ELECTION, "dispatcher": QUICK_ELECTION, "agent": QUICK_ELECTION},
    ) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def site(fed: AtollFederation) -> AsyncIterator[Site]:
    async with await fed.host.connect() as host, await fed.members[MEMBER].connect() as alpha:
        made = Site(fed, host, {MEMBER: alpha})
        await made.open()
        yield made
        await made.close()


# -- who leads, who is back ----------------------------------------------------------------------------------------------


async def leading(
    site: Site, name: str, *, apart_from: KeptProcess | None = None, deadline: float = DEADLINE
) -> KeptProcess:
    """The process that holds the lease of `control` or `dispatcher`, once one of those that run now does."""
    replicas = [process for key, process in site.federation.processes.items() if key.startswith(f"atoll-{name}")]
    assert len(replicas) == 2

    async def look() -> KeptProcess | None:
        lease = await site.host.get(LEASES, f"atoll-{name}", keys.SYSTEM_NAMESPACE)
        holder = str(lease["spec"]["holderIdentity"])
        found = [each for each in replicas if each.running and holder.endswith(f"-{each.pid}")]
        return found[0] if found and found[0] is not apart_from else None

    return await until(look, deadline=deadline, what=f"a replica of {name} leads")


def losses(process: KeptProcess) -> int:
    """How often it has lost a lease that it held, as its log tells."""
    return process.log.read_bytes().count(b"lost the lease, stopping work")


async def killed(process: KeptProcess) -> None:
    """Kill it, and return when it runs and is ready again."""
    old = process.pid
    process.kill()

    async def anew() -> bool:
        return process.running and process.pid != old

    await until(anew, what=f"{process.name} runs again")
    await process.ready()


# -- what the audit logs say ---------------------------------------------------------------------------------------------


class Tail:
    """What an audit log says from now on."""

    def __init__(self, path: Path) -> None:
        self._log = path.open("rb")
        self._log.seek(0, 2)
        self._rest = b""

    async def first(self, namespace: str, matches: Callable[[audit.Event], bool]) -> audit.Event:
        """The first event in a namespace that matches, a millisecond or two after it was written."""
        async with asyncio.timeout(30):
            while True:
                *lines, self._rest = (self._rest + self._log.read()).split(b"\n")
                for event in map(_decode, lines):
                    if namespace in event.object_ref.namespace and matches(event):
                        self._log.close()
                        return event
                await asyncio.sleep(0.001)


def happened(site: Site, cluster: str = "host") -> list[audit.Event]:
    """What was asked for in the test's namespace, in order of time."""
    handle = site.federation.host if cluster == "host" else site.federation.members[cluster]
    events = [event for event in audit.read(handle.audit_log) if event.object_ref.namespace == site.namespace]
    return sorted(events, key=lambda event: event.at)


def bindings(site: Site) -> list[audit.Event]:
    """One event per pod that was bound; a pod whose binder died before the answer was bound if nobody did it again."""
    told = [event for event in happened(site, MEMBER) if event.wrote("pods/binding", "create", or_unknown=True)]
    again = {event.object_ref.name for event in told if event.ok}
    return [event for event in told if event.ok or event.object_ref.name not in again]


def decisions(site: Site) -> Iterator[tuple[float, str, str]]:
    """(when, binding, epoch) of every decision that was written."""
    for event in happened(site):
        if event.wrote("resourcebindings", "patch") and event.user.username.endswith(":atoll-dispatcher"):
            values = {each["path"]: each.get("value") for each in event.body() if each["op"] != "test"}
            if epoch := values.get("/metadata/annotations/atoll.sh~1epoch"):
                yield event.at, event.object_ref.name, epoch


def decided(event: audit.Event) -> bool:
    return event.wrote("resourcebindings", "patch") and any(each["path"] == "/spec/clusters" for each in event.body())


def assert_decided_once(site: Site) -> None:
    """No epoch of a binding was decided twice, and none was needed but the first."""
    counts = Counter((name, epoch) for _, name, epoch in decisions(site))
    assert counts
    assert set(counts.values()) == {1}, counts
    assert {epoch for _, epoch in counts} == {"1"}, counts


def assert_ran_once(site: Site, *jobs: str) -> None:
    """Each pod of these jobs was made, bound and finished once."""
    for path in ("pods", "pods/binding"):
        found = Counter(event.object_ref.name for event in happened(site, MEMBER) if event.wrote(path, "create"))
        twice = {name: count for name, count in found.items() if count > 1 and name.rsplit("-", 2)[0] in jobs}
        assert not twice, (path, twice)


def longest_partial(site: Site, minimum: int) -> float:
    """Seconds that more than none and fewer than `minimum` pods of the test's only gang were bound."""
    longest, since = 0.0, None
    bound_by = bindings(site)
    bound: set[str] = set()
    ended: set[str] = set()
    others = [event for event in happened(site, MEMBER) if event.object_ref.path != "pods/binding"]
    for event in sorted([*bound_by, *others], key=lambda each: each.at):
        name = event.object_ref.name
        if event.object_ref.path == "pods/binding":
            bound.add(name)
        elif event.wrote("pods/status") and audit.status_in(event.body()).get("phase") in ("Succeeded", "Failed"):
            ended.add(name)
        elif event.wrote("pods", "delete") and name not in ended:
            bound.discard(name)
        else:
            continue
        if since is not None:
            longest = max(longest, event.at - since)
        partial = 0 < len(bound) < minimum
        since = (since if since is not None else event.at) if partial else None
    return longest


async def completed(site: Site, name: str, pods: int) -> None:
    """The job ends Completed on the host with exactly its pods."""
    status = (await site.phase(name, "Completed"))["status"]
    assert status["succeeded"] == pods
    assert not any(status.get(count) for count in ("pending", "running", "failed", "terminating", "unknown")), status


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"replicas": {"webhook": 2}}, "replicas of webhook: only control and dispatcher", id="replicas"),
        pytest.param({"flags": {"nobody": ["-v"]}}, "flags for nobody: there are webhook", id="flags"),
    ],
)
def test_replicas_and_flags_that_a_process_can_not_have_are_refused(
    options: dict[str, Any], text: str, tmp_path: Path
) -> None:
    unstarted = Federation(
        FederationConfig(members=[member("alpha", 1)]), directory=tmp_path, binaries=ensure(report=lambda _: None)
    )
    with pytest.raises(ValueError, match=text):
        Atoll(unstarted, **options)


# -- takeover ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["control", "dispatcher"])
async def test_a_standby_takes_over_from_a_killed_leader_when_its_lease_has_expired(site: Site, name: str) -> None:
    """1. A job runs. 2. The leader is killed. 3. A job is submitted. 4. The standby leads. 5. Both jobs complete."""
    clock = asyncio.get_running_loop().time
    leader = await leading(site, name)
    await site.submit(job("before", replicas=2, seconds=2))
    await site.phase("before", "Running")
    began = clock()
    leader.kill()
    # It stays down: one that is back at once may lead again.
    await leader.stop()
    await site.submit(job("meanwhile", replicas=2))
    successor = await leading(site, name, apart_from=leader)
    took = clock() - began
    await completed(site, "meanwhile", 2)
    print(f"{successor.name} leads {took:.2f} s after the kill, the job is completed after {clock() - began:.2f} s")
    assert took <= LEASE + DEADLINE
    await completed(site, "before", 2)
    assert_decided_once(site)
    assert_ran_once(site, "before", "meanwhile")
    await leader.start()
    await leader.ready()


# tests/kube/test_process_federation.py ends agents under load.
@pytest.mark.parametrize("name", ["control", "dispatcher", pytest.param(AGENT, marks=pytest.mark.long)])
async def test_a_busy_process_that_is_asked_to_stop_ends_in_order(site: Site, name: str) -> None:
    """1. Jobs come in. 2. SIGTERM. 3. It exits 0. 4. A standby leads at once, an agent is started. 5. All complete."""
    clock = asyncio.get_running_loop().time
    elected = name != AGENT
    process = await leading(site, name) if elected else site.federation.process(name)
    jobs = [f"busy-{number}" for number in range(12)]
    for each in jobs[:6]:
        await site.submit(job(each, replicas=2))
    began = clock()
    stopping = asyncio.create_task(process.stop(2 * EXIT))
    for each in jobs[6:]:
        await site.submit(job(each, replicas=2))
    took = 0.0
    if elected:
        await leading(site, name, apart_from=process)
        took = clock() - began
    assert await stopping == 0
    ended = clock() - began
    print(f"{process.name}: exit after {ended:.2f} s, takeover after {took:.2f} s")
    assert ended <= EXIT
    assert json.loads(process.log.read_bytes().splitlines()[-1])["event"] == "stopped"
    await process.start()
    for each in jobs:
        await completed(site, each, 2)
    assert_decided_once(site)
    assert_ran_once(site, *jobs)
    await process.ready()


async def test_a_leader_that_hung_longer_than_its_lease_does_nothing_twice(site: Site) -> None:
    """1. The leader hangs. 2. The standby leads. 3. While jobs come in the first one goes on. 4. It notices in time."""
    name = "dispatcher"
    hung = await leading(site, name)
    lost_before = losses(hung)
    jobs = [f"late-{number}" for number in range(12)]
    hung.signal(signal.SIGSTOP)
    try:
        await site.submit(job(jobs[0], replicas=2))
        successor = await leading(site, name, apart_from=hung)
        lost = losses(successor)
        for each in jobs[1:6]:
            await site.submit(job(each, replicas=2))
    finally:
        hung.signal(signal.SIGCONT)
    for each in jobs[6:]:
        await site.submit(job(each, replicas=2))
    for each in jobs:
        await completed(site, each, 2)
    # A machine under load may take the lease from the successor as well, which it then tells.
    assert await leading(site, name) is successor or losses(successor) > lost
    assert losses(hung) > lost_before
    refused = [event for event in happened(site) if event.verb == "patch" and event.response_status.code == 422]
    print(f"{len(refused)} late patches were refused")
    assert_decided_once(site)
    assert_ran_once(site, *jobs)


# -- the webhook ---------------------------------------------------------------------------------------------------------


async def test_a_webhook_that_is_asked_to_stop_answers_what_it_was_asked(site: Site) -> None:
    """While it is away creates fail with the reason, and nothing that was not defaulted and checked gets in."""
    webhook = site.federation.process("webhook")
    made: dict[str, Any] = {}
    refused: dict[str, str] = {}
    refusals: Counter[int] = Counter()
    over = asyncio.Event()

    async def user(number: int) -> None:
        turn = 0
        while not over.is_set():
            turn += 1
            name = f"burst-{number}-{turn}"
            try:
                # No such queue: they wait, and nobody else has work with them.
                made[name] = await site.submit(job(name, replicas=2, queue="later"))
            except errors.Busy as error:
                refused[name] = str(error)
                refusals[number] += 1
                await asyncio.sleep(0.02)

    async def all_refused() -> None:
        """Return once each user was refused anew."""
        before = Counter(refusals)

        async def look() -> bool:
            return all(refusals[number] > before[number] for number in range(USERS))

        await until(look, what="each user is refused")

    async def more_made(than: int) -> None:
        async def look() -> bool:
            return len(made) > than

        await until(look, what="jobs are made")

    async with asyncio.TaskGroup() as users:
        for number in range(USERS):
            users.create_task(user(number))
        try:
            await more_made(USERS)
            before = len(made)
            clock = asyncio.get_running_loop().time
            began = clock()
            code = await webhook.stop(2 * EXIT)
            took = clock() - began
            # What it had answered the API server still stores.
            await all_refused()
            away = len(made)
            await all_refused()
            assert len(made) == away, "nothing gets in while the webhook is away"
            await webhook.start()
            await webhook.ready()
            await more_made(away)
        finally:
            over.set()
            # The tests that follow need it.
            await webhook.start()
    ends = Counter(re.sub(r"^.*timeout=\d+s\": |\d+\.[\d.:]+\S*| \(POST.*$", "", text) for text in refused.values())
    print(
        f"exit after {took:.2f} s; {before} made before, {away - before} while it ended, {len(refused)} refused: {ends}"
    )
    assert code == 0
    assert took <= EXIT
    assert before
    assert len(made) > away
    assert refused
    for text in refused.values():
        assert "failed calling webhook" in text
        assert ".atoll.sh" in text
    stored = {each["metadata"]["name"]: each["spec"] for each in await site.host.list(JOBS, site.namespace)}
    assert stored.keys() == made.keys()
    assert {(spec["minAvailable"], spec["schedulerName"]) for spec in stored.values()} == {(2, "atoll")}


async def test_a_killed_webhook_comes_back_with_the_authority_that_the_api_server_trusts(site: Site) -> None:
    async def trusted() -> set[str]:
        found = {(await site.host.get(SECRETS, "atoll-webhook-ca", keys.SYSTEM_NAMESPACE))["data"]["tls.crt"]}
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            found |= {each["clientConfig"]["caBundle"] for each in (await site.host.get(resource, "atoll"))["webhooks"]}
        return found

    before = await trusted()
    assert len(before) == 1
    await killed(site.federation.process("webhook"))
    await site.submit(job("at-once", replicas=2))
    assert await trusted() == before
    await completed(site, "at-once", 2)


# -- killed right after a write ------------------------------------------------------------------------------------------


async def test_control_killed_between_binding_and_work(site: Site) -> None:
    """1. The binding is created. 2. control dies. 3. Only then is there a decision. 4. The standby makes the Work."""
    control, dispatcher = await leading(site, "control"), await leading(site, "dispatcher")
    tail = Tail(site.federation.host.audit_log)
    dispatcher.signal(signal.SIGSTOP)
    try:
        await site.submit(job("cut", replicas=3))
        await tail.first(site.namespace, lambda event: event.wrote("resourcebindings", "create"))
        control.kill()
    finally:
        dispatcher.signal(signal.SIGCONT)
    await completed(site, "cut", 3)
    assert_decided_once(site)
    assert_ran_once(site, "cut")
    await control.ready()


async def test_a_dispatcher_killed_right_after_its_decision_leaves_it_charged(site: Site) -> None:
    """1. The first of two jobs takes the whole queue. 2. The dispatcher dies. 3. Its successor makes the second wait.
    4. The first ends, however long the takeover took."""
    dispatcher = await leading(site, "dispatcher")
    queue = await site.queue(capability={"cpu": "3"})
    tail = Tail(site.federation.host.audit_log)
    await site.submit(job("first", replicas=3, cpu="1", seconds=None, queue=queue))
    await tail.first(site.namespace, decided)
    dispatcher.kill()
    await site.submit(job("second", replicas=3, cpu="1", queue=queue))
    await site.reason("second", "QuotaExceeded")
    await site.phase("first", "Running")
    for pod in await site.pods(MEMBER):
        done = {"status": {"phase": "Succeeded"}}
        await site.members[MEMBER].merge_patch(
            PODS, pod["metadata"]["name"], done, site.namespace, subresource="status"
        )
    await completed(site, "first", 3)
    await completed(site, "second", 3)
    assert_decided_once(site)
    assert_ran_once(site, "first", "second")
    second = next(at for at, name, _ in decisions(site) if name == "second-job")
    ends = [
        event.at
        for event in happened(site, MEMBER)
        if event.wrote("pods/status")
        and event.object_ref.name.startswith("first-")
        and audit.status_in(event.body()).get("phase") == "Succeeded"
    ]
    assert second > min(ends)
    await dispatcher.ready()


WRITES: dict[str, Callable[[audit.Event], bool]] = {
    "the job in the member": lambda event: event.wrote("jobs", "create", group=JOBS.group),
    "the first pod": lambda event: event.wrote("pods", "create"),
    "the first pod's binding": lambda event: event.wrote("pods/binding", "create"),
}


# Of the Job nothing can be there in part.
@pytest.mark.parametrize(
    "write", [pytest.param(each, marks=pytest.mark.long if "job" in each else ()) for each in WRITES]
)
async def test_an_agent_killed_right_after_it_wrote(site: Site, write: str) -> None:
    """The gang is bound whole soon after the restart, and each of its pods runs once."""
    agent = site.federation.process(AGENT)
    pods = 40
    tail = Tail(site.federation.members[MEMBER].audit_log)
    await site.submit(job("gang", replicas=pods, minAvailable=pods))
    hit = await tail.first(site.namespace, WRITES[write])
    await killed(agent)
    await completed(site, "gang", pods)
    bound = bindings(site)
    early = sum(event.at < hit.at + 0.5 for event in bound)
    partial = longest_partial(site, pods)
    print(f"{early} of {len(bound)} were bound before the restart, in part for {partial:.2f} s")
    assert len(bound) == pods
    assert_decided_once(site)
    assert_ran_once(site, "gang")
    assert partial <= PARTIAL
