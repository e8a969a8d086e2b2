"""What a host runs by itself: objects that the webhook leaves to its controllers, and workloads that both would run.

Namespaces select Atoll's workloads (`atoll.model.namespaces`); a host that runs Deployments has
`atoll.sh/host-profile`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from atoll.admission.problems import Json, Problem, mapping, sequence
from atoll.admission.rules import Change
from atoll.kinds import BY_GVK, Kind, needs_queue
from atoll.kinds.metadata import names_queue
from atoll.model import keys
from atoll.model.namespaces import LABELLED, needs_queues


def is_controller(user: str, opted_in: Callable[[str], bool]) -> bool:
    """Whether the host's own controllers or its operators have this name: tenants can name any owner.

    Args:
        user: who asks.
        opted_in: whether a namespace is one of workloads; an account there is a tenant's.
    """
    account = user.removeprefix("system:serviceaccount:")
    return user.startswith("system:") and (account == user or not opted_in(account.partition(":")[0]))


def is_left_to_host(kind: Kind, change: Change, *, shared: bool) -> bool:
    """Whether what a controller of the host makes is for an object that is the host's: then it goes on there.

    That of a workload of Atoll's makes nothing on the host. Pods of any other owner are accepted from controllers where
    the host's own would run it; elsewhere it is a workload like users' own, as the Jobs of a CronJob.
    """
    owner = _controller(change.new)
    if change.old is not None or owner is None or kind.assembly is not None or not needs_queue(kind.resource):
        return False
    return owner in BY_GVK or (shared and not names_queue(change.new))


def problems(kind: Kind, change: Change, labels: Mapping[str, str], field: str, *, shared: bool) -> list[Problem]:
    """Why a workload would be run by others, or not at all.

    Args:
        kind: of the workload.
        change: of it.
        labels: of its namespace.
        field: that messages name for problems with the queue.
        shared: the host's own controllers run workloads of this kind, and nothing holds them back.
    """
    old, new, title = change.old, change.new, kind.words.title
    if old is None and shared:
        text = f"nothing keeps this host's own controllers from running a {title} there as well:"
        if needs_queues(labels):
            return [Problem(field, f"{text} without a queue it is the host's alone; or use a host for Atoll alone")]
        way = f"in a namespace with {keys.ENABLED}={LABELLED} it is the host's alone unless it names a queue"
        return [Problem("kind", f"{text} {way}; or use a host for Atoll alone")]
    if old is None or not needs_queue(kind.resource) or names_queue(old) == names_queue(new):
        return []
    if names_queue(new) and not kind.takes(old) and (shared or needs_queues(labels)):
        text = f"Atoll takes a {title} when it is created, and this one is the host's: leave its queue out"
        return [Problem(field, text if shared else f"{text}, or delete it and create it again with its queue")]
    if names_queue(old) and kind.takes(old) and needs_queues(labels):
        text = f"names no queue any more, and in a namespace with {keys.ENABLED}={LABELLED} only what does is Atoll's"
        return [Problem(field, f"{text}: name one, or delete the {title}")]
    return []


def _controller(obj: Json) -> tuple[str, str] | None:
    """The apiVersion and kind of the object that controls this one."""
    for each in map(mapping, sequence(mapping(obj.get("metadata")).get("ownerReferences"))):
        if each.get("controller") is True:
            return str(each.get("apiVersion")), str(each.get("kind"))
    return None
