"""Which systems that run or place workloads a cluster has besides Atoll (Volcano, Kueue, kube-scheduler), and which of
them is to place what Atoll sends.

They are known by their nature, not by the name of an installation: by the images and labels of their Deployments,
and by webhooks for their kinds where they run outside of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys, placer
from atoll.model.apiresource import DEPLOYMENTS, LEASES, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from atoll.model.objects import Slim
from atoll.model.placer import MadeFor, Placer, Wish

WEBHOOKS: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
KUBE_SCHEDULER_LEASE: Final = ("kube-system", "kube-scheduler")
"""Namespace and name of the Lease of kube-scheduler's leader, which every usual installation has."""
AGAIN = 1.0
"""Seconds until a question that the cluster refused is asked again."""

_CONTROLLER_IMAGES, _SCHEDULER_IMAGES = ("vc-controller-manager",), ("vc-scheduler",)
CONTROLLER_LABEL, SCHEDULER_LABEL = "volcano-controller", "volcano-scheduler"
"""Values of label `app` of Volcano's Deployments."""
_KUEUE_IMAGES = ("kueue",)

log = structlog.get_logger(__name__)


class _Container(msgspec.Struct, frozen=True):
    image: str = ""


class _PodSpec(msgspec.Struct, frozen=True):
    containers: list[_Container] = []


class _PodMeta(msgspec.Struct, frozen=True):
    labels: dict[str, str] = {}


class _Template(msgspec.Struct, frozen=True):
    metadata: _PodMeta = _PodMeta()
    spec: _PodSpec = _PodSpec()


class _DeploymentSpec(msgspec.Struct, frozen=True):
    replicas: int = 1
    template: _Template = _Template()


class Deployment(Slim, frozen=True):
    """Fields of a Deployment that show its program."""

    spec: _DeploymentSpec = _DeploymentSpec()

    @property
    def images(self) -> set[str]:
        """Last parts of its images' names, without tag and digest."""
        names = (container.image.partition("@")[0] for container in self.spec.template.spec.containers)
        return {name.rpartition("/")[2].partition(":")[0] for name in names}

    @property
    def app(self) -> str:
        """Label `app` of its pods, or of itself."""
        return self.spec.template.metadata.labels.get("app") or self.metadata.labels.get("app", "")


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    api_groups: list[str] = []


class _Webhook(msgspec.Struct, frozen=True):
    rules: list[_Rule] = []


class WebhookConfiguration(Slim, frozen=True):
    """What of a webhook configuration tells whose it is."""

    webhooks: tuple[_Webhook, ...] = ()

    def covers(self, group: str) -> bool:
        """Whether one of its webhooks is for kinds of this API group by name."""
        return any(group in rule.api_groups for webhook in self.webhooks for rule in webhook.rules)


decode_deployment = msgspec.json.Decoder(Deployment).decode
decode_webhooks = msgspec.json.Decoder(WebhookConfiguration).decode


@dataclass(frozen=True, slots=True)
class Found:
    """What runs in a cluster; each is the sentence that says how it was recognised, empty where it does not run."""

    volcano_controllers: str = ""
    """Volcano's job controller."""
    volcano_scheduler: str = ""
    kueue: str = ""
    kube_scheduler: str = ""

    def placer(self, queue: str) -> Placer:
        """The placer of Atoll's workloads, unless an administrator decides otherwise.

        Args:
            queue: of Kueue or Volcano in the member; Kueue admits nothing that names none.
        """
        if self.volcano_scheduler:
            return Placer.VOLCANO
        if self.kueue and queue:
            return Placer.KUEUE
        return Placer.KUBE_SCHEDULER if self.kube_scheduler else Placer.ATOLL

    def why(self, placer: Placer) -> str:
        """How that placer was recognised."""
        sentences = {
            Placer.VOLCANO: self.volcano_scheduler,
            Placer.KUEUE: self.kueue,
            Placer.KUBE_SCHEDULER: self.kube_scheduler,
        }
        return sentences.get(placer) or "no other scheduler was found"


def judge(
    deployments: Iterable[Deployment],
    webhooks: Iterable[WebhookConfiguration],
    *,
    kube_scheduler: bool,
    had_volcano: bool = False,
) -> Found:
    """Say what runs.

    Args:
        deployments: all of the cluster.
        webhooks: mutating and validating ones.
        kube_scheduler: whether there is the Lease of its leader.
        had_volcano: Deployments of Volcano were seen before. Its webhooks stay behind when it is removed, so they
            count only where it never had Deployments.
    """
    controllers = scheduler = kueue = ""
    deployed = had_volcano
    for each in sorted(deployments, key=lambda each: each.metadata.key):
        runs, text = each.spec.replicas > 0, f"Deployment {each.metadata.key}"
        if each.app == CONTROLLER_LABEL or each.images & set(_CONTROLLER_IMAGES):
            deployed, controllers = True, controllers or (text if runs else "")
        if each.app == SCHEDULER_LABEL or each.images & set(_SCHEDULER_IMAGES):
            deployed, scheduler = True, scheduler or (text if runs else "")
        if each.images & set(_KUEUE_IMAGES) and runs:
            kueue = kueue or text
    for configuration in sorted(webhooks, key=lambda each: each.metadata.name):
        if configuration.metadata.name == keys.WEBHOOKS:
            # Atoll's own, where a member is the host of another federation.
            continue
        text = f"webhooks {configuration.metadata.name}"
        if configuration.covers("batch.volcano.sh") and not deployed:
            controllers, scheduler = controllers or text, scheduler or text
        if configuration.covers("kueue.x-k8s.io"):
            kueue = kueue or text
    namespace, name = KUBE_SCHEDULER_LEASE
    return Found(controllers, scheduler, kueue, f"Lease {namespace}/{name}" if kube_scheduler else "")


def is_volcano(deployment: Deployment) -> bool:
    """Whether a Deployment is one of Volcano's."""
    return bool(
        deployment.app in (CONTROLLER_LABEL, SCHEDULER_LABEL)
        or deployment.images & {*_CONTROLLER_IMAGES, *_SCHEDULER_IMAGES}
    )


async def look(api: ApiServer) -> Found:
    """Ask a cluster once.

    Raises:
        ApiError: it does not answer, or refuses to.
    """
    deployments = [msgspec.convert(item, Deployment) for item in await api.list(DEPLOYMENTS)]
    configurations = [item for resource in WEBHOOKS for item in await api.list(resource)]
    webhooks = [msgspec.convert(item, WebhookConfiguration) for item in configurations]
    return judge(deployments, webhooks, kube_scheduler=await has_kube_scheduler(api))


async def has_kube_scheduler(api: ApiServer) -> bool:
    """Whether the cluster has the Lease of a kube-scheduler.

    Raises:
        ApiError: it does not answer, or refuses to.
    """
    namespace, name = KUBE_SCHEDULER_LEASE
    try:
        await api.get(LEASES, name, namespace)
    except errors.NotFound:
        return False
    return True


async def asks_until_told(api: ApiServer) -> bool:
    """As `has_kube_scheduler`; asks until there is an answer: an API server that has just come back refuses everybody
    for a moment.
    """
    while True:
        try:
            return await has_kube_scheduler(api)
        except errors.ApiError as error:
            log.warning("can't tell whether kube-scheduler runs in the member, will ask again", error=str(error))
            await asyncio.sleep(AGAIN)


@dataclass(frozen=True, slots=True)
class Placing:
    """Who places, and how that came."""

    placer: Placer = Placer.ATOLL
    detected: bool = True
    """Whether it was detected, not decided."""
    wish: Wish = field(default_factory=Wish)
    found: Found = field(default_factory=Found)
    problem: str = ""
    """What of the Cluster's annotations can't be read, and does not count."""

    @property
    def sentence(self) -> str:
        """For people: why this one places."""
        if self.problem:
            return self.problem
        if not self.detected:
            return f"set by annotation {keys.PLACER}"
        if self.wish.nodes:
            return f"nodes {self.wish.nodes} are Atoll's"
        return f"detected: {self.found.why(self.placer)}"

    @property
    def made_for(self) -> MadeFor:
        """How to make workloads delivered now."""
        queue = self.wish.queue
        if not queue and self.found.volcano_controllers:
            # Its webhook refuses queues that it does not have, and this one it always has.
            queue = keys.DEFAULT_QUEUE
        return MadeFor(self.placer, queue, bool(self.wish.nodes))


def decide(annotations: Mapping[str, str], found: Found) -> Placing:
    """Who places, given what the Cluster says and what runs in the member."""
    problem = ""
    try:
        wish = placer.wish(annotations)
    except ValueError as error:
        wish, problem = Wish(), str(error)
    if wish.placer is not None:
        return Placing(wish.placer, False, wish, found, problem)
    return Placing(Placer.ATOLL if wish.nodes else found.placer(wish.queue), True, wish, found, problem)
