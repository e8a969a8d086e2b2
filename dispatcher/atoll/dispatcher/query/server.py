"""The HTTP side: who asks is found out first, then whether they may, then the core is asked."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import orjson
import structlog
from aiohttp import web

from atoll.dispatcher.explain import available, verdicts
from atoll.dispatcher.query import documents, queue_runs
from atoll.dispatcher.query.access import Access, Front, Unknown, User, identify
from atoll.dispatcher.query.budget import Budget, Exhausted
from atoll.dispatcher.query.documents import Refusal
from atoll.dispatcher.query.tunnels import Tunnels
from atoll.dispatcher.query.wishes import Wishes
from atoll.dispatcher.settings import LogSettings, QuerySettings
from atoll.dispatcher.shell import Shell
from atoll.kube import errors
from atoll.kube.serving import Guard
from atoll.kube.transport import ApiServer
from atoll.model import numbers, tunnel
from atoll.model.apiresource import AVAILABILITIES, EVENTS, PODS, QUEUE_RUNS, TUNNELS, VERDICTS, WHAT_IFS, ApiResource
from atoll.model.reports import readable
from atoll.model.tunnel import Session, Wanted

Json = dict[str, Any]

PAGE: Final = 50
"""Verdicts in one answer."""
MEMBERS: Final = 20
"""Availabilities in one answer."""
_MAX_BODY: Final = 2**20
_USER: Final = web.RequestKey("user", User)
_ROOT: Final = f"/apis/{VERDICTS.group}"
_VERSION: Final = f"{_ROOT}/{VERDICTS.version}"
_NAMESPACED: Final = _VERSION + "/namespaces/{namespace}"

log = structlog.get_logger(__name__)


class Server:
    """The routes, on one running core."""

    def __init__(
        self,
        host: ApiServer,
        shell: Shell,
        front: Callable[[], Front],
        guard: Guard,
        *,
        settings: QuerySettings = QuerySettings(),
        logs: LogSettings = LogSettings(),
    ) -> None:
        """No I/O happens here.

        Args:
            host: that is asked what users may do.
            shell: all read.
            front: who may pass requests on, now.
            guard: of the server.
            settings: its times and bounds.
            logs: bounds of what pods write.
        """
        self._logs, self._tunnels = logs, Tunnels(logs)
        self._settings = settings
        self._shell, self._front, self._bounds = shell, front, guard
        self._host, self._access = host, Access(host, settings=settings)
        self._wishes = Wishes(host, shell.queue)
        self._what_ifs, self._verdicts = (
            Budget(self._settings.share, self._settings.patience),
            Budget(self._settings.share, self._settings.patience),
        )

    def application(self) -> web.Application:
        """The routes; each request gets an answer that Kubernetes clients understand."""
        app = web.Application(middlewares=[self._bounds.middleware, self._guard])
        app.router.add_get(_ROOT, self._group)
        app.router.add_get(_VERSION, self._resources)
        app.router.add_get(f"{_NAMESPACED}/{VERDICTS.plural}", self._list)
        app.router.add_get(f"{_NAMESPACED}/{VERDICTS.plural}/{{name}}", self._get)
        app.router.add_get(f"{_NAMESPACED}/{VERDICTS.plural}/{{name}}/log", self._log)
        app.router.add_get(f"{_NAMESPACED}/{VERDICTS.plural}/{{name}}/events", self._events)
        app.router.add_get(f"{_NAMESPACED}/{VERDICTS.plural}/{{name}}/pods", self._pods)
        app.router.add_get(f"{_NAMESPACED}/{VERDICTS.plural}/{{name}}/exec", self._exec)
        app.router.add_get(f"{_NAMESPACED}/{VERDICTS.plural}/{{name}}/portforward", self._port_forward)
        app.router.add_get(f"{_VERSION}/{TUNNELS.plural}/{{name}}/{tunnel.SUBRESOURCE}", self._tunnel)
        app.router.add_post(f"{_NAMESPACED}/{WHAT_IFS.plural}", self._what_if)
        app.router.add_get(f"{_NAMESPACED}/{AVAILABILITIES.plural}", self._available)
        app.router.add_get(f"{_VERSION}/{QUEUE_RUNS.plural}/{{name}}", self._queue_runs)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Authentication, refusals in the words of Kubernetes, and the time that it took."""
        began = time.perf_counter()
        try:
            certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
            request[_USER] = identify(self._front(), certificate, request.headers.items())
            response: web.StreamResponse = await handler(request)
        except Unknown as error:
            response = _refused(Refusal(401, "Unauthorized", str(error)))
        except Refusal as refusal:
            response = _refused(refusal)
        except web.HTTPException as error:
            reason = {404: "NotFound", 405: "MethodNotAllowed", 413: "RequestEntityTooLarge"}.get(error.status, "")
            response = _refused(Refusal(error.status, reason, error.reason))
        except Exhausted as error:
            said = f"questions of {request[_USER].name} had their part of the leader's time"
            response = _refused(Refusal(429, "TooManyRequests", said, math.ceil(error.wait)))
        except errors.ApiError as error:
            log.warning("a question could not be answered", path=request.path, error=str(error))
            response = _refused(Refusal(503, "ServiceUnavailable", f"the host does not answer: {error.message}", 1))
        except Exception as error:
            log.exception("a question failed", path=request.path)
            text = f"the question could not be answered ({type(error).__name__}); the dispatcher's log tells more"
            response = _refused(Refusal(500, "InternalError", text))
        if not isinstance(response, web.Response):
            # How long one reads is no time that an answer took.
            return response
        route = request.match_info.route.resource
        self._shell.metrics.queries.labels(
            request.method, route.canonical.rpartition("/")[2] if route is not None else "", str(response.status)
        ).observe(time.perf_counter() - began)
        return response

    # -- discovery: it discloses nothing ------------------------------------------------------------------------------

    async def _group(self, _: web.Request) -> web.Response:
        return _json(documents.GROUP)

    async def _resources(self, _: web.Request) -> web.Response:
        return _json(documents.RESOURCES)

    # -- questions ---------------------------------------------------------------------------------------------------

    async def _get(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        everything = await self._may(request, "get", VERDICTS, namespace, name)
        user = request[_USER].name
        await self._verdicts.wait(user)
        with self._verdicts.spend(user):
            found = self._verdict(namespace, name, everything=everything)
        if found is None:
            raise Refusal(404, "NotFound", f'verdicts.{VERDICTS.group} "{name}" not found')
        return _shown(request, found)

    async def _list(self, request: web.Request) -> web.Response:
        """The bindings of a namespace in order of their names, some in each answer."""
        namespace = request.match_info["namespace"]
        everything = await self._may(request, "list", VERDICTS, namespace)
        names, after, left = _page(request, self._shell.bindings_in(namespace), PAGE)
        items = []
        user = request[_USER].name
        for name in names:
            await self._verdicts.wait(user)
            with self._verdicts.spend(user):
                found = self._verdict(namespace, name, everything=everything)
            if found is not None:
                items.append(found)
            # A pass need not wait for the whole page.
            await asyncio.sleep(0)
        return _shown(request, documents.page(VERDICTS, items, after, left))

    async def _available(self, request: web.Request) -> web.Response:
        """What a namespace may use: members in order of their names, some in each answer."""
        namespace = request.match_info["namespace"]
        await self._may(request, "list", AVAILABILITIES, namespace)
        core, user, items = self._shell.core, request[_USER].name, []
        known = [name for name, member in core.members.by_name.items() if member.view is not None]
        names, after, left = _page(request, known, MEMBERS)
        await self._verdicts.wait(user)
        with self._verdicts.spend(user):
            queues = available.queues_of(core, namespace, request.query.get("queue", ""))
            for name in names:
                found = available.available(core, namespace, core.members.by_name[name], queues)
                items.append(documents.availability(namespace, name, found))
        return _shown(request, documents.page(AVAILABILITIES, items, after, left))

    async def _queue_runs(self, request: web.Request) -> web.Response:
        """Last runs in a queue and the ones below it: some workloads in each answer."""
        top, user = request.match_info["name"], request[_USER]
        if not await self._access.allowed(user, "get", QUEUE_RUNS, name=top):
            text = f'User "{user.name}" cannot get resource "{QUEUE_RUNS.plural}" in API group "{QUEUE_RUNS.group}"'
            raise Refusal(403, "Forbidden", f'{QUEUE_RUNS.plural}.{QUEUE_RUNS.group} "{top}" is forbidden: {text}')
        only = request.query.get("queue", "")
        await self._verdicts.wait(user.name)
        with self._verdicts.spend(user.name):
            queues = queue_runs.below(self._shell.core, top, only)
            if not queues:
                text = f"queue {readable(only, 253)!r} is not below it" if only else "there is no such queue"
                raise Refusal(404, "NotFound", f'{QUEUE_RUNS.plural}.{QUEUE_RUNS.group} "{top}" not found: {text}')
            known = queue_runs.dispatched(self._shell.core, queues)
            names, after, left = _page(request, known, queue_runs.WORKLOADS)
        found = await queue_runs.read(self._host, names, queues)
        return _json(documents.page(QUEUE_RUNS, found, after, left))

    async def _what_if(self, request: web.Request) -> web.Response:
        namespace = request.match_info["namespace"]
        everything = await self._may(request, "create", WHAT_IFS, namespace)
        user = request[_USER].name
        # Before anything is read: a refusal costs nothing.
        await self._what_ifs.wait(user)
        body = await self._bounds.body(request, _MAX_BODY)
        try:
            with self._what_ifs.spend(user):
                asked = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise Refusal(400, "BadRequest", f"the body is no JSON: {error}") from error
        if not isinstance(asked, dict):
            raise Refusal(400, "BadRequest", "the body is no object")
        view = self._shell.flavored(await self._wishes.view(asked, namespace))
        with self._what_ifs.spend(user):
            account = verdicts.what_if(self._shell.core, view, time.time())
        seen = documents.for_user(account, namespace, self._shell.binding, everything=everything)
        return _json(documents.what_if(asked, seen), 201)

    async def _log(self, request: web.Request) -> web.StreamResponse:
        """The output of the pods of a binding, read by the agents of its members."""
        uid, clusters = await self._readable(request, "log", "get", PODS, "log")
        asked, limits = request.query, self._logs
        wanted = Wanted(
            request.match_info["namespace"],
            uid,
            task=asked.get("task", ""),
            index=_whole(request, "index") if asked.get("index") else -1,
            container=asked.get("container", ""),
            tail=min(_whole(request, "tail") if asked.get("tail") else Wanted("", "").tail, limits.lines),
            follow=asked.get("follow") == "true",
            previous=asked.get("previous") == "true",
            most=limits.size,
        )
        return await self._read(request, clusters, wanted)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """The Events of the pods of a binding in its members."""
        uid, clusters = await self._readable(request, "events", "list", EVENTS)
        wanted = Wanted(request.match_info["namespace"], uid, events=True, most=self._logs.size)
        return await self._read(request, clusters, wanted)

    async def _pods(self, request: web.Request) -> web.StreamResponse:
        """The pods of a binding by name, as its members have them."""
        uid, clusters = await self._readable(request, "pods", "list", PODS)
        wanted = Wanted(request.match_info["namespace"], uid, pods=True, most=self._logs.size)
        return await self._read(request, clusters, wanted)

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        """A command in a pod of a binding, by the agent of its member."""
        uid, clusters = await self._readable(request, "exec", "create", PODS, "exec")
        command = request.query.getall("command", [])
        if not command:
            raise Refusal(400, "BadRequest", "command: is missing; say what is to run")
        return await self._session(
            request, clusters, uid, command=command, container=request.query.get("container", "")
        )

    async def _port_forward(self, request: web.Request) -> web.StreamResponse:
        """A connection to a port of a pod of a binding, by the agent of its member."""
        uid, clusters = await self._readable(request, "portforward", "create", PODS, "portforward")
        port = _whole(request, "port")
        if not 0 < port < 65536:
            raise Refusal(400, "BadRequest", f"port: {port} is no port; use one from 1 to 65535")
        return await self._session(request, clusters, uid, port=port)

    async def _session(self, request: web.Request, clusters: list[str], uid: str, **what: Any) -> web.StreamResponse:
        """One with the pod that is asked for; a request without an upgrade gets the answer whether one could begin."""
        asked = request.query
        cluster = asked.get("cluster", "") or (clusters[0] if len(clusters) == 1 else "")
        if cluster not in clusters:
            text = f"cluster: its pods are in {', '.join(clusters)}; choose one of them"
            raise Refusal(400, "BadRequest", text)
        session = Session(
            request.match_info["namespace"],
            uid,
            task=asked.get("task", ""),
            index=_whole(request, "index") if asked.get("index") else -1,
            stdin=asked.get("stdin") == "true",
            **what,
        )
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return _json({"cluster": cluster})
        return await self._tunnels.session(request, request[_USER].name, cluster, session)

    async def _readable(
        self, request: web.Request, what: str, verb: str, resource: ApiResource, sub: str = ""
    ) -> tuple[str, list[str]]:
        """UID and members of the binding, for who may read that of it, and the like of pods on the host.

        Raises:
            Refusal: its user may not, or there is nothing.
        """
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        await self._may(request, "get", VERDICTS, namespace, name, sub=what)
        user = request[_USER]
        if not await self._access.allowed(user, verb, resource, namespace, sub=sub):
            plural = f"{resource.plural}/{sub}" if sub else resource.plural
            text = f'User "{user.name}" cannot {verb} resource "{plural}" in the namespace "{namespace}" of the host'
            raise Refusal(403, "Forbidden", f"{what} of {name} is forbidden: {text}")
        binding = self._shell.binding(namespace, name)
        if binding is None:
            raise Refusal(404, "NotFound", f'verdicts.{VERDICTS.group} "{name}" not found')
        clusters = sorted(target.name for target in binding.spec.clusters)
        if not clusters:
            raise Refusal(404, "NotFound", f"{binding.spec.resource.name} is in no member: it has no pods")
        return binding.metadata.uid, clusters

    async def _read(self, request: web.Request, clusters: list[str], wanted: Wanted) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        async for text in self._tunnels.read(request[_USER].name, clusters, wanted):
            if not response.prepared:
                await response.prepare(request)
            await response.write(text.encode())
        if not response.prepared:
            await response.prepare(request)
        await response.write_eof()
        return response

    async def _tunnel(self, request: web.Request) -> web.StreamResponse:
        """The connection of an agent, which may speak for its own member alone."""
        name = request.match_info["name"]
        user = request[_USER]
        if not await self._access.allowed(user, "get", TUNNELS, name=name, sub=tunnel.SUBRESOURCE):
            raise Refusal(403, "Forbidden", f'tunnel "{name}" is forbidden: User "{user.name}" is not its agent')
        return await self._tunnels.serve(request, name)

    def _verdict(self, namespace: str, name: str, *, everything: bool) -> Json | None:
        binding = self._shell.binding(namespace, name)
        if (
            binding is None
            or (account := verdicts.account(self._shell.core, binding.metadata.uid, time.time())) is None
        ):
            return None
        seen = documents.for_user(account, namespace, self._shell.binding, everything=everything)
        return documents.verdict(binding, seen)

    async def _may(
        self, request: web.Request, verb: str, resource: ApiResource, namespace: str, name: str = "", *, sub: str = ""
    ) -> bool:
        """Whether the user may also see objects in other namespaces.

        Raises:
            Refusal: not even the requested ones.
        """
        user = request[_USER]
        if not await self._access.allowed(user, verb, resource, namespace, name, sub=sub):
            plural = f"{resource.plural}/{sub}" if sub else resource.plural
            where = f'"{name}" ' if name else ""
            raise Refusal(
                403,
                "Forbidden",
                f'{resource.plural}.{resource.group} {where}is forbidden: User "{user.name}" cannot {verb} resource'
                f' "{plural}" in API group "{resource.group}" in the namespace "{namespace}"',
            )
        return await self._access.allowed(user, "list", VERDICTS)


def _page(request: web.Request, names: Iterable[str], most: int) -> tuple[list[str], str, int]:
    """The names of the page that is asked for, where the next one begins (empty: nowhere), and how many are left."""
    limit, begin = min(_whole(request, "limit") or most, most), request.query.get("continue", "")
    rest = sorted(name for name in names if name >= begin)
    return rest[:limit], rest[limit] if len(rest) > limit else "", max(len(rest) - limit, 0)


def _whole(request: web.Request, parameter: str) -> int:
    """The number that a parameter of the query says; 0 where it is not there.

    Raises:
        Refusal: it is no number.
    """
    text = request.query.get(parameter, "")
    number = numbers.whole(text) if text else 0
    if number is None:
        said = f"{readable(text, 30)!r} is not a whole number between 0 and {numbers.MOST}"
        raise Refusal(400, "BadRequest", f"{parameter}: {said}")
    return number


def _shown(request: web.Request, answer: Json) -> web.Response:
    """The answer as it is, or as the table that kubectl asks for."""
    if "as=Table;v=v1;g=meta.k8s.io" not in request.headers.get("Accept", ""):
        return _json(answer)
    return _json(documents.table(answer, time.time(), request.query.get("includeObject", "Metadata")))


def _json(content: Json, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, content_type="application/json")


def _refused(refusal: Refusal) -> web.Response:
    response = _json(refusal.status(), refusal.code)
    if refusal.retry_after is not None:
        response.headers["Retry-After"] = str(refusal.retry_after)
    return response
