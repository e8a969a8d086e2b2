"""`atollctl local`: a federation on this machine to play with."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import DataOutput
from atoll.cli.printing import show_data, show_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from atoll.local.layout import FederationConfig
    from atoll.local.supervisor import State

app = typer.Typer(no_args_is_help=True, help="A federation on this machine, to play with.")

image = typer.Typer(no_args_is_help=True, help="Container images for real nodes, built on this machine.")
app.add_typer(image, name="image")

Name = Annotated[str, typer.Option("--name", help="Name of the federation.")]


class Provider(StrEnum):
    """What clusters are made of."""

    PROCESSES = "processes"
    KIND = "kind"


@app.command(epilog="Example: atollctl local up --members 2 --nodes 8")
def up(
    members: Annotated[int | None, typer.Option(min=1, max=100, help="Member clusters (default 3).")] = None,
    nodes: Annotated[int | None, typer.Option(min=0, help="Simulated nodes of each member (default 16).")] = None,
    real_nodes: Annotated[
        int | None,
        typer.Option(min=0, max=15, help="Nodes of each member that run real containers; needs root (default 0)."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with members and nodes, instead.")] = None,
    name: Name = "default",
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay until ^C instead of detaching.")] = False,
    provider: Annotated[
        Provider,
        typer.Option(
            help="Clusters as processes of this machine, or kind's, in Docker, with real nodes alone (--real-nodes)."
        ),
    ] = Provider.PROCESSES,
    files_only: Annotated[
        bool, typer.Option("--files-only", help="With --provider kind: write configurations and scripts, run nothing.")
    ] = False,
) -> None:
    """Start a host, members and all processes of Atoll; return when every one is ready."""
    if config is not None and any(each is not None for each in (members, nodes, real_nodes)):
        raise CommandError("give either --config or --members, --nodes and --real-nodes", USAGE)
    from atoll.local import supervisor
    from atoll.local.atoll_federation import EXTENSION_NAME

    began = time.monotonic()

    def progress(line: str) -> None:
        print(f"{time.monotonic() - began:5.1f}s  {line}", file=sys.stderr, flush=True)

    if provider is Provider.KIND:
        if foreground:
            raise CommandError("--foreground is of provider processes", USAGE)
        _up_on_kind(name, _kind_layout(config, members, nodes, real_nodes), progress, files_only)
        return
    if files_only:
        raise CommandError("--files-only is of provider kind", USAGE)
    wanted = _layout(config, members, nodes, real_nodes)
    if foreground:
        supervisor.run_foreground(
            name,
            wanted,
            progress,
            extension=EXTENSION_NAME,
            on_ready=lambda state: print(next_steps(state), flush=True),
        )
        return
    print(next_steps(supervisor.up(name, wanted, progress, extension=EXTENSION_NAME)))


@app.command(epilog="Example: atollctl local down")
def down(name: Name = "default") -> None:
    """Stop a federation and remove its data; logs stay, except of one on kind's clusters."""
    from atoll.local import kind, supervisor

    if kind.down(name):
        print(f"federation {name} on kind's clusters is down")
    elif supervisor.down(name):
        print(f"federation {name} is down; logs: {supervisor.run_directory(name) / 'logs'}")
    else:
        print(f"federation {name} was not running")


@app.command(epilog="Example: atollctl local status -o json")
def status(name: Name = "default", output: DataOutput = None) -> None:
    """Show clusters and processes of a federation; exit code 1 unless it is ready."""
    from atoll.local import kind, supervisor

    folder = supervisor.run_directory(name)
    if kind.directory(name).exists():
        raise CommandError(
            f"federation {name} is on kind's clusters: `kind get clusters` shows them, {kind.directory(name)} has its "
            "kubeconfigs and logs"
        )
    state = supervisor.status(name)
    if output is None and state.status == "stopped" and not state.message:
        found = sorted(each.name for each in folder.parent.iterdir()) if folder.parent.exists() else []
        others = [each for each in found if each != name and supervisor.status(each).pid is not None]
        there = f"; running: {', '.join(others)}" if others else ""
        logs = f"; logs of the last run: {folder / 'logs'}" if (folder / "logs").exists() else ""
        raise CommandError(f"federation {name} does not run{there}: `atollctl local up --name {name}` starts it{logs}")
    if output is not None:
        show_data(state.model_dump(mode="json"), output)
    else:
        _print_status(state)
    if state.status != "ready":
        raise typer.Exit(1)


@image.command("build", epilog="Example: atollctl local image build examples/images/mpi")
def build_image(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Folder with an image.yaml, and files of the image in files/; without one, Atoll's own image is built "
            "from this checkout."
        ),
    ] = None,
    name: Name = "default",
    repository: Annotated[str | None, typer.Option(help="Of Atoll's own image: its name without a tag.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Of Atoll's own image: copy the archive here.")
    ] = None,
    records: Annotated[
        bool, typer.Option("--records", help="Of Atoll's own image: with the store of records (pyarrow).")
    ] = False,
) -> None:
    """Build a container image, and give it to all real nodes that run."""
    from atoll.local import supervisor
    from atoll.local.realnodes import images, node

    def report(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if folder is not None:
        if repository is not None or output is not None or records:
            raise CommandError(
                "--repository, --output and --records are of Atoll's own image: leave the folder out", USAGE
            )
        image_name, archive = images.build(folder, report)
    else:
        from atoll.local.image import build

        built = build.build(report, repository=repository or build.REPOSITORY, records=records)
        image_name, archive = built.name, built.archive
        report(f"{built.compressed / 1e6:.1f} MB compressed")
        if output is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_bytes(archive.read_bytes())
            archive = output
    real = set(supervisor.real_nodes(name))
    nodes = [each for each in supervisor.status(name).processes if each.alive and each.name in real]
    for each in nodes:
        images.load(archive, node.containerd_socket(each.pid))
    print(f"{image_name}: {archive}")
    print(f"on {', '.join(each.name for each in nodes)}" if nodes else f"federation {name} runs no real nodes")


def _up_on_kind(name: str, config: FederationConfig, progress: Callable[[str], None], files_only: bool) -> None:
    from atoll.local import kind

    if files_only:
        folder = kind.write(name, config)
        print(f"written, and not run: {folder}; bash {folder}/up.sh starts it, bash {folder}/down.sh takes it down")
        return
    folder = kind.up(name, config, progress)
    print(f"export KUBECONFIG={folder}/host.kubeconfig")
    print(f"# take it all down:  atollctl local down --name {name}")


def next_steps(state: State) -> str:
    """What to type next."""
    host, named = state.host, "" if state.name == "default" else f" --name {state.name}"
    folders = [str(each) for each in _not_on_path()]
    lines = [
        f"export KUBECONFIG={host.kubeconfig if host else ''}",
        *([f"export PATH={':'.join([*folders, '$PATH'])}"] if folders else []),
        "",
        f"# {len(state.members)} members: {', '.join(state.members)}",
        "# now submit an ordinary Volcano Job:  kubectl apply -f job.yaml",
        "# and see where it goes:               atollctl job list; atollctl explain NAME",
        f"# take it all down:                    atollctl local down{named}",
    ]
    return "\n".join(lines)


def _not_on_path() -> list[Path]:
    """Folders of atollctl and kubectl where typing their names does not find them."""
    import shutil

    from atoll.local import binaries

    found = []
    beside = Path(sys.executable).parent
    if shutil.which("atollctl") is None and (beside / "atollctl").exists():
        found.append(beside)
    if shutil.which("kubectl") is None:
        found.append(binaries.ensure(report=lambda _: None).kubectl.parent)
    return found


def _layout(config: Path | None, members: int | None, nodes: int | None, real_nodes: int | None) -> FederationConfig:
    from atoll.local import layout

    if config is not None:
        return layout.load(config)
    return layout.default_config(3 if members is None else members, 16 if nodes is None else nodes, real_nodes or 0)


def _kind_layout(
    config: Path | None, members: int | None, nodes: int | None, real_nodes: int | None
) -> FederationConfig:
    from atoll.local import kind

    real = kind.KIND_NODES if config is None and real_nodes is None else real_nodes
    return _layout(config, members, 0 if nodes is None else nodes, real)


def _print_status(state: State) -> None:
    said = f" ({state.message})" if state.message not in ("", state.status) else ""
    print(f"federation {state.name}: {state.status}{said}")
    if state.host is not None:
        clusters = {"host": state.host, **state.members}
        print()
        show_table(
            ("CLUSTER", "URL", "KUBECONFIG"), [[key, item.url, item.kubeconfig] for key, item in clusters.items()]
        )
    if state.processes:
        print()
        rows = [
            [
                item.name,
                item.pid,
                "running" if item.alive else "restarting",
                item.restarts,
                f"{item.rss_bytes >> 20}Mi",
                item.log,
            ]
            for item in state.processes
        ]
        show_table(("PROCESS", "PID", "STATE", "RESTARTS", "MEMORY", "LOG"), rows)
