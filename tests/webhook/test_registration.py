"""What the API server is told: narrow, and soon done."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from atoll.install.registration import configurations
from atoll.kinds import KINDS
from atoll.kube.authority import ca_bundle, make_signer, trusted_by
from atoll.webhook import registration

Json = dict[str, Any]

URL = {"url": "https://127.0.0.1:9443"}
SERVICE = {"service": {"namespace": "atoll-system", "name": "atoll-webhook", "port": 443}}


def test_addresses() -> None:
    mutating, validating = configurations(URL, "Q0E=")
    routes = [kind.admission().route for kind in KINDS]
    assert routes[:3] == ["jobs", "batch-jobs", "grouped-pods"]
    urls = dict.fromkeys(entry["clientConfig"]["url"] for entry in mutating["webhooks"])
    assert [*urls] == [
        f"https://127.0.0.1:9443/mutate/{route}" for route in (*routes, "declared", "queues", "bindings")
    ]
    _, validating = configurations(SERVICE, "Q0E=")
    assert validating["webhooks"][0]["clientConfig"] == {
        "service": {**SERVICE["service"], "path": "/validate/jobs"},
        "caBundle": "Q0E=",
    }


def test_what_is_in_namespaces_depends_on_their_opting_in_and_only_of_workloads_a_failure_refuses() -> None:
    for configuration in configurations(URL, "Q0E="):
        for entry in configuration["webhooks"]:
            opted = entry["namespaceSelector"] != {}
            if opted:
                [term] = entry["namespaceSelector"]["matchExpressions"]
                assert term["key"] == "atoll.sh/enabled"
                assert term["operator"] == "In"
                assert {*term["values"]} <= {"true", "labelled"}
            [rule] = entry["rules"]
            assert opted == (rule["scope"] == "Namespaced")
            runs = opted and rule["resources"] not in (["propagationpolicies"], ["overridepolicies"])
            assert entry["failurePolicy"] == ("Fail" if runs else "Ignore")


def test_what_control_changes_on_batch_jobs_never_reaches_the_webhook_but_what_it_creates_does() -> None:
    for configuration in configurations(URL, "Q0E="):
        for entry in _of_batch_jobs(configuration):
            (condition,) = [each for each in entry["matchConditions"] if "userInfo" in each["expression"]]
            assert condition["expression"] == (
                'request.operation != "UPDATE"'
                ' || request.userInfo.username != "system:serviceaccount:atoll-system:atoll-control"'
            )


def test_batch_jobs_of_another_manager_never_reach_the_webhook() -> None:
    for configuration in configurations(URL, "Q0E="):
        for entry in _of_batch_jobs(configuration):
            assert any("managedBy" in condition["expression"] for condition in entry["matchConditions"])


def test_a_changed_annotation_of_any_kind_of_workload_is_judged() -> None:
    _, validating = configurations(URL, "Q0E=")
    plurals = {kind.resource.plural for kind in KINDS}
    for entry in validating["webhooks"]:
        if entry["rules"][0]["resources"][0] in plurals:
            for condition in entry["matchConditions"]:
                assert "object.spec != oldObject.spec" not in condition["expression"] or (
                    "object.metadata.annotations != oldObject.metadata.annotations" in condition["expression"]
                )


def _of_batch_jobs(configuration: Json) -> list[Json]:
    """Of namespaces all of which is Atoll's, and of those where only what names a queue is."""
    found = [each for each in configuration["webhooks"] if each["rules"][0]["apiGroups"] == ["batch"]]
    assert len(found) == 2
    return found


def test_every_webhook_is_soon_done() -> None:
    for configuration in configurations(URL, "Q0E="):
        assert configuration["metadata"] == {"name": "atoll"}
        for entry in configuration["webhooks"]:
            assert entry["timeoutSeconds"] == 5
            assert entry["sideEffects"] == "None"
            assert entry["matchPolicy"] == "Equivalent"
            mutates = configuration["kind"] == "MutatingWebhookConfiguration"
            assert entry.get("reinvocationPolicy") == ("Never" if mutates else None)


def test_the_address_comes_from_the_annotation() -> None:
    text = '{"service": {"namespace": "atoll-system", "name": "atoll-webhook", "port": 443}}'
    configuration = {"metadata": {"annotations": {"atoll.sh/client-config": text}}}
    assert registration.client_config_of(configuration) == SERVICE


@pytest.mark.parametrize("text", [None, "", "{", "[]"])
def test_a_bad_annotation_is_named(text: str | None) -> None:
    configuration = {"metadata": {"annotations": {"atoll.sh/client-config": text}}}
    with pytest.raises(ValueError, match=r"annotation atoll[.]sh/client-config"):
        registration.client_config_of(configuration)


def test_trust() -> None:
    old, new = (make_signer(datetime.now(UTC)).certificate for _ in range(2))
    mutating, _ = configurations(URL, ca_bundle((old, new)))
    assert trusted_by(mutating) == (old, new)
    mutating["webhooks"][1]["clientConfig"]["caBundle"] = ca_bundle((new,))
    assert trusted_by(mutating) == (new,), "what one of them does not trust is not trusted"
    mutating["webhooks"][1]["clientConfig"]["caBundle"] = "Q0E="
    assert trusted_by(mutating) == ()
    assert trusted_by({"webhooks": []}) is None
