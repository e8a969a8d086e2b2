"""policy.karmada.io/v1alpha1: override policies, which change what a member gets of an object."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from atoll.api.base import AGE, AnyJson, ApiModel, ApiObject, Resource, served
from atoll.api.policy import GROUP, ClusterAffinity, ResourceSelector

Operator = Literal["add", "remove", "replace"]


class PlaintextOverrider(ApiModel):
    """One operation of a JSON patch on the object."""

    path: str
    """JSON pointer of the field."""
    operator: Operator
    """The operation."""
    value: AnyJson = None
    """The new value; none for remove."""


class ImagePredicate(ApiModel):
    """Which image is changed."""

    path: str
    """JSON pointer of the image."""


class ImageOverrider(ApiModel):
    """Changes a part of images."""

    predicate: ImagePredicate | None = None
    """One image; absent: those of all containers of all pod templates."""
    component: Literal["Registry", "Repository", "Tag"]
    """The part; Tag is a digest where the image has one instead."""
    operator: Operator
    """add appends to the part, replace writes it, remove takes it away."""
    value: str | None = None
    """The appended or written value."""


class CommandArgsOverrider(ApiModel):
    """Changes the command, or the arguments, of a container."""

    container_name: str
    """Name of the container, in whatever pod template."""
    operator: Literal["add", "remove"]
    """add appends the values, remove takes away all that are equal to one of them."""
    value: list[str] = Field(default_factory=list)
    """The values."""


class LabelAnnotationOverrider(ApiModel):
    """Changes labels, or annotations, of the object itself."""

    operator: Operator
    """add writes them, replace writes those that are there, remove takes them away."""
    value: dict[str, str]
    """Key and value; remove looks at the keys alone."""


class FieldPatchOperation(ApiModel):
    """One operation of a JSON patch on a document inside a field."""

    sub_path: str
    """JSON pointer inside the document."""
    operator: Operator
    """The operation."""
    value: AnyJson = None
    """The new value; none for remove."""


class FieldOverrider(ApiModel):
    """Changes a JSON or YAML document that a field holds as text."""

    field_path: str
    """JSON pointer of the field."""
    json_: Annotated[list[FieldPatchOperation], Field(default_factory=list, alias="json")]
    """Operations on a JSON document."""
    yaml: list[FieldPatchOperation] = Field(default_factory=list)
    """Operations on a YAML document; not together with json."""


class Overriders(ApiModel):
    """Changes, in this order: images, commands, arguments, labels, annotations, fields, plaintext."""

    plaintext: list[PlaintextOverrider] = Field(default_factory=list)
    """A JSON patch."""
    image_overrider: list[ImageOverrider] = Field(default_factory=list)
    """Parts of images."""
    command_overrider: list[CommandArgsOverrider] = Field(default_factory=list)
    """Commands of containers."""
    args_overrider: list[CommandArgsOverrider] = Field(default_factory=list)
    """Arguments of containers."""
    labels_overrider: list[LabelAnnotationOverrider] = Field(default_factory=list)
    """Labels."""
    annotations_overrider: list[LabelAnnotationOverrider] = Field(default_factory=list)
    """Annotations."""
    field_overrider: list[FieldOverrider] = Field(default_factory=list)
    """Documents in fields."""


class RuleWithCluster(ApiModel):
    """Changes in some members."""

    target_cluster: ClusterAffinity | None = None
    """The members; any if absent."""
    overriders: Overriders
    """The changes."""


class OverrideSpec(ApiModel):
    """Changes of some objects in some members."""

    resource_selectors: list[ResourceSelector] = Field(default_factory=list)
    """The objects, as they are on the host; any if empty."""
    override_rules: list[RuleWithCluster] = Field(default_factory=list)
    """Changes, and their members; all that match are followed, in order."""
    target_cluster: ClusterAffinity | None = None
    """Older form of a single rule: its members."""
    overriders: Overriders | None = None
    """Older form of a single rule: its changes."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="OverridePolicy",
        plural="overridepolicies",
        short_names=("op",),
        categories=("atoll", "karmada-io"),
        columns=(AGE,),
    )
)
class OverridePolicy(ApiObject):
    """Changes what members get of the objects of a namespace; after the ClusterOverridePolicies."""

    spec: OverrideSpec
    """The changes."""


@served(
    Resource(
        group=GROUP,
        version="v1alpha1",
        kind="ClusterOverridePolicy",
        plural="clusteroverridepolicies",
        namespaced=False,
        short_names=("cop",),
        categories=("atoll", "karmada-io"),
        columns=(AGE,),
    )
)
class ClusterOverridePolicy(ApiObject):
    """Changes what members get of the objects of any namespace."""

    spec: OverrideSpec
    """The changes."""
