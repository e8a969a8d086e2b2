"""DeviceClasses, ResourceClaims and templates as they are read."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model.device_claims import (
    Claim,
    Constraint,
    DeviceClass,
    Request,
    UnsupportedClaim,
    Wish,
    charge,
    class_resource,
    stated,
)
from atoll.model.devices import Toleration

Json = dict[str, Any]
CEL = [{"cel": {"expression": "true"}}]


def claim(**devices: Any) -> Json:
    return {"metadata": {"name": "c"}, "spec": {"devices": devices}}


def test_class_has_selectors_configuration_and_a_resource_name():
    raw: Json = {
        "metadata": {"name": "gpu", "annotations": {"atoll.sh/extended-resource": "counted"}},
        "spec": {"selectors": CEL, "config": [{"opaque": {}}], "extendedResourceName": "example.com/gpu"},
    }
    assert DeviceClass.of(raw) == DeviceClass("gpu", ("true",), ({"opaque": {}},), "example.com/gpu")
    assert not DeviceClass.of({**raw, "metadata": {"name": "gpu"}}).extended_resource, "quotas by class do not count it"


def test_request_is_for_one_device_unless_it_counts_or_asks_for_all():
    read = Claim.of(
        claim(
            requests=[
                {"name": "one", "exactly": {"deviceClassName": "gpu"}},
                {"name": "three", "exactly": {"deviceClassName": "gpu", "count": 3, "selectors": CEL}},
                {"name": "all", "exactly": {"deviceClassName": "gpu", "allocationMode": "All", "adminAccess": True}},
            ]
        )
    )
    assert [request.wishes for request in read.requests] == [
        (Wish("one", "gpu"),),
        (Wish("three", "gpu", ("true",), 3),),
        (Wish("all", "gpu", (), None, admin=True),),
    ]


def test_alternatives_are_named_after_their_request():
    toleration = {"key": "k", "operator": "Exists"}
    alternatives = [
        {"name": "big", "deviceClassName": "gpu", "tolerations": [toleration]},
        {"name": "part", "deviceClassName": "gpu", "capacity": {"requests": {"memory": "1Gi"}}},
    ]
    read = Claim.of(claim(requests=[{"name": "r", "firstAvailable": alternatives}]))
    assert read.requests == (
        Request(
            "r",
            (
                Wish("r/big", "gpu", tolerations=(Toleration("k", "Exists", "", ""),), raw_tolerations=(toleration,)),
                Wish("r/part", "gpu", capacity=(("memory", "1Gi"),)),
            ),
        ),
    )


def test_constraint_applies_to_the_requests_and_alternatives_it_names():
    constraint = Constraint(("a", "b/x"), "d/root")
    named = [constraint.applies(Wish(name, "gpu")) for name in ("a", "a/y", "b", "b/x", "b/z")]
    assert named == [True, True, False, True, False]
    assert Constraint((), "d/root").applies(Wish("any", "gpu"))


def test_template_is_read_as_the_claim_it_makes():
    inner = claim(
        requests=[{"name": "a", "exactly": {"deviceClassName": "gpu"}}],
        constraints=[{"matchAttribute": "d/root"}, {"requests": ["a"], "distinctAttribute": "d/numa"}],
        config=[{"requests": ["a"], "opaque": {}}],
    )
    template = {"metadata": {"name": "c"}, "spec": {"metadata": {}, "spec": inner["spec"]}}
    assert Claim.of(template) == Claim.of(inner)
    assert Claim.of(inner).constraints == (Constraint((), "d/root"), Constraint(("a",), "d/numa", distinct=True))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (claim(requests=[{"name": "r", "later": {}}]), "neither exactly nor firstAvailable"),
        (claim(requests=[{"name": "r", "exactly": {"deviceClassName": "g", "allocationMode": "Some"}}]), "Some"),
        (claim(requests=[{"name": "r", "exactly": {"deviceClassName": ""}}]), "no device class"),
        (claim(requests=[{"name": "r", "exactly": {"deviceClassName": "g", "selectors": [{}]}}]), "not in CEL"),
        (claim(constraints=[{"requests": ["r"]}]), "unknown kind"),
    ],
)
def test_fields_of_a_later_version_are_refused(raw: Json, message: str):
    with pytest.raises(UnsupportedClaim, match=message):
        Claim.of(raw)


GPUS, NICS = class_resource("gpu"), class_resource("nic")


def every(device_class: str = "gpu", **more: Any) -> Json:
    return {"deviceClassName": device_class, "allocationMode": "All", **more}


def stating(text: str, raw: Json, *, template: bool = False) -> Json:
    """The claim, or a template of such claims, with the annotation."""
    annotations = {"annotations": {"atoll.sh/all-devices": text}}
    if template:
        return {"metadata": {"name": "c"}, "spec": {"metadata": annotations, "spec": raw["spec"]}}
    return {**raw, "metadata": {"name": "c", **annotations}}


ALL = claim(
    requests=[
        {"name": "gpu", "exactly": every()},
        {"name": "one", "exactly": {"deviceClassName": "gpu", "count": 1}},
        {
            "name": "nic",
            "firstAvailable": [{"name": "fast", **every("nic")}, {"name": "any", "deviceClassName": "nic"}],
        },
    ]
)


@pytest.mark.parametrize("template", [False, True], ids=["claim", "template"])
@pytest.mark.parametrize(
    ("text", "charged"),
    [
        pytest.param("8", {GPUS: 9, NICS: 8}, id="one number counts for every request for all"),
        pytest.param("gpu=8, nic/fast=4", {GPUS: 9, NICS: 4}, id="numbers by request and alternative"),
        pytest.param("2,nic/fast=32", {GPUS: 3, NICS: 32}, id="a number by name goes before the one for all"),
    ],
)
def test_all_devices_are_charged_as_their_number_is_stated(text: str, charged: Json, template: bool):
    raw = stating(text, ALL, template=template)
    assert charge(Claim.of(raw)) == charged
    again = {"metadata": {"name": "c"}, "spec": stated(raw)}
    assert Claim.of(again) == Claim.of(raw), "the number stays with the spec"
    assert Claim.of(raw).requests[0].wishes[0].count is None, "all are still asked for"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "a number from 1 to 32"),
        ("33", "a number from 1 to 32"),
        ("-1", "a number from 1 to 32"),
        ("٨", "a number from 1 to 32"),
        ("", "a number from 1 to 32"),
        ("gpu=8,gpu=1", "a number from 1 to 32"),
        ("gpu=8,nic/fast=8,one=1", "names one, without allocationMode All"),
        ("gpu=8,none=1", "names none, without allocationMode All"),
    ],
)
def test_a_number_of_all_devices_that_counts_for_nothing_is_refused(text: str, message: str):
    with pytest.raises(UnsupportedClaim, match=message):
        stated(stating(text, ALL))
    with pytest.raises(UnsupportedClaim, match="names any request, without"):
        stated(stating("8", claim(requests=[{"name": "r", "exactly": {"deviceClassName": "gpu"}}])))


def test_all_devices_without_a_number_are_refused_with_what_to_write():
    with pytest.raises(UnsupportedClaim, match=r'request gpu: .* write `atoll.sh/all-devices: "8"`, or gpu=8'):
        charge(Claim.of(ALL))
    with pytest.raises(UnsupportedClaim, match="request nic/fast"):
        charge(Claim.of(stating("gpu=8", ALL)))
    on_template = {
        "metadata": {"name": "c", "annotations": {"atoll.sh/all-devices": "8"}},
        "spec": {"spec": ALL["spec"]},
    }
    with pytest.raises(UnsupportedClaim, match=r"spec\.metadata\.annotations of a ResourceClaimTemplate"):
        charge(Claim.of(on_template))


def test_access_for_administration_to_all_devices_is_charged_nothing():
    assert charge(Claim.of(claim(requests=[{"name": "r", "exactly": every(adminAccess=True)}]))) == {}
