"""Which overrides apply to an object in a member, in which order, and what each kind of overrider makes of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.model import images, json_patch, overrides
from atoll.model.apiresource import DEPLOYMENTS
from atoll.model.json_patch import Operation, PatchError
from atoll.model.objects import Meta
from atoll.model.overrides import Applied, Failed, OverrideObject, Target, decode_override

Json = dict[str, Any]
WEB = Meta(name="web", namespace="team", labels={"tier": "front"})
ALPHA = Target("alpha", {"gpu": "h100"}, {"provider": ("p1",), "region": ("eu",), "zone": ("eu-a", "eu-b")})
KIND: Json = {"apiVersion": "apps/v1", "kind": "Deployment"}


def policy(name: str, *selectors: Json, **spec: Any) -> OverrideObject:
    body = {"metadata": {"name": name}, "spec": {"resourceSelectors": list(selectors), **spec}}
    return decode_override(msgspec.json.encode(body))


def rule(path: str = "/x", **target: Any) -> Json:
    overriders = {"plaintext": [{"path": path, "operator": "add", "value": 1}]}
    return {"overriders": overriders, **({"targetCluster": target} if target else {})}


@pytest.mark.parametrize(
    ("found", "applied"),
    [
        pytest.param([policy("a", KIND, overrideRules=[rule()])], ["a"], id="any of the kind"),
        pytest.param([policy("a", overrideRules=[rule()])], ["a"], id="no selector is any object"),
        pytest.param([policy("a", {**KIND, "name": "other"}, overrideRules=[rule()])], [], id="another name"),
        pytest.param(
            [
                policy("a", {**KIND, "name": "web"}, overrideRules=[rule()]),
                policy("b", {**KIND, "labelSelector": {"matchLabels": {"tier": "front"}}}, overrideRules=[rule()]),
                policy("d", KIND, overrideRules=[rule()]),
                policy("c", overrideRules=[rule()]),
            ],
            ["c", "d", "b", "a"],
            id="the more exact ones last, so that they win; equal ones by name",
        ),
        pytest.param([policy("a", KIND, overriders=rule()["overriders"])], ["a"], id="the older form"),
        pytest.param([policy("a", KIND)], [], id="nothing to override"),
    ],
)
def test_which_apply_and_in_which_order(found: list[OverrideObject], applied: list[str]) -> None:
    assert [each.policy for each in overrides.chosen(found, DEPLOYMENTS, WEB, ALPHA)] == applied


@pytest.mark.parametrize(
    ("target", "applies"),
    [
        pytest.param({"clusterNames": ["alpha"]}, True, id="by name"),
        pytest.param({"clusterNames": ["beta"]}, False, id="another name"),
        pytest.param({"exclude": ["alpha"]}, False, id="excluded"),
        pytest.param({"labelSelector": {"matchLabels": {"gpu": "h100"}}}, True, id="by label"),
        pytest.param(
            {"fieldSelector": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["eu-b"]}]}},
            True,
            id="by one of its zones",
        ),
        pytest.param(
            {"fieldSelector": {"matchExpressions": [{"key": "region", "operator": "NotIn", "values": ["eu"]}]}},
            False,
            id="not in its region",
        ),
    ],
)
def test_members_that_a_rule_is_for(target: Json, applies: bool) -> None:
    found = overrides.chosen([policy("a", KIND, overrideRules=[rule(**target)])], DEPLOYMENTS, WEB, ALPHA)
    assert bool(found) is applies


def test_all_rules_that_match_are_followed_in_their_order() -> None:
    rules = [rule("/b"), rule("/no", clusterNames=["beta"]), rule("/a", clusterNames=["alpha"])]
    found = overrides.chosen([policy("a", KIND, overrideRules=rules)], DEPLOYMENTS, WEB, ALPHA)
    assert [each.overriders["plaintext"][0]["path"] for each in found] == ["/b", "/a"]


def deployment() -> Json:
    containers = [
        {"name": "main", "image": "registry.example:5000/ml/train:1.0", "command": ["run"], "args": ["--a", "--b"]},
        {"name": "side", "image": "nginx"},
    ]
    config = {"apiVersion": "v1", "conf": '{"level": "info", "hosts": ["a"]}', "yaml": "level: info\nhosts: [a]\n"}
    return {
        **KIND,
        "metadata": {"name": "web", "labels": {"a": "1", "b": "2"}},
        "spec": {"template": {"spec": {"containers": containers}}, "config": config},
    }


def containers(_: Json) -> list[str]:
    return ["/spec/template/spec/containers"]


def applied(**overriders: Any) -> Json:
    return overrides.apply(deployment(), [Applied("p", overriders)], containers)


def main_of(made: Json, index: int = 0) -> Json:
    found: Json = made["spec"]["template"]["spec"]["containers"][index]
    return found


def test_images_of_all_containers() -> None:
    made = applied(imageOverrider=[{"component": "Registry", "operator": "replace", "value": "mirror.local"}])
    assert [main_of(made, index)["image"] for index in (0, 1)] == ["mirror.local/ml/train:1.0", "mirror.local/nginx"]


def test_one_image_by_its_path() -> None:
    predicate = {"path": "/spec/template/spec/containers/1/image"}
    made = applied(imageOverrider=[{"predicate": predicate, "component": "Tag", "operator": "add", "value": "1.27"}])
    assert [main_of(made, index)["image"] for index in (0, 1)] == ["registry.example:5000/ml/train:1.0", "nginx:1.27"]


def test_commands_and_arguments_of_one_container() -> None:
    made = applied(
        commandOverrider=[{"containerName": "side", "operator": "add", "value": ["sh"]}],
        argsOverrider=[{"containerName": "main", "operator": "remove", "value": ["--a"]}],
    )
    assert (main_of(made)["command"], main_of(made)["args"], main_of(made, 1)["command"]) == (["run"], ["--b"], ["sh"])


def test_labels_are_added_replaced_where_they_are_and_removed() -> None:
    steps = [
        {"operator": "replace", "value": {"a": "9", "absent": "9"}},
        {"operator": "add", "value": {"c": "3"}},
        {"operator": "remove", "value": {"b": ""}},
    ]
    assert applied(labelsOverrider=steps)["metadata"]["labels"] == {"a": "9", "c": "3"}
    made = applied(annotationsOverrider=[{"operator": "add", "value": {"x/y": "1"}}])
    assert made["metadata"]["annotations"] == {"x/y": "1"}


def test_documents_in_fields() -> None:
    change = [
        {"subPath": "/level", "operator": "replace", "value": "debug"},
        {"subPath": "/hosts/-", "operator": "add", "value": "b"},
    ]
    made = applied(
        fieldOverrider=[
            {"fieldPath": "/spec/config/conf", "json": change},
            {"fieldPath": "/spec/config/yaml", "yaml": change},
        ]
    )["spec"]["config"]
    assert msgspec.json.decode(made["conf"]) == {"level": "debug", "hosts": ["a", "b"]}
    assert made["yaml"] == "hosts:\n- a\n- b\nlevel: debug\n"


def test_the_patch_comes_last_and_the_manifest_stays_as_it_was() -> None:
    path = "/spec/template/spec/containers/0/image"
    before = deployment()
    made = overrides.apply(
        before,
        [
            Applied(
                "p",
                {
                    "plaintext": [{"path": path, "operator": "replace", "value": "last:1"}],
                    "imageOverrider": [{"component": "Tag", "operator": "replace", "value": "first"}],
                },
            )
        ],
        containers,
    )
    assert main_of(made)["image"] == "last:1"
    assert before == deployment()


@pytest.mark.parametrize(
    ("overriders", "why"),
    [
        pytest.param(
            {"plaintext": [{"path": "/spec/no/x", "operator": "add", "value": 1}]}, "there is no 'no'", id="no parent"
        ),
        pytest.param(
            {"plaintext": [{"path": "/spec/no", "operator": "remove"}]}, "there is no 'no'", id="nothing to remove"
        ),
        pytest.param(
            {
                "fieldOverrider": [
                    {"fieldPath": "/spec/config", "json": [{"subPath": "", "operator": "add", "value": 1}]}
                ]
            },
            "is no text",
            id="no text",
        ),
        pytest.param(
            {
                "fieldOverrider": [
                    {"fieldPath": "/spec/config/yaml", "json": [{"subPath": "/a", "operator": "add", "value": 1}]}
                ]
            },
            "not JSON",
            id="no JSON",
        ),
        pytest.param(
            {"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "a b"}]},
            "neither a tag nor a digest",
            id="no tag",
        ),
    ],
)
def test_what_can_not_be_carried_out_names_its_policy_and_why(overriders: Json, why: str) -> None:
    with pytest.raises(Failed, match=why) as failed:
        overrides.apply(deployment(), [Applied("p", overriders)], containers)
    assert failed.value.policy == "p"


def test_an_object_without_containers_takes_no_image_override() -> None:
    with pytest.raises(Failed, match=r"predicate\.path"):
        overrides.apply(
            deployment(), [Applied("p", {"imageOverrider": [{"component": "Tag", "operator": "remove"}]})], lambda _: []
        )


DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "component", "operator", "value", "now"),
    [
        ("nginx", "Registry", "add", "r.io", "r.io/nginx"),
        ("r.io/nginx:1", "Registry", "add", ":5000", "r.io:5000/nginx:1"),
        ("localhost/a/b", "Registry", "remove", "", "a/b"),
        ("library/nginx:1", "Registry", "replace", "r.io", "r.io/library/nginx:1"),
        ("r.io/a/b:1", "Repository", "add", "-gpu", "r.io/a/b-gpu:1"),
        ("r.io/a/b:1", "Repository", "replace", "c", "r.io/c:1"),
        ("nginx:1.0", "Tag", "add", "-alpine", "nginx:1.0-alpine"),
        ("nginx:1.0", "Tag", "remove", "", "nginx"),
        (f"nginx@{DIGEST}", "Tag", "remove", "", "nginx"),
        (f"nginx@{DIGEST}", "Tag", "replace", "1", "nginx:1"),
        ("nginx:1", "Tag", "replace", DIGEST, f"nginx@{DIGEST}"),
        (f"nginx:1@{DIGEST}", "Registry", "replace", "r.io", f"r.io/nginx:1@{DIGEST}"),
        ("r.io:5000/a", "Tag", "add", "1", "r.io:5000/a:1"),
    ],
)
def test_parts_of_images(image: str, component: str, operator: str, value: str, now: str) -> None:
    assert images.changed(image, component, operator, value) == now


def test_an_image_keeps_a_repository() -> None:
    with pytest.raises(ValueError, match="no repository"):
        images.changed("nginx", "Repository", "remove", "")


@pytest.mark.parametrize(
    ("operation", "now"),
    [
        pytest.param(Operation("add", "/list/-", 3), {"list": [1, 2, 3], "a/b~": 0}, id="to the end"),
        pytest.param(Operation("add", "/list/0", 3), {"list": [3, 1, 2], "a/b~": 0}, id="before an item"),
        pytest.param(Operation("remove", "/list/-1"), {"list": [1], "a/b~": 0}, id="counted from the end"),
        pytest.param(Operation("replace", "/a~1b~0", 5), {"list": [1, 2], "a/b~": 5}, id="an escaped name"),
        pytest.param(Operation("add", "/new", None), {"list": [1, 2], "a/b~": 0, "new": None}, id="null is a value"),
        pytest.param(Operation("replace", "", {"x": 1}), {"x": 1}, id="the whole"),
    ],
)
def test_patches(operation: Operation, now: Json) -> None:
    before = {"list": [1, 2], "a/b~": 0}
    assert json_patch.apply(before, [operation]) == now
    assert before == {"list": [1, 2], "a/b~": 0}


@pytest.mark.parametrize(
    "operation",
    [
        Operation("add", "/list/4", 1), Operation("replace", "/list/2", 1), Operation("replace", "/no", 1),
        Operation("remove", "/list/x"), Operation("add", "/list/0/x", 1), Operation("remove", ""),
        Operation("add", "list", 1),
    ],
)  # fmt: skip
def test_patches_that_fail(operation: Operation) -> None:
    with pytest.raises(PatchError):
        json_patch.apply({"list": [1, 2]}, [operation])
