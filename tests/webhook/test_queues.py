"""What a queue may look like, and whether it takes new work."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from atoll.admission import jsonpatch
from atoll.model import keys
from atoll.webhook import queues, resources
from tests.webhook.builders import Json, cached, changed, make_queue


def annotated(key: str, text: str) -> Json:
    return changed(make_queue(), "metadata", value={"name": "q", "annotations": {key: text}})


@pytest.mark.parametrize(
    ("key", "said"),
    [
        pytest.param("atoll.sh/sla-wating-time", ["did you mean atoll.sh/sla-waiting-time?"], id="misspelt"),
        pytest.param(
            "sla-waiting-time", ["did you mean annotation atoll.sh/sla-waiting-time?"], id="of Volcano's plugin"
        ),
        pytest.param(
            "atoll.sh/hold", ["metadata.annotations[atoll.sh/hold]: has no effect on a queue"], id="of workloads"
        ),
        pytest.param("atoll.sh/priority-classes", [], id="that a queue has"),
        pytest.param("atoll.sh/default-policy", [], id="its default policy"),
        pytest.param("sla-tier", [], id="of somebody else"),
        pytest.param("example.com/sla-waiting-tim", [], id="of another system"),
    ],
)
def test_annotations_that_have_no_effect_on_a_queue(key: str, said: list[str]) -> None:
    queue = annotated(key, "30m")
    found = [str(each) for each in queues.unread(queue, None)]
    assert [text for text in said if text not in "".join(found)] == []
    assert len(found) == len(said)
    assert not list(queues.unread(queue, queue)), "it was warned of before"


def test_a_label_of_a_queue_has_no_effect() -> None:
    queue = {**make_queue(), "metadata": {"name": "q", "labels": {"atoll.sh/order": "fair-jobs", "team": "a"}}}
    [found] = queues.unread(queue, None)
    assert str(found) == (
        "metadata.labels[atoll.sh/order]: has no effect on a queue; did you mean annotation atoll.sh/order?"
    )


def test_members_and_classes_that_do_not_exist_are_named() -> None:
    east = resources.decode_cluster(b'{"metadata": {"name": "east", "labels": {"gpu": "h100"}}}')
    queue = make_queue(extendClusters=[{"name": "esat"}, {"name": "east"}])
    queue["metadata"]["annotations"] = {
        keys.CLUSTER_AFFINITY: '{"matchLabels": {"gpu": "h10"}}', keys.PRIORITY_CLASSES: "low, hihg",
    }  # fmt: skip
    assert [str(each) for each in queues.unknown_names(queue, [east], ["low", "high"])] == [
        "spec.extendClusters[0].name: no member is named 'esat'; did you mean east?",
        "metadata.annotations[atoll.sh/cluster-affinity]: no member has such labels, and its workloads wait until one has:"
        " atollctl cluster label NAME KEY=VALUE",
        "metadata.annotations[atoll.sh/priority-classes]: there is no PriorityClass 'hihg' on the host; did you mean high?",
    ]
    assert not list(queues.unknown_names(queue, [], None)), "nothing is known of members and classes"


@pytest.mark.parametrize(
    ("policy", "what"),
    [("nope", "ClusterPropagationPolicy nope"), ("lab/nope", "PropagationPolicy nope in namespace lab"), ("good", "")],
)
def test_a_default_policy_that_does_not_exist_is_named(policy: str, what: str) -> None:
    found = [*queues.unknown_names(annotated(keys.DEFAULT_POLICY, policy), [], None, lambda name: name == "good")]
    text = f"there is no {what}; until there is, workloads without a policy may go to any one member"
    assert [each.message for each in found] == ([text] if what else [])


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        pytest.param({"cpu": 30}, {"cpu": "10"}, ["cpu"], id="lowered below use"),
        pytest.param({}, {"cpu": "10"}, ["cpu"], id="a first limit below use"),
        pytest.param({"cpu": 12}, {"cpu": "10"}, ["cpu"], id="lowered further"),
        pytest.param({"cpu": 10}, {"cpu": "12"}, [], id="raised"),
        pytest.param({"cpu": 10}, {"cpu": "10"}, [], id="as it was"),
        pytest.param({"cpu": 30}, {"cpu": "24"}, [], id="what it uses"),
        pytest.param({"cpu": 30}, {"cpu": "10 cores"}, [], id="what can't be read"),
    ],
)
def test_a_capability_below_what_the_queue_uses_is_told(before: Json, now: Json, said: list[str]) -> None:
    status = {"allocated": {"cpu": "24", "pods": "3"}}
    old, new = ({**make_queue(capability=each), "status": status} for each in (before, now))
    assert [each.field for each in queues.below_use(new, old)] == [f"spec.capability.{name}" for name in said]


def test_what_follows_from_a_capability_below_use_is_told() -> None:
    new = {**make_queue(capability={"cpu": 10}), "status": {"allocated": {"cpu": "24"}}}
    [found] = queues.below_use(new, make_queue())
    assert found.message == (
        "is 10, and the queue uses 24: no workload is evicted for that alone, and one in it that asks for cpu starts"
        " only once enough others have ended, or were evicted for it"
    )


KNOWN = {
    "org": cached(make_queue("org")),
    "team": cached(make_queue("team", parent="org")),
    "orphan": cached(make_queue("orphan", parent="gone")),
}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {"weight": 1, "reclaimable": True}, id="nothing is set"),
        pytest.param(
            {"weight": 4, "reclaimable": False, "parent": "org"},
            {"weight": 4, "reclaimable": False, "parent": "org"},
            id="everything is set",
        ),
    ],
)
def test_defaults(spec: Json, expected: Json) -> None:
    queue = {"metadata": {"name": "q"}, "spec": spec}
    complete = jsonpatch.applied(queue, queues.default_queue(queue))
    assert complete["spec"] == expected
    assert queues.default_queue(complete) == []


def test_a_queue_without_spec_gets_one() -> None:
    queue: Json = {"metadata": {"name": "q"}}
    assert jsonpatch.applied(queue, queues.default_queue(queue))["spec"] == {
        "weight": 1,
        "reclaimable": True,
    }


@pytest.mark.parametrize(
    ("queue", "fields"),
    [
        pytest.param(make_queue("Team"), ["metadata.name"], id="a name in capitals"),
        pytest.param(make_queue(weight=0), ["spec.weight"], id="weight 0"),
        pytest.param(make_queue(weight=65536), ["spec.weight"], id="too much weight"),
        pytest.param(make_queue(parent="research"), ["spec.parent"], id="its own parent"),
        pytest.param(make_queue(parent="nowhere"), ["spec.parent"], id="an unknown parent"),
        pytest.param(make_queue("org", parent="team"), ["spec.parent"], id="a circle"),
        pytest.param(make_queue("root", parent="org"), ["spec.parent"], id="a root with parent"),
        pytest.param(make_queue(capability={"cpu": "many"}), ["spec.capability.cpu"], id="no quantity"),
        pytest.param(make_queue(deserved={"cpu": "-1"}), ["spec.deserved.cpu"], id="a negative quantity"),
        pytest.param(
            make_queue(deserved={"cpu": 3}, capability={"cpu": 2}),
            ["spec.deserved.cpu"],
            id="more deserved than capability",
        ),
        pytest.param(
            make_queue(guarantee={"resource": {"cpu": 3}}, deserved={"cpu": "2500m"}),
            ["spec.guarantee.resource.cpu"],
            id="more guaranteed than deserved",
        ),
        pytest.param(
            make_queue(guarantee={"resource": {"cpu": 3}}, capability={"cpu": 2}),
            ["spec.guarantee.resource.cpu"],
            id="more guaranteed than capability",
        ),
        pytest.param(
            make_queue(extendClusters=[{"name": "m", "capacity": {"cpu": "x"}}]),
            ["spec.extendClusters[0].capacity.cpu"],
            id="a ceiling in a member that is no quantity",
        ),
        pytest.param(
            changed(
                make_queue(),
                "metadata",
                value={"name": "q", "annotations": {"atoll.sh/namespace-selector": "team=a"}},
            ),
            ["metadata.annotations[atoll.sh/namespace-selector]"],
            id="a namespace selector that is no JSON",
        ),
        pytest.param(
            make_queue(extendClusters=[{"name": "m"}, {}, {"name": "m"}]),
            ["spec.extendClusters[1].name", "spec.extendClusters[2].name"],
            id="a member without name, and one twice",
        ),
        pytest.param(annotated("atoll.sh/cluster-affinity", '{"labels": {}}'), "selector", id="no cluster affinity"),
        pytest.param(annotated("atoll.sh/dequeue-strategy", "lifo"), "strategy", id="no strategy"),
        pytest.param(annotated("atoll.sh/score-strategy", "gone"), "atoll.score", id="no such strategy for scores"),
        pytest.param(annotated("atoll.sh/split-strategy", "gone"), "atoll.split", id="no such strategy for divisions"),
        pytest.param(annotated("atoll.sh/order", "fair"), "fair-namespaces", id="no order"),
        pytest.param(annotated("atoll.sh/order", "fair-jobs"), [], id="an order"),
        pytest.param(
            annotated("atoll.sh/fair-half-life", "24h"), "no effect unless", id="a half-life without its order"
        ),
        pytest.param(annotated("atoll.sh/fair-half-life", "0s"), "longer than nothing", id="no half-life"),
        pytest.param(annotated("atoll.sh/running-estimate", "2 days"), "duration", id="no estimate"),
        pytest.param(annotated("atoll.sh/sla-waiting-time", "-1h"), "duration", id="no waiting time"),
        pytest.param(annotated("atoll.sh/sla-waiting-time", "1h30m"), [], id="a waiting time"),
        pytest.param(make_queue(parent="org"), [], id="a known parent"),
        pytest.param(make_queue(parent="root"), [], id="the root as parent"),
        pytest.param(make_queue("child", parent="orphan"), [], id="a parent that is an orphan"),
        pytest.param(
            make_queue(guarantee={"resource": {"cpu": 1}}, deserved={"cpu": 1}, capability={"memory": 0}),
            [],
            id="limits on different resources",
        ),
    ],
)
def test_rules(queue: Json, fields: list[str] | str) -> None:
    problems = queues.validate_queue(queue, KNOWN.get)
    if isinstance(fields, str):
        [problem] = problems
        assert problem.field.startswith("metadata.annotations[atoll.sh/")
        assert fields in problem.message
    else:
        assert [problem.field for problem in problems] == fields


def guaranteed(name: str, cpu: str | None, *, parent: str | None = None, **spec: Any) -> Json:
    amounts = {} if cpu is None else {"guarantee": {"resource": {"cpu": cpu}}}
    return make_queue(name, **amounts, **({"parent": parent} if parent else {}), **spec)


TREE = {
    queue["metadata"]["name"]: cached(queue)
    for queue in (
        guaranteed("lab", "8"),
        guaranteed("vision", "3", parent="lab"),
        guaranteed("audio", "9", parent="lab", capability={"cpu": "4"}),
        guaranteed("plain", None),
    )
}


def below(name: str) -> list[queues.Queue]:
    return [queue for queue in TREE.values() if queue.parent == name]


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        pytest.param(guaranteed("text", "1", parent="lab"), None, id="what is left of the parent's guarantee"),
        pytest.param(
            guaranteed("text", "1100m", parent="lab"),
            "all queues below 'lab' together would be guaranteed cpu 8100m, more than the 8 that 'lab' itself is",
            id="more than is left, of which a queue takes no more than its capability",
        ),
        pytest.param(guaranteed("vision", "4", parent="lab"), None, id="a change counts once"),
        pytest.param(guaranteed("vision", "5", parent="lab"), "cpu 9, more than the 8", id="a change that is too much"),
        pytest.param(
            guaranteed("lab", "6"),
            "the queues below it are guaranteed cpu 7, more than the 6 of this queue",
            id="a parent below its children",
        ),
        pytest.param(guaranteed("text", "1", parent="plain"), "cpu 1, more than the 0", id="a parent without any"),
        pytest.param(guaranteed("text", "100"), None, id="at the top nothing is above"),
    ],
)
def test_guarantees_fit_the_tree(queue: Json, said: str | None) -> None:
    problems = queues.validate_queue(queue, TREE.get, below)
    assert [problem.field for problem in problems] == ([] if said is None else ["spec.guarantee.resource"])
    assert said is None or said in problems[0].message


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        pytest.param(make_queue("lab", capability={"cpu": "4"}), "queue vision deserves 5", id="of a child"),
        pytest.param(make_queue("lab", capability={"cpu": "5"}), "", id="of no child"),
        pytest.param(make_queue("top", capability={"cpu": "4"}), "queue vision deserves 5", id="of a grandchild"),
        pytest.param(
            make_queue("vision", parent="lab", deserved={"cpu": "9"}),
            "queue vision deserves 9, and the capability of queue top above it is 8",
            id="of the queue itself",
        ),
        pytest.param(make_queue("vision", parent="lab", deserved={"memory": "9Gi"}), "", id="without such a limit"),
    ],
)
def test_a_deserved_amount_beyond_the_capability_above_is_warned_of(queue: Json, message: str) -> None:
    tree = {
        "top": cached(make_queue("top", capability={"cpu": "8"})),
        "lab": cached(make_queue("lab", parent="top")),
        "vision": cached(make_queue("vision", parent="lab", deserved={"cpu": "5"})),
    }
    tree |= {queue["metadata"]["name"]: cached(make_queue(queue["metadata"]["name"], **queue["spec"]))}

    def children(name: str) -> list[queues.Queue]:
        return [each for each in tree.values() if each.parent == name]

    warnings = queues.undeserved(queue, tree.get, children)
    assert [message in each.message for each in warnings] == ([True] if message else [])


@pytest.mark.parametrize("queue", [{"metadata": None}, {"metadata": {"name": 3}}, {"spec": {"deserved": [1]}}, {}])
def test_a_queue_that_cant_be_read_has_no_such_warning(queue: Json) -> None:
    assert queues.undeserved(queue, lambda _: None, lambda _: []) == []


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        pytest.param({"capability": {"nvidia.com/gpu": 4}}, ["spec.capability.nvidia.com/gpu"], id="a limit"),
        pytest.param({"deserved": {"nvidia.com/gpu": 4}}, ["spec.deserved.nvidia.com/gpu"], id="a share"),
        pytest.param({"deserved": {"atoll.sh/gpu-milli": 4}}, ["spec.deserved.atoll.sh/gpu-milli"], id="parts"),
        pytest.param(
            {"capability": {"nvidia.com/gpu@a100": 4, "cpu": 1}},
            ["spec.capability.nvidia.com/gpu@a100"],
            id="a limit of one flavor",
        ),
        pytest.param({"capability": {"nvidia.com/gpu": 4, "atoll.sh/any-gpu-milli": 4000}}, [], id="all names too"),
        pytest.param(
            {"capability": {"atoll.sh/any-gpu-milli": 4000}, "deserved": {"nvidia.com/gpu": 2}},
            [],
            id="a share below a limit of all names",
        ),
        pytest.param(
            {"capability": {"nvidia.com/gpu": 4}, "deserved": {"atoll.sh/any-gpu-milli": 4000}},
            ["spec.capability.nvidia.com/gpu"],
            id="a limit above a share of all names",
        ),
        pytest.param({"capability": {"cpu": 4, "example.com/tpu": 1}}, [], id="no GPUs"),
        pytest.param({"capability": None, "deserved": ["nvidia.com/gpu"]}, [], id="no resources"),
    ],
)
def test_bounds_of_gpus_under_one_name_are_warned_of(spec: Json, fields: list[str]) -> None:
    offered = ["cpu", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"]
    found = [*queues.one_name({"spec": spec}, offered)]
    assert [each.field for each in found] == fields
    assert all("bound atoll.sh/any-gpu-milli" in each.message and len(str(each)) <= 256 for each in found)


@pytest.mark.parametrize(
    ("offered", "warned"),
    [
        pytest.param([], "another (a MIG profile or a part)", id="no member has reported"),
        pytest.param(["cpu", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"], "another (nvidia.com/mig-1g.5gb)", id="MIG"),
        pytest.param(["cpu", "nvidia.com/gpu"], "", id="no other name"),
    ],
)
def test_a_name_without_others_in_members_is_not_warned_of(offered: list[str], warned: str) -> None:
    found = [*queues.one_name({"spec": {"capability": {"nvidia.com/gpu": 4}}}, offered)]
    assert [warned in each.message for each in found] == ([True] if warned else [])


def busy(**counts: int) -> queues.Queue:
    return queues.decode(orjson.dumps({**make_queue("busy"), "status": counts}))


@pytest.mark.parametrize(
    ("parent", "siblings", "refused"),
    [
        pytest.param(busy(pending=1), [], True, id="something waits"),
        pytest.param(busy(inqueue=1), [], True, id="something starts"),
        pytest.param(busy(running=2), [], True, id="something runs"),
        pytest.param(busy(completed=5), [], False, id="all has ended"),
        pytest.param(busy(running=2), ["other"], False, id="it has others below it already"),
    ],
)
def test_a_queue_with_workloads_gets_no_first_child(parent: queues.Queue, siblings: list[str], refused: bool) -> None:
    def children(name: str) -> list[queues.Queue]:
        return [cached(make_queue(each, parent="busy")) for each in siblings] if name == "busy" else []

    child = make_queue("child", parent="busy")
    problems = queues.validate_queue(child, {"busy": parent}.get, children)
    assert [problem.field for problem in problems] == (["spec.parent"] if refused else [])
    moved = queues.validate_queue_update(make_queue("child"), child, {"busy": parent}.get, children)
    assert bool(moved) is refused
    heavier = make_queue("child", parent="busy", weight=7)
    assert queues.validate_queue_update(child, heavier, {"busy": parent}.get, children) == []


def test_a_bad_change_is_refused_and_an_old_fault_does_not_block_labels() -> None:
    bad = make_queue(weight=0)
    labelled = changed(bad, "metadata", value={"name": "research", "labels": {"a": "b"}})
    assert queues.validate_queue_update(bad, labelled, KNOWN.get) == []
    assert queues.validate_queue_update(make_queue(), bad, KNOWN.get)


@pytest.mark.parametrize(
    ("name", "children", "refused"),
    [
        pytest.param("default", [], True, id="the default queue"),
        pytest.param("root", [], False, id="the limits of all, which the root may have"),
        pytest.param("org", ["team"], True, id="a queue with children"),
        pytest.param("team", [], False, id="a leaf"),
    ],
)
def test_deletion(name: str, children: list[str], refused: bool) -> None:
    assert bool(queues.validate_queue_deletion(name, children)) is refused


@pytest.mark.parametrize(("name", "refused"), [("team", True), ("root", False)])
def test_a_queue_with_running_work_can_not_be_deleted(name: str, refused: bool) -> None:
    problems = queues.validate_queue_deletion(name, [], 2)
    assert bool(problems) is refused
    assert not refused or "2 dispatched workloads" in problems[0].message


SELECTOR = '{"matchLabels":{"team":"vision"}}'
GUARDED = changed(
    make_queue(),
    "metadata",
    value={"name": "research", "annotations": {"atoll.sh/namespace-selector": SELECTOR}},
)


@pytest.mark.parametrize(
    ("queue", "children", "labels", "said"),
    [
        pytest.param(None, [], {}, None, id="an unknown queue is waited for"),
        pytest.param(cached(make_queue()), [], {}, None, id="a new queue is open"),
        pytest.param(cached(make_queue(), "Open"), [], {}, None, id="an open queue"),
        pytest.param(cached(make_queue(), "Closed"), [], {}, "is Closed", id="a closed queue"),
        pytest.param(cached(make_queue(), "Closing"), [], {}, "is Closing", id="a closing queue"),
        pytest.param(cached(make_queue()), ["b", "a"], {}, "use one of: a, b", id="not a leaf"),
        pytest.param(cached(GUARDED), [], {"team": "vision"}, None, id="open to this namespace"),
        pytest.param(cached(GUARDED), [], {"team": "audio"}, "not open to", id="not open to this namespace"),
        pytest.param(cached(GUARDED), [], None, None, id="a namespace not known yet"),
    ],
)
def test_new_work(
    queue: queues.Queue | None, children: list[str], labels: dict[str, str] | None, said: str | None
) -> None:
    problem = queues.queue_problem("research", queue, children, "team-a", labels)
    assert (problem is None) == (said is None)
    if problem is not None and said is not None:
        assert problem.field == "spec.queue"
        assert said in problem.message


@pytest.mark.parametrize(
    ("above", "said"),
    [
        pytest.param({}, None, id="a parent that is not known"),
        pytest.param({"team": cached(make_queue("team"))}, None, id="an open parent"),
        pytest.param({"team": cached(make_queue("team"), "Closed")}, "'team', which is Closed", id="a closed parent"),
        pytest.param(
            {"team": cached(make_queue("team", parent="org")), "org": cached(make_queue("org"), "Closing")},
            "'org', which is Closing",
            id="a closing queue further up",
        ),
        pytest.param(
            {"team": cached(make_queue("team")), "root": cached(make_queue("root"), "Closed")},
            "'root', which is Closed",
            id="the root",
        ),
        pytest.param({"team": cached(make_queue("team", parent="research"))}, None, id="a circle"),
    ],
)
def test_new_work_below_a_closed_queue(above: dict[str, queues.Queue], said: str | None) -> None:
    queue = cached(make_queue(parent="team"))
    problem = queues.queue_problem("research", queue, [], lookup={"research": queue, **above}.get)
    assert (problem is None) == (said is None)
    if problem is not None and said is not None:
        assert f"queue 'research' is below queue {said}" in problem.message


def test_the_root_takes_no_work_even_when_it_is_not_known() -> None:
    assert queues.queue_problem("root", None, []) is not None


@pytest.mark.parametrize(
    ("below", "leaves"),
    [
        pytest.param({}, [], id="a leaf"),
        pytest.param({"lab": ["a", "b"], "b": ["c", "d"]}, ["a", "c", "d"], id="a child that is divided itself"),
        pytest.param({"lab": ["a"], "a": ["lab"]}, ["a"], id="a circle"),
    ],
)
def test_work_is_sent_to_queues_that_take_it(below: dict[str, list[str]], leaves: list[str]) -> None:
    assert sorted(queues.leaves("lab", lambda name: below.get(name, []))) == leaves
