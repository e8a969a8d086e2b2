"""The query API through a real API server: who may ask, what they are told, and what a what-if answers."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio
import yaml

from atoll import install
from atoll.cli.errors import CommandError
from atoll.client import AsyncClient, Job
from atoll.install.rights import ROLE_BINDINGS
from atoll.kube.errors import Busy, Forbidden, Invalid, NotFound
from atoll.kube.transport import ApiServer
from atoll.local.keeper import KeptProcess
from atoll.local.ports import free_ports
from atoll.model import keys
from atoll.model.apiresource import (
    API_SERVICES,
    AVAILABILITIES,
    BINDINGS,
    CAPACITIES,
    CLUSTERS,
    JOBS,
    NAMESPACES,
    PRIORITY_CLASSES,
    QUEUE_RUNS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VERDICTS,
    WHAT_IFS,
)  # fmt: skip
from tests.atollctl import atollctl as run
from tests.cli.web_pages import entered, plain
from tests.integration.command_line import atollctl
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration

Json = dict[str, Any]


@pytest_asyncio.fixture(loop_scope="session")
async def served(site: Site) -> Site:
    """Once the API server has found the leader."""

    async def available() -> bool:
        found = await site.find(API_SERVICES, keys.QUERY_API)
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

    await until(available, what="the query API is available")
    return site


@pytest_asyncio.fixture(loop_scope="session")
async def stranger(served: Site) -> AsyncIterator[ApiServer]:
    """An account without any rights."""
    metadata = {"name": "someone", "namespace": served.namespace}
    await served.host.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    token, _ = await install.issue_token(served.host, "someone", served.namespace)
    file = served.federation.atoll.credentials / f"{served.namespace}.kubeconfig"
    install.write_kubeconfig(file, await install.endpoint(served.federation.host.kubeconfig), "someone", token)
    async with await ApiServer.from_kubeconfig(file, user_agent="test") as api:
        yield api
    file.unlink()


async def grant(site: Site, role: str) -> None:
    """Bind the stranger to a ClusterRole in the test's namespace."""
    await site.host.create(
        ROLE_BINDINGS,
        {
            "apiVersion": ROLE_BINDINGS.api_version,
            "kind": ROLE_BINDINGS.kind,
            "metadata": {"name": role, "namespace": site.namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "someone", "namespace": site.namespace}],
        },
    )


async def ask(api: ApiServer, namespace: str, workload: Json) -> Json:
    body = {"metadata": {"namespace": namespace}, "spec": {"workload": workload}}
    answer: Json = (await api.create(WHAT_IFS, body))["status"]
    return answer


async def test_the_verdict_of_a_job_that_waits(served: Site) -> None:
    queue = await served.queue(capability={"cpu": "2"})
    await served.submit(job("first", cpu="2", seconds=None, queue=queue))
    await served.phase("first", "Running")
    await served.submit(job("second", cpu="3", queue=queue))
    await served.reason("second", "QuotaExceeded")
    found = await served.host.get(VERDICTS, "second-job", served.namespace)
    assert (found["kind"], found["metadata"]["name"], found["workload"]) == ("Verdict", "second-job", "second")
    status = found["status"]
    assert status["reason"] == "QuotaExceeded"
    assert status["since"]
    assert status["queue"] == {"queue": queue, "position": 1, "waiting": 1}
    [limit] = status["limits"]
    assert (limit["name"], limit["resource"], limit["requested"], limit["shortage"]) == (queue, "cpu", "3", "3")
    assert {room["cluster"] for room in status["clusters"]} == {"alpha", "beta", "topo"}
    listed = await served.host.list(VERDICTS, served.namespace)
    assert [each["metadata"]["name"] for each in listed] == ["first-job", "second-job"]
    assert "\nsecond-job " in served.kubectl("get", "verdicts", "second-job", "-n", served.namespace)


async def test_kubectl_prints_verdicts_in_columns(served: Site) -> None:
    queue = await served.queue(capability={"cpu": "2"})
    await served.submit(job("first", cpu="2", seconds=None, queue=queue))
    await served.phase("first", "Running")
    await served.submit(job("second", cpu="1", queue=queue))
    await served.reason("second", "QuotaExceeded")
    printed = served.kubectl("get", "verdicts.query.atoll.sh", "-n", served.namespace, "-o", "wide").splitlines()
    head = "NAME WORKLOAD QUEUE PLACE REASON CLUSTER AGE WANTED AVAILABLE MESSAGE"
    assert printed[0].split() == head.split()
    [line] = [line for line in printed if line.startswith("second-job")]
    for cell in (f" {queue} ", " 1 of 1 ", " QuotaExceeded ", " 1 cpu ", "it would exceed"):
        assert cell in line
    one = served.kubectl("get", "verdicts.query.atoll.sh", "second-job", "-n", served.namespace, "-o", "json")
    assert orjson.loads(one)["status"]["reason"] == "QuotaExceeded"


async def test_a_list_comes_in_pages(served: Site) -> None:
    queue = await served.queue(capability={"cpu": "0"})
    for name in ("a", "b", "c"):
        await served.submit(job(name, queue=queue))
    for name in ("a", "b", "c"):
        await served.reason(name, "QuotaExceeded")
    path = VERDICTS.path(served.namespace)
    first = orjson.loads(await served.host.request("GET", path, params={"limit": "2"}))
    assert first["metadata"]["remainingItemCount"] == 1
    more = {"limit": "2", "continue": first["metadata"]["continue"]}
    second = orjson.loads(await served.host.request("GET", path, params=more))
    names = [each["metadata"]["name"] for page in (first, second) for each in page["items"]]
    assert names == ["a-job", "b-job", "c-job"]


async def test_what_does_not_exist_is_not_found(served: Site) -> None:
    with pytest.raises(NotFound):
        await served.host.get(VERDICTS, "nothing", served.namespace)


async def test_a_workload_that_fits_and_one_that_does_not(served: Site) -> None:
    queue = await served.queue(capability={"cpu": "4"})
    fits = await ask(served.host, served.namespace, job("x", cpu="1", replicas=2, queue=queue))
    assert fits["starts"]
    assert [place["pods"] for place in fits["places"]] == [2]
    await served.submit(job("runs", cpu="3", seconds=None, queue=queue))
    await served.phase("runs", "Running")
    refused = await ask(served.host, served.namespace, job("x", cpu="2", queue=queue))
    assert not refused["starts"]
    assert refused["reason"] == "QuotaExceeded"
    limits, ends, other = refused["changes"]
    assert (limits["kind"], limits["limits"][0]["shortage"]) == ("RaiseLimits", "1")
    runs = {"namespace": served.namespace, "name": "runs-job", "workload": "runs"}
    assert (ends["kind"], ends["workloads"]) == ("Finish", [runs])
    assert other["kind"] == "Queue"


async def test_what_would_not_be_taken_does_not_start(served: Site) -> None:
    """1. A namespace that is not opted in. 2. A PriorityClass that nobody made."""
    with pytest.raises(Invalid, match="namespace kube-public is not opted in, so Atoll would leave the workload alone"):
        await ask(served.host, "kube-public", job("x"))
    with pytest.raises(Invalid, match="PriorityClass urgent does not exist on the host: members refuse such pods"):
        await ask(served.host, served.namespace, job("x", priorityClassName="urgent"))


async def test_what_can_not_be_read_is_refused_with_the_reason(served: Site) -> None:
    with pytest.raises(Invalid, match="Pod of v1 is none of"):
        await ask(served.host, served.namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": {}})
    with pytest.raises(Invalid, match="give either workload"):
        await served.host.create(WHAT_IFS, {"metadata": {"namespace": served.namespace}, "spec": {}})


async def test_only_who_may_is_answered(served: Site, stranger: ApiServer) -> None:
    queue = await served.queue(capability={"cpu": "0"})
    await served.submit(job("waits", queue=queue))
    await served.reason("waits", "QuotaExceeded")
    with pytest.raises(Forbidden, match="cannot get resource"):
        await stranger.get(VERDICTS, "waits-job", served.namespace)
    with pytest.raises(Forbidden, match="cannot create resource"):
        await ask(stranger, served.namespace, job("x"))
    await grant(served, "view")
    await grant(served, "edit")

    async def answered() -> bool:
        try:
            return bool(await ask(stranger, served.namespace, job("x")))
        except Forbidden:
            return False

    await until(answered, what="the new rights count")
    assert (await stranger.get(VERDICTS, "waits-job", served.namespace))["status"]["reason"] == "QuotaExceeded"
    with pytest.raises(Forbidden):
        await stranger.get(VERDICTS, "waits-job", "default")


async def test_names_in_other_namespaces_are_for_those_who_may_list_them(served: Site, stranger: ApiServer) -> None:
    queue = await served.queue(capability={"cpu": "0"})
    theirs = job(f"theirs-{served.namespace}", queue=queue)
    urgent = f"urgent-{served.namespace}"
    head = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind, "metadata": {"name": urgent}}
    await served.host.create(PRIORITY_CLASSES, {**head, "value": 1_000_000})
    theirs["spec"]["priorityClassName"] = urgent
    await served.submit(theirs, namespace="default")
    await served.submit(job("mine", queue=queue))
    await served.reason("mine", "QuotaExceeded")
    await grant(served, "view")

    async def seen() -> Json | None:
        try:
            found: Json = (await stranger.get(VERDICTS, "mine-job", served.namespace))["status"]["queue"]
        except Forbidden:
            return None
        return found

    masked = await until(seen)
    whole = (await served.host.get(VERDICTS, "mine-job", served.namespace))["status"]["queue"]
    served.kubectl("delete", "vcjob", f"theirs-{served.namespace}", "-n", "default")
    await served.host.delete(PRIORITY_CLASSES, urgent)
    assert (masked["position"], masked.get("ahead"), masked["more"]) == (2, None, 1)
    assert [each["namespace"] for each in whole["ahead"]] == ["default"]


async def test_a_user_with_edit_alone_sees_what_the_namespace_may_use(served: Site, stranger: ApiServer) -> None:
    """Neither members nor their nodes may be read; nothing names workloads or namespaces of others."""
    own = served.namespace
    queue = await served.queue(capability={"nvidia.com/gpu": "6"})
    closed = await served.queue("closed", annotations={keys.NAMESPACE_SELECTOR: '{"matchLabels": {"team": "other"}}'})
    theirs = job(f"theirs-{own}", seconds=None, queue=queue)
    [container] = theirs["spec"]["tasks"][0]["template"]["spec"]["containers"]
    container["resources"]["limits"] = {"nvidia.com/gpu": "2"}
    await served.submit(theirs, namespace="default")
    with pytest.raises(Forbidden, match="cannot list resource"):
        await stranger.list(AVAILABILITIES, own)
    await grant(served, "edit")

    async def answered() -> list[Json] | None:
        try:
            return await stranger.list(AVAILABILITIES, own)
        except Forbidden:
            return None

    found = await until(answered, what="the new rights count")
    for resource in (CLUSTERS, CAPACITIES):
        with pytest.raises(Forbidden):
            await stranger.list(resource)
    with pytest.raises(Forbidden):
        await stranger.list(AVAILABILITIES, "default")
    assert {each["metadata"]["name"] for each in found} == {"alpha", "beta", "topo"}
    kubeconfig = str(served.federation.atoll.credentials / f"{own}.kubeconfig")
    async with AsyncClient(namespace=own, kubeconfig=kubeconfig) as client:

        async def charged() -> bool:
            mine = await client.available(queue)
            return {each["queues"] for each in mine} == {f"{queue} (4)"}

        await until(charged, what="what others use of the queue is not left")
        with pytest.raises(CommandError, match=f"queue {closed} takes nothing from namespace {own} now"):
            await client.available(closed)
    head, *lines = served.kubectl("get", "availabilities.query.atoll.sh", "-n", own).splitlines()
    assert head.split() == ["NAME", "FREE", "ON", "ONE", "NODE", "QUEUES"]
    assert {line.split()[0] for line in lines} == {"alpha", "beta", "topo"}
    seen = str(await stranger.list(AVAILABILITIES, own))
    served.kubectl("delete", "vcjob", f"theirs-{own}", "-n", "default")
    assert f"theirs-{own}" not in seen
    assert "default" not in seen.replace("'queue': 'default'", "")


async def test_pods_by_name_are_for_those_who_may_list_pods(served: Site, stranger: ApiServer) -> None:
    await served.submit(job("named", cpu="1", replicas=2, seconds=None, queue="default"))
    await served.phase("named", "Running")

    async def told() -> list[list[str]]:
        lines = (await atollctl(served, "job", "pods", "named", "--each", "--no-headers")).splitlines()
        return [line.split() for line in lines]

    async def running() -> list[list[str]] | None:
        found = await told()
        return found if found and all("Running" in each for each in found) else None

    first, second = await until(running, what="both pods run")
    assert (first[1], second[1]) == ("named-worker-0", "named-worker-1")
    path = VERDICTS.path(served.namespace, "named-job", "pods")
    with pytest.raises(Forbidden):
        await stranger.request("GET", path)
    await grant(served, "view")

    async def allowed() -> bool:
        try:
            return b"named-worker-1" in await stranger.request("GET", path)
        except Forbidden:
            return False

    await until(allowed, what="view suffices")


async def test_an_administrator_of_a_queue_sees_the_runs_below_it_alone(served: Site, stranger: ApiServer) -> None:
    """The token has the right to one queue, and no role in the namespace."""
    lab = await served.queue("lab", deserved={"cpu": "2"})
    inner = await served.queue("inner", parent=lab, deserved={"cpu": "1"})
    other = await served.queue("other")
    for name, queue in (("mine", inner), ("theirs", other)):
        await served.submit(job(name, cpu="1", seconds=0.1, queue=queue))
        await served.phase(name, "Completed")
    path = QUEUE_RUNS.path(name=lab)
    with pytest.raises(Forbidden):
        await stranger.request("GET", path)
    role = f"runs-{lab}"
    resource = f"{QUEUE_RUNS.plural}.{QUEUE_RUNS.group}"
    served.kubectl("create", "clusterrole", role, "--verb=get", f"--resource={resource}", f"--resource-name={lab}")
    account = f"{served.namespace}:someone"
    served.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", f"--serviceaccount={account}")

    async def seen() -> list[Json]:
        try:
            found: list[Json] = orjson.loads(await stranger.request("GET", path))["items"]
        except Forbidden:
            return []
        return [each for each in found if each["runs"][0].get("released")]

    [mine] = await until(seen, what="the right to the queue counts, and its run has ended")
    assert (mine["workload"], mine["metadata"]["namespace"]) == ("mine", served.namespace)
    assert (mine["runs"][0]["queue"], mine["runs"][0]["outcome"]) == (inner, "Succeeded")
    with pytest.raises(Forbidden):
        await stranger.request("GET", QUEUE_RUNS.path(name=other))
    with pytest.raises(Forbidden):
        await stranger.request("GET", QUEUE_RUNS.path(name=inner))
    with pytest.raises(NotFound, match="is not below it"):
        await stranger.request("GET", path, params={"queue": other})
    with pytest.raises(Forbidden):
        await stranger.list(BINDINGS, served.namespace)

    kubeconfig = f"--kubeconfig={served.federation.atoll.credentials / f'{served.namespace}.kubeconfig'}"
    history = await run("history", f"--queue={inner}", "--no-headers", kubeconfig)
    assert [line.split()[:2] for line in history.out.splitlines()] == [[served.namespace, "mine"]], history.said
    usage = await run("usage", f"--queue={lab}", kubeconfig)
    rows = {line.split()[0]: line.split() for line in usage.out.splitlines() if " cpu " in line}
    assert rows.keys() == {lab, inner}, usage.said
    assert (rows[lab][-1], rows[inner][-2:]) == ("-", ["0.00", "0.00"])
    options = {"kubeconfig": kubeconfig.partition("=")[2], "namespace": served.namespace}
    async with AsyncClient(**options) as client:
        found = [each for each in (await client.usage(queue=lab)).rows if each["resource"] == "cpu"]
    assert [(each["queue"], each["runs"], each["lent"]) for each in found] == [(lab, 0, None), (inner, 1, 0.0)]
    async with entered(stranger, served.namespace) as browser:
        page = plain(await browser.text(f"/usage?queue={inner}"))
        assert f"{inner} 1 0" in page
        assert "share borrowed lent" in page
    refused = await run("history", f"--queue={other}", kubeconfig)
    assert refused.code == 1
    assert f'cannot get resource "{QUEUE_RUNS.plural}"' in refused.said
    own = await run("history", f"--queue={lab}", f"-n={served.namespace}", kubeconfig)
    assert "resourcebindings" in own.said
    for kind in ("clusterrolebinding", "clusterrole"):
        served.kubectl("delete", kind, role)


async def test_no_client_is_answered_directly(served: Site) -> None:
    """Headers say who asks; without the API server's own certificate they are worth nothing."""
    port = (await served.host.get(API_SERVICES, keys.QUERY_API))["spec"]["service"]["port"]
    address = (await served.host.get(SERVICES, keys.QUERY_SERVICE, keys.SYSTEM_NAMESPACE))["spec"]["externalName"]
    url = f"https://{address}:{port}{VERDICTS.path(served.namespace)}"
    headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    pki = served.federation.federation.keys
    async with aiohttp.ClientSession() as session:
        nobody, another = ssl._create_unverified_context(), ssl._create_unverified_context()
        # Signed by the right authority, for another purpose.
        another.load_cert_chain(*pki.serving)
        with pytest.raises(aiohttp.ClientError):
            # It gets no further than the handshake; TLS 1.3 tells it at the first read.
            async with session.get(url, headers=headers, ssl=nobody) as answer:
                await answer.read()
        async with session.get(url, headers=headers, ssl=another) as answer:
            assert (answer.status, (await answer.json())["reason"]) == (401, "Unauthorized")
        front = ssl._create_unverified_context()
        front.load_cert_chain(*pki.proxy)
        async with session.get(url, headers=headers, ssl=front) as answer:
            assert answer.status == 200


# -- the command line ------------------------------------------------------------------------------------------------


async def test_a_program_asks_what_a_job_would_do(served: Site) -> None:
    wish = Job(command=["true"], image="busybox:1", name="tried", workers=2)
    kubeconfig = str(served.federation.host.kubeconfig)
    async with AsyncClient(namespace=served.namespace, kubeconfig=kubeconfig) as client:
        assert "would start now" in await client.what_if(wish)
        assert "would start now" in await client.what_if(replace(wish, name=""))
    assert await served.find(JOBS, "tried") is None


async def test_explain_and_what_if_print_what_the_dispatcher_knows(served: Site, tmp_path: Path) -> None:
    queue = await served.queue(capability={"cpu": "4"})
    await served.submit(job("runs", cpu="3", seconds=None, queue=queue))
    await served.phase("runs", "Running")
    await served.submit(job("waits", cpu="2", queue=queue))
    await served.reason("waits", "QuotaExceeded")
    explained = await atollctl(served, "explain", "waits")
    assert f"limit     queue {queue}: 2 cpu needed, 1 left, 1 short" in explained
    assert "member    " in explained
    # The name is taken: what is asked about is another one.
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([job("waits", cpu="1", queue="default"), job("x", cpu="2", queue=queue)]))
    first, _, second = (await atollctl(served, "what-if", "-f", str(file))).partition(f"Job {served.namespace}/x")
    head = "2 workloads, each as if it came alone\n"
    assert first.startswith(f"{head}Job {served.namespace}/waits would start now\n  in ")
    assert second.startswith(" would wait\n  reason    QuotaExceeded")
    assert f"would help: the end of 1 workload: {served.namespace}/runs; that is enough" in second
    assert [each["metadata"]["name"] for each in await served.host.list(JOBS, served.namespace)] == ["runs", "waits"]
    data = orjson.loads(await atollctl(served, "what-if", "-f", str(file), "-o", "json"))
    assert [each["status"]["starts"] for each in data] == [True, False]
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump(job("wrong", minAvailable=9)))
    refused = await atollctl(served, "what-if", "-f", str(wrong), "-f", str(file), ok=False)
    assert f'Job {served.namespace}/wrong: Error from server (Invalid): Job.batch.volcano.sh "wrong" is inv' in refused
    refused = await atollctl(served, "what-if", "-f", str(_pod(tmp_path)), ok=False)
    assert "what-if takes Job of batch.volcano.sh/v1alpha1" in refused


def _pod(folder: Path) -> Path:
    file = folder / "pod.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
    return file


# -- who serves ------------------------------------------------------------------------------------------------------


async def test_whoever_leads_is_asked(served: Site) -> None:
    """1. The leader is killed, the standby serves. 2. That one ends in order, and until another leads the API is
    unknown: namespaces can be deleted, and `explain` says what the binding says.
    """
    queue = await served.queue(capability={"cpu": "0"})
    await served.submit(job("waits", queue=queue))
    await served.reason("waits", "QuotaExceeded")
    own = served.federation.process("dispatcher")
    health, query = free_ports(2)
    spec = own.process.spec
    flags = [each for each in spec.argv if not each.startswith(("--health-port", "--query-port"))]
    flags += [f"--health-port={health}", f"--query-port={query}"]
    ready = f"http://127.0.0.1:{health}/readyz"
    second = KeptProcess(
        replace(spec, name="dispatcher-2", argv=flags, ready_url=ready), served.federation.federation.directory / "logs"
    )
    await second.start()
    await second.ready()

    async def port() -> int | None:
        found = await served.find(API_SERVICES, keys.QUERY_API)
        return found["spec"]["service"]["port"] if found is not None else None

    async def answered() -> bool:
        try:
            return bool(await served.host.get(VERDICTS, "waits-job", served.namespace))
        except (NotFound, Busy):
            return False

    try:
        first = await port()
        own.kill()
        # Whichever of the two leads now, one of them answers.
        await until(answered, what="the verdict is given again")
        assert await port() in (first, query)
        await own.stop()
        await until(answered, what="the standby answers")
        assert await port() == query
        await second.stop()
        assert await port() is None
        assert not await answered()
        await _namespaces_can_go(served)
        explained = await atollctl(served, "explain", "waits")
        assert "only what the binding says: no dispatcher serves the query API" in explained
    finally:
        await second.stop()
        await own.start()
        await own.ready()
    await until(answered, what="the verdict is given by the first again")


async def _namespaces_can_go(site: Site) -> None:
    name = f"gone-{site.namespace}"
    await site.host.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await site.host.delete(NAMESPACES, name)

    async def gone() -> bool:
        return name not in [each["metadata"]["name"] for each in await site.host.list(NAMESPACES)]

    await until(gone, what="a namespace is deleted while nobody serves the API")
