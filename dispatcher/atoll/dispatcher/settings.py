"""Settings of `atoll-dispatcher`: of the shell, and of the core."""

from __future__ import annotations

from typing import Annotated

from atoll.dispatcher.core.settings import CoreSettings
from atoll.kube.settings import Election, Health, ProcessSettings, Recording
from atoll.model.settings import Section, number, ratio, seconds, words


class ShellSettings(Section, frozen=True):
    """Watches in, patches out."""

    warm: Annotated[
        bool,
        words(
            "Have a standby read and follow everything before it leads, so that it decides at once; it takes as much"
            " memory as the leader. Not with `record`. Off: in one of the first six chaos runs with it a queue"
            " rose above its capability, for a reason that is not known; in thirteen since then none did."
        ),
    ] = False
    follows: Annotated[float, seconds("Between two looks of a standby at changes.", above=0)] = 1.0
    behind: Annotated[
        float,
        seconds(
            "That a new leader waits for its cache to show all earlier decisions, before it is read anew.", above=0
        ),
    ] = 5.0
    coalesce: Annotated[
        float,
        seconds("That changes are collected before the core decides on them; most of the way of a lone workload."),
    ] = 0.002
    writers: Annotated[int, number("Decisions that are written at once.")] = 32
    repeaters: Annotated[
        int,
        number(
            "Of what the host did not answer before: however much that is, it takes no more of the host and of this"
            " process."
        ),
    ] = 4
    again: Annotated[
        float, seconds("After which a decision that was refused or not written is written again, at least.", above=0)
    ] = 0.5
    longest_again: Annotated[
        float,
        seconds("The same at most, however often it was refused and whatever patience the server asks for.", above=0),
    ] = 30.0
    longest_outage_again: Annotated[
        float,
        seconds("The same at most while the host answers no write: once it does, what waits is written soon.", above=0),
    ] = 4.0
    outage: Annotated[float, seconds("Without a write that was answered after which the host counts as away.")] = 5.0
    strategy: Annotated[
        float,
        seconds("That one answer of a user's strategy may take, lest others wait for it; then it is off.", above=0),
    ] = 0.05
    farewell: Annotated[float, seconds("In which an Event is written that says why the process ends.")] = 1.0


class ReportSettings(Section, frozen=True):
    """The status of queues, and conditions of members."""

    interval: Annotated[float, seconds("Least time between two updates of one queue or one member.", above=0)] = 1.0
    longest_pause: Annotated[float, seconds("Until a status that was refused is written again, at most.", above=0)] = (
        60.0
    )
    writers: Annotated[int, number("Queues whose status is written at once.")] = 8


class QuerySettings(Section, frozen=True):
    """The query API."""

    port: Annotated[
        int, number("Port that the leader answers at; 0 turns it off.", least=0, most=65535, flag="--query-port")
    ] = 8443
    host: Annotated[str, words("Address that it listens on; all by default, IPv6 too.", flag="--query-host")] = ""
    address: Annotated[
        str,
        words(
            "Address at which the API server reaches it; by default the one from which the API server is reached.",
            flag="--query-address",
        ),
    ] = ""
    share: Annotated[
        float,
        ratio("Of the leader's time that what-ifs may take, and verdicts as much again: nothing is decided meanwhile."),
    ] = 0.1
    patience: Annotated[
        float, seconds("That a question waits for its share; one that would wait longer is refused with Retry-After.")
    ] = 1.0
    remembered: Annotated[
        float, seconds("That an answer of the authorizer is used again, as long as API servers do.")
    ] = 10.0
    again: Annotated[float, seconds("The same where the API server did not answer.", above=0)] = 5.0
    round: Annotated[float, seconds("After which certificates and registration are looked at again.", above=0)] = 60.0
    farewell: Annotated[
        float, seconds("That an end waits for the API server to hear that its questions are not answered any more.")
    ] = 1.0


class LogSettings(Section, frozen=True):
    """Output of pods that users read through the query API and the agents' connections."""

    heartbeat: Annotated[float, seconds("Of silence after which an agent is asked for a sign of life.", above=0)] = 20.0
    per_user: Annotated[int, number("Logs that one user reads at once.")] = 4
    most: Annotated[int, number("Logs that all users together read at once.")] = 32
    size: Annotated[int, number("Of a log that is not followed.", "bytes")] = 2**20
    lines: Annotated[int, number("Last lines of each pod that may be asked for.")] = 10_000
    longest: Annotated[float, seconds("That a log is followed.", above=0)] = 3600.0
    begins: Annotated[float, seconds("Within which a member must begin a session with a pod.", above=0)] = 20.0
    idle: Annotated[float, seconds("For which neither side of a session says anything until it is ended.", above=0)] = (
        900.0
    )
    rate: Annotated[int, number("Of the input of one session that is passed on in a second.", "bytes")] = 2**20
    behind: Annotated[int, number("Messages of up to 32 KiB that wait for a slow reader, who is then given up.")] = 64


class CheckSettings(Section, frozen=True):
    """Whether the core agrees with itself."""

    interval: Annotated[float, seconds("Least time between two looks.", above=0)] = 600.0
    share: Annotated[float, ratio("At most one part in so many of the time goes into looking.")] = 1000.0


class DispatcherSettings(ProcessSettings, frozen=True):
    """All of `atoll-dispatcher`."""

    health: Health = Health(port=8083)
    election: Election = Election()
    record: Annotated[
        str,
        words("Append all that the core is told and decides to this file (see atoll.sim.replay).", flag="--record"),
    ] = ""
    core: CoreSettings = CoreSettings()
    shell: ShellSettings = ShellSettings()
    reports: ReportSettings = ReportSettings()
    query: QuerySettings = QuerySettings()
    logs: LogSettings = LogSettings()
    check: CheckSettings = CheckSettings()
    recording: Recording = Recording()
