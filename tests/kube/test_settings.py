"""Settings: where they come from, which wins, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest

from atoll.kube.settings import Election, Health, ProcessSettings, leaves, load
from atoll.model.settings import words


class Example(ProcessSettings, frozen=True):
    name: Annotated[str, words("Of the example.", flag="--name", needed=True)] = ""
    election: Election = Election()
    health: Health = Health(port=8082)


def read(*argv: str) -> Example:
    return load(Example, "example", "An example.", ["--name=a", *argv])


def test_defaults_are_those_of_the_process() -> None:
    assert read() == Example(name="a")
    assert read().health.port == 8082


def test_a_flag_wins_over_the_environment_that_over_the_file_and_that_over_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("drain: 1\nlogLevel: debug\nelection: {lease: 30, renewDeadline: 20}\n")
    monkeypatch.setenv("ATOLL_EXAMPLE__ELECTION__RENEW_DEADLINE", "12")
    monkeypatch.setenv("ATOLL_EXAMPLE__DRAIN", "2")
    found = read(f"--config={file}", "--drain-seconds=3")
    assert (found.drain, found.log_level) == (3.0, "debug")
    assert found.election == Election(lease=30.0, renew_deadline=12.0)


def test_any_setting_has_a_flag() -> None:
    assert read("--set", "election.retryPeriod=0.5", "--set=drain=7").election.retry_period == 0.5


def test_a_flag_of_its_own_wins_over_set() -> None:
    assert read("--drain-seconds=3", "--set=drain=7").drain == 3.0


def test_variables_of_a_service_and_of_other_processes_are_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes tells each pod of the Services of its namespace so."""
    monkeypatch.setenv("ATOLL_EXAMPLE_PORT", "tcp://10.0.0.1:443")
    monkeypatch.setenv("ATOLL_OTHER__NAME", "b")
    assert read() == Example(name="a")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--set=election.leese=3"], "--set election.leese=3: there is no such setting; did you mean election.lease?"),
        (["--set=port=3"], "did you mean health.port?"),
        (["--set=drain"], "--set drain: write KEY=VALUE"),
        (["--lease-seconds=3"], "election: 2 * retryPeriod (2) < renewDeadline (10) < lease (3) must hold"),
        (["--kube-api-burst=3"], "api: burst (--kube-api-burst) means nothing without qps (--kube-api-qps)"),
        (["--health-port=x"], "--health-port: health.port can't be 'x': Expected int, got str"),
        (["--health-port=70000"], "health.port can't be '70000': Expected int <= 65535"),
        (["--drain-seconds=0"], "drain can't be '0': Expected float > 0.0"),
        (["--drain-seconds=nan"], "drain can't be 'nan'"),
        (["--log-level=loud"], "logLevel can't be 'loud': choose debug, info, warning, error"),
        (["--config=/nowhere.yaml"], "--config /nowhere.yaml: No such file or directory"),
        (["--name="], "name is needed: give --name, or set ATOLL_EXAMPLE__NAME"),
    ],
)
def test_what_is_wrong_is_refused_with_where_it_is(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read(*argv)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("electon: {lease: 3}", "electon: there is no such setting; did you mean election?"),
        (
            "election: {renew_deadline: 3}",
            "election.renew_deadline: there is no such setting; did you mean election.renewDeadline?",
        ),
        ("health: 8080", "health holds 8080: names of settings with their values go there"),
        ("drain: soon", "drain can't be 'soon': Expected float, got str"),
        ("drain: '5'", "drain can't be '5'"),
        ("[drain]", "the file holds"),
        ("a: [", "is no YAML"),
    ],
)
def test_a_file_with_something_wrong_is_refused(
    content: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    with pytest.raises(SystemExit):
        read(f"--config={file}")
    assert says in capsys.readouterr().err


def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ATOLL_EXAMPLE__HEALTH__PROT", "1")
    with pytest.raises(SystemExit):
        read()
    assert "did you mean ATOLL_EXAMPLE__HEALTH__PORT?" in capsys.readouterr().err


def test_what_is_printed_is_a_file_that_gives_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ("--drain-seconds=3", "--set=election.lease=20", "--kube-api-qps=7.5", "--health-host=::")
    with pytest.raises(SystemExit) as ended:
        read(*wanted, "--print-config")
    assert not ended.value.code
    printed = capsys.readouterr().out
    assert "drain: 3  # s, from --drain-seconds\n" in printed
    file = tmp_path / "config.yaml"
    file.write_text(printed)
    assert read(f"--config={file}") == read(*wanted)


def test_each_setting_says_what_it_is_for() -> None:
    assert all(leaf.meta.description for leaf in leaves(Example))
    assert [leaf.variable("example") for leaf in leaves(Election)][1] == "ATOLL_EXAMPLE__RENEW_DEADLINE"
