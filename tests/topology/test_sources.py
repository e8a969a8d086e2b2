"""Sources of a topology as a file says them."""

from __future__ import annotations

import pytest

from atoll.topology.sources import Source, SourceError, parsed
from atoll.topology.ufm import Ufm


def test_a_file_is_a_list_of_sources() -> None:
    text = """
    - labels: [example.com/block, example.com/rack]
    - {labels: [example.com/feed], tree: power}
    - ufm: {url: "https://ufm.example.com", user: reader, passwordFile: /etc/ufm/password}
      tree: ib
    """
    racks, power, fabric = parsed(text)
    assert racks == Source(labels=("example.com/block", "example.com/rack"))
    assert (power.tree, power.title) == ("power", "labels example.com/feed")
    assert fabric.ufm == Ufm("https://ufm.example.com", "reader", "/etc/ufm/password")
    assert "password" not in fabric.title


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("labels: [a]", "Expected `array`", id="no list"),
        pytest.param("- {}", "give one of labels, preset", id="nothing given"),
        pytest.param("- {kueue: a, preset: aws}", "there is preset and kueue", id="two given"),
        pytest.param("- {label: [a]}", "unknown field `label`", id="a misspelt field"),
        pytest.param("- {preset: azure}", "no preset 'azure'; there are aws", id="an unknown preset"),
        pytest.param("- {labels: [a, b], split: '-'}", "split goes with one label", id="split of two labels"),
        pytest.param("- {labels: [a], tree: A}", "use at most 20 small letters", id="a tree that can't be in a name"),
        pytest.param("- {ufm: {url: ufm}}", "write https://HOST", id="a UFM without a scheme"),
        pytest.param("- [", "while parsing", id="no YAML"),
    ],
)
def test_what_is_no_source_is_refused(text: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        parsed(text)
