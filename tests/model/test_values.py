"""Quantities, vectors, gangs and times."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model import gang, numbers, quantity, timestamps, vector
from atoll.model.gang import Gang, Task

HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8), ("500m", HALF), ("1.5Gi", 3 * 2**29), ("2e3", 2000), ("1E", 10**18), ("1E2", 100), ("-.5", -HALF), ("+1", 1),
        ("1.", 1), ("0", 0), ("100n", Fraction(1, 10**7)), ("3u", Fraction(3, 10**6)), ("1k", 1000), ("1Ki", 1024), ("7Ei", 7 * 2**60),
        ("1e-1000", Fraction(1, 10**9)), ("-1e-1000", Fraction(-1, 10**9)), ("0e-1000", 0), ("1e-999999999", Fraction(1, 10**9)),
        ("1e1000", 2**63 - 1), ("1e999999999", 2**63 - 1), ("0.0001e4", 1), (f"{10**80}e-80", 1),
        (2, 2), (0.5, HALF), (1e-07, Fraction(1, 10**7)), (1e16, 10**16),
    ],
)  # fmt: skip
def test_a_quantity_has_an_exact_value(text: Any, value: Any) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 ",
        " 1",
        "1 Gi",
        "1K",
        "1g",
        "Gi",
        ".",
        "-",
        "1e",
        "e3",
        "+-1",
        "1E+-3",
        "1e10000000000",
        "0x1",
        "1_0",
        "nan",
        "inf",
        "１",
    ],
)
def test_what_is_not_a_quantity_is_refused_by_name(text: str) -> None:
    with pytest.raises(quantity.QuantityError, match="is not a quantity"):
        quantity.parse(text)


def test_requests_round_up_and_capacity_rounds_down() -> None:
    assert quantity.requests({"cpu": "0.1m", "memory": "0.5"}) == {"cpu": 1, "memory": 1}
    assert quantity.capacity({"cpu": "1.9m", "memory": "1.5"}) == {"cpu": 1, "memory": 1}
    assert quantity.requests(None) == quantity.capacity(None) == {}


@given(st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"]), st.integers(0, 2**62))
def test_formatted_units_read_back_to_the_same(resource: str, value: int) -> None:
    text = quantity.format_units(resource, value)
    assert quantity.ceil_units(resource, text) == quantity.floor_units(resource, text) == value


def container(always: bool = False, limits: Any = None, **requests: str) -> dict[str, Any]:
    return {
        "resources": {"requests": requests, **({"limits": limits} if limits else {})},
        **({"restartPolicy": "Always"} if always else {}),
    }


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param({"containers": [container(cpu="1"), container(cpu="2")]}, 3000, id="containers add up"),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="5"), container(cpu="3")]},
            5000,
            id="the largest init container",
        ),
        pytest.param(
            {"containers": [container(cpu="4")], "initContainers": [container(cpu="3")]},
            4000,
            id="a smaller init container is free",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container(True, cpu="2")]},
            3000,
            id="a sidecar runs on",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container(True, cpu="2"), container(cpu="4")]},
            6000,
            id="an init container beside the sidecar before it",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="4"), container(True, cpu="2")]},
            4000,
            id="an init container is over before the sidecar after it",
        ),
        pytest.param({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, 1250, id="overhead on top"),
        pytest.param({"containers": [container(limits={"cpu": "2"})]}, 2000, id="a missing request is the limit"),
        pytest.param(
            {"containers": [container(limits={"cpu": "2"}, cpu="1")]}, 1000, id="a request wins over the limit"
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "7"}}, "overhead": {"cpu": "1"}},
            8000,
            id="pod-level resources win",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"limits": {"cpu": "4"}}},
            1000,
            id="what containers request wins over the limit of the pod",
        ),
        pytest.param(
            {"containers": [container()], "resources": {"limits": {"cpu": "4"}}},
            4000,
            id="the limit of the pod where no container requests any",
        ),
        pytest.param({}, 0, id="no containers"),
    ],
)
def test_what_a_pod_takes(spec: dict[str, Any], cpu: int) -> None:
    found = vector.pod_requests(spec)
    assert (found.get("cpu", 0), found["pods"]) == (cpu, 1)


@pytest.mark.parametrize(
    ("used", "request_", "limit", "short"),
    [
        pytest.param({}, {"a": 1}, {}, None, id="a limit that is not named is none"),
        pytest.param({"a": 1}, {"a": 1}, {"a": 2}, None, id="exactly full"),
        pytest.param({"a": 2}, {"a": 1}, {"a": 2}, ("a", 1, 0), id="one too many"),
        pytest.param({"a": 9}, {"b": 1}, {"a": 2, "b": 1}, None, id="over in a resource that is not requested"),
        pytest.param({}, {"b": 2, "a": 2}, {"a": 1, "b": 1}, ("a", 2, 1), id="the first by name"),
        pytest.param({"a": 9}, {"a": 0}, {"a": 2}, None, id="nothing of it"),
    ],
)
def test_shortage(used: Any, request_: Any, limit: Any, short: Any) -> None:
    assert vector.shortage(used, request_, limit) == short


VECTOR = st.dictionaries(st.sampled_from("abc"), st.integers(1, 9))


@given(VECTOR, VECTOR)
def test_adding_and_taking_away_are_inverse(one: dict[str, int], two: dict[str, int]) -> None:
    into = dict(one)
    vector.add(into, two)
    vector.add(into, two, -1)
    assert into == one


@pytest.mark.parametrize(
    ("used", "limit", "share"),
    [
        ({}, {}, 0.0),
        ({"a": 1}, {"a": 4, "b": 2}, 0.25),
        ({"a": 1, "b": 1}, {"a": 4, "b": 2}, 0.5),
        ({"a": 1}, {"a": 0}, 1.0),
        ({}, {"a": 0}, 0.0),
    ],
)
def test_dominant_share(used: Any, limit: Any, share: float) -> None:
    assert vector.share(used, limit) == share


@pytest.mark.parametrize(
    ("tasks", "minimum", "floor"),
    [
        pytest.param([(4, 4)], 4, [4], id="all of one task"),
        pytest.param([(4, 4)], 2, [2], id="less than the task minimum"),
        pytest.param([(1, 1), (4, 2)], 3, [1, 2], id="exactly the task minimums"),
        pytest.param([(1, 1), (4, 2)], 4, [1, 3], id="what is missing in task order"),
        pytest.param([(3, 1), (4, 2)], 5, [3, 2], id="the first task takes what it can"),
        pytest.param([(2, 2), (4, 4)], 3, [2, 1], id="minimums above the gang's do not bind"),
        pytest.param([(2, 2), (4, 4)], 0, [1, 0], id="no minimum means one pod"),
    ],
)
def test_the_smallest_set_that_may_start(tasks: list[tuple[int, int]], minimum: int, floor: list[int]) -> None:
    assert Gang("q", [Task(str(n), r, m, {}) for n, (r, m) in enumerate(tasks)], minimum).floor() == floor


PARTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(any), min_size=1, max_size=4)


@given(PARTS, st.data())
def test_minimums_of_parts_add_up_and_never_exceed_a_part(parts: list[tuple[int, int]], data: st.DataObject) -> None:
    replicas = [sum(p[i] for p in parts) for i in range(2)]
    least = [data.draw(st.integers(0, r)) for r in replicas]
    whole = Gang(
        "q",
        [Task(str(i), replicas[i], least[i], {"pods": 1}) for i in range(2)],
        data.draw(st.integers(0, sum(replicas))),
    )
    divided = gang.divide(whole, parts)
    assert sum(part.min_available for part in divided) == whole.min_available
    assert [sum(part.tasks[i].min_available for part in divided) for i in range(2)] == least
    for part, counts in zip(divided, parts, strict=True):
        assert [task.replicas for task in part.tasks] == list(counts)
        assert part.min_available <= part.replicas
        assert all(task.min_available <= task.replicas for task in part.tasks)


def test_a_gang_survives_its_annotation_and_charges_all_replicas() -> None:
    whole = Gang("q", [Task("a", 2, 1, {"cpu": 500, "pods": 1}), Task("b", 1, 1, {"cpu": 1, "pods": 1})], 2, 7)
    assert gang.decode(gang.encode(whole)) == whole
    assert whole.total() == {"cpu": 1001, "pods": 3}


@pytest.mark.parametrize("name", ["a" * 32, "a" * 33, "a" * 60])
def test_a_component_name_is_short_and_distinct(name: str) -> None:
    short = gang.component_name(name)
    assert len(short) <= 32
    assert (short == name) is (len(name) <= 32)
    assert gang.component_name(name + "x") != short


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("9" * 5000, None), ("\u00b2", None), ("\u0663", None),
     ("-1", None), (" 1", None), ("", None), (None, None)],
)  # fmt: skip
def test_a_number_in_an_annotation_is_whole_or_none(text: str | None, number: int | None) -> None:
    assert numbers.whole(text) == number


@given(st.integers(0, 4_000_000_000_000))
def test_times_read_back(millis: int) -> None:
    assert timestamps.to_seconds(timestamps.rfc3339(millis / 1000)) == pytest.approx(millis / 1000, abs=0.0011)
    assert timestamps.to_seconds(timestamps.rfc3339_seconds(millis // 1000)) == millis // 1000


def test_times_have_the_form_that_the_api_wants() -> None:
    assert timestamps.rfc3339(1.5) == "1970-01-01T00:00:01.500Z"
    assert timestamps.rfc3339_seconds(1.5) == "1970-01-01T00:00:01Z"
    assert timestamps.rfc3339_micro(1.5) == "1970-01-01T00:00:01.500000Z"
    with pytest.raises(ValueError):
        timestamps.to_seconds("yesterday")
