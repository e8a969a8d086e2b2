"""How groups of a dispatch are apart and its pods balanced does not change while it runs."""

from __future__ import annotations

import pytest

from atoll.control import objects
from atoll.control.caches import Caches
from atoll.delivery.work import WorkObject
from atoll.model import keys
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.objects import Meta
from tests.kube.servers import client


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        pytest.param("", "block", id="as the workload says at first"),
        pytest.param("0", "block", id="and when it is dispatched again"),
        pytest.param("1", "rack", id="as it was dispatched"),
    ],
)
def test_the_first_work_of_a_dispatch_fixes_it(epoch: str, expected: str) -> None:
    caches = Caches(client(9))
    notes = {keys.EPOCH: "1", keys.BINDING_UID: "uid-1", keys.BINDING_NAMESPACE: "ns", keys.BINDING_NAME: "a-job"}
    binding = objects.BindingObject(metadata=Meta(name="a-job", namespace="ns", uid="uid-1", annotations=notes))
    gang = Gang("q", [Task("t", 2, 2, {})], 2, balanced=TopologyWish("soft", None, "block"))
    if epoch:
        sent = {**notes, keys.EPOCH: epoch, keys.BALANCED: "rack"}
        work = WorkObject(metadata=Meta(name="a", namespace="karmada-es-m", uid="w", annotations=sent))
        caches.works.put(work.metadata.key, work)
    assert caches.spread_out(binding, gang) == {keys.BALANCED: expected}
