"""Settings of `atoll-descheduler`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from atoll.agent.colocation.rules import Colocation
from atoll.agent.descheduler.rules import Rules
from atoll.fit.constraints import taints
from atoll.kube.settings import Election, Health, ProcessSettings
from atoll.model.settings import Section, seconds, words

RENEWED: Final = taints.LASTS / 2
"""Seconds after which a look renews its taints."""
WINDOW: Final = "$window"
"""Stands in queries for the policy's duration."""


class PrometheusSettings(Section, frozen=True):
    """How a Prometheus is asked; the window (`duration`) is the policy's."""

    address: Annotated[str, words("Its URL; empty: the policy's.")] = ""
    node_cpu: Annotated[
        str,
        words(
            f"PromQL of cores in use by node, with {WINDOW}; empty: series of kubelets, cAdvisor or node_exporter, the"
            " first that are there."
        ),
    ] = ""
    node_memory: Annotated[str, words("The same of bytes.")] = ""
    pod_cpu: Annotated[
        str, words("PromQL of cores in use by namespace and pod; empty: series of kubelets or cAdvisor.")
    ] = ""
    pod_memory: Annotated[str, words("The same of bytes.")] = ""
    token_file: Annotated[
        str, words("A file with a token for it; empty: none is sent. It is read for each look, and sent over https.")
    ] = ""
    ca_file: Annotated[str, words("Certificates of who may sign for it; empty: those of the system.")] = ""
    patience: Annotated[float, seconds("For all answers of one look, repeated requests included.", above=0)] = 30.0


class DeschedulerSettings(ProcessSettings, frozen=True):
    """All of `atoll-descheduler`; its kubeconfig is for the cluster that it looks after."""

    health: Health = Health(port=8086)
    election: Election = Election()
    policy: Annotated[
        str,
        words(
            "ConfigMap with the DeschedulerPolicy, as NAMESPACE/NAME; it acts as soon as it changes.", flag="--policy"
        ),
    ] = "atoll-system/atoll-descheduler"
    every: Annotated[float, seconds("Between two looks.", above=0, flag="--every-seconds")] = 60.0
    dry_run: Annotated[
        Literal["off", "on"], words("on: decide and report; evict nothing, taint nothing.", flag="--dry-run")
    ] = "off"
    taint: Annotated[
        Literal["on", "prefer", "off"],
        words(
            "on: hot nodes get taint atoll.sh/hot (PreferNoSchedule), so that schedulers avoid them; else evicted pods"
            " would come back. Its value keeps pods below the policy's priorityThreshold, or of the lowest class, off"
            " them where Atoll's placer decides, until 10 minutes after the last look that knew the node's use. prefer:"
            " without that value."
        ),
    ] = "on"
    rules: Rules = Rules()
    prometheus: PrometheusSettings = PrometheusSettings()
    colocation: Colocation = Colocation()

    def __post_init__(self) -> None:
        namespace, _, name = self.policy.partition("/")
        if not namespace or not name or "/" in name:
            raise ValueError(f"policy (--policy): {self.policy!r} is not NAMESPACE/NAME")
        if self.taint == "on" and self.every > RENEWED:
            raise ValueError(
                f"every (--every-seconds): with taint: on a look must come each {RENEWED:g} s or more often, or"
                " Atoll's placer ignores the taint in between; taint: prefer lets looks be rarer"
            )
