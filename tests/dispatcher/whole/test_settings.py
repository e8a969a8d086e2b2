"""The core reads its timers and bounds from its settings, and its log carries them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from atoll.agent.scheduler.core import member
from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.dispatcher.core import dispatcher
from atoll.dispatcher.core.log import LOG, Begin
from atoll.dispatcher.core.settings import (
    BackfillSettings,
    CoreSettings,
    PreemptionSettings,
    ProgressSettings,
    ReasonSettings,
)
from atoll.kube.settings import leaves
from atoll.model.eventlog import LogError
from atoll.sim import replay
from tests.dispatcher.builders import (
    BACKFILL,
    NEVER,
    Scene,
    evicted,
    explained,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
    scene,
)


@pytest.mark.parametrize(
    ("tree", "folder"),
    [
        pytest.param(CoreSettings, Path(dispatcher.__file__).parent, id="the dispatcher's"),
        pytest.param(MemberCoreSettings, Path(member.__file__).parent, id="a member's"),
    ],
)
def test_each_setting_is_read_by_its_core(tree: type[CoreSettings] | type[MemberCoreSettings], folder: Path) -> None:
    # Who explains decisions, and who loads strategies, stand beside who decides.
    text = "".join(path.read_text() for path in folder.parent.rglob("*.py") if path.name != "settings.py")
    attributes = [re.sub(r"(?=[A-Z])", "_", leaf.path[-1]).lower() for leaf in leaves(tree)]
    assert [name for name in attributes if not re.search(rf"\.{name}\b", text)] == []


def test_a_gang_is_evicted_after_the_commit_timeout_of_its_core() -> None:
    s = Scene(*scene().log, settings=CoreSettings(progress=ProgressSettings(commit=5.0)))
    s.submit(make_binding("a"))
    assert names(s.run()) == ["a"]
    assert evicted(s.run(after=4.0)) == []
    [command] = s.run(after=1.5)
    assert command.decision.story[-1].text.startswith("not all of its pods were bound in m within 5 s")


def test_a_workload_is_protected_for_as_long_as_its_core_says() -> None:
    settings = CoreSettings(preemption=PreemptionSettings(protection=600.0))
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [4]), settings=settings)
    s.submit(make_binding("low").tasks(4))
    s.run()
    s.bound("low", generation=NEVER)
    s.submit(make_binding("high").tasks(4).priority(1))
    assert [evicted(s.run(after=500.0)), evicted(s.run(after=200.0))] == [[], ["low"]]


def test_a_reservation_counts_with_the_time_that_members_need() -> None:
    settings = CoreSettings(backfill=BackfillSettings(settle=7.0))
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [4]), settings=settings)
    s.submit(make_binding("runs").tasks(4).runs(100.0))
    s.run()
    begun = s.now
    s.submit(make_binding("head").tasks(4))
    s.run()
    assert s.core.reservations.made["uid-head"].at == pytest.approx(begun + 100.0 + 7.0, abs=1)


def test_no_more_reasons_are_written_at_once_than_the_burst() -> None:
    s = Scene(*scene().log, settings=CoreSettings(reasons=ReasonSettings(burst=3)))
    s.submit(*(make_binding(f"b{number}").queue("none").tasks(number + 1) for number in range(9)))
    assert len(explained(s.run())) == 3


def test_a_log_carries_the_settings_and_is_decided_again_with_them() -> None:
    settings = CoreSettings(progress=ProgressSettings(commit=5.0))
    s = Scene(*scene().log, settings=settings)
    s.submit(make_binding("a"))
    s.run()
    s.run(after=6.0)
    told = [
        line
        for event, commands in zip(s.log, s.answers, strict=True)
        for line in (LOG.encode(event), LOG.encode_answer(commands))
        if line
    ]
    assert replay.replay([LOG.encode(Begin(settings)), *told]).commands == 2
    with pytest.raises(replay.Differs):
        replay.replay([LOG.encode(Begin(CoreSettings())), *told])


def test_a_log_with_settings_that_this_version_does_not_know_is_refused() -> None:
    with pytest.raises(LogError):
        LOG.decode(b'["Begin",{"commit_timeout":30.0,"most_refusals":5}]')
    line = LOG.encode(Begin(CoreSettings()))
    with pytest.raises(LogError, match="passLimits"):
        LOG.decode(line.replace(b'"passLimit"', b'"passLimits"'))
