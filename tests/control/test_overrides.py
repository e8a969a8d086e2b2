"""Overrides are evaluated beside the loop, within bounds; what fails once is not evaluated again for the same objects."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import orjson
import pytest
import yaml

from atoll.control import objects
from atoll.control import overrides as controlled
from atoll.control.caches import Caches
from atoll.control.overrides import NotEvaluated, Overrides
from atoll.delivery.work import WorkObject, decode_work
from atoll.kinds import BY_GVK
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.objects import Full, Meta, Slim, decode_full
from atoll.model.overrides import MOST_POLICIES, decode_override
from tests.control.recorders import Told
from tests.kube.servers import client
from tests.model.hostile import BOMB

Json = dict[str, Any]
KIND = BY_GVK["batch/v1", "Job"]


class Host:
    """Carries merge patches of bindings out in the cache, as the watch would."""

    def __init__(self, caches: Caches) -> None:
        self.caches = caches
        self.patches = list[Json]()

    async def merge_patch(self, _: object, name: str, patch: Json, namespace: str, **__: Any) -> None:
        self.patches.append(patch)
        old = self.caches.bindings.get(f"{namespace}/{name}")
        assert old is not None
        notes = {**old.metadata.annotations, **patch["metadata"]["annotations"]}
        kept = {key: text for key, text in notes.items() if text is not None}
        self.caches.bindings.put(f"{namespace}/{name}", binding(kept, len(self.patches) + 1))


def binding(notes: dict[str, str] | None = None, version: int = 1) -> objects.BindingObject:
    about: Json = {"name": "j-job", "namespace": "team", "uid": "b", "resourceVersion": str(version)}
    about["annotations"] = {keys.EPOCH: "1", **(notes or {})}
    return objects.decode_binding(orjson.dumps({"metadata": about, "spec": {}}))


def job(**annotations: str) -> Full:
    container = {"name": "c", "image": "busybox:1", "env": [{"name": "CONFIG", "value": "a: 1\n"}]}
    return decode_full(
        orjson.dumps(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "j", "namespace": "team", "uid": "u", "annotations": annotations},
                "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
            }
        )
    )


def policy(name: str, overriders: Json, namespace: str = "team", selects: str = "") -> Any:
    selector = {"apiVersion": "batch/v1", "kind": "Job", "name": selects}
    spec = {"resourceSelectors": [selector], "overrideRules": [{"overriders": overriders}]}
    about = {"name": name, "namespace": namespace, "uid": name}
    return decode_override(orjson.dumps({"metadata": about, "spec": spec}))


DOCUMENT = "/metadata/annotations/doc"


def field(*places: str) -> Json:
    patch = [{"subPath": "/a", "operator": "add", "value": 2}]
    return {"fieldOverrider": [{"fieldPath": place, "yaml": patch} for place in places]}


class Scene:
    """A control that leads, with one workload."""

    def __init__(self, *policies: Any, obj: Full | None = None, labels: dict[str, str] | None = None) -> None:
        self.caches = Caches(client(9))
        self.host, self.told, self.obj = Host(self.caches), Told(), obj or job(doc="a: 1\n")
        self.part: Json | None = None
        self.made = list[str]()
        self.lead()
        self.caches.clusters.put("m", objects.decode_cluster(b'{"metadata": {"name": "m"}}'))
        self.caches.namespaces.put("team", Slim(Meta(name="team", labels=labels or {})))
        self.caches.bindings.put("team/j-job", binding())
        for each in policies:
            self.caches.overrides.put(each.metadata.key, each)

    def lead(self) -> None:
        """A leader begins its term."""
        self.overrides = Overrides(cast(ApiServer, self.host), self.caches, self.told)
        self.overrides.on_made(self.made.append)

    def look(self, work: WorkObject | None = None) -> Any:
        there = self.caches.bindings.get("team/j-job")
        assert there is not None
        return self.overrides.of(there, KIND, self.obj, "m", [self.part or self.obj.body], work)

    async def evaluated(self, work: WorkObject | None = None) -> Any:
        """The answer after one evaluation."""
        with pytest.raises(NotEvaluated):
            self.look(work)
        running, seen = asyncio.create_task(self.overrides.run()), len(self.made)
        try:
            async with asyncio.timeout(60):
                while len(self.made) == seen:
                    await asyncio.sleep(0.005)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return self.look(work)

    @property
    def failure(self) -> str:
        there = self.caches.bindings.get("team/j-job")
        assert there is not None
        return self.overrides.failures(there).get("m", "")


def work_of(manifests: list[Json], record: dict[str, str]) -> WorkObject:
    about = {"name": "w", "namespace": "karmada-es-m", "uid": "w", "annotations": record}
    return decode_work(orjson.dumps({"metadata": about, "spec": {"workload": {"manifests": manifests}}}))


async def test_without_overrides_nothing_is_evaluated() -> None:
    scene = Scene(policy("other", field(DOCUMENT), selects="another"))
    assert scene.look() == ([scene.obj.body], {})


async def test_a_document_is_overridden_and_its_work_is_not_evaluated_again() -> None:
    scene = Scene(policy("p", field(DOCUMENT)))
    manifests, record = await scene.evaluated()
    assert yaml.safe_load(manifests[0]["metadata"]["annotations"]["doc"]) == {"a": 2}
    work = work_of(manifests, record)
    scene.lead()
    assert scene.look(work) == (manifests, record)
    changed = orjson.loads(orjson.dumps(manifests))
    changed[0]["metadata"]["annotations"]["doc"] = "a: 3\n"
    assert await scene.evaluated(work_of(changed, record)) == (manifests, record)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param(BOMB, "aliases", id="700 bytes that stand for 16 million values"),
        pytest.param("[" * 60_000, "levels", id="60,000 brackets"),
        pytest.param("a: " + "9" * 60_000, "not YAML", id="a number of 60,000 digits"),
    ],
)
async def test_a_hostile_document_is_set_aside_over_terms_until_the_workload_changes(document: str, words: str) -> None:
    scene = Scene(policy("p", field(DOCUMENT)), obj=job(doc=document))
    begun = time.thread_time()
    assert await scene.evaluated() is None
    assert time.thread_time() - begun < 1
    assert f"path {DOCUMENT}" in scene.failure
    assert words in scene.failure
    assert ("j", "ApplyOverridePolicyFailed") in scene.told.about
    scene.lead()
    assert scene.look() is None
    assert words in scene.failure
    scene.obj = job(doc="a: 1\n")
    assert await scene.evaluated() is not None
    there = scene.caches.bindings.get("team/j-job")
    assert there is not None
    assert keys.OVERRIDES_FAILED not in there.metadata.annotations


async def test_an_evaluation_ends_after_its_time_and_the_loop_goes_on() -> None:
    text = "".join(f"k{n}: [{', '.join(['x'] * 6)}]\n" for n in range(2_500))
    documents = {f"doc{n}": text for n in range(60)}
    scene = Scene(policy("p", field(*(f"/metadata/annotations/{name}" for name in documents))), obj=job(**documents))
    begun = time.process_time()
    assert await scene.evaluated() is None
    assert time.process_time() - begun < 6
    assert "CPU time" in scene.failure


async def test_an_override_may_not_violate_the_pod_security_of_the_namespace() -> None:
    privileged = [
        {
            "path": "/spec/template/spec/containers/0/securityContext",
            "operator": "add",
            "value": {"privileged": True},
        }
    ]
    scene = Scene(policy("p", {"plaintext": privileged}), labels={"pod-security.kubernetes.io/enforce": "baseline"})
    assert await scene.evaluated() is None
    assert 'violates PodSecurity "baseline:latest": privileged' in scene.failure


async def test_too_many_policies_for_one_object_are_told_and_not_followed() -> None:
    scene = Scene(*(policy(f"p{n}", field(DOCUMENT)) for n in range(MOST_POLICIES + 1)))
    assert scene.look() is None
    assert f"{MOST_POLICIES} are followed at most" in scene.failure


async def test_overriders_that_a_work_can_not_record_are_told() -> None:
    scene = Scene(policy("p", {"annotationsOverrider": [{"operator": "add", "value": {"a": "x" * 70_000}}]}))
    assert await scene.evaluated() is None
    assert "which holds 65536" in scene.failure


async def test_a_failure_of_a_part_is_none_of_another_part() -> None:
    scene = Scene(policy("p", field(DOCUMENT)), obj=job(doc="["))
    body = scene.obj.body
    scene.part = {**body, "spec": {**body["spec"], "parallelism": 1, "completions": 1}}
    assert await scene.evaluated() is None
    assert scene.look() is None
    scene.part = {**body, "spec": {**body["spec"], "parallelism": 4, "completions": 4}}
    assert await scene.evaluated() is None


async def test_a_failure_beside_a_work_is_of_what_that_was_started_with() -> None:
    scene = Scene(policy("p", field(DOCUMENT)), obj=job(doc="["))
    assert await scene.evaluated() is None
    started = {keys.APPLIED_OVERRIDES: '[{"policyName": "old", "overriders": {}}]'}
    with pytest.raises(NotEvaluated):
        scene.look(work_of([scene.obj.body], started))


async def test_an_evaluation_that_broke_off_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    make, breaks = vars(controlled)["_make"], [RuntimeError("broke off")]

    def once(job: Any) -> Any:
        if breaks:
            raise breaks.pop()
        return make(job)

    monkeypatch.setattr(controlled, "_make", once)
    scene = Scene(policy("p", field(DOCUMENT)))
    assert await scene.evaluated() is not None
    assert not breaks
