"""Admission of what makes Volcano Jobs: CronJobs, JobFlows and JobTemplates.

Each of their Jobs goes through admission by itself, in the name of atoll-control; what is wrong with all of them is
said to the user who writes the template.
"""

from __future__ import annotations

from typing import Any, Final

from atoll.admission import jsonpatch
from atoll.admission.problems import SUBDOMAIN_RULE, Json, Problem, is_subdomain, mapping, sequence
from atoll.kinds.volcano_job.admission import circle, default_job, validate_job, warnings
from atoll.model import cron
from atoll.model.apiresource import JOB_FLOWS, JOB_TEMPLATES, VOLCANO_CRON_JOBS, ApiResource

ROUTES: Final[dict[ApiResource, str]] = {
    VOLCANO_CRON_JOBS: "cronjobs",
    JOB_FLOWS: "jobflows",
    JOB_TEMPLATES: "jobtemplates",
}
"""What their webhooks are called."""
_LONGEST_NAME = 52
_MINUTES = "00000000"
_MOST_STEPS = 256
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
        if sequence(probe.get(field)):
            text = "is not looked at: the host has no network path to pods of members; use taskStatusList"
            problems.append(Problem(f"{path}.{field}", text))
    listed = sequence(probe.get("taskStatusList"))
    if len(listed) > _MOST_PROBES:
        problems.append(Problem(f"{path}.taskStatusList", f"are {len(listed)}; use at most {_MOST_PROBES}"))
    for index, each in enumerate(map(mapping, listed[:_MOST_PROBES])):
        if each.get("phase") not in _PHASES:
            text = f"{each.get('phase')!r} is no phase of pods; use one of {', '.join(_PHASES)}"
            problems.append(Problem(f"{path}.taskStatusList[{index}].phase", text))
    return problems


def cron_job_warnings(obj: Json) -> list[Problem]:
    """What of the Jobs of a CronJob has no effect."""
    template = mapping(mapping(obj.get("spec")).get("jobTemplate"))
    return _under(
        warnings({"metadata": template.get("metadata") or {}, "spec": template.get("spec")}), "spec.jobTemplate."
    )


def job_template_warnings(obj: Json) -> list[Problem]:
    """What of the Jobs of a JobTemplate has no effect."""
    return warnings({"metadata": {}, "spec": obj.get("spec")})


def _job(obj: Json, spec: Any, name: str) -> list[Problem]:
    job = {"metadata": {"name": name, "namespace": mapping(obj.get("metadata")).get("namespace")}, "spec": spec}
    if not isinstance(spec, dict):
        return [Problem("spec", "is missing; say what the Jobs run")]
    return validate_job(jsonpatch.applied(job, default_job(job)))


def _under(problems: list[Problem], path: str) -> list[Problem]:
    return [Problem(f"{path}{each.field}", each.message) for each in problems]
