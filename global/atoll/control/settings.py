"""Settings of `atoll-control`."""

from __future__ import annotations

from typing import Annotated, Literal

from atoll.kube.settings import Election, Health, ProcessSettings
from atoll.model.settings import Section, number, ratio, seconds, words
from atoll.model.shards import MOST


class DetectorSettings(Section, frozen=True):
    """Workloads to bindings."""

    workers: Annotated[int, number("Workloads that are looked at at once.")] = 16


class WorksSettings(Section, frozen=True):
    """Decisions to Works."""

    workers: Annotated[int, number("Bindings that are looked at at once.")] = 16


class RuleSettings(Section, frozen=True):
    """LimitRanges, ResourceQuotas and NetworkPolicies that a namespace hands on to members."""

    most: Annotated[
        int,
        number("Of one namespace, the oldest; an Event on the first beyond says so. Each of its Works carries them."),
    ] = 64
    size: Annotated[
        int, number("Of those of one namespace together, as JSON; a Work is 1.5 MiB at most.", "B", most=1 << 20)
    ] = 128 << 10


class DependencySettings(Section, frozen=True):
    """ConfigMaps and Secrets that workloads take along."""

    size: Annotated[
        int,
        number(
            "Of those of one workload together, as JSON: each Work carries them; it is 1.5 MiB at most.",
            "B",
            most=1 << 20,
        ),
    ] = 512 << 10
    again: Annotated[float, seconds("Until the host is asked again whether control may read them.", above=0)] = 15.0


class HoldsSettings(Section, frozen=True):
    """Answers of members to holds and dry runs."""

    workers: Annotated[int, number("Bindings that are looked at at once.")] = 8


class StatusSettings(Section, frozen=True):
    """Reports of members to bindings and workloads."""

    workers: Annotated[int, number("Bindings that are looked at at once.")] = 16
    reported: Annotated[
        float, seconds("Before a report is passed on, so that those of several members come together.")
    ] = 0.02
    unreported: Annotated[float, seconds("That a decision may wait to be shown together with the first report.")] = 1.0
    counts: Annotated[
        float,
        seconds("That other counts of pods wait on a binding, where nothing else of it changes."),
    ] = 0.5
    undecided: Annotated[
        float, seconds("After which a workload that nothing was decided about shows that it is pending.")
    ] = 2.0
    news: Annotated[
        float,
        ratio(
            "Bindings that are told that their member does not answer, or does again, so that a lost member with"
            " thousands of workloads does not fill the write queue.",
            "1/s",
        ),
    ] = 100.0


class FinishedSettings(Section, frozen=True):
    """Ended workloads on the host."""

    most: Annotated[
        int,
        number(
            "Ended workloads without `ttlSecondsAfterFinished` and without an owner that stay; beyond that the first"
            " to have ended are removed, so that etcd stays small at any number of jobs a day. 0 keeps all.",
            least=0,
        ),
    ] = 20_000


class ClusterSettings(Section, frozen=True):
    """The status of Clusters."""

    figures: Annotated[float, seconds("Least time between two writes of figures alone, which change all the time.")] = (
        30.0
    )
    longest_lease: Annotated[int, number("That an agent may be silent at most, whatever its Lease says.", "s")] = 120


class ProfileSettings(Section, frozen=True):
    """ClusterProfiles of members, which other programs read."""

    namespace: Annotated[
        str,
        words(
            "Where each member gets a ClusterProfile, once that CRD is served; none where it is empty. Control has the"
            " rights to it in atoll-system; in another namespace give it the same.",
            flag="--cluster-profiles",
        ),
    ] = ""


class FigureSettings(Section, frozen=True):
    """Metrics of members."""

    every: Annotated[
        float,
        seconds(
            "Between two looks at the caches: a scrape runs in a thread of its own, and may not read them.", above=0
        ),
    ] = 5.0


class RecordSettings(Section, frozen=True):
    """Records of runs: usage, history and evictions."""

    store: Annotated[
        str,
        words(
            "A folder or a URL that fsspec opens; empty for counters alone. Needs the extra `records`, and for a URL"
            " the package of its file system.",
            flag="--records",
        ),
    ] = ""
    every: Annotated[float, seconds("Between two files.", above=0)] = 60.0
    keep: Annotated[int, number("Days after which the files of a day are removed.", "d")] = 396


class NotificationSettings(Section, frozen=True):
    """Messages about workloads to targets that the administrator names."""

    targets: Annotated[
        str,
        words(
            "A file with the targets (docs/notifications.md), most often of a Secret; without it no message is sent."
            " It is read again when it changes.",
            flag="--notifications",
        ),
    ] = ""
    per_minute: Annotated[
        int, number("Messages to one target in a minute; further ones are counted in one message.", most=10_000)
    ] = 20
    queued: Annotated[
        int, number("Messages that wait for one target, which may be away; further ones are only counted.")
    ] = 1000
    patience: Annotated[
        float, seconds("For which a target that fails is tried again; then a message is given up.", above=0)
    ] = 3600.0
    fresh: Annotated[
        float,
        seconds(
            "After an event within which it is news: what happened before is not sent, whoever leads now or"
            " annotates an old workload.",
            above=0,
        ),
    ] = 7200.0


class MakerSettings(Section, frozen=True):
    """JobFlows, CronJobs and HyperJobs, which make Volcano Jobs."""

    workers: Annotated[int, number("Objects that are looked at at once.")] = 4
    again: Annotated[float, seconds("Until a Job that the API server did not take is tried again.", above=0)] = 30.0


class UnservedSettings(Section, frozen=True):
    """Events on work that Atoll does not run."""

    settle: Annotated[
        float, seconds("After a CRD changed until it is looked whether it serves the version that Atoll runs.", above=0)
    ] = 5.0
    fresh: Annotated[
        float, seconds("After its creation within which an object is told of; a new leader does not repeat old news.")
    ] = 600.0


class WorkloadKindSettings(Section, frozen=True):
    """Kinds that users declare."""

    again: Annotated[float, seconds("Until the next look whether a CRD serves the declared version.", above=0)] = 2.0


class PredecessorSettings(Section, frozen=True):
    """A workload whose name one had that is still being removed."""

    patience: Annotated[float, seconds("That the removal of the one before may take without a word.")] = 2.0
    again: Annotated[float, seconds("Until the next look at what is left of it.", above=0)] = 5.0


class KarmadaSettings(Section, frozen=True):
    """On a Karmada (`on: karmada`)."""

    summary_age: Annotated[
        float,
        seconds(
            "After which Karmada's summary of a member has what was started there: three times the period with which"
            " Karmada asks members (--cluster-status-update-frequency, 10 s)."
        ),
    ] = 30.0


class ControlSettings(ProcessSettings, frozen=True):
    """All of `atoll-control`."""

    on: Annotated[
        Literal["host", "karmada"],
        words("Whose controllers make bindings and Works: ours on a host, or a Karmada's.", flag="--on"),
    ] = "host"
    shards: Annotated[
        int,
        number(
            "Shards of namespaces, each with a leader of its own. There must be as many replicas at least, and all need"
            " the same number.",
            most=MOST,
            flag="--shards",
        ),
    ] = 1
    health: Health = Health(port=8082)
    election: Election = Election()
    detector: DetectorSettings = DetectorSettings()
    predecessors: PredecessorSettings = PredecessorSettings()
    works: WorksSettings = WorksSettings()
    rules: RuleSettings = RuleSettings()
    dependencies: DependencySettings = DependencySettings()
    holds: HoldsSettings = HoldsSettings()
    status: StatusSettings = StatusSettings()
    clusters: ClusterSettings = ClusterSettings()
    profiles: ProfileSettings = ProfileSettings()
    figures: FigureSettings = FigureSettings()
    records: RecordSettings = RecordSettings()
    notifications: NotificationSettings = NotificationSettings()
    finished: FinishedSettings = FinishedSettings()
    makers: MakerSettings = MakerSettings()
    unserved: UnservedSettings = UnservedSettings()
    karmada: KarmadaSettings = KarmadaSettings()
    workload_kinds: WorkloadKindSettings = WorkloadKindSettings()
