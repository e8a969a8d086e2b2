"""What all API models share: field naming, schema vocabulary, and the registry of served kinds.

A CRD says more than a type annotation can (list keys, int-or-string, CEL rules, printer columns).
That vocabulary lives here, so that a model is the only place where an API is described and the
generator stays a mechanical walk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


class ApiModel(BaseModel):
    """A structured node of an API object.

    Fields are snake_case here and camelCase on the wire; both are accepted. Fields that the model
    does not know survive a round trip, because a newer client or a foreign controller may have
    written them where the CRD is another system's. Where it is ours, its API server tells of them
    and drops them.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="allow",
        use_attribute_docstrings=True,
    )


@dataclass(frozen=True)
class SchemaExtra:
    """Annotation that adds keywords to the JSON schema of the annotated type."""

    keywords: tuple[tuple[str, Any], ...]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the keywords."""
        return {**handler(core), **dict(self.keywords)}


@dataclass(frozen=True)
class IntOrStringSchema:
    """Annotation for a value written as an integer or a string; `pattern` binds the string form."""

    pattern: str | None = None

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Replace the union by the extension."""
        # No anyOf: structural schemas infer both types from the extension, and a pattern never
        # touches integers.
        schema: JsonSchemaValue = {"x-kubernetes-int-or-string": True}
        return schema if self.pattern is None else {**schema, "pattern": self.pattern}


def keyed_by(*keys: str) -> SchemaExtra:
    """Mark a list of objects as a map, so that server-side apply merges it item by item.

    Each key must be a required or defaulted field of the items (camelCase), or the API server
    refuses the CRD.
    """
    return SchemaExtra((("x-kubernetes-list-type", "map"), ("x-kubernetes-list-map-keys", list(keys))))


ATOMIC = SchemaExtra((("x-kubernetes-list-type", "atomic"),))
WHOLE = SchemaExtra((("x-kubernetes-map-type", "atomic"),))
"""Mark a map that one writer replaces: without it, server-side apply of an empty map leaves null, which is refused."""


def rules(*pairs: tuple[str, str]) -> dict[str, Any]:
    """CEL rules as (rule, message) for a model's `json_schema_extra`.

    Every list that leads to the model needs `max_length`, and so does every string, list or map
    that a rule iterates or compares: the API server refuses a rule whose estimated cost has no
    bound.
    """
    return {"x-kubernetes-validations": [{"rule": r, "message": m} for r, m in pairs]}


Quantity = Annotated[int | str, IntOrStringSchema(QUANTITY_PATTERN)]
IntOrString = Annotated[int | str, IntOrStringSchema()]
ResourceList = dict[str, Quantity]

Int32 = Annotated[int, SchemaExtra((("format", "int32"),))]
Count = Annotated[int, Field(ge=0), SchemaExtra((("format", "int32"),))]
PositiveInt32 = Annotated[int, Field(ge=1), SchemaExtra((("format", "int32"),))]
Time = Annotated[str, SchemaExtra((("format", "date-time"),))]

AnyJson = Annotated[Any, SchemaExtra((("x-kubernetes-preserve-unknown-fields", True),))]
"""Any value at all."""
FreeForm = dict[str, Any]
"""An object whose fields are not ours to check: pod templates, affinities, raw manifests and
statuses."""

ObjectMeta = dict[str, Any]


class LabelSelectorRequirement(ApiModel):
    """One condition on a label."""

    key: str
    """Label key."""
    operator: str
    """In, NotIn, Exists or DoesNotExist."""
    values: list[str] = Field(default_factory=list)
    """Values for In and NotIn; empty otherwise."""


class LabelSelector(ApiModel):
    """Selects objects by label; all conditions must hold."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    """Labels that must have exactly these values."""
    match_expressions: list[LabelSelectorRequirement] = Field(default_factory=list)
    """Further conditions."""


class Condition(ApiModel):
    """One observed aspect of an object."""

    type: str
    """Aspect, in CamelCase."""
    status: Literal["True", "False", "Unknown"]
    """Whether the aspect holds."""
    reason: str | None = None
    """One CamelCase word that says why."""
    message: str | None = None
    """The same for people."""
    last_transition_time: Time | None = None
    """When the status last changed."""
    observed_generation: int | None = None
    """The metadata.generation that this was computed from."""


Conditions = Annotated[list[Condition], keyed_by("type")]


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; shown only with `-o wide` when `wide`."""

    name: str
    json_path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    wide: bool = False


AGE = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, kw_only=True)
class Resource:
    """Where a kind lives in the API server, and how `kubectl` shows it."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ("atoll",)
    columns: tuple[Column, ...] = (AGE,)
    status: bool = False
    """Whether status is a subresource of its own."""
    selectable: tuple[str, ...] = ()
    """JSON paths usable in `--field-selector`."""

    @property
    def singular(self) -> str:
        """The lower-case kind."""
        return self.kind.lower()

    @property
    def api_version(self) -> str:
        """`group/version`."""
        return f"{self.group}/{self.version}"

    @property
    def crd_name(self) -> str:
        """`plural.group`, the name of the CustomResourceDefinition."""
        return f"{self.plural}.{self.group}"


class ApiObject(ApiModel):
    """A whole object with apiVersion, kind and metadata."""

    resource: ClassVar[Resource]

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=dict)

    def model_post_init(self, context: Any, /) -> None:
        """Name the kind, so that an object built in code can be sent as it is."""
        self.api_version = self.api_version or self.resource.api_version
        self.kind = self.kind or self.resource.kind

    def to_dict(self) -> dict[str, Any]:
        """Return the given fields, unknown ones included, and no defaults: ready to be sent."""
        return self.model_dump(by_alias=True, exclude_unset=True)


ObjectType = TypeVar("ObjectType", bound=ApiObject)

#: Every served kind by (apiVersion, kind); complete once `atoll.api` is imported.
KINDS: dict[tuple[str, str], type[ApiObject]] = {}


def served(resource: Resource) -> Callable[[type[ObjectType]], type[ObjectType]]:
    """Class decorator: give a root model its place in the API server and enter it in `KINDS`."""

    def register(model: type[ObjectType]) -> type[ObjectType]:
        model.resource = resource
        KINDS[resource.api_version, resource.kind] = model
        return model

    return register


def kind_of(obj: Mapping[str, Any]) -> type[ApiObject] | None:
    """Return the model of a raw object by apiVersion and kind; None if it is not ours."""
    return KINDS.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
