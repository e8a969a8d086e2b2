"""Options of `queue create` and `queue update` become objects and patches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.api.scheduling import QueueCluster, QueueSpec
from atoll.cli import queue_changes
from atoll.cli.errors import USAGE, CommandError
from atoll.cli.queue_spec import dropped, flavors, lists, queue_object, selector, update
from atoll.model import keys, selectors
from tests.cli.command_line import parse

QUEUE: dict[str, Any] = {
    "metadata": {"name": "q", "uid": "u"},
    "spec": {"capability": {"cpu": "4", "memory": "1Ti"}, "guarantee": {"resource": {"cpu": "1"}}, "weight": 2},
}

QUEUE_WITHOUT: dict[str, Any] = {"metadata": {"name": "q", "uid": "u"}}


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        pytest.param("team=a", {"team": "a"}, {"team": "b"}, id="one value"),
        pytest.param("team==a", {"team": "a"}, {}, id="one value with two equals signs"),
        pytest.param("team=a,env=dev", {"team": "a", "env": "dev"}, {"team": "a"}, id="all of several terms"),
        pytest.param("env in (dev, test)", {"env": "test"}, {"env": "prod"}, id="one of several values"),
        pytest.param("env notin (dev,test)", {"env": "prod"}, {"env": "dev"}, id="none of several values"),
        pytest.param("env!=prod", {"env": "dev"}, {"env": "prod"}, id="another value"),
        pytest.param("team", {"team": "x"}, {"env": "x"}, id="the label is there"),
        pytest.param("!team", {"env": "x"}, {"team": "x"}, id="the label is not there"),
        pytest.param("a.b/c_d=e", {"a.b/c_d": "e"}, {}, id="a key with a prefix"),
        pytest.param("a=1,a=2", {"none": ""}, {"a": "1"}, id="two values that can't both be"),
    ],
)
def test_namespaces_are_selected_as_with_kubectl(text: str, matching: dict[str, str], others: dict[str, str]) -> None:
    made = selector(text)
    assert selectors.label_selector_matches(made, matching) == (text != "a=1,a=2")
    assert not selectors.label_selector_matches(made, others)


@pytest.mark.parametrize("text", ["team=a,", "=a", "team in dev", "team=a b", "a(b)", "-a=b"])
def test_a_selector_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="write a label selector") as raised:
        selector(text)
    assert raised.value.code == USAGE


def test_a_queue_has_what_was_given_and_nothing_else() -> None:
    made = queue_object("q", namespaces="team=a", capability="cpu=1", guarantee="cpu=500m", weight=2, strategy="fifo")
    assert made["spec"] == {
        "capability": {"cpu": "1"}, "guarantee": {"resource": {"cpu": "500m"}}, "weight": 2, "dequeueStrategy": "fifo",
    }  # fmt: skip
    assert made["metadata"]["annotations"] == {keys.NAMESPACE_SELECTOR: '{"matchLabels": {"team": "a"}}'}


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        pytest.param({"capability": "cpu=8"}, {"capability": {"cpu": "8"}}, id="a resource that is not named stays"),
        pytest.param(
            {"capability": "cpu=8,memory-"}, {"capability": {"cpu": "8", "memory": None}}, id="a sign removes one"
        ),
        pytest.param({"capability": ""}, {"capability": None}, id="an empty text removes the field"),
        pytest.param(
            {"guarantee": "memory=1Gi,cpu-"},
            {"guarantee": {"resource": {"cpu": None, "memory": "1Gi"}}},
            id="a guarantee",
        ),
        pytest.param({"priority": 0, "weight": 3}, {"priority": 0, "weight": 3}, id="zero is a value"),
    ],
)
def test_a_patch_changes_what_was_given(options: dict[str, Any], spec: dict[str, Any]) -> None:
    assert update(QUEUE, **options) == {"metadata": {"uid": "u"}, "spec": spec}


@pytest.mark.parametrize("text", ["cpu=8,cpu-", "cpu-,cpu-", "-", "cpu", "cpu=-"])
def test_a_change_of_resources_that_can_t_be_read_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--capability"):
        update(QUEUE, capability=text)


def test_lists_that_were_named_are_printed_as_they_are() -> None:
    assert lists(QUEUE, {"capability": "cpu=4", "guarantee": "cpu=1", "deserved": None}) == (
        "capability cpu=4,memory=1Ti; guarantee cpu=1"
    )
    assert lists({"spec": {}}, {"capability": ""}) == "capability none"


def test_members_and_flavors_that_are_replaced_are_named() -> None:
    flavored = {"metadata": {"annotations": {keys.FLAVORS: flavors(["x.io/gpu@a=k=a", "x.io/gpu@b=k=b"])}}, "spec": {}}
    other = {"metadata": {"annotations": {keys.FLAVORS: flavors(["x.io/gpu@a=k=a"])}}, "spec": {}}
    served = {"metadata": {}, "spec": {"extendClusters": [{"name": "east"}, {"name": "west"}]}}
    assert dropped(flavored, other) == ["--flavor replaces all flavors: x.io/gpu@b is removed"]
    assert dropped(served, {"metadata": {}, "spec": {"extendClusters": [{"name": "east"}]}}) == [
        "--member replaces all members: west is removed"
    ]
    assert dropped(other, flavored) == []


def test_a_queue_is_opened_to_all_namespaces_by_an_empty_selector() -> None:
    assert update(QUEUE, namespaces="")["metadata"]["annotations"] == {keys.NAMESPACE_SELECTOR: None}


def test_an_update_without_options_is_refused() -> None:
    with pytest.raises(CommandError, match="nothing to change"):
        update(QUEUE, weight=None)


def test_members_selectors_and_durations_go_where_they_belong() -> None:
    made = queue_object("q", clusters="size=large", member=["east:cpu=64", "west"], estimate="2h", sla="30m")
    assert made["spec"] == {"extendClusters": [{"name": "east", "capacity": {"cpu": "64"}}, {"name": "west"}]}
    assert made["metadata"]["annotations"] == {
        keys.CLUSTER_AFFINITY: '{"matchLabels": {"size": "large"}}',
        keys.RUNNING_ESTIMATE: "2h",
        keys.SLA_WAITING_TIME: "30m",
    }


@pytest.mark.parametrize(
    ("options", "patch"),
    [
        pytest.param({"parent": ""}, {"spec": {"parent": None}}, id="an empty parent"),
        pytest.param({"reclaimable": False}, {"spec": {"reclaimable": False}}, id="no is a value"),
        pytest.param({"member": [""]}, {"spec": {"extendClusters": None}}, id="an empty member: all members"),
        pytest.param(
            {"estimate": ""}, {"metadata": {"annotations": {keys.RUNNING_ESTIMATE: None}}}, id="an empty estimate"
        ),
    ],
)
def test_what_is_emptied_is_removed(options: dict[str, Any], patch: dict[str, Any]) -> None:
    made = update(QUEUE, **options)
    del made["metadata"]["uid"]
    assert {key: value for key, value in made.items() if value} == patch


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"member": ["east:"]}, "--member 'east:'", id="a member without its ceiling"),
        pytest.param({"member": ["east:cpu"]}, "--member 'cpu'", id="a ceiling without amount"),
        pytest.param({"clusters": "size in large"}, "--clusters 'size in large'", id="a selector"),
        pytest.param({"sla": "tomorrow"}, "--sla 'tomorrow' is not a duration", id="a duration"),
    ],
)
def test_what_can_not_be_read_is_refused_by_the_name_of_its_option(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CommandError, match=said) as raised:
        queue_object("q", **options)
    assert raised.value.code == USAGE


@pytest.mark.parametrize("command", ["create", "update"])
def test_every_field_and_annotation_of_a_queue_has_an_option(command: str) -> None:
    words = (
        "--weight 2 --capability cpu=8 --deserved cpu=4 --guarantee cpu=2 --no-reclaimable --parent lab --priority 3"
        " --type gpu --strategy fifo --member east:cpu=4 --namespaces team=a --clusters size=large"
        " --estimate 2h --sla 30m --protected-for 10m --default-policy spread --no-reclaim-unpreemptable"
        " --order fair-namespaces --fair-half-life 24h"
    )
    asked = queue_changes.asked(parse(["queue", command, "q", *words.split()]))
    made = queue_object("q", **asked)
    fields = {
        "weight": 2,
        "capability": {"cpu": "8"},
        "deserved": {"cpu": "4"},
        "guarantee": {"resource": {"cpu": "2"}},
        "reclaimable": False,
        "parent": "lab",
        "priority": 3,
        "type": "gpu",
        "dequeueStrategy": "fifo",
        "extendClusters": [{"name": "east", "capacity": {"cpu": "4"}}],
    }
    assert made["spec"] == update(QUEUE_WITHOUT, **asked)["spec"] == fields
    # No part of Atoll acts on node groups, or on weights of members.
    assert {field.alias for field in QueueSpec.model_fields.values()} - fields.keys() == {"affinity"}
    assert {field.alias for field in QueueCluster.model_fields.values()} - {"weight"} == {"name", "capacity"}
    assert made["metadata"]["annotations"] == {
        keys.NAMESPACE_SELECTOR: '{"matchLabels": {"team": "a"}}',
        keys.CLUSTER_AFFINITY: '{"matchLabels": {"size": "large"}}',
        keys.RUNNING_ESTIMATE: "2h",
        keys.SLA_WAITING_TIME: "30m",
        keys.PROTECTED_FOR: "10m",
        keys.DEFAULT_POLICY: "spread",
        keys.RECLAIM_UNPREEMPTABLE: "false",
        keys.ORDER: "fair-namespaces",
        keys.FAIR_HALF_LIFE: "24h",
    }
    again = queue_changes.asked(parse(["queue", command, "q", "--reclaim-unpreemptable"]))
    assert update(QUEUE, **again)["metadata"]["annotations"] == {keys.RECLAIM_UNPREEMPTABLE: "true"}


def test_what_is_not_asked_for_is_not_there() -> None:
    assert queue_object("q", **queue_changes.asked(parse(["queue", "create", "q"])))["spec"] == {"weight": 1}
    with pytest.raises(CommandError, match="nothing to change"):
        update(QUEUE, **queue_changes.asked(parse(["queue", "update", "q"])))


def test_an_empty_text_takes_an_annotation_away() -> None:
    asked = queue_changes.asked(parse(["queue", "update", "q", "--protected-for", "", "--default-policy", ""]))
    assert update(QUEUE, **asked)["metadata"]["annotations"] == {keys.PROTECTED_FOR: None, keys.DEFAULT_POLICY: None}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--protected-for", "long"], "--protected-for "),
        (["--estimate", "0s"], "--estimate '0s': must be longer than nothing"),
        (["--default-policy", "a/b/c"], "--default-policy 'a/b/c': write NAME of a ClusterPropagationPolicy"),
    ],
)
def test_an_option_that_can_not_be_read_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(CommandError) as raised:
        queue_object("q", **queue_changes.asked(parse(["queue", "create", "q", *words])))
    assert str(raised.value).startswith(message)
    assert raised.value.code == USAGE


def test_flavors_are_an_annotation_of_the_root_queue() -> None:
    words = ["--flavor", "nvidia.com/gpu@h100=gpu=h100", "--flavor", "nvidia.com/gpu@a100=gpu=a100"]
    asked = queue_changes.asked(parse(["queue", "create", "root", *words]))
    text = queue_object("root", **asked)["metadata"]["annotations"][keys.FLAVORS]
    assert json.loads(text) == {"nvidia.com/gpu": {"h100": "gpu=h100", "a100": "gpu=a100"}}
    removed = queue_changes.asked(parse(["queue", "update", "root", "--flavor", ""]))
    assert update(QUEUE_WITHOUT, **removed)["metadata"]["annotations"] == {keys.FLAVORS: None}


@pytest.mark.parametrize(
    ("items", "said"),
    [
        (["h100=gpu=h100"], "write RESOURCE@FLAVOR=KEY=VALUE"),
        (["nvidia.com/gpu@h100=gpu"], "'gpu' is no label of nodes"),
        (["cpu@fast=cpu=fast"], "'cpu' is no extended resource"),
        (["nvidia.com/gpu@h100=a=b", "nvidia.com/gpu@h100=a=c"], "is given twice"),
    ],
)
def test_flavors_that_can_not_be(items: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        queue_object("root", flavor=items)
