"""The controls of the Pod Security Standards, one function each: violations of a pod, in PodSecurity's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from atoll.admission.problems import Json, mapping, sequence


class Violation(NamedTuple):
    """One control that a pod violates."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})"


class Pod:
    """A template as the controls look at it; wrong types are left to the schema."""

    def __init__(self, template: Json) -> None:
        self.annotations = mapping(mapping(template.get("metadata")).get("annotations"))
        self.spec = mapping(template.get("spec"))
        self.security = mapping(self.spec.get("securityContext"))
        self.containers = [
            mapping(each)
            for field in ("initContainers", "containers", "ephemeralContainers")
            for each in sequence(self.spec.get(field))
        ]
        self.volumes = [mapping(each) for each in sequence(self.spec.get("volumes"))]
        self.windows = mapping(self.spec.get("os")).get("name") == "windows"
        self.own_users = self.spec.get("hostUsers") is False
        """Whether its users are none of the node's."""

    def securities(self) -> Iterator[tuple[str, Json]]:
        """(name, securityContext) of every container."""
        for each in self.containers:
            yield str(each.get("name", "")), mapping(each.get("securityContext"))

    def naming(self, wrong: Callable[[Json], bool]) -> list[str]:
        """The containers whose securityContext is wrong."""
        return [name for name, security in self.securities() if wrong(security)]


Check = Callable[[Pod], Violation | None]


# -- baseline ----------------------------------------------------------------------------------------------------------


def host_process(pod: Pod) -> Violation | None:
    def wrong(security: Json) -> bool:
        return mapping(security.get("windowsOptions")).get("hostProcess") is True

    who = _setters(wrong(pod.security), pod.naming(wrong))
    return (
        Violation("hostProcess", f"{who} must not set securityContext.windowsOptions.hostProcess=true") if who else None
    )


def host_namespaces(pod: Pod) -> Violation | None:
    found = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(field) is True]
    return Violation("host namespaces", ", ".join(found)) if found else None


def privileged(pod: Pod) -> Violation | None:
    found = pod.naming(lambda security: security.get("privileged") is True)
    return (
        Violation("privileged", f"{_containers(found)} must not set securityContext.privileged=true") if found else None
    )


_CAPABILITIES: Final = frozenset(
    ("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
     "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT")
)  # fmt: skip


def _added(pod: Pod, allowed: frozenset[str]) -> tuple[list[str], list[str]]:
    """(containers, capabilities) that add forbidden ones."""
    names, forbidden = [], set()
    for name, security in pod.securities():
        added = {str(each) for each in sequence(mapping(security.get("capabilities")).get("add"))} - allowed
        if added:
            names.append(name)
            forbidden |= added
    return names, sorted(forbidden)


def capabilities(pod: Pod) -> Violation | None:
    names, forbidden = _added(pod, _CAPABILITIES)
    if not names:
        return None
    text = f"{_containers(names)} must not include {_quoted(forbidden)} in securityContext.capabilities.add"
    return Violation("non-default capabilities", text)


def host_paths(pod: Pod) -> Violation | None:
    found = [str(each.get("name", "")) for each in pod.volumes if each.get("hostPath") is not None]
    return Violation("hostPath volumes", f"{_plural('volume', found)} {_quoted(found)}") if found else None


def host_ports(pod: Pod) -> Violation | None:
    names, ports = [], set()
    for each in pod.containers:
        used = {str(port) for item in sequence(each.get("ports")) if (port := mapping(item).get("hostPort"))}
        if used:
            names.append(str(each.get("name", "")))
            ports |= used
    if not names:
        return None
    verb = "uses" if len(names) == 1 else "use"
    return Violation("hostPort", f"{_containers(names)} {verb} {_plural('hostPort', ports)} {', '.join(sorted(ports))}")


def probe_hosts(pod: Pod) -> Violation | None:
    names, hosts = set(), set()
    for each in pod.containers:
        cycle = mapping(each.get("lifecycle"))
        handlers = [each.get(field) for field in ("livenessProbe", "readinessProbe", "startupProbe")]
        for handler in (*handlers, cycle.get("postStart"), cycle.get("preStop")):
            for how in ("httpGet", "tcpSocket"):
                if host := mapping(mapping(handler).get(how)).get("host"):
                    names.add(str(each.get("name", "")))
                    hosts.add(str(host))
    if not names:
        return None
    verb = "uses" if len(names) == 1 else "use"
    text = f"{_containers(sorted(names))} {verb} {_plural('probe or lifecycle host', hosts)} {_quoted(sorted(hosts))}"
    return Violation("probe or lifecycle host", text)


_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_PROFILES: Final = ("RuntimeDefault", "Localhost")


def app_armor(pod: Pod) -> Violation | None:
    who, values = _profiles(pod, "appArmorProfile")
    notes = sorted(
        f"{key}={_go_quoted(str(text))}"
        for key, text in pod.annotations.items()
        if key.startswith(_APP_ARMOR) and text not in ("", "runtime/default") and not str(text).startswith("localhost/")
    )
    if notes:
        who, values = " and ".join(filter(None, (who, _plural("annotation", notes)))), [*values, *notes]
    if not who:
        return None
    return Violation(
        _plural("forbidden AppArmor profile", values), f"{who} must not set AppArmor profile type to {_quoted(values)}"
    )


def _profiles(pod: Pod, field: str) -> tuple[str, list[str]]:
    """(who, values) of profiles that are neither the runtime's nor the node's."""
    values: set[str] = set()

    def wrong(security: Json) -> bool:
        profile = security.get(field)
        if not isinstance(profile, dict) or profile.get("type") in _PROFILES:
            return False
        values.add(str(profile.get("type", "")))
        return True

    return _setters(wrong(pod.security), pod.naming(wrong)), sorted(values)


SE_LINUX: Final = ("", "container_t", "container_init_t", "container_kvm_t")


def se_linux(pod: Pod, *, allowed: tuple[str, ...]) -> Violation | None:
    types: set[str] = set()
    fields: set[str] = set()

    def wrong(security: Json) -> bool:
        options = mapping(security.get("seLinuxOptions"))
        kind, named = str(options.get("type") or ""), {field for field in ("user", "role") if options.get(field)}
        if kind not in allowed:
            types.add(kind)
        fields.update(named)
        return kind not in allowed or bool(named)

    who = _setters(wrong(pod.security), pod.naming(wrong))
    parts = [f"{_plural('type', types)} {_quoted(sorted(types))}"] if types else []
    parts += [f"{field} may not be set" for field in ("user", "role") if field in fields]
    return (
        Violation("seLinuxOptions", f"{who} set forbidden securityContext.seLinuxOptions: {'; '.join(parts)}")
        if who
        else None
    )


def proc_mount(pod: Pod, *, relaxed: bool) -> Violation | None:
    """`relaxed`: whether pods with users of their own may mount anything."""
    if relaxed and pod.own_users:
        return None
    values: set[str] = set()

    def wrong(security: Json) -> bool:
        kind = security.get("procMount")
        if kind in (None, "Default"):
            return False
        values.add(str(kind))
        return True

    found = pod.naming(wrong)
    if not found:
        return None
    return Violation(
        "procMount", f"{_containers(found)} must not set securityContext.procMount to {_quoted(sorted(values))}"
    )


_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_OF: Final = "container.seccomp.security.alpha.kubernetes.io/"


def seccomp_annotations(pod: Pod) -> Violation | None:
    keys = [_SECCOMP, *(f"{_SECCOMP_OF}{each.get('name', '')}" for each in pod.containers)]
    found = {
        f"{key}={_go_quoted(str(text))}"
        for key in keys
        if (text := pod.annotations.get(key)) is not None
        and text not in ("runtime/default", "docker/default")
        and not str(text).startswith("localhost/")
    }
    if not found:
        return None
    return Violation("seccompProfile", f"forbidden {_plural('annotation', found)} {', '.join(sorted(found))}")


def seccomp(pod: Pod) -> Violation | None:
    who, values = _profiles(pod, "seccompProfile")
    if not who:
        return None
    return Violation("seccompProfile", f"{who} must not set securityContext.seccompProfile.type to {_quoted(values)}")


_SYSCTLS: Final = (
    (0, ("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
         "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start")),
    (27, ("net.ipv4.ip_local_reserved_ports",)),
    (29, ("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
          "net.ipv4.tcp_keepalive_probes")),
    (32, ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")),
)  # fmt: skip
"""(since, sysctls that are safe)."""


def sysctls(pod: Pod, *, minor: int) -> Violation | None:
    safe = {name for since, names in _SYSCTLS if since <= minor for name in names}
    asked = [str(mapping(each).get("name", "")) for each in sequence(pod.security.get("sysctls"))]
    found = [name for name in asked if name not in safe]
    return Violation("forbidden sysctls", ", ".join(found)) if found else None


# -- restricted --------------------------------------------------------------------------------------------------------

_VOLUMES: Final = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
)  # fmt: skip


def volumes(pod: Pod) -> Violation | None:
    bad: list[str] = []
    kinds: set[str] = set()
    for each in pod.volumes:
        # One that names no source is an emptyDir.
        sources = [key for key, value in each.items() if key != "name" and value is not None]
        if sources and not set(sources) & set(_VOLUMES):
            bad.append(str(each.get("name", "")))
            kinds.add(sources[0])
    if not bad:
        return None
    verb = "uses" if len(bad) == 1 else "use"
    what = f"restricted volume {_plural('type', kinds)} {_quoted(sorted(kinds))}"
    return Violation("restricted volume types", f"{_plural('volume', bad)} {_quoted(bad)} {verb} {what}")


def escalation(pod: Pod, *, windows: bool) -> Violation | None:
    """`windows`: whether it holds for pods of Windows."""
    if pod.windows and not windows:
        return None
    found = pod.naming(lambda security: security.get("allowPrivilegeEscalation") is not False)
    if not found:
        return None
    text = f"{_containers(found)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", text)


def non_root(pod: Pod, *, relaxed: bool) -> Violation | None:
    """`relaxed`: whether pods with users of their own may run as root."""
    if relaxed and pod.own_users:
        return None
    field = "runAsNonRoot"
    who = _setters(pod.security.get(field) is False, pod.naming(lambda each: each.get(field) is False))
    if who:
        return Violation("runAsNonRoot != true", f"{who} must not set securityContext.runAsNonRoot=false")
    silent = [] if pod.security.get(field) is True else pod.naming(lambda each: each.get(field) is None)
    if not silent:
        return None
    return Violation("runAsNonRoot != true", f"pod or {_containers(silent)} must set securityContext.runAsNonRoot=true")


def root_user(pod: Pod, *, relaxed: bool) -> Violation | None:
    """`relaxed`: as in `_non_root`."""
    if relaxed and pod.own_users:
        return None

    def wrong(security: Json) -> bool:
        return security.get("runAsUser") == 0 and security["runAsUser"] is not False

    who = _setters(wrong(pod.security), pod.naming(wrong))
    return Violation("runAsUser=0", f"{who} must not set runAsUser=0") if who else None


def seccomp_required(pod: Pod, *, windows: bool) -> Violation | None:
    """`windows`: whether it holds for pods of Windows."""
    if pod.windows and not windows:
        return None
    if found := seccomp(pod):
        return found
    if isinstance(pod.security.get("seccompProfile"), dict):
        return None
    silent = pod.naming(lambda each: not isinstance(each.get("seccompProfile"), dict))
    if not silent:
        return None
    text = (
        f'pod or {_containers(silent)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    )
    return Violation("seccompProfile", text)


def capabilities_dropped(pod: Pod, *, windows: bool) -> Violation | None:
    """`windows`: whether it holds for pods of Windows."""
    if pod.windows and not windows:
        return None
    keeping = pod.naming(lambda each: "ALL" not in sequence(mapping(each.get("capabilities")).get("drop")))
    adding, forbidden = _added(pod, frozenset(("NET_BIND_SERVICE",)))
    parts = []
    if keeping:
        parts.append(f'{_containers(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        where = "in securityContext.capabilities.add"
        parts.append(f"{_containers(adding)} must not include {_quoted(forbidden)} {where}")
    return Violation("unrestricted capabilities", "; ".join(parts)) if parts else None


# -- words -------------------------------------------------------------------------------------------------------------


def _plural(word: str, things: object) -> str:
    return word if len(things) == 1 else f"{word}s"  # type: ignore[arg-type]


def _go_quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _containers(names: list[str]) -> str:
    return f"{_plural('container', names)} {_quoted(names)}"


def _setters(pod: bool, containers: list[str]) -> str:
    """Who sets something: the pod, containers, or both; empty where none does."""
    return " and ".join([*(["pod"] if pod else []), *([_containers(containers)] if containers else [])])
