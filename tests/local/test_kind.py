"""A federation on kind's clusters, as files: this machine needs neither Docker nor kind for that."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from atoll.cli.app import tree
from atoll.local import kind
from atoll.local.layout import FederationConfig, Member, default_config

MACHINE = kind.Machine("/srv/my fed", "/opt/atoll/bin/python", range(9000, 9020))
EAST = {
    "name": "east",
    "real_nodes": 3,
    "labels": {"gpu": "h100"},
    "allow_exec": True,
    "kubernetes": {"feature_gates": {"DynamicResourceAllocation": True}},
    "topology": {"tiers": [{"name": "rack", "size": 2}, {"name": "root", "size": 2}]},
}
CONFIG = FederationConfig.model_validate(
    {"members": [EAST, {"name": "west", "real_nodes": 1, "placer": "volcano", "push": True}]}
)


def words(script: str, *begin: str) -> list[list[str]]:
    """Commands of a script that begin so."""
    lines = [shlex.split(line) for line in script.splitlines() if line and not line.startswith(("#", " "))]
    return [line for line in lines if line[: len(begin)] == list(begin)]


def test_each_cluster_has_a_configuration_with_its_nodes() -> None:
    files = kind.render("try", CONFIG, MACHINE)
    assert yaml.safe_load(files["east.yaml"]) == {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": "atoll-try-east",
        "featureGates": {"DynamicResourceAllocation": True},
        "networking": {"ipFamily": "ipv4", "apiServerAddress": "127.0.0.1"},
        "nodes": [{"role": "control-plane"}] + [{"role": "worker", "labels": {"atoll.sh/node": "real"}}] * 3,
    }
    assert [each["role"] for each in yaml.safe_load(files["host.yaml"])["nodes"]] == ["control-plane"]


def test_hyper_nodes_name_the_nodes_as_kind_does() -> None:
    racks = list(yaml.safe_load_all(kind.render("try", CONFIG, MACHINE)["east-hypernodes.yaml"]))
    named = [[each["selector"]["exactMatch"]["name"] for each in rack["spec"]["members"]] for rack in racks]
    assert named == [
        ["atoll-try-east-worker", "atoll-try-east-worker2"],
        ["atoll-try-east-worker3"],
        ["east-rack-0", "east-rack-1"],
    ]


def test_clusters_come_before_init_and_init_before_the_members_join() -> None:
    up = kind.render("try", CONFIG, MACHINE)["up.sh"]
    assert words(up, "cluster") == [["cluster", f"atoll-try-{name}", name] for name in ("host", "east", "west")]
    begins = ["cluster atoll-try-west", "docker network inspect", "-m atoll.cli init", "-m atoll.cli join east",
              "apply -f east-hypernodes.yaml", "start atoll-webhook", "start atoll-agent-west", "wait --for"]  # fmt: skip
    assert sorted(begins, key=up.index) == begins


def test_members_join_with_what_their_layout_says() -> None:
    east, west = words(kind.render("try", CONFIG, MACHINE)["up.sh"], MACHINE.python, "-m", "atoll.cli", "join")
    assert set(east[4:]) >= {
        "east", "--placer=atoll", "--nodes=!node-role.kubernetes.io/control-plane", "--allow-exec", "--label=gpu=h100",
        "--member-kubeconfig=east.kubeconfig",
    }  # fmt: skip
    assert {"--placer=volcano", "--beside-host"} <= set(west)
    assert not [each for each in west if each.startswith(("--nodes", "--label", "--allow"))]


def test_each_process_has_a_port_of_its_own_and_the_webhook_the_one_that_init_names() -> None:
    up = kind.render("try", CONFIG, MACHINE)["up.sh"]
    started = words(up, "start")
    assert [each[1] for each in started] == [
        "atoll-webhook", "atoll-control", "atoll-dispatcher", "atoll-agent-east", "atoll-agent-west"
    ]  # fmt: skip
    ports = [each.partition("=")[2] for line in started for each in line if "-port=" in each]
    assert len(ports) == len(set(ports)) == 7
    assert "--port=9000" in started[0]
    assert '--webhook-url="https://$gateway:9000"' in up


def test_images_go_to_every_member() -> None:
    machine = kind.Machine("/f", "python", range(9000, 9020), ["/cache/a b.tar"])
    loads = words(kind.render("try", CONFIG, machine)["up.sh"], "kind", "load", "image-archive")
    assert [line[3:] for line in loads] == [["/cache/a b.tar", "--name", f"atoll-try-{m}"] for m in ("east", "west")]


def test_down_ends_the_processes_and_removes_every_cluster() -> None:
    down = kind.render("try", CONFIG, MACHINE)["down.sh"]
    assert [line[-1] for line in words(down, "kind", "delete")] == [f"atoll-try-{m}" for m in ("east", "west", "host")]


@pytest.mark.parametrize("script", ["up.sh", "down.sh"])
def test_scripts_are_well_formed(script: str) -> None:
    text = kind.render("try", CONFIG, MACHINE)[script]
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    assert "cd '/srv/my fed'" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": {"count": 4}}, "a: nodes: simulated"),
        ({"real_nodes": 0}, "a: real_nodes: it needs one"),
        ({"scheduler": False}, "a: scheduler"),
        ({"node_lease_seconds": 9}, "a: strict_kubelets and node_lease_seconds"),
        ({"kubernetes": {"version": "1.33"}}, "a: kubernetes.version and flags"),
    ],
)
def test_what_kind_does_not_have_is_refused(change: dict[str, Any], said: str) -> None:
    config = FederationConfig(members=[Member.model_validate({"name": "a", "real_nodes": 1, **change})])
    with pytest.raises(kind.NotOnKind, match=said):
        kind.render("try", config, MACHINE)


def test_what_is_wrong_is_said_at_once() -> None:
    with pytest.raises(kind.NotOnKind) as error:
        kind.render("try", default_config(members=2).model_copy(update={"raised_limits": True}), MACHINE)
    assert len(str(error.value).splitlines()) == 1 + 1 + 2 * 2


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_without_docker_and_kind_it_is_said_which_are_missing_and_where_the_files_are(
    state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: "/bin/kubectl" if name == "kubectl" else None)
    with pytest.raises(kind.KindError, match=r"docker \(https.*kind \(https") as error:
        kind.up("try", CONFIG, lambda _: None)
    assert str(state_home / "atoll" / "kind" / "try") in str(error.value)
    assert (kind.directory("try") / "up.sh").exists()
    (kind.directory("try") / "host.kubeconfig").touch()
    with pytest.raises(kind.KindError, match=r"was begun: bash .*/up.sh goes on"):
        kind.up("try", CONFIG, lambda _: None)
    assert kind.down("try")
    assert not kind.directory("try").exists()


def test_files_alone_are_written_and_nothing_is_run(state_home: Path) -> None:
    runner = CliRunner()
    wanted = ["local", "up", "--provider", "kind", "--files-only", "--name", "try", "--members", "2"]
    result = runner.invoke(tree(), wanted)
    assert result.exit_code == 0, result.output
    assert "written, and not run" in result.output
    folder = state_home / "atoll" / "kind" / "try"
    assert {each.name for each in folder.iterdir()} == {
        "host.yaml", "member1.yaml", "member2.yaml", "up.sh", "down.sh"
    }  # fmt: skip
    assert (
        yaml.safe_load((folder / "member2.yaml").read_text())["nodes"][1:]
        == [{"role": "worker", "labels": {"atoll.sh/node": "real"}}] * kind.KIND_NODES
    )
