"""What the API server is told: narrow, and nothing before the webhook answers."""

from __future__ import annotations

import pytest

from atoll.webhook import registration

URL = {"url": "https://127.0.0.1:9443"}
SERVICE = {"service": {"namespace": "atoll-system", "name": "atoll-webhook", "port": 443}}


def test_addresses() -> None:
    mutating, validating = registration.configurations(URL, "Q0E=")
    assert [entry["clientConfig"]["url"] for entry in mutating["webhooks"]] == [
        "https://127.0.0.1:9443/mutate/jobs",
        "https://127.0.0.1:9443/mutate/batch-jobs",
        "https://127.0.0.1:9443/mutate/queues",
        "https://127.0.0.1:9443/mutate/bindings",
    ]
    _, validating = registration.configurations(SERVICE, "Q0E=")
    assert validating["webhooks"][0]["clientConfig"] == {
        "service": {**SERVICE["service"], "path": "/validate/jobs"},
        "caBundle": "Q0E=",
    }


def test_only_jobs_depend_on_the_namespace_opting_in() -> None:
    for configuration in registration.configurations(URL, "Q0E="):
        for entry in configuration["webhooks"]:
            opted = entry["namespaceSelector"] == {"matchLabels": {"atoll.sh/enabled": "true"}}
            assert opted == (entry["rules"][0]["resources"] == ["jobs"])


def test_batch_jobs_of_another_manager_never_reach_the_webhook() -> None:
    for configuration in registration.configurations(URL, "Q0E="):
        (entry,) = [each for each in configuration["webhooks"] if each["rules"][0]["apiGroups"] == ["batch"]]
        assert any("managedBy" in condition["expression"] for condition in entry["matchConditions"])


def test_every_webhook_fails_closed_and_soon() -> None:
    for configuration in registration.configurations(URL, "Q0E="):
        assert configuration["metadata"] == {"name": "atoll"}
        for entry in configuration["webhooks"]:
            assert entry["failurePolicy"] == "Fail"
            assert entry["timeoutSeconds"] == 5
            assert entry["sideEffects"] == "None"
            assert entry["matchPolicy"] == "Equivalent"
            mutates = configuration["kind"] == "MutatingWebhookConfiguration"
            assert entry.get("reinvocationPolicy") == ("Never" if mutates else None)


def test_the_address_survives_the_annotation() -> None:
    for configuration in registration.empty_configurations(SERVICE):
        assert "webhooks" not in configuration
        assert registration.client_config_of(configuration) == SERVICE


@pytest.mark.parametrize("text", [None, "", "{", "[]"])
def test_a_bad_annotation_is_named(text: str | None) -> None:
    configuration = {"metadata": {"annotations": {"atoll.sh/client-config": text}}}
    with pytest.raises(ValueError, match=r"annotation atoll[.]sh/client-config"):
        registration.client_config_of(configuration)


def test_trust() -> None:
    mutating, _ = registration.configurations(URL, "Q0E=")
    assert registration.trusts(mutating, "Q0E=")
    assert not registration.trusts(mutating, "T1RIRVI=")
    assert not registration.trusts({"webhooks": []}, "Q0E=")
