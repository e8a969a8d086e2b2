"""Queues: defaults, what a queue may look like, and whether it takes new work.

A queue that does not exist is no reason to refuse a workload (it waits until the queue is there); one that exists and
can never admit it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import orjson

from atoll.model import keys, selectors
from atoll.model.objects import Slim
from atoll.webhook import jsonpatch
from atoll.webhook.problems import (
    MAX_ITEMS,
    SUBDOMAIN_RULE,
    Json,
    Problem,
    amounts,
    exceeding,
    integer,
    is_subdomain,
    mapping,
    sequence,
)

_MAX_WEIGHT = 65535
_CLOSED = ("Closed", "Closing")
_SELECTOR_FIELD = f"metadata.annotations[{keys.NAMESPACE_SELECTOR}]"


class QueueSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What admission reads of a queue's spec."""

    parent: str | None = None


class QueueStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What admission reads of a queue's status."""

    state: str | None = None


class Queue(Slim, frozen=True, rename="camel", gc=False):
    """A queue as the cache keeps it."""

    spec: QueueSpec = QueueSpec()
    status: QueueStatus | None = None

    @property
    def parent(self) -> str:
        """Name of the queue above; empty for the root itself."""
        if self.metadata.name == keys.ROOT_QUEUE:
            return ""
        return self.spec.parent or keys.ROOT_QUEUE

    @property
    def state(self) -> str:
        """Open unless its status says otherwise."""
        return (self.status.state if self.status else None) or "Open"


_decoder = msgspec.json.Decoder(Queue)


def decode(raw: bytes | msgspec.Raw) -> Queue:
    """A queue for the cache.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    return _decoder.decode(raw)


def queue_problem(
    name: str,
    queue: Queue | None,
    children: Sequence[str],
    namespace: str = "",
    namespace_labels: Mapping[str, str] | None = None,
    field: str = "spec.queue",
) -> Problem | None:
    """Why new work can't go to this queue, or None.

    Args: name: what the workload asks for. queue: that queue; None if it is not known, which is
        admitted: the workload waits for it. children: names of the queues below it. namespace:
        where the workload is. namespace_labels: labels of that namespace; None if not known, then
        the queue's namespace selector is not checked. field: where the workload names its queue.
    """
    if name == keys.ROOT_QUEUE:
        return Problem(field, "the root queue takes no workloads; name a queue without children")
    if queue is None:
        return None
    if queue.state in _CLOSED:
        return Problem(
            field,
            f"queue {name!r} is {queue.state} and takes no new workloads; use another queue, or have it opened again",
        )
    if children:
        shown = ", ".join(sorted(children)[:5])
        return Problem(
            field,
            f"queue {name!r} is divided into other queues and takes no workloads itself; use one of: {shown}",
        )
    selector = queue.metadata.annotations.get(keys.NAMESPACE_SELECTOR)
    if selector is not None and namespace_labels is not None and not _selects(selector, namespace_labels):
        return Problem(
            field,
            f"queue {name!r} is not open to namespace {namespace!r} (its annotation"
            f" {keys.NAMESPACE_SELECTOR} is {selector}); use another queue,"
            " or have the namespace labelled so",
        )
    return None


def default_queue(queue: Json) -> list[jsonpatch.Operation]:
    """The patch that fills in weight and reclaimable; empty when both are there."""
    spec = queue.get("spec")
    if spec is None:
        return [jsonpatch.add({"weight": 1, "reclaimable": True}, "spec")]
    if not isinstance(spec, dict):
        return []
    operations = []
    if spec.get("weight") is None:
        operations.append(jsonpatch.add(1, "spec", "weight"))
    if spec.get("reclaimable") is None:
        operations.append(jsonpatch.add(True, "spec", "reclaimable"))
    return operations


def validate_queue(queue: Json, lookup: Callable[[str], Queue | None]) -> list[Problem]:
    """Everything that is wrong with a new or changed queue.

    Args:
        queue: the object, defaulted.
        lookup: the known queue of a name.
    """
    problems: list[Problem] = []
    name = mapping(queue.get("metadata")).get("name")
    spec = mapping(queue.get("spec"))
    if name and not is_subdomain(name):
        problems.append(Problem("metadata.name", f"{name!r} can't name a queue; {SUBDOMAIN_RULE}"))
    weight = spec.get("weight")
    if weight is not None and not 1 <= (integer(weight) or 0) <= _MAX_WEIGHT:
        problems.append(Problem("spec.weight", f"is {weight}; use 1 to {_MAX_WEIGHT}"))
    problems += _parent_problems(name, spec.get("parent"), lookup)
    problems += _quota_problems(spec)
    selector = mapping(mapping(queue.get("metadata")).get("annotations")).get(keys.NAMESPACE_SELECTOR)
    if isinstance(selector, str) and _selector(selector) is None:
        problems.append(
            Problem(
                _SELECTOR_FIELD,
                'is not a label selector in JSON, such as {"matchLabels": {"team": "vision"}}',
            )
        )
    return problems


def validate_queue_update(old: Json, new: Json, lookup: Callable[[str], Queue | None]) -> list[Problem]:
    """As `validate_queue`; a change that leaves spec and selector alone is never refused."""
    if old.get("spec") == new.get("spec") and _selector_text(old) == _selector_text(new):
        return []
    return validate_queue(new, lookup)


def validate_queue_deletion(name: str, children: Sequence[str]) -> list[Problem]:
    """Why this queue can't be deleted."""
    if name in (keys.DEFAULT_QUEUE, keys.ROOT_QUEUE):
        return [
            Problem(
                "metadata.name",
                f"queue {name!r} is built in and can't be deleted; close it instead",
            )
        ]
    if children:
        shown = ", ".join(sorted(children)[:5])
        return [
            Problem(
                "metadata.name",
                f"queue {name!r} still has queues below it; delete or move them first: {shown}",
            )
        ]
    return []


def _parent_problems(name: object, parent: object, lookup: Callable[[str], Queue | None]) -> list[Problem]:
    field = "spec.parent"
    if not parent or not isinstance(parent, str):
        return []
    if name == keys.ROOT_QUEUE:
        return [Problem(field, "the root queue has no parent; remove the field")]
    if parent == name:
        return [Problem(field, "a queue can't be its own parent; name another queue or leave it out")]
    if parent == keys.ROOT_QUEUE:
        return []
    above = lookup(parent)
    if above is None:
        return [Problem(field, f"queue {parent!r} does not exist; create it first, or leave the parent out")]
    seen = [parent]
    while above is not None and above.parent and above.parent not in seen:
        if above.parent == name:
            path = " -> ".join([str(name), *seen, str(name)])
            return [Problem(field, f"the queues would form a circle: {path}; choose a parent outside of it")]
        seen.append(above.parent)
        above = lookup(above.parent)
    return []


def _quota_problems(spec: Json) -> list[Problem]:
    clusters = sequence(spec.get("extendClusters"))
    lists = [mapping(spec.get("guarantee")).get("resource"), spec.get("deserved"), spec.get("capability")]
    lists += [mapping(cluster).get("capacity") for cluster in clusters]
    if (count := len(clusters) + sum(len(mapping(each)) for each in lists)) > MAX_ITEMS:
        return [Problem("spec", f"has {count} clusters and resources in all; at most {MAX_ITEMS}: leave some out")]
    problems: list[Problem] = []
    levels = {
        "spec.guarantee.resource": mapping(spec.get("guarantee")).get("resource"),
        "spec.deserved": spec.get("deserved"),
        "spec.capability": spec.get("capability"),
    }
    values = {path: amounts(resources, path, problems) for path, resources in levels.items()}
    for index, cluster in enumerate(sequence(spec.get("extendClusters"))):
        amounts(mapping(cluster).get("capacity"), f"spec.extendClusters[{index}].capacity", problems)
    paths = list(levels)
    for position, lower in enumerate(paths):
        for upper in paths[position + 1 :]:
            for resource in exceeding(values[lower], values[upper]):
                less, more = mapping(levels[lower])[resource], mapping(levels[upper])[resource]
                problems.append(
                    Problem(
                        f"{lower}.{resource}",
                        f"{less} is more than {upper}.{resource} ({more}); lower it, or raise that",
                    )
                )
    return problems


def _selector_text(queue: Json) -> object:
    return mapping(mapping(queue.get("metadata")).get("annotations")).get(keys.NAMESPACE_SELECTOR)


def _selector(text: str) -> Json | None:
    try:
        selector = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(selector, dict) or selector.keys() - {"matchLabels", "matchExpressions"}:
        return None
    labels, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    good = isinstance(labels, dict) and isinstance(expressions, list)
    return selector if good and all(isinstance(item, dict) for item in expressions) else None


def _selects(text: str, labels: Mapping[str, str]) -> bool:
    # A selector that can't be read opens the queue to nobody: it was meant to keep somebody out.
    selector = _selector(text)
    return selector is not None and selectors.label_selector_matches(selector, labels)
