"""What pods of a workload refer to (ConfigMaps, Secrets, claims, ServiceAccounts): it goes with its Works.

Only namespaces with dispatched workloads that refer to such objects are read, while there are any; Secrets only where
the namespace hands them on. What can't go along is in the Work without contents: a member removes the one that it
got before, and an Event on the workload says why. Of a ServiceAccount the name goes in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import structlog

from atoll.control.caches import Caches
from atoll.control.objects import BindingObject
from atoll.control.rules import OURS
from atoll.control.settings import DependencySettings
from atoll.delivery.work import MOST_SENT
from atoll.kinds import Kind, entire
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import (
    CLAIMS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    SECRETS,
    SELF_REVIEWS,
    SERVICE_ACCOUNTS,
    ApiResource,
)
from atoll.model.namespaces import handed_on
from atoll.model.objects import Full, Slim, decode_full
from atoll.model.pod_references import Reference, references

Json = dict[str, Any]
_Place = tuple[str, ApiResource]
"""(namespace, kind of object)"""

_TOKEN = "kubernetes.io/service-account-token"
log = structlog.get_logger(__name__)
_CONTENTS = ("type", "data", "binaryData")
_OF_CLAIM = ("accessModes", "resources", "storageClassName", "volumeMode")
"""What of a claim's spec goes along: not the volume, which is the host's."""
_OF_ACCOUNT = ("imagePullSecrets", "automountServiceAccountToken")


class NotRead(Exception):
    """The host was not asked yet; `Dependencies.on_change` follows."""


class Dependencies:
    """Tells which ConfigMaps and Secrets go along with a workload."""

    def __init__(
        self,
        host: ApiServer,
        caches: Caches,
        recorder: Recorder,
        *,
        settings: DependencySettings = DependencySettings(),
    ) -> None:
        """No I/O happens here; `run` does it."""
        self._host, self._caches, self._recorder, self._settings = host, caches, recorder, settings
        #: binding key -> references of its workload; and (namespace, kind) -> name -> binding keys
        self._used: dict[str, list[Reference]] = {}
        self._users: dict[_Place, dict[str, set[str]]] = {}
        #: places to read, and their reflectors
        self._there: dict[_Place, Reflector[Full]] = {}
        self._running: dict[_Place, tuple[Reflector[Full], asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        #: what the host does not let control read
        self._forbidden: set[_Place] = set()
        #: binding key -> its last message
        self._told: dict[str, list[tuple[str, str]]] = {}
        self._on_change: Callable[[str], None] = lambda _: None
        caches.bindings.on_change(self._binding_changed)
        caches.namespaces.on_change(self._namespace_changed)

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call `callback(key of the binding)` when what goes along with it may be another."""
        self._on_change = callback

    async def run(self) -> None:
        """Read referred objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for place, (reflector, task) in list(self._running.items()):
                    if self._there.get(place) is not reflector:
                        task.cancel()
                        del self._running[place]
                for place, reflector in self._there.items():
                    if place not in self._running:
                        self._running[place] = reflector, group.create_task(self._read(place, reflector))

    async def _read(self, place: _Place, reflector: Reflector[Full]) -> None:
        while not await self._may_read(*place):
            if place not in self._forbidden:
                self._forbidden.add(place)
                self._look_at_users(place)
            await asyncio.sleep(self._settings.again)
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run())
            await reflector.synced.wait()
            self._forbidden.discard(place)
            self._look_at_users(place)

    async def _may_read(self, namespace: str, resource: ApiResource) -> bool:
        what = {"verb": "list", "group": resource.group, "resource": resource.plural, "namespace": namespace}
        head: Json = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind, "metadata": {}}
        try:
            answer = await self._host.create(SELF_REVIEWS, {**head, "spec": {"resourceAttributes": what}})
        except errors.ApiError as error:
            log.warning("can't ask what may be read", namespace=namespace, kind=resource.kind, why=error.said)
            return False
        return bool(answer["status"]["allowed"])

    def of(self, binding: BindingObject, kind: Kind, obj: Full, manifest: Json) -> list[Json]:
        """Manifests of what goes along.

        Args:
            binding: of the workload.
            kind: its kind.
            obj: the workload on the host.
            manifest: the workload as the member gets it.

        Raises:
            NotRead: try again when `on_change` says so.
        """
        key, namespace = binding.metadata.key, obj.metadata.namespace
        if binding.spec.propagate_deps is False:
            self._use(key, namespace, [])
            self._tell(key, kind, obj, [])
            return []
        accounts = [
            Reference(resource, name, True)
            for resource, name in kind.namespaced_needs(obj.body)
            if resource == SERVICE_ACCOUNTS
        ]
        handed = self._handed_on(namespace)
        wanted = [*accounts, *references(entire(kind, manifest))]
        wanted += self._pull_secrets(namespace, accounts, wanted) if SERVICE_ACCOUNTS in handed else []
        self._use(key, namespace, wanted)
        withheld = {SECRETS, CLAIMS} - handed
        places = {(namespace, each.resource) for each in wanted if each.resource not in withheld}
        for place in places:
            if place not in self._there:
                self._there[place] = self._reflector(*place)
                self._changed.set()
        if not all(self._there[place].synced.is_set() or place in self._forbidden for place in places):
            raise NotRead
        manifests, problems, size = list[Json](), list[tuple[str, str]](), 0
        most = min(self._settings.size, MOST_SENT - len(orjson.dumps(manifest)))
        for each in wanted:
            about = f"{each.resource.kind} {each.name}"
            if each.resource == SERVICE_ACCOUNTS:
                account, problem = self._account(each, namespace, handed=SERVICE_ACCOUNTS in handed)
                manifests.append(account)
                problems += [("ServiceAccountNotPropagated", problem)] if problem else []
                continue
            if each.resource in withheld:
                reason = "SecretNotPropagated" if each.resource == SECRETS else "ClaimNotPropagated"
                problems.append((reason, self._how_to_consent(each, namespace)))
                if each.resource == CLAIMS:
                    # Agents of earlier versions take none; one that is not in the Work any more is removed.
                    continue
            elif (namespace, each.resource) in self._forbidden:
                problems.append(
                    ("DependencyNotRead", f"members don't get {about}: {_how_to_let_read(each, namespace)}")
                )
            elif (found := self._there[namespace, each.resource].get(f"{namespace}/{each.name}")) is None:
                if not each.optional:
                    text = (
                        f"members don't get {about}, and pods that need it wait there: namespace {namespace} has none"
                    )
                    problems.append(("DependencyNotFound", f"{text}; create it"))
            elif found.body.get("type") == _TOKEN:
                text = f"members don't get {about}: it is a token of the host, which none of them takes"
                problems.append(("SecretNotPropagated", f"{text}; name a serviceAccountName, pods then have its token"))
            else:
                made = _with_contents(each, found)
                length = len(orjson.dumps(made))
                if size + length <= most:
                    size += length
                    manifests.append(made)
                    continue
                text = f"members don't get {about}: with it what pods refer to is of more than {most} bytes"
                problems.append(("DependencyTooLarge", f"{text}; put large files into the image or on a volume"))
            manifests.append(_withheld(each, namespace))
        self._tell(key, kind, obj, problems)
        return manifests

    def _pull_secrets(self, namespace: str, accounts: list[Reference], wanted: list[Reference]) -> list[Reference]:
        """The image pull secrets of ServiceAccounts, but the ones that pods refer to themselves."""
        if accounts and (place := (namespace, SERVICE_ACCOUNTS)) not in self._there:
            self._there[place] = self._reflector(*place)
            self._changed.set()
        known, found = {(each.resource, each.name) for each in wanted}, dict[str, Reference]()
        for each in accounts:
            obj = self._there[namespace, SERVICE_ACCOUNTS].get(f"{namespace}/{each.name}")
            for secret in (obj.body.get("imagePullSecrets") or ()) if obj is not None else ():
                if (name := secret.get("name")) and (SECRETS, name) not in known:
                    found[name] = Reference(SECRETS, name, True)
        return list(found.values())

    def _account(self, reference: Reference, namespace: str, *, handed: bool) -> tuple[Json, str]:
        """The manifest of a ServiceAccount, and its message."""
        place = (namespace, SERVICE_ACCOUNTS)
        found = None if place in self._forbidden else self._there[place].get(f"{namespace}/{reference.name}")
        contents = dict(_contents(SERVICE_ACCOUNTS, found)) if found is not None else {}
        if found is not None and handed:
            made = _metadata(reference, namespace, keys.SOURCE_VERSION, found.metadata.resource_version)
            made["metadata"]["annotations"] |= contents.pop("annotations", {})
            return made | contents, ""
        bare = _metadata(reference, namespace, keys.SOURCE_VERSION, keys.NAME_ALONE)
        if not contents:
            return bare, ""
        said = " and ".join(sorted(contents))
        text = f"members get ServiceAccount {reference.name} without its {said}"
        return (
            bare,
            f"{text}: the namespace does not hand them on; {self._how_to_annotate(namespace, SERVICE_ACCOUNTS)}",
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    def _reflector(self, namespace: str, resource: ApiResource) -> Reflector[Full]:
        reflector = Reflector(self._host, resource, decode_full, namespace=namespace)

        def changed(old: Full | None, new: Full | None) -> None:
            either = new or old
            if either is not None and _contents(resource, old) != _contents(resource, new):
                self._look_at(self._users.get((namespace, resource), {}).get(either.metadata.name, set()))

        reflector.on_change(changed)
        return reflector

    def _look_at_users(self, place: _Place) -> None:
        for users in list(self._users.get(place, {}).values()):
            self._look_at(users)

    def _look_at(self, bindings: set[str]) -> None:
        for key in sorted(bindings):
            self._on_change(key)

    def _use(self, key: str, namespace: str, wanted: list[Reference]) -> None:
        """Write down what a binding's workload refers to, and read no longer what none refers to."""
        before = self._used.get(key, [])
        if before == wanted:
            return
        for each in before:
            names = self._users[namespace, each.resource]
            names.get(each.name, set()).discard(key)
            if not names.get(each.name, True):
                del names[each.name]
        for each in wanted:
            self._users.setdefault((namespace, each.resource), {}).setdefault(each.name, set()).add(key)
        if wanted:
            self._used[key] = wanted
        else:
            self._used.pop(key, None)
        for place in {(namespace, each.resource) for each in before}:
            if not self._users.get(place):
                self._users.pop(place, None)
                self._end(place)

    def _end(self, place: _Place) -> None:
        self._forbidden.discard(place)
        if self._there.pop(place, None) is not None:
            self._changed.set()

    def _handed_on(self, namespace: str) -> frozenset[ApiResource]:
        found = self._caches.namespaces.get(namespace)
        return handed_on(found.metadata.annotations) if found is not None else frozenset()

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        if new is None and old is not None:
            self._use(old.metadata.key, old.metadata.namespace, [])
            self._told.pop(old.metadata.key, None)

    def _namespace_changed(self, old: Slim | None, new: Slim | None) -> None:
        before, now = (
            handed_on(each.metadata.annotations) if each is not None else frozenset[ApiResource]()
            for each in (old, new)
        )
        either = new or old
        if before == now or either is None:
            return
        name = either.metadata.name
        for resource in (SECRETS, CLAIMS):
            if resource in before - now:
                self._end((name, resource))
        for resource in sorted(before ^ now, key=lambda each: each.plural):
            self._look_at_users((name, resource))

    # -- messages ----------------------------------------------------------------------------------------------------

    def _how_to_consent(self, reference: Reference, namespace: str) -> str:
        resource, command = reference.resource, self._how_to_annotate(namespace, reference.resource)
        kinds = f"{resource.kind}s" + (", which members would make anew and empty" if resource == CLAIMS else "")
        return (
            f"members don't get {resource.kind} {reference.name}, and pods that need it wait there: the namespace does"
            f" not hand {kinds} on; {f'{_how_to_bind(namespace)} && ' if resource == SECRETS else ''}{command}"
        )

    def _how_to_annotate(self, namespace: str, resource: ApiResource) -> str:
        found = self._caches.namespaces.get(namespace)
        there = found.metadata.annotations.get(keys.PROPAGATE, "") if found is not None else ""
        value = ",".join([*filter(None, (each.strip() for each in there.split(","))), resource.plural])
        return f"kubectl annotate --overwrite namespace {namespace} {keys.PROPAGATE}={value}"

    def _tell(self, key: str, kind: Kind, obj: Full, problems: list[tuple[str, str]]) -> None:
        """Once, until it is something else."""
        known, metadata = self._told.get(key, []), obj.metadata
        about = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "uid": metadata.uid}
        about |= {"namespace": metadata.namespace, "name": metadata.name}
        for reason, note in problems:
            if (reason, note) not in known:
                self._recorder.record(about, reason, note, warning=True)
        if problems:
            self._told[key] = problems
        else:
            self._told.pop(key, None)


def _metadata(reference: Reference, namespace: str, annotation: str, value: str) -> Json:
    about = {"name": reference.name, "namespace": namespace, "labels": OURS, "annotations": {annotation: value}}
    return {"apiVersion": reference.resource.api_version, "kind": reference.resource.kind, "metadata": about}


def _with_contents(reference: Reference, found: Full) -> Json:
    """Without `immutable`: a new one may take its place on the host."""
    metadata = found.metadata
    manifest = _metadata(reference, metadata.namespace, keys.SOURCE_VERSION, metadata.resource_version)
    contents = dict(_contents(reference.resource, found))
    manifest["metadata"]["annotations"] |= contents.pop("annotations", {})
    return manifest | contents


def _withheld(reference: Reference, namespace: str) -> Json:
    return _metadata(reference, namespace, keys.WITHHELD, "true")


def _how_to_bind(namespace: str) -> str:
    role, account = keys.SECRET_READER, f"{keys.SYSTEM_NAMESPACE}:atoll-control"
    return f"kubectl create rolebinding {role} -n {namespace} --clusterrole={role} --serviceaccount={account}"


def _how_to_let_read(reference: Reference, namespace: str) -> str:
    if reference.resource == SECRETS:
        return f"Atoll's control may not read Secrets there; {_how_to_bind(namespace)}"
    return f"Atoll's control may not read {reference.resource.kind}s; repeat atollctl init"


def _contents(resource: ApiResource, obj: Full | None) -> list[tuple[str, Any]]:
    return list(_fields(resource, obj.body)) if obj is not None else [("", None)]


def _fields(resource: ApiResource, body: Json) -> Iterator[tuple[str, Any]]:
    if resource in (RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES):
        yield "spec", body.get("spec") or {}
        if stated := (body["metadata"].get("annotations") or {}).get(keys.ALL_DEVICES):
            yield "annotations", {keys.ALL_DEVICES: stated}
    elif resource == CLAIMS:
        spec = body.get("spec") or {}
        yield "spec", {field: spec[field] for field in _OF_CLAIM if spec.get(field)}
    elif resource == SERVICE_ACCOUNTS:
        annotations = body["metadata"].get("annotations") or {}
        if own := {name: text for name, text in annotations.items() if name != keys.LAST_APPLIED}:
            yield "annotations", own
        yield from ((field, body[field]) for field in _OF_ACCOUNT if body.get(field) is not None)
    else:
        yield from ((field, body[field]) for field in _CONTENTS if body.get(field))
