"""Dashboards and alerts, executed by a real Prometheus that scrapes a running federation."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from atoll import install
from atoll.kube.transport import ApiServer
from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from atoll.local.processes import Process, ProcessSpec
from atoll.model import keys
from atoll.model.apiresource import CAPACITIES
from tests.faults.proxies import Proxies
from tests.faults.proxy import Fault
from tests.integration.command_line import atollctl
from tests.integration.federation import Site, job, member, until
from tests.monitoring.files import RULES, alerts, expressions, program

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

MEMBER = "east"
VARIABLES = {"cluster": ".*", "queue": ".*", "resource": "cpu"}
"""As Grafana fills them in: of a variable with several values `All`, of one with a single value the value."""
AFTER_A_FAULT = {
    "Requests to API servers that fail",
    "Failed looks",
    "Open circuit breakers",
    "Openings in an hour",
    "ClusterCapacity objects replaced unread",
    "Refused reports",
}
"""Panels that have a line only once something went wrong."""
NOT_PLAYED = {"Openings in an hour"}
"""Panels of faults that these tests don't cause: a few refused bindings open no circuit breaker."""
FLAGS = {
    "control": QUICK_ELECTION,
    "dispatcher": (*QUICK_ELECTION, "--set=core.progress.commit=3"),
    "agent": QUICK_ELECTION,
}


class Prometheus:
    """One that scrapes every few seconds, and what was seen of the panels."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._filled: set[tuple[str, str]] = set()

    async def ask(self, path: str, **params: str) -> Any:
        """The data of an answer of its API; an error of the query fails the test."""
        async with aiohttp.ClientSession() as session, session.get(f"{self._url}/api/v1/{path}", params=params) as got:
            answer = await got.json()
        assert answer["status"] == "success", f"{params}: {answer}"
        return answer["data"]

    async def series(self, expression: str) -> list[Any]:
        """What an instant query gives, without values that are no number."""
        found = (await self.ask("query", query=with_values(expression)))["result"]
        return [each for each in found if each["value"][1] != "NaN"]

    async def empty(self) -> set[str]:
        """Titles of panels of which a query never gave anything: a scrape that is late leaves all of them without."""
        for each in set(expressions()) - self._filled:
            if await self.series(each[1]):
                self._filled.add(each)
        return {title for title, _ in set(expressions()) - self._filled}


def with_values(expression: str) -> str:
    """The expression with a value for each variable."""
    return re.sub(r"\$(\w+)", lambda found: VARIABLES[found[1]], expression)


async def filled(look: Callable[[], Awaitable[bool]], prometheus: Prometheus, but: Set[str] = frozenset()) -> None:
    """Wait for panels; fails with the titles of those that stay empty."""
    try:
        await until(look, deadline=180)
    except AssertionError:
        assert await prometheus.empty() - but == set()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def proxies(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxies]:
    async with Proxies(tmp_path_factory.mktemp("proxies"), seed=1) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(tmp_path_factory: pytest.TempPathFactory, proxies: Proxies) -> AsyncIterator[Site]:
    program("prometheus")
    async with (
        AtollFederation(
            FederationConfig(members=[member(MEMBER, 4)]),
            tmp_path_factory.mktemp("watched"),
            flags=FLAGS,
            through=lambda name, path: path if "webhook" in name else proxies.through(name, path),
        ) as running,
        await running.host.connect() as host,
        await running.members[MEMBER].connect() as api,
    ):
        made = Site(running, host, {MEMBER: api})
        await made.open()
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def prometheus(place: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prometheus]:
    directory = tmp_path_factory.mktemp("prometheus")
    targets: dict[str, list[str]] = {}
    for name, kept in place.federation.atoll.processes.items():
        url = kept.process.spec.ready_url or ""
        job_name = "atoll-agent" if name.startswith("atoll-agent") else name
        targets.setdefault(job_name, []).append(url.removeprefix("http://").removesuffix("/readyz"))
    configuration = {
        "global": {"scrape_interval": "3s", "scrape_timeout": "3s", "evaluation_interval": "3s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": name, "static_configs": [{"targets": each}]} for name, each in targets.items()],
    }
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(configuration), "utf-8")
    [port] = free_ports(1, "127.0.0.1")
    url = f"http://127.0.0.1:{port}"
    argv = [
        program("prometheus"),
        f"--config.file={directory}/prometheus.yaml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    process = Process(ProcessSpec("prometheus", argv, ready_url=f"{url}/-/ready"), directory / "prometheus.log")
    await process.start()
    try:
        await process.wait_ready()
        yield Prometheus(url)
    finally:
        await process.stop()


async def test_after_a_few_jobs_only_panels_of_faults_are_empty(place: Site, prometheus: Prometheus) -> None:
    limits = {"cpu": "4", "memory": "8Gi"}
    queue = await place.queue(capability=limits, deserved=limits, guarantee={"resource": {"cpu": "1"}})
    await place.submit(job("runs", seconds=None, queue=queue))
    await place.submit(job("ends", queue=queue))
    await place.submit(job("waits", replicas=8, cpu="1", seconds=None, queue=queue))
    await place.phase("runs", "Running", deadline=120)
    await place.phase("ends", "Completed", deadline=120)

    number = 0

    async def filled_in() -> bool:
        nonlocal number
        number += 1
        # Rates need a workload after the first scrape of their series; questions have a panel of their own.
        await place.submit(job(f"more-{number}", queue=queue))
        await atollctl(place, "explain", "waits")
        return await prometheus.empty() <= AFTER_A_FAULT

    await filled(filled_in, prometheus, AFTER_A_FAULT)
    assert len(await prometheus.series("up == 1")) == len(place.federation.atoll.processes)
    tokens = await prometheus.series("count by (job, cluster) (atoll_token_expiry_timestamp_seconds > time())")
    assert {(each["metric"]["job"], each["metric"]["cluster"]) for each in tokens} == {
        ("atoll-webhook", "host"), ("atoll-control", "host"), ("atoll-dispatcher", "host"),
        ("atoll-agent", "host"), ("atoll-agent", "member"),
    }  # fmt: skip


async def test_after_faults_no_panel_is_empty(place: Site, prometheus: Prometheus, proxies: Proxies) -> None:
    """
    1. The host answers 500 to control's patches: requests and looks fail.
    2. The member binds no pod: its circuit breaker counts failures.
    3. Its agent publishes capacity that is none, faster than the dispatcher reads.
    """
    failing = proxies["atoll-control"].play(Fault.ERROR, method="PATCH", times=5)
    unbound = proxies[f"atoll-agent-{MEMBER}/member"].play(Fault.ERROR, resource="pods/binding", times=None)
    for number in range(4):
        await place.submit(job(f"unbound-{number}", seconds=None))
    file, _ = install.agent_kubeconfigs(place.federation.atoll.credentials, MEMBER)
    namespace = keys.execution_namespace(MEMBER)

    def stray(number: int) -> dict[str, Any]:
        spec = {
            "cluster": MEMBER, "generation": number, "root": "stray", "objects": 1, "domains": [], "profiles": [],
            "classes": [{"domain": "no", "profile": 7, "nodes": 1, "free": {}}],
        }  # fmt: skip
        head = {"apiVersion": CAPACITIES.api_version, "kind": CAPACITIES.kind}
        return {**head, "metadata": {"name": "stray", "namespace": namespace}, "spec": spec}

    number = 0
    async with await ApiServer.from_kubeconfig(file) as agent:

        async def filled_in() -> bool:
            nonlocal number
            for _ in range(50):
                number += 1
                await agent.apply(CAPACITIES, stray(number), field_manager="test")
            return await prometheus.empty() <= NOT_PLAYED

        try:
            await filled(filled_in, prometheus, NOT_PLAYED)
        finally:
            unbound.stop()
            failing.stop()
            await agent.delete(CAPACITIES, "stray", namespace)


async def test_no_alert_fails_to_evaluate(prometheus: Prometheus) -> None:
    async def evaluated() -> list[Any] | None:
        groups = (await prometheus.ask("rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return rules if all(rule["health"] != "unknown" for rule in rules) else None

    rules = await until(evaluated, what="each rule is evaluated")
    assert {rule["name"] for rule in rules} == {alert["alert"] for alert in alerts()}
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
