"""`atollctl submit`: a workload from a few words, or from a script with `#SBATCH` lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import DataFormat, DataOutput, settings
from atoll.cli.printing import name_of, show_data
from atoll.cli.suggestions import queue_names

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

EPILOG = (
    "Example: atollctl submit --image train:7 --gpus 8 --workers 4 --queue research -- python train.py;"
    " atollctl submit --image sim:2 --array 0-199%20 --dry-run -o yaml -- ./sim.sh;"
    " atollctl submit --image train:7 --script job.sbatch"
)


def submit(
    ctx: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(help="Command of each worker, after --.")] = None,
    image: Annotated[str, typer.Option(help="Image in which it runs.")] = "",
    name: Annotated[str | None, typer.Option(help="Name; left out: made from the command.")] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="Queue; left out: the namespace's.", autocompletion=queue_names)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Pods that start together or not at all. [default: 1]")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs of each worker.")] = None,
    gpu_resource: Annotated[str | None, typer.Option(help="Their resource. [default: nvidia.com/gpu]")] = None,
    cpu: Annotated[str | None, typer.Option(help="Cores of each worker. [default: 1]")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of each worker, such as 64Gi.")] = None,
    array: Annotated[
        str | None, typer.Option(help="Indices, such as 0-199, or 0-199%20 for 20 at once: a JobArray.")
    ] = None,
    arguments: Annotated[
        Path | None, typer.Option(help="File with a line for each index of a JobArray: the last word of its command.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="Longest run time, such as 2h; also the estimate.")] = None,
    within: Annotated[str | None, typer.Option(help="Name of the tier of which one domain holds all workers.")] = None,
    priority_class: Annotated[str | None, typer.Option(help="PriorityClass.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; may be repeated.")] = None,
    script: Annotated[
        Path | None, typer.Option(help="Script with #SBATCH lines instead of a command; options here win over them.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Have the host check it, and create nothing.")] = False,
    output: DataOutput = None,
) -> None:
    """Submit a Volcano Job, or a JobArray with one for each index, and print its name, or with -o the object."""
    from atoll.cli import submission, submitted_warnings
    from atoll.cli.connection import call, warn
    from atoll.model.apiresource import JOB_ARRAYS, JOBS

    options = settings(ctx)
    given: dict[str, Any] = {
        "image": image, "name": name, "queue": queue, "workers": workers, "gpus": gpus, "gpu_resource": gpu_resource,
        "cpu": cpu, "memory": memory, "array": array, "time": time, "within": within,
        "priority_class": priority_class,
    }  # fmt: skip
    given = {key: value for key, value in given.items() if value is not None}
    given |= {"namespace": options.one_namespace, "env": dict(_pair(each) for each in env or ())}
    try:
        wish: submission.Wish = {}
        if script is not None:
            if command:
                raise CommandError("--script: the script is the command; leave the other one out", USAGE)
            wish, command = submission.script(script.read_text("utf-8"))
        if arguments is not None:
            given["arguments"] = arguments.read_text("utf-8").splitlines()
            if not given["arguments"]:
                raise CommandError(f"--arguments {arguments}: has no lines", USAGE)
        made = submission.manifest(submission.merged(wish, {**given, "command": command or []}))
    except submission.BadSubmission as error:
        raise CommandError(error.as_options(), USAGE) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{script or arguments}: {error}", USAGE) from error
    resource = JOB_ARRAYS if made["kind"] == JOB_ARRAYS.kind else JOBS

    async def create(host: ApiServer) -> dict[str, Any]:
        taken = await host.create(resource, made, field_manager="atollctl", dry_run=dry_run)
        for text in await submitted_warnings.warnings(
            host, resource, taken, within=within or "", dry_run=dry_run, called=submission.option
        ):
            warn(text)
        return taken

    # What a user may keep and edit is the manifest, not what the host makes of it.
    call(options, create)
    if output is not None:
        show_data(made, DataFormat(output))
    else:
        print(f"{name_of(made)} {'would be created' if dry_run else 'created'}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise CommandError(f"--env {text}: write NAME=VALUE", USAGE)
    return name, value
