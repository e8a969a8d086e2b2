"""The account of `atoll-descheduler` in a member."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.integration.federation import Site

MANIFEST = Path(__file__).parents[2] / "deploy" / "manifests" / "descheduler.yaml"


def account(site: Site, directory: Path, member: str, rights: Sequence[dict[str, Any]] = ()) -> Path:
    """Credentials with the rights of the manifest, these ones, and no others."""
    objects = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] != "Deployment"]
    for each in objects:
        if each["kind"] == "ClusterRole":
            each["rules"] += rights
    site.kubectl("apply", "-f", "-", cluster=member, stdin=yaml.safe_dump_all(objects))
    token = site.kubectl("create", "token", "atoll-descheduler", "-n", "atoll-system", cluster=member).strip()
    config = yaml.safe_load(site.federation.members[member].kubeconfig.read_text())
    config["users"] = [{**config["users"][0], "user": {"token": token}}]
    file = directory / "descheduler.yaml"
    file.write_text(yaml.safe_dump(config))
    return file
