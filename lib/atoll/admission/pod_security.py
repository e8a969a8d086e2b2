"""Pod Security Standards for pod templates: what the PodSecurity admission of an API server says of pods, by the labels
of their namespace, said of workloads whose pods are made elsewhere.

One function for each control of the standards, pure, each with the version since which it holds; the real PodSecurity
admission is the oracle of their tests. It is not asked at admission: a dry run of a pod would cost a request for each
template while the API server waits, need the right to create pods everywhere, and pass through quotas and the webhooks
of others, which have their own words on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from atoll.admission import pod_controls as controls
from atoll.admission.pod_controls import Check, Pod, Violation
from atoll.admission.problems import Problem, mapping
from atoll.model.pod_security import PREFIX

LEVELS: Final = ("privileged", "baseline", "restricted")
"""The later, the stricter."""
NEWEST: Final = 36
"""Minor version of Kubernetes whose standards `latest` means."""
_VERSION: Final = re.compile(r"v1\.(0|[1-9][0-9]{0,3})")


class Wish(NamedTuple):
    """What a namespace asks of its pods in one mode."""

    level: str
    minor: int
    shown: str
    """`level:version`, as upstream writes it."""


@dataclass(frozen=True)
class Rule:
    """A control as it holds in some versions."""

    name: str
    level: str
    check: Check
    since: int = 0
    """First minor version of Kubernetes with it."""
    until: int = NEWEST + 1
    """First minor version without it."""
    replaces: str = ""
    """The control of `baseline` that it takes the place of."""


def wish(labels: Mapping[str, str], mode: str) -> Wish | None:
    """What the labels of a namespace ask for; None where they ask for nothing.

    Args:
        labels: of the namespace.
        mode: enforce, warn or audit. Without a level of its own, `warn` is the enforced one.
    """
    level, version = labels.get(f"{PREFIX}{mode}"), labels.get(f"{PREFIX}{mode}-version")
    if level is None and mode == "warn":
        level, version = labels.get(f"{PREFIX}enforce"), version or labels.get(f"{PREFIX}enforce-version")
    if level not in LEVELS:
        # The API server takes no such label; one that is enforced is not to be lost by it.
        level = "restricted" if level and mode == "enforce" else "privileged"
    if level == "privileged":
        return None
    match = _VERSION.fullmatch(version or "")
    minor = min(int(match[1]), NEWEST) if match else NEWEST
    return Wish(level, minor, f"{level}:{match[0] if match else 'latest'}")


def problems(
    templates: Iterable[tuple[str, object]], labels: Mapping[str, str], mode: str = "enforce"
) -> Iterator[Problem]:
    """What PodSecurity has against the pods of a workload, in its words.

    Args:
        templates: (path, PodTemplateSpec) of the workload.
        labels: of its namespace.
        mode: enforce, warn or audit.
    """
    asked = wish(labels, mode)
    if asked is None:
        return
    verb = "violates" if mode == "enforce" else "would violate"
    for path, template in templates:
        for each in violations(template, asked):
            yield Problem(path, f'{verb} PodSecurity "{asked.shown}": {each}')


def violations(template: object, asked: Wish) -> list[Violation]:
    """The controls of a level and version that the pods of a template violate."""
    pod = Pod(mapping(template))
    rules = [
        rule
        for rule in RULES
        if rule.since <= asked.minor < rule.until and LEVELS.index(rule.level) <= LEVELS.index(asked.level)
    ]
    replaced = {rule.replaces for rule in rules}
    found = (rule.check(pod) for rule in rules if rule.name not in replaced)
    return [each for each in found if each is not None]


_B, _R = "baseline", "restricted"
_ENGINE: Final = (*controls.SE_LINUX, "container_engine_t")

RULES: Final = (
    Rule("appArmor", _B, controls.app_armor),
    Rule("capabilities", _B, controls.capabilities),
    Rule("host namespaces", _B, controls.host_namespaces),
    Rule("hostPath", _B, controls.host_paths),
    Rule("hostPort", _B, controls.host_ports),
    Rule("probe hosts", _B, controls.probe_hosts, since=34),
    Rule("privileged", _B, controls.privileged),
    Rule("procMount", _B, partial(controls.proc_mount, relaxed=False), until=35),
    Rule("procMount", _B, partial(controls.proc_mount, relaxed=True), since=35),
    Rule("seLinux", _B, partial(controls.se_linux, allowed=controls.SE_LINUX), until=31),
    Rule("seLinux", _B, partial(controls.se_linux, allowed=_ENGINE), since=31),
    Rule("seccomp", _B, controls.seccomp_annotations, until=19),
    Rule("seccomp", _B, controls.seccomp, since=19),
    Rule("sysctls", _B, partial(controls.sysctls, minor=0), until=27),
    Rule("sysctls", _B, partial(controls.sysctls, minor=27), since=27, until=29),
    Rule("sysctls", _B, partial(controls.sysctls, minor=29), since=29, until=32),
    Rule("sysctls", _B, partial(controls.sysctls, minor=32), since=32),
    Rule("hostProcess", _B, controls.host_process),
    Rule("escalation", _R, partial(controls.escalation, windows=True), since=8, until=25),
    Rule("escalation", _R, partial(controls.escalation, windows=False), since=25),
    Rule("dropped capabilities", _R, partial(controls.capabilities_dropped, windows=True), 22, 25, "capabilities"),
    Rule(
        "dropped capabilities", _R, partial(controls.capabilities_dropped, windows=False), 25, replaces="capabilities"
    ),
    Rule("procMount for all", _R, partial(controls.proc_mount, relaxed=False), since=35, replaces="procMount"),
    Rule("volumes", _R, controls.volumes, replaces="hostPath"),
    Rule("runAsNonRoot", _R, partial(controls.non_root, relaxed=False), until=35),
    Rule("runAsNonRoot", _R, partial(controls.non_root, relaxed=True), since=35),
    Rule("runAsUser", _R, partial(controls.root_user, relaxed=False), since=23, until=35),
    Rule("runAsUser", _R, partial(controls.root_user, relaxed=True), since=35),
    Rule("required seccomp", _R, partial(controls.seccomp_required, windows=True), 19, 25, "seccomp"),
    Rule("required seccomp", _R, partial(controls.seccomp_required, windows=False), 25, replaces="seccomp"),
)
