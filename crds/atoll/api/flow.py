"""flow.volcano.sh/v1alpha1: JobFlow, Volcano Jobs that start one after the other, and JobTemplate, their source."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from atoll.api.base import AGE, ApiModel, ApiObject, Column, FreeForm, Int32, Resource, Time, served
from atoll.api.batch import JobSpec, TaskState

GROUP = "flow.volcano.sh"


class HttpHeader(ApiModel):
    """A header of a request."""

    name: str
    """Its name."""
    value: str | None = None
    """Its value; empty if absent."""


class HttpGet(ApiModel):
    """A request that pods of a task must answer with a code from 200 to 399."""

    task_name: str
    """The task, in each of the targets."""
    path: str | None = None
    """Path of the URL; `/` if absent."""
    port: Int32
    """Port of the pods."""
    http_header: HttpHeader | None = None
    """A header that is sent along."""


class TcpSocket(ApiModel):
    """A port of the pods of a task that must accept connections."""

    task_name: str
    """The task, in each of the targets."""
    port: Int32
    """Port of the pods."""


class TaskStatus(ApiModel):
    """A phase that pods of a task must have reached."""

    task_name: str
    """The task, in each of the targets."""
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
    """Phase of so many of its pods as its minAvailable; those that have succeeded have run."""


class Probe(ApiModel):
    """What counts of the targets instead of their being Completed; all of it must hold."""

    http_get_list: list[HttpGet] = Field(default_factory=list)
    """Requests that must be answered."""
    tcp_socket_list: list[TcpSocket] = Field(default_factory=list)
    """Ports that must be open."""
    task_status_list: list[TaskStatus] = Field(default_factory=list)
    """Phases that tasks must have reached."""


class FlowDependsOn(ApiModel):
    """What comes before a step."""

    targets: list[str] = Field(default_factory=list)
    """Names of other steps; all of them."""
    probe: Probe | None = None
    """What counts of them; without it that they are Completed."""


class Patch(ApiModel):
    """What a step changes in its template."""

    job_spec: FreeForm = Field(default_factory=dict)
    """A merge patch of the template's spec; lists whose items have names are merged by them."""


class Step(ApiModel):
    """One Job of the flow."""

    name: str
    """Of a JobTemplate in the flow's namespace; the Job is called `flow-template`."""
    depends_on: FlowDependsOn | None = None
    """What comes before it."""
    patch: Patch | None = None
    """Changes of its template."""


class JobFlowSpec(ApiModel):
    """The steps of a flow."""

    flows: Annotated[list[Step], Field(max_length=256)] = Field(default_factory=list)
    """Steps; each starts when its dependencies have come."""
    job_retain_policy: Literal["retain", "delete"] = "retain"
    """Whether the Jobs go once all have Completed."""


class FlowState(ApiModel):
    """Phase of a flow and why."""

    phase: str | None = None
    """Pending, Running, Succeed, Failed or Terminating."""
    reason: str | None = None
    """One CamelCase word that says why."""
    message: str | None = None
    """Steps' blockers and failures."""


class FlowJob(ApiModel):
    """A Job of the flow."""

    name: str
    """Its name."""
    state: str | None = None
    """Its phase."""
    start_timestamp: Time | None = None
    """When it was created."""
    end_timestamp: Time | None = None
    """When it ended."""
    restart_count: Int32 | None = None
    """Its restarts."""


class FlowCondition(ApiModel):
    """Memory of a Job of the flow, also when it is gone."""

    phase: str | None = None
    """Its phase."""
    create_time: Time | None = None
    """When it was created."""
    running_duration: str | None = None
    """How long it ran, once it has ended."""
    task_status_count: dict[str, TaskState] = Field(default_factory=dict)
    """Its pods by task."""


class JobFlowStatus(ApiModel):
    """Observed state of a flow."""

    state: FlowState | None = None
    """Phase and why."""
    pending_jobs: list[str] = Field(default_factory=list)
    """Jobs that are Pending."""
    running_jobs: list[str] = Field(default_factory=list)
    """Jobs that run, or are on their way to an end."""
    completed_jobs: list[str] = Field(default_factory=list)
    """Jobs that are Completed."""
    failed_jobs: list[str] = Field(default_factory=list)
    """Jobs that are Failed."""
    terminated_jobs: list[str] = Field(default_factory=list)
    """Jobs that are Terminated or Aborted."""
    un_know_jobs: list[str] = Field(default_factory=list)
    """Jobs in any other phase; the name is upstream's."""
    job_status_list: list[FlowJob] = Field(default_factory=list)
    """Jobs in the order of the steps."""
    conditions: dict[str, FlowCondition] = Field(default_factory=dict)
    """Job -> memory of it."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="JobFlow",
        plural="jobflows",
        short_names=("jf",),
        status=True,
        columns=(
            Column("Status", ".status.state.phase"),
            Column("Message", ".status.state.message", wide=True),
            AGE,
        ),
    )
)
class JobFlow(ApiObject):
    """Volcano Jobs that start one after the other."""

    spec: JobFlowSpec = Field(default_factory=JobFlowSpec)
    """Its steps."""
    status: JobFlowStatus | None = None
    """Observed state."""


@served(
    Resource(
        group=GROUP, version="v1alpha1", kind="JobTemplate", plural="jobtemplates", short_names=("jt",), status=True
    )
)
class JobTemplate(ApiObject):
    """What Jobs of flows are made of."""

    spec: JobSpec = Field(default_factory=JobSpec)
    """Of the Jobs."""
    status: FreeForm | None = None
    """Nothing is written here."""
