"""`ssh`: pods may log in to each other without a password; the key is made in the member and never leaves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from atoll.kinds.volcano_job.plugins.interface import JobView, Json, KeyPair, Task, Values, mount
from atoll.kinds.volcano_job.plugins.options import Option

_ROOT_PATH = "/root/.ssh"


class Ssh:
    name = "ssh"
    requires: Sequence[str] = ("svc",)
    options: Sequence[Option] = (
        Option("ssh-key-file-path", _ROOT_PATH),
        Option("ssh-private-key", ""),
        Option("ssh-public-key", ""),
        Option("ssh-port", 22),
        Option("no-root", False),
    )

    def problems(self, tasks: Mapping[str, int], values: Values) -> Sequence[str]:
        if not str(values["ssh-key-file-path"]).startswith("/"):
            return (f"--ssh-key-file-path={values['ssh-key-file-path']}: use an absolute path",)
        if values["no-root"] and values["ssh-key-file-path"] == _ROOT_PATH:
            return ("--no-root needs --ssh-key-file-path=..., a folder that the user of the containers may read",)
        if bool(values["ssh-private-key"]) != bool(values["ssh-public-key"]):
            return ("--ssh-private-key and --ssh-public-key belong together; give both, or neither for a new key",)
        return ()

    def objects(self, job: JobView, values: Values, key_pair: Callable[[], KeyPair]) -> Sequence[Json]:
        given = KeyPair(str(values["ssh-private-key"]), str(values["ssh-public-key"]))
        pair = given if given.private else key_pair()
        secret = job.made("v1", "Secret", _secret(job))
        secret["type"] = "Opaque"
        secret["stringData"] = {
            "id_rsa": pair.private,
            "id_rsa.pub": pair.public,
            "authorized_keys": pair.public,
            "config": _config(job, int(values["ssh-port"])),
        }
        return (secret,)

    def decorate(self, job: JobView, values: Values, pod: Json, task: Task, index: int) -> None:
        path = str(values["ssh-key-file-path"])
        # Files of a Secret are root's. ssh refuses a user's own key that others may read, and takes that of root.
        mode = 0o600 if path == _ROOT_PATH else 0o644
        files = [{"key": name, "path": name} for name in ("id_rsa", "id_rsa.pub", "authorized_keys", "config")]
        mount(
            pod,
            {"name": _secret(job), "secret": {"secretName": _secret(job), "defaultMode": mode, "items": files}},
            path,
        )


def _secret(job: JobView) -> str:
    return f"{job.name}-ssh"


def _config(job: JobView, port: int) -> str:
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null", f"Port {port}"]
    known = set[str]()
    for host in (host for task in job.tasks for host in job.hosts(task.name)):
        # Pods of several members have the same short names: each goes to the first.
        if (alias := host.partition(".")[0]) not in known:
            known.add(alias)
            lines += [f"Host {alias}", f"  HostName {host}"]
    return "\n".join(lines) + "\n"


PLUGIN = Ssh()
