"""bus.volcano.sh/v1alpha1: Command, a wish that is carried out once and then deleted."""

from __future__ import annotations

from atoll.api.base import AGE, ApiModel, ApiObject, Column, Resource, served

GROUP = "bus.volcano.sh"


class OwnerReference(ApiModel):
    """The object that a Command is for."""

    api_version: str
    """Its apiVersion."""
    kind: str
    """Its kind."""
    name: str
    """Its name."""
    uid: str
    """Its UID, so that a later object of the same name is left alone."""
    controller: bool | None = None
    """Whether it is the managing controller."""
    block_owner_deletion: bool | None = None
    """Whether its deletion waits for this object."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="Command",
        plural="commands",
        short_names=("cmd",),
        columns=(
            Column("Action", ".action"),
            Column("Kind", ".target.kind"),
            Column("Target", ".target.name"),
            AGE,
        ),
    )
)
class Command(ApiObject):
    """Open or close a queue, abort or resume a job; the fields are beside metadata."""

    action: str | None = None
    """OpenQueue, CloseQueue, AbortJob, ResumeJob or another action of a lifecycle policy."""
    target: OwnerReference | None = None
    """What to act on."""
    reason: str | None = None
    """One CamelCase word that says why."""
    message: str | None = None
    """The same for people."""
