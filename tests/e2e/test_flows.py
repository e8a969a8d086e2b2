"""A JobFlow whose steps wait for pods that answer."""

from __future__ import annotations

from atoll.model.apiresource import JOB_FLOWS, JOB_TEMPLATES
from tests.e2e.jobs import PATIENCE, job, shell, task
from tests.integration.federation import Site
from tests.integration.makers import make


async def test_a_step_begins_once_the_pods_before_it_answer(site: Site) -> None:
    serve = "sleep 3; echo ready > /tmp/ready; httpd -f -p 8080 -h /tmp"
    await make(site, JOB_TEMPLATES, "serve", job("x", task("w", shell(serve), replicas=2))["spec"])
    await make(site, JOB_TEMPLATES, "use", job("x", task("w", shell("true")))["spec"])
    probe = {
        "httpGetList": [{"taskName": "w", "path": "/ready", "port": 8080}],
        "tcpSocketList": [{"taskName": "w", "port": 8080}],
    }
    steps = [{"name": "serve"}, {"name": "use", "dependsOn": {"targets": ["serve"], "probe": probe}}]
    await make(site, JOB_FLOWS, "web", {"flows": steps})
    await site.phase("web-use", "Completed", deadline=PATIENCE)
    served = await site.phase("web-serve", "Running", deadline=PATIENCE)
    assert served["status"]["probes"] == [{"answered": 2}, {"answered": 2}]
