"""`atollctl topology`: the HyperNodes of one cluster as a tree, what is wrong with them, and finding them out.

These commands speak to a member, or to any cluster with HyperNodes: --kubeconfig and --context name it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import DataOutput, settings
from atoll.cli.printing import show_data

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.topology.discovery.plan import Changes

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, help="HyperNodes of a member: tree, problems, discovery.")

SOURCE = "atollctl"
"""The source that `discover` writes on HyperNodes."""
NO_HYPER_NODES = "no HyperNodes: atollctl topology discover finds them, docs/topology.md says how to write them"

Resource = Annotated[str, typer.Option("--resource", "-r", help="Resource of which to show free and all.")]
File = Annotated[Path | None, typer.Option("--filename", "-f", help="HyperNodes in a file instead of the cluster's.")]


@app.command(
    epilog="Example: atollctl topology tree --kubeconfig east.yaml -r nvidia.com/gpu; "
    "atollctl topology tree --svg racks.svg"
)
def tree(
    ctx: typer.Context,
    resource: Resource = "nvidia.com/gpu",
    svg: Annotated[Path | None, typer.Option(help="Write a picture of it to this file instead.")] = None,
    output: DataOutput = None,
) -> None:
    """Show the tree of HyperNodes with the nodes in each and what is free of a resource."""
    from atoll.cli.connection import call

    if svg is not None and output is not None:
        raise CommandError("--svg and --output do not go together", USAGE)

    hyper_nodes, nodes, pods = call(settings(ctx), _with_pods)
    if output is not None:
        show_data({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": hyper_nodes}, output)
        return
    if svg is not None:
        _picture(svg, hyper_nodes, nodes, pods, resource)
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
    built = build(hyper_nodes, node_labels(nodes))
    inside = set[str]().union(*(grown.lowest for grown in built.trees.values()))
    outside = sorted(node_labels(nodes).keys() - inside)
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
    "atollctl topology discover --labels example.com/feed --tree power; "
    "atollctl topology discover --ufm https://ufm.example.com --ufm-user reader --ufm-password-file ufm.txt; "
    "atollctl topology discover --sources sources.yaml"
)
def discover(
    ctx: typer.Context,
    labels: Annotated[str, typer.Option(help="Labels of nodes from the top down, with commas between.")] = "",
    split: Annotated[str, typer.Option(help="The one label's values say the whole path, with this between.")] = "",
    preset: Annotated[str, typer.Option(help="Labels that a cloud or a device plugin sets: see --help.")] = "",
    kueue: Annotated[str, typer.Option(help="Name of a Topology of Kueue whose levels to take.")] = "",
    ibnetdiscover: Annotated[Path | None, typer.Option(help="File with the output of ibnetdiscover.")] = None,
    ufm_ports: Annotated[Path | None, typer.Option(help="File with UFM's /ufmRest/resources/ports.")] = None,
    ufm: Annotated[str, typer.Option(help="URL of a UFM to ask for its ports.")] = "",
    ufm_user: Annotated[str, typer.Option(help="Who asks it.")] = "",
    ufm_password_file: Annotated[Path | None, typer.Option(help="File with the password.")] = None,
    ufm_ca_file: Annotated[Path | None, typer.Option(help="File with the certificates of who signs for it.")] = None,
    sources: Annotated[Path | None, typer.Option(help="File with a list of sources, as atoll-topology reads.")] = None,
    tree: Annotated[str, typer.Option(help="Name of the tree that it is, where nodes are in several.")] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Write it; without it nothing is changed.")] = False,
    output: DataOutput = None,
) -> None:
    """Find the topology out, show it as a tree, and what of the cluster's HyperNodes would change.

    HyperNodes of other authors or trees are never changed; those that were found before and are not any more go.
    """
    from atoll.cli.connection import call
    from atoll.topology import sources as reading
    from atoll.topology.discovery.plan import changes
    from atoll.topology.ufm import Ufm

    given = [bool(each) for each in (labels, preset, kueue, ibnetdiscover, ufm_ports, ufm, sources)]
    if sum(given) != 1:
        options = "--labels, --preset, --kueue, --ibnetdiscover, --ufm-ports, --ufm and --sources"
        raise CommandError(f"give one of {options}", USAGE)
    if sources is not None and (split or tree):
        raise CommandError("--split and --tree are said in the file of --sources", USAGE)
    try:
        if sources is not None:
            wished = reading.parsed(sources.read_text("utf-8"))
        else:
            asked = Ufm(ufm, ufm_user, _path(ufm_password_file), _path(ufm_ca_file)) if ufm else None
            keys = tuple(each.strip() for each in labels.split(",") if each.strip())
            files = (_path(ibnetdiscover), _path(ufm_ports))
            wished = [reading.Source(keys, split, preset, kueue, *files, asked, tree)]
    except (OSError, ValueError, reading.SourceError) as error:
        raise CommandError(str(error), USAGE) from error

    async def work(cluster: ApiServer) -> tuple[list[Json], list[Changes], list[Json]]:
        present, nodes = await _with_nodes(cluster)
        try:
            found = await reading.wanted(wished, cluster, node_labels(nodes), SOURCE)
        except reading.SourceError as error:
            raise CommandError(str(error)) from error
        todo = [changes(present, wanted, SOURCE, name) for name, wanted in found.items()]
        if apply:
            for each in todo:
                await reading.write(cluster, each, SOURCE)
        return list(chain.from_iterable(found.values())), todo, nodes

    wanted, todo, nodes = call(settings(ctx), work)
    if output is not None:
        show_data({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": wanted}, output)
        return
    if not wanted:
        raise CommandError(_nothing(labels or preset or kueue))
    for line in _drawn(wanted, nodes, [], ""):
        print(line)
    print()
    for line in _summary(todo, done=apply):
        print(line)


def _path(file: Path | None) -> str:
    return "" if file is None else str(file)


def _nothing(labels: str) -> str:
    if labels:
        return "no node has all of these labels: kubectl get nodes --show-labels"
    return "no host that was found is a node of this cluster: kubectl get nodes"


def _summary(todo: Sequence[Changes], *, done: bool) -> Iterator[str]:
    """Changes that were made, or would be."""
    would = "" if done else "would be "
    for verb, objects in (
        ("created", [obj for each in todo for obj in each.create]),
        ("changed", [new for each in todo for _, new in each.update]),
        ("deleted", [obj for each in todo for obj in each.delete]),
    ):
        for obj in objects:
            yield f"hypernode/{obj['metadata']['name']} {would}{verb}"
    for name in [name for each in todo for name in each.foreign]:
        yield f"hypernode/{name} belongs to another program and stays as it is: rename or delete that one"
    if not any(todo):
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


def node_labels(nodes: Iterable[Json]) -> dict[str, dict[str, str]]:
    """Node -> its labels."""
    return {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}


def _read(filename: Path) -> list[Json]:
    """The HyperNodes of a file of manifests."""
    from atoll.model import documents

    try:
        objects = [each for each in documents.read_yaml_file(filename.read_text()) if each]
    except (OSError, documents.BadDocument) as error:
        raise CommandError(f"{filename}: {error}") from error
    found = [each for obj in objects for each in (obj.get("items") or [obj]) if each.get("kind") == "HyperNode"]
    if not found:
        raise CommandError(f"{filename}: there is no HyperNode in it")
    return found


def _drawn(hyper_nodes: Sequence[Json], nodes: Sequence[Json], pods: Sequence[Json], resource: str) -> Iterator[str]:
    """The trees, a line for each domain, and their problems."""
    from atoll.cli.topology_drawing import branches, lines
    from atoll.model.topology import build

    built = build(hyper_nodes, node_labels(nodes))
    if not any(grown.tree.domains for grown in built.trees.values()):
        yield NO_HYPER_NODES
        return
    room = _room(nodes, pods, resource) if resource else {}
    for name, grown in built.trees.items():
        if name:
            yield f"tree {name}:"
        yield from lines(branches(grown, room), resource)
    for name, problem in sorted(built.problems.items()):
        yield f"! {name}: {problem}"


def _picture(
    file: Path, hyper_nodes: Sequence[Json], nodes: Sequence[Json], pods: Sequence[Json], resource: str
) -> None:
    """Write the trees as a picture."""
    from atoll.cli.topology_drawing import branches, svg
    from atoll.model.topology import build

    built = build(hyper_nodes, node_labels(nodes))
    room = _room(nodes, pods, resource) if resource else {}
    trees = {name: branches(grown, room) for name, grown in built.trees.items() if grown.tree.domains}
    if not trees:
        raise CommandError(NO_HYPER_NODES)
    try:
        file.write_text(svg(trees, resource), "utf-8")
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from error
    print(f"{file}: {sum(len(grown.tree.domains) for grown in built.trees.values())} domains")
    for name, problem in sorted(built.problems.items()):
        print(f"! {name}: {problem}")


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
