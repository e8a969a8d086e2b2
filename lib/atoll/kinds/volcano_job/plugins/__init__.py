"""Plugins of Volcano Jobs: objects of a Job besides its pods, and facts that its pods must know of each other.

One module per plugin, pure functions on dicts; names, arguments and results are Volcano's. A plugin is added by its
module and its place in `PLUGINS`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from atoll.kinds.volcano_job.plugins import env, hcclrank, mpi, mxnet, pytorch, ray, ssh, svc, tensorflow
from atoll.kinds.volcano_job.plugins.interface import JobView, Json, KeyPair, Plugin, Task, Values
from atoll.kinds.volcano_job.plugins.options import BadArgument, parse

PLUGINS: Mapping[str, Plugin] = {
    module.PLUGIN.name: module.PLUGIN for module in (env, svc, ssh, tensorflow, pytorch, mpi, ray, hcclrank, mxnet)
}
"""By name, in the order in which they change a pod."""

_OF_DNS = ("Service", "ServiceExport")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""Since Kubernetes 1.34 a digit may come first; older members refuse it."""
_SERVICE_RULE = "such a name has at most 63 lower-case letters, digits and '-', beginning with a letter: rename the Job"
_MOST_BYTES = 2**20
"""Of the data of a ConfigMap."""

NETWORKED = ("svc", "ssh", "tensorflow", "pytorch", "mpi", "ray", "mxnet")
"""Plugins whose pods talk to each other: they work where all pods of the Job reach each other."""


def required(plugins: Mapping[str, object]) -> list[str]:
    """Plugins that are missing beside these, in their order."""
    wanted = {need for name in plugins if name in PLUGINS for need in PLUGINS[name].requires}
    return [name for name in PLUGINS if name in wanted and name not in plugins]


def waits(plugins: Mapping[str, Sequence[str] | None]) -> dict[str, str]:
    """Task -> the task of which all pods must be ready before it starts, by the plugins of a Job."""
    return dict(mpi.PLUGIN.waits(values) for plugin, values in _chosen(plugins) if plugin is mpi.PLUGIN)


def problems(plugins: Mapping[str, Sequence[str] | None], tasks: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """(plugin, problem) of a Job with these tasks (name to replicas)."""
    for name, arguments in plugins.items():
        plugin = PLUGINS.get(name)
        if plugin is None:
            yield name, f"is not a known plugin; use one of {', '.join(PLUGINS)}"
            continue
        try:
            values = parse(plugin.options, arguments or ())
        except BadArgument as error:
            yield name, str(error)
        else:
            for option, value in values.items():
                if "port" in option.lower() and isinstance(value, int) and not 0 < value < 2**16:
                    yield name, f"--{option}={value} is no port; use 1 to 65535"
            for text in plugin.problems(tasks, values):
                yield name, text


def unmakeable(job: JobView, plugins: Mapping[str, Sequence[str] | None]) -> Iterator[tuple[str, str]]:
    """(plugin, why a member would refuse its objects for the Job), by the rules of every supported Kubernetes.

    Args:
        job: its tasks with all of their replicas.
        plugins: of the Job.
    """
    small = dataclasses.replace(job, tasks=tuple(dataclasses.replace(task, replicas=1) for task in job.tasks))
    for plugin, values in _chosen(plugins):
        for each in plugin.objects(small, values, lambda: KeyPair("", "")):
            kind, name = each["kind"], each["metadata"]["name"]
            if kind in _OF_DNS and not _SERVICE.fullmatch(name):
                yield plugin.name, f"makes {kind} {name!r}; {_SERVICE_RULE}"
            elif kind == "ConfigMap" and (size := svc.size_of_hosts(job)) > _MOST_BYTES:
                yield (
                    plugin.name,
                    f"makes a ConfigMap of {size} bytes with the names of all pods; at most {_MOST_BYTES}",
                )


def objects(
    job: JobView, plugins: Mapping[str, Sequence[str] | None], key_pair: Callable[[], KeyPair]
) -> list[Json]:  # fmt: skip
    """What the Job needs in the member besides its pods."""
    return [each for plugin, values in _chosen(plugins) for each in plugin.objects(job, values, key_pair)]


def decorate(job: JobView, plugins: Mapping[str, Sequence[str] | None], pod: Json, task: Task, index: int) -> None:
    """Change a pod as all plugins of the Job want it."""
    for plugin, values in _chosen(plugins):
        plugin.decorate(job, values, pod, task, index)


def _chosen(plugins: Mapping[str, Sequence[str] | None]) -> Iterator[tuple[Plugin, Values]]:
    """The plugins of a Job that admission let pass; one that it would refuse does nothing."""
    for name, plugin in PLUGINS.items():
        if name in plugins:
            try:
                values = parse(plugin.options, plugins[name] or ())
            except BadArgument:
                continue
            yield plugin, values


__all__ = [
    "NETWORKED", "PLUGINS", "JobView", "KeyPair", "Plugin", "Task", "decorate", "objects", "problems", "required",
    "unmakeable", "waits",
]  # fmt: skip
