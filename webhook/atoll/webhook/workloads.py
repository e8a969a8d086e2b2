"""Review of workloads, by the rules of their kinds and the queue, namespace and policies that they meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from atoll.admission import groups, jsonpatch, own_names, pod_security, trust
from atoll.admission.problems import Json, Problem, added, mapping
from atoll.admission.rules import Change, Rules
from atoll.kinds import KINDS, Kind, metadata
from atoll.kinds.makers import MADE, Template
from atoll.model import keys, spelling
from atoll.model.apiresource import POD_GROUPS
from atoll.model.namespaces import opted_in
from atoll.model.queues import most_grace
from atoll.webhook import hosted, networks, overrides, queues, resources, sizes, stamps
from atoll.webhook.protocol import Request
from atoll.webhook.route import Route
from atoll.webhook.settings import ReviewSettings
from atoll.webhook.surroundings import Surroundings

_AUDITED: Final = 4096
"""Characters of an audit annotation."""
_NEAR_QUEUES: Final = 5
"""Names like that of an unknown queue, of which the first that takes the workload is proposed."""
_MADE_QUEUES: Final = 5
"""Queues of templates of one object that are looked at: a near name among a thousand takes 20 ms to find."""


class Workloads:
    """Defaults, problems and warnings of workloads of any kind."""

    def __init__(
        self,
        around: Surroundings,
        policies: networks.Policies | None,
        override_policies: overrides.Policies | None,
        settings: ReviewSettings,
    ) -> None:
        """See `Reviews`."""
        self._around, self._policies, self._override_policies = around, policies, override_policies
        self._settings = settings

    def routes(self, kind: Kind, rules: Rules) -> Iterator[Route]:
        """Both paths of a kind."""
        yield Route(
            f"/mutate/{rules.route}",
            mutate=partial(self.mutate, kind, rules),
            warn=lambda request: rules.of_defaults(self.change(request)),
            prepare=partial(self._prepare, kind, rules),
        )
        yield Route(
            f"/validate/{rules.route}",
            kind.resource.kind,
            validate=partial(self.validate, kind, rules),
            warn=partial(self.warn, kind, rules),
            audit=partial(self.audit, rules) if rules.insecure_told else lambda _: "",
        )

    def audit(self, rules: Rules, request: Request) -> str:
        """Insecure pods, for the audit log; PodSecurity itself does that for batch Jobs."""
        return "; ".join(map(str, self._insecure(rules, request, "audit")))[:_AUDITED]

    async def _prepare(self, kind: Kind, rules: Rules, request: Request) -> None:
        """Wait for what a new workload names, if it was made a moment before."""
        if request.operation == "CREATE":
            await self._around.wait(
                self._settings.settle,
                lambda: (
                    self._referred(kind, request)[1] or (not _makes_groups(kind) and self._lacks_group(rules, request))
                ),
            )

    def _referred(self, kind: Kind, request: Request) -> tuple[Json | None, str]:
        """The object that a new workload names, and why it can't be read."""
        found = kind.referred.of(request.object or {}) if kind.referred is not None else None
        if found is None:
            return None, ""
        resource, name = found
        cache = self._around.referable.get(resource)
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
        name, cache = groups.named(rules.templates(request.object or {})), self._around.referable.get(POD_GROUPS)
        found = cache.get(f"{request.namespace}/{name}") if name and cache is not None else None
        return name, None if found is None else found.body

    def _lacks_group(self, rules: Rules, request: Request) -> bool:
        """Whether pods name a PodGroup that is not known."""
        name, group = self._group(rules, request)
        return bool(name) and group is None

    def mutate(self, kind: Kind, rules: Rules, request: Request) -> list[jsonpatch.Operation]:
        """Defaults of a workload."""
        change = self.change(request, kind)
        if self.is_left_to_host(kind, change):
            return []
        return stamps.stamped(change, self._own_defaults(kind, rules, change, request))

    def _own_defaults(self, kind: Kind, rules: Rules, change: Change, request: Request) -> list[jsonpatch.Operation]:
        group = None if _makes_groups(kind) else self._group(rules, request)[1]
        if group is None:
            return rules.defaults(change)
        patch = groups.wishes(change.new, group, rules.templates(change.new), created=change.old is None)
        patched = replace(change, new=jsonpatch.applied(change.new, patch))
        patch += rules.defaults(patched)
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

    def change(self, request: Request, kind: Kind | None = None) -> Change:
        """The change of a workload, for the rules of its kind; with the object that it names where a kind is given."""
        old = request.old_object if request.operation == "UPDATE" else None
        user, namespace = request.user_info.username, self._around.annotations(request.namespace)
        referred: Json | None = None
        unread = ""
        if kind is not None and kind.referred is not None and old is None:
            referred, unread = self._referred(kind, request)
        new = request.object or {}
        return Change(new=new, old=old, user=user, namespace=namespace, referred=referred, unread=unread)

    async def validate(self, kind: Kind, rules: Rules, request: Request) -> list[Problem]:
        """All problems of a workload; of a change only new ones."""
        change = self.change(request, kind)
        if self.is_left_to_host(kind, change):
            return []
        shared = self._runs_here(kind)
        if twice := hosted.problems(
            kind, change, self._around.labels(request.namespace), rules.queue_field, shared=shared
        ):
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
            problems = problems or [*sizes.problems(kind, change.new), *self._insecure(rules, request)]
            return problems or await self._until_known(queue)
        left = kind.queue_of(old, default=default)
        problems += added(self._not_allowed(rules, old, left), classes)
        if queue != left:
            problems += rules.kept(old, left) or self._queue_problems(queue, request.namespace, rules.queue_field)
        problems += self._made_insecure(rules, request, old)
        problems = problems or added(*(sizes.problems(kind, each) for each in (old, change.new)))
        return problems or (await self._until_known(queue) if queue != left else [])

    async def _until_known(self, queue: str) -> list[Problem]:
        """No problem, once the cache had time to show a queue that was made a moment before: `warn` reads it."""
        known = self._around.queues
        if known.synced.is_set():
            await self._around.wait(self._settings.settle, lambda: known.get(queue) is None)
        return []

    def _badly_overridden(self, kind: Kind, request: Request, old: Json | None) -> list[Problem]:
        """What override policies would find in a workload that they can't change; of a change only new parts."""
        met = self._override_policies
        if met is None:
            return []
        now = list(met.problems(kind.resource, request.object or {}, request.namespace))
        return added(met.problems(kind.resource, old, request.namespace), now) if now and old is not None else now

    def is_left_to_host(self, kind: Kind, change: Change) -> bool:
        """Whether a controller of the host made it for a workload of the host's own."""
        by_controller = hosted.is_controller(change.user, lambda name: opted_in(self._around.labels(name)))
        return by_controller and hosted.is_left_to_host(kind, change, shared=self._runs_here(kind))

    def _runs_here(self, kind: Kind) -> bool:
        """Whether the kind has no switch, and controllers of the host would run its workloads. Of kinds that
        users declared that is unknown.
        """
        if not kind.dedicated:
            return False
        system = self._around.namespaces.get(keys.SYSTEM_NAMESPACE)
        if system is None or system.metadata.labels.get(keys.HOST_PROFILE) != "shared":
            return False
        found = {each for each in system.metadata.labels if each.startswith(keys.HOST_RUNS)}
        return (
            not found or kind not in KINDS or f"{keys.HOST_RUNS}{kind.resource.plural}.{kind.resource.group}" in found
        )

    def _not_allowed(self, rules: Rules, workload: Json, queue: str) -> list[Problem]:
        return list(trust.not_allowed(rules.classes(workload), queue, self._classes_allowed(queue)))

    def warn(self, kind: Kind, rules: Rules, request: Request) -> list[Problem]:
        """Warnings about an accepted workload."""
        change = self.change(request)
        if self.is_left_to_host(kind, change):
            return []
        queue = kind.queue_of(change.new, default=metadata.default_queue(change.namespace))
        most = most_grace(queue, self._around.of_queue)
        return [
            *rules.warnings(change),
            *_unread_names(rules, change),
            *self._unknown_queue(kind, rules, request, queue),
            *self._group_warnings(kind, rules, request),
            *(self._insecure(rules, request, "warn") if rules.insecure_told else ()),
            *self._unreachable(kind, rules, request, queue),
            *trust.slow_to_end(rules.templates(change.new), most, queue),
            *self._unknown_classes(request, rules.classes),
            *self._around.unknown_resources(
                request, lambda workload: resources.of_templates(rules.templates(workload))
            ),
        ]

    def _unknown_queue(self, kind: Kind, rules: Rules, request: Request, queue: str) -> list[Problem]:
        """Whether a workload goes from now on to a queue that does not exist."""
        change = self.change(request)
        default = metadata.default_queue(change.namespace)
        moved = change.old is None or kind.queue_of(change.old, default=default) != queue
        return self._missing_queue(rules, request, queue) if moved and kind.takes(change.new) else []

    def _missing_queue(self, rules: Rules, request: Request, queue: str) -> list[Problem]:
        around = self._around
        if around.queues.get(queue) is not None or not around.queues.synced.is_set():
            return []
        names = spelling.near(queue, (each.metadata.name for each in around.queues), _NEAR_QUEUES)
        meant = [each for each in names if not self._queue_problems(each, request.namespace, rules.queue_field)]
        by_default = queue == around.annotations(request.namespace).get(keys.QUEUE_ANNOTATION)
        whose = f", the default of namespace {request.namespace}," if by_default else ""
        how = f"did you mean {meant[0]}?" if meant else "`atollctl queue list` shows those that there are"
        text = f"queue {queue!r}{whose} does not exist, and the workload waits until it does; {how}"
        return [Problem(rules.queue_field, text)]

    def warn_maker(self, templates: Callable[[Json], Iterable[Template]], request: Request) -> list[Problem]:
        """Warnings of the Jobs that an accepted CronJob, HyperJob or JobTemplate makes."""
        rules, namespace = MADE.admission(), self._around.annotations(request.namespace)
        default = metadata.default_queue(namespace)
        before = {MADE.queue_of(each.job, default=default) for each in templates(request.old_object or {})}
        found: list[Problem] = []
        first: dict[str, Template] = {}
        for template in templates(request.object or {}):
            found += template.under(rules.warnings(Change(new=template.job, namespace=namespace)))
            queue = MADE.queue_of(template.job, default=default)
            if queue not in before:
                first.setdefault(queue, template)
        for queue, template in islice(first.items(), _MADE_QUEUES):
            found += template.under(
                self._queue_problems(queue, request.namespace, rules.queue_field)
                or self._missing_queue(rules, request, queue)
            )
        return found

    def _unreachable(self, kind: Kind, rules: Rules, request: Request, queue: str) -> list[Problem]:
        """What of a new workload needs a network that its members don't have."""
        if self._policies is None or request.operation != "CREATE":
            return []
        known, workload = self._around.of_queue(queue), request.object or {}
        default = known[0].get(keys.DEFAULT_POLICY, "") if known is not None else ""
        fields = rules.networked(workload)
        return self._policies.unreachable(kind.resource, workload, request.namespace, default, fields)

    def _insecure(self, rules: Rules, request: Request, mode: str = "enforce") -> list[Problem]:
        """What the namespace's Pod Security has against the pods of a new workload."""
        if request.operation != "CREATE":
            return []
        return list(
            pod_security.problems(rules.templates(request.object or {}), self._around.labels(request.namespace), mode)
        )

    def _made_insecure(self, rules: Rules, request: Request, old: Json) -> list[Problem]:
        before, after = (
            pod_security.problems(rules.templates(each), self._around.labels(request.namespace))
            for each in (old, request.object or {})
        )
        return added(before, after)

    def _unknown_classes(self, request: Request, named: Callable[[Json], list[tuple[str, object]]]) -> list[Problem]:
        known = self._around.priority_classes
        if request.operation != "CREATE" or known is None or not known.synced.is_set():
            return []
        return list(trust.unknown_classes(named(request.object or {}), [each.metadata.name for each in known]))

    def _classes_allowed(self, queue: str) -> list[str] | None:
        found = self._around.queues.get(queue)
        return trust.classes_allowed(found.metadata.annotations) if found is not None else None

    def _queue_problems(self, name: str, namespace: str, field: str) -> list[Problem]:
        """Why a workload of this namespace can't go to this queue."""
        found = self._around.namespaces.get(namespace)
        labels = found.metadata.labels if found is not None else None
        problem = queues.queue_problem(
            name,
            self._around.queues.get(name),
            queues.leaves(name, self._around.children),
            namespace,
            labels,
            field,
            self._around.queues.get,
        )
        return [problem] if problem else []


def _unread_names(rules: Rules, change: Change) -> Iterator[Problem]:
    """Labels and annotations of a workload and its pod templates that look like Atoll's and that nothing reads."""
    yield from own_names.unread(change.new, change.old)
    before = dict(rules.templates(change.old)) if change.old is not None else {}
    for path, template in rules.templates(change.new):
        if isinstance(template, dict) and template.get("metadata") != change.new.get("metadata"):
            yield from own_names.unread(template, mapping(before.get(path)), f"{path}.")


def _makes_groups(kind: Kind) -> bool:
    """Whether Atoll's controller in members makes its pods, and the PodGroup that they name."""
    return kind.in_member is None or kind.in_member.status
