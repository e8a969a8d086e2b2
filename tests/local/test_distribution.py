"""How tests are spread over processes: see conftest.py."""

from __future__ import annotations

from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.conftest import TOGETHER, WORTH_A_FEDERATION, ByFile, Needs, needs, uses_federation


class Config:
    """Of pytest's, what the scheduler reads."""

    class option:
        loadscopereorder = False
        verbose = 0

    def getvalue(self, name: str) -> list[str]:
        assert name == "tx"
        return ["3*popen"]


class Process:
    """One that runs what it is sent, when the test says so."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.sent: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def spread(monkeypatch: pytest.MonkeyPatch, files: dict[str, Needs], *, quick: int) -> list[list[str]]:
    """The files that each of three processes runs, three tests each; the process `quick` runs three as others run one."""
    monkeypatch.setattr(conftest, "needs", files.__getitem__)
    tests = [f"{file}::test_{number}" for file in files for number in range(3)]
    made: Any = ByFile(Config(), None)  # type: ignore[arg-type]
    processes = [Process(number) for number in range(3)]
    for each in processes:
        made.add_node(each)
    for each in processes:
        made.add_node_collection(each, tests)
    made.schedule()
    ran: list[list[str]] = [[] for _ in processes]
    for turn in range(5 * len(tests)):
        at = (0, 1, 2, quick, quick)[turn % 5]
        each = processes[at]
        # As in a real process, the last test runs once there is another, or no more will come.
        if len(each.sent) > 1 or (each.sent and each.shutting_down):
            index = each.sent.pop(0)
            ran[at].append(tests[index])
            made.mark_test_complete(each, index)
    assert sorted(test for each in ran for test in each) == sorted(tests)
    return [list(dict.fromkeys(test.partition("::")[0] for test in each)) for each in ran]


@pytest.mark.parametrize(
    ("amount", "quick", "federations"),
    [
        (30, 0, 2),
        (WORTH_A_FEDERATION - 1, 1, 1),
        (WORTH_A_FEDERATION + 10, 1, 2),
        (WORTH_A_FEDERATION + 10, 2, 2),
        (1, 2, 1),
    ],
)
def test_a_second_federation_is_started_for_many_files_alone(
    monkeypatch: pytest.MonkeyPatch, amount: int, quick: int, federations: int
) -> None:
    others = {f"own{n}": Needs.OWN for n in range(4)} | {f"pure{n}": Needs.NOTHING for n in range(4)}
    files = {f"fed{n}": Needs.SESSION for n in range(amount)} | others
    ran = spread(monkeypatch, files, quick=quick)
    using = [Counter(files[file] for file in each)[Needs.SESSION] for each in ran]
    assert using[0] > 0
    assert sum(count > 0 for count in using) == federations, using


def test_files_that_use_the_sessions_federation_are_told_from_those_with_their_own(
    request: pytest.FixtureRequest,
) -> None:
    """As pytest itself sees it, of all tests that were collected."""
    uses: defaultdict[str, bool] = defaultdict(bool)
    for item in request.session.items:
        assert isinstance(item, pytest.Function)
        found = item._fixtureinfo.name2fixturedefs.get("federation")
        file = item.nodeid.partition("::")[0]
        uses[file] |= found[-1].baseid == "tests" if found else False
    assert {file: uses_federation(file) for file in uses} == uses


def test_no_file_with_api_servers_is_taken_for_one_without(request: pytest.FixtureRequest) -> None:
    files = {item.nodeid.partition("::")[0] for item in request.session.items if item.get_closest_marker("integration")}
    assert [file for file in files if needs(file) is Needs.NOTHING] == []


def test_files_that_share_a_server_run_in_one_process(request: pytest.FixtureRequest) -> None:
    sharing = {
        item.nodeid.partition("::")[0]
        for item in request.session.items
        if "bare_host" in getattr(item, "fixturenames", ())
    }
    assert len({TOGETHER.get(file, file) for file in sharing}) <= 1
