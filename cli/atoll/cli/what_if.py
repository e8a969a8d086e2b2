"""`atollctl what-if`: would this workload start now, where; if not, what is the smallest change that would admit it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import DataOutput, settings
from atoll.cli.printing import show_data

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

EPILOG = "Example: atollctl what-if -f job.yaml -n research; atollctl what-if -f - -o json < job.yaml"


def what_if(
    ctx: typer.Context,
    filename: Annotated[
        str, typer.Option("--filename", "-f", metavar="FILE", help="Manifests of workloads; - reads standard input.")
    ],
    output: DataOutput = None,
) -> None:
    """Tell whether a workload would start now and where; if not, the smallest change that would admit it.

    Nothing is created: the manifest is defaulted and checked by the host as one that is applied would be.
    """
    manifests = read(filename)
    from atoll.cli import verdicts
    from atoll.cli.connection import call

    options = settings(ctx)

    async def work(host: ApiServer) -> list[Json]:
        return [await ask(host, manifest, options.one_namespace) for manifest in manifests]

    answers = call(options, work)
    if output is not None:
        shown = [{**answer, "spec": {}} for answer in answers]
        show_data(shown[0] if len(shown) == 1 else shown, output)
        return
    for manifest, answer in zip(manifests, answers, strict=True):
        meta = manifest["metadata"]
        name = f"{meta.get('namespace') or options.one_namespace}/{meta.get('name') or meta.get('generateName')}"
        print(verdicts.answer(f"{manifest['kind']} {name}", answer["status"]))


def read(filename: str) -> list[Json]:
    """The manifests of a file.

    Raises:
        CommandError: there is none, or it can't be read.
    """
    import yaml

    try:
        text = sys.stdin.read() if filename == "-" else Path(filename).read_text()
        found = [each for each in yaml.safe_load_all(text) if each]
    except (OSError, yaml.YAMLError) as error:
        raise CommandError(f"-f {filename}: {error}", USAGE) from error
    if not found or not all(isinstance(each, dict) and isinstance(each.get("metadata"), dict) for each in found):
        raise CommandError(f"-f {filename}: manifests of workloads are wanted", USAGE)
    return found


async def ask(host: ApiServer, manifest: Json, namespace: str) -> Json:
    """The WhatIf of a manifest, answered.

    Raises:
        CommandError: of a kind that Atoll does not take, or nobody answers such questions.
        ApiError: the host refuses the workload, or the question.
    """
    import orjson

    from atoll.kinds import BY_GVK
    from atoll.kube import errors
    from atoll.model.apiresource import WHAT_IFS

    kind = BY_GVK.get((str(manifest.get("apiVersion")), str(manifest.get("kind"))))
    if kind is None:
        known = ", ".join(f"{name} of {version}" for version, name in BY_GVK)
        raise CommandError(f"{manifest.get('kind')} of {manifest.get('apiVersion')}: what-if takes {known}")
    metadata = dict(manifest["metadata"])
    where = metadata["namespace"] = metadata.get("namespace") or namespace
    if name := metadata.pop("name", ""):
        # One of that name may be there already.
        metadata["generateName"] = f"{name}-"
    # A try that leaves nothing behind fills in what the webhook fills in, and is refused as the workload would be.
    body = orjson.dumps({**manifest, "metadata": metadata})
    tried = await host.request("POST", kind.resource.path(where), body=body, params={"dryRun": "All"})
    question = {
        "apiVersion": WHAT_IFS.api_version,
        "kind": WHAT_IFS.kind,
        "metadata": {"namespace": where},
        "spec": {"workload": orjson.loads(tried)},
    }
    try:
        return await host.create(WHAT_IFS, question)
    except (errors.NotFound, errors.Busy) as error:
        raise CommandError(
            f"nobody answers what-ifs: {error.message}; is an atoll-dispatcher leading?"
            " (kubectl get apiservice v1alpha1.query.atoll.sh)"
        ) from error
