"""`atollctl what-if`: would this workload start now, where; if not, what is the smallest change that would admit it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import FAILED, USAGE, CommandError, describe, no_dispatcher
from atoll.cli.options import DataFormat, DataOutput, settings
from atoll.cli.printing import show_data

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]


class NoWorkload(CommandError):
    """A manifest has nothing that would wait or start."""


EPILOG = "Example: atollctl what-if -f job.yaml -n research; atollctl what-if -f - -o json < job.yaml"


def what_if(
    ctx: typer.Context,
    filename: Annotated[
        list[str],
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="Manifests of workloads; - reads standard input; may be repeated.",
        ),
    ],
    output: DataOutput = None,
) -> None:
    """Tell whether a workload would start now and where; if not, the smallest change that would admit it.

    Nothing is created: the manifest is defaulted and checked by the host as one that is applied would be. Of several
    manifests each is answered for itself, as if the others did not come.
    """
    manifests, unreadable = read_all(filename)
    from atoll.cli.connection import call

    options = settings(ctx)
    answers = call(options, lambda host: ask_each(host, manifests, options.namespace, options.one_namespace))
    for error in unreadable:
        print(describe(error)[0], file=sys.stderr)
    show(manifests, answers, options.one_namespace, output)
    if unreadable:
        raise SystemExit(FAILED)


def read_all(filenames: Sequence[str]) -> tuple[list[Json], list[CommandError]]:
    """The manifests of several files, and the problems of unreadable ones.

    Raises:
        CommandError: none can be read.
    """
    found: list[Json] = []
    wrong: list[CommandError] = []
    for name in filenames:
        try:
            found += read(name)
        except CommandError as error:
            wrong.append(error)
    if not found:
        raise wrong[0]
    return found, wrong


def read(filename: str) -> list[Json]:
    """The manifests of a file.

    Raises:
        CommandError: there is none, or it can't be read.
    """
    found = read_documents(filename)
    if not found or not all(isinstance(each, dict) and isinstance(each.get("metadata"), dict) for each in found):
        raise CommandError(f"-f {filename}: manifests of workloads are wanted", USAGE)
    return found


def read_documents(filename: str) -> list[Any]:
    """The documents of a file, or of standard input for `-`.

    Raises:
        CommandError: it can't be read.
    """
    from atoll.model import documents

    try:
        content = sys.stdin.buffer.read() if filename == "-" else Path(filename).read_bytes()
        return [each for each in documents.read_yaml_file(content.decode()) if each]
    except UnicodeDecodeError as error:
        text = f"is not UTF-8 text (byte {error.start + 1}): save it as UTF-8"
        raise CommandError(f"-f {filename}: {text}", USAGE) from error
    except IsADirectoryError as error:
        raise CommandError(f"-f {filename}: is a directory: name its files", USAGE) from error
    except OSError as error:
        raise CommandError(f"-f {filename}: {error.strerror}", USAGE) from error
    except documents.BadDocument as error:
        raise CommandError(f"-f {filename}: {error}", USAGE) from error


def show(
    manifests: Sequence[Json], answers: Sequence[Json | Exception], default: str, output: DataFormat | None
) -> None:
    """Print the answers; questions without one go to stderr.

    Args:
        manifests: of the questions.
        answers: of `ask_each`.
        default: the namespace of manifests that name none.
        output: as data; None for text.

    Raises:
        SystemExit: one of several could not be answered; what carries no workload needs no answer.
        Exception: the only one could not be answered.
    """
    from atoll.model.plurals import counted
    from atoll.view import verdicts

    failed = [each for each in answers if isinstance(each, Exception) and not isinstance(each, NoWorkload)]
    if len(answers) == 1 and failed:
        raise failed[0]
    if output is not None:
        shown = [{**each, "spec": {}} for each in answers if not isinstance(each, Exception)]
        show_data(shown[0] if len(manifests) == 1 and shown else shown, output)
    elif len(manifests) > 1:
        count = sum(not isinstance(each, NoWorkload) for each in answers)
        print(f"{counted(count, 'workload')}, each as if it came alone")
    for manifest, answer in zip(manifests, answers, strict=True):
        workload = named(manifest, default)
        if isinstance(answer, NoWorkload):
            print(answer, file=sys.stderr if output is not None else sys.stdout)
        elif isinstance(answer, Exception):
            print(f"{workload}: {describe(answer)[0]}", file=sys.stderr)
        elif output is None:
            print(verdicts.answer(workload, answer["status"], time.time()))
    if failed:
        raise SystemExit(FAILED)


def named(manifest: Json, default: str) -> str:
    """Kind, namespace and name of a workload; `default` is the namespace of one that names none."""
    meta = manifest["metadata"]
    return f"{manifest.get('kind')} {meta.get('namespace') or default}/{meta.get('name') or meta.get('generateName')}"


async def ask_each(
    host: ApiServer, manifests: Sequence[Json], namespace: str | None, default: str
) -> list[Json | Exception]:
    """The WhatIf of each manifest, answered, or why it is not.

    Args:
        host: the API server.
        manifests: of workloads.
        namespace: that the user asks for; None for the manifest's own.
        default: the namespace of manifests that name none.

    Raises:
        Unreachable: the host does not answer.
    """
    from atoll.kube import errors

    answers: list[Json | Exception] = []
    for manifest in manifests:
        own = manifest["metadata"].get("namespace")
        try:
            if namespace and own and own != namespace:
                raise CommandError(
                    f'the namespace from the provided object "{own}" does not match the namespace "{namespace}";'
                    " leave -n out, or change one of them"
                )
            answers.append(await ask(host, manifest, default))
        except errors.Unreachable:
            raise
        except (CommandError, errors.ApiError) as error:
            answers.append(error)
    return answers


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


async def ask(host: ApiServer, manifest: Json, default: str, say: Callable[[str], None] = _to_stderr) -> Json:
    """The WhatIf of a manifest, answered.

    Args:
        host: the API server.
        manifest: of a workload.
        default: the namespace of a manifest that names none.
        say: gets a remark for the user.

    Raises:
        NoWorkload: nothing of it would run.
        CommandError: of a kind that Atoll does not take, or no dispatcher answers such questions.
        ApiError: the host refuses the workload, or the question.
    """
    import orjson

    from atoll.cli.lookup import read_declared
    from atoll.kinds import kind_of, known
    from atoll.kube import errors
    from atoll.model.apiresource import WHAT_IFS
    from atoll.model.deschedulers import readers

    if (kind := kind_of(manifest)) is None:
        if said := readers(manifest):
            raise NoWorkload(said)
        await read_declared(host)
        kind = kind_of(manifest)
    if kind is None and not _runs_pods(manifest):
        raise NoWorkload(f"{manifest.get('kind')} {manifest['metadata'].get('name', '')} carries no workload")
    if kind is None or kind.assembly is not None:
        takes = [kind.resource for kind in known() if kind.assembly is None]
        titles = ", ".join(f"{each.kind} of {each.api_version}" for each in takes)
        raise CommandError(f"{manifest.get('kind')} of {manifest.get('apiVersion')}: what-if takes {titles}")
    metadata = {**manifest["metadata"], "namespace": manifest["metadata"].get("namespace") or default}
    where, name = metadata["namespace"], metadata.get("name")

    async def tried(metadata: Json) -> Json:
        """The workload as the host would take it in: a try that leaves nothing behind."""
        # YAML has keys that are no text, and dates.
        body = json.dumps({**manifest, "metadata": metadata}, default=str).encode()
        path = kind.resource.path(where)
        found: Json = orjson.loads(await host.request("POST", path, body=body, params={"dryRun": "All"}))
        return found

    try:
        workload = await tried(metadata)
    except errors.AlreadyExists:
        # The question is about another one of that name. Only the name is in the way: admission comes before.
        say(f"{kind.resource.kind} {where}/{name} exists: this is about another one like it")
        del metadata["name"]
        workload = await tried({**metadata, "generateName": f"{name}-"})
    question = {
        "apiVersion": WHAT_IFS.api_version,
        "kind": WHAT_IFS.kind,
        "metadata": {"namespace": where, "name": name or metadata.get("generateName")},
        "spec": {"workload": workload},
    }
    try:
        return await host.create(WHAT_IFS, question)
    except (errors.NotFound, errors.Busy) as error:
        raise no_dispatcher("no dispatcher answers what-ifs", error) from error


def _runs_pods(manifest: Json) -> bool:
    """Whether pods follow from an object: it is of a kind that is known to make them, or has containers."""
    from atoll.kinds import makers, unserved

    group = str(manifest.get("apiVersion", "")).rpartition("/")[0]
    known = [*makers.ROUTES, *unserved.BUILT_IN, *unserved.BY_CRD]
    return (group, manifest.get("kind")) in {(each.group, each.kind) for each in known} or _has_containers(manifest)


def _has_containers(value: object) -> bool:
    if isinstance(value, dict):
        return isinstance(value.get("containers"), list) or any(map(_has_containers, value.values()))
    return isinstance(value, list) and any(map(_has_containers, value))
