"""What a real node is configured with, what it needs of the machine, and images without a registry."""

from __future__ import annotations

import ipaddress
import json
import tarfile
from pathlib import Path

import pytest
import yaml

from atoll.local import layout
from atoll.local.realnodes import images, requirements
from atoll.local.realnodes.network import MOST_NODES, Network


def test_each_node_has_an_address_and_a_range_for_its_pods_that_no_other_has() -> None:
    network = Network("b", ipaddress.IPv4Network("100.64.16.0/20"))
    taken = {ipaddress.IPv4Address(network.gateway)}
    for index in range(MOST_NODES):
        first, last = (ipaddress.IPv4Address(each) for each in network.pods(index))
        mine = {
            ipaddress.IPv4Address(network.node(index)),
            *map(ipaddress.IPv4Address, range(int(first), int(last) + 1)),
        }
        assert not mine & taken
        assert all(each in network.subnet for each in mine)
        taken |= mine


def test_real_nodes_are_leaves_of_the_tree_and_are_not_made_for_kwok() -> None:
    tiers = [layout.Tier(name="rack", size=2), layout.Tier(name="root", size=2)]
    member = layout.Member(
        name="a", nodes=[layout.NodeGroup(count=2)], real_nodes=1, topology=layout.Topology(tiers=tiers)
    )
    assert member.node_names() == ["a-n0", "a-n1", "a-real0"]
    assert [each["metadata"]["name"] for each in layout.node_objects(member)] == ["a-n0", "a-n1"]
    racks = [each for each in layout.hypernode_objects(member) if each["spec"]["tier"] == 1]
    assert [len(each["spec"]["members"]) for each in racks] == [2, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"strict_kubelets": True}, "real_nodes or strict_kubelets"),
        ({"real_nodes": 16}, "less than or equal to 15"),
        ({"nodes": {"count": 1, "prefix": "a-real"}}, "same node name"),
    ],
)
def test_what_does_not_go_with_real_nodes_is_refused(change: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        layout.Member.model_validate({"name": "a", "real_nodes": 1, **change})


def test_a_machine_without_the_packages_is_told_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(requirements.Missing, match=r"apt-get install --no-install-recommends no-such-a no-such-b$"):
        requirements.check({"no-such-program-b": "no-such-b", "no-such-program-a": "no-such-a"})
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(requirements.Missing, match="need root"):
        requirements.check()


@pytest.mark.parametrize(
    ("script", "steps", "reason"),
    [
        pytest.param('touch "$BIN/wanted"; chmod +x "$BIN/wanted"', ["install"], "", id="what is missing is installed"),
        pytest.param(
            '[ -e "$BIN/fresh" ] && touch "$BIN/wanted" && chmod +x "$BIN/wanted" && exit 0\n'
            '[ $step = update ] && touch "$BIN/fresh" && exit 0\necho "E: Unable to locate package pkg" >&2; exit 100',
            ["install", "update", "install"], "", id="lists of packages that are too old are brought up to date",
        ),
        pytest.param(
            'echo "W: no network" >&2; echo "E: Failed to fetch http://x  Could not connect" >&2; exit 100',
            ["install", "update", "install"], "E: Failed to fetch http://x  Could not connect",
            id="without a network the reason is given",
        ),
    ],
)  # fmt: skip
def test_missing_packages_are_installed_by_root_where_there_is_apt_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, steps: list[str], reason: str
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(
        f'#!/bin/bash\nBIN={tmp_path}\nfor step in "$@"; do case $step in install|update) break;; esac; done\n'
        f'echo $step >> "$BIN/steps"\n{script}\n'
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    said: list[str] = []
    wanted = {"wanted": "pkg"}
    if reason:
        with pytest.raises(requirements.Missing, match="could not be installed") as caught:
            requirements.provide(wanted, said.append)
        assert str(caught.value).endswith(reason)
    else:
        requirements.provide(wanted, said.append)
        assert said[-1] == "installed"
    assert said[0] == "installing Debian packages, once: pkg"
    assert (tmp_path / "steps").read_text().split() == steps
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    requirements.provide({"other": "pkg"}, said.append)
    assert (tmp_path / "steps").read_text().split() == steps, "who may not install is told the command by check()"


def recipe(folder: Path, **content: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "image.yaml").write_text(yaml.safe_dump(content))
    return folder


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "name: Field required"),
        ({"name": "busybox"}, "a lower-case name and a tag"),
        ({"name": "a/b:1", "debian": ["ok", "--reinstall x"]}, "'--reinstall x' is not a name of a Debian package"),
        ({"name": "a/b:1", "package": ["x"]}, "package: Extra inputs"),
    ],
)
def test_a_recipe_that_is_wrong_is_refused_with_its_field(tmp_path: Path, content: dict, words: str) -> None:
    with pytest.raises(images.ImageError, match=words):
        images.build(recipe(tmp_path, **content), print)


@pytest.mark.skipif(images.busybox() is None, reason="needs Debian's busybox-static")
def test_an_image_is_an_archive_as_docker_saves_it_and_is_built_once_per_content(tmp_path: Path) -> None:
    environ = {"ATOLL_CACHE": str(tmp_path / "cache")}
    folder = recipe(tmp_path / "image", name="example.org/tool:2", command=["/tool"], env={"A": "b"})
    (folder / "files").mkdir()
    (folder / "files" / "tool").write_text("#!/bin/sh\necho tool\n")
    (folder / "files" / "tool").chmod(0o755)
    said: list[str] = []
    name, archive = images.build(folder, said.append, environ)
    assert name == "example.org/tool:2"
    with tarfile.open(archive) as tar:
        manifest = json.load(tar.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        config = json.load(tar.extractfile(manifest["Config"]))  # type: ignore[arg-type]
        with tarfile.open(fileobj=tar.extractfile(manifest["Layers"][-1])) as layer:
            tool = layer.getmember("tool")
    assert manifest["RepoTags"] == ["example.org/tool:2"]
    assert config["config"]["Cmd"] == ["/tool"]
    assert "A=b" in config["config"]["Env"]
    assert len(config["rootfs"]["diff_ids"]) == len(manifest["Layers"]) == 2
    assert (tool.mode & 0o777, tool.uid, tool.uname) == (0o755, 0, "root")
    assert images.build(folder, said.append, environ)[1] == archive
    assert said[-1].endswith("built before")
    (folder / "files" / "tool").write_text("#!/bin/sh\necho another\n")
    assert images.build(folder, said.append, environ)[1] != archive


@pytest.mark.parametrize(
    ("begin", "made"),
    [
        (b"#!/opt/tools/.venv/bin/python\nimport x\n", b"#!/usr/bin/python3\nimport x\n"),
        (
            b"#!/bin/sh\n'''exec' /a/very/long/path/python \"$0\" \"$@\"\n' '''\nimport x\n",
            b"#!/usr/bin/python3\nimport x\n",
        ),
        (b"#!/bin/sh\necho python\n", b"#!/bin/sh\necho python\n"),
        (b"\x7fELF\x00#!/usr/bin/python\n", b"\x7fELF\x00#!/usr/bin/python\n"),
    ],
    ids=["a program", "one of a long path", "a shell's", "no script"],
)
def test_programs_of_wheels_are_run_by_the_python_of_the_image(begin: bytes, made: bytes) -> None:
    assert images.for_image(begin) == made
