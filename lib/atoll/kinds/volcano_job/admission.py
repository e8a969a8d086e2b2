"""Volcano Jobs: defaults that depend on other fields, and the rules that a schema can't express.

Volcano's users know the rules (the same manifests pass and fail); the words are ours. Pure functions:
facts about queues and namespaces are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, get_args

from atoll.admission import jsonpatch, pods, trust
from atoll.admission.problems import (
    LABEL_RULE,
    MAX_ITEMS,
    SUBDOMAIN_RULE,
    Json,
    Problem,
    added,
    idle,
    integer,
    is_label,
    is_subdomain,
    mapping,
    sequence,
    unread_durations,
)
from atoll.admission.rules import NEW_SPEC, NEW_SPEC_OR_NOTES, Rules
from atoll.api import lifecycle
from atoll.kinds import nearness
from atoll.kinds.metadata import default_queue
from atoll.kinds.volcano_job import KIND, plugins
from atoll.kinds.volcano_job.tasks import (
    MAX_RETRY,
    plugin_arguments,
    task_dependencies,
    task_minimum,
    task_partitions,
    task_replicas,
    tasks_of,
)
from atoll.model import keys, numa
from atoll.model.gang import MOST_PODS

EVENTS: Final = get_args(lifecycle.Event)
ACTIONS: Final = get_args(lifecycle.Action)
TOPOLOGY_POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")

_MAX_TASKS = 1024
_DIFFERENCES = 100
"""Changed fields that are looked for; a message shows fewer."""
_DEPTH = 16
_POD_NAME_MAX = 63
_GENERATED = "xxxxx"
_FROZEN = (
    "can't change after creation (only minAvailable, priorityClassName, and the tasks' replicas and minAvailable can); "
)
_RECREATE = "delete the Job and create it anew"
_RESIZABLE = ("minAvailable", "priorityClassName")
_RUNS = (
    "can't change while the Job runs, as its queue is charged for it: hold it first (`atollctl job hold`), then move it"
    " (`atollctl job move`)"
)


# -- defaults --------------------------------------------------------------------------------------


def default_job(job: Json, namespace_annotations: Mapping[str, str] | None = None) -> list[jsonpatch.Operation]:
    """The patch that fills in what the Job leaves out; empty when nothing is missing.

    Args:
        job: as sent; wrong types are left to the schema.
        namespace_annotations: of the Job's namespace, which may name a default queue.
    """
    spec = job.get("spec")
    if not isinstance(spec, dict) or _too_much(spec):
        return []
    patch = []
    if not spec.get("queue"):
        patch.append(jsonpatch.add(KIND.queue_of(job, default=default_queue(namespace_annotations)), "spec", "queue"))
    if not spec.get("schedulerName"):
        patch.append(jsonpatch.add(keys.SCHEDULER_NAME, "spec", "schedulerName"))
    if spec.get("maxRetry") is None:
        patch.append(jsonpatch.add(MAX_RETRY, "spec", "maxRetry"))
    # No user means a gang of none: as in Volcano, 0 stands for absent.
    minimum = sum(task_minimum(task) for task in sequence(spec.get("tasks")) if isinstance(task, dict))
    if not spec.get("minAvailable") and minimum > 0:
        patch.append(jsonpatch.add(minimum, "spec", "minAvailable"))
    patch += [jsonpatch.add([], "spec", "plugins", name) for name in plugins.required(mapping(spec.get("plugins")))]
    return patch


def _filled(job: Json) -> Json:
    """The Job with all of its defaults; some of them stay out of the object."""
    job = jsonpatch.applied(job, default_job(job))
    spec = job.get("spec")
    return {**job, "spec": {**spec, "tasks": tasks_of(spec)}} if isinstance(spec, dict) and spec.get("tasks") else job


# -- rules -----------------------------------------------------------------------------------------


def validate_job(job: Json) -> list[Problem]:
    """Everything that is wrong with a Job, except for the state of its queue."""
    problems = _too_much(mapping(job.get("spec")))
    if problems:
        return problems
    job = _filled(job)
    spec, metadata = mapping(job.get("spec")), mapping(job.get("metadata"))
    tasks = [mapping(task) for task in sequence(spec.get("tasks"))]
    if not tasks:
        problems.append(Problem("spec.tasks", "is empty; a Job needs at least one task"))
    problems += _count_problems(spec, ("minAvailable", "maxRetry", "ttlSecondsAfterFinished"), "spec")
    replicas = sum(task_replicas(task) for task in tasks)
    if replicas > MOST_PODS:
        problems.append(
            Problem("spec.tasks", f"ask for {replicas} pods in all; a Job gets at most {MOST_PODS}: make several of it")
        )
    needed = integer(spec.get("minAvailable")) or 0
    if tasks and needed > replicas:
        problems.append(
            Problem(
                "spec.minAvailable",
                f"{needed} is more than the {replicas} replicas of all tasks; lower it, or add replicas",
            )
        )
    queue = spec.get("queue")
    if queue and not is_subdomain(queue):
        problems.append(Problem("spec.queue", f"{queue!r} can't name a queue; {SUBDOMAIN_RULE}"))
    problems += _policy_problems(spec.get("policies"), "spec.policies")
    problems += _topology_problems(spec.get("networkTopology"), "spec.networkTopology")
    problems += _volume_problems(spec.get("volumes"))
    problems += _plugin_problems(spec.get("plugins"), tasks)
    problems += _trust_problems(spec)
    job_name = metadata.get("name") or (
        f"{metadata['generateName']}{_GENERATED}" if metadata.get("generateName") else ""
    )
    names: set[str] = set()
    for index, task in enumerate(tasks):
        problems += _task_problems(task, f"spec.tasks[{index}]", str(job_name), names)
    problems += _dependency_problems(tasks)
    if job_name and not problems:
        problems += _made_problems(str(job_name), spec, tasks)
    return problems


def _trust_problems(spec: Json) -> Iterator[Problem]:
    yield from trust.class_problems(spec.get("priorityClassName"), "spec.priorityClassName")
    yield from trust.scheduler_problems(spec.get("schedulerName"), "spec.schedulerName")
    for index, task in enumerate(sequence(spec.get("tasks"))):
        yield from trust.template_problems(mapping(task).get("template"), f"spec.tasks[{index}].template")


def warnings(job: Json) -> list[Problem]:
    """What of a Job that is taken has no effect."""
    spec = mapping(job.get("spec"))
    near = list(nearness.unread(job))
    found = [*idle("Job", job), *unread_durations(job), *_policy_warnings(spec.get("policies"), "spec.policies")]
    for index, task in enumerate(sequence(spec.get("tasks"))):
        path = f"spec.tasks[{index}].policies"
        found += _policy_warnings(mapping(task).get("policies"), path, of_task=True)
    for index, task in enumerate(sequence(mapping(job.get("spec")).get("tasks"))):
        policy, pod = mapping(task).get("topologyPolicy"), mapping(mapping(mapping(task).get("template")).get("spec"))
        if policy and policy != "none" and not _is_guaranteed(pod):
            text = "has no effect: CPUs and memory of its containers have no limits that their requests are equal to"
            found.append(Problem(f"spec.tasks[{index}].topologyPolicy", text))
        template = mapping(task).get("template")
        found += pods.template_warnings(template, f"spec.tasks[{index}].template")
        near += nearness.unread(template, f"spec.tasks[{index}].template")
    templates = [mapping(task).get("template") for task in sequence(spec.get("tasks"))]
    near += nearness.without_groups((job, *templates), lambda: KIND.gang(job, priority=0))
    return found + [Problem(*each) for each in near]


def _is_guaranteed(pod: Json) -> bool:
    try:
        return numa.is_guaranteed(pod)
    except (ValueError, TypeError, AttributeError):
        # The check of the rest of the template reports its problems.
        return False


def _too_much(spec: Json) -> list[Problem]:
    """Whether checking it would take so long that others had to wait."""
    tasks = sequence(spec.get("tasks"))
    if len(tasks) > _MAX_TASKS:
        return [Problem("spec.tasks", f"are {len(tasks)}; a Job has at most {_MAX_TASKS}: make several Jobs of it")]
    count = _policy_size(spec) + len(sequence(spec.get("volumes"))) + len(mapping(spec.get("plugins")))
    count += sum(len(sequence(argument)) for argument in mapping(spec.get("plugins")).values())
    for task in map(mapping, tasks):
        count += 1 + _policy_size(task) + len(sequence(mapping(task.get("dependsOn")).get("name")))
        count += pods.size(task.get("template"))
    if count > MAX_ITEMS:
        return [
            Problem(
                "spec",
                f"has {count} tasks, containers, resources, policies and volumes in all; at most {MAX_ITEMS}: make"
                " several Jobs of it",
            )
        ]
    return []


def _policy_size(holder: Json) -> int:
    policies = sequence(holder.get("policies"))
    return len(policies) + sum(len(sequence(mapping(policy).get("events"))) for policy in policies)


def _task_problems(task: Json, path: str, job_name: str, names: set[str]) -> Iterator[Problem]:
    name = task.get("name")
    if not is_label(name):
        yield Problem(f"{path}.name", f"{name or ''!r} can't name a task; {LABEL_RULE}")
    elif name in names:
        yield Problem(f"{path}.name", f"{name!r} is there twice; give each task its own name")
    else:
        names.add(str(name))
    yield from _count_problems(task, ("replicas", "minAvailable"), path)
    retries = task.get("maxRetry")
    if retries is not None and (integer(retries) is None or retries < -1):
        yield Problem(f"{path}.maxRetry", f"is {retries}; use -1 (no limit), 0 or more")
    replicas, needed = task_replicas(task), task_minimum(task)
    if needed > replicas:
        yield Problem(
            f"{path}.minAvailable",
            f"{needed} is more than the task's {replicas} replicas; lower it, or add replicas",
        )
    if is_label(name) and job_name:
        yield from _pod_name_problems(f"{job_name}-{name}-{max(replicas - 1, 0)}", f"{path}.name")
    yield from _partition_problems(task, path)
    yield from _policy_problems(task.get("policies"), f"{path}.policies")
    policy = task.get("topologyPolicy")
    if policy and policy not in TOPOLOGY_POLICIES:
        yield Problem(f"{path}.topologyPolicy", f"{policy!r} is not known; use {', '.join(TOPOLOGY_POLICIES)}")
    elif policy and policy != "none":
        yield from pods.cpus_not_whole(task.get("template"), f"{path}.template")
    yield from pods.validate_template(task.get("template"), f"{path}.template")


def _count_problems(holder: Json, fields: Iterable[str], path: str) -> Iterator[Problem]:
    for field in fields:
        value = holder.get(field)
        if value is not None and (integer(value) is None or value < 0):
            yield Problem(f"{path}.{field}", f"is {value}; use a whole number, 0 or more")


def _pod_name_problems(longest: str, path: str) -> Iterator[Problem]:
    if len(longest) > _POD_NAME_MAX:
        over = len(longest) - _POD_NAME_MAX
        yield Problem(
            path,
            f"pod {longest!r} would have {len(longest)} characters of {_POD_NAME_MAX};"
            f" shorten the names of Job and task by {over}",
        )
    elif not is_subdomain(longest):
        yield Problem(path, f"{longest!r} can't name a pod; in the Job's name, {SUBDOMAIN_RULE}")


def _partition_problems(task: Json, path: str) -> Iterator[Problem]:
    if task.get("partitionPolicy") is None:
        return
    path_here = f"{path}.partitionPolicy"
    total, size, needed = task_partitions(task)
    for field, value in (("totalPartitions", total), ("partitionSize", size)):
        if value < 1:
            yield Problem(f"{path_here}.{field}", "must be 1 or more")
    if total and size and total * size != task_replicas(task):
        yield Problem(
            path_here,
            f"{total} partitions of {size} are {total * size} pods, but the task has"
            f" {task_replicas(task)} replicas; make them equal",
        )
    if needed > total:
        yield Problem(
            f"{path_here}.minPartitions",
            f"{needed} is more than totalPartitions ({total}); lower it",
        )
    elif needed and size and task_minimum(task) != needed * size:
        yield Problem(
            f"{path}.minAvailable",
            f"is {task_minimum(task)}, but {needed} partitions of {size} need {needed * size}; use that, or leave"
            " it out",
        )
    yield from _topology_problems(
        mapping(task["partitionPolicy"]).get("networkTopology"), f"{path_here}.networkTopology"
    )


def _topology_problems(topology: object, path: str) -> Iterator[Problem]:
    given = mapping(topology)
    if given.get("highestTierAllowed") is not None and given.get("highestTierName"):
        yield Problem(path, "highestTierAllowed and highestTierName both limit the tier; keep one of them")
    yield from _count_problems(given, ("highestTierAllowed",), path)
    if given.get("mode") not in (None, "", "hard", "soft"):
        yield Problem(f"{path}.mode", f"{given['mode']!r} is not known; use hard or soft")


def _policy_problems(policies: object, path: str) -> Iterator[Problem]:
    seen: set[str] = set()
    codes: set[int] = set()
    for index, item in enumerate(sequence(policies)):
        policy, here = mapping(item), f"{path}[{index}]"
        if policy.get("action") not in ACTIONS:
            yield Problem(
                f"{here}.action",
                f"{policy.get('action') or ''!r} is no action; use one of {', '.join(ACTIONS)}",
            )
        code = policy.get("exitCode")
        events = _events(policy)
        if events and code is not None:
            yield Problem(here, "names an event and an exitCode; make two policies of it")
        elif not events and code is None:
            yield Problem(here, "names neither an event nor an exitCode; add one of them")
        for event in events:
            if event not in EVENTS:
                yield Problem(f"{here}.event", f"{event!r} is no event; use one of {', '.join(EVENTS)}")
            elif event in seen:
                yield Problem(f"{here}.event", f"{event!r} is there twice; keep one policy for it")
            else:
                seen.add(event)
        if code == 0:
            yield Problem(f"{here}.exitCode", "0 means success and can't trigger a policy; use another code")
        elif integer(code) is not None and code in codes:
            yield Problem(f"{here}.exitCode", f"{code} is there twice; keep one policy for it")
        elif isinstance(code, int):
            codes.add(code)
    if "*" in seen and len(seen) > 1:
        yield Problem(
            path,
            "'*' stands for every event, so no other event can be named beside it; remove one or the other",
        )


def _policy_warnings(policies: object, path: str, *, of_task: bool = False) -> Iterator[Problem]:
    """What of policies that are taken has no effect."""
    for index, policy in enumerate(map(mapping, sequence(policies))):
        for event in _events(policy):
            if event in ("PodPending", "PodRunning") and not policy.get("timeout"):
                yield Problem(f"{path}[{index}]", f"has no effect: every pod comes to {event}; add a timeout")
            elif event == "JobUpdated" and of_task:
                yield Problem(f"{path}[{index}]", "has no effect: JobUpdated is of the Job; move it to spec.policies")
            elif event == "JobUpdated" and policy.get("timeout"):
                yield Problem(f"{path}[{index}].timeout", "has no effect: the action of JobUpdated is taken at once")


def _events(policy: Json) -> list[str]:
    """The events of a policy, from both of its fields, each once."""
    named = [policy.get("event"), *sequence(policy.get("events"))]
    return list(dict.fromkeys(str(event) for event in named if event))


def _volume_problems(volumes: object) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, item in enumerate(sequence(volumes)):
        volume, path = mapping(item), f"spec.volumes[{index}]"
        mount = volume.get("mountPath")
        if not isinstance(mount, str) or not mount:
            yield Problem(f"{path}.mountPath", "is missing; say where the volume is mounted")
        elif ":" in mount:
            yield Problem(f"{path}.mountPath", f"{mount!r} contains ':'; choose a path without it")
        elif mount in seen:
            yield Problem(f"{path}.mountPath", f"{mount!r} is there twice; mount each volume elsewhere")
        else:
            seen.add(mount)
        sources = [name for name in ("volumeClaimName", "volumeClaim") if volume.get(name)]
        if len(sources) != 1:
            yield Problem(path, f"has {len(sources)} sources; give either volumeClaimName or volumeClaim")
        claim = volume.get("volumeClaimName")
        if claim and not is_subdomain(claim):
            yield Problem(f"{path}.volumeClaimName", f"{claim!r} can't name a claim; {SUBDOMAIN_RULE}")


def _plugin_problems(given: object, tasks: Sequence[Json]) -> Iterator[Problem]:
    arguments = plugin_arguments(given)
    replicas = {str(task.get("name")): task_replicas(task) for task in tasks}
    for name, text in plugins.problems(arguments, replicas):
        yield Problem(f"spec.plugins.{name}", text)


def _made_problems(job_name: str, spec: Json, tasks: Sequence[Json]) -> Iterator[Problem]:
    """What members would refuse of what plugins make."""
    seen = []
    for task in tasks:
        pod = mapping(mapping(task.get("template")).get("spec"))
        said = str(pod.get("hostname") or ""), str(pod.get("subdomain") or "")
        seen.append(plugins.Task(str(task["name"]), task_replicas(task), 0, task_replicas(task), *said))
    view = plugins.JobView(job_name, "", tuple(seen))
    for name, text in plugins.unmakeable(view, plugin_arguments(spec.get("plugins"))):
        yield Problem(f"spec.plugins.{name}", text)


def _dependency_problems(tasks: Sequence[Json]) -> Iterator[Problem]:
    names = {task["name"] for task in tasks if isinstance(task.get("name"), str)}
    needs: dict[str, list[str]] = {}
    for index, task in enumerate(tasks):
        path = f"spec.tasks[{index}].dependsOn.name"
        for needed in sequence(mapping(task.get("dependsOn")).get("name")):
            if not isinstance(needed, str) or needed not in names:
                yield Problem(path, f"there is no task {needed!r}; name tasks of this Job")
            elif isinstance(task.get("name"), str):
                needs.setdefault(task["name"], []).append(needed)
    if found := circle(needs):
        yield Problem(
            "spec.tasks",
            f"dependsOn goes in a circle: {' -> '.join(found)}; remove one of these dependencies",
        )


def circle(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """A cycle of the graph, its first node repeated at the end; empty if there is none."""
    done: set[str] = set()
    for start in needs:
        # Iterative, because a Job may have more tasks in a row than Python has stack.
        trail: dict[str, Iterator[str]] = {} if start in done else {start: iter(needs[start])}
        while trail:
            node = next(reversed(trail))
            following = next(trail[node], None)
            if following is None:
                done.add(node)
                del trail[node]
            elif following in trail:
                path = list(trail)
                return [*path[path.index(following) :], following]
            elif following not in done:
                trail[following] = iter(needs.get(following, ()))
    return []


# -- changes ---------------------------------------------------------------------------------------


def validate_job_update(old: Json, new: Json) -> list[Problem]:
    """Everything that is wrong with a change of a Job.

    One that leaves the spec alone is never refused, and no change for earlier problems: the rules grow, and an
    old Job must still be resized and let go.

    Both sides are compared with their defaults, so that a Job from before its namespace was opted
    in, or one that is applied again from a manifest without them, is not taken for changed.
    """
    if old.get("spec") == new.get("spec"):
        return []
    problems = _too_much(mapping(new.get("spec")))
    if problems and problems != _too_much(mapping(old.get("spec"))):
        return problems
    old, new = _filled(old), _filled(new)
    before, after = mapping(old.get("spec")), mapping(new.get("spec"))
    if before == after:
        return []
    count, now = len(sequence(before.get("tasks"))), len(sequence(after.get("tasks")))
    if count != now:
        problems = [Problem("spec.tasks", f"the number of tasks (was {count}, is {now}) {_FROZEN}{_RECREATE}")]
    else:
        free = _RESIZABLE if _started(old) else (*_RESIZABLE, "queue")
        changed = islice(_differences(_fixed(before, free), _fixed(after, free), "spec"), _DIFFERENCES)
        problems = [Problem(path, _RUNS if path == "spec.queue" else f"{_FROZEN}{_RECREATE}") for path in changed]
    if found := validate_job(new):
        problems += added(validate_job(old), found)
    return problems


def _started(job: Json) -> bool:
    """Whether some of it ran, or runs. A dispatched Job that has not started stays in its queue as well, whatever queue
    its Job names: the binding says so, which is not for here.
    """
    return mapping(mapping(job.get("status")).get("state")).get("phase") not in (None, "", "Pending", "Aborted")


def _fixed(spec: Json, free: Collection[str]) -> Json:
    """The part of a Job's spec that can't change: all but these fields, and the sizes of tasks."""
    kept = {name: value for name, value in spec.items() if name not in free}
    kept["tasks"] = [
        {name: value for name, value in mapping(task).items() if name not in ("replicas", "minAvailable")}
        for task in sequence(spec.get("tasks"))
    ]
    return kept


def _differences(old: Any, new: Any, path: str, depth: int = 0) -> Iterator[str]:
    """Paths of the smallest parts that differ."""
    # Each level compares all that is below it; no field that is frozen has so many above it.
    if depth > _DEPTH:
        yield path
    elif isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield from _differences(old.get(name), new.get(name), f"{path}.{name}", depth + 1)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            if left != right:
                yield from _differences(left, right, f"{path}[{index}]", depth + 1)
    elif old != new:
        yield path


# -- for the webhook -------------------------------------------------------------------------------


def templates(job: Json) -> list[tuple[str, object]]:
    """(path, PodTemplateSpec) of its tasks."""
    tasks = enumerate(sequence(mapping(job.get("spec")).get("tasks")))
    return [(f"spec.tasks[{index}].template", mapping(task).get("template")) for index, task in tasks]


def _classes(job: Json) -> list[tuple[str, object]]:
    named = [(f"{path}.spec.priorityClassName", trust.class_of(each)) for path, each in templates(job)]
    return [("spec.priorityClassName", mapping(job.get("spec")).get("priorityClassName")), *named]


def _networked(job: Json) -> list[str]:
    """Its plugins by which pods reach each other; one with `dependsOn` is never divided."""
    spec = mapping(job.get("spec"))
    tasks = [mapping(task) for task in tasks_of(spec)]
    if sum(map(task_replicas, tasks)) < 2 or any(map(task_dependencies, tasks)):
        return []
    return [f"spec.plugins.{name}" for name in plugins.NETWORKED if name in mapping(spec.get("plugins"))]


ADMISSION: Final = Rules(
    route="jobs",
    # Updates are defaulted too: a manifest that replaces the Job brings none.
    conditions=(NEW_SPEC,),
    judged=(NEW_SPEC_OR_NOTES,),
    queue_field="spec.queue",
    templates=templates,
    classes=_classes,
    defaults=lambda change: default_job(change.new, change.namespace),
    problems=lambda change: (
        validate_job(change.new) if change.old is None else validate_job_update(change.old, change.new)
    ),
    warnings=lambda change: warnings(change.new),
    networked=_networked,
)
