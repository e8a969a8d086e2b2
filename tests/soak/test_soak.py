"""The arithmetic of a soak, and a few seconds of one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from atoll.kube import vitals
from atoll.local.atoll_federation import AtollFederation
from tests.integration.federation import until
from tests.soak.__main__ import judge
from tests.soak.figures import MB, Figures, Sample, figures, quantile, read, slope
from tests.soak.stream import KINDS, Stream
from tests.soak.watch import Watch

INF = float("inf")


@given(st.floats(-5, 5), st.floats(0, 100), st.lists(st.integers(0, 1000), min_size=2, max_size=20, unique=True))
def test_the_slope_of_a_line_is_its_slope(rise: float, start: float, times: list[int]) -> None:
    assert slope([(x, start + rise * x) for x in times]) == pytest.approx(rise, abs=1e-6)


def test_one_point_has_no_slope() -> None:
    assert (slope([]), slope([(1, 5)]), slope([(1, 5), (1, 9)])) == (0, 0, 0)


@pytest.mark.parametrize(
    ("share", "before", "after", "expected"),
    [
        pytest.param(0.5, {}, {0.1: 10, 0.2: 20, INF: 20}, 0.1, id="at the end of a bucket"),
        pytest.param(0.75, {}, {0.1: 10, 0.2: 20, INF: 20}, 0.15, id="inside a bucket it is linear"),
        pytest.param(0.99, {0.1: 0, 0.2: 900, INF: 900}, {0.1: 100, 0.2: 1000, INF: 1000}, 0.099, id="what was before does not count"),
        pytest.param(0.99, {}, {0.1: 1, 0.2: 1, INF: 100}, 0.2, id="beyond the last bound it is the last bound"),
        pytest.param(0.99, {}, {0.1: 0, INF: 0}, 0.0, id="nothing was counted"),
    ],
)  # fmt: skip
def test_quantile(share: float, before: dict[float, float], after: dict[float, float], expected: float) -> None:
    assert quantile(share, before, after) == pytest.approx(expected)


def at(seconds: float, megabytes: float, pid: int = 1) -> Sample:
    return Sample(seconds, pid, megabytes * MB, {0.01: seconds, INF: seconds})


def test_growth_is_per_ten_minutes_and_the_warm_up_does_not_count() -> None:
    samples = [at(10.0 * n, 50 + (n if n < 30 else 30 + (n - 30) / 10)) for n in range(91)]
    found = figures("p", samples, warm_up=300)
    assert found.growth_mb == pytest.approx(6)
    assert (found.samples, found.restarts, found.first_mb) == (61, 0, 80)
    assert found.lag_p99_ms == pytest.approx(9.9)


def test_after_a_restart_the_new_process_is_looked_at() -> None:
    found = figures("p", [at(0, 100), at(10, 100), at(20, 50, pid=2), at(30, 50, pid=2)], warm_up=5)
    assert (found.restarts, found.growth_mb, found.first_mb) == (1, 0, 50)


def fine(**changes: float) -> Figures:
    return Figures(**{"name": "p", "samples": 9, "first_mb": 80, "last_mb": 80, "growth_mb": 1, "lag_p99_ms": 5, "restarts": 0} | changes)  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize(
    ("found", "counts", "problem"),
    [
        ([fine()], {"finished": 5, "given up": 1}, ""),
        ([fine()], {"given up": 1}, "no job finished"),
        ([fine(growth_mb=3.0)], {"finished": 5}, "grows by 3.00 MB"),
        ([fine(lag_p99_ms=50.0)], {"finished": 5}, "50.0 ms late"),
        ([fine(restarts=1)], {"finished": 5}, "started again"),
        ([fine()], {"finished": 5, "lost": 2}, "2 jobs were lost"),
        ([], {}, "no process answered"),
    ],
)
def test_what_is_wrong_is_said(found: list[Figures], counts: dict[str, int], problem: str) -> None:
    said = judge(found, counts)
    assert [problem in each for each in said] == ([True] if problem else [])


def test_a_page_of_metrics_becomes_a_sample() -> None:
    registry = CollectorRegistry()
    vitals.register(registry)
    vitals.lag_histogram(registry).observe(0.03)
    found = read(generate_latest(registry).decode(), 5.0, 7)
    assert (found.at, found.pid, found.lag[INF], found.lag[0.02], found.lag[0.03]) == (5.0, 7, 1, 0, 1)
    assert found.rss > 10 * MB


@pytest.mark.integration
async def test_jobs_of_every_sort_come_and_go_and_every_process_is_sampled(federation: AtollFederation) -> None:
    async with await federation.host.connect() as host:
        stream, watch = Stream(host, per_second=4, amount=len(KINDS)), Watch(federation)
        await asyncio.gather(stream.run(), watch.run(2, 1))

        async def sampled() -> bool:
            # A process that another test has killed is not there at once.
            await watch.run(0, 0)
            found = watch.figures(warm_up=0)
            return {each.name for each in found} == set(federation.processes) and all(x.samples >= 2 for x in found)

        await until(sampled, what="every process answered twice")
    assert stream.counts == {"finished": len(KINDS) - 1, "given up": 1}
    assert all(each.last_mb > 20 for each in watch.figures(warm_up=0))
