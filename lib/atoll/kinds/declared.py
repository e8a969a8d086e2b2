"""Kinds that users declare: a WorkloadKind says where a custom resource has what a module of this package knows.

Its kind is a `Templated` like others. Declared kinds are the ones that a process last read (`atoll.kinds.declare`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from atoll.kinds import own_title
from atoll.kinds.interface import Json, Outcome, Words
from atoll.kinds.templated import (
    ADDED,
    Component,
    Path,
    Reading,
    Templated,
    condition_of,
    count_at,
    dotted,
    said,
    value_at,
)
from atoll.model import keys, numbers
from atoll.model.apiresource import ApiResource
from atoll.model.objects import MALFORMED

EACH: Final = "*"
"""The step that stands for each item of a list or map."""

_STEP: Final = re.compile(r"\.?([A-Za-z_][\w-]*)|\[(\d{1,4}|\*)\]|\[(?:'([^']+)'|\"([^\"]+)\")\]")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SERVER_FIELDS: Final = ("metadata", "apiVersion", "kind", "status")


class BadDeclaration(ValueError):
    """A WorkloadKind can't be followed; the message names each field."""


def path_of(text: str) -> Path:
    """The steps of `spec.roles[0].template`, `spec.roles[*].count`, `metadata.annotations['a.b/c']`.

    Raises:
        ValueError: it can't be read.
    """
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or (text[at] == "." and not steps):
            raise ValueError(
                f"{text!r} is no path: write fields with dots, [0] or [*] for items, ['a.b/c'] for other names"
            )
        name, index, *quoted = found.groups()
        steps.append(name or next(filter(None, quoted), "") or (EACH if index == EACH else int(index)))
        at = found.end()
    if not steps:
        raise ValueError("a path is wanted, such as spec.replicas")
    return tuple(steps)


def values_at(obj: Any, path: Path) -> Iterator[Any]:
    """What stands at a path, of each item where it says so."""
    for depth, step in enumerate(path):
        if step == EACH:
            items = obj.values() if isinstance(obj, Mapping) else obj if isinstance(obj, list) else ()
            for each in items:
                yield from values_at(each, path[depth + 1 :])
            return
        obj = value_at(obj, (step,))
    if obj is not None:
        yield obj


# -- validation --------------------------------------------------------------------------------------------------------


def problems(obj: Mapping[str, Any], taken: Callable[[str, str], str | None]) -> list[tuple[str, str]]:
    """(field, problem with its remedy) of a WorkloadKind that its schema let pass.

    Args:
        obj: whole.
        taken: title of Atoll's own kind of this (group, plural), None where there is none.
    """
    found: list[tuple[str, str]] = []
    spec: Json = obj.get("spec") or {}
    group, plural = str(spec.get("group") or ""), str(spec.get("plural") or "")
    name = (obj.get("metadata") or {}).get("name")
    if name != f"{plural}.{group}":
        found.append(("metadata.name", f"{name!r} must be plural.group, as that of the CRD: {plural}.{group}"))
    if (title := taken(group, plural)) is not None:
        found.append(("spec.group", f"Atoll runs {plural}.{group} by itself, as {title}; nothing is to be declared"))
    if "." not in group:
        found.append(("spec.group", f"{group!r} is no group of a CRD, which has a dot; kinds of Kubernetes can't be"))
    for field, path, each in _paths(spec):
        try:
            steps = path_of(path)
        except ValueError as error:
            found.append((field, str(error)))
            continue
        if EACH in steps and not each:
            found.append((field, f"{path!r}: [*] has no meaning here; use forEach for roles in a list or map"))
        if field.startswith("spec.status.") and steps[0] != "status":
            found.append((field, f"{path!r} is not in the status; begin with status."))
        if field in ("spec.suspend.path", "spec.managedBy") and steps[0] != "spec":
            found.append((field, f"{path!r} is not in the spec; begin with spec."))
        if field.startswith("spec.components") and ".forEach" in field and steps[0] in _SERVER_FIELDS:
            found.append((field, f"{path!r} is not in the spec"))
    found += _problems_of_components(spec.get("components") or ())
    found += _problems_of_switch(spec)
    found += _problems_of_status(spec)
    return found


def _problems_of_components(components: Sequence[Json]) -> Iterator[tuple[str, str]]:
    for index, each in enumerate(components):
        field = f"spec.components[{index}]"
        if not _NAME.fullmatch(str(each.get("name"))):
            yield f"{field}.name", f"{each.get('name')!r}: use lower-case letters, digits and '-'"
        if not each.get("forEach"):
            if each.get("namePath"):
                yield f"{field}.namePath", "has no effect without forEach"
            for name in ("template", "replicas", "minReplicas"):
                if (path := each.get(name)) and not str(path).startswith("spec."):
                    yield f"{field}.{name}", f"{path!r} is not in the spec; begin with spec."
        if each.get("minReplicas") and not each.get("replicas"):
            yield f"{field}.minReplicas", "has no effect without replicas: it is one pod"


def _problems_of_switch(spec: Json) -> Iterator[tuple[str, str]]:
    switch = spec.get("suspend")
    if not switch:
        if spec.get("managedBy"):
            yield "spec.managedBy", "needs spec.suspend: it is the switch that follows the dispatch"
        return
    off, on = switch.get("suspended", True), switch.get("resumed", False)
    for name, value in (("suspended", off), ("resumed", on)):
        if not isinstance(value, bool | str | int):
            yield f"spec.suspend.{name}", f"{said(value)}: use true, false, a text or a number"
    if off == on:
        yield "spec.suspend.resumed", f"{said(on)} is also the value of a workload that waits; they must differ"


def _problems_of_status(spec: Json) -> Iterator[tuple[str, str]]:
    status = spec.get("status") or {}
    for name in ("running", "succeeded", "failed", "suspended"):
        test = status.get(name)
        if not test:
            continue
        field = f"spec.status.{name}"
        if not test.get("condition") and not test.get("path"):
            yield field, "say condition, or path and values"
        if bool(test.get("path")) != bool(test.get("values")):
            yield field, "path and values go together"
    if not status.get("running") and not status.get("readyReplicas"):
        text = "say spec.status.running or spec.status.readyReplicas: else no workload of it is ever known to run"
        yield "spec.status", text
    if spec.get("service"):
        for name in ("succeeded", "failed"):
            if status.get(name):
                yield f"spec.status.{name}", "has no effect: a service never finishes; leave it or spec.service out"
    elif not status.get("succeeded"):
        text = "must be said: without it no workload of it ever finishes, and its queue stays charged; or set"
        yield "spec.status.succeeded", f"{text} spec.service"


def _paths(spec: Json) -> Iterator[tuple[str, str, bool]]:
    """(field, path, whether it may be of each item)."""
    if switch := spec.get("suspend"):
        yield "spec.suspend.path", str(switch.get("path")), False
    if spec.get("managedBy"):
        yield "spec.managedBy", str(spec["managedBy"]), False
    for index, path in enumerate(spec.get("hostOnly") or ()):
        yield f"spec.hostOnly[{index}]", str(path), False
    for index, each in enumerate(spec.get("components") or ()):
        for name in ("forEach", "namePath", "template", "replicas", "minReplicas"):
            if each.get(name):
                yield f"spec.components[{index}].{name}", str(each[name]), False
    status = spec.get("status") or {}
    for name in ("running", "succeeded", "failed", "suspended"):
        if (status.get(name) or {}).get("path"):
            yield f"spec.status.{name}.path", str(status[name]["path"]), False
    for name in ("readyReplicas", "succeededReplicas", "failedReplicas"):
        for index, path in enumerate(status.get(name) or ()):
            yield f"spec.status.{name}[{index}]", str(path), True
    for name in ("state", "finishedAt"):
        if status.get(name):
            yield f"spec.status.{name}", str(status[name]), False


# -- the kind ----------------------------------------------------------------------------------------------------------


def kind_of(obj: Mapping[str, Any], taken: Callable[[str, str], str | None] = lambda _, __: None) -> Templated:
    """The kind that a WorkloadKind declares.

    Raises:
        BadDeclaration: it can't be followed.
    """
    try:
        wrong = problems(obj, taken)
    except MALFORMED as error:
        raise BadDeclaration(f"spec: can't be read: {type(error).__name__}: {error}") from error
    if wrong:
        raise BadDeclaration("; ".join(f"{field}: {text}" for field, text in wrong))
    spec: Json = obj["spec"]
    kind, plural, group = str(spec["kind"]), str(spec["plural"]), str(spec["group"])
    switch = spec.get("suspend") or {}
    manager = path_of(spec["managedBy"]) if spec.get("managedBy") else ()
    names = dict.fromkeys((kind.lower(), plural, *(spec.get("shortNames") or ()), f"{plural}.{group}"))
    return Templated(
        resource=ApiResource(group, str(spec["version"]), plural, kind),
        words=Words(
            title=kind,
            names=tuple(names),
            held=_held(switch, manager),
            prefix=f"{kind.lower()}/",
            needs=str(spec.get("operator") or f"the operator of {plural}.{group}"),
        ),
        route=f"declared/{plural}.{group}",
        pods=", ".join(str(each["name"]) for each in spec["components"]),
        components=lambda workload: _components(spec["components"], workload),
        read=_reader(spec.get("status") or {}),
        pods_label=str(spec.get("podsLabel") or ""),
        switch=path_of(switch["path"]) if switch else (),
        switched_off=switch.get("suspended", True),
        switched_on=switch.get("resumed", False),
        manager=manager,
        service=bool(spec.get("service")),
        observes=True,
        host_only=[path_of(each) for each in spec.get("hostOnly") or ()],
    )


def _held(switch: Json, manager: Path) -> str:
    if not switch:
        return "nothing: its operator must not run there"
    off = f"`{switch['path']}: {said(switch.get('suspended', True))}`"
    return f"`{dotted(manager)}: {keys.CONTROLLER}` and {off}" if manager else f"{off}, which stays so"


def _components(declared: Sequence[Json], obj: Mapping[str, Any]) -> list[Component]:
    found: list[Component] = []
    for each in declared:
        if not each.get("forEach"):
            found += _component(each, str(each["name"]), (), obj)
            continue
        above = path_of(each["forEach"])
        items = value_at(obj, above)
        places: Iterable[str | int] = (
            range(len(items)) if isinstance(items, list) else sorted(items) if isinstance(items, Mapping) else ()
        )
        for place in places:
            at = (*above, place)
            own = value_at(obj, (*at, *path_of(each["namePath"]))) if each.get("namePath") else None
            found += _component(each, str(own or f"{each['name']}-{place}").lower(), at, obj)
    return found


def _component(declared: Json, name: str, at: Path, obj: Mapping[str, Any]) -> Iterator[Component]:
    template = (*at, *path_of(declared["template"]))
    if not isinstance(value_at(obj, template), Mapping):
        if declared.get("optional"):
            return
        raise ValueError(f"{dotted(template)}: a pod template is wanted")
    count: Path = (*at, *path_of(declared["replicas"])) if declared.get("replicas") else ()
    default = declared.get("defaultReplicas")
    least: Path = (*at, *path_of(declared["minReplicas"])) if declared.get("minReplicas") else ()
    minimum = count_at(obj, *least) if least and value_at(obj, least) is not None else None
    pods = count_at(obj, *count, default=1 if default is None else default) if count else 1
    unnumbered = "" if declared.get("indexed") else "say `indexed` in its WorkloadKind where pods have one"
    yield Component(name=name, pods=pods, template=template, minimum=minimum, count=count, unnumbered=unnumbered)


def _reader(declared: Json) -> Callable[[Mapping[str, Any]], Reading]:
    counts = {
        name: [path_of(each) for each in declared.get(name) or ()]
        for name in ("readyReplicas", "succeededReplicas", "failedReplicas")
    }
    ended = path_of(declared["finishedAt"]) if declared.get("finishedAt") else ()
    state = path_of(declared["state"]) if declared.get("state") else ()
    tests = {name: _test(declared.get(name) or {}) for name in ("running", "succeeded", "failed", "suspended")}

    def read(status: Mapping[str, Any]) -> Reading:
        whole = {"status": status}
        failed, succeeded = tests["failed"](status), tests["succeeded"](status)
        outcome = Outcome.FAILED if failed is not None else Outcome.SUCCEEDED if succeeded is not None else None
        running = _sum(whole, counts["readyReplicas"])
        if not running and outcome is None and tests["running"](status) is not None:
            running = 1
        at = value_at(whole, ended) if ended else (failed or succeeded or {}).get("lastTransitionTime")
        suspended = tests["suspended"](status) is not None
        word = str(value_at(whole, state) or "") if state else ""
        if not word:
            word = str(outcome) if outcome is not None else "Suspended" if suspended else ""
        return Reading(
            state=word,
            running=running,
            succeeded=_sum(whole, counts["succeededReplicas"]),
            failed=_sum(whole, counts["failedReplicas"]),
            outcome=outcome,
            ended=str(at) if outcome is not None and at else None,
            suspended=outcome is None and suspended,
            known=bool(set(status) - set(ADDED)),
            pods=bool(counts["readyReplicas"]),
        )

    return read


def _test(declared: Json) -> Callable[[Mapping[str, Any]], Json | None]:
    """Gives the condition that holds, an empty one for a field that does, None where neither does."""
    path = path_of(declared["path"]) if declared.get("path") else ()
    values = frozenset(declared.get("values") or ())

    def holds(status: Mapping[str, Any]) -> Json | None:
        if declared.get("condition") and (found := condition_of(status, declared["condition"])) is not None:
            return found
        return {} if path and _text(value_at({"status": status}, path)) in values else None

    return holds


def _text(value: Any) -> str | None:
    """As `values` have it: `true` for a boolean."""
    return value if isinstance(value, str) else None if value is None else said(value)


def _sum(whole: Json, paths: Sequence[Path]) -> int:
    found = (each for path in paths for each in values_at(whole, path))
    return min(sum(each for each in found if type(each) is int and each > 0), numbers.INT32)


def followed(found: Iterable[Mapping[str, Any]]) -> list[Templated]:
    """The kinds of those WorkloadKinds that can be followed, by name."""
    kinds = []
    for each in sorted(found, key=lambda each: str(each["metadata"]["name"])):
        try:
            kinds.append(kind_of(each, own_title))
        except BadDeclaration:
            continue
    return kinds
