"""One tenant's work costs control as much whatever another tenant has written."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from atoll.control import objects, policies
from atoll.control.caches import Caches
from atoll.control.carried_objects import Dependencies, NotRead
from atoll.control.detector import Detector
from atoll.control.makers import controller
from atoll.control.makers.controller import Makers
from atoll.control.overrides import Overrides
from atoll.kinds import BY_GVK
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import BATCH_JOBS, HYPER_JOBS, JOB_FLOWS, VOLCANO_CRON_JOBS
from atoll.model.objects import Full, Meta, Slim, decode_full
from atoll.model.overrides import decode_override
from atoll.model.policies import decode_policy
from tests.control.recorders import Told
from tests.kube.servers import client

Json = dict[str, Any]
MANY = 10_000
JOB: Json = {"apiVersion": "batch/v1", "kind": "Job"}
Handle = Callable[[], Any]


class Scene:
    """A control, and its caches."""

    def __init__(self) -> None:
        self.host = client(9)
        self.caches, self.told = Caches(client(9)), Told()
        self.caches.clusters.put("m", objects.decode_cluster(b'{"metadata": {"name": "m"}}'))
        for name in ("quiet", "busy"):
            self.caches.namespaces.put(name, Slim(Meta(name=name, labels={"atoll.sh/enabled": "true"})))
        self.overrides = Overrides(self.host, self.caches, self.told)
        self.dependencies = Dependencies(self.host, self.caches, self.told)
        self.detector = Detector(self.host, self.caches, self.told)
        self.makers = Makers(self.host, self.caches, self.told)
        raw = {**JOB, "metadata": {"name": "j", "namespace": "quiet", "uid": "u"}, "spec": {}}
        self.job = decode_full(orjson.dumps(raw))
        about = {"name": "j-job", "namespace": "quiet", "uid": "b", "annotations": {"atoll.sh/epoch": "1"}}
        self.binding = objects.decode_binding(orjson.dumps({"metadata": about, "spec": {}}))

    def choose_policy(self) -> None:
        policies.choose(self.caches, BATCH_JOBS, self.job, "default")

    def override(self) -> None:
        self.overrides.of(self.binding, BY_GVK["batch/v1", "Job"], self.job, "m", [self.job.body], None)

    def refer(self) -> None:
        self.refer_to("quiet", "j", "mine")
        self.caches.bindings.put("quiet/j-job", self.binding)
        self.caches.bindings.put("quiet/j-job", None)

    def refer_to(self, namespace: str, name: str, config: str) -> None:
        pod = {"containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": config}}]}]}
        raw = {**JOB, "metadata": {"name": name, "namespace": namespace}, "spec": {"template": {"spec": pod}}}
        binding = objects.BindingObject(metadata=Meta(name=f"{name}-job", namespace=namespace))
        with suppress(NotRead):
            self.dependencies.of(binding, BY_GVK["batch/v1", "Job"], Full(binding.metadata, raw), raw)

    def end_a_job(self) -> None:
        self.caches.jobs.put("quiet/v", Full(Meta(name="v", namespace="quiet", uid="v"), {}))
        self.caches.jobs.put("quiet/v", None)

    async def look_at_the_namespace(self) -> None:
        await self.detector.look_at_namespace("quiet")


def policy(number: int) -> Json:
    return {
        "metadata": {"name": f"p{number}", "namespace": "busy", "uid": f"p{number}"},
        "spec": {
            "resourceSelectors": [{**JOB, "labelSelector": {"matchLabels": {"a": "b"}}}],
            "overrideRules": [{"overriders": {"labelsOverrider": [{"operator": "add", "value": {"x": "y"}}]}}],
        },
    }


def write_policies(scene: Scene) -> None:
    for number in range(MANY):
        scene.caches.policies.put(f"busy/p{number}", decode_policy(orjson.dumps(policy(number))))


def write_overrides(scene: Scene) -> None:
    for number in range(MANY):
        scene.caches.overrides.put(f"busy/p{number}", decode_override(orjson.dumps(policy(number))))


def write_references(scene: Scene) -> None:
    for number in range(MANY):
        scene.refer_to("busy", f"j{number}", f"c{number}")


async def write_makers(scene: Scene) -> None:
    for resource in (JOB_FLOWS, VOLCANO_CRON_JOBS, HYPER_JOBS):
        for number in range(MANY):
            meta = Meta(name=f"m{number}", namespace="busy", uid=f"{resource.kind}{number}")
            scene.caches.makers[resource].put(meta.key, Full(meta, {}))


async def write_jobs(scene: Scene) -> None:
    for number in range(MANY):
        meta = Meta(name=f"j{number}", namespace="busy", uid=f"j{number}")
        scene.caches.jobs.put(meta.key, Full(meta, {"spec": {}}))


async def cost(handle: Callable[[], Any]) -> float:
    """The least CPU time of some tries, in seconds."""
    found = []
    for _ in range(7):
        begun = time.thread_time()
        for _ in range(20):
            if (waited := handle()) is not None:
                await waited
        found.append(time.thread_time() - begun)
    return min(found)


@pytest.mark.parametrize(
    ("write", "handle"),
    [
        pytest.param(write_policies, Scene.choose_policy, id="propagation policies, when a workload is looked at"),
        pytest.param(write_overrides, Scene.override, id="override policies, when a Work is made"),
        pytest.param(write_references, Scene.refer, id="ConfigMaps of workloads, when a workload starts and ends"),
        pytest.param(write_makers, Scene.end_a_job, id="JobFlows, CronJobs and HyperJobs, when a Job is deleted"),
        pytest.param(write_jobs, Scene.look_at_the_namespace, id="Jobs, when a policy or namespace changes"),
    ],
)
async def test_ten_thousand_objects_of_a_tenant_make_no_work_for_another_dearer(
    write: Callable[[Scene], Any], handle: Callable[[Scene], Any]
) -> None:
    alone, beside = Scene(), Scene()
    if (waited := write(beside)) is not None:
        await waited
    before, after = await cost(lambda: handle(alone)), await cost(lambda: handle(beside))
    assert after < 2 * before + 0.0005, f"{before * 50:.3f} ms -> {after * 50:.3f} ms"


async def test_makers_of_a_namespace_make_two_hundred_jobs_at_once_and_two_a_second() -> None:
    made = list[str]()

    class Host:
        async def create(self, _: object, job: Json, **__: Any) -> None:
            made.append(job["metadata"]["name"])

        async def json_patch(self, *_: object, **__: Any) -> None: ...

        merge_patch = json_patch

    scene = Scene()
    makers = Makers(cast(ApiServer, Host()), scene.caches, scene.told)
    spec = {"replicatedJobs": [{"name": "r", "replicas": 250, "templateSpec": {"tasks": []}}]}
    for name in ("busy", "quiet"):
        raw = {"metadata": {"name": "h", "namespace": name, "uid": name}, "spec": spec}
        scene.caches.makers[HYPER_JOBS].put(f"{name}/h", decode_full(orjson.dumps(raw)))
        begun = len(made)
        await makers.reconcile((HYPER_JOBS, f"{name}/h"))
        assert 200 <= len(made) - begun < 250
    assert ("h", "MadeLater") in scene.told.about


async def test_jobs_that_are_refused_keep_no_others_from_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, made, now = list[str](), list[str](), [1000.0]
    monkeypatch.setattr(controller, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))

    class Host:
        async def create(self, _: object, job: Json, **__: Any) -> None:
            asked.append(name := job["metadata"]["name"])
            if name.startswith("h-bad-"):
                raise errors.Forbidden("no", code=403)
            made.append(name)
            metadata = {**job["metadata"], "uid": name}
            scene.caches.jobs.put(f"busy/{name}", decode_full(orjson.dumps({**job, "metadata": metadata})))

        async def json_patch(self, *_: object, **__: Any) -> None: ...

        merge_patch = json_patch

    scene = Scene()
    makers = Makers(cast(ApiServer, Host()), scene.caches, scene.told)
    each: Json = {"templateSpec": {"tasks": []}}
    groups = [{**each, "name": "bad", "replicas": 200}, {**each, "name": "good", "replicas": 3}]
    raw = {"metadata": {"name": "h", "namespace": "busy", "uid": "u"}, "spec": {"replicatedJobs": groups}}
    scene.caches.makers[HYPER_JOBS].put("busy/h", decode_full(orjson.dumps(raw)))
    counts = []
    for seconds in (0, 2, 10, 18):
        now[0] += seconds
        await makers.reconcile((HYPER_JOBS, "busy/h"))
        counts.append((len(asked), len(made)))
    assert counts[:3] == [(200, 0), (203, 3), (203, 3)]
    assert counts[3][0] > 203, "what was refused is asked for again after a while"
