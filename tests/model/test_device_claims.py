"""DeviceClasses, ResourceClaims and templates as they are read."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model.device_claims import Claim, Constraint, DeviceClass, Request, UnsupportedClaim, Wish
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
