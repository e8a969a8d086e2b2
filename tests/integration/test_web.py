"""The page on a real host: it shows what runs, with the rights of its viewer and no others."""

from __future__ import annotations

import pytest

from atoll.kube import config
from tests.integration.federation import Site, job, until
from tests.integration.tenants import made, rights_count

pytest.importorskip("jinja2")

from tests.cli.web_pages import entered, plain, shared

pytestmark = pytest.mark.integration


async def test_pages_show_a_workload_to_its_team_alone(site: Site) -> None:
    name, waits = "seen-by-its-team", "waits-for-more"
    await site.submit(job(name, replicas=2, seconds=None))
    await site.submit(job(waits, replicas=2, cpu="1000"))
    async with entered(site.host, "default") as admin:

        async def listed(state: str, text: str) -> bool:
            return text in plain(await admin.text(f"/workloads?state={state}&namespace={site.namespace}"))

        await until(lambda: listed("running", name), what="the page shows that it runs")
        await until(lambda: listed("waiting", waits), what="the page shows that the other one waits")
        assert "alpha" in plain(await admin.text("/"))
        one = plain(await admin.text(f"/workloads/{site.namespace}/job.batch.volcano.sh/{name}"))
        assert "pods bound" in one
        assert "Story" in one
        why = plain(await admin.text(f"/workloads/{site.namespace}/vcjob/{waits}"))
        assert "What would help" in why
        fields = {"namespace": site.namespace, "cpu": "1000"}
        answered = plain(await admin.send("/what-if", fields))
        assert f"Job {site.namespace}/what-if would wait" in answered
        assert "would start now" in plain(await admin.send("/what-if", {**fields, "cpu": "100m"}))
    tenant = await made(site, "view")
    try:
        await rights_count(tenant)
        async with entered(tenant.api, site.namespace) as mine:
            listed_here = await mine.text("/workloads")
            assert waits in listed_here
            assert f"workloads outside namespace {site.namespace}" in plain(listed_here)
        async with entered(tenant.api, "default") as elsewhere:
            for path in ("/", "/workloads", "/workloads?state=running"):
                text = await elsewhere.text(path)
                assert name not in text
                assert waits not in text
            await elsewhere.text(f"/workloads/default/vcjob/{name}", 403)
            assert "forbidden" in plain(await elsewhere.send("/what-if", {"namespace": site.namespace}))
        access = await config.access(tenant.kubeconfig)
        assert access.header is not None
        async with shared(access) as page:
            await page.text("/workloads", 401)
            await page.text("/workloads", 401, token="made-up")
            text = await page.text("/workloads", token=access.header.removeprefix("Bearer "))
            assert waits in text
            assert f"workloads outside namespace {site.namespace}" in plain(text)
    finally:
        await tenant.api.close()
        tenant.kubeconfig.unlink()
