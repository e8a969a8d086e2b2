"""Every timer and bound of a member's core, given to it when it is made: its log carries them, so a replay decides the
same.
"""

from __future__ import annotations

from typing import Annotated

from atoll.model.settings import Section, number, seconds, words


class HoldSettings(Section, frozen=True):
    """Nodes that are reserved for parts whose other parts are still being asked for."""

    ttl: Annotated[
        float,
        seconds(
            "That a hold lasts after it was last asked for: delivery renews it three times within (delivery.renew). The"
            " expiry that is told may lag behind by half of it, for each one told is a write on both sides.",
            above=0,
        ),
    ] = 60.0


class LiftedSettings(Section, frozen=True):
    """Pods whose gate was lifted and that another scheduler has still to bind."""

    patience: Annotated[
        float,
        seconds("From then on in which a pod is to be bound: half of the host's time for the whole gang.", above=0),
    ] = 15.0
    after_refusal: Annotated[
        float, seconds("The same from the first time that its scheduler says that it can't.", above=0)
    ] = 4.0


class AsideSettings(Section, frozen=True):
    """Gangs that can't be planned for a defect of this program."""

    pause: Annotated[float, seconds("Until such a gang is tried again; it doubles each time.", above=0)] = 1.0
    longest_pause: Annotated[float, seconds("The same at most.", above=0)] = 60.0


class PreemptionSettings(Section, frozen=True):
    """Pods of a lower priority that leave, so that a gang fits; see docs/members.md for which."""

    enabled: Annotated[
        bool,
        words(
            "Whether work that came to the member without the host is evicted for gangs of a higher priority; what the"
            " host sent is evicted by the host alone."
        ),
    ] = True
    patience: Annotated[
        float,
        seconds("After the end of the victims' grace periods, until other victims are looked for.", above=0),
    ] = 30.0
    searches: Annotated[int, number("Searches for victims in one pass.")] = 4
    places: Annotated[int, number("Domains for which a set of victims is found; the best is taken.")] = 8
    exhaustive: Annotated[
        int, number("Sets of victims that may be tried one by one, to find the smallest.", least=0)
    ] = 1024
    exhaustive_by_rules: Annotated[
        int,
        number(
            "The same for pods with host ports or rules about pods beside them, which cost a look at all nodes each.",
            least=0,
        ),
    ] = 64


class MemberCoreSettings(Section, frozen=True):
    """All of the core."""

    gangs: Annotated[int, number("That one pass decides on, so that events are taken in between.")] = 16
    hami: Annotated[
        bool,
        words(
            "Give pods GPUs of nodes that HAMi's device plug-in manages; needs the right to patch nodes"
            " (docs/gpu-shares.md#nodes-of-hami).",
            flag="--hami",
        ),
    ] = False
    holds: HoldSettings = HoldSettings()
    lifted: LiftedSettings = LiftedSettings()
    aside: AsideSettings = AsideSettings()
    preemption: PreemptionSettings = PreemptionSettings()
