"""Settings of `atoll-agent`."""

from __future__ import annotations

from typing import Annotated, Literal

from atoll.agent.descheduler.settings import PrometheusSettings
from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.delivery.settings import DeliverySettings
from atoll.kube.settings import Election, Health, ProcessSettings, Recording
from atoll.model.settings import Section, number, ratio, seconds, words


class HeartbeatSettings(Section, frozen=True):
    """The Lease on the host that says that the member is alive."""

    period: Annotated[float, seconds("Between two signs of life.", above=0)] = 10.0
    duration: Annotated[
        int, number("After which the host takes the member for lost: some signs may be missed before.", "s")
    ] = 40
    silent: Annotated[
        float,
        seconds("After which another agent's sign of life is over: before the host takes the member for lost."),
    ] = 30.0
    fence: Annotated[
        float,
        seconds(
            "Without contact to the host after which the agent ends workloads with on-lost: exclusive, so that the host"
            " may run them elsewhere; not with credentials of a Secret on the host."
        ),
    ] = 60.0
    probe: Annotated[float, seconds("Between two probes of the member's API server.", above=0)] = 2.0
    probe_deadline: Annotated[float, seconds("For the answer to a probe.", above=0)] = 3.0

    def __post_init__(self) -> None:
        if not self.period < self.silent < self.duration:
            raise ValueError(
                f"period ({self.period:g}) < silent ({self.silent:g}) < duration ({self.duration}) must hold"
            )
        if not self.duration <= self.fence:
            raise ValueError(f"duration ({self.duration}) <= fence ({self.fence:g}) must hold")


class FactSettings(Section, frozen=True):
    """Versions of the member and tokens of the agent, as reported on the host."""

    every: Annotated[float, seconds("After which the member may have been upgraded.", above=0)] = 600.0
    again: Annotated[float, seconds("Until a member that did not answer is asked again.", above=0)] = 5.0


class ProbeSettings(Section, frozen=True):
    """Requests that pods of Jobs of JobFlows must answer."""

    every: Annotated[float, seconds("Between two tries.", above=0)] = 2.0
    patience: Annotated[float, seconds("That an answer may take.", above=0)] = 2.0
    pods: Annotated[int, number("Of a task that are tried.")] = 64
    at_once: Annotated[int, number("Requests that are under way at once.")] = 32


class JobSettings(Section, frozen=True):
    """The controller of Volcano Jobs."""

    reconcile: Annotated[
        Literal["auto", "on", "off"],
        words("Whether it runs; auto: unless Volcano's controllers run in the member.", flag="--jobs"),
    ] = "auto"
    coalesce: Annotated[float, seconds("For which events of pods of one Job are gathered.")] = 0.03
    counts_after: Annotated[
        float, seconds("Between two status writes when only counters differ; a new phase never waits.")
    ] = 0.25
    pending_after: Annotated[
        float, seconds("Until a Job that was just delivered shows that it is pending, where it does not run before.")
    ] = 1.0
    writes: Annotated[int, number("Pods that are made or removed at once.")] = 32
    again: Annotated[
        float,
        seconds("Until a pod that its kubelets refuse is made again, the second time; it doubles.", above=0),
    ] = 1.0
    longest_again: Annotated[float, seconds("The same at most.", above=0)] = 60.0
    trust: Annotated[
        float, seconds("For which pods and status are taken to be as written, though no watch shows it yet.")
    ] = 5.0
    states_after: Annotated[
        float, seconds("Between two writes of the states of a JobArray, and a second for each 10 kB of them.", above=0)
    ] = 1.0
    probes: ProbeSettings = ProbeSettings()


class TunnelSettings(Section, frozen=True):
    """The connection to the host by which users read the output of their pods."""

    heartbeat: Annotated[
        float, seconds("Of silence after which the other side is asked for a sign of life.", above=0)
    ] = 20.0
    again: Annotated[float, seconds("Until it is tried again, at first; it doubles.", above=0)] = 0.5
    longest_again: Annotated[float, seconds("The same at most.", above=0)] = 30.0
    streams: Annotated[int, number("Logs that are read at once.")] = 32
    rate: Annotated[int, number("Of one log that is passed on in a second.", "bytes")] = 2**20


class PodGroupSettings(Section, frozen=True):
    """PodGroups of workloads whose owners make none."""

    coalesce: Annotated[
        float, seconds("For which pods of one owner are gathered, so that most of a gang is known by its first look.")
    ] = 0.01
    writes: Annotated[int, number("Pods that are annotated at once.")] = 32


class SchedulerSettings(Section, frozen=True):
    """Gangs to nodes."""

    coalesce: Annotated[float, seconds("For which events are gathered before a pass.")] = 0.005
    binds: Annotated[int, number("Pods that are bound at once.")] = 32
    longest_pause: Annotated[float, seconds("Between two tries to bind a pod, at most.", above=0)] = 5.0
    running_after: Annotated[
        float, seconds("That a PodGroup with all its nodes may wait to show that, together with the pods that run.")
    ] = 0.3
    counts_after: Annotated[float, seconds("That a status write waits when only counters differ.")] = 5.0
    message_after: Annotated[
        float,
        seconds(
            "Between two writes when only the sentence differs: what is free changes all the time, and so do the"
            " numbers in it."
        ),
    ] = 10.0
    tell_after: Annotated[float, seconds("Between two Events about a gang that waits for the same reason.")] = 60.0
    tasks_after: Annotated[
        float, seconds("That a gang may take to get its pods before it is said to have too few.")
    ] = 0.5


class UsageSettings(Section, frozen=True):
    """The use of nodes, where scorings ask for it (see docs/scoring.md)."""

    every: Annotated[float, seconds("Between two looks at the metrics API of the member.", above=0)] = 15.0


class BusySettings(Section, frozen=True):
    """How busy the pods of workloads are, for records of the host (see docs/records.md)."""

    every: Annotated[float, seconds("Between two looks at the figures of all pods; 0: they are not looked at.")] = 0.0
    prometheus: PrometheusSettings = PrometheusSettings()


class VolumeSettings(Section, frozen=True):
    """Volumes that are made for pods."""

    patience: Annotated[
        float, seconds("That a provisioner may take; longer than a gang of the host is waited for.", above=0)
    ] = 60.0
    pause: Annotated[float, seconds("Until a gang is planned again that did not get its volumes.", above=0)] = 2.0


class DeviceSettings(Section, frozen=True):
    """Devices of ResourceClaims."""

    patience: Annotated[
        float,
        seconds("That drivers may take to set the conditions for which pods wait before they are bound.", above=0),
    ] = 600.0
    pause: Annotated[float, seconds("Until a claim is cleared again that did not take that.", above=0)] = 2.0


class NoticeSettings(Section, frozen=True):
    """Conditions and Events of pods that wait."""

    first: Annotated[float, seconds("That a pod waits before it is told so: most are placed within milliseconds.")] = (
        0.5
    )
    again: Annotated[
        float,
        seconds("Between two writes to a pod of which only the sentence differs: its numbers change all the time."),
    ] = 300.0


class PlacementSettings(Section, frozen=True):
    """Reports about pods to the host."""

    overdue: Annotated[
        float, seconds("After the end of its grace period from which a pod that is still there is named.")
    ] = 5.0
    slow: Annotated[
        float,
        seconds("In which a pod passes through what all pods pass through; what takes longer is told."),
    ] = 60.0


class CapacitySettings(Section, frozen=True):
    """Reports about nodes to the host."""

    interval: Annotated[
        float, seconds("Between two updates: the host takes two a second of one member for long.", above=0)
    ] = 0.5
    share: Annotated[
        float, ratio("Of the time that updates may be under way: the interval grows with the time that they take.")
    ] = 0.2
    longest: Annotated[float, seconds("Between two updates, however slow the host is.", above=0)] = 2.0
    again: Annotated[float, seconds("Until an update that failed is tried again.", above=0)] = 1.0


class JoinSettings(Section, frozen=True):
    """An invitation by which an agent with hostSecret asks the host to join, as long as that Secret is not there."""

    url: Annotated[str, words("URL of the host.", flag="--host-url")] = ""
    ca_hash: Annotated[
        str,
        words(
            "Hash of the host's certificate authority, sha256:...; without it, the host's certificate must be one that"
            " this machine trusts.",
            flag="--host-ca-hash",
        ),
    ] = ""
    ca_file: Annotated[
        str,
        words(
            "File with the host's certificate authority (PEM), where anonymous requests are off.", flag="--host-ca-file"
        ),
    ] = ""
    token_file: Annotated[
        str, words("File with the token that `atollctl member invite` printed.", flag="--host-token-file")
    ] = ""
    proxy: Annotated[str, words("URL of a proxy on the way to the host.", flag="--host-proxy")] = ""
    labels: Annotated[str, words("Labels for the Cluster, key=value with commas between.", flag="--join-labels")] = ""
    region: Annotated[str, words("Region for the Cluster.", flag="--join-region")] = ""
    provider: Annotated[str, words("Provider for the Cluster.", flag="--join-provider")] = ""
    only: Annotated[bool, words("End once the Secret is there, as an init container does.", flag="--join-only")] = False


class AgentSettings(ProcessSettings, frozen=True):
    """All of `atoll-agent`."""

    health: Health = Health(port=8084)
    cluster: Annotated[
        str, words("Name of the member's Cluster object on the host.", flag="--cluster", needed=True)
    ] = ""
    member_kubeconfig: Annotated[
        str,
        words("Credentials for the member; the pod's service account by default.", flag="--member-kubeconfig"),
    ] = ""
    record: Annotated[
        str,
        words(
            "Append all that the scheduler is told and decides to this file (see atoll.sim.replay).", flag="--record"
        ),
    ] = ""
    member_secret: Annotated[
        bool,
        words(
            "Credentials for the member are in the Secret on the host that spec.secretRef of its Cluster names.",
            flag="--member-secret",
        ),
    ] = False
    host_secret: Annotated[
        bool,
        words(
            "Credentials for the host are in Secret atoll-system/atoll-host of the member, and are renewed there.",
            flag="--host-secret",
        ),
    ] = False
    join: JoinSettings = JoinSettings()
    election: Election = Election()
    recording: Recording = Recording()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    facts: FactSettings = FactSettings()
    delivery: DeliverySettings = DeliverySettings()
    jobs: JobSettings = JobSettings()
    tunnel: TunnelSettings = TunnelSettings()
    podgroups: PodGroupSettings = PodGroupSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    core: MemberCoreSettings = MemberCoreSettings()
    usage: UsageSettings = UsageSettings()
    busy: BusySettings = BusySettings()
    volumes: VolumeSettings = VolumeSettings()
    devices: DeviceSettings = DeviceSettings()
    notices: NoticeSettings = NoticeSettings()
    placements: PlacementSettings = PlacementSettings()
    capacity: CapacitySettings = CapacitySettings()

    def __post_init__(self) -> None:
        if self.member_secret and self.member_kubeconfig:
            raise ValueError("memberSecret (--member-secret) and memberKubeconfig (--member-kubeconfig): give one")
        if self.host_secret and (self.kubeconfig or self.member_secret):
            raise ValueError("hostSecret (--host-secret) goes neither with kubeconfig nor with memberSecret")
        if (self.join.url or self.join.only) and not self.host_secret:
            raise ValueError("join.url (--host-url) and join.only (--join-only) need hostSecret (--host-secret)")
        if bool(self.join.url) != bool(self.join.token_file):
            raise ValueError("join.url (--host-url) and join.tokenFile (--host-token-file) belong together")
        if not 2 * self.delivery.renew < self.core.holds.ttl:
            raise ValueError(
                f"2 * delivery.renew ({self.delivery.renew:g}) < core.holds.ttl ({self.core.holds.ttl:g}) must hold"
            )
