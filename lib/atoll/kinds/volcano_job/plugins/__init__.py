"""Plugins of Volcano Jobs: what a Job needs besides its pods, and what its pods must know of each other.

One module per plugin, pure functions on dicts; names, arguments and results are Volcano's. A plugin is added by its
module and its place in `PLUGINS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from atoll.kinds.volcano_job.plugins import env, hcclrank, mpi, mxnet, pytorch, ray, ssh, svc, tensorflow
from atoll.kinds.volcano_job.plugins.interface import JobView, Json, KeyPair, Plugin, Task, Values
from atoll.kinds.volcano_job.plugins.options import BadArgument, parse

PLUGINS: Mapping[str, Plugin] = {
    module.PLUGIN.name: module.PLUGIN for module in (env, svc, ssh, tensorflow, pytorch, mpi, ray, hcclrank, mxnet)
}
"""By name, in the order in which they change a pod."""

NETWORKED = ("svc", "ssh", "tensorflow", "pytorch", "mpi", "ray", "mxnet")
"""Those whose pods talk to each other: they work where all pods of the Job reach each other."""


def required(plugins: Mapping[str, object]) -> list[str]:
    """Plugins that are missing beside these, in their order."""
    wanted = {need for name in plugins if name in PLUGINS for need in PLUGINS[name].requires}
    return [name for name in PLUGINS if name in wanted and name not in plugins]


def waits(plugins: Mapping[str, Sequence[str] | None]) -> dict[str, str]:
    """Task -> the task of which all pods are to be ready before it starts, by what the plugins of a Job do."""
    return dict(mpi.PLUGIN.waits(values) for plugin, values in _chosen(plugins) if plugin is mpi.PLUGIN)


def problems(plugins: Mapping[str, Sequence[str] | None], tasks: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """(plugin, what is wrong) of a Job with these tasks (name to replicas)."""
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
            for text in plugin.problems(tasks, values):
                yield name, text


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
    "waits",
]  # fmt: skip
