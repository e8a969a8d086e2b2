"""Fractions of devices, and names that nobody has."""

from __future__ import annotations

import orjson
import pytest

from atoll.kinds.batch_job import admission as batch_job
from atoll.kinds.volcano_job import admission as jobs
from atoll.model import keys
from atoll.webhook import queues, resources
from tests.webhook.builders import Json, cached, make_job, make_queue, with_container

GPU = "nvidia.com/gpu"


def member(**allocatable: str) -> resources.Cluster:
    return resources.decode_cluster(
        orjson.dumps({"metadata": {"name": "m"}, "status": {"resourceSummary": {"allocatable": allocatable}}})
    )


MEMBERS = [member(**{"cpu": "8", GPU: "4"}), member()]


@pytest.mark.parametrize(
    ("queue", "fields"),
    [
        pytest.param(make_queue(capability={GPU: "1.5"}), [f"spec.capability.{GPU}"], id="capability"),
        pytest.param(make_queue(deserved={GPU: "500m"}), [f"spec.deserved.{GPU}"], id="deserved"),
        pytest.param(
            make_queue(guarantee={"resource": {GPU: 0.5}}), [f"spec.guarantee.resource.{GPU}"], id="guarantee"
        ),
        pytest.param(
            make_queue(extendClusters=[{"name": "m", "capacity": {GPU: "2.5"}}]),
            [f"spec.extendClusters[0].capacity.{GPU}"],
            id="a ceiling in a member",
        ),
        pytest.param(make_queue(capability={"pods": "1.5"}), ["spec.capability.pods"], id="pods"),
        pytest.param(make_queue(capability={"cpu": "1.5", GPU: "2000m"}), [], id="of a CPU, and a whole number"),
    ],
)
def test_quotas_in_fractions_of_devices_are_refused(queue: Json, fields: list[str]) -> None:
    assert [problem.field for problem in queues.validate_queue(queue, lambda _: None)] == fields


@pytest.mark.parametrize(
    ("names", "others", "words"),
    [
        pytest.param(["nvidia.com/gpus"], [], ["no member has nvidia.com/gpus; did you mean nvidia.com/gpu?"], id="s"),
        pytest.param(["gpu"], [], ["no member has gpu; did you mean nvidia.com/gpu?"], id="without its vendor"),
        pytest.param(
            ["example.com/tpu"],
            [],
            ["no member has example.com/tpu; there are cpu, ephemeral-storage, memory, nvidia.com/gpu, pods"],
            id="like nothing that is there",
        ),
        pytest.param([GPU, "cpu", "memory", "pods", "hugepages-2Mi"], [], [], id="what there is"),
        pytest.param(["nvidia.com/gpus"], ["nvidia.com/gpus"], [], id="another queue names it, too"),
    ],
)
def test_resources_that_no_member_has(names: list[str], others: list[str], words: list[str]) -> None:
    found = resources.unknown([("f", name) for name in names], MEMBERS, others)
    assert [problem.message for problem in found] == words


def test_nothing_is_unknown_while_no_member_has_reported() -> None:
    assert not list(resources.unknown([("f", "nvidia.com/gpus")], [member()]))


def test_the_resources_that_objects_name() -> None:
    queue = make_queue(
        capability={"cpu": 1, "atoll.sh/any-gpu-milli": 1000},
        deserved={"a.b/c": 1},
        guarantee={"resource": {"d.e/f": 1}},
        extendClusters=[{"name": "m", "capacity": {"g.h/i": 1}}],
    )
    assert dict(resources.of_queue(queue)) == {
        "spec.capability.cpu": "cpu",
        "spec.deserved.a.b/c": "a.b/c",
        "spec.guarantee.resource.d.e/f": "d.e/f",
        "spec.extendClusters[0].capacity.g.h/i": "g.h/i",
    }
    assert cached(queue).resources == {"cpu", "a.b/c", "d.e/f", "atoll.sh/any-gpu-milli"}
    job = with_container(resources={"limits": {GPU: 1, "cpu": 2}, "requests": {"cpu": 1}})
    assert [name for _, name in of_job(job)] == [GPU, "cpu"]
    batch = {"spec": {"template": job["spec"]["tasks"][0]["template"]}}
    path = f"spec.template.spec.containers[0].resources.limits.{GPU}"
    assert next(iter(resources.of_templates(batch_job.ADMISSION.templates(batch)))) == (path, GPU)
    assert not list(of_job(make_job()))


def of_job(job: Json) -> list[tuple[str, str]]:
    return list(resources.of_templates(jobs.ADMISSION.templates(job)))


# -- flavors -----------------------------------------------------------------------------------------------------------

FLAVORED = {keys.FLAVORS: '{"nvidia.com/gpu": {"h100": "gpu=h100", "a100": "gpu=a100"}}'}


def root(**annotations: str) -> Json:
    return {**make_queue("root"), "metadata": {"name": "root", "annotations": annotations}}


def problems(queue: Json, *others: Json) -> list[str]:
    known = {each["metadata"]["name"]: cached(each) for each in others}
    below = {"root": [each for name, each in known.items() if name != "root"]}
    return [str(each) for each in queues.validate_queue(queue, known.get, lambda name: below.get(name, []))]


def test_quotas_of_flavors_are_taken() -> None:
    queue = make_queue(capability={f"{GPU}@h100": 2, f"{GPU}@other": 1}, deserved={f"{GPU}@h100": 1})
    assert problems(queue, root(**FLAVORED)) == []
    assert problems(root(**FLAVORED), queue) == []
    names = [("f", name) for _, name in resources.of_queue(queue)]
    assert not list(resources.unknown(names, MEMBERS)), "members know the resource, not its flavors"


@pytest.mark.parametrize(
    ("queue", "others", "words"),
    [
        pytest.param(
            make_queue(capability={f"{GPU}@h200": 2}), [root(**FLAVORED)],
            f"spec.capability.{GPU}@h200: there is no flavor 'h200' of {GPU}: there are h100, a100, other (annotation"
            " atoll.sh/flavors of queue root names them)",
            id="a flavor that there is not",
        ),
        pytest.param(
            make_queue(guarantee={"resource": {f"{GPU}@h100": 2}}), [],
            f"spec.guarantee.resource.{GPU}@h100: there is no flavor 'h100' of {GPU}: {GPU} has none (annotation"
            " atoll.sh/flavors of queue root names them)",
            id="a resource without flavors",
        ),
        pytest.param(
            root(), [make_queue(deserved={f"{GPU}@h100": 2}), root(**FLAVORED)],
            f"metadata.annotations[atoll.sh/flavors]: queue 'research' has a quota of flavor 'h100' of {GPU}; remove"
            " that first",
            id="a flavor is removed that a queue names",
        ),
        pytest.param(
            {**make_queue(), "metadata": {"name": "q", "annotations": FLAVORED}}, [],
            "metadata.annotations[atoll.sh/flavors]: flavors are for all queues: annotate queue root instead",
            id="in another queue",
        ),
        pytest.param(
            root(**{keys.FLAVORS: "h100"}), [],
            "metadata.annotations[atoll.sh/flavors]: is not of the form",
            id="nonsense",
        ),
    ],
)  # fmt: skip
def test_what_flavors_can_not_be(queue: Json, others: list[Json], words: str) -> None:
    [problem] = problems(queue, *others)
    assert problem.startswith(words)


def test_pods_name_no_flavor() -> None:
    job = with_container(resources={"limits": {f"{GPU}@h100": 1}})
    found = jobs.validate_job(job)
    assert ["names a flavor, which pods can't" in each.message for each in found] == [True]
