"""Every timer and bound of the core, given to it when it is made. Its log carries them, so a replay is the same."""

from __future__ import annotations

from typing import Annotated

from atoll.model.settings import Section, number, ratio, seconds


class ProgressSettings(Section, frozen=True):
    """From the decision until pods run."""

    reserve: Annotated[
        float,
        seconds(
            "Within which all members must have reserved their parts, or answered a dry run; their agents answer within"
            " milliseconds.",
            above=0,
        ),
    ] = 10.0
    commit: Annotated[
        float,
        seconds(
            "Within which all pods of a dispatched gang must be bound, else all its parts are evicted: until then some"
            " of its parts may hold nodes for nothing.",
            above=0,
        ),
    ] = 30.0
    regain: Annotated[
        float,
        seconds(
            "Within which a gang that lost pods of its minimum must have them on nodes again, else it is evicted.",
            above=0,
        ),
    ] = 30.0
    grow: Annotated[
        float,
        seconds("Within which a member's figures are expected to contain the pods by which a workload grew.", above=0),
    ] = 30.0
    pause: Annotated[
        float,
        seconds("That a workload waits whose pods were bound and did not run in time; it doubles each round.", above=0),
    ] = 60.0
    longest_pause: Annotated[float, seconds("The same at most.", above=0)] = 3600.0
    leaving: Annotated[
        float,
        seconds(
            "That the copy of a service stays in a member that it leaves gracefully, unless the new one runs before;"
            " and that a workload which was unhealthy in a member is kept from there. Policies may say less."
        ),
    ] = 600.0


class BreakerSettings(Section, frozen=True):
    """The circuit breaker of a member that binds nothing, or does not confirm removals."""

    threshold: Annotated[
        int, number("Failures without a success between them after which it opens: one or two are often chance.")
    ] = 3
    pause: Annotated[
        float, seconds("Until one workload is tried there; it doubles each time that the breaker opens.", above=0)
    ] = 30.0
    longest_pause: Annotated[float, seconds("The same at most.", above=0)] = 600.0
    forgotten: Annotated[
        float, seconds("That it must stay closed until the next pause is the first one again.", above=0)
    ] = 600.0


class AvoidedSettings(Section, frozen=True):
    """Members that did not reserve or bind a shape: avoided for it until their capacity changes, or for a while."""

    pause: Annotated[float, seconds("Of the first failure; it doubles with each.", above=0)] = 5.0
    longest_pause: Annotated[
        float, seconds("The same at most; failures are forgotten after twice as long.", above=0)
    ] = 300.0


class RefusedSettings(Section, frozen=True):
    """Members whose API server or admission refuses a workload."""

    most: Annotated[
        int,
        number(
            "Refusals of a workload by one member's API server or admission after which it is tried there no more; once"
            " that is so of all members that it may use it is deactivated; 0 for no end.",
            least=0,
            flag="--most-refusals",
        ),
    ] = 5
    pause: Annotated[
        float, seconds("That the member is avoided after the first refusal; it doubles with each.", above=0)
    ] = 5.0
    longest_pause: Annotated[float, seconds("The same at most.", above=0)] = 300.0
    namespace_pause: Annotated[
        float,
        seconds(
            "The first pause where a namespace of the member is its own: its administrator must act first.", above=0
        ),
    ] = 60.0


class BackfillSettings(Section, frozen=True):
    """Reservations of capacity, and the workloads that may start before them."""

    members: Annotated[
        int, number("That are considered for one reservation, those with the most room now; each costs an arrangement.")
    ] = 16
    settle: Annotated[
        float, seconds("After an end within which its member has told of the room, and a decision is written.")
    ] = 2.0
    overrun: Annotated[
        float,
        ratio(
            "What runs longer than its estimate is expected to run on for this part of it, and for a second at least."
        ),
    ] = 0.1
    grace: Annotated[
        float,
        seconds(
            "In which evicted pods are gone: what Kubernetes gives them where nothing else is said. A member that has"
            " not published for as long is believed all the same."
        ),
    ] = 30.0
    renewal: Annotated[
        float, seconds("After which a time that is unknown or has passed is computed again.", above=0)
    ] = 1.0
    doubt: Annotated[
        float,
        seconds(
            "After which a reservation that does not fit its member any more gets another time: figures contradict each"
            " other for a moment."
        ),
    ] = 60.0
    again: Annotated[
        float, seconds("Until a reservation is tried again for a head that fits nowhere at the moment.", above=0)
    ] = 10.0
    dry_run: Annotated[
        float,
        seconds(
            "That capacity is reserved for a claimant at most while members answer its dry run; longer than they may"
            " take (progress.reserve).",
            above=0,
        ),
    ] = 60.0
    waiting: Annotated[
        float,
        seconds(
            "That a reservation by waiting time lasts at most, and for which its workload gets none then: one that does"
            " not start by then delays others for nothing.",
            above=0,
        ),
    ] = 3600.0
    reclaimed: Annotated[
        float,
        seconds(
            "In which a workload gets no reservation that was reclaimed and would be again; doubled each time, so that"
            " it does not wait for ever either."
        ),
    ] = 6 * 3600.0


class PreemptionSettings(Section, frozen=True):
    """Which workloads are evicted for others, and how long it is searched for them."""

    protection: Annotated[
        float,
        seconds(
            "That a workload runs before it may be evicted, where its queue says nothing (atoll.sh/protected-for)."
        ),
    ] = 60.0
    evictions: Annotated[
        int, number("Of one workload on behalf of others at most, so that none is evicted for ever.", least=0)
    ] = 3
    searches: Annotated[
        float, ratio("Searches for victims: each looks at all that runs, and nothing is dispatched meanwhile.", "1/s")
    ] = 2.0
    burst: Annotated[int, number("Searches at once after a time without any.")] = 4
    pause: Annotated[
        float,
        seconds(
            "Until it is searched again for a workload that no eviction would help; it doubles with each search.",
            above=0,
        ),
    ] = 10.0
    longest_pause: Annotated[float, seconds("The same at most, however few workloads wait like it.", above=0)] = 60.0
    pause_each: Annotated[
        float, seconds("The same at most for each such workload that comes before it: searches are shared by rank.")
    ] = 4.0
    looks: Annotated[
        int, number("Shapes per pass that are asked whether victims may exist by now; an answer is quick.")
    ] = 50
    look_pause: Annotated[float, seconds("Until the next of them are looked at.", above=0)] = 0.2
    victims: Annotated[
        int,
        number(
            "That one dry run names at most: they are written on a binding, whose annotations have 256 KiB in all.",
            most=4000,
        ),
    ] = 2000
    exhaustive: Annotated[
        int, number("Sets of victims that may be tried one by one, to find the smallest.", least=0)
    ] = 4096
    places: Annotated[int, number("Places for which a set of victims is planned; the best is taken.")] = 8
    forbidden: Annotated[
        int, number("Sets of victims that would free only reserved capacity, after which no more are tried.")
    ] = 16


class DefragmentationSettings(Section, frozen=True):
    """Moves of running gangs out of a topology domain, so that a waiting gang fits into it."""

    hourly: Annotated[
        int,
        number(
            "Gangs that are moved in an hour at most; 0 moves none. It is off by default, as each move is a restart.",
            least=0,
            flag="--moved-gangs-per-hour",
        ),
    ] = 0
    rest: Annotated[
        float,
        seconds("That a gang stays where it is after a move; never less than an hour.", least=3600.0),
    ] = 6 * 3600.0
    restart: Annotated[
        float, seconds("That each pod of a moved gang loses beside its work: its end, its image, its start.")
    ] = 60.0
    checkpoint: Annotated[
        float,
        seconds(
            "Of work that a moved gang loses at most, as it goes on from a checkpoint; 0: all since it was dispatched."
        ),
    ] = 0.0
    unknown: Annotated[
        float, seconds("That a gang is assumed to wait where no estimate says when it could start without moves.")
    ] = 3600.0
    pause: Annotated[
        float,
        seconds("That a gang waits for a domain before moves are searched for it; it doubles each time.", above=0),
    ] = 30.0
    longest_pause: Annotated[float, seconds("The same at most.", above=0)] = 900.0


class GrowthSettings(Section, frozen=True):
    """More pods for elastic workloads that run."""

    looks: Annotated[
        int, number("Tasks of such workloads for which a pass looks whether more of their pods may run, all told.")
    ] = 500
    pause: Annotated[float, seconds("Until the next of them are looked at.", above=0)] = 0.2


class FairSettings(Section, frozen=True):
    """The order inside queues by fair share."""

    every: Annotated[
        float,
        seconds(
            "After which what namespaces used on average is computed again, where a queue has a half-life"
            " (atoll.sh/fair-half-life).",
            above=0,
        ),
    ] = 10.0


class StrategySettings(Section, frozen=True):
    """Users' strategies."""

    lines: Annotated[
        int,
        number("Lines of Python that a strategy may run for one answer; the first time that it runs more it is off."),
    ] = 100_000


class ReasonSettings(Section, frozen=True):
    """Why workloads wait, written on their bindings within a share of all writes, and answered on request."""

    rate: Annotated[float, ratio("Reasons that are written.", "1/s")] = 10.0
    per_dispatch: Annotated[
        float, ratio("Further ones for each dispatch: a tenth of what the store is written anyway.")
    ] = 0.1
    burst: Annotated[int, number("That are written at once after a time without any.")] = 50
    pace: Annotated[float, seconds("Until more of them are written while some are left.", above=0)] = 0.2
    looks: Annotated[int, number("Bindings that a pass looks at for one whose reason is to be written.")] = 1000
    ahead: Annotated[int, number("Workloads ahead that a verdict names.", least=0)] = 10
    named: Annotated[int, number("Workloads that a change which would help names.")] = 20
    exact: Annotated[
        int,
        number(
            "Members, the nearest first, in which a verdict tries a placement; of the others each task is counted by"
            " itself.",
            least=0,
        ),
    ] = 8
    ending: Annotated[
        int,
        number("Running workloads, those that end soonest, among which a verdict searches for ends that would help."),
    ] = 1000


class CoreSettings(Section, frozen=True):
    """All of the core."""

    pass_limit: Annotated[
        int, number("Decisions after which a pass ends early, so that the first are written while the next are made.")
    ] = 128
    unconfirmed: Annotated[
        int, number("Decisions that a member has not confirmed after which another one that is as good goes first.")
    ] = 32
    progress: ProgressSettings = ProgressSettings()
    breakers: BreakerSettings = BreakerSettings()
    avoided: AvoidedSettings = AvoidedSettings()
    refused: RefusedSettings = RefusedSettings()
    backfill: BackfillSettings = BackfillSettings()
    preemption: PreemptionSettings = PreemptionSettings()
    defragmentation: DefragmentationSettings = DefragmentationSettings()
    strategies: StrategySettings = StrategySettings()
    growth: GrowthSettings = GrowthSettings()
    fair: FairSettings = FairSettings()
    reasons: ReasonSettings = ReasonSettings()
