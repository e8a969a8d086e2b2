"""The namespaces of a member that workloads go to: the ones that Atoll made, and the ones whose admin lets it in.

Any other namespace of the member is its own, with its Secrets and accounts: nothing enters it, under any name.
What Atoll made keeps the Pod Security labels of the namespace on the host, and the rules that it hands on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from atoll.kube import errors
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys, pod_security
from atoll.model.apiresource import NAMESPACES
from atoll.model.namespaces import NOT_ACCEPTED, PROPAGATED, lets_work_in
from atoll.model.objects import Meta, Slim, decode_meta

Json = dict[str, Any]

MANAGER = "atoll-delivery"
_RULES = frozenset(each.kind for each in PROPAGATED.values())

log = structlog.get_logger(__name__)


class NotAccepted(Exception):
    """The namespace is the member's own; the message names the remedy for its admin."""


class Namespaces:
    """Knows the member's namespaces, makes missing ones, and labels its own."""

    def __init__(self, member: ApiServer, cluster: str) -> None:
        """No I/O happens here; `run` does it."""
        self._member, self._cluster = member, cluster
        self._there: Reflector[Slim] = Reflector(member, NAMESPACES, decode_meta)
        self._there.on_change(self._changed)
        #: UIDs of namespaces that were made here and may not be in the cache yet
        self._made: dict[str, str] = {}
        #: UID -> (labels, annotations) that were applied last
        self._said: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
        #: UID -> rules that were brought last
        self._rules: dict[str, list[Json]] = {}
        self._on_change: Callable[[str], None] = lambda _: None

    async def run(self) -> None:
        """List and watch until cancelled."""
        await self._there.run()

    async def wait(self) -> None:
        """Return once everything has been listed."""
        await self._there.synced.wait()

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call `callback(name)` when a namespace is another one, or is accepted or not any more."""
        self._on_change = callback

    def problem(self, name: str) -> str:
        """Why nothing may enter a namespace of the member, in words; empty where it may, or where there is none yet."""
        found = self._there.get(name)
        if found is None or lets_work_in(found.metadata.labels) or self._made.get(name) == found.metadata.uid:
            return ""
        return _refusal(name, self._cluster)

    async def ensure(self, needs: Sequence[Json]) -> None:
        """Have the namespace that a workload needs, labelled and with rules as on the host where Atoll made it.

        Args:
            needs: all that the workload needs; only namespaces and their rules count.

        Raises:
            NotAccepted: it is the member's own.
        """
        manifest = next((each for each in needs if each["kind"] == NAMESPACES.kind), None)
        if manifest is None:
            return
        name = manifest["metadata"]["name"]
        if problem := self.problem(name):
            raise NotAccepted(problem)
        found = self._there.get(name)
        metadata = found.metadata if found is not None else await self._make(manifest)
        if metadata.labels.get(keys.MADE) != "true":
            return
        rules = [each for each in needs if each["kind"] in _RULES]
        if rules:
            await self._say(metadata, manifest)
        known = self._rules.get(metadata.uid)
        if rules != (known or []) or (known is None and keys.PROPAGATE in metadata.annotations):
            await self._bring(name, rules)
            self._rules[metadata.uid] = rules
        await self._say(metadata, manifest)

    async def _make(self, manifest: Json) -> Meta:
        """A namespace that the cache does not have."""
        name = manifest["metadata"]["name"]
        try:
            labels = {keys.MANAGED: "true", keys.MADE: "true"}
            made = await self._member.create(
                NAMESPACES, {**manifest, "metadata": {"name": name, "labels": labels}}, field_manager=MANAGER
            )
        except errors.AlreadyExists:
            there = await self._member.named(NAMESPACES, name)
            metadata = msgspec.convert(there[0]["metadata"] if there else {}, Meta)
            if not lets_work_in(metadata.labels):
                raise NotAccepted(_refusal(name, self._cluster)) from None
            return metadata
        self._made[name] = made["metadata"]["uid"]
        return msgspec.convert(made["metadata"], Meta)

    async def _say(self, there: Meta, manifest: Json) -> None:
        """Write what comes from the host and take off what came once; what the member's admin set by hand stands."""
        metadata = manifest["metadata"]
        labels = {key: text for key, text in (metadata.get("labels") or {}).items() if key in pod_security.LABELS}
        notes = {key: text for key, text in (metadata.get("annotations") or {}).items() if key == keys.PROPAGATE}
        known = self._said.get(there.uid)
        if known == (labels, notes) or (known is None and not labels and not notes and not self._has(there)):
            return
        about = {"name": there.name, "uid": there.uid, "labels": labels, "annotations": notes}
        body = {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": about}
        try:
            await self._member.apply(NAMESPACES, body, field_manager=MANAGER, force=False)
        except errors.Conflict as error:
            log.warning("what the member says itself stands", namespace=there.name, why=error.said)
        self._said[there.uid] = labels, notes

    @staticmethod
    def _has(there: Meta) -> bool:
        """Whether the namespace may have something that came from the host."""
        return keys.PROPAGATE in there.annotations or not pod_security.LABELS.isdisjoint(there.labels)

    async def _bring(self, name: str, rules: Sequence[Json]) -> None:
        """Have these rules in the namespace, and no others that Atoll made; one of the member's own stands."""
        for resource in PROPAGATED.values():
            wanted = {each["metadata"]["name"]: each for each in rules if each["kind"] == resource.kind}
            for there in await self._member.list(resource, name):
                metadata = there["metadata"]
                if (metadata.get("labels") or {}).get(keys.MADE) != "true":
                    if wanted.pop(metadata["name"], None) is not None:
                        log.warning("a rule of the member's own stands", namespace=name, rule=metadata["name"])
                elif metadata["name"] not in wanted:
                    with contextlib.suppress(errors.NotFound, errors.Conflict):
                        await self._member.delete(resource, metadata["name"], name, uid=metadata["uid"])
            for manifest in wanted.values():
                await self._member.apply(resource, manifest, field_manager=MANAGER)

    def _changed(self, old: Slim | None, new: Slim | None) -> None:
        if new is None and old is not None:
            self._said.pop(old.metadata.uid, None)
            self._rules.pop(old.metadata.uid, None)
            self._made.pop(old.metadata.name, None)
        either = new or old
        if either is not None and _standing(old) != _standing(new):
            self._on_change(either.metadata.name)


def _standing(namespace: Slim | None) -> tuple[str, bool] | None:
    return None if namespace is None else (namespace.metadata.uid, lets_work_in(namespace.metadata.labels))


def _refusal(name: str, cluster: str) -> str:
    remedy = f"kubectl label namespace {name} {keys.ACCEPT}=true in {cluster} lets it in"
    return f"namespace {name} {NOT_ACCEPTED}; {remedy}"
