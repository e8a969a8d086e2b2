"""The gang of a part, which travels with its Work, and the manifest beside it ask for the same."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.delivery.work import Workload, WorkObject, WorkSpec, gang_of
from atoll.kinds import Kind, Part, batch_job, volcano_job
from atoll.model import gang, keys
from atoll.model.flavors import Assigned
from atoll.model.objects import Meta
from tests.kinds.builders import make_batch_job, make_job, make_task

H100 = Assigned("nvidia.com/gpu", "h100", ["w"], [{"key": "gpu", "operator": "In", "values": ["h100"]}])
TWO_TASKS = make_job(make_task("driver", 1), make_task("w", 8, minimum=4), minAvailable=5)


@pytest.mark.parametrize(
    ("kind", "workload", "part"),
    [
        (volcano_job.KIND, TWO_TASKS, Part("east", {"driver": 1, "w": 8}, 5, {"driver": 1, "w": 4})),
        (volcano_job.KIND, TWO_TASKS, Part("east", {"driver": 0, "w": 3}, 2, {"driver": 0, "w": 2}, 2)),
        (volcano_job.KIND, TWO_TASKS, Part("east", {"driver": 1, "w": 8}, 5, {"driver": 1, "w": 4}, flavors=[H100])),
        (
            batch_job.KIND,
            make_batch_job(parallelism=4, completions=4),
            Part("east", {"main": 2}, 2, {"main": 2}, 2),
        ),
    ],
    ids=["whole", "a part without one of the tasks", "kept to the nodes of a flavor", "half of a batch Job"],
)
def test_a_part_asks_for_what_its_manifest_does(kind: Kind, workload: dict[str, Any], part: Part) -> None:
    travels = part.gang(kind.gang(workload, priority=7))
    derived = kind.gang(kind.rewrite(workload, part), priority=7)
    assert (travels.tasks, travels.min_available) == (derived.tasks, derived.min_available)


def test_an_elastic_workload_in_one_member_asks_for_the_pods_that_it_was_given() -> None:
    """Its manifest names all of its replicas, as all are to run in the end."""
    part = Part("east", {"driver": 1, "w": 5}, 5, {"driver": 1, "w": 4})
    travels = part.gang(volcano_job.KIND.gang(TWO_TASKS, priority=0))
    assert [task.replicas for task in travels.tasks] == [1, 5]
    assert volcano_job.KIND.gang(volcano_job.KIND.rewrite(TWO_TASKS, part), priority=0).replicas == 9


@pytest.mark.parametrize("annotation", [None, "no gang"])
def test_the_gang_of_a_work_that_has_none_is_that_of_its_manifest(annotation: str | None) -> None:
    notes = {keys.GANG: annotation} if annotation is not None else {}
    work = WorkObject(metadata=Meta(annotations=notes), spec=WorkSpec(Workload([TWO_TASKS])))
    assert gang_of(work, volcano_job.KIND) == volcano_job.KIND.gang(TWO_TASKS, priority=0)


def test_the_gang_of_a_work_is_the_one_that_travels_with_it() -> None:
    part = Part("east", {"w": 3}, 2, {"w": 2}, 2).gang(volcano_job.KIND.gang(TWO_TASKS, priority=3))
    work = WorkObject(metadata=Meta(annotations={keys.GANG: gang.encode(part)}), spec=WorkSpec(Workload([TWO_TASKS])))
    assert gang_of(work, volcano_job.KIND) == part
