"""The quota tree on real API servers: limits along the path, shares, closing, members, namespaces, faults."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from atoll.kube.errors import ApiError
from atoll.model import keys
from atoll.model.apiresource import COMMANDS, JOBS, MUTATING_WEBHOOKS, QUEUES, RESOURCE_QUOTAS, VALIDATING_WEBHOOKS
from atoll.model.decision import Phase
from tests.integration.command_line import atollctl
from tests.integration.decisions import decisions, status
from tests.integration.federation import Site, job, until
from tests.integration.queue_states import command, in_state
from tests.integration.scrapes import scraped

pytestmark = pytest.mark.integration


async def settle(site: Site, dispatched: set[str], waiting: dict[str, tuple[str, str]]) -> None:
    """Wait until exactly these jobs are dispatched, and the others wait for (reason, name of what blocks)."""

    async def look() -> bool:
        told = await decisions(site)
        gone = {name for name, each in told.items() if each.phase.charged}
        why = {
            name: (each.reason.value, each.blocker.name if each.blocker else "")
            for name, each in told.items()
            if each.phase is Phase.SUSPENDED
        }
        seen.update(dispatched=gone, waiting=why)
        return gone == dispatched and why == waiting

    seen: dict[str, object] = {}
    try:
        await until(look)
    except AssertionError:
        raise AssertionError(f"wanted {dispatched} and {waiting}, last seen {seen}") from None


def valid(found: dict[str, Any]) -> tuple[str, str]:
    """(status, message) of the condition Valid."""
    [condition] = [each for each in found["conditions"] if each["type"] == "Valid"]
    return condition["status"], condition["message"]


async def lab(site: Site) -> dict[str, str]:
    """org (4 CPUs) over team (3 CPUs, 2 guaranteed) over a and b; and other below org. Short name -> queue."""
    names = {"org": await site.queue("org", capability={"cpu": "4"}, guarantee={"resource": {"cpu": "2"}})}
    for name, parent, spec in (
        ("team", "org", {"capability": {"cpu": "3"}, "guarantee": {"resource": {"cpu": "2"}}}),
        ("other", "org", {}),
        ("a", "team", {"deserved": {"cpu": "2"}, "guarantee": {"resource": {"cpu": "1"}}}),
        ("b", "team", {"deserved": {"cpu": "1"}}),
    ):
        names[name] = await site.queue(name, parent=names[parent], **spec)
    return names


async def run(site: Site, *names: str, queue: str, cpu: str = "1") -> None:
    for name in names:
        await site.submit(job(name, cpu=cpu, seconds=None, queue=queue))


async def test_every_queue_of_the_path_limits_and_is_named_when_it_blocks(site: Site) -> None:
    """1. a and b fill team. 2. The next of b waits for team. 3. other takes what is left of org. 4. Its next waits for
    org. 5. One of a ends: other is further below its part than team, and goes on. 6. It ends: b borrows from a."""
    queues = await lab(site)
    await run(site, "a1", "a2", queue=queues["a"])
    await run(site, "b1", queue=queues["b"])
    await settle(site, {"a1", "a2", "b1"}, {})
    await run(site, "b2", queue=queues["b"])
    await run(site, "o1", queue=queues["other"])
    await settle(site, {"a1", "a2", "b1", "o1"}, {"b2": ("QuotaExceeded", queues["team"])})
    await run(site, "o2", queue=queues["other"])
    await settle(
        site,
        {"a1", "a2", "b1", "o1"},
        {"b2": ("QuotaExceeded", queues["team"]), "o2": ("QuotaExceeded", queues["org"])},
    )
    memory = f"{4 * 16}Mi"
    found = await status(
        site, queues["org"], running=4, pending=2, allocated={"cpu": "4", "memory": memory, "pods": "4"}
    )
    assert valid(found)[0] == "True"
    await status(site, queues["team"], running=3, pending=1)
    await status(site, queues["a"], running=2, allocated={"cpu": "2", "memory": "32Mi", "pods": "2"})
    shown = await scraped(site, "dispatcher")
    for name, value in (
        (f'queue_used{{queue="{queues["org"]}",resource="cpu"}}', 4),
        (f'queue_limit{{queue="{queues["team"]}",resource="cpu"}}', 3),
        (f'queue_guarantee{{queue="{queues["a"]}",resource="cpu"}}', 1),
        (f'queue_blocked{{queue="{queues["b"]}",reason="QuotaExceeded"}}', 1),
        (f'queue_charged{{queue="{queues["a"]}"}}', 2),
    ):
        assert shown[f"atoll_{name}"] == value
    with pytest.raises(ApiError, match="takes no workloads itself"):
        await run(site, "wrong", queue=queues["team"])
    await site.host.delete(JOBS, "a1", site.namespace)
    await settle(site, {"a2", "b1", "o1", "o2"}, {"b2": ("QuotaExceeded", queues["org"])})
    await site.host.delete(JOBS, "o2", site.namespace)
    await settle(site, {"a2", "b1", "b2", "o1"}, {})
    told = orjson.loads(await atollctl(site, "queue", "describe", queues["org"], "-o", "json"))
    [team] = [each for each in told["tree"]["children"] if each["name"] == queues["team"]]
    lines = {each["name"]: {line["resource"]: line for line in each["resources"]} for each in team["children"]}
    borrowed = lines[queues["b"]]["cpu"]
    assert (borrowed["used"], borrowed["deserved"], borrowed["borrowed"]) == ("2", "1", "1")
    assert borrowed["lenders"] == [queues["a"]]


async def test_what_is_deserved_decides_who_is_next(site: Site) -> None:
    """Two queues ask for all of their parent: each gets what it deserves, whatever the order of submission."""
    pool = await site.queue("pool", capability={"cpu": "100m"})
    large = await site.queue("large", parent=pool, deserved={"cpu": "3"})
    small = await site.queue("small", parent=pool, deserved={"cpu": "1"})
    names = {large: [f"l{n}" for n in range(5)], small: [f"s{n}" for n in range(5)]}
    for queue in (small, large):
        await run(site, *names[queue], queue=queue)
    for name in (*names[large], *names[small]):
        await site.reason(name, "QuotaExceeded")
    await site.host.merge_patch(QUEUES, pool, {"spec": {"capability": {"cpu": "4"}}})

    async def full() -> list[str] | None:
        found = sorted(name[0] for name, each in (await decisions(site)).items() if each.phase.charged)
        return found if len(found) == 4 else None

    assert await until(full, what="4 of 10 run") == ["l", "l", "l", "s"]


async def test_a_closed_parent_closes_what_is_below_and_is_closed_once_that_has_ended(site: Site) -> None:
    queues = await lab(site)
    waits = job("waits", cpu="1", seconds=None, queue=queues["b"])
    await site.submit({**waits, "metadata": {"name": "waits", "annotations": {keys.HOLD: "true"}}})
    await site.submit(job("runs", seconds=3, queue=queues["a"]))
    await site.phase("runs", "Running")
    team = await in_state(site, queues["team"], "Open")
    await site.host.create(COMMANDS, command("CloseQueue", team))
    await in_state(site, queues["team"], "Closing")
    await site.host.merge_patch(JOBS, "waits", {"metadata": {"annotations": {keys.HOLD: None}}}, site.namespace)
    await run(site, "goes", queue=queues["other"])
    await settle(site, {"runs", "goes"}, {"waits": ("QueueClosed", queues["b"])})
    with pytest.raises(ApiError, match=f"is below queue '{queues['team']}', which is Clos"):
        await run(site, "late", queue=queues["b"])
    await site.phase("runs", "Completed")
    await in_state(site, queues["team"], "Closed")
    await site.host.create(COMMANDS, command("OpenQueue", team))
    await site.phase("waits", "Running")


async def test_ceilings_and_labels_decide_which_members_serve_a_queue(site: Site) -> None:
    ceilings = [{"name": "alpha", "capacity": {"cpu": "1"}}, {"name": "beta", "capacity": {"cpu": "2"}}]
    queue = await site.queue("ceilings", extendClusters=ceilings)
    await run(site, "c1", "c2", "c3", queue=queue)
    assert sorted([await site.where(name) for name in ("c1", "c2", "c3")]) == ["alpha", "beta", "beta"]
    await run(site, "c4", queue=queue)
    await settle(site, {"c1", "c2", "c3"}, {"c4": ("QuotaExceeded", queue)})
    large = await site.queue("large")
    await site.host.merge_patch(
        QUEUES, large, {"metadata": {"annotations": {keys.CLUSTER_AFFINITY: '{"matchLabels":{"size":"large"}}'}}}
    )
    await run(site, *(f"l{n}" for n in range(3)), queue=large)
    assert {await site.where(f"l{n}") for n in range(3)} == {"alpha"}


async def test_a_namespace_uses_no_more_than_its_resource_quota(site: Site) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "limit", "namespace": site.namespace},
        "spec": {"hard": {"requests.cpu": "1500m"}},
    }
    await site.host.create(RESOURCE_QUOTAS, quota)
    queue = await site.queue()
    # The quota and the job reach the dispatcher by different watches.
    await asyncio.sleep(0.3)
    await run(site, "first", queue=queue)
    await settle(site, {"first"}, {})
    await run(site, "second", queue=queue)
    await settle(site, {"first"}, {"second": ("QuotaExceeded", site.namespace)})
    await site.host.merge_patch(RESOURCE_QUOTAS, "limit", {"spec": {"hard": {"requests.cpu": "2"}}}, site.namespace)
    await settle(site, {"first", "second"}, {})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({"parent": "nowhere"}, "queue 'nowhere' does not exist", id="no such parent"),
        pytest.param({"parent": "a", "guarantee": {"resource": {"cpu": "2"}}}, "would be guaranteed cpu 2", id="sums"),
        pytest.param({"parent": "a"}, "holds 1 workload,", id="a parent with workloads"),
    ],
)
async def test_what_does_not_fit_the_tree_is_refused(site: Site, spec: dict[str, Any], said: str) -> None:
    queues = await lab(site)
    if said.startswith("holds"):
        await run(site, "a1", queue=queues["a"])
        await status(site, queues["a"], running=1)
    with pytest.raises(ApiError, match=said):
        await site.queue("new", **{**spec, "parent": queues.get(spec["parent"], spec["parent"])})


@asynccontextmanager
async def webhook_off(site: Site) -> AsyncIterator[None]:
    """The webhook hangs, and the API server goes on without it."""
    process = site.federation.process("webhook")
    before = {}
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        before[resource] = (await site.host.get(resource, "atoll"))["webhooks"]
    process.signal(signal.SIGSTOP)
    try:
        for resource, hooks in before.items():
            off = [{**hook, "failurePolicy": "Ignore", "timeoutSeconds": 1} for hook in hooks]
            await site.host.merge_patch(resource, "atoll", {"webhooks": off})
        yield
    finally:
        process.signal(signal.SIGCONT)
        for resource, hooks in before.items():
            await site.host.merge_patch(resource, "atoll", {"webhooks": hooks})


async def test_an_invalid_queue_stops_only_itself_and_what_is_below(site: Site) -> None:
    """1. While the webhook hangs, b is guaranteed more than team is. 2. team and all below it wait, with the reason in
    conditions; other goes on. 3. The fault is mended: they go on."""
    queues = await lab(site)
    bad = {"spec": {"guarantee": {"resource": {"cpu": "5"}}}}

    async def slipped_in() -> bool:
        # API servers take a moment to see that the webhook may be ignored.
        try:
            await site.host.merge_patch(QUEUES, queues["b"], bad)
        except ApiError:
            return False
        return True

    async with webhook_off(site):
        await until(slipped_in, what="the change is accepted")

    async def told() -> bool:
        return "conditions" in (seen := await status(site, queues["team"])) and valid(seen)[0] == "False"

    await until(told, what="team is invalid")
    found = await status(site, queues["team"])
    assert "the queues below it are guaranteed cpu 6, more than the 2" in valid(found)[1]
    await run(site, "a1", queue=queues["a"])
    await run(site, "o1", queue=queues["other"])
    await settle(site, {"o1"}, {"a1": ("QueueInvalid", queues["a"])})
    for name, expected in (("a", "False"), ("b", "False"), ("org", "True"), ("other", "True")):
        assert valid(await status(site, queues[name]))[0] == expected, name
    assert "INVALID" in await atollctl(site, "queue", "describe", queues["team"])
    await site.host.merge_patch(QUEUES, queues["b"], {"spec": {"guarantee": None}})
    await settle(site, {"o1", "a1"}, {})
