"""Resources of a whole pod are refused on the host as Kubernetes refuses them in a member."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.admission.pods import validate_template

Json = dict[str, Any]


def problems(resources: Json, *containers: Json, **spec: Any) -> list[str]:
    """What is wrong with a pod of such resources, with containers of these (one of none where none is given)."""
    made = [{"name": f"c{n}", "image": "i", "resources": each} for n, each in enumerate(containers or ({},))]
    found = validate_template({"spec": {"containers": made, "resources": resources, **spec}}, "template")
    return [str(each) for each in found]


@pytest.mark.parametrize(
    ("resources", "containers", "spec", "said"),
    [
        pytest.param({"requests": {"cpu": "3"}}, [{"requests": {"cpu": "2"}}, {"requests": {"cpu": "2"}}], {}, "template.spec.resources.requests.cpu: 3 is below the 4 that its containers request together", id="requests below the sum of its containers"),
        pytest.param({"requests": {"cpu": "1"}}, [{"limits": {"cpu": "2"}}], {}, "requests.cpu: 1 is below the 2", id="a container's limit is its request"),
        pytest.param({"requests": {"memory": "1Gi"}}, [{}], {"initContainers": [{"name": "i", "image": "i", "resources": {"requests": {"memory": "2Gi"}}}]}, "requests.memory: 1Gi is below the 2Gi", id="requests below an init container"),
        pytest.param({"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}, [], {}, "template.spec.resources.requests.cpu: requests more than the limit of 2", id="a limit below the request"),
        pytest.param({"limits": {"cpu": "2"}}, [{"requests": {"cpu": "2"}}, {"requests": {"cpu": "1"}}], {}, "template.spec.resources.limits.cpu: 2 is below the 3 that its containers request together", id="a limit below the sum of its containers"),
        pytest.param({"limits": {"cpu": "2"}}, [{"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}], {}, "template.spec.containers[0].resources.limits.cpu: 3 is above the limit of the whole pod, 2", id="a container's limit above the pod's"),
        pytest.param({"limits": {"nvidia.com/gpu": 1}}, [], {}, "template.spec.resources.limits.nvidia.com/gpu: pods as a whole can't ask for it; use cpu, memory or hugepages", id="a device"),
        pytest.param({"requests": {"ephemeral-storage": "1Gi"}}, [], {}, "requests.ephemeral-storage: pods as a whole", id="storage"),
        pytest.param({"requests": {"hugepages-2Mi": "2Mi"}}, [], {}, "requests.hugepages-2Mi: request and limit (absent) must be equal", id="huge pages without limit"),
        pytest.param({"requests": {"cpu": 1}, "claims": [{"name": "gpu"}]}, [], {}, "template.spec.resources.claims: a pod as a whole has none", id="claims"),
        pytest.param({"requests": {"cpu": 1}}, [], {"os": {"name": "windows"}}, "template.spec.resources: pods of Windows", id="Windows"),
    ],
)  # fmt: skip
def test_it_is_refused(resources: Json, containers: list[Json], spec: Json, said: str) -> None:
    [problem] = problems(resources, *containers, **spec)
    assert said in problem


@pytest.mark.parametrize(
    ("resources", "containers"),
    [
        pytest.param({"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}, [{"requests": {"cpu": "2"}}] * 2, id="as much as its containers"),
        pytest.param({"requests": {"cpu": "4"}}, [{"limits": {"cpu": "3"}}], id="more than they ask for"),
        pytest.param({"limits": {"memory": "4Gi"}}, [{}], id="a limit alone"),
        pytest.param({"requests": {"hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}, [{}], id="huge pages"),
        pytest.param({"requests": {"cpu": "1"}}, [{"requests": {"cpu": "500m", "memory": "1Gi"}}], id="another resource of a container"),
    ],
)  # fmt: skip
def test_it_is_taken(resources: Json, containers: list[Json]) -> None:
    assert problems(resources, *containers) == []


def test_what_cant_be_read_is_told_once() -> None:
    [problem] = problems({"requests": {"cpu": "many"}}, {"requests": {"cpu": "1"}})
    assert "'many' is not a quantity" in problem
