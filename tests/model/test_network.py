"""How pods of one member name those of another."""

from __future__ import annotations

import pytest

from atoll.model import network

USUAL = "{pod}.{cluster}.{service}.{namespace}.svc.clusterset.local"


def test_a_name() -> None:
    found = network.name(USUAL, pod="j-w-0", cluster="east", service="j", namespace="ns")
    assert found == "j-w-0.east.j.ns.svc.clusterset.local"
    assert network.read(USUAL) == USUAL


@pytest.mark.parametrize(
    ("template", "says"),
    [
        pytest.param("{pod}.{service}", "{cluster} is missing", id="names that are not unique"),
        pytest.param("{cluster}.net", "{pod} is missing", id="no pod"),
        pytest.param("{pod.x}.{cluster}", "{pod.x} is not known", id="a part that is not known"),
        pytest.param("{pod}.{cluster}.Net", "no name in the DNS", id="an upper-case letter"),
        pytest.param("{pod}.{cluster}}", "no name in the DNS", id="a brace"),
    ],
)
def test_what_names_can_t_be_made_from(template: str, says: str) -> None:
    with pytest.raises(network.BadNetwork, match=says.replace("{", r"\{").replace("}", r"\}")):
        network.check(template)
    assert network.read(template) == ""
