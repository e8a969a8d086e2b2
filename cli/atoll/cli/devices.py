"""`atollctl devices`: the devices that drivers publish in one cluster, and where the claims of pods would get theirs.

These commands speak to a member, or to any cluster with ResourceSlices: --kubeconfig and --context name it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from atoll.cli.errors import CommandError
from atoll.cli.options import DataFormat, NoHeaders, settings
from atoll.cli.printing import show_data, show_table
from atoll.cli.topology import node_labels

if TYPE_CHECKING:
    from atoll.fit.devices import OnNode, Problem
    from atoll.kube.transport import ApiServer
    from atoll.model.devices import Pool, Taken

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, help="Devices of a member: pools, and where claims fit.")

_NONE = "no ResourceSlices: no driver of dynamic resource allocation publishes devices in this cluster"
MOST_REQUESTS = 32
"""Of a claim, and devices that it gets."""
_DEVICE = re.compile(r"([a-z](?:[-a-z0-9]{0,30}[a-z0-9])?)=([a-z0-9][-a-z0-9.]{0,252})(?::([1-9]\d?))?", re.ASCII)
_ATTRIBUTE = re.compile(r"[a-z0-9][-a-z0-9.]{0,62}/[A-Za-z_][A-Za-z0-9_]{0,31}", re.ASCII)
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
_CLAIMS = ("ResourceClaim", "ResourceClaimTemplate")


class _Cluster(NamedTuple):
    """All of a cluster that allocation reads."""

    nodes: list[Json]
    slices: list[Json]
    classes: list[Json]
    claims: list[Json]
    rules: list[Json]
    """DeviceTaintRules; none where the cluster does not serve them."""


@app.command("list", epilog="Example: atollctl devices list --kubeconfig east.yaml")
def list_pools(ctx: typer.Context, no_headers: NoHeaders = False) -> None:
    """Show the pools of devices that each node reaches: all devices, free ones, and tainted ones."""
    from atoll.cli.connection import call

    cluster = call(settings(ctx), _read_cluster)
    pools, taken = _pools(cluster)
    rows = [
        (node, pool.driver, pool.name, len(pool.devices), *_free(pool, taken), pool.problem or _incomplete(pool))
        for node, found in pools.items()
        for pool in found
    ]
    show_table(("NODE", "DRIVER", "POOL", "DEVICES", "FREE", "TAINTED", "PROBLEM"), rows, no_headers=no_headers)


@app.command(epilog="Example: atollctl devices shares --kubeconfig east.yaml")
def shares(ctx: typer.Context, no_headers: NoHeaders = False) -> None:
    """Show the nodes that give parts of GPUs: the names that they offer, and who keeps pods on one GPU apart."""
    from atoll.cli.connection import call
    from atoll.model import gpu_shares

    nodes, reported = call(settings(ctx), _read_shares)
    rows = []
    for node in sorted(nodes, key=lambda each: str(each["metadata"]["name"])):
        name = node["metadata"]["name"]
        if who := gpu_shares.isolation(node, koordlet=name in reported):
            offered = (node.get("status") or {}).get("allocatable") or {}
            names = sorted(each for each in offered if "gpu" in each or "mig" in each)
            rows.append((name, ", ".join(f"{each} {offered[each]}" for each in names), who))
    show_table(("NODE", "OFFERS", "ISOLATION"), rows, no_headers=no_headers)


async def _read_shares(api: ApiServer) -> tuple[list[Json], set[str]]:
    """Nodes, and names of the ones that Koordinator reports on."""
    from atoll.kube.errors import NotFound
    from atoll.model.apiresource import KOORDINATOR_DEVICES, NODES

    try:
        reported = {each["metadata"]["name"] for each in await api.list(KOORDINATOR_DEVICES)}
    except NotFound:
        reported = set()
    return await api.list(NODES), reported


@app.command(
    epilog="Example: atollctl devices fit -f claims.yaml --pods 8 --kubeconfig east.yaml; claims.yaml has the "
    "ResourceClaims and ResourceClaimTemplates of one pod, and DeviceClasses that the cluster lacks"
)
def fit(
    ctx: typer.Context,
    filename: Annotated[Path, typer.Option("--filename", "-f", help="Claims of one pod, as manifests.")],
    pods: Annotated[int, typer.Option(min=1, max=10_000, help="Pods with such claims, all or none.")] = 1,
) -> None:
    """Say on which nodes pods with these claims would get devices, and which. 1 if not all pods fit.

    Devices alone are looked at: neither CPUs and memory of the nodes nor their taints.
    """
    from atoll.cli.connection import call
    from atoll.fit.devices import Fleet, Refused, Undecided
    from atoll.fit.devices.problem import DevicesError

    objects = _manifests(filename)
    cluster = call(settings(ctx), _read_cluster)
    pools, taken = _pools(cluster)
    try:
        found = Fleet(_problems(objects, cluster, pools)).place(pods, taken)
    except DevicesError as error:
        raise CommandError(str(error)) from error
    if isinstance(found, Refused):
        raise CommandError(f"no room for all pods: {found.reason}")
    if isinstance(found, Undecided):
        raise CommandError(f"undecided: the search ended after {found.steps} devices; there may be room")
    show_table(("NODE", "REQUEST", "DEVICE", "CONSUMES"), _rows(found))


@app.command(
    epilog="Example: atollctl devices joint pairs --device gpu=gpu.example.com --device nic=nic.example.com --groups 8 "
    "| kubectl apply -n team -f -; pods name it as resourceClaimTemplateName: pairs"
)
def joint(
    name: Annotated[str, typer.Argument(help="Name of the ResourceClaimTemplate.")],
    device: Annotated[
        list[str], typer.Option(help="NAME=DEVICECLASS, or NAME=DEVICECLASS:COUNT, of each group; several times.")
    ],
    groups: Annotated[int, typer.Option(min=1, max=MOST_REQUESTS, help="Groups of devices for each pod.")] = 1,
    same: Annotated[str, typer.Option(help="The attribute in which the devices of a group are equal.")] = PCIE_ROOT,
) -> None:
    """Print a ResourceClaimTemplate of groups of devices, such as a GPU and a NIC under one PCIe root each.

    One constraint ties all devices of its requests to one value: each group gets requests and a constraint of its own.
    """
    show_data(joint_template(name, device, groups, same), DataFormat.YAML)


def joint_template(name: str, devices: Sequence[str], groups: int, same: str) -> Json:
    """The ResourceClaimTemplate of `joint`; arguments as there."""
    from atoll.model.apiresource import RESOURCE_CLAIM_TEMPLATES

    wanted: list[tuple[str, str, int]] = []
    for text in devices:
        if (match := _DEVICE.fullmatch(text)) is None:
            raise CommandError(f"--device {text}: write NAME=DEVICECLASS or NAME=DEVICECLASS:COUNT")
        wanted.append((match[1], match[2], int(match[3] or 1)))
    if len({each for each, _, _ in wanted}) < len(wanted):
        raise CommandError("--device: two have one name")
    if not _ATTRIBUTE.fullmatch(same):
        raise CommandError(f"--same {same}: write a qualified attribute, such as {PCIE_ROOT}")
    total = groups * sum(count for _, _, count in wanted)
    if total > MOST_REQUESTS:
        raise CommandError(f"{total} devices for each pod: a claim has at most {MOST_REQUESTS}")
    requests, constraints = [], []
    for group in range(groups):
        names = [f"{each}-{group}" if groups > 1 else each for each, _, _ in wanted]
        for each, (_, device_class, count) in zip(names, wanted, strict=True):
            number = {"count": count} if count > 1 else {}
            requests.append({"name": each, "exactly": {"deviceClassName": device_class, **number}})
        constraints.append({"requests": names, "matchAttribute": same})
    return {
        "apiVersion": RESOURCE_CLAIM_TEMPLATES.api_version,
        "kind": RESOURCE_CLAIM_TEMPLATES.kind,
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": requests, "constraints": constraints}}},
    }


async def _read_cluster(api: ApiServer) -> _Cluster:
    from atoll.kube.errors import NotFound
    from atoll.model.apiresource import DEVICE_CLASSES, DEVICE_TAINT_RULES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES

    try:
        slices, classes = await api.list(RESOURCE_SLICES), await api.list(DEVICE_CLASSES)
        claims = await api.list(RESOURCE_CLAIMS)
    except NotFound as error:
        raise CommandError("the cluster has no resource.k8s.io/v1: Kubernetes 1.34 or newer serves it") from error
    if not slices:
        raise CommandError(_NONE)
    try:
        rules = await api.list(DEVICE_TAINT_RULES)
    except NotFound:
        rules = []
    return _Cluster(await api.list(NODES), slices, classes, claims, rules)


def _manifests(filename: Path) -> list[Json]:
    from atoll.cli.what_if import read_documents

    objects: list[Json] = read_documents(str(filename))
    if not any(each.get("kind") in _CLAIMS for each in objects):
        raise CommandError(f"{filename}: there is no {' or '.join(_CLAIMS)} in it")
    return objects


def _pools(cluster: _Cluster) -> tuple[dict[str, list[Pool]], Taken]:
    """By node; and the devices that claims hold."""
    from atoll.model.devices import Taken
    from atoll.model.labels import SelectorError
    from atoll.model.quantity import QuantityError
    from atoll.model.resource_slices import ResourceSlices

    try:
        slices = ResourceSlices(cluster.slices)
        for rule in cluster.rules:
            slices.change_rule(rule["metadata"]["name"], rule)
        pools = {name: slices.pools(name, labels) for name, labels in sorted(node_labels(cluster.nodes).items())}
    except (QuantityError, SelectorError) as error:
        raise CommandError(f"ResourceSlices: {error}") from error
    return pools, Taken.of(cluster.claims)


def _problems(
    objects: Sequence[Json], cluster: _Cluster, pools: Mapping[str, Sequence[Pool]]
) -> dict[str, Problem]:  # fmt: skip
    """The claims beside the pools of each node that reaches any."""
    from atoll.fit.devices import prepare
    from atoll.fit.devices.selection import Selection
    from atoll.model.device_claims import Claim, DeviceClass, UnsupportedClaim

    own = [each for each in objects if each.get("kind") == "DeviceClass"]
    try:
        classes = {each.name: each for each in map(DeviceClass.of, [*cluster.classes, *own])}
        claims = [Claim.of(each) for each in objects if each.get("kind") in _CLAIMS]
    except (KeyError, TypeError, UnsupportedClaim) as error:
        raise CommandError(f"a claim or class can't be read: {error}") from error
    labels, selects = node_labels(cluster.nodes), Selection()
    return {
        name: prepare(claims, found, classes, selects, name, labels[name]) for name, found in pools.items() if found
    }


def _free(pool: Pool, taken: Taken) -> tuple[int, int]:
    """Free devices without a taint, and tainted ones."""
    tainted = sum(not device.healthy for device in pool.devices)
    return sum(device.healthy and not taken.holds(device.id) for device in pool.devices), tainted


def _incomplete(pool: Pool) -> str:
    return "slices of it are missing" if pool.incomplete else ""


def _rows(placed: Sequence[OnNode]) -> list[tuple[str, ...]]:
    return [
        (
            pod.node,
            pick.ask.wish.name,
            str(pick.option.device.id),
            ", ".join(f"{name} {amount}" for name, amount in (pick.option.amounts or {}).items()),
        )
        for pod in placed
        for pick in pod.picks
    ]
