"""The JobSet: several replicated Jobs that belong together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from atoll.kinds.interface import Outcome, Words
from atoll.kinds.templated import Component, Path, Reading, Templated, condition_of, count_at, number, value_at
from atoll.model import keys
from atoll.model.apiresource import ApiResource

_SPEC: Path = ("spec",)
_JOBS: Path = (*_SPEC, "replicatedJobs")
RELEASED = "those of Jobs that have succeeded, unless `failurePolicy.maxRestarts` may start all again"


def components_of(obj: Mapping[str, Any], spec: Path = _SPEC) -> list[Component]:
    """The pods of the replicated Jobs of a JobSet whose spec is at this path."""
    found, jobs = [], (*spec, "replicatedJobs")
    for index, each in enumerate(value_at(obj, jobs) or ()):
        path = (*jobs, index, "template", "spec")
        pods = count_at(obj, *path, "parallelism")
        if (completions := value_at(obj, (*path, "completions"))) is not None:
            pods = min(pods, int(completions))
        found.append(
            Component(
                name=str(each["name"]),
                pods=count_at(obj, *jobs, index, "replicas") * pods,
                template=(*path, "template"),
                count=(*jobs, index, "replicas"),
                unit=pods,
                ranks=pods if completions is not None and int(completions) == pods else 0,
            )
        )
    return found


def starts_of(obj: Mapping[str, Any], spec: Path = _SPEC) -> int | None:
    """Pods of the Jobs that are made first, where others wait for them."""
    jobs = value_at(obj, (*spec, "replicatedJobs")) or []
    components = components_of(obj, spec)
    if value_at(obj, (*spec, "startupPolicy", "startupPolicyOrder")) == "InOrder":
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


def over_of(obj: Mapping[str, Any], counts: object, spec: Path = _SPEC) -> dict[str, int]:
    """Replicated Job -> pods of succeeded ones; none where a failure starts all of them again.

    `counts`: for each replicated Job by name, `succeeded` Jobs among others.
    """
    if value_at(obj, (*spec, "failurePolicy", "maxRestarts")) or not isinstance(counts, Sequence):
        return {}
    done = {str(each.get("name")): number(each, "succeeded") for each in counts if isinstance(each, Mapping)}
    return {each.name: each.unit * done.get(each.name, 0) for each in components_of(obj, spec)}


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
    pods="`replicatedJobs`",
    order="`dependsOn`, `startupPolicy: InOrder`: the member waits for the pods of the first Jobs",
    components=components_of,
    read=_read,
    over=lambda obj, status: over_of(obj, status.get("replicatedJobsStatus")),
    released_when=RELEASED,
    pods_label="jobset.sigs.k8s.io/jobset-name",
    switch=("spec", "suspend"),
    manager=("spec", "managedBy"),
    starts=starts_of,
    problems=_problems,
    host_only=(("spec", "ttlSecondsAfterFinished"),),
)
