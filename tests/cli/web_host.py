"""A host that plays an API server for the page: lists, watches that go on, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

from atoll.model import apiresource
from atoll.model.apiresource import ApiResource

Json = dict[str, Any]


class Host:
    """Objects by resource; `put` tells every watch."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Json]] = {}
        #: (path of the list, token) that are refused
        self.refused: set[tuple[str, str]] = set()
        #: tokens that the host does not know
        self.unknown: set[str] = set()
        self.requests: list[tuple[str, str, str]] = []
        #: status of each WhatIf
        self.answer_to_what_if: Json = {}
        #: bodies of WhatIfs
        self.what_ifs: list[Json] = []
        #: queue -> its QueueRuns, for who has the right to it; others are refused
        self.queue_runs: dict[str, list[Json]] = {}
        self.url = ""
        self._version = 100
        self._watches: list[tuple[str, asyncio.Queue[bytes]]] = []

    def put(self, resource: ApiResource, *objects: Json) -> None:
        for each in objects:
            self._version += 1
            meta = each["metadata"]
            meta.setdefault("uid", f"{resource.plural}-{meta.get('namespace', '')}-{meta['name']}")
            meta["resourceVersion"] = str(self._version)
            store = self.objects.setdefault(resource.path(), {})
            key = f"{meta.get('namespace', '')}/{meta['name']}"
            kind = "MODIFIED" if key in store else "ADDED"
            store[key] = each
            line = orjson.dumps({"type": kind, "object": each}) + b"\n"
            for path, watch in self._watches:
                if path in (resource.path(), resource.path(meta.get("namespace"))):
                    watch.put_nowait(line)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path, token = request.path, request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.requests.append((token, request.method, path))
        if token in self.unknown:
            return _no(401)
        if path.endswith("/selfsubjectreviews"):
            return _json({"status": {"userInfo": {"username": token}}}, 201)
        if (path, token) in self.refused:
            return _no(403)
        if "/verdicts/" in path:
            # No dispatcher answers.
            return _no(404)
        if "/queueruns/" in path:
            items = self.queue_runs.get(path.rpartition("/")[2])
            return _no(403) if items is None else _json({"metadata": {}, "items": items})
        if request.method == "POST":
            body = orjson.loads(await request.read())
            if path.endswith("/whatifs"):
                self.what_ifs.append(body)
                return _json({**body, "status": self.answer_to_what_if}, 201)
            assert request.query.get("dryRun") == "All", "a page writes nothing"
            return _json(body, 201)
        for whole, store in self.objects.items():
            head, _, plural = whole.rpartition("/")
            if path == whole:
                return await self._list(request, path, list(store.values()))
            for key, each in store.items():
                namespace, _, name = key.partition("/")
                place = f"{head}/namespaces/{namespace}/{plural}" if namespace else whole
                if path == f"{place}/{name}":
                    return _json(each)
                if path == place:
                    mine = [obj for obj in store.values() if obj["metadata"].get("namespace", "") == namespace]
                    return await self._list(request, path, mine)
        if path.endswith(tuple(f"/{plural}" for plural in PLURALS)):
            return await self._list(request, path, [])
        return _no(404)

    async def _list(self, request: web.Request, path: str, items: list[Json]) -> web.StreamResponse:
        if request.query.get("watch") not in ("1", "true"):
            return _json({"metadata": {"resourceVersion": str(self._version)}, "items": items})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        mine = (path, asyncio.Queue[bytes]())
        self._watches.append(mine)
        try:
            while True:
                await response.write(await mine[1].get())
        finally:
            self._watches.remove(mine)


PLURALS = {each.plural for each in vars(apiresource).values() if isinstance(each, ApiResource)} - {"verdicts"}


def _json(body: Json, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def _no(code: int) -> web.Response:
    reason = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound"}[code]
    return _json(
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": f"{reason} here"}, code
    )


@asynccontextmanager
async def serving(host: Host) -> AsyncIterator[Host]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", host.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield host
    finally:
        await runner.cleanup()
