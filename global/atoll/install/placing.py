"""Who places in a member, as `join` writes it, and the nodes there that are Atoll's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from atoll.install.refusal import Refused
from atoll.kube import errors, schedulers
from atoll.kube.schedulers import Placing
from atoll.kube.transport import ApiServer
from atoll.model import keys, placer
from atoll.model.apiresource import NODES, QUEUES
from atoll.model.placer import TAINT, Placer

Json = dict[str, Any]

_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class PlacingWish:
    """What an administrator asks for; None leaves what the Cluster says."""

    placer: str | None = None
    """A `Placer`, or `auto`."""
    queue: str | None = None
    """Of Volcano or Kueue in the member; empty for none."""
    nodes: str | None = None
    """Label selector of nodes that are Atoll's; empty for all."""

    @property
    def annotations(self) -> dict[str, str | None]:
        """Of the Cluster, for a merge patch."""
        given = {keys.PLACER: self.placer, keys.MEMBER_QUEUE: self.queue, keys.NODES: self.nodes}
        return {key: value or None for key, value in given.items() if value is not None}


async def plan(member: ApiServer, name: str, asked: PlacingWish, known: Mapping[str, str]) -> Placing:
    """Look at the member, and see who will place there.

    Args:
        member: with an administrator's credentials.
        name: of the member.
        asked: by the administrator.
        known: annotations of its Cluster.

    Raises:
        Refused: the requested options are impossible.
    """
    merged = {**known, **asked.annotations}
    annotations = {key: value for key, value in merged.items() if value is not None}
    try:
        placer.wish(annotations)
    except ValueError as error:
        raise Refused(f"member {name}: {error}") from None
    found = await schedulers.look(member)
    placing = schedulers.decide(annotations, found)
    queue = placing.wish.queue
    if placing.placer is Placer.KUEUE and not queue:
        raise Refused(
            f"member {name}: placer kueue needs --member-queue, the LocalQueue that workloads go through there"
        )
    if queue and found.volcano_controllers and placing.placer is not Placer.KUEUE:
        await _check_queue(member, name, queue)
    return placing


async def _check_queue(member: ApiServer, name: str, queue: str) -> None:
    try:
        await member.get(QUEUES, queue)
    except errors.NotFound:
        names = []
        # There may be none of the kind either.
        with contextlib.suppress(errors.NotFound):
            names = sorted(each["metadata"]["name"] for each in await member.list(QUEUES))
        have = ", ".join(names) or "none"
        raise Refused(
            f"member {name}: Volcano has no queue {queue} there, and would refuse every Job; it has {have}"
        ) from None


async def mark_nodes(member: ApiServer, name: str, nodes: str, progress: Callable[[str], None]) -> None:
    """Taint the nodes that are Atoll's, and no others.

    Args:
        member: with an administrator's credentials.
        name: of the member.
        nodes: their label selector; empty for none, as where Atoll shares all of them.
        progress: gets a line.
    """
    ours = {node["metadata"]["name"] for node in await member.list(NODES, label_selector=nodes)} if nodes else set()
    changed = 0
    for node in await member.list(NODES):
        wanted = node["metadata"]["name"] in ours
        if wanted != any(_is_ours(taint) for taint in node["spec"].get("taints") or ()):
            await _mark(member, node, wanted)
            changed += 1
    if nodes and not ours:
        progress(f"member {name}: no node has labels {nodes} yet; give new ones the taint {_text()} or repeat join")
    elif nodes or changed:
        progress(f"member {name}: {len(ours)} nodes with taint {_text()}")


async def _mark(member: ApiServer, node: Json, wanted: bool) -> None:
    for _ in range(_TRIES):
        meta = node["metadata"]
        taints = [taint for taint in node["spec"].get("taints") or () if not _is_ours(taint)]
        patch = {
            "metadata": {"resourceVersion": meta["resourceVersion"]},
            "spec": {"taints": [*taints, dict(TAINT)] if wanted else taints},
        }
        try:
            await member.merge_patch(NODES, meta["name"], patch)
        except errors.Conflict:
            # Heartbeats change nodes all the time.
            node = await member.get(NODES, meta["name"])
        except errors.NotFound:
            return
        else:
            return
    raise Refused(f"node {node['metadata']['name']} changes too fast to be tainted: try again")


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return taint.get("key") == TAINT["key"] and taint.get("effect") == TAINT["effect"]


def _text() -> str:
    return f"{TAINT['key']}={TAINT['value']}:{TAINT['effect']}"
