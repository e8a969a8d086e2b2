"""AdmissionReview (admission.k8s.io/v1) in and out, and what each review of ours answers.

Each answer is computed from the request and the caches alone: no request to the API server while another one waits
for us.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import msgspec
import orjson

from atoll.admission import groups, jsonpatch, pod_security, trust
from atoll.admission.problems import Json, Problem, added, idle, report
from atoll.admission.rules import Change, Rules
from atoll.kinds import KINDS, Kind, declare, known, makers, metadata
from atoll.kinds.declared import followed
from atoll.kube.reflector import Reflector
from atoll.model import keys
from atoll.model.apiresource import POD_GROUPS, ApiResource
from atoll.model.flavors import SIGN
from atoll.model.namespaces import opted_in
from atoll.model.objects import Full, Slim
from atoll.model.queues import most_grace
from atoll.webhook import (
    bindings,
    declared,
    hosted,
    hyper_nodes,
    networks,
    overrides,
    placements,
    queues,
    resources,
    sizes,
    stamps,
)
from atoll.webhook.settings import ReviewSettings

API_VERSION: Final = "admission.k8s.io/v1"
CHILDREN: Final = "children"
AUDIT: Final = "audit-violations"
"""What an audit log says of an object after the webhook's name; as PodSecurity says it after its own."""


class User(msgspec.Struct, frozen=True):
    """Who asks."""

    username: str = ""


class Resource(msgspec.Struct, frozen=True):
    """What resource type it asks about."""

    group: str = ""
    version: str = ""
    resource: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """What the API server asks about."""

    uid: str
    resource: Resource = Resource()
    operation: str = ""
    name: str = ""
    namespace: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    user_info: User = User()


class Review(msgspec.Struct, frozen=True, rename="camel"):
    """The envelope."""

    request: Request
    api_version: str = ""
    kind: str = ""


class BadReview(ValueError):
    """The body is no AdmissionReview that this server can answer."""

    def __init__(self, message: str, *, uid: str = "", api_version: str = API_VERSION) -> None:
        """Args:
        message: the problem.
        uid: of the request, where it could be read nevertheless: then it is answered by a refusal.
        api_version: of the refusal.
        """
        super().__init__(message)
        self.uid, self.api_version = uid, api_version


class _Named(msgspec.Struct, frozen=True):
    uid: object = None


class _Envelope(msgspec.Struct, frozen=True):
    """As much of any review as an answer needs."""

    request: _Named | None = None


Answer = list[jsonpatch.Operation] | list[Problem]

_decoder = msgspec.json.Decoder(Review)
_envelope = msgspec.json.Decoder(_Envelope)
_HEAD: Final = re.compile(rb'"request"\s{0,9}:\s{0,9}\{\s{0,9}"uid"\s{0,9}:\s{0,9}"([0-9A-Za-z-]{1,100})"')
"""How an API server's review begins, for one whose rest can't be read."""
_HEAD_SIZE: Final = 65536


def decode(body: bytes) -> Request:
    """The request of a review.

    Raises:
        BadReview: not JSON, not an AdmissionReview, or of another version.
    """
    try:
        review = _decoder.decode(body)
    except RecursionError:
        raise BadReview("the object is nested too deeply to be checked; make it flatter", uid=_uid_in(body)) from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadReview(f"the body is no AdmissionReview: {error}"[:_SAID], uid=_uid_in(body)) from error
    uid = review.request.uid
    if review.kind != "AdmissionReview" or not review.api_version.startswith(_GROUP):
        raise BadReview(
            f"got {review.kind or 'an object'} of version {review.api_version or '(none)'}"[:_SAID]
            + f"; send an AdmissionReview of {API_VERSION}",
            uid=uid,
        )
    if review.api_version != API_VERSION:
        raise BadReview(
            f"an AdmissionReview of version {review.api_version} can't be judged"[:_SAID]
            + f"; send {API_VERSION} (admissionReviewVersions of the webhook configuration)",
            uid=uid,
            api_version=review.api_version,
        )
    if not uid:
        raise BadReview("request.uid is empty; it is needed for the answer")
    return review.request


_GROUP: Final = "admission.k8s.io/"
_SAID: Final = 300


def _uid_in(body: bytes) -> str:
    """The UID of a review that can't be read as a whole; empty if there is none."""
    try:
        request = _envelope.decode(body).request
        uid = request.uid if request is not None else None
    except (msgspec.MsgspecError, RecursionError, ValueError):
        found = _HEAD.search(body[:_HEAD_SIZE])
        uid = found[1].decode() if found else None
    return uid if isinstance(uid, str) else ""


def encode(
    uid: str,
    *,
    patch: list[jsonpatch.Operation] | None = None,
    refusal: str = "",
    warnings: Sequence[str] = (),
    audit: str = "",
    code: int = 403,
    api_version: str = API_VERSION,
) -> bytes:
    """The review that answers the request of this UID: allowed unless there is a refusal. `audit`: for audit logs."""
    response: Json = {"uid": uid, "allowed": not refusal}
    if warnings:
        response["warnings"] = list(warnings)
    if audit:
        response["auditAnnotations"] = {AUDIT: audit}
    if refusal:
        reason = "Forbidden" if code == 403 else "BadRequest"
        response["status"] = {"code": code, "reason": reason, "message": refusal}
    elif patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(patch)).decode()
    return orjson.dumps({"apiVersion": api_version, "kind": "AdmissionReview", "response": response})


def refusal_of(request: Request, kind: str, problems: list[Problem]) -> str:
    """The problems of the request's object as one message; empty when there are none."""
    if not problems:
        return ""
    metadata = (request.object or request.old_object or {}).get("metadata")
    name = request.name or (metadata.get("name") if isinstance(metadata, dict) else "") or "(to be named)"
    return report(f"{kind} {request.namespace}/{name}" if request.namespace else f"{kind} {name}", problems)


def warnings_of(problems: Sequence[Problem]) -> list[str]:
    """Warnings about an accepted object; the API server cuts and drops longer or further ones."""
    texts = [str(problem) for problem in problems]
    shown = [text if len(text) <= _WARNING else f"{text[: _WARNING - 3]}..." for text in texts[:_WARNINGS]]
    return [*shown, f"and {len(texts) - _WARNINGS} more"] if len(texts) > _WARNINGS else shown


_WARNING: Final = 256
_WARNINGS: Final = 15
"""An API server passes 4096 characters on."""
_AUDITED: Final = 4096
"""Characters of an audit annotation."""


def _makes_groups(kind: Kind) -> bool:
    """Whether Atoll's controller in members makes its pods, and the PodGroup that they name."""
    return kind.in_member is None or kind.in_member.status


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
        self._settings = settings
        self._referable = referable
        self._policies, self._override_policies = policies, override_policies
        for each in referable.values():
            each.on_change(self._notice)
        self._clusters = clusters
        self._priority_classes = priority_classes
        self._queues = queue_cache
        self._namespaces = namespaces
        #: set and replaced at each change of a queue
        self._changed = asyncio.Event()
        queue_cache.add_index(CHILDREN, lambda queue: [queue.parent])
        queue_cache.on_change(self._notice)
        #: path -> kind, for messages, and handler
        self.mutations: dict[str, Callable[[Request], list[jsonpatch.Operation]]] = {
            "/mutate/queues": lambda request: queues.default_queue(request.object or {}),
            "/mutate/bindings": self._suspend_binding,
        }
        self.validations: dict[str, tuple[str, Callable[[Request], Awaitable[list[Problem]]]]] = {
            "/validate/queues": ("Queue", self._validate_queue),
            "/validate/hypernodes": ("HyperNode", self._validate_hyper_node),
            "/validate/policies": ("PropagationPolicy", _added(placements.policy_problems)),
            "/validate/cluster-policies": ("ClusterPropagationPolicy", _added(placements.policy_problems)),
            "/validate/overrides": ("OverridePolicy", _added(overrides.override_problems)),
            "/validate/cluster-overrides": ("ClusterOverridePolicy", _added(overrides.override_problems)),
            "/validate/cronjobs": ("CronJob", _added(lambda obj, _: makers.validate_cron_job(obj))),
            "/validate/jobflows": ("JobFlow", _added(lambda obj, _: makers.validate_job_flow(obj))),
            "/validate/hyperjobs": ("HyperJob", _added(lambda obj, _: makers.validate_hyper_job(obj))),
            "/validate/jobtemplates": ("JobTemplate", _added(lambda obj, _: makers.validate_job_template(obj))),
        }
        #: path -> warnings about an accepted object
        self.warnings: dict[str, Callable[[Request], list[Problem]]] = {
            "/validate/queues": lambda request: [
                *idle("Queue", request.object or {}),
                *self._unknown_resources(request, resources.of_queue, self._named_by_others),
                *queues.undeserved(request.object or {}, self._queues.get, self._below),
            ],
            "/validate/cronjobs": lambda request: makers.cron_job_warnings(request.object or {}),
            "/validate/hyperjobs": lambda request: makers.hyper_job_warnings(request.object or {}),
            "/validate/jobtemplates": lambda request: makers.job_template_warnings(request.object or {}),
            "/validate/policies": lambda request: _policy_warnings("PropagationPolicy", request),
            "/validate/cluster-policies": lambda request: _policy_warnings("ClusterPropagationPolicy", request),
            "/validate/overrides": lambda request: overrides.override_warnings(request.object or {}),
            "/validate/cluster-overrides": lambda request: overrides.override_warnings(request.object or {}),
        }
        #: path -> kind whose workloads name objects to read
        self._referring: dict[str, Kind] = {}
        #: path -> rules of kinds whose pods may name a PodGroup
        self._grouped: dict[str, Rules] = {}
        #: path -> rules of a kind whose insecure pods go to the audit log
        self._audited: dict[str, Rules] = {}
        for kind in KINDS:
            self._serve(kind, kind.admission())
        self._workload_kinds = workload_kinds
        if workload_kinds is not None:
            workload_kinds.on_change(self._declare)
        self.validations["/validate/workload-kinds"] = ("WorkloadKind", self._validate_workload_kind)
        self.mutations["/mutate/declared"] = self._mutate_declared
        self.warnings["/mutate/declared"] = self._undone_of_declared
        self.validations["/validate/declared"] = ("", self._validate_declared)
        self.warnings["/validate/declared"] = self._warnings_of_declared

    def _declare(self, *_: object) -> None:
        declare(followed(each.body for each in self._workload_kinds or ()))

    async def _validate_workload_kind(self, request: Request) -> list[Problem]:
        return declared.problems(request.object or {}, request.old_object)

    def _declared(self, request: Request) -> Kind | None:
        """The declared kind of a request's object, in the version in which it is declared."""
        of = request.resource
        kind = declared.kind_of_resource(known(), of.group, of.resource)
        return kind if kind is not None and kind.resource.version == of.version else None

    def _mutate_declared(self, request: Request) -> list[jsonpatch.Operation]:
        kind = self._declared(request)
        change = self._change(request)
        if kind is None or self._is_left_to_host(kind, change):
            return []
        return stamps.stamped(change, kind.admission().defaults(change))

    def _undone_of_declared(self, request: Request) -> list[Problem]:
        kind = self._declared(request)
        return kind.admission().of_defaults(self._change(request)) if kind is not None else []

    async def _validate_declared(self, request: Request) -> list[Problem]:
        of = request.resource
        change = self._change(request)
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
        return await self._validate_workload(kind, kind.admission(), request)

    def _warnings_of_declared(self, request: Request) -> list[Problem]:
        kind = self._declared(request)
        return self._warnings_of_workload(kind, kind.admission(), request) if kind is not None else []

    def _serve(self, kind: Kind, rules: Rules) -> None:
        mutate, validate = f"/mutate/{rules.route}", f"/validate/{rules.route}"
        if kind.referred is not None:
            self._referring[mutate] = kind
        if not _makes_groups(kind):
            self._grouped[mutate] = rules
        self.mutations[mutate] = lambda request: self._defaults(kind, rules, request)
        self.warnings[mutate] = lambda request: rules.of_defaults(self._change(request))
        self.validations[validate] = (kind.resource.kind, lambda request: self._validate_workload(kind, rules, request))
        self.warnings[validate] = lambda request: self._warnings_of_workload(kind, rules, request)
        if rules.insecure_told:
            self._audited[validate] = rules

    def audit_of(self, path: str, request: Request) -> str:
        """What the audit log is to say of an object; PodSecurity itself says it of batch Jobs."""
        rules = self._audited.get(path)
        if path == "/validate/declared" and (kind := self._declared(request)) is not None:
            rules = kind.admission()
        found = self._insecure(rules, request, "audit") if rules is not None else []
        return "; ".join(map(str, found))[:_AUDITED]

    @staticmethod
    def _suspend_binding(request: Request) -> list[jsonpatch.Operation]:
        binding = request.object or {}
        if bindings.is_left_to_us(binding):
            return bindings.begin_binding(binding)
        # The API server asks about no other; one configured by an older version of this server may.
        return bindings.suspend_binding(binding) if bindings.is_ours(binding, request.user_info.username) else []

    async def _validate_hyper_node(self, _: Request) -> list[Problem]:
        return hyper_nodes.validate_hyper_node()

    async def prepare(self, path: str, request: Request) -> None:
        """Wait for what a new workload names, if it was made a moment before."""
        kind, rules = self._referring.get(path), self._grouped.get(path)
        if request.operation != "CREATE":
            return
        try:
            async with asyncio.timeout(self._settings.settle):
                while kind is not None and self._referred(kind, request)[1]:
                    await self._changed.wait()
                while rules is not None and self._lacks_group(rules, request):
                    await self._changed.wait()
        except TimeoutError:
            return

    def _referred(self, kind: Kind, request: Request) -> tuple[Json | None, str]:
        """The object that a new workload names, and why it can't be read."""
        found = kind.referred.of(request.object or {}) if kind.referred is not None else None
        if found is None:
            return None, ""
        resource, name = found
        cache = self._referable.get(resource)
        if cache is None:
            return None, f"this server reads no {resource.kind}"
        if cache.absent:
            # It may have come with the CRD of the workload.
            cache.look()
            text = f"CRD {resource.plural}.{resource.group} is not there, or may not be read by Atoll's webhook"
            return None, f"{text}: install it, repeat `atollctl init`, and try again"
        if not cache.synced.is_set():
            return None, f"no {resource.kind} could be read yet; try again"
        obj = cache.get(f"{request.namespace}/{name}" if resource.namespaced else name)
        if obj is None:
            where = f"namespace {request.namespace} has" if resource.namespaced else "there is"
            text = f"{where} no {resource.kind} {name}, which says what its pods are: create it first, or correct the"
            return None, f"{text} name"
        return obj.body, ""

    def _group(self, rules: Rules, request: Request) -> tuple[str, Json | None]:
        """The PodGroup that pods of a workload name, and its contents; None where unknown."""
        name, cache = groups.named(rules.templates(request.object or {})), self._referable.get(POD_GROUPS)
        found = cache.get(f"{request.namespace}/{name}") if name and cache is not None else None
        return name, None if found is None else found.body

    def _lacks_group(self, rules: Rules, request: Request) -> bool:
        """Whether pods name a PodGroup that is not known."""
        name, group = self._group(rules, request)
        return bool(name) and group is None

    def _defaults(self, kind: Kind, rules: Rules, request: Request) -> list[jsonpatch.Operation]:
        change = self._change(request, kind)
        if self._is_left_to_host(kind, change):
            return []
        return stamps.stamped(change, self._own_defaults(kind, rules, change, request))

    def _own_defaults(self, kind: Kind, rules: Rules, change: Change, request: Request) -> list[jsonpatch.Operation]:
        group = None if _makes_groups(kind) else self._group(rules, request)[1]
        if group is None:
            return rules.defaults(change)
        patch = groups.wishes(change.new, group, rules.templates(change.new), created=change.old is None)
        told = replace(change, new=jsonpatch.applied(change.new, patch))
        patch += rules.defaults(told)
        # What another controller runs is left alone.
        ours = kind.takes(jsonpatch.applied(change.new, patch) if change.old is None else change.old)
        return patch if ours else rules.defaults(change)

    def _group_warnings(self, kind: Kind, rules: Rules, request: Request) -> list[Problem]:
        """Warnings about a PodGroup that pods name."""
        name, group = self._group(rules, request)
        if not name or request.operation != "CREATE":
            return []
        field = f"annotations[{keys.GROUP_NAME}]"
        if _makes_groups(kind):
            return [Problem(field, f"has no effect: a {kind.words.title} has a PodGroup of its own")]
        if group is None:
            text = f"there is no PodGroup {name}: create it before the workload, which now starts by its own minimum"
            return [Problem(field, text)]
        return []

    def _change(self, request: Request, kind: Kind | None = None) -> Change:
        old = request.old_object if request.operation == "UPDATE" else None
        user, namespace = request.user_info.username, self._annotations(request.namespace)
        referred: Json | None = None
        unread = ""
        if kind is not None and kind.referred is not None and old is None:
            referred, unread = self._referred(kind, request)
        new = request.object or {}
        return Change(new=new, old=old, user=user, namespace=namespace, referred=referred, unread=unread)

    async def _validate_workload(self, kind: Kind, rules: Rules, request: Request) -> list[Problem]:
        """All problems of a workload; of a change only new ones."""
        change = self._change(request, kind)
        if self._is_left_to_host(kind, change):
            return []
        shared = self._runs_here(kind)
        if twice := hosted.problems(kind, change, self._labels(request), rules.queue_field, shared=shared):
            return twice
        problems = rules.problems(change)
        if not kind.takes(change.new):
            return problems
        default, old = metadata.default_queue(change.namespace), change.old
        queue = kind.queue_of(change.new, default=default)
        classes = self._not_allowed(rules, change.new, queue)
        problems += self._badly_overridden(kind, request, old)
        if old is None:
            problems += [*classes, *self._queue_problems(queue, request.namespace, rules.queue_field)]
            return problems or [*sizes.problems(kind, change.new), *self._insecure(rules, request)]
        left = kind.queue_of(old, default=default)
        problems += added(self._not_allowed(rules, old, left), classes)
        if queue != left:
            problems += rules.kept(old, left) or self._queue_problems(queue, request.namespace, rules.queue_field)
        problems += self._made_insecure(rules, request, old)
        return problems or added(*(sizes.problems(kind, each) for each in (old, change.new)))

    def _badly_overridden(self, kind: Kind, request: Request, old: Json | None) -> list[Problem]:
        """What override policies would find in a workload that they can't change; of a change only new parts."""
        met = self._override_policies
        if met is None:
            return []
        now = list(met.problems(kind.resource, request.object or {}, request.namespace))
        return added(met.problems(kind.resource, old, request.namespace), now) if now and old is not None else now

    def _is_left_to_host(self, kind: Kind, change: Change) -> bool:
        by_controller = hosted.is_controller(change.user, lambda name: opted_in(self._labels_of(name)))
        return by_controller and hosted.is_left_to_host(kind, change, shared=self._runs_here(kind))

    def _runs_here(self, kind: Kind) -> bool:
        """Whether the kind has no switch, and controllers of the host would run its workloads. Of kinds that
        users declared that is unknown.
        """
        if not kind.dedicated:
            return False
        system = self._namespaces.get(keys.SYSTEM_NAMESPACE)
        if system is None or system.metadata.labels.get(keys.HOST_PROFILE) != "shared":
            return False
        found = {each for each in system.metadata.labels if each.startswith(keys.HOST_RUNS)}
        return (
            not found or kind not in KINDS or f"{keys.HOST_RUNS}{kind.resource.plural}.{kind.resource.group}" in found
        )

    def _not_allowed(self, rules: Rules, workload: Json, queue: str) -> list[Problem]:
        return list(trust.not_allowed(rules.classes(workload), queue, self._classes_allowed(queue)))

    def _warnings_of_workload(self, kind: Kind, rules: Rules, request: Request) -> list[Problem]:
        change = self._change(request)
        if self._is_left_to_host(kind, change):
            return []
        queue = kind.queue_of(change.new, default=metadata.default_queue(change.namespace))
        most = most_grace(queue, self._said_of_queue)
        return [
            *rules.warnings(change),
            *self._group_warnings(kind, rules, request),
            *(self._insecure(rules, request, "warn") if rules.insecure_told else ()),
            *self._unreachable(kind, rules, request, queue),
            *trust.slow_to_end(rules.templates(change.new), most, queue),
            *self._unknown_classes(request, rules.classes),
            *self._unknown_resources(request, lambda workload: resources.of_templates(rules.templates(workload))),
        ]

    def _unreachable(self, kind: Kind, rules: Rules, request: Request, queue: str) -> list[Problem]:
        """What of a new workload needs a network that its members don't have."""
        if self._policies is None or request.operation != "CREATE":
            return []
        said, workload = self._said_of_queue(queue), request.object or {}
        default = said[0].get(keys.DEFAULT_POLICY, "") if said is not None else ""
        fields = rules.networked(workload)
        return self._policies.unreachable(kind.resource, workload, request.namespace, default, fields)

    def _insecure(self, rules: Rules, request: Request, mode: str = "enforce") -> list[Problem]:
        """What the namespace's Pod Security has against the pods of a new workload."""
        if request.operation != "CREATE":
            return []
        return list(pod_security.problems(rules.templates(request.object or {}), self._labels(request), mode))

    def _made_insecure(self, rules: Rules, request: Request, old: Json) -> list[Problem]:
        before, after = (
            pod_security.problems(rules.templates(each), self._labels(request)) for each in (old, request.object or {})
        )
        return added(before, after)

    def _labels(self, request: Request) -> dict[str, str]:
        return self._labels_of(request.namespace)

    def _labels_of(self, namespace: str) -> dict[str, str]:
        found = self._namespaces.get(namespace)
        return found.metadata.labels if found is not None else {}

    def _said_of_queue(self, name: str) -> tuple[Mapping[str, str], str] | None:
        found = self._queues.get(name)
        return (found.metadata.annotations, found.parent) if found is not None else None

    def _unknown_classes(self, request: Request, named: Callable[[Json], list[tuple[str, object]]]) -> list[Problem]:
        known = self._priority_classes
        if request.operation != "CREATE" or known is None or not known.synced.is_set():
            return []
        return list(trust.unknown_classes(named(request.object or {}), lambda name: known.get(name) is not None))

    def _unknown_resources(
        self,
        request: Request,
        named: Callable[[Json], Iterable[resources.Named]],
        others: Callable[[Request], Iterable[str]] = lambda _: (),
    ) -> list[Problem]:
        """What this request adds of which no member has anything."""
        known = self._clusters
        if request.object is None or known is None or not known.synced.is_set():
            return []
        before = set(named(request.old_object or {}))
        return list(
            resources.unknown((each for each in named(request.object) if each not in before), known, others(request))
        )

    def _named_by_others(self, request: Request) -> Iterator[str]:
        return (name for each in self._queues if each.metadata.name != request.name for name in each.resources)

    def _annotations(self, namespace: str) -> dict[str, str]:
        found = self._namespaces.get(namespace)
        return found.metadata.annotations if found is not None else {}

    def _classes_allowed(self, queue: str) -> list[str] | None:
        found = self._queues.get(queue)
        return trust.classes_allowed(found.metadata.annotations) if found is not None else None

    def _queue_problems(self, name: str, namespace: str, field: str) -> list[Problem]:
        """Why a workload of this namespace can't go to this queue."""
        found = self._namespaces.get(namespace)
        labels = found.metadata.labels if found is not None else None
        problem = queues.queue_problem(
            name,
            self._queues.get(name),
            queues.leaves(name, self._children),
            namespace,
            labels,
            field,
            self._queues.get,
        )
        return [problem] if problem else []

    async def _validate_queue(self, request: Request) -> list[Problem]:
        if request.operation == "DELETE":
            # A delete of a collection names each object in oldObject only.
            metadata = (request.old_object or {}).get("metadata")
            name = request.name or (str(metadata.get("name") or "") if isinstance(metadata, dict) else "")
            return await self._settled(
                lambda: queues.validate_queue_deletion(name, self._children(name), self._dispatched(name)),
                self._settings.settle_status,
            )
        queue, old = request.object or {}, request.old_object
        if request.operation == "UPDATE" and old is not None:
            return await self._settled(lambda: queues.validate_queue_update(old, queue, self._queues.get, self._below))
        return await self._settled(lambda: queues.validate_queue(queue, self._queues.get, self._below))

    def _below(self, name: str) -> list[queues.Queue]:
        return self._queues.by_index(CHILDREN, name)

    def _children(self, name: str) -> list[str]:
        # Every queue without a parent is below the root, which is refused by its name already.
        return (
            [] if name == keys.ROOT_QUEUE else [queue.metadata.name for queue in self._queues.by_index(CHILDREN, name)]
        )

    def _dispatched(self, name: str) -> int:
        found = self._queues.get(name)
        return found.dispatched if found is not None else 0

    async def _settled(self, check: Callable[[], list[Problem]], patience: float | None = None) -> list[Problem]:
        """The outcome of a check that reads the queue cache; a bad one only when that had time.

        `patience`: seconds; None for the settings'.
        """
        problems = check()
        try:
            async with asyncio.timeout(self._settings.settle if patience is None else patience):
                while any(problem.field in _READS_CACHE or SIGN in problem.field for problem in problems):
                    await self._changed.wait()
                    problems = check()
        except TimeoutError:
            pass
        return problems

    def _notice(self, *_: object) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


_READS_CACHE: Final = frozenset({"spec.parent", "metadata.name", queues.GUARANTEE})


def _policy_warnings(kind: str, request: Request) -> list[Problem]:
    policy = request.object or {}
    return [*idle(kind, policy), *placements.policy_warnings(policy)]


def _added(check: Callable[[Json, str], list[Problem]]) -> Callable[[Request], Awaitable[list[Problem]]]:
    """New problems of an object; problems that it had before may stay."""

    async def problems(request: Request) -> list[Problem]:
        now = check(request.object or {}, request.namespace)
        return added(check(request.old_object, request.namespace), now) if request.old_object else now

    return problems
