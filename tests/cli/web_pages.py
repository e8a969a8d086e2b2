"""A federation for the page, the page itself, and a client that opened it."""

from __future__ import annotations

import asyncio
import html
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from atoll.cli.web import local
from atoll.cli.web.settings import WebSettings
from atoll.cli.web.site import Site
from atoll.cli.web.tokens import Tokens, without_credentials
from atoll.kube.access import Access
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, CAPACITIES, CLUSTERS, JOBS, LEASES, QUEUES
from atoll.model.decision import Line, Phase
from atoll.model.runs import Part, Run
from atoll.model.timestamps import rfc3339
from atoll.model.verdict import Blocker, Reason
from tests.cli.kubeconfigs import kubeconfig
from tests.cli.web_host import Host, serving
from tests.view.made import T0, binding, job, queue, told

Json = dict[str, Any]

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def waiting(name: str, **more: Any) -> Json:
    found = binding(name, **{"blocker": Blocker("Queue", "research", "nvidia.com/gpu", "16", "4")} | more)
    found["spec"]["resource"] |= {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": name,
        "namespace": "team",
    }
    return found


def ran(name: str, **more: Any) -> Json:
    """A binding with a run that ended ten minutes ago, after half an hour with 8 GPUs."""
    begin, end = (rfc3339(time.time() - minutes * 60) for minutes in (40, 10))
    run = Run(
        1, begin, begin, "research", queued=begin, bound=begin, running=begin, ended=end, released=end, counted=end,
        parts=[Part("east", 2, granted={"nvidia.com/gpu": 8.0}, seconds={"nvidia.com/gpu": 8.0 * 1800})], **{"user": "ann", "outcome": "Succeeded", **more},
    )  # fmt: skip
    found = waiting(name)
    found["status"]["runs"] = msgspec.to_builtins([run])
    return found


def queue_run(name: str, namespace: str) -> Json:
    """The same as a QueueRun of another namespace."""
    found = ran(name)
    meta = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
    return {"metadata": meta, "workload": name, "workloadKind": "Job.batch", "runs": found["status"]["runs"]}


def tree() -> list[Json]:
    """Queue lab, which deserves GPUs, and queue research below it."""
    return [queue("lab", deserved={"nvidia.com/gpu": "16"}), queue("research", parent="lab")]


def member(name: str, free: int = 6) -> tuple[Json, Json]:
    cluster = {
        "metadata": {"name": name, "creationTimestamp": T0},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "kubernetesVersion": "v1.36.0"},
    }
    capacity = {
        "metadata": {"name": "top", "namespace": keys.execution_namespace(name)},
        "spec": {
            "cluster": name, "generation": 1, "root": "", "objects": 1,
            "total": {"cpu": 64000, "nvidia.com/gpu": 16, "pods": 220},
            "domains": [{"name": f"{name}-rack", "tier": 1, "tierName": "rack"}],
            "profiles": [{"allocatable": {"cpu": "32", "nvidia.com/gpu": "8"}}],
            "classes": [
                {"domain": f"{name}-rack", "profile": 0, "nodes": 2, "free": {"cpu": 16000, "nvidia.com/gpu": free // 2}}
            ],
        },
    }  # fmt: skip
    return cluster, capacity


def availability(member: str, free: int = 6, **status: Any) -> Json:
    """What namespace team may use of the GPUs of a member."""
    gangs = [{"each": "1", "pods": free, "near": free}, {"each": "2", "pods": free // 2, "near": free // 4}]
    stock = {"resource": "nvidia.com/gpu", "free": f"{free}", "total": "16", "node": f"{free // 2}", "gangs": gangs}
    left = {"queue": "research", "resources": {"nvidia.com/gpu": "12"}}
    return {
        "metadata": {"name": member, "namespace": "team"},
        "status": {"stocks": [stock], "queues": [left, {"queue": "night"}], **status},
    }


def filled() -> Host:
    host = Host()
    for name in ("east", "west"):
        cluster, capacity = member(name)
        host.put(CLUSTERS, cluster)
        host.put(CAPACITIES, capacity)
    host.put(QUEUES, told(queue("research", capability={"nvidia.com/gpu": "32"}), pending=2), told(queue("night")))
    story = (Line(T0, Phase.SUSPENDED, Reason.QUOTA_EXCEEDED, EVIL),)
    host.put(BINDINGS, waiting("train", story=story), waiting("other", submitted="2027-01-15T07:59:30Z"))
    host.put(JOBS, job("train"), job("other"))
    host.put(
        LEASES,
        {"metadata": {"name": "atoll-control", "namespace": keys.SYSTEM_NAMESPACE}, "spec": {"holderIdentity": "one"}},
    )
    return host


class Browser:
    """A client with the cookie of the page."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session, self.address = session, address
        self.base = address.partition("/enter")[0]

    async def text(self, path: str, status: int = 200, token: str = "") -> str:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.session.get(f"{self.base}{path}", headers=headers) as answer:
            assert answer.status == status, await answer.text()
            return await answer.text()

    async def send(self, path: str, fields: dict[str, str], status: int = 200, **headers: str) -> str:
        """Send a form, as the page's own script-free forms do."""
        async with self.session.post(
            f"{self.base}{path}", data=fields, headers={"Origin": self.base, **headers}
        ) as answer:
            assert answer.status == status, await answer.text()
            return await answer.text()


@asynccontextmanager
async def opened(host: Host, folder: Path, *, only: str | None = None, enter: bool = True) -> AsyncIterator[Browser]:
    """The page of this host, and a browser that opened the printed address."""
    async with (
        serving(host),
        await ApiServer.from_kubeconfig(kubeconfig(host.url, folder / "config")) as api,
        entered(api, "team", only=only, enter=enter) as browser,
    ):
        yield browser


@asynccontextmanager
async def entered(api: ApiServer, own: str, *, only: str | None = None, enter: bool = True) -> AsyncIterator[Browser]:
    """The page with the rights of this client."""
    said: asyncio.Queue[str] = asyncio.Queue()
    running = asyncio.create_task(local.serve(api, only, own, 0, said.put_nowait))
    try:
        first = asyncio.create_task(said.get())
        await asyncio.wait([first, running], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        address = first.result().splitlines()[0].removeprefix("open ")
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            if enter:
                async with session.get(address) as answer:
                    assert answer.status == 200
                    assert answer.url.path == "/"
            yield Browser(session, address)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def shared(host: Access, **options: Any) -> AsyncIterator[Browser]:
    """`atoll-web` for this host, and a browser without a token."""
    bound = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{bound.getsockname()[1]}"
    users = Tokens(without_credentials(host), WebSettings(names=base.removeprefix("http://"), **options))
    runner = web.AppRunner(Site(users, users.settings.streams).app(), shutdown_timeout=0.1)
    await runner.setup()
    await web.SockSite(runner, bound).start()
    sweeping = asyncio.create_task(users.sweep())
    jar = aiohttp.CookieJar(unsafe=True, treat_as_secure_origin=URL(base))
    try:
        async with aiohttp.ClientSession(cookie_jar=jar, headers={"Origin": base}) as session:
            yield Browser(session, base)
    finally:
        await runner.cleanup()
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)


def plain(text: str) -> str:
    """The words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())
