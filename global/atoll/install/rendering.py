"""The objects that `init` and `join` write into empty clusters, by their own code."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from atoll.install import embedded, roles
from atoll.install.credentials import Endpoint, ensure_account
from atoll.install.host import init
from atoll.install.member import MemberFacts, join
from atoll.install.placing import PlacingWish
from atoll.install.rehearsal import Nowhere
from atoll.install.rights import ensure_rights
from atoll.model import keys
from atoll.model.apiresource import DEPLOYMENTS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS

Json = dict[str, Any]

_ANY_DEPLOYMENT: Json = {"metadata": {"name": "any"}, "spec": {}, "status": {"observedGeneration": 1}}


class BadValues(ValueError):
    """Values that do not fit; the message names the field."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class HostValues(_Strict, frozen=True):
    """Flags of `init`, and a fact that it would find out."""

    mode: Literal["cluster", "embedded"] = "cluster"
    embedded: embedded.EmbeddedValues = embedded.EmbeddedValues()
    on: Literal["host", "karmada"] = "host"
    query_outside: str = ""
    runs_deployments: bool = False
    """The cluster runs Deployments itself, as every cluster with nodes does."""


class MemberValues(_Strict, frozen=True):
    """Flags of `join`."""

    endpoint: str = ""
    """URL of the member's API server."""
    labels: dict[str, str] = {}
    region: str = ""
    provider: str = ""
    zones: list[str] = []
    placer: str | None = None
    member_queue: str | None = None
    allow_exec: bool = False


class Values(_Strict, frozen=True):
    """A values file."""

    host: HostValues = HostValues()
    member: MemberValues = MemberValues()


def values_of(content: Any) -> Values:
    """Check a values file.

    Raises:
        BadValues: a field is unknown, or of another type.
    """
    try:
        return msgspec.convert(content, Values)
    except msgspec.ValidationError as error:
        raise BadValues(str(error)) from error


async def render_host(values: HostValues) -> list[Json]:
    """The objects of a host, in the order of their writes.

    Secrets are not among them, nor are webhook configurations: these may only come once the processes are ready. The
    ones of an embedded host are the objects of its carrier.

    Raises:
        BadValues: an embedded host has no image.
        Refused: `init` would refuse these values.
    """
    if values.mode == "embedded":
        if not values.embedded.image:
            raise BadValues("host.embedded.image: give the name of Atoll's image in your registry")
        return embedded.objects(values.embedded)
    host = Nowhere({DEPLOYMENTS: [_ANY_DEPLOYMENT]} if values.runs_deployments else None)
    await init(
        host, Endpoint(""), out=None, query_outside=values.query_outside, on_karmada=values.on == "karmada", force=True
    )
    return host.manifests(without=(MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS))


async def render_installer(*, member: bool) -> list[Json]:
    """The account of the charts' hooks, with its rights."""
    api, name = Nowhere(), "atoll-installer"
    await ensure_account(api, name, keys.SYSTEM_NAMESPACE)
    grants = roles.INSTALLER_IN_MEMBER if member else roles.INSTALLER
    await ensure_rights(api, name, (keys.SYSTEM_NAMESPACE, name), grants)
    return api.manifests()


async def render_member(name: str, values: MemberValues) -> tuple[list[Json], list[Json]]:
    """The objects of a member: in the host, in the member itself.

    Raises:
        BadValues: the member's address is missing.
        Refused: `join` would refuse the name or these values.
    """
    if not values.endpoint.startswith("https://"):
        raise BadValues(f"member.endpoint {values.endpoint!r}: give the https URL of the member's API server")
    host, member = Nowhere(), Nowhere()
    await join(
        host,
        member,
        name,
        host_at=Endpoint(""),
        member_at=Endpoint(values.endpoint),
        out=None,
        facts=MemberFacts(values.labels, values.region, values.provider, tuple(values.zones)),
        placing=PlacingWish(values.placer, values.member_queue),
        allow_exec=values.allow_exec,
    )
    return host.manifests(), member.manifests()
