"""`atollctl init --embedded` and `uninstall --embedded`: the host is pods of another cluster, the carrier."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import Settings
from atoll.cli.rendering import read_values

if TYPE_CHECKING:
    from atoll.install import EmbeddedValues, Rehearsal
    from atoll.kube.transport import ApiServer


@dataclass(frozen=True, slots=True)
class Wishes:
    """Flags that go with --embedded."""

    values: str | None = None
    image: str | None = None
    only_certificates: bool = False
    print_kubeconfig: bool = False
    timeout: float = 600.0


def bring(options: Settings, wishes: Wishes) -> None:
    """Bring the host into the carrier, or do the one thing that a flag names."""
    from atoll import install
    from atoll.cli.connection import call

    given = _given(options, wishes)
    namespace = given.get("namespace") or install.EmbeddedValues().namespace

    async def certificates(carrier: ApiServer) -> None:
        ends = await install.renew(carrier, await install.present_values(carrier, namespace))
        print(f"certificates of the host in namespace {namespace}: the first ends on {ends:%Y-%m-%d}")

    async def kubeconfig(carrier: ApiServer) -> None:
        text, url = await install.admin_kubeconfig(carrier, namespace)
        print(text, end="")
        if url.startswith("https://127.0.0.1"):
            print(f"{url} needs: kubectl port-forward -n {namespace} service/atoll-apiserver 6443", file=sys.stderr)

    async def all_of_it(carrier: ApiServer) -> EmbeddedValues:
        return await install.embed(carrier, given, timeout=wishes.timeout, progress=print)

    if wishes.only_certificates:
        call(options, certificates)
    elif wishes.print_kubeconfig:
        call(options, kubeconfig)
    else:
        values = call(options, all_of_it)
        print(f"\nThe host runs in namespace {values.namespace}. Its kubeconfig:")
        print(f"  atollctl init --embedded -n {values.namespace} --print-kubeconfig > host.yaml")
        print("and add members with: atollctl join NAME --kubeconfig host.yaml --member-kubeconfig FILE")


async def rehearse(options: Settings, wishes: Wishes, carrier: Rehearsal) -> None:
    """Have a rehearsal record what `bring` would write."""
    from atoll import install

    await install.embed(carrier, _given(options, wishes), timeout=None)


def take_away(options: Settings, *, data: bool) -> None:
    """Delete the pods of the host, and with `data` all that it knows."""
    from atoll import install
    from atoll.cli.connection import call

    namespace = options.namespace or install.EmbeddedValues().namespace

    async def work(carrier: ApiServer) -> None:
        await install.remove(carrier, namespace, data=data, progress=print)

    call(options, work)
    if not data:
        print("Still there: the namespace, its volumes, keys and backups; init --embedded brings the host back,")
        print("--delete-data --yes deletes them with every queue and job of the host.")


def _given(options: Settings, wishes: Wishes) -> dict[str, Any]:
    """Keys of `host.embedded` as the file has them, flags above."""
    written = read_values(wishes.values)[1]
    given = dict((written.get("host") or {}).get("embedded") or {})
    if options.namespace is not None:
        given["namespace"] = options.namespace
    if wishes.image is not None:
        given["image"] = wishes.image
    if wishes.only_certificates and wishes.print_kubeconfig:
        raise CommandError("give either --only-certificates or --print-kubeconfig", USAGE)
    return given
