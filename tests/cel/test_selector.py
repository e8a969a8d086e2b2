"""Selectors over devices: what compiles, what a device answers, what is kept."""

from __future__ import annotations

from typing import Any

import pytest

from atoll import cel

DRIVER = "gpu.example.com"
DEVICE: dict[str, Any] = {
    "attributes": {
        "model": {"string": "H100"},
        "index": {"int": 3},
        "healthy": {"bool": True},
        "driverVersion": {"version": "550.54.15"},
        "resource.kubernetes.io/numa": {"int": 1},
    },
    "capacity": {"memory": {"value": "80Gi"}},
}


def matches(expression: str, device: dict[str, Any] = DEVICE, *, lists: bool = False) -> bool:
    view = cel.DeviceView(DRIVER, device, list_attributes=lists)
    return cel.compile(expression, list_attributes=lists).matches(view)


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.example.com"',
        'device.attributes["gpu.example.com"].model.startsWith("H")',
        'device.attributes["gpu.example.com"].healthy',
        'device.attributes["resource.kubernetes.io"].numa in [0, 1]',
        'device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("550.0.0"))',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) > 0',
        'device.attributes["gpu.example.com"].?family.orValue("none") == "none"',
        'cel.bind(gpu, device.attributes["gpu.example.com"], gpu.healthy && gpu.index % 2 == 1)',
        '!has(device.attributes["other.example.com"].anything)',
        "!device.allowMultipleAllocations",
    ],
)
def test_the_selectors_that_users_write_match_a_device(expression: str):
    assert matches(expression)


@pytest.mark.parametrize(
    "expression",
    [
        'duration("90m") == duration("1h30m") && duration("1.5h").getMinutes() == 90',
        'timestamp("2026-03-01T12:00:00Z").getDayOfWeek() == 0',
        'timestamp("2026-03-01T23:30:00Z").getHours("Europe/Zurich") == 0',
        'timestamp("2026-03-01T00:00:00Z") - duration("1s") < timestamp("2026-03-01T00:00:00Z")',
        'string(timestamp("2026-03-01T00:00:00.5Z")) == "2026-03-01T00:00:00.5Z"',
        '"%s has %d of %.2f, %x".format(["a", 3, 1.5, 255]) == "a has 3 of 1.50, ff"',
        '"a,b,c".split(",", 2) == ["a", "b,c"] && "abc".split("") == ["a", "b", "c"]',
        '"aXbXc".replace("X", "-", 1) == "a-bXc"',
        '"abcabc".lastIndexOf("c", 4) == 2 && "abc".indexOf("c", 5) == -1',
        '"a1b22".findAll("[0-9]+") == ["1", "22"]',
        "[3, 1, 2].sort() == [1, 2, 3] && [1, 2, 1].distinct() == [1, 2]",
        "[[1], [2, 3]].flatten() == [1, 2, 3] && lists.range(3).reverse() == [2, 1, 0]",
        '["bb", "a"].sortBy(x, x.size()) == ["a", "bb"] && [1, 2, 3].slice(1, 3) == [2, 3]',
        '{"a": 1, "b": 2}.all(k, v, v > 0) && {"a": 1}.transformMap(k, v, v + 1)["a"] == 2',
        "[10, 20].transformList(i, v, i + v) == [10, 21] && [1, 2].exists(i, v, i == 1 && v == 2)",
        "[?optional.of(1), ?optional.none()] == [1] && {?'a': optional.none()}.size() == 0",
        "optional.of(optional.of(1)).optFlatMap(x, x).value() == 1",
        'ip("::1").isLoopback() && ip("10.0.0.1").isGlobalUnicast() && !isIP("10.0.0.01")',
        'cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16") && cidr("10.1.2.3/8").masked() == cidr("10.0.0.0/8")',
        'url("https://a.example:8443/x?k=1&k=2").getQuery()["k"] == ["1", "2"] && !isURL("a b")',
        'url("https://a.example:8443/x").getPort() == "8443" && url("http://[::1]:80/").getHostname() == "::1"',
        '!format.uuid().validate("9f7d5ad2-0000-4000-8000-000000000000").hasValue()',
        'format.named("labelValue").value().validate("-a").hasValue()',
        'b"\\xff".size() == 1 && bytes("é").size() == 2 && string(b"a") == "a"',
        "string(1e21) == '1e+21' && string(2.0) == '2' && int('-5') == -5 && uint('7') == 7u",
        "-9223372036854775808 < 0 && 0xFF == 255 && 5 % -3 == 2 && -5 / 2 == -2",
        "type([]) == list && type(quantity('1')) != string",
        "{dyn(true): 1, dyn(1): 2}[true] == 1 && {1: 'a'}[dyn(1u)] == 'a'",
    ],
)
def test_the_libraries_answer(expression: str):
    assert matches(expression)


@pytest.mark.parametrize(
    ("expression", "column"),
    [
        ("true ||", 8),
        ("device.nosuch == 1", 7),
        ('1 == "a"', 3),
        ('"abc".matches("(")', 15),
        ('duration("x") == duration("1s")', 1),
        ("[1, 'a'].size() == 2", 5),
        ("device.driver", 1),
        ("device.driver == 'a' # no comment", 22),
        ("x == 1", 1),
        ("1 + 99999999999999999999 > 0", 5),
        ("for == 1", 1),
        ('"\\q" == "q"', 1),
        ("device.attributes.all(a.b, true)", 19),
        ("google.protobuf.Duration{}", 25),
    ],
)
def test_a_refusal_names_the_column(expression: str, column: int):
    with pytest.raises(cel.CompileError) as caught:
        cel.compile(expression)
    assert caught.value.column == column
    assert str(caught.value) == f"column {column}: {caught.value.sentence}"


def test_missing_attribute_is_an_error_of_evaluation():
    with pytest.raises(cel.EvaluationError, match="there is no 'family'"):
        matches('device.attributes["gpu.example.com"].family == "hopper"')


def test_list_attributes_need_their_feature():
    device = {"attributes": {"tags": {"strings": ["a", "b"]}}}
    assert matches('device.attributes["gpu.example.com"].tags.exists(t, t == "b")', device, lists=True)
    with pytest.raises(cel.EvaluationError, match="attribute tags"):
        matches("true", device)
    with pytest.raises(cel.CompileError):
        cel.compile('device.attributes["gpu.example.com"].tags.exists(t, t == "b")')


@pytest.mark.parametrize(
    "attribute",
    [{"version": "1.2"}, {"int": "1"}, {"int": True}, {"int": 2**63}, {"bool": 1}, {"string": []}, {}, {"x": 1}],
)
def test_device_with_an_invalid_attribute_has_no_answer(attribute: dict[str, Any]):
    with pytest.raises(cel.EvaluationError, match="attribute v"):
        matches("true", {"attributes": {"v": attribute}})


def test_devices_of_equal_content_are_equal():
    one, same = cel.DeviceView(DRIVER, DEVICE), cel.DeviceView(DRIVER, {**DEVICE, "name": "gpu-7"})
    assert (one, hash(one)) == (same, hash(same))
    attributes = {**DEVICE["attributes"], "healthy": {"int": 1}}
    assert one != cel.DeviceView(DRIVER, {**DEVICE, "attributes": attributes})
    assert one != cel.DeviceView("other.example.com", DEVICE)


def test_domain_written_in_full_and_left_out_is_one():
    plain = {"attributes": {"a": {"int": 1}}}
    full = {"attributes": {"gpu.example.com/a": {"int": 1}}}
    assert matches('device.attributes["gpu.example.com"].a == 1', plain)
    assert matches('device.attributes["gpu.example.com"].a == 1', full)


def test_equal_texts_compile_once():
    assert cel.compile("device.driver == 'once'") is cel.compile("device.driver == 'once'")


def test_cost_beyond_the_limit_is_an_error_that_no_other_side_swallows():
    view = cel.DeviceView(DRIVER, DEVICE)
    selector = cel.compile("lists.range(50).all(x, x >= 0) || true")
    assert selector.evaluate(view)[0] is True
    with pytest.raises(cel.EvaluationError, match="costs more than 100"):
        selector.evaluate(view, limit=100)
