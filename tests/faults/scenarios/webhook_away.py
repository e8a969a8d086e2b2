"""The webhook is away while jobs are created: a refused one stays refused, and none is half admitted."""

from __future__ import annotations

from atoll.kube import errors
from atoll.model.apiresource import BINDINGS
from tests.chaos import plan
from tests.chaos.plan import NAMESPACE, Submission
from tests.faults.ground import Ground, jobs

EXEMPT: frozenset[str] = frozenset()
_WEBHOOK = "atoll-webhook"


def wishes(quick: bool) -> list[Submission]:
    return jobs("admitted", 20 if quick else 100)


async def play(ground: Ground) -> None:
    process = ground.federation.process(_WEBHOOK)
    for turn in range(int(ground.size(4, 2))):
        once = jobs(f"refused-{turn}", 4)
        await ground.sleep(2)
        async with ground.fault("webhook away", _WEBHOOK):
            await process.stop()
            taken = [wish for wish in once if await _created(ground, wish)]
            ground.problems += [f"{wish.name} was created without its webhook" for wish in taken]
            await ground.sleep(3)
            await process.start()
            await process.ready(ground.ready_s)
        # Long enough for anything that half admitted one to show.
        await ground.sleep(2)
        ground.problems += [text for wish in once if (text := await _traces(ground, wish))]


async def _created(ground: Ground, wish: Submission) -> bool:
    try:
        await ground.host.create(wish.resource, plan.workload(wish))
    except (errors.Busy, errors.Unreachable):
        return False
    return True


async def _traces(ground: Ground, wish: Submission) -> str:
    found = [each["metadata"]["name"] for each in await ground.host.list(wish.resource, NAMESPACE)]
    found += [each["spec"]["resource"]["name"] for each in await ground.host.list(BINDINGS, NAMESPACE)]
    return f"{wish.name} was refused and is there" if wish.name in found else ""
