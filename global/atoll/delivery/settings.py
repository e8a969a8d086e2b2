"""Settings of delivery."""

from __future__ import annotations

from typing import Annotated

from atoll.model.settings import Section, number, seconds


class DeliverySettings(Section, frozen=True):
    """Works to the member, status back."""

    workers: Annotated[int, number("Works that are looked at at once.")] = 16
    settle: Annotated[
        float,
        seconds("That a change of status may wait for the next one; a final status never waits."),
    ] = 0.1
    quiet: Annotated[
        float, seconds("Least time between two status writes for one Work that are not final: four a second.")
    ] = 0.25
    patience: Annotated[
        float,
        seconds('That "applied, nothing bound yet" may wait to be told together with what comes next.'),
    ] = 1.0
    renew: Annotated[
        float,
        seconds("Between two renewals of a hold; two at least go into its life (core.holds.ttl).", above=0),
    ] = 20.0
    look_again: Annotated[
        float,
        seconds("Until the next look at an object that goes: the cache may be behind, and no event may come.", above=0),
    ] = 1.0
    refused_first: Annotated[
        float, seconds("Until what a member refused is offered again, the first time; it doubles.", above=0)
    ] = 2.0
    refused_most: Annotated[float, seconds("The same at most.", above=0)] = 300.0
    trust: Annotated[
        float,
        seconds("For which what was written or created is taken to be there, though no watch shows it yet."),
    ] = 5.0
