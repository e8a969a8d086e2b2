"""A Work follows the gang of its binding: an agent limits the pods of a part by it."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import orjson

from atoll.control import objects
from atoll.control.caches import Caches
from atoll.control.carried_objects import Dependencies
from atoll.control.overrides import Overrides
from atoll.control.rules import Rules
from atoll.control.works import Works
from atoll.delivery.work import decode_work
from atoll.kinds import BY_GVK
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import gang, keys
from atoll.model.apiresource import BATCH_JOBS
from atoll.model.gang import Gang
from atoll.model.objects import Full, Meta, Slim, decode_full
from tests.control.recorders import Told, records_of
from tests.kube.servers import client

Json = dict[str, Any]
POD = {"containers": [{"name": "c", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}]}
JOB: Json = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": "team", "uid": "u", "resourceVersion": "1"},
    "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"restartPolicy": "Never", **POD}}},
}


class Host:
    """Carries writes of Works out in the cache, as the watch would."""

    def __init__(self, caches: Caches) -> None:
        self.caches, self.work = caches, cast(Json, {})
        self.writes = list[Json]()

    async def create(self, _: object, work: Json, **__: Any) -> Json:
        self.put(work)
        return work

    async def merge_patch(self, _: object, name: str, patch: Json, namespace: str, **__: Any) -> None:
        metadata = self.work["metadata"]
        notes = {**metadata["annotations"], **patch["metadata"]["annotations"]}
        kept = {key: text for key, text in notes.items() if text is not None}
        self.put({**self.work, "metadata": {**metadata, "annotations": kept}, "spec": patch["spec"]})

    def put(self, work: Json) -> None:
        self.work = work
        self.writes.append(work)
        versioned = {**work["metadata"], "resourceVersion": str(len(self.writes))}
        made = decode_work(orjson.dumps({**work, "metadata": versioned}))
        self.caches.works.put(made.metadata.key, made)


def binding(wish: Gang, version: int) -> objects.BindingObject:
    notes = {keys.EPOCH: "1", keys.GANG: gang.encode(wish)}
    about = {"name": "j-job", "namespace": "team", "uid": "b", "resourceVersion": str(version), "annotations": notes}
    resource = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": "j", "uid": "u"}
    spec = {"resource": resource, "clusters": [{"name": "m", "replicas": 2}]}
    return objects.decode_binding(orjson.dumps({"metadata": about, "spec": spec}))


async def test_a_gang_that_alone_has_changed_reaches_the_member_once() -> None:
    caches = Caches(client(9))
    host, told = Host(caches), Told()
    server = cast(ApiServer, host)
    works = Works(
        server,
        caches,
        Rules(caches, told),
        Dependencies(server, caches, told),
        Overrides(server, caches, told),
        records_of(server, caches),
    )
    caches.clusters.put("m", objects.decode_cluster(b'{"metadata": {"name": "m"}}'))
    caches.namespaces.put("team", Slim(Meta(name="team")))
    jobs = cast(Reflector[Full], caches.workloads[BATCH_JOBS])
    jobs.put("team/j", decode_full(orjson.dumps(JOB)))
    wish = BY_GVK["batch/v1", "Job"].gang(JOB, priority=0)
    for version, each in enumerate((wish, msgspec.structs.replace(wish, priority=7)), 1):
        caches.bindings.put("team/j-job", binding(each, version))
        await works.reconcile("team/j-job")
        await works.reconcile("team/j-job")
        assert gang.decode(host.work["metadata"]["annotations"][keys.GANG]).priority == each.priority
    assert len(host.writes) == 2
