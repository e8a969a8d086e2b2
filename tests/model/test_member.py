"""What an agent says of its member: what the host keeps of it, and what follows."""

from __future__ import annotations

import pytest

from atoll.kinds import KINDS
from atoll.model import keys
from atoll.model.member import (
    UNSAID,
    AgentFacts,
    Figures,
    enablements,
    facts_annotation,
    features_of,
    figures_annotation,
    read_facts,
    read_figures,
    resource_list,
)
from atoll.model.reports import BadReport

FACTS = AgentFacts("0.1.0", "v1.36.3", "1.34", ("batch.volcano.sh/v1alpha1/Job", "batch/v1/Job"))
FIGURES = Figures(3, 2, {"cpu": 48000}, {"cpu": 1500, "memory": 2**30}, {})


def test_what_is_said_is_read_back() -> None:
    assert read_facts(facts_annotation(FACTS)) == FACTS
    assert read_figures(figures_annotation(FIGURES)) == FIGURES
    assert read_facts({}) is None
    assert read_figures({}) is None


def test_features_are_the_agents_kinds_and_the_versions_that_the_member_has() -> None:
    assert features_of(FACTS) == {*FACTS.kinds, "kubernetes/1.33", "kubernetes/1.34"}
    assert features_of(None) == UNSAID, "an agent that is older than these annotations"


def test_enablements_and_resources_are_written_as_karmada_does() -> None:
    assert enablements(FACTS.kinds, [kind.resource for kind in KINDS]) == [
        {"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"name": "jobs", "kind": "Job"}]},
        {"groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}]},
    ]
    assert resource_list(FIGURES.allocated) == {"cpu": "1500m", "memory": "1Gi"}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({keys.AGENT_FACTS: "{"}, id="no JSON"),
        pytest.param({keys.AGENT_FACTS: '{"behaves": "new"}'}, id="no version"),
        pytest.param({keys.AGENT_FACTS: '{"kinds": ["\\u0000"]}'}, id="a kind that is none"),
        pytest.param({keys.FIGURES: '{"nodes": -1}'}, id="fewer than no nodes"),
        pytest.param({keys.FIGURES: '{"allocated": {"cpu": "all"}}'}, id="a word as an amount"),
        pytest.param({keys.FIGURES: "[]"}, id="a list"),
    ],
)
def test_what_can_not_be_is_not_believed(said: dict[str, str]) -> None:
    read = read_facts if keys.AGENT_FACTS in said else read_figures
    with pytest.raises(BadReport):
        read(said)
