"""`atollctl queue` beyond one queue at a time: trees, selectors, dry runs, and an editor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.kube import errors
from atoll.model.apiresource import QUEUES
from tests import atollctl as commands
from tests.integration.command_line import atollctl
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration

EDITOR = """\
#!/bin/sh
# Each call edits by the next of the numbered programs, and keeps what it was shown.
n=$(cat {folder}/calls 2>/dev/null || echo 0)
echo $((n + 1)) > {folder}/calls
cp "$1" {folder}/shown.$n
sed -i "$(cat {folder}/program.$n)" "$1"
"""


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an editor; tests put `program.0`, `program.1`, ... there, for sed."""
    script = tmp_path / "editor"
    script.write_text(EDITOR.format(folder=tmp_path))
    script.chmod(0o755)
    monkeypatch.setenv("KUBE_EDITOR", str(script))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def left(folder: Path) -> list[dict[str, Any]]:
    """What was edited and is still there."""
    return [yaml.safe_load(each.read_text()) for each in folder.glob("atollctl-edit-*")]


async def test_a_queue_is_edited_until_the_server_takes_it(site: Site, editor: Path) -> None:
    name = await site.queue(capability={"cpu": "4"}, priority=3)
    (editor / "program.0").write_text("s/priority: 3/priority: -3/")
    (editor / "program.1").write_text("s/priority: -3/priority: 5/; s/cpu: '4'/cpu: '8'/")
    assert await atollctl(site, "queue", "edit", name) == f"queue.scheduling.volcano.sh/{name} edited\n"
    first, second = ((editor / f"shown.{n}").read_text() for n in (0, 1))
    assert yaml.safe_load(first)["spec"]["priority"] == 3
    assert "status" not in yaml.safe_load(first)
    assert "# error: Error from server" not in first
    assert "# Error from server (Invalid): " in second
    assert "spec.priority" in second.partition("apiVersion")[0]
    assert yaml.safe_load(second)["spec"]["priority"] == -3
    after = await site.host.get(QUEUES, name)
    assert (after["spec"]["priority"], after["spec"]["capability"]) == (5, {"cpu": "8"})
    assert left(editor) == []


async def test_an_edit_that_changes_nothing_or_is_given_up_changes_nothing(site: Site, editor: Path) -> None:
    name = await site.queue(priority=3)
    before = await site.host.get(QUEUES, name)
    (editor / "program.0").write_text("")
    assert await atollctl(site, "queue", "edit", name) == ""
    (editor / "program.1").write_text("s/name: .*/name: other/")
    (editor / "program.2").write_text("")
    said = await atollctl(site, "queue", "edit", name, ok=False)
    assert f"metadata.name can't be changed: it was '{name}'" in said
    assert "no valid changes were saved" in said
    assert [each["metadata"]["name"] for each in left(editor)] == ["other"]
    assert (await site.host.get(QUEUES, name))["spec"] == before["spec"]


async def test_queues_are_shown_as_a_tree_and_changed_by_label(site: Site) -> None:
    above = await site.queue("above", capability={"cpu": "8"})
    below = await site.queue("below", parent=above, deserved={"cpu": "4"})
    site.kubectl("label", "queue", above, below, f"suite={site.namespace}")
    chosen = ("-l", f"suite={site.namespace}")
    listed = await atollctl(site, "queue", "list", *chosen, "--no-headers")
    assert [line.split()[0] for line in listed.splitlines()] == [above, below]
    assert listed.splitlines()[1].startswith(f"  {below}")
    assert "cpu=4" in listed
    made = await atollctl(site, "queue", "list", *chosen, "-o", "jsonpath={.items[*].metadata.name}")
    assert made == site.kubectl("get", "queues", *chosen, "-o", "jsonpath={.items[*].metadata.name}")
    columns = "custom-columns=N:.metadata.name,CPU:.spec.capability.cpu,ALL:.spec.deserved"
    assert await atollctl(site, "queue", "list", *chosen, "-o", columns) == site.kubectl(
        "get", "queues", *chosen, "-o", columns
    )
    assert "closed\n" in await atollctl(site, "queue", "close", *chosen)
    assert (await atollctl(site, "queue", "open", above, below)).count(" open\n") == 2
    described = json.loads(await atollctl(site, "queue", "describe", above, below, "-o", "json"))
    assert [each["name"] for each in described] == [above, below]


async def test_a_dry_run_makes_nothing(site: Site) -> None:
    name = f"dry-{site.namespace}"
    said = await atollctl(site, "queue", "create", name, "--capability", "cpu=4", "--dry-run=server")
    assert said == f"queue.scheduling.volcano.sh/{name} created (server dry run)\n"
    refused = await atollctl(site, "queue", "create", name, "--parent", "nowhere", "--dry-run=server", ok=False)
    assert "nowhere" in refused
    made = await atollctl(site, "queue", "create", name, "--parent", "nowhere", "--dry-run=client", "-o", "yaml")
    assert yaml.safe_load(made)["spec"] == {"weight": 1, "parent": "nowhere"}
    with pytest.raises(errors.NotFound):
        await site.host.get(QUEUES, name)


async def test_a_name_that_is_taken_misspelt_or_below_a_closed_queue_is_told(site: Site) -> None:
    top = await site.queue("top")
    below = await site.queue("below", parent=top)
    text = await atollctl(site, "queue", "create", top, ok=False)
    assert text == f"error: queue {top} exists already: `atollctl queue update {top}` changes it\n"
    text = await atollctl(site, "available", "-q", f"{below}x", ok=False)
    assert text == f"error: there is no queue {below}x; did you mean {below}?\n"

    where = f"--kubeconfig={site.federation.host.kubeconfig}"
    await atollctl(site, "queue", "close", top)
    await atollctl(site, "queue", "close", below)
    opened = await commands.atollctl("queue", "open", below, where)
    assert (opened.code, opened.out) == (0, f"queue.scheduling.volcano.sh/{below} open\n")
    assert opened.said == (
        f"Warning: queue {top} above it is Closed, so queue {below} takes no workloads: atollctl queue open {top}\n"
    )
    assert (await commands.atollctl("queue", "open", top, where)).said == ""


async def test_a_workload_by_the_beginning_of_its_name_is_proposed(site: Site) -> None:
    await site.submit(job("train-resnet-4f2a", seconds=None))
    text = await atollctl(site, "explain", "train-resnet", ok=False)
    assert text.endswith("or pod-group/train-resnet; did you mean train-resnet-4f2a? (-n)\n")
    assert "did you mean" not in await atollctl(site, "explain", "other", ok=False)


async def test_history_of_its_user(site: Site) -> None:
    await site.submit(job("mine"))
    await site.phase("mine", "Completed")

    async def recorded() -> bool:
        return "mine" in await atollctl(site, "history", "--me")

    await until(recorded, what="its run is in the history of the user who submitted it")
    assert "mine" not in await atollctl(site, "history", "--user", "somebody-else")
    text = await atollctl(site, "history", "--me", "--user", "ann", ok=False)
    assert text == "error: --me and --user name one user each; leave one of them out\n"
