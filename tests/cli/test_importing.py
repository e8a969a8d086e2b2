"""`atollctl import`: each field of Kueue's and Volcano's objects becomes a field of Atoll's, or a note."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from atoll.cli import import_kueue, import_volcano
from atoll.cli.errors import CommandError
from atoll.cli.imported import Imported, flattened
from tests.cli.import_samples import KUEUE, VOLCANO

Json = dict[str, Any]


def kueue(text: str = KUEUE) -> Imported:
    return import_kueue.imported(flattened(list(yaml.safe_load_all(text))))


def volcano(text: str = VOLCANO) -> Imported:
    return import_volcano.imported(flattened(list(yaml.safe_load_all(text))))


def cluster_queue(**spec: Any) -> Imported:
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}
    return import_kueue.imported([obj])


def volcano_queue(meta: Json | None = None, status: Json | None = None, **spec: Any) -> Imported:
    head = {"name": "q", **(meta or {})}
    obj = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": head, "spec": spec}
    return import_volcano.imported([{**obj, **({"status": status} if status else {})}])


def named(found: Imported, name: str) -> Json:
    return next(each for each in found.objects if each["metadata"]["name"] == name)


@pytest.mark.parametrize(
    ("name", "field", "expected"),
    [
        pytest.param("research", "deserved", {"cpu": "31500m"}, id="a cohort deserves its own quota and all below it"),
        pytest.param("vision", "parent", "research", id="a ClusterQueue is below its cohort in the older version"),
        pytest.param("text", "parent", "research", id="a ClusterQueue is below its cohort in the newer version"),
        pytest.param(
            "vision", "guarantee", {"resource": {"cpu": "12"}}, id="a queue keeps its quota less the lending limit"
        ),
        pytest.param(
            "research", "guarantee", {"resource": {"cpu": "12"}}, id="a cohort guarantees what its queues keep"
        ),
        pytest.param("vision-jobs", "parent", "vision", id="a LocalQueue is a queue below, so that labels stay"),
        pytest.param("vision-jobs", "dequeueStrategy", "fifo", id="a LocalQueue has the strategy of its ClusterQueue"),
        pytest.param("text", "weight", 3, id="a whole fair-sharing weight becomes the weight"),
    ],
)
def test_a_spec_of_kueue_becomes_a_spec_of_atoll(name: str, field: str, expected: object) -> None:
    spec = named(kueue(), name)["spec"]
    got = spec[field]
    if isinstance(expected, dict) and field == "deserved":
        got = {"cpu": got["cpu"]}
    assert got == expected


def test_flavors_of_kueue_become_flavors_of_the_root_queue_and_quotas_by_flavor() -> None:
    found = kueue()
    notes = named(found, "root")["metadata"]["annotations"]
    assert notes["atoll.sh/flavors"] == '{"nvidia.com/gpu":{"h100":"gpu=h100","a100":"gpu=a100"}}'
    deserved = named(found, "vision")["spec"]["deserved"]
    assert deserved == {"cpu": "20", "nvidia.com/gpu": "24", "nvidia.com/gpu@h100": "8", "nvidia.com/gpu@a100": "16"}
    assert named(found, "vision")["spec"]["capability"] == {"cpu": "25"}


def test_a_resource_that_a_cluster_queue_does_not_cover_has_capability_0() -> None:
    assert named(kueue(), "text")["spec"]["capability"]["nvidia.com/gpu"] == "0"


def test_parents_come_before_their_children_and_flavors_before_their_quotas() -> None:
    names = [each["metadata"]["name"] for each in kueue().objects]
    assert names == ["urgent", "root", "research", "vision", "text", "vision-jobs"]


def test_a_queue_is_open_to_the_namespaces_with_a_local_queue_that_its_cluster_queue_selects() -> None:
    text = named(kueue(), "text")["metadata"]["annotations"]["atoll.sh/namespace-selector"]
    assert yaml.safe_load(text) == {
        "matchLabels": {"team": "b"},
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["words"]}],
    }


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        pytest.param({"stopPolicy": "Hold"}, "atollctl queue close q", id="a stopped queue is to be closed"),
        pytest.param({"surprise": 1}, "field surprise is not known", id="an unknown field"),
        pytest.param({"admissionChecksStrategy": {"admissionChecks": []}}, "admissionChecksStrategy: no", id="checks"),
        pytest.param({"preemption": {}}, "reclaimWithinCohort Never", id="a queue that reclaims nothing"),
        pytest.param({}, "withinClusterQueue Never", id="a queue that preempts nothing, by default"),
        pytest.param({}, "without namespaceSelector", id="a queue without users"),
        pytest.param(
            {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}},
            "whenCanBorrow TryNextFlavor",
            id="order of flavors",
        ),
        pytest.param({"fairSharing": {"weight": "0.5"}}, "weight 0.5 is left out", id="a broken weight"),
        pytest.param(
            {"concurrentAdmissionPolicy": {"migration": {}}}, "concurrentAdmissionPolicy: no", id="concurrent admission"
        ),
        pytest.param({"excludeResourcePrefixes": ["x"]}, "excludeResourcePrefixes: no", id="excluded resources"),
    ],
)
def test_a_field_of_kueue_without_counterpart_is_named(spec: Json, note: str) -> None:
    assert any(note in line for line in cluster_queue(**spec).notes)


@pytest.mark.parametrize(
    "note",
    [
        pytest.param("atollctl topology discover --kueue racks", id="the topology of a flavor"),
        pytest.param("ResourceFlavor a100: tolerations are not added", id="the tolerations of a flavor"),
        pytest.param("label its workloads kueue.x-k8s.io/queue-name=text", id="a LocalQueue named default"),
        pytest.param("kubectl annotate namespace words atoll.sh/fair-weight=2", id="the weight of a LocalQueue"),
        pytest.param("atollctl queue close text", id="a stopped LocalQueue"),
        pytest.param("set priorityClassName in pod templates", id="a WorkloadPriorityClass"),
    ],
)
def test_an_object_of_kueue_with_a_difference_names_what_to_do(note: str) -> None:
    assert any(note in line for line in kueue().notes)


def test_volcano_queues_come_with_every_quota_and_their_parents_first() -> None:
    found = volcano()
    assert [each["metadata"]["name"] for each in found.objects] == ["high", "above", "below"]
    assert named(found, "below")["spec"] == yaml.safe_load(VOLCANO.split("---")[0])["spec"]
    assert named(found, "high")["preemptionPolicy"] == "Never"
    assert found.notes == []


@pytest.mark.parametrize(
    ("found", "note"),
    [
        pytest.param(volcano_queue(type="x"), "type has no effect", id="a type"),
        pytest.param(volcano_queue(affinity={"a": 1}), "node groups have no effect", id="an affinity"),
        pytest.param(volcano_queue(dequeueStrategy="fifo"), "fifo acts in Atoll", id="a strategy"),
        pytest.param(volcano_queue(extendClusters=[{"name": "a", "weight": 1}]), "only members", id="clusters"),
        pytest.param(volcano_queue(parent="gone"), "create that Queue first", id="a parent that is elsewhere"),
        pytest.param(volcano_queue(status={"state": "Closed"}), "atollctl queue close q", id="a closed queue"),
        pytest.param(volcano_queue({"annotations": {"volcano.sh/hierarchy": "a"}}), "volcano.sh/hierarchy", id="HDRF"),
        pytest.param(volcano_queue(surprise=1), "field surprise is not known", id="an unknown field"),
    ],
)
def test_a_field_of_volcano_without_counterpart_is_named(found: Imported, note: str) -> None:
    assert any(note in line for line in found.notes)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"resourceGroups": 3}, id="a list that is a number"),
        pytest.param(
            {
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": -1}]}],
                    }
                ]
            },
            id="a negative quota",
        ),
    ],
)
def test_an_object_that_cant_be_read_is_an_error_that_names_it(spec: Json) -> None:
    with pytest.raises(CommandError, match="ClusterQueue q"):
        cluster_queue(**spec)


def test_a_limit_of_a_cohort_names_its_reach() -> None:
    found = kueue(KUEUE.replace("nominalQuota: 10}", "nominalQuota: 10, borrowingLimit: 5}"))
    assert any("bound its own quota alone" in line for line in found.notes)
    assert not any("bound its own quota alone" in line for line in kueue().notes)


def test_cohorts_in_a_circle_are_an_error() -> None:
    text = "---".join(
        f"\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {{name: {a}}}\nspec: {{parentName: {b}}}\n"
        for a, b in (("x", "y"), ("y", "x"))
    )
    with pytest.raises(CommandError, match="circle"):
        kueue(text)
