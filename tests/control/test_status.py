"""A workload's status on the host: what is final stays so, whatever control's caches still say."""

from __future__ import annotations

import msgspec
import orjson
import pytest

from atoll.control.caches import Caches
from atoll.control.objects import BindingObject
from atoll.control.status import Status
from atoll.kinds import volcano_job
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.model import decision, keys
from atoll.model.apiresource import JOBS
from atoll.model.decision import Decision, Phase
from atoll.model.objects import Meta, decode_full
from atoll.model.verdict import Reason
from tests.integration.federation import Site, job

pytestmark = pytest.mark.integration

EVICTING = BindingObject(
    metadata=Meta(annotations={keys.DECISION: decision.encode(Decision(2, Phase.EVICTING, Reason.DEADLINE_EXCEEDED))})
)


@pytest.mark.parametrize("finished", [True, False], ids=["its binding is finished", "only the workload says so"])
async def test_a_job_that_completed_while_it_was_taken_back_stays_completed(site: Site, finished: bool) -> None:
    made = await site.submit(job("done", seconds=0.2))
    done = await site.phase("done", "Completed")
    # A cache that is behind: the job as it was before anything was said about it.
    stale = decode_full(orjson.dumps(made))
    conditions = [{"type": "Finished", "status": "True"}] if finished else []
    binding = msgspec.structs.replace(EVICTING, status={"conditions": conditions})
    status = Status(site.host, Caches(site.host), Recorder(site.host, "test"))
    try:
        await status._workload_status(volcano_job.KIND, stale, binding, [])
    except errors.Invalid:
        assert not finished
    assert (await site.host.get(JOBS, "done", site.namespace))["status"] == done["status"]
