"""Atoll's own image, built here: every process starts in it, as a user without rights."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

from atoll.local.image import build, rootfs

_PROCESSES = (
    "atoll-webhook",
    "atoll-control",
    "atoll-dispatcher",
    "atoll-agent",
    "atoll-descheduler",
    "atoll-topology",
    "atollctl",
)


def test_every_process_starts_in_the_image_as_its_user(tmp_path: Path) -> None:
    built = build.build(print)
    assert built.compressed < 60_000_000
    root = tmp_path / "root"
    root.mkdir()
    with tarfile.open(built.archive) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        config = json.load(archive.extractfile(manifest[0]["Config"]))  # type: ignore[arg-type]
        for layer in manifest[0]["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as content:
                content.extractall(root, filter="fully_trusted")
    assert config["config"]["User"] == f"{rootfs.USER}:{rootfs.USER}"
    assert not [name for name in ("sh", "dash", "bash") if (root / "usr/bin" / name).exists()]
    user = f"--userspec={rootfs.USER}:{rootfs.USER}"
    for process in _PROCESSES:
        run = subprocess.run(
            ["chroot", user, str(root), f"/usr/bin/{process}", "--help"], capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout.lower().startswith("usage")
    named = {each["name"] for each in json.loads((root / rootfs.BILL).read_text())["components"]}
    assert {"libc6", "numpy", "atoll"} <= named
