"""Settings of `atoll-topology` that depend on each other, or have a form."""

from __future__ import annotations

import pytest

from atoll.kube.settings import load
from atoll.topology.settings import TopologySettings


def read(*flags: str) -> TopologySettings:
    return load(TopologySettings, "topology", "", list(flags))


def test_the_service_of_admission_is_a_namespace_and_a_name() -> None:
    assert read("--admission-port=9443", "--admission-service=atoll/topology").admission.service == "atoll/topology"


@pytest.mark.parametrize("service", ["topology", "/topology", "atoll/", "a/b/c", "Atoll/topology", "atoll/to pology"])
def test_a_service_of_another_form_is_refused(service: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--admission-port=9443", f"--admission-service={service}")
    assert f"service (--admission-service): {service!r} is not NAMESPACE/NAME" in capsys.readouterr().err


def test_a_service_without_a_port_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--admission-service=atoll/topology")
    assert "means nothing without port (--admission-port)" in capsys.readouterr().err
