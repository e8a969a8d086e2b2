"""The JobSet: several replicated Jobs that belong together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from atoll.kinds.interface import Outcome, Words
from atoll.kinds.templated import Component, Reading, Templated, condition_of, count_at, number, value_at
from atoll.model import keys
from atoll.model.apiresource import ApiResource

_JOBS = ("spec", "replicatedJobs")


def _components(obj: Mapping[str, Any]) -> list[Component]:
    found = []
    for index, each in enumerate(value_at(obj, _JOBS) or ()):
        path = (*_JOBS, index, "template", "spec")
        pods = count_at(obj, *path, "parallelism")
        if (completions := value_at(obj, (*path, "completions"))) is not None:
            pods = min(pods, int(completions))
        jobs = count_at(obj, *_JOBS, index, "replicas")
        found.append(
            Component(
                name=str(each["name"]),
                pods=jobs * pods,
                template=(*path, "template"),
                count=(*_JOBS, index, "replicas"),
                unit=pods,
            )
        )
    return found


def _starts(obj: Mapping[str, Any]) -> int | None:
    """Pods of the Jobs that are made first, where others wait for them."""
    jobs = value_at(obj, _JOBS) or []
    components = _components(obj)
    if value_at(obj, ("spec", "startupPolicy", "startupPolicyOrder")) == "InOrder":
        return next((each.pods for each in components if each.pods), None)
    if not any(each.get("dependsOn") for each in jobs):
        return None
    return sum(each.pods for job, each in zip(jobs, components, strict=True) if not job.get("dependsOn")) or None


def _read(status: Mapping[str, Any]) -> Reading:
    ended = condition_of(status, "Completed", "Failed")
    jobs = status.get("replicatedJobsStatus") or ()
    ready, succeeded, failed = (sum(number(job, name) for job in jobs) for name in ("ready", "succeeded", "failed"))
    suspended = condition_of(status, "Suspended") is not None
    outcome = None
    if ended is not None:
        outcome = Outcome.SUCCEEDED if ended["type"] == "Completed" else Outcome.FAILED
    return Reading(
        state=ended["type"] if ended else "Suspended" if suspended else "",
        running=ready,
        succeeded=succeeded,
        failed=failed,
        outcome=outcome,
        ended=ended.get("lastTransitionTime") if ended else None,
        suspended=suspended,
        known=bool(jobs or status.get("conditions")),
        pods=False,
    )


def _problems(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for index, each in enumerate(value_at(obj, _JOBS) or ()):
        if value_at(each, ("template", "spec", "suspend")):
            yield (
                f"spec.replicatedJobs[{index}].template.spec.suspend",
                f"the Job would hold room and never run; leave it out, and hold the JobSet with annotation {keys.HOLD}",
            )


KIND = Templated(
    resource=ApiResource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
    words=Words(
        title="JobSet",
        names=("jobset", "jobsets", "jobset.jobset.x-k8s.io"),
        held=f"`spec.managedBy: {keys.CONTROLLER}` and `spec.suspend`",
        prefix="jobset/",
        needs="the JobSet controller",
    ),
    route="jobsets",
    components=_components,
    read=_read,
    pods_label="jobset.sigs.k8s.io/jobset-name",
    switch=("spec", "suspend"),
    manager=("spec", "managedBy"),
    starts=_starts,
    problems=_problems,
    host_only=(("spec", "ttlSecondsAfterFinished"),),
)
