"""Problems of an object, in words for its sender, and the name rules shared by all kinds.

A check gives a list of problems instead of raising at the first one: whoever fixes a manifest wants to see all of
them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from atoll.api import effects
from atoll.model import duration, keys, lost, notify, quantity, scoring, together
from atoll.model.placement import is_most

Json = dict[str, Any]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NUMBER = re.compile(r"(?<![\w'.-])\d+(?![\w'.-])")
_SHOWN = 20
_LONGEST = 400
"""Characters of one problem that are shown: it may quote the object."""
_QUANTITY_MAX = 64

MAX_ITEMS: Final = 10_000
"""Tasks, containers, resources and the like of one object together: the checks take 50 ms at worst."""

LABEL_RULE = "use at most 63 lower-case letters, digits and '-', with a letter or digit at both ends"
SUBDOMAIN_RULE = (
    "use at most 253 lower-case letters, digits, '-' and '.', with a letter or digit at both ends of each part"
)


class Problem(NamedTuple):
    """One thing to correct."""

    field: str
    """Path of the field, such as `spec.tasks[0].name`."""
    message: str
    """The problem there and its remedy."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def report(subject: str, problems: Sequence[Problem]) -> str:
    """All problems of an object as one message; one line each where there are several."""
    if len(problems) == 1:
        return f"{subject[:_LONGEST]}: {_cut(problems[0])}"
    lines = [f"\n- {_cut(problem)}" for problem in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        lines.append(f"\n- and {len(problems) - _SHOWN} more")
    return f"{subject[:_LONGEST]} has {len(problems)} problems:{''.join(lines)}"


def idle(kind: str, obj: Json) -> list[Problem]:
    """The fields of an object from which its user expects something that does not happen."""
    return [Problem(each.path, f"has no effect: {each.instead}") for each in effects.without_effect(kind, obj)]


def _cut(problem: Problem) -> str:
    text = str(problem)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def added(before: Iterable[Problem], now: Iterable[Problem]) -> list[Problem]:
    """The problems of now that were not there before. An excess may become smaller."""
    there = {_kind(problem): _numbers(problem) for problem in before}
    return [
        problem
        for problem in now
        if _kind(problem) not in there
        or any(new > old for new, old in zip(_numbers(problem), there[_kind(problem)], strict=True))
    ]


def _kind(problem: Problem) -> tuple[str, str]:
    return problem.field, _NUMBER.sub("0", problem.message)


def _numbers(problem: Problem) -> list[float]:
    return [float(text) for text in _NUMBER.findall(problem.message)]


def is_label(text: object) -> bool:
    """Whether it is a DNS-1123 label."""
    return isinstance(text, str) and len(text) <= 63 and _LABEL.fullmatch(text) is not None


def is_subdomain(text: object) -> bool:
    """Whether it is a DNS-1123 subdomain."""
    return isinstance(text, str) and len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def mapping(value: object) -> Json:
    """The value if it is an object, else an empty one.

    Wrong types are the schema's to refuse; checks only have to survive them.
    """
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def integer(value: object) -> int | None:
    """The value if it is an integer, else None."""
    return value if type(value) is int else None


def amounts(resources: object, path: str, problems: list[Problem]) -> dict[str, Fraction]:
    """A ResourceList by value; unreadable and negative quantities are reported and left out."""
    found: dict[str, Fraction] = {}
    for name, text in mapping(resources).items():
        value = amount(text)
        if value is None:
            problems.append(
                Problem(
                    f"{path}.{name}",
                    f"{text!r} is not a quantity; use a number such as 2, 500m or 8Gi",
                )
            )
        elif value < 0:
            problems.append(Problem(f"{path}.{name}", f"{text} is negative; use 0 or more"))
        else:
            found[name] = value
    return found


def amount(text: object) -> Fraction | None:
    """The value of a quantity; None if it is none."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return None
    try:
        written = str(text)
        # Arithmetic on a million digits would take seconds, and no quantity has that many.
        if len(written) > _QUANTITY_MAX or not written.isascii():
            return None
        return quantity.parse(text)
    except ValueError:
        return None


def exceeding(smaller: Mapping[str, Fraction | int], larger: Mapping[str, Fraction | int]) -> list[str]:
    """The resources listed in both of which the first has more than the second."""
    return sorted(name for name, value in smaller.items() if name in larger and value > larger[name])


_DURATIONS = (
    keys.READY_TIMEOUT,
    keys.RUNNING_ESTIMATE,
    keys.LOST_TOLERATION,
    *keys.WAITING_TIMES,
)


_OF_KUEUE: Mapping[tuple[str, str], str] = {
    ("labels", "kueue.x-k8s.io/priority-class"): "name a PriorityClass in priorityClassName of its pods",
    ("labels", keys.KUEUE_TIME): "set activeDeadlineSeconds where the kind or its pods have that",
    ("labels", "kueue.x-k8s.io/prebuilt-workload-name"): "Atoll has no Workloads of Kueue",
    ("annotations", keys.KUEUE_MINIMUM): f"say {keys.GROUP_MIN_MEMBER} if the kind knows it",
    (
        "annotations",
        "kueue.x-k8s.io/elastic-job",
    ): f"workloads with {keys.GROUP_MIN_MEMBER} grow and shrink by themselves",
    ("annotations", "kueue.x-k8s.io/pod-group-serving"): "pods that run for ever are charged until they are deleted",
}
"""What Kueue reads and Atoll does not -> what to do instead."""


def unread_durations(obj: Json, acting: Collection[str] = ()) -> list[Problem]:
    """Labels and annotations of a workload from which nothing follows: durations that are none, and Kueue's.

    Args:
        obj: the workload.
        acting: Kueue's ones that act on its kind.
    """
    annotations = mapping(mapping(obj.get("metadata")).get("annotations"))
    problems = [
        Problem(f"metadata.{where}[{key}]", f"has no effect: it is Kueue's; {instead}")
        for (where, key), instead in _OF_KUEUE.items()
        if key in mapping(mapping(obj.get("metadata")).get(where)) and key not in acting
    ]
    for key in dict.fromkeys(_DURATIONS):
        text = annotations.get(key)
        if not text:
            continue
        try:
            duration.parse(str(text))
        except duration.DurationError as error:
            problems.append(Problem(f"metadata.annotations[{key}]", f"has no effect: {error}"))
    if (text := annotations.get(keys.DIVIDED)) and not is_most(str(text)):
        said = f"has no effect: {text!r} is no number of members; use 1 or more, or any"
        problems.append(Problem(f"metadata.annotations[{keys.DIVIDED}]", said))
    if text := annotations.get(keys.NODE_SCORING):
        try:
            scoring.parse(str(text))
        except scoring.ScoringError as error:
            problems.append(Problem(f"metadata.annotations[{keys.NODE_SCORING}]", f"has no effect: it {error}"))
    if text := annotations.get(keys.TOGETHER):
        try:
            together.parse(str(text))
        except together.BadTogether as error:
            problems.append(Problem(f"metadata.annotations[{keys.TOGETHER}]", f"has no effect: it {error}"))
    if text := annotations.get(keys.ON_LOST):
        try:
            lost.read(str(text))
        except ValueError as error:
            problems.append(Problem(f"metadata.annotations[{keys.ON_LOST}]", f"has no effect: {error}"))
    if text := annotations.get(keys.NOTIFY):
        try:
            notify.parse(str(text))
        except notify.BadNotify as error:
            problems.append(Problem(f"metadata.annotations[{keys.NOTIFY}]", f"has no effect: {error}"))
    return problems
