"""Answers to reviews, by path.

Each answer is computed from the request and the caches alone: no request to the API server while another one waits
for us.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from atoll.admission import jsonpatch
from atoll.admission.problems import Json, Problem, added, idle
from atoll.kinds import KINDS, Kind, declare, known, makers
from atoll.kinds.declared import followed
from atoll.kube.reflector import Reflector
from atoll.model.apiresource import ApiResource
from atoll.model.objects import Full, Slim
from atoll.webhook import (
    bindings,
    declared,
    hyper_nodes,
    networks,
    overrides,
    placements,
    queues,
    resources,
    stamps,
)
from atoll.webhook.protocol import Request
from atoll.webhook.route import Route
from atoll.webhook.settings import ReviewSettings
from atoll.webhook.surroundings import Surroundings
from atoll.webhook.workloads import Workloads


class Reviews:
    """The answers, from what the caches know now."""

    def __init__(
        self,
        queue_cache: Reflector[queues.Queue],
        namespaces: Reflector[Slim],
        priority_classes: Reflector[Slim] | None = None,
        clusters: Reflector[resources.Cluster] | None = None,
        workload_kinds: Reflector[Full] | None = None,
        referable: Mapping[ApiResource, Reflector[Full]] = MappingProxyType({}),
        policies: networks.Policies | None = None,
        override_policies: overrides.Policies | None = None,
        *,
        settings: ReviewSettings = ReviewSettings(),
    ) -> None:
        """Adds an index and a handler to the queue cache, so call it before that runs.

        Args:
            queue_cache: of Queues.
            namespaces: of Namespaces.
            priority_classes: of PriorityClasses; without it none is called unknown.
            clusters: of Clusters; without it no resource is called unknown.
            workload_kinds: of WorkloadKinds, whose kinds are served from the moment at which they are heard of.
            referable: of objects that workloads of some kinds name; without it they are refused.
            policies: propagation policies; without them no message mentions networks between members.
            override_policies: without them documents that these change are not read.
            settings: its times and bounds.
        """
        around = Surroundings(queue_cache, namespaces, priority_classes, clusters, referable)
        self._workloads = Workloads(around, policies, override_policies, settings)
        self._workload_kinds = workload_kinds
        if workload_kinds is not None:
            workload_kinds.on_change(self._declare)
        by_kind = (route for kind in KINDS for route in self._workloads.routes(kind, kind.admission()))
        found = [
            *_ROUTES,
            *self._of_makers(),
            *_QueueReviews(around, settings, policies).routes(),
            *by_kind,
            *self._of_declared(),
        ]
        self.routes = {route.path: route for route in found}

    def _of_makers(self) -> Iterator[Route]:
        for path, title, check, templates in _MAKERS:
            yield Route(
                f"/validate/{path}",
                title,
                validate=_added(_by_object(check)),
                warn=partial(self._workloads.warn_maker, templates),
            )

    # -- kinds that users declare ------------------------------------------------------------------------------------

    def _of_declared(self) -> Iterator[Route]:
        yield Route("/mutate/declared", mutate=self._mutate, warn=self._undone)
        yield Route("/validate/declared", validate=self._validate, warn=self._warn, audit=self._audit)

    def _declare(self, *_: object) -> None:
        declare(followed(each.body for each in self._workload_kinds or ()))

    @staticmethod
    def _declared(request: Request) -> Kind | None:
        """The declared kind of a request's object, in the version in which it is declared."""
        of = request.resource
        kind = declared.kind_of_resource(known(), of.group, of.resource)
        return kind if kind is not None and kind.resource.version == of.version else None

    def _mutate(self, request: Request) -> list[jsonpatch.Operation]:
        kind, change = self._declared(request), self._workloads.change(request)
        if kind is None or self._workloads.is_left_to_host(kind, change):
            return []
        return stamps.stamped(change, kind.admission().defaults(change))

    def _undone(self, request: Request) -> list[Problem]:
        kind = self._declared(request)
        return kind.admission().of_defaults(self._workloads.change(request)) if kind is not None else []

    async def _validate(self, request: Request) -> list[Problem]:
        of = request.resource
        change = self._workloads.change(request)
        any_version = declared.kind_of_resource(known(), of.group, of.resource)
        if any_version is None:
            return []
        found = self._workload_kinds.get(f"{of.resource}.{of.group}") if self._workload_kinds is not None else None
        if change.old is None and found is not None and found.metadata.deletion_timestamp is not None:
            text = (
                f"WorkloadKind {found.metadata.name} is being deleted, so nothing would run it: create it again first"
            )
            return [Problem("kind", text)]
        if (kind := self._declared(request)) is None:
            return declared.other_version(any_version, change)
        return await self._workloads.validate(kind, kind.admission(), request)

    def _warn(self, request: Request) -> list[Problem]:
        kind = self._declared(request)
        return self._workloads.warn(kind, kind.admission(), request) if kind is not None else []

    def _audit(self, request: Request) -> str:
        kind = self._declared(request)
        return self._workloads.audit(kind.admission(), request) if kind is not None else ""


class _QueueReviews:
    def __init__(
        self, around: Surroundings, settings: ReviewSettings, policies: networks.Policies | None = None
    ) -> None:
        self._around, self._settings, self._policies = around, settings, policies

    def routes(self) -> Iterator[Route]:
        yield Route("/mutate/queues", mutate=lambda request: queues.default_queue(request.object or {}))
        yield Route("/validate/queues", "Queue", validate=self._validate, warn=self._warn)

    async def _validate(self, request: Request) -> list[Problem]:
        around, get = self._around, self._around.queues.get
        if request.operation == "DELETE":
            # A delete of a collection names each object in oldObject only.
            metadata = (request.old_object or {}).get("metadata")
            name = request.name or (str(metadata.get("name") or "") if isinstance(metadata, dict) else "")
            return await around.settled(
                lambda: queues.validate_queue_deletion(
                    name, around.children(name), found.dispatched if (found := get(name)) is not None else 0
                ),
                self._settings.settle_status,
            )
        queue, old = request.object or {}, request.old_object
        if request.operation == "UPDATE" and old is not None:
            return await around.settled(
                lambda: queues.validate_queue_update(old, queue, get, around.below), self._settings.settle
            )
        return await around.settled(lambda: queues.validate_queue(queue, get, around.below), self._settings.settle)

    def _has_policy(self, name: str) -> bool:
        """Whether a policy is there, or it is not known."""
        if self._policies is None:
            return True
        cache = self._policies.own if "/" in name else self._policies.common
        return not cache.synced.is_set() or cache.get(name) is not None

    def _warn(self, request: Request) -> list[Problem]:
        around, queue = self._around, request.object or {}
        others = (name for each in around.queues if each.metadata.name != request.name for name in each.resources)
        offered = {name for each in around.clusters or () for name in each.resources}
        members = [*around.clusters] if around.clusters is not None and around.clusters.synced.is_set() else []
        known = around.priority_classes
        classes = [each.metadata.name for each in known] if known is not None and known.synced.is_set() else None
        before, now = (
            [*queues.unknown_names(each, members, classes, self._has_policy)] if each is not None else []
            for each in (request.old_object, queue)
        )
        one_name = {*queues.one_name(queue, offered)} - {*queues.one_name(request.old_object or {}, offered)}
        return [
            *idle("Queue", queue),
            *queues.unread(queue, request.old_object),
            *added(before, now),
            *queues.below_use(queue, request.old_object or {}),
            *around.unknown_resources(request, resources.of_queue, others),
            *queues.undeserved(queue, around.queues.get, around.below),
            *sorted(one_name),
        ]


def _suspend_binding(request: Request) -> list[jsonpatch.Operation]:
    binding = request.object or {}
    if bindings.is_left_to_us(binding):
        return bindings.begin_binding(binding)
    # The API server asks about no other; one configured by an older version of this server may.
    return bindings.suspend_binding(binding) if bindings.is_ours(binding, request.user_info.username) else []


async def _validate_hyper_node(_: Request) -> list[Problem]:
    return hyper_nodes.validate_hyper_node()


async def _validate_workload_kind(request: Request) -> list[Problem]:
    return declared.problems(request.object or {}, request.old_object)


def _policy_warnings(kind: str) -> Callable[[Json], list[Problem]]:
    return lambda policy: [*idle(kind, policy), *placements.policy_warnings(policy)]


def _added(check: Callable[[Json, str], list[Problem]]) -> Callable[[Request], Awaitable[list[Problem]]]:
    """New problems of an object; problems that it had before may stay."""

    async def problems(request: Request) -> list[Problem]:
        now = check(request.object or {}, request.namespace)
        return added(check(request.old_object, request.namespace), now) if request.old_object else now

    return problems


def _by_object(check: Callable[[Json], list[Problem]]) -> Callable[[Json, str], list[Problem]]:
    return lambda obj, _: check(obj)


def _checked(
    path: str,
    title: str,
    check: Callable[[Json, str], list[Problem]],
    warn: Callable[[Json], list[Problem]] = lambda _: [],
) -> Route:
    """Route of an object that is judged by itself."""
    return Route(f"/validate/{path}", title, validate=_added(check), warn=lambda request: warn(request.object or {}))


_ROUTES = (
    Route("/mutate/bindings", mutate=_suspend_binding),
    Route("/validate/hypernodes", "HyperNode", validate=_validate_hyper_node),
    Route("/validate/workload-kinds", "WorkloadKind", validate=_validate_workload_kind),
    *(
        _checked(path, title, placements.policy_problems, _policy_warnings(title))
        for path, title in (("policies", "PropagationPolicy"), ("cluster-policies", "ClusterPropagationPolicy"))
    ),
    *(
        _checked(path, title, overrides.override_problems, overrides.override_warnings)
        for path, title in (("overrides", "OverridePolicy"), ("cluster-overrides", "ClusterOverridePolicy"))
    ),
    _checked("jobflows", "JobFlow", _by_object(makers.validate_job_flow)),
)
_MAKERS = (
    ("cronjobs", "CronJob", makers.validate_cron_job, makers.cron_job_templates),
    ("hyperjobs", "HyperJob", makers.validate_hyper_job, makers.hyper_job_templates),
    ("jobtemplates", "JobTemplate", makers.validate_job_template, makers.job_template_templates),
)
"""(path, title, check, templates of Jobs)."""
