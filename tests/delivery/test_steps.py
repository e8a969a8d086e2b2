"""The next step for a Work follows from the Work, the object in the member, and the caches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from atoll.delivery.memory import WorkMemory
from atoll.delivery.steps import Look, Step, step
from atoll.delivery.work import Workload, WorkObject, WorkSpec
from atoll.kinds import BY_GVK
from atoll.model import keys
from atoll.model.objects import Full, Meta, OwnerReference

KIND = BY_GVK["batch.volcano.sh/v1alpha1", "Job"]
OURS = {keys.BINDING_UID: "b", keys.EPOCH: "3"}


def a_work(notes: dict[str, str] | None = None, *, going: bool = False, **spec: Any) -> WorkObject:
    meta = Meta(
        name="w", annotations={**OURS, **(notes or {})}, deletion_timestamp="2026-01-01T00:00:00Z" if going else None
    )
    return WorkObject(meta, WorkSpec(Workload([{"kind": "Job"}]), **spec))


def an_object(notes: dict[str, str], *owners: OwnerReference) -> Full:
    return Full(Meta(name="j", namespace="n", annotations=notes, owner_references=list(owners)), {})


NEW = Look(a_work(), "", KIND, None, 3, crd_missing=False, created_unseen=False)
ENDED = {"manifestStatuses": [{"status": {"state": {"phase": "Completed"}}}]}
OWNED = OwnerReference(kind="CronJob", name="c", uid="c", controller=True)
OVERWRITE = {keys.CONFLICT_RESOLUTION: "overwrite"}


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        pytest.param(NEW, Step.DELIVER, id="nothing there"),
        pytest.param(replace(NEW, problem="not ours"), Step.TURN_AWAY, id="a stranger"),
        pytest.param(replace(NEW, problem="not ours", work=a_work(going=True)), Step.LET_GO, id="a stranger that goes"),
        pytest.param(replace(NEW, kind=None), Step.UNSERVED, id="a kind without a cache"),
        pytest.param(replace(NEW, work=a_work(going=True)), Step.WITHDRAW, id="a Work that goes"),
        pytest.param(replace(NEW, work=a_work({keys.FINAL: "true"})), Step.NOTHING, id="about to be deleted"),
        pytest.param(replace(NEW, newest=4), Step.NOTHING, id="an older epoch"),
        pytest.param(replace(NEW, work=a_work(suspend_dispatching=True)), Step.RESERVE, id="to be held"),
        pytest.param(replace(NEW, crd_missing=True), Step.NO_CRD, id="no CRD"),
        pytest.param(
            replace(NEW, work=msgspec.structs.replace(a_work(), status=ENDED)), Step.NOTHING, id="ended and removed"
        ),
        pytest.param(replace(NEW, created_unseen=True), Step.AWAIT_CACHE, id="created a moment ago"),
        pytest.param(replace(NEW, found=an_object(OURS)), Step.FOLLOW, id="there"),
        pytest.param(replace(NEW, found=an_object({**OURS, keys.EPOCH: "2"})), Step.REPLACE, id="of an older epoch"),
        pytest.param(
            replace(NEW, found=an_object({**OURS, keys.BINDING_UID: "a"})), Step.REPLACE, id="of another binding"
        ),
        pytest.param(replace(NEW, found=an_object({})), Step.NAME_TAKEN, id="somebody's"),
        pytest.param(replace(NEW, work=a_work(OVERWRITE), found=an_object({})), Step.OVERWRITE, id="to be overwritten"),
        pytest.param(
            replace(NEW, work=a_work(OVERWRITE), found=an_object({}, OWNED)), Step.NAME_TAKEN, id="a controller's"
        ),
    ],
)
def test_step(look: Look, expected: Step) -> None:
    assert step(look) is expected


def test_created_object_is_awaited_for_its_dispatch_and_time_alone() -> None:
    memory = WorkMemory(created=("b", 3, 10.0))
    assert memory.created_unseen(a_work(), 9.0)
    assert not memory.created_unseen(a_work(), 10.0)
    assert not memory.created_unseen(a_work({keys.EPOCH: "4"}), 9.0)
    assert not WorkMemory().created_unseen(a_work(), 0.0)
