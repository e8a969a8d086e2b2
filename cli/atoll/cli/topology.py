"""`atollctl topology`: the HyperNodes of one cluster as a tree, what is wrong with them, and finding them out.

These commands speak to a member, or to any cluster with HyperNodes: --kubeconfig and --context name it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import DataOutput, settings
from atoll.cli.printing import show_data

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.topology import Tree
    from atoll.topology.discovery.domains import Found
    from atoll.topology.discovery.plan import Changes

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, help="HyperNodes of a member: tree, problems, discovery.")

_TREE = re.compile(r"[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?")
SOURCE = "atollctl"
"""The source that `discover` writes on HyperNodes."""

Resource = Annotated[str, typer.Option("--resource", "-r", help="Resource of which to show free and all.")]
File = Annotated[Path | None, typer.Option("--filename", "-f", help="HyperNodes in a file instead of the cluster's.")]


@app.command(epilog="Example: atollctl topology tree --kubeconfig east.yaml -r nvidia.com/gpu")
def tree(ctx: typer.Context, resource: Resource = "nvidia.com/gpu", output: DataOutput = None) -> None:
    """Show the tree of HyperNodes with the nodes in each and what is free of a resource."""
    from atoll.cli.connection import call

    hyper_nodes, nodes, pods = call(settings(ctx), _with_pods)
    if output is not None:
        show_data({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": hyper_nodes}, output)
        return
    for line in _drawn(hyper_nodes, nodes, pods, resource):
        print(line)


@app.command(epilog="Example: atollctl topology check -f racks.yaml --kubeconfig east.yaml")
def check(ctx: typer.Context, filename: File = None) -> None:
    """Say what is wrong with HyperNodes: the cluster's, or a file's beside its nodes. 1 if anything is."""
    from atoll.cli.connection import call
    from atoll.model.topology import build

    hyper_nodes, nodes = call(settings(ctx), _with_nodes)
    if filename is not None:
        hyper_nodes = _read(filename)
    built = build(hyper_nodes, _labels(nodes))
    inside = set[str]().union(*(grown.lowest for grown in built.trees.values()))
    outside = sorted(_labels(nodes).keys() - inside)
    for name, problem in sorted(built.problems.items()):
        print(f"{name}: {problem}")
    if outside:
        print(f"in no domain: {', '.join(outside)}")
    if built.problems:
        raise typer.Exit(1)
    for name, grown in built.trees.items():
        if not name and len(built.trees) > 1 and not grown.tree.domains:
            continue
        domains, tiers = len(grown.tree.domains), len(grown.tree.tiers)
        which = f"tree {name}: " if name else ""
        print(f"{which}{domains} domains in {tiers} tiers, {len(grown.lowest)} nodes: nothing is wrong")


@app.command(epilog="Example: atollctl topology diff -f racks.yaml --kubeconfig east.yaml")
def diff(ctx: typer.Context, filename: Annotated[Path, typer.Option("--filename", "-f", help="HyperNodes.")]) -> None:
    """Show how the cluster's HyperNodes differ from those of a file. 1 if they do."""
    from atoll.cli.connection import call

    hyper_nodes = call(settings(ctx), _hyper_nodes)
    lines = list(_difference(hyper_nodes, _read(filename)))
    for line in lines:
        print(line)
    if lines:
        raise typer.Exit(1)
    print("they are the same")


@app.command(
    epilog="Example: atollctl topology discover --labels example.com/block,example.com/rack; "
    "atollctl topology discover --labels volcano.sh/rack --split - --apply; "
    "atollctl topology discover --ibnetdiscover links.txt; "
    "atollctl topology discover --labels example.com/feed --tree power"
)
def discover(
    ctx: typer.Context,
    labels: Annotated[str, typer.Option(help="Labels of nodes from the top down, with commas between.")] = "",
    split: Annotated[str, typer.Option(help="The one label's values say the whole path, with this between.")] = "",
    preset: Annotated[str, typer.Option(help="Labels that a cloud or a device plugin sets: see --help.")] = "",
    kueue: Annotated[str, typer.Option(help="Name of a Topology of Kueue whose levels to take.")] = "",
    ibnetdiscover: Annotated[Path | None, typer.Option(help="File with the output of ibnetdiscover.")] = None,
    ufm_ports: Annotated[Path | None, typer.Option(help="File with UFM's /ufmRest/resources/ports.")] = None,
    tree: Annotated[str, typer.Option(help="Name of the tree that it is, where nodes are in several.")] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Write it; without it nothing is changed.")] = False,
    output: DataOutput = None,
) -> None:
    """Find the topology out, show it as a tree, and what of the cluster's HyperNodes would change.

    HyperNodes of other authors or trees are never changed; those that were found before and are not any more go.
    """
    from atoll.cli.connection import call
    from atoll.topology.discovery.domains import hyper_nodes
    from atoll.topology.discovery.plan import changes

    given = [bool(each) for each in (labels, preset, kueue, ibnetdiscover, ufm_ports)]
    if sum(given) != 1:
        raise CommandError("give one of --labels, --preset, --kueue, --ibnetdiscover and --ufm-ports", USAGE)
    if tree and not _TREE.fullmatch(tree):
        raise CommandError(f"--tree {tree!r}: use at most 20 small letters, digits and -", USAGE)
    if split and (not labels or "," in labels):
        raise CommandError("--split goes with one label: --labels KEY --split -", USAGE)

    async def work(cluster: ApiServer) -> tuple[list[Json], Changes, Mapping[str, Mapping[str, str]]]:
        present, nodes = await _with_nodes(cluster)
        known = _labels(nodes)
        levels = await _levels(cluster, kueue) if kueue else _named_levels(labels, preset)
        found = _found(known, levels, split, ibnetdiscover, ufm_ports)
        wanted = hyper_nodes(found, SOURCE, tree)
        todo = changes(present, wanted, SOURCE, tree)
        if apply:
            await _write(cluster, todo)
        return wanted, todo, known

    wanted, todo, known = call(settings(ctx), work)
    if output is not None:
        show_data({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": wanted}, output)
        return
    if not wanted:
        raise CommandError(_nothing(labels, preset, kueue))
    for line in _drawn(wanted, [{"metadata": {"name": name, "labels": has}} for name, has in known.items()], [], ""):
        print(line)
    print()
    for line in _summary(todo, done=apply):
        print(line)


def _nothing(labels: str, preset: str, kueue: str) -> str:
    if labels or preset or kueue:
        return "no node has all of these labels: kubectl get nodes --show-labels"
    return "no host in the file is a node of this cluster: kubectl get nodes"


def _named_levels(labels: str, preset: str) -> list[str]:
    from atoll.topology.discovery.labels import PRESETS

    if preset:
        if preset not in PRESETS:
            raise CommandError(f"no preset {preset!r}; there are {', '.join(sorted(PRESETS))}", USAGE)
        return list(PRESETS[preset])
    return [each.strip() for each in labels.split(",") if each.strip()]


async def _levels(cluster: ApiServer, name: str) -> list[str]:
    from atoll.model.apiresource import KUEUE_TOPOLOGIES

    topology = await cluster.get(KUEUE_TOPOLOGIES, name)
    return [str(level["nodeLabel"]) for level in topology["spec"].get("levels") or ()]


def _found(
    nodes: Mapping[str, Mapping[str, str]],
    levels: Sequence[str],
    split: str,
    ibnetdiscover: Path | None,
    ufm_ports: Path | None,
) -> list[Found]:
    from atoll.topology.discovery import fabric
    from atoll.topology.discovery import labels as by_labels

    if ibnetdiscover is not None or ufm_ports is not None:
        try:
            if ibnetdiscover is not None:
                links = fabric.of_ibnetdiscover(ibnetdiscover.read_text())
            else:
                import json

                assert ufm_ports is not None, "one of the two is given"
                links = fabric.of_ufm(json.loads(ufm_ports.read_text()))
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise CommandError(f"{ibnetdiscover or ufm_ports}: {error}") from error
        return fabric.domains(links, nodes)
    return by_labels.by_path(nodes, levels[0], split) if split else by_labels.by_levels(nodes, levels)


async def _write(cluster: ApiServer, todo: Changes) -> None:
    from atoll.model.apiresource import HYPER_NODES

    for obj in todo.create:
        await cluster.create(HYPER_NODES, obj, field_manager=SOURCE)
    for old, new in todo.update:
        patch = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "spec": new["spec"]}
        await cluster.merge_patch(HYPER_NODES, new["metadata"]["name"], patch, field_manager=SOURCE)
    for obj in todo.delete:
        await cluster.delete(HYPER_NODES, obj["metadata"]["name"])


def _summary(todo: Changes, *, done: bool) -> Iterator[str]:
    """What was done, or would be."""
    would = "" if done else "would be "
    for verb, objects in (
        ("created", todo.create),
        ("changed", [new for _, new in todo.update]),
        ("deleted", todo.delete),
    ):
        for obj in objects:
            yield f"hypernode/{obj['metadata']['name']} {would}{verb}"
    for name in todo.foreign:
        yield f"hypernode/{name} belongs to another program and stays as it is: rename or delete that one"
    if not todo:
        yield "nothing to change"
    elif not done:
        yield "nothing was changed: add --apply"


async def _hyper_nodes(cluster: ApiServer) -> list[Json]:
    from atoll.model.apiresource import HYPER_NODES

    return await cluster.list(HYPER_NODES)


async def _with_nodes(cluster: ApiServer) -> tuple[list[Json], list[Json]]:
    """HyperNodes and nodes."""
    from atoll.model.apiresource import NODES

    return await _hyper_nodes(cluster), await cluster.list(NODES)


async def _with_pods(cluster: ApiServer) -> tuple[list[Json], list[Json], list[Json]]:
    """HyperNodes, nodes, and the pods that take room."""
    from atoll.model.apiresource import PODS

    pods = await cluster.list(PODS, field_selector="status.phase!=Succeeded,status.phase!=Failed")
    return *await _with_nodes(cluster), pods


def _labels(nodes: Iterable[Json]) -> dict[str, dict[str, str]]:
    return {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}


def _read(filename: Path) -> list[Json]:
    """The HyperNodes of a file of manifests."""
    import yaml

    try:
        objects = [each for each in yaml.safe_load_all(filename.read_text()) if each]
    except (OSError, yaml.YAMLError) as error:
        raise CommandError(f"{filename}: {error}") from error
    found = [each for obj in objects for each in (obj.get("items") or [obj]) if each.get("kind") == "HyperNode"]
    if not found:
        raise CommandError(f"{filename}: there is no HyperNode in it")
    return found


def _drawn(hyper_nodes: Sequence[Json], nodes: Sequence[Json], pods: Sequence[Json], resource: str) -> Iterator[str]:
    """The tree, a line for each domain; nodes and free amounts are those of all below."""
    from atoll.model.topology import build

    built = build(hyper_nodes, _labels(nodes))
    if not any(grown.tree.domains for grown in built.trees.values()):
        yield "no HyperNodes: atollctl topology discover finds them, docs/topology.md says how to write them"
        return
    room = _room(nodes, pods, resource) if resource else {}
    for name, grown in built.trees.items():
        if name:
            yield f"tree {name}:"
        yield from _lines(grown.tree, grown.lowest, room, resource)
    for name, problem in sorted(built.problems.items()):
        yield f"! {name}: {problem}"


def _lines(tree: Tree, lowest: Mapping[str, int], room: Mapping[str, tuple[int, int]], resource: str) -> Iterator[str]:
    from atoll.model.topology import NO_DOMAIN

    inside: list[list[str]] = [[] for _ in tree.domains]
    for node, nearest in sorted(lowest.items()):
        for above in tree.ancestors(nearest):
            inside[above].append(node)
    children: dict[int, list[int]] = {}
    for index, domain in enumerate(tree.domains):
        children.setdefault(domain.parent, []).append(index)

    def draw(index: int, lead: str, branch: str) -> Iterator[str]:
        domain = tree.domains[index]
        free, total = (sum(room[node][part] for node in inside[index] if node in room) for part in (0, 1))
        amount = f", {free} of {total} {resource} free" if total else ""
        tier = f"tier {domain.tier}" + (f" ({domain.tier_name})" if domain.tier_name else "")
        count = len(inside[index])
        names = f": {', '.join(inside[index])}" if index not in children and count else ""
        yield f"{lead}{branch}{domain.name}  {tier}, {count} node{'' if count == 1 else 's'}{amount}{names}"
        below = sorted(children.get(index, ()), key=lambda each: tree.domains[each].name)
        deeper = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        for number, each in enumerate(below):
            yield from draw(each, deeper, "└─ " if number == len(below) - 1 else "├─ ")

    for root in sorted(children.get(NO_DOMAIN, ()), key=lambda each: tree.domains[each].name):
        yield from draw(root, "", "")


def _room(nodes: Sequence[Json], pods: Sequence[Json], resource: str) -> dict[str, tuple[int, int]]:
    """Node -> what of the resource is free there, and all of it, in whole units."""
    from atoll.model.quantity import capacity, scale_of
    from atoll.model.vector import pod_requests

    scale = scale_of(resource)
    total = {
        node["metadata"]["name"]: capacity((node.get("status") or {}).get("allocatable")).get(resource, 0)
        for node in nodes
    }
    free = dict(total)
    for pod in pods:
        name = pod["spec"].get("nodeName")
        if name in free:
            free[name] -= pod_requests(pod["spec"]).get(resource, 0)
    return {name: (max(free[name], 0) // scale, total[name] // scale) for name in total}


def _difference(present: Sequence[Json], wanted: Sequence[Json]) -> Iterator[str]:
    """Lines as of `diff -u`, HyperNode by HyperNode."""
    import yaml

    before = {obj["metadata"]["name"]: obj["spec"] for obj in present}
    after = {obj["metadata"]["name"]: obj["spec"] for obj in wanted}
    for name in sorted(before.keys() | after.keys()):
        old, new = (yaml.safe_dump(specs[name]).splitlines() if name in specs else [] for specs in (before, after))
        yield from difflib.unified_diff(old, new, f"cluster/{name}", f"file/{name}", lineterm="")
