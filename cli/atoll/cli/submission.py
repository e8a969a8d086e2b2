"""Manifests from a few words, as Slurm's users give them: workers, devices, an array; and from lines of `#SBATCH`."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from atoll.model import array_states, duration, keys, numbers, quantity

Json = dict[str, Any]
Wish = dict[str, Any]

_MOST_SCRIPT: Final = 64 * 1024
_GPUS: Final = "nvidia.com/gpu"
_TIME: Final = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)


class BadSubmission(ValueError):
    """No manifest can say that; the message names the parameter or the line."""

    def __init__(self, problem: str, **given: object) -> None:
        """`given`: parameters of the problem, with their values; empty where there is none."""
        super().__init__(problem, given)
        self._problem, self._given = problem, given

    def __str__(self) -> str:
        return self._about([f"{name} {value}".rstrip() for name, value in self._given.items()])

    def as_options(self) -> str:
        """The message, with parameters by the options of the command line."""
        return self._about([f"{option(name)} {value}".rstrip() for name, value in self._given.items()])

    def _about(self, subjects: list[str]) -> str:
        return f"{' '.join(subjects)}: {self._problem}" if subjects else self._problem


_OPTIONS: Final = {"command": "the command after --", "indices": "--index"}
"""Options that are not called as their parameters."""


def option(parameter: str) -> str:
    """Option of the command line for a parameter."""
    return _OPTIONS.get(parameter, f"--{parameter.replace('_', '-')}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A workload in a few words."""

    command: Sequence[str]
    image: str
    name: str = ""
    """Empty for one from the command, with a random end."""
    namespace: str = "default"
    queue: str = ""
    """Empty for the namespace's own."""
    workers: int = 1
    gpus: int = 0
    """Of each worker."""
    gpu_resource: str = _GPUS
    cpu: str = "1"
    memory: str = ""
    array: str = ""
    """`0-199%20`: indices, and how many run at once."""
    arguments: Sequence[str] = ()
    """A last word of the command for each index of an array; `array` may be left out."""
    time: str = ""
    """The longest run time: a duration such as `2h`."""
    within: str = ""
    """Name of the tier of which one domain holds all workers."""
    priority_class: str = ""
    env: dict[str, str] = field(default_factory=dict)
    directory: str = ""


def manifest(wish: Submission) -> Json:
    """A Volcano Job, or a JobArray of them.

    Raises:
        BadSubmission: it can't be made.
    """
    if not wish.command:
        raise BadSubmission("is missing", command="")
    if not wish.image:
        raise BadSubmission("is missing: the image in which the command runs", image="")
    if wish.workers < 1 or wish.gpus < 0:
        raise BadSubmission("write numbers of at least 1, and 0", workers=wish.workers, gpus=wish.gpus)
    limit = None
    if wish.time:
        try:
            limit = max(round(duration.parse(wish.time)), 1)
        except duration.DurationError as error:
            raise BadSubmission(str(error), time="") from error
    if wish.arguments:
        # The kubelet puts the value of the index there.
        wish = replace(wish, command=[*wish.command, f"$({keys.ARGUMENT_VARIABLE})"])
    metadata: Json = {"name": wish.name or _named(wish.command), "namespace": wish.namespace}
    task = {"name": "worker", "replicas": wish.workers, "template": {"spec": _pod(wish, limit)}}
    spec: Json = {"minAvailable": wish.workers, "tasks": [task]}
    if wish.workers > 1:
        # Workers find each other by the lists of hosts that these plug-ins give them.
        spec["plugins"] = {"env": [], "svc": []}
    if wish.priority_class:
        spec["priorityClassName"] = wish.priority_class
    if wish.within:
        spec["networkTopology"] = {"mode": "hard", "highestTierName": wish.within}
    if wish.array or wish.arguments:
        return _array(wish, metadata, spec)
    if wish.queue:
        spec["queue"] = wish.queue
    if wish.time:
        metadata["annotations"] = {keys.RUNNING_ESTIMATE: wish.time}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}


def _array(wish: Submission, metadata: Json, job: Json) -> Json:
    """The array of a Job for each index."""
    indices, percent, said = (wish.array or f"0-{len(wish.arguments) - 1}").partition("%")
    try:
        count = array_states.count_of(array_states.runs_of(indices))
    except ValueError as error:
        raise BadSubmission(str(error), array=wish.array) from error
    at_once = numbers.whole(said) if percent else min(count, array_states.MOST_AT_ONCE)
    if not at_once or at_once > array_states.MOST_AT_ONCE:
        most = array_states.MOST_AT_ONCE
        raise BadSubmission(f"write 0-199 or 0-199%20, with 1 to {most} indices at once", array=wish.array)
    if wish.queue:
        metadata["labels"] = {keys.QUEUE_LABEL: wish.queue}
    if wish.time:
        job["runningEstimate"] = wish.time
    if wish.arguments and len(wish.arguments) != count:
        raise BadSubmission(f"there are {len(wish.arguments)} for {count} indices: give one for each", arguments="")
    arguments = {"arguments": list(wish.arguments)} if wish.arguments else {}
    spec = {"indices": indices, **arguments, "atOnce": min(at_once, count), "template": {"spec": job}}
    return {"apiVersion": "atoll.sh/v1alpha1", "kind": "JobArray", "metadata": metadata, "spec": spec}


def _pod(wish: Submission, limit: int | None) -> Json:
    requests = {"cpu": wish.cpu}
    if wish.memory:
        requests["memory"] = wish.memory
    if wish.gpus:
        requests[wish.gpu_resource] = str(wish.gpus)
    for name, amount in requests.items():
        try:
            quantity.resource_list(f"{name}={amount}")
        except ValueError as error:
            parameter = name if name in ("cpu", "memory") else "gpu_resource"
            raise BadSubmission(str(error), **{parameter: amount if parameter == name else name}) from error
    resources: Json = {"requests": requests}
    if wish.gpus:
        # Kubernetes wants devices as limits, too.
        resources["limits"] = {wish.gpu_resource: str(wish.gpus)}
    container: Json = {
        "name": "main",
        "image": wish.image,
        "command": list(wish.command),
        "resources": resources,
    }
    if wish.env:
        container["env"] = [{"name": name, "value": value} for name, value in wish.env.items()]
    if wish.directory:
        container["workingDir"] = wish.directory
    pod: Json = {"restartPolicy": "Never", "containers": [container]}
    return {**pod, "activeDeadlineSeconds": limit} if limit is not None else pod


def _named(command: Sequence[str]) -> str:
    word = next((each for each in reversed(command) if re.search(r"\.(py|sh)$", each)), command[0])
    base = re.sub(r"[^a-z0-9]+", "-", word.rpartition("/")[2].rpartition(".")[0].lower() or "job").strip("-")
    return f"{base[:40] or 'job'}-{secrets.token_hex(3)}"


def script(text: str) -> tuple[Wish, list[str]]:
    """Fields of a `Submission` by the `#SBATCH` lines of a script, and the command that runs the script.

    Raises:
        BadSubmission: a line asks for something that has no counterpart; nothing is left out in silence.
    """
    if len(text.encode()) > _MOST_SCRIPT:
        raise BadSubmission(f"the script is larger than {_MOST_SCRIPT} bytes: put it into the image")
    lines = text.splitlines()
    wish: Wish = {}
    for number, line in enumerate(lines, 1):
        if re.match(r"\s*srun\b", line):
            raise BadSubmission(f"line {number}: srun has no counterpart: each worker runs the script once")
    for number, option, value in _directives(lines):
        try:
            wish.update(_meaning(option, value))
        except (BadSubmission, ValueError) as error:
            raise BadSubmission(f"line {number}: {option} {value}: {error}") from error
    first = lines[0] if lines else ""
    shell = shlex.split(first.removeprefix("#!")) if first.startswith("#!") else ["/bin/sh"]
    return wish, [*shell, "-c", text]


def _directives(lines: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Line, option and value of each directive; they end with the first command, as in Slurm."""
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            return
        if not line.startswith("#SBATCH"):
            continue
        words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
        while words:
            option, equals, value = words.pop(0).partition("=")
            if not option.startswith("--") and len(option) > 2:
                option, equals, value = option[:2], "=", option[2:]
            if not equals and words and not words[0].startswith("-"):
                value = words.pop(0)
            yield number, option, value


def _meaning(option: str, value: str) -> Wish:
    match option:
        case "-J" | "--job-name":
            return {"name": f"{_slug(value)}-{secrets.token_hex(3)}"}
        case "-A" | "--account":
            return {"queue": value}
        case "-N" | "--nodes":
            return {"workers": int(value)}
        case "-n" | "--ntasks":
            return {"workers": int(value)}
        case "--ntasks-per-node" if value == "1":
            return {}
        case "-c" | "--cpus-per-task":
            return {"cpu": str(int(value))}
        case "--mem":
            return {"memory": _memory(value)}
        case "--gpus-per-node" | "--gpus-per-task":
            return {"gpus": int(value)}
        case "--gres":
            kind, _, count = value.partition(":")
            if kind != "gpu" or not count.isdecimal():
                raise BadSubmission("write gpu:NUMBER; a type of GPU is chosen by a queue or a policy")
            return {"gpus": int(count)}
        case "-t" | "--time":
            return {"time": _time(value)}
        case "-a" | "--array":
            return {"array": value}
        case "-D" | "--chdir":
            return {"directory": value}
    raise BadSubmission("has no counterpart: remove the line, and say it in the manifest (--dry-run -o yaml)")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "job"


def _memory(text: str) -> str:
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", text, re.ASCII)
    if found is None or not int(found[1]):
        raise BadSubmission("write a number of MB, or one with K, M, G or T")
    return f"{found[1]}{found[2] or 'M'}i"


def _time(text: str) -> str:
    """Slurm's times: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise BadSubmission("write minutes, hours:minutes:seconds, or days-hours")
    days, *rest = found.groups()
    numbers = [int(each) for each in rest if each is not None]
    if days is not None:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
        hours += int(days) * 24
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, [*numbers, 0][:2]
    return f"{hours * 3600 + minutes * 60 + seconds}s"


def merged(wish: Wish, given: Wish) -> Submission:
    """The command line's words win over the script's."""
    base = Submission(**{"command": (), "image": "", **wish})
    return replace(base, **given)
