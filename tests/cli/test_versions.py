"""`atollctl version`: what it says of whom, and what it can't see."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.cli import versions
from atoll.cli.app import tree
from atoll.model import keys
from atoll.model.release import VERSION
from tests.cli.command_line import parse


def lease(name: str, release: str | None, holder: str = "me") -> dict[str, Any]:
    annotations = {keys.RELEASE: release} if release else {}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"holderIdentity": holder}}


def cluster(name: str, agent: str | None) -> dict[str, Any]:
    status = {"kubernetesVersion": "v1.36.3", **({"agent": {"version": agent}} if agent else {})}
    return {"metadata": {"name": name}, "status": status}


def told(data: dict[str, Any]) -> list[str]:
    return versions.text({"client": {"atoll": VERSION}, **data}).splitlines()


def test_all_of_one_version() -> None:
    leases = [lease("atoll-control", VERSION), lease("atoll-dispatcher", VERSION), lease("other", "9")]
    assert told(versions.described("v1.36.3", leases, [cluster("east", VERSION)])) == [
        f"atollctl {VERSION}",
        f"  host       Kubernetes v1.36.3, atoll-control {VERSION}, atoll-dispatcher {VERSION}",
        f"  member     east: agent {VERSION}, Kubernetes v1.36.3",
    ]


def test_what_differs_is_said_and_what_is_not_known_is_not_called_different() -> None:
    leases = [lease("atoll-control", "0.0.9"), lease("atoll-dispatcher", VERSION, holder="")]
    lines = told(versions.described("v1.36.3", leases, [cluster("east", None), cluster("west", "7.0.0")]))
    assert lines[1:] == [
        "  host       Kubernetes v1.36.3, atoll-control 0.0.9",
        "  not there  atoll-dispatcher: no such process leads",
        "  member     east: agent unknown, Kubernetes v1.36.3",
        "  member     west: agent 7.0.0, Kubernetes v1.36.3",
        f"  skew       atoll-control is 0.0.9, atollctl is {VERSION}",
        "  skew       west gets no new work: its agent is Atoll 7.0.0, and the host's processes are 0.0.9: upgrade the host"
        " first",
    ]


def test_what_may_not_be_seen_is_named() -> None:
    unseen = ("members and their agents (no right to list clusters)",)
    lines = told(versions.described("v1.36.3", None, None, unseen))
    assert lines[1:] == ["  host       Kubernetes v1.36.3", f"  not shown  {unseen[0]}"]


def test_without_a_host_the_program_says_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--version"], ["version"]):
        with pytest.raises(SystemExit) as ended:
            tree()([*words, "--kubeconfig", "/no/such/file"])
        assert ended.value.code == 0
        said = capsys.readouterr()
        assert said.out == f"atollctl {VERSION}\n"
        assert "/no/such/file: no such file" in said.err


@pytest.mark.parametrize(
    ("words", "names"),
    [
        pytest.param(["queue", "list", "-o", "wide"], {"queue": ["list"]}, id="one command of a group"),
        pytest.param(["queue", "open"], {"queue": ["open"]}, id="one that is named otherwise in the code"),
        pytest.param(["explain", "x"], {"explain": None}, id="a command"),
    ],
)
def test_no_more_of_the_tree_is_built_than_a_call_needs(words: list[str], names: dict[str, list[str] | None]) -> None:
    app = tree(words)
    found = {each.name: [one.name or one.callback.__name__ for one in each.typer_instance.registered_commands]  # type: ignore[union-attr]
             for each in app.registered_groups}  # fmt: skip
    assert {**found, **{each.name: None for each in app.registered_commands}} == names


@pytest.mark.parametrize("words", [[], ["-h"], ["quee"], ["queue", "lst"], ["queue"]])
def test_what_names_no_command_has_all_to_choose_from(words: list[str]) -> None:
    app = tree(words)
    if words[:1] == ["queue"]:
        [group] = app.registered_groups
        assert group.typer_instance is not None
        assert len(group.typer_instance.registered_commands) > 5
    else:
        assert len(app.registered_groups) + len(app.registered_commands) > 10


def test_a_call_leaves_the_whole_tree_as_it_is() -> None:
    tree(["queue", "list"])
    assert parse(["queue", "get", "x"]).params["name"] == "x"
