"""A recorded log is decided again with the same result, and a changed one is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.agent.scheduler.core import Event as MemberEvent
from atoll.agent.scheduler.core import MemberCore
from atoll.agent.scheduler.core import Pass as MemberPass
from atoll.agent.scheduler.core.events import NodeSet, PodSet, Whose
from atoll.agent.scheduler.core.log import LOG as MEMBER_LOG
from atoll.agent.scheduler.core.log import MemberBegin
from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.dispatcher.core import Pass, QueueSet, QueueView
from atoll.dispatcher.core.log import LOG, Begin
from atoll.dispatcher.core.settings import CoreSettings
from atoll.kube.recording import LogWriter
from atoll.kube.settings import Recording
from atoll.model.eventlog import Answer, LogError
from atoll.model.lost import OnLost
from atoll.sim import presence, replay, simulation
from atoll.sim.inputs import InputError
from atoll.sim.jobs import GPU
from tests.agent.builders import make_node, make_pod
from tests.sim.builders import make_job, make_member


@pytest.fixture(name="log", scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "core.log"
    jobs = [make_job(f"j{n}", float(n), 20.0, pods=1 + n % 3, gpu=4, divided=n % 4 == 0) for n in range(20)]
    members = [make_member("a", nodes=2, tiers=(1, 2)), make_member("b", nodes=2)]
    outages = (presence.Outage("b", 30.0, 60.0),)
    with LogWriter(path, LOG) as recorder:
        simulation.run(
            members,
            [QueueView("q", {})],
            jobs,
            GPU,
            simulation.Options(outages=outages, lost=OnLost.REQUEUE),
            recorder=recorder,
        )
    return path


def test_a_fresh_core_answers_the_same(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main([str(log)]) == 0
    assert "1 core: all answers are the same" in capsys.readouterr().out


def test_every_line_is_read_back_as_it_was(log: Path) -> None:
    for line in log.read_bytes().splitlines(keepends=True):
        entry = LOG.decode(line)
        again = LOG.encode_answer(entry.commands) if isinstance(entry, Answer) else LOG.encode(entry)
        assert LOG.decode(again) == entry


def test_another_answer_is_noticed(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if line.startswith(b'["Commands"'))
    with pytest.raises(replay.Differs, match="line"):
        replay.replay([*lines[:at], lines[at].replace(b'"epoch":0', b'"epoch":7'), *lines[at + 1 :]])
    with pytest.raises(replay.Differs, match="0 commands recorded"):
        replay.replay([*lines[:at], *lines[at + 1 :]])


def test_a_log_cut_off_in_the_middle_of_a_line_is_read_up_to_it(log: Path, capsys: pytest.CaptureFixture) -> None:
    content = log.read_bytes()
    half = content[: len(content) // 2]
    lines = half.splitlines(keepends=True)
    done = replay.replay(lines)
    assert (done.events > 0, done.cut) == (True, len(lines))
    log.write_bytes(half)
    assert replay.main([str(log)]) == 0
    assert f"line {len(lines)}, the last, is cut off: it was left out" in capsys.readouterr().out


def test_what_is_no_log_is_said_so() -> None:
    with pytest.raises(InputError, match=r"line 1: .*unknown type"):
        replay.replay([b'["Nonsense", {}]\n'])
    with pytest.raises(InputError, match="before the line that begins a core"):
        replay.replay([LOG.encode(Pass(1.0))])
    with pytest.raises(LogError, match="not a line"):
        LOG.decode(b"{}\n")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(b"", "nothing to replay", id="an empty log"),
        pytest.param(b"# later", "nothing to replay", id="half a line"),
        pytest.param(LOG.encode(Begin(CoreSettings())), "nothing to replay", id="a core that was told nothing"),
        pytest.param(b"# later\n", "line 1: not a line of an event log", id="a comment"),
        pytest.param(b"\xff\xfe\n", "line 1: not a line of an event log", id="no text"),
        pytest.param(b"\n", "line 1: not a line of an event log", id="an empty line"),
    ],
)
def test_a_log_without_events_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, says: str
) -> None:
    path = tmp_path / "core.log"
    path.write_bytes(content)
    assert replay.main([str(path)]) == 1
    shown = capsys.readouterr()
    assert f"{path}: {says}" in shown.err
    assert not shown.out


def test_a_log_that_is_not_there_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main([str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == f"{tmp_path / 'none'}: No such file or directory\n"
    assert replay.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"{tmp_path}: Is a directory\n"


def test_a_log_holds_several_cores(tmp_path: Path) -> None:
    for _ in range(2):
        with LogWriter(tmp_path / "log", LOG) as recorder:
            recorder.begin(Begin(CoreSettings()))
            recorder.record(QueueSet(QueueView("q", {})), [])
    with (tmp_path / "log").open("rb") as file:
        assert replay.replay(file) == replay.Replayed(2, 0, 2)
    assert LOG.decode(LOG.encode(Begin(CoreSettings()))) == Begin(CoreSettings())


def test_a_log_goes_on_where_a_process_that_was_killed_left_it(log: Path, tmp_path: Path) -> None:
    """1. A leader is killed while it writes. 2. The next one appends to the same file. 3. All of it is replayed."""
    whole = log.read_bytes()
    answered = whole.index(b"\n", whole.index(b'["Commands"'))
    for length in (len(whole) // 2, answered, answered - 10, whole.index(b'["Commands"'), 5):
        path = tmp_path / str(length)
        path.write_bytes(whole[:length])
        with LogWriter(path, LOG) as recorder:
            recorder.begin(Begin(CoreSettings()))
            recorder.record(Pass(1.0), [])
        with path.open("rb") as file:
            done = replay.replay(file)
        assert done.cores == (2 if length > 5 else 1)


def test_only_the_owner_may_read_a_log(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log", LOG) as recorder:
        recorder.begin(Begin(CoreSettings()))
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_term_begins_a_new_file_where_the_last_one_is_large(tmp_path: Path) -> None:
    for term in range(5):
        with LogWriter(tmp_path / "log", LOG, settings=Recording(rotated_at=10, kept=2)) as recorder:
            recorder.begin(Begin(CoreSettings()))
            recorder.record(Pass(float(term)), [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1", "log.2"]
    assert [b'"now":%d.0' % term in (tmp_path / name).read_bytes() for term, name in ((4, "log"), (3, "log.1"))]
    assert replay.main([str(tmp_path / "log.1")]) == 0


def test_a_term_is_not_recorded_without_end(tmp_path: Path) -> None:

    def fill(recorder: LogWriter) -> None:
        for now in range(1000):
            recorder.record(Pass(float(now)), [])

    with LogWriter(tmp_path / "log", LOG, settings=Recording(longest_term=5000)) as recorder:
        recorder.begin(Begin(CoreSettings()))
        with pytest.raises(OSError, match="5000 bytes"):
            fill(recorder)


def test_the_log_of_a_member_is_decided_again_and_another_answer_is_noticed(tmp_path: Path) -> None:
    core = MemberCore()
    told: list[MemberEvent] = [NodeSet(make_node("n")), PodSet(make_pod("p", gpu=8), Whose.OURS), MemberPass(1.0)]
    with LogWriter(tmp_path / "log", MEMBER_LOG) as recorder:
        recorder.begin(MemberBegin("m", MemberCoreSettings()))
        for event in told:
            recorder.record(event, core.handle(event))
    lines = (tmp_path / "log").read_bytes().splitlines(keepends=True)
    assert replay.replay(lines) == replay.Replayed(3, 1, 1)
    with pytest.raises(replay.Differs, match="recorded Bind"):
        replay.replay([*lines[:-1], lines[-1].replace(b'"n"', b'"m"')])
