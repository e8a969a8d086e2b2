"""Admission of what makes Volcano Jobs: CronJobs, JobFlows, JobTemplates and HyperJobs.

Each of their Jobs goes through admission by itself, in the name of atoll-control; problems of all of them are
reported to the user who writes the template.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from atoll.admission import jsonpatch
from atoll.admission.problems import SUBDOMAIN_RULE, Json, Problem, integer, is_subdomain, mapping, sequence
from atoll.kinds.volcano_job import KIND
from atoll.kinds.volcano_job.admission import circle, default_job, validate_job
from atoll.model import cron
from atoll.model.apiresource import (
    HYPER_JOBS,
    JOB_FLOWS,
    JOB_TEMPLATES,
    VOLCANO_CRON_JOBS,
    ApiResource,
)

ROUTES: Final[dict[ApiResource, str]] = {
    VOLCANO_CRON_JOBS: "cronjobs",
    JOB_FLOWS: "jobflows",
    JOB_TEMPLATES: "jobtemplates",
    HYPER_JOBS: "hyperjobs",
}
"""Names of their webhooks."""
MADE: Final = KIND
"""The kind that they make."""
_LONGEST_NAME = 52
_MINUTES = "00000000"
_MOST_STEPS = 256
_MOST_REPLICAS = 1000
_MOST_PROBES = 32
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


def validate_cron_job(obj: Json) -> list[Problem]:
    """Everything that is wrong with a CronJob."""
    spec, name = mapping(obj.get("spec")), str(mapping(obj.get("metadata")).get("name") or "")
    problems = []
    if len(name) > _LONGEST_NAME:
        text = f"has {len(name)} characters of {_LONGEST_NAME}: its Jobs are called after it; shorten it"
        problems.append(Problem("metadata.name", text))
    try:
        cron.parse(spec.get("schedule"), spec.get("timeZone"))
    except cron.BadSchedule as error:
        problems.append(Problem("spec.timeZone" if "timeZone '" in str(error) else "spec.schedule", str(error)))
    for field in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        value = spec.get(field)
        if value is not None and (type(value) is not int or value < 0):
            problems.append(Problem(f"spec.{field}", f"is {value}; use a whole number, 0 or more"))
    template = mapping(spec.get("jobTemplate"))
    return problems + _under(_job(obj, template.get("spec"), f"{name}-{_MINUTES}"), "spec.jobTemplate.")


def validate_job_template(obj: Json) -> list[Problem]:
    """Everything that is wrong with a JobTemplate, but for the names of the Jobs, which depend on their flow."""
    return _job(obj, obj.get("spec"), "f")


def validate_job_flow(obj: Json) -> list[Problem]:
    """Everything that is wrong with a JobFlow by itself: its templates may come later."""
    steps = [mapping(each) for each in sequence(mapping(obj.get("spec")).get("flows"))]
    if not steps:
        return [Problem("spec.flows", "is empty; name a JobTemplate at least")]
    if len(steps) > _MOST_STEPS:
        return [Problem("spec.flows", f"are {len(steps)}; a flow has at most {_MOST_STEPS}: make several of it")]
    problems, names = [], [each.get("name") for each in steps]
    needs: dict[str, list[str]] = {}
    for index, step in enumerate(steps):
        path, name = f"spec.flows[{index}]", step.get("name")
        if not is_subdomain(name):
            problems.append(Problem(f"{path}.name", f"{name!r} can't name a JobTemplate; {SUBDOMAIN_RULE}"))
            continue
        if name in names[:index]:
            problems.append(Problem(f"{path}.name", f"{name!r} is there twice; a flow has one Job of each JobTemplate"))
        depends = mapping(step.get("dependsOn"))
        targets = sequence(depends.get("targets"))
        path_here, hint = f"{path}.dependsOn.targets", "name steps of this flow"
        if len(targets) > _MOST_STEPS:
            return [Problem(path_here, f"are {len(targets)}; a flow has at most {_MOST_STEPS} steps: name each once")]
        problems += [Problem(path_here, f"there is no step {each!r}; {hint}") for each in targets if each not in names]
        needs[str(name)] = [str(each) for each in targets if each in names]
        probe = mapping(depends.get("probe"))
        problems += _probe_problems(probe, bool(targets), f"{path}.dependsOn.probe")
    if found := circle(needs):
        text = f"dependsOn goes in a circle: {' -> '.join(found)}; remove one of these dependencies"
        problems.append(Problem("spec.flows", text))
    return problems


def _probe_problems(probe: Json, targets: bool, path: str) -> list[Problem]:
    problems = []
    if probe and not targets:
        problems.append(Problem(path, "has no targets that it could look at; name them in dependsOn.targets"))
    for field in ("httpGetList", "tcpSocketList"):
        asked = sequence(probe.get(field))
        if len(asked) > _MOST_PROBES:
            problems.append(Problem(f"{path}.{field}", f"are {len(asked)}; use at most {_MOST_PROBES}"))
        for index, each in enumerate(map(mapping, asked[:_MOST_PROBES])):
            port = integer(each.get("port"))
            if port is None or not 0 < port < 65536:
                text = f"{each.get('port')} is no port; use one from 1 to 65535"
                problems.append(Problem(f"{path}.{field}[{index}].port", text))
    listed = sequence(probe.get("taskStatusList"))
    if len(listed) > _MOST_PROBES:
        problems.append(Problem(f"{path}.taskStatusList", f"are {len(listed)}; use at most {_MOST_PROBES}"))
    for index, each in enumerate(map(mapping, listed[:_MOST_PROBES])):
        if each.get("phase") not in _PHASES:
            text = f"{each.get('phase')!r} is no phase of pods; use one of {', '.join(_PHASES)}"
            problems.append(Problem(f"{path}.taskStatusList[{index}].phase", text))
    return problems


def validate_hyper_job(obj: Json) -> list[Problem]:
    """Everything that is wrong with a HyperJob, and what of it is not served."""
    spec, name = mapping(obj.get("spec")), str(mapping(obj.get("metadata")).get("name") or "")
    groups = [mapping(each) for each in sequence(spec.get("replicatedJobs"))]
    if not groups:
        return [Problem("spec.replicatedJobs", "is empty; name a group of Jobs at least")]
    problems, count = [], 0
    names = [each.get("name") for each in groups]
    for index, group in enumerate(groups):
        path, called, replicas = f"spec.replicatedJobs[{index}]", group.get("name"), group.get("replicas", 1)
        split, auto = mapping(group.get("splitPolicy")), is_auto(group)
        if not is_subdomain(called):
            problems.append(Problem(f"{path}.name", f"{called!r} can't name a group; {SUBDOMAIN_RULE}"))
        elif called in names[:index]:
            problems.append(Problem(f"{path}.name", f"{called!r} is there twice; name each group once"))
        if type(replicas) is not int or not 1 <= replicas <= _MOST_REPLICAS:
            problems.append(Problem(f"{path}.replicas", f"is {replicas}; use 1 to {_MOST_REPLICAS}"))
            replicas = 1
        count += 1 if auto else replicas
        for field in ("accelerators", "acceleratorType"):
            if split.get(field) is not None:
                text = "is not served: what the template's pods request says it; remove it"
                problems.append(Problem(f"{path}.splitPolicy.{field}", text))
        template = group.get("templateSpec")
        problems += _under(_job(obj, template, f"{name}-{called}-{replicas - 1}"), f"{path}.templateSpec.", "spec.")
    if spec.get("plugins"):
        problems.append(Problem("spec.plugins", "are not served; name them in templateSpec.plugins of each group"))
    return [*problems, *_together(spec, groups)]


def is_auto(group: Mapping[str, Any]) -> bool:
    """Whether the replicas of a group of a HyperJob are one Job."""
    return mapping(group.get("splitPolicy")).get("mode") == "auto"


def is_one_gang(groups: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all of a HyperJob is one Job, of which fewer replicas than all may start."""
    return len(groups) == 1 and is_auto(groups[0])


def _together(spec: Json, groups: list[Json]) -> list[Problem]:
    """Checks of all Jobs of a HyperJob together."""
    problems = []
    least, most = spec.get("minAvailable"), spec.get("maxDomains")
    if least is not None:
        given = [each.get("replicas", 1) for each in groups]
        replicas = sum(each for each in given if type(each) is int)
        if type(least) is not int or least < 1:
            problems.append(Problem("spec.minAvailable", f"is {least}; use 1 or more"))
        elif least > replicas:
            problems.append(Problem("spec.minAvailable", f"is {least}, more than the {replicas} replicas; lower it"))
    if most is not None and (type(most) is not int or most < 1):
        problems.append(Problem("spec.maxDomains", f"is {most}; use 1 or more"))
    return problems


class Template(NamedTuple):
    """Jobs that an object makes."""

    job: Json
    path: str = ""
    """Stands before the fields of the Job in the object, in place of `without`."""
    without: str = ""

    def under(self, problems: Iterable[Problem]) -> list[Problem]:
        """Problems of the Job, as problems of the object."""
        return _under(problems, self.path, self.without)


def hyper_job_templates(obj: Json) -> Iterator[Template]:
    """Of a HyperJob, one for each group."""
    for index, group in enumerate(map(mapping, sequence(mapping(obj.get("spec")).get("replicatedJobs")))):
        path = f"spec.replicatedJobs[{index}].templateSpec."
        yield Template({"metadata": {}, "spec": group.get("templateSpec")}, path, "spec.")


def cron_job_templates(obj: Json) -> Iterator[Template]:
    """Of a CronJob, the only one."""
    template = mapping(mapping(obj.get("spec")).get("jobTemplate"))
    yield Template({"metadata": template.get("metadata") or {}, "spec": template.get("spec")}, "spec.jobTemplate.")


def job_template_templates(obj: Json) -> Iterator[Template]:
    """Of a JobTemplate, itself."""
    yield Template({"metadata": {}, "spec": obj.get("spec")})


def _job(obj: Json, spec: Any, name: str) -> list[Problem]:
    job = {"metadata": {"name": name, "namespace": mapping(obj.get("metadata")).get("namespace")}, "spec": spec}
    if not isinstance(spec, dict):
        return [Problem("spec", "is missing; say what the Jobs run")]
    return validate_job(jsonpatch.applied(job, default_job(job)))


def _under(problems: Iterable[Problem], path: str, without: str = "") -> list[Problem]:
    return [Problem(f"{path}{each.field.removeprefix(without)}", each.message) for each in problems]
