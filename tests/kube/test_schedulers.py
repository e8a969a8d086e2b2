"""Which other systems run in a cluster, and who is to place there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.kube.schedulers import Deployment, Found, WebhookConfiguration, decide, judge
from atoll.model import keys
from atoll.model.placer import Placer


def deployment(name: str, image: str = "app", *, app: str = "", replicas: int = 1) -> Deployment:
    template = {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"image": image}]}}
    metadata = {"name": name, "namespace": "x"}
    return msgspec.convert({"metadata": metadata, "spec": {"replicas": replicas, "template": template}}, Deployment)


def webhooks(name: str, *groups: str) -> WebhookConfiguration:
    rules = [{"apiGroups": [group], "resources": ["jobs"]} for group in groups]
    return msgspec.convert({"metadata": {"name": name}, "webhooks": [{"rules": rules}]}, WebhookConfiguration)


DIGEST = "registry:5000/volcanosh/vc-scheduler@sha256:0123"
CASES: list[tuple[str, list[Deployment], list[WebhookConfiguration], bool, tuple[bool, bool, bool]]] = [
    ("nothing", [deployment("web")], [webhooks("kyverno", "*")], False, (False, False, False)),
    ("its scheduler by image and digest", [deployment("s", DIGEST)], [], False, (False, True, False)),
    ("its controllers by image", [deployment("c", "vc-controller-manager:v1")], [], False, (True, False, False)),
    ("its controllers by label", [deployment("c", app="volcano-controller")], [], False, (True, False, False)),
    ("scaled to zero", [deployment("c", app="volcano-scheduler", replicas=0)], [], False, (False, False, False)),
    ("webhooks, its programs being elsewhere", [], [webhooks("w", "batch.volcano.sh")], False, (True, True, False)),
    ("Atoll's own webhooks", [], [webhooks("atoll", "batch.volcano.sh", "kueue.x-k8s.io")], False, (False,) * 3),
    ("webhooks that it left behind", [], [webhooks("w", "batch.volcano.sh")], True, (False, False, False)),
    ("another image of a like name", [deployment("s", "my-vc-scheduler-ui")], [], False, (False, False, False)),
    ("Kueue by image", [deployment("k", "k8s.io/kueue/kueue:v0.14")], [], False, (False, False, True)),
    ("Kueue by webhooks", [], [webhooks("k", "kueue.x-k8s.io")], False, (False, False, True)),
]


@pytest.mark.parametrize(
    ("deployments", "configurations", "had", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_systems_are_known_by_what_they_are(
    deployments: list[Deployment], configurations: list[WebhookConfiguration], had: bool, expected: tuple[bool, ...]
) -> None:
    found = judge(deployments, configurations, kube_scheduler=False, had_volcano=had)
    assert (bool(found.volcano_controllers), bool(found.volcano_scheduler), bool(found.kueue)) == expected


PLACERS: list[tuple[str, dict[str, str], Found, Placer, bool]] = [
    ("nobody else", {}, Found(), Placer.ATOLL, True),
    ("kube-scheduler on the same nodes", {}, Found(kube_scheduler="Lease"), Placer.KUBE_SCHEDULER, True),
    ("Volcano before kube-scheduler", {}, Found("D", "D", "", "Lease"), Placer.VOLCANO, True),
    ("Kueue without a queue of ours", {}, Found("", "", "D", "Lease"), Placer.KUBE_SCHEDULER, True),
    ("Kueue with one", {keys.MEMBER_QUEUE: "q"}, Found("", "", "D", "Lease"), Placer.KUEUE, True),
    ("nodes of our own", {keys.NODES: "pool=batch"}, Found("D", "D", "", "Lease"), Placer.ATOLL, True),
    ("set by hand", {keys.PLACER: "atoll"}, Found("D", "D", "", "Lease"), Placer.ATOLL, False),
    ("left to the agent", {keys.PLACER: "auto"}, Found(kube_scheduler="Lease"), Placer.KUBE_SCHEDULER, True),
    ("what can't be read", {keys.PLACER: "yours"}, Found(kube_scheduler="Lease"), Placer.KUBE_SCHEDULER, True),
]


@pytest.mark.parametrize(
    ("annotations", "found", "expected", "detected"), [c[1:] for c in PLACERS], ids=[c[0] for c in PLACERS]
)
def test_who_places(annotations: dict[str, str], found: Found, expected: Placer, detected: bool) -> None:
    placing = decide(annotations, found)
    assert (placing.placer, placing.detected) == (expected, detected)
    if "yours" in annotations.values():
        assert "'yours' is none of atoll, volcano, kube-scheduler, kueue, auto" in placing.sentence


def test_where_volcano_runs_its_own_queue_is_used_unless_another_is_named() -> None:
    volcano: dict[str, Any] = {"found": Found("D", "D")}
    assert decide({}, **volcano).made_for.queue == "default"
    assert decide({keys.MEMBER_QUEUE: "team"}, **volcano).made_for.queue == "team"
    assert decide({}, Found()).made_for.queue == ""
