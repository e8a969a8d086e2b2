"""The host alone is put back to an earlier state: members are ahead of it, and epochs are decided a second time."""

from __future__ import annotations

import base64
import time

from tests.chaos.plan import Submission
from tests.faults.ground import Ground, jobs, text64
from tests.faults.scenarios import restored

EXEMPT = restored.EXEMPT
_PREFIX, _END = "/host/", "/host0"
#: What the host's API servers keep for a time of their own.
_SKIPPED = (b"/host/events/", b"/host/masterleases/")


def wishes(quick: bool) -> list[Submission]:
    """All are known to the host before it is copied."""
    return jobs("behind", 16 if quick else 60, every=0.05)


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
