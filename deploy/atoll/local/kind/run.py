"""Write what `render` says, and run it where Docker and kind are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from atoll.local.kind.render import DOWN, UP, Machine, ports_needed, render
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from atoll.local.realnodes import images
from atoll.local.supervisor import run_directory

_NEEDED = {
    "docker": "https://docs.docker.com/engine/install/",
    "kind": "https://kind.sigs.k8s.io/",
    "kubectl": "https://kubernetes.io/docs/tasks/tools/",
}
_BEGUN = "host.kubeconfig"
"""What the first command of the script leaves."""


class KindError(RuntimeError):
    """The federation can't be started or taken down; the message says why."""


def directory(name: str) -> Path:
    """Folder of a federation on kind's clusters; it is there from `up` to `down`.

    Raises:
        SupervisorError: that is no name.
    """
    return run_directory(name).parents[1] / "kind" / name


def write(name: str, config: FederationConfig, *, archives: Sequence[Path] = ()) -> Path:
    """Write the files of a federation; return their folder. Nothing is run.

    Raises:
        NotOnKind: the configuration asks for what kind's clusters don't have.
    """
    folder = directory(name)
    ports = free_ports(ports_needed(config), "127.0.0.1")
    machine = Machine(str(folder), sys.executable, ports, [str(each) for each in archives])
    files = render(name, config, machine)
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / file).write_text(content)
    return folder


def up(name: str, config: FederationConfig, progress: Callable[[str], None]) -> Path:
    """Start a federation; return its folder once all members are ready. Blocks for minutes.

    Raises:
        KindError: Docker, kind or kubectl is missing or does not work, a command failed, or it was begun before.
        NotOnKind: the configuration asks for what kind's clusters don't have.
        ImageError: an image can't be built.
    """
    if (directory(name) / _BEGUN).exists():
        script = directory(name) / UP
        raise KindError(f"federation {name} was begun: bash {script} goes on, `atollctl local down` takes it down")
    if problem := missing():
        raise KindError(f"{problem}; the files are in {write(name, config)}")
    folder = write(name, config, archives=[images.build(each, progress)[1] for each in config.images])
    _run(folder / UP)
    return folder


def down(name: str) -> bool:
    """Take a federation down and remove its folder; whether there was one.

    Raises:
        KindError: a command failed; the folder stays.
    """
    folder = directory(name)
    if not folder.exists():
        return False
    _run(folder / DOWN, "processes")
    # Without these nothing else of it can run.
    if shutil.which("docker") and shutil.which("kind"):
        _run(folder / DOWN)
    shutil.rmtree(folder)
    return True


def missing() -> str:
    """What provider kind lacks on this machine, and where to have it; empty where it has all."""
    absent = [f"{name} ({url})" for name, url in _NEEDED.items() if shutil.which(name) is None]
    if absent:
        return f"provider kind needs what is not installed: {', '.join(absent)}"
    run = subprocess.run(
        ["docker", "info", "--format", "{{.ServerVersion}}"], capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        return f"provider kind needs Docker, which does not answer: {run.stderr.strip() or run.stdout.strip()}"
    return ""


def _run(script: Path, *words: str) -> None:
    if subprocess.run(["bash", str(script), *words], check=False).returncode != 0:
        raise KindError(f"{script} failed; it can be run again once the reason is gone")
