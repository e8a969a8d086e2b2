"""The host alone is put back to an earlier state: members are ahead of it, and epochs are decided a second time."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tests.chaos.checks import Violation
from tests.chaos.plan import Submission
from tests.chaos.record import Pod, Record
from tests.faults.ground import Ground, jobs, text64
from tests.faults.scenarios import restored

EXEMPT = restored.EXEMPT
OVERLAP_S: Final = 10.0
"""How long the pods of an undone decision may run beside those of the new one: the start of an agent, which ends them."""
_PREFIX, _END = "/host/", "/host0"
#: What the host's API servers keep for a time of their own.
_SKIPPED = (b"/host/events/", b"/host/masterleases/")


def wishes(quick: bool) -> list[Submission]:
    """All are known to the host before it is copied. Long ones wait behind short ones: they run when it is put back, many
    by decisions that it does not know any more.
    """
    short = jobs("behind", 16 if quick else 60, every=0.05)
    long = jobs("astride", 12 if quick else 30, every=0.05)
    return [*short, *(replace(each, seconds=90.0, offset=each.offset + 0.8) for each in long)]


def own_checks(record: Record) -> list[Violation]:
    return [*one_of_each_index(record), *runs_across(record)]


def runs_across(record: Record) -> Iterator[Violation]:
    """Without a pod that runs while the host is put back, the other check sees nothing."""
    for fault in record.faults:
        if not any(pod.bound and pod.bound < fault.began and pod.over > fault.ended for pod in record.pods.values()):
            yield Violation("ran across", fault.target, fault.began, "no pod ran from before the fault until after it")


def one_of_each_index(record: Record) -> Iterator[Violation]:
    """A workload never has more running pods than it asks for, and no pod of one name runs in two members, for longer
    than the members need to hear of the restored host.
    """
    bound = OVERLAP_S * record.pace
    for wish in record.plan.values():
        pods = [pod for pod in record.of(wish.name) if pod.bound is not None]
        groups = {"all of it": (pods, wish.pods)}
        for name in {pod.name for pod in pods}:
            groups[name] = ([pod for pod in pods if pod.name == name], 1)
        for name, (group, most) in groups.items():
            for began, ended in _more_than(most, group, record.end):
                if ended - began > bound:
                    text = f"{name}: more than {most} of its pods ran for {ended - began:.1f} s"
                    yield Violation("ran once", wish.name, began, text)


def _more_than(most: int, pods: Sequence[Pod], end: float) -> Iterator[tuple[float, float]]:
    """Stretches in which more than so many of these pods ran."""
    steps = [(pod.bound, 1) for pod in pods if pod.bound is not None]
    steps += [(min(pod.over, end), -1) for pod in pods]
    running, since = 0, None
    # At one time, an end comes before a begin.
    for at, change in sorted(steps, key=lambda step: (step[0], step[1])):
        running += change
        if running > most and since is None:
            since = at
        elif running <= most and since is not None:
            yield since, at
            since = None


async def play(ground: Ground) -> None:
    """The store of one cluster is a part of the common one; that its versions go back is what `restored` plays.

    A host whose versions go back has every process begin anew, which is done by killing them here.
    """
    await ground.sleep(ground.size(8, 4))
    async with ground.store() as ask:
        copy = (await ask("kv/range", key=text64(_PREFIX), range_end=text64(_END)))["kvs"]
    copy = [each for each in copy if not base64.b64decode(each["key"]).startswith(_SKIPPED)]
    await ground.sleep(ground.size(20, 8))
    server = ground.servers.of("host")
    async with ground.fault("outage (host is put back)", "host"):
        began = time.time()
        await ground.servers.kill(server)
        async with ground.store() as ask:
            await ask("kv/deleterange", key=text64(_PREFIX), range_end=text64(_END))
            for each in copy:
                await ask("kv/put", key=each["key"], value=each["value"])
        await server.start()
        await server.wait_ready(ground.ready_s)
        for process in ground.federation.processes.values():
            process.kill()
        for process in ground.federation.processes.values():
            await process.ready(ground.ready_s)
        ground.say(f"{len(copy)} keys are back after {time.time() - began:.1f} s")
