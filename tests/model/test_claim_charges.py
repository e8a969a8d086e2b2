"""Devices that a gang is charged for its claims, before and after they are made anew."""

from __future__ import annotations

from typing import Any

from atoll.model.apiresource import RESOURCE_CLAIM_TEMPLATES, ApiResource
from atoll.model.claim_charges import by_name, charged
from atoll.model.device_claims import class_resource
from atoll.model.gang import Gang, Task, decode, encode

GPUS, NICS = class_resource("gpu"), class_resource("nic")


def gang(*templates: str) -> Gang:
    names = [f"templates/{each}" for each in templates]
    return Gang("q", [Task("w", 2, 2, {"cpu": 1000, "pods": 1}, claim_names=names)], 2)


class Templates:
    """By name, devices of one class."""

    def __init__(self, **asked: tuple[str, int]) -> None:
        self.asked = asked

    def __call__(self, resource: ApiResource, name: str) -> dict[str, Any]:
        assert resource == RESOURCE_CLAIM_TEMPLATES
        device_class, count = self.asked[name]
        request = {"name": "r", "exactly": {"deviceClassName": device_class, "count": count}}
        return {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": [request]}}}}


def test_each_claim_is_charged_by_its_name():
    found = charged(gang("a", "b"), Templates(a=("gpu", 2), b=("gpu", 1)))
    assert found.tasks[0].requests == {"cpu": 1000, "pods": 1, GPUS: 3}
    assert by_name(decode(encode(found))) == {"templates/a": {GPUS: 2}, "templates/b": {GPUS: 1}}


def test_a_template_that_is_made_anew_changes_no_charge_of_pods_that_may_have_its_claims():
    templates = Templates(a=("gpu", 2))
    runs = charged(gang("a"), templates)
    templates.asked["a"] = "gpu", 1
    assert charged(gang("a"), templates).tasks[0].requests[GPUS] == 1, "while it waits"
    found = charged(gang("a"), templates, runs)
    assert found.tasks[0].requests == runs.tasks[0].requests
    assert by_name(found) == by_name(runs)


def test_another_template_of_a_workload_that_runs_is_charged_beside_what_its_pods_may_have():
    templates = Templates(a=("gpu", 8), b=("gpu", 1), c=("nic", 1))
    runs = charged(gang("a"), templates)
    assert charged(gang("b"), templates, runs).tasks[0].requests[GPUS] == 8
    both = charged(gang("b", "c"), templates, runs)
    assert {GPUS: 8, NICS: 1}.items() <= both.tasks[0].requests.items()
    assert by_name(both) == {"templates/b": {GPUS: 1}, "templates/c": {NICS: 1}}
    assert charged(gang(), templates, runs).tasks[0].requests[GPUS] == 8, "no template any more"
