"""Workloads as they are made for members with different placers."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.kinds import Kind, Part, batch_job, metadata, volcano_job
from atoll.model import keys
from atoll.model.flavors import Assigned
from atoll.model.placer import TOLERATION, MadeFor, Placer, Unplaceable

Json = dict[str, Any]
GATE = {"name": keys.GANG_GATE}


def batch(**pod: Any) -> dict[str, Any]:
    template = {"metadata": {"annotations": {"a": "b"}}, "spec": {"schedulerName": "atoll", **pod}}
    return {"metadata": {"name": "j", "labels": {"x": "y"}}, "spec": {"suspend": False, "template": template}}


def volcano(scheduler: str = "", **pod: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"queue": "q", "tasks": [{"name": "w", "template": {"spec": pod}}]}
    return {"metadata": {"name": "j"}, "spec": {**spec, **({"schedulerName": scheduler} if scheduler else {})}}


@pytest.mark.parametrize(
    ("placer", "scheduler", "gates"),
    [
        pytest.param(Placer.ATOLL, "atoll", None, id="ours binds"),
        pytest.param(Placer.KUBE_SCHEDULER, "default-scheduler", [GATE], id="kube-scheduler binds what we let go"),
        pytest.param(Placer.VOLCANO, "volcano", None, id="Volcano's binds"),
    ],
)
def test_pods_name_their_scheduler(placer: Placer, scheduler: str, gates: list[Any] | None) -> None:
    how = MadeFor(placer)
    pod = batch_job.KIND.placed(batch(), how)["spec"]["template"]["spec"]
    assert (pod["schedulerName"], pod.get("schedulingGates")) == (scheduler, gates)
    for named in ("", "volcano", "atoll"):
        spec = volcano_job.KIND.placed(volcano(named), how)["spec"]
        pod = spec["tasks"][0]["template"]["spec"]
        assert (spec["schedulerName"], pod["schedulerName"], pod.get("schedulingGates")) == (
            scheduler,
            scheduler,
            gates,
        )


def test_a_scheduler_of_its_own_stays() -> None:
    how = MadeFor(Placer.KUBE_SCHEDULER)
    spec = volcano_job.KIND.placed(volcano("mine"), how)["spec"]
    assert (spec["schedulerName"], spec["tasks"][0]["template"]["spec"]) == ("mine", {})
    pod = batch_job.KIND.placed(batch(schedulerName="mine"), how)["spec"]["template"]["spec"]
    assert pod == {"schedulerName": "mine"}


def test_gates_of_others_stay_and_ours_is_there_once() -> None:
    given = [{"name": "other"}, GATE]
    pod = batch_job.KIND.placed(batch(schedulingGates=given), MadeFor(Placer.KUBE_SCHEDULER))["spec"]["template"][
        "spec"
    ]
    assert pod["schedulingGates"] == given


def test_the_queue_of_the_member_is_named() -> None:
    how = MadeFor(Placer.VOLCANO, "team")
    assert volcano_job.KIND.placed(volcano(), how)["spec"]["queue"] == "team"
    template = batch_job.KIND.placed(batch(), how)["spec"]["template"]
    assert template["metadata"]["annotations"] == {"a": "b", keys.QUEUE_ANNOTATION: "team"}
    assert volcano_job.KIND.placed(volcano(), MadeFor())["spec"]["queue"] == "q"


def test_kueue_gets_it_suspended_and_in_its_queue() -> None:
    made = batch_job.KIND.placed(batch(), MadeFor(Placer.KUEUE, "local"))
    assert (made["spec"]["suspend"], made["metadata"]["labels"]) == (True, {"x": "y", keys.KUEUE_QUEUE_LABEL: "local"})
    assert made["spec"]["template"]["spec"] == {"schedulerName": "default-scheduler"}
    with pytest.raises(Unplaceable, match="member-queue"):
        batch_job.KIND.placed(batch(), MadeFor(Placer.KUEUE))
    with pytest.raises(Unplaceable, match="does not know Volcano Jobs"):
        volcano_job.KIND.placed(volcano(), MadeFor(Placer.KUEUE, "local"))


def test_pods_tolerate_the_taint_of_nodes_that_are_atolls() -> None:
    how = MadeFor(tolerates=True)
    own = {"key": "own", "operator": "Exists"}
    pod = volcano_job.KIND.placed(volcano(tolerations=[own]), how)["spec"]["tasks"][0]["template"]["spec"]
    assert pod["tolerations"] == [own, dict(TOLERATION)]
    assert "tolerations" not in batch_job.KIND.placed(batch(), MadeFor())["spec"]["template"]["spec"]


FLAVORS = [
    Assigned(
        "nvidia.com/gpu", "h100", ["main", "worker"], [{"key": "gpu", "operator": "In", "values": ["h100"]}]
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("own", "terms"),
    [
        pytest.param({}, [{"matchExpressions": FLAVORS[0].nodes}], id="no affinity"),
        pytest.param(
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
            ]}}},
            [{"matchExpressions": [{"key": "zone", "operator": "Exists"}, *FLAVORS[0].nodes]}],
            id="one of its own",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [volcano_job.KIND, batch_job.KIND], ids=["Volcano Job", "batch Job"])
def test_pods_are_kept_to_the_nodes_of_their_flavor(kind: Kind, own: Json, terms: list[Json]) -> None:
    template = {"spec": {"containers": [{"name": "c"}], "affinity": {**own, "podAffinity": {}}}}
    launcher = {"name": "launcher", "replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}
    spec = {"tasks": [{"name": "worker", "replicas": 1, "template": template}, launcher], "template": template}
    obj = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "spec": spec}
    obj["metadata"] = {"name": "j", "namespace": "n"}
    counts = {"worker": 1, "launcher": 1, "main": 1}
    made = kind.rewrite(obj, Part("m", counts, 1, flavors=FLAVORS))["spec"]
    pod = (made["tasks"][0]["template"] if "tasks" in made and kind is volcano_job.KIND else made["template"])["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == terms
    assert pod["affinity"]["podAffinity"] == {}
    if kind is volcano_job.KIND:
        assert "affinity" not in made["tasks"][1]["template"]["spec"], "it asks for no GPU"


@pytest.mark.parametrize(
    ("asked", "grace", "made"),
    [
        pytest.param(31_536_000, 60, 60, id="cut"),
        pytest.param(30, 60, 30, id="less is kept"),
        pytest.param(None, 60, None, id="nothing is added"),
        pytest.param(31_536_000, None, 31_536_000, id="of an earlier version's dispatch as it is"),
    ],
)
def test_pods_end_in_time_and_wait_for_nothing(asked: int | None, grace: int | None, made: int | None) -> None:
    spec = {} if asked is None else {"terminationGracePeriodSeconds": asked}
    template = {"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/keep"]}, "spec": spec}
    found = metadata.ending_in_time(template, grace)
    assert found["spec"].get("terminationGracePeriodSeconds") == made
    assert found["metadata"].get("finalizers") == (["example.com/keep"] if grace is None else None)
    assert found["metadata"]["labels"] == {"a": "b"}
