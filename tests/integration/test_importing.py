"""`atollctl import`: a real API server with Atoll's CRDs and admission takes the output."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from atoll.model.apiresource import QUEUES
from tests.cli.import_samples import KUEUE, VOLCANO
from tests.integration.command_line import atollctl
from tests.integration.federation import Site

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("system", "manifests", "leaf"), [("kueue", KUEUE, "vision-jobs"), ("volcano", VOLCANO, "below")]
)
async def test_the_host_takes_imported_queues(
    site: Site, tmp_path: Path, system: str, manifests: str, leaf: str
) -> None:
    source, output = tmp_path / "theirs.yaml", tmp_path / "ours.yaml"
    source.write_text(manifests)
    found = list(yaml.safe_load_all(await atollctl(site, "import", system, "-f", str(source))))
    # Flavors are of the whole host, which other tests share: the API server reads them, and keeps none.
    shared = [each for each in found if each["metadata"]["name"] == "root"]
    output.write_text(yaml.safe_dump_all(shared))
    if shared:
        site.kubectl("apply", "--validate=strict", "--dry-run=server", "-f", str(output))
    own = [each for each in found if each not in shared]
    for each in own:
        for amounts in (each.get("spec", {}).get(name, {}) for name in ("deserved", "capability")):
            for resource in [one for one in amounts if "@" in one]:
                del amounts[resource]
    output.write_text(yaml.safe_dump_all(own))
    try:
        site.kubectl("apply", "--validate=strict", "-f", str(output))
        queues = {each["metadata"]["name"]: each for each in await site.host.list(QUEUES)}
        wanted = next(each for each in own if each["metadata"]["name"] == leaf)
        assert queues[leaf]["spec"]["parent"] == wanted["spec"]["parent"]
    finally:
        for each in reversed(own):
            site.kubectl("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found")
