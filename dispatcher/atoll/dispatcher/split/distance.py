"""How near members are to each other, by their Cluster objects: site, zone, region, provider.

Members are as near as the first of these that all of them share. A value counts within those above it: zone `a` of one
region is not zone `a` of another. A member that says nothing shares nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

Place = tuple[frozenset[tuple[str, ...]], ...]
"""Per level, the nearest first, the places of which a member is part."""
LEVELS: Final = ("site", "zone", "region", "provider")
"""From the nearest outwards."""


def place_of(site: str, fields: Mapping[str, Sequence[str]]) -> Place:
    """Where a member is.

    Args:
        site: its label for members that are nearer than any zone says, such as one fabric; may be empty.
        fields: its Cluster's values of `provider`, `region` and `zone`, each with all of its values.
    """
    provider, region = (next((each for each in fields.get(name, ()) if each), "") for name in ("provider", "region"))
    zones = [zone for zone in fields.get("zone", ()) if zone]
    return (
        frozenset([(site,)] if site else []),
        frozenset((provider, region, zone) for zone in zones),
        frozenset([(provider, region)] if region else []),
        frozenset([(provider,)] if provider else []),
    )


def groups(places: Mapping[str, Place]) -> Iterator[list[list[str]]]:
    """Per level, the nearest first, the members of each place, in order of its name and theirs."""
    for level in range(len(LEVELS)):
        found: dict[tuple[str, ...], list[str]] = {}
        for name in sorted(places):
            for place in places[name][level]:
                found.setdefault(place, []).append(name)
        yield [found[place] for place in sorted(found)]


def apart(members: Sequence[str], places: Mapping[str, Place]) -> int:
    """The number of the level that all of them share, the nearest is 0; that of `LEVELS` where they share none."""
    for level in range(len(LEVELS)):
        if frozenset.intersection(*[places[name][level] for name in members]):
            return level
    return len(LEVELS)
