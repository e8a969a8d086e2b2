"""CPU time of the API server for creates that are no workloads, where its rules ask about all custom resources or not.

In namespaces that have opted in, the webhooks for declared kinds are registered for all resources by `init`, and for
the resources of WorkloadKinds alone once control has seen them. No webhook runs: its conditions say no either way.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from pathlib import Path
from typing import Any

from atoll import install
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import CONFIGMAPS, LEASES, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from bench import host, machine
from bench.load import Request, creation, measured, namespace, send
from bench.report import Progress, Report, progress, run

NAME = "interception"
DESCRIPTION = "CPU time of creates that are no workloads, with rules for all custom resources and for named ones."
BOUND = "the same creates with rules for named resources, in turns"
FULL: dict[str, Any] = {"creates": 2000, "pairs": 7}
QUICK: dict[str, Any] = {"creates": 50, "pairs": 1}
RULES = ("all", "named")
_WHERE = "team"
_SETTLE_S = 1.5
"""A configuration that was just written, until every part of the server has it."""


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--creates", type=int, help="objects of each kind in each turn; none of them is stored")
    parser.add_argument("--pairs", type=int, help="turns with each of the rules")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    return measured(chosen, told, _measure, NAME, QUICK, FULL, bound=BOUND)


async def _measure(report: Report, params: dict[str, Any], directory: Path, told: Progress) -> None:
    async with host.bare(directory, told) as (federation, api):
        at = await install.endpoint(federation.host.kubeconfig)
        await install.init(api, at, out=directory, webhook_client_config={"url": "https://127.0.0.1:1"})
        await namespace(api, _WHERE, {keys.ENABLED: "true"})
        (pid,) = (each.pid for each in federation.processes.processes if "apiserver" in each.spec.name)
        assert pid is not None
        written = {each: (await api.get(each, keys.WEBHOOKS))["webhooks"] for each in _BOTH}
        loads = {each.kind: _creates(each, params["creates"]) for each in (CONFIGMAPS, LEASES)}
        used: dict[tuple[str, str], list[float]] = {(kind, rules): [] for kind in loads for rules in RULES}
        for turn in range(params["pairs"] + 1):
            for rules in RULES if turn % 2 else RULES[::-1]:
                told(f"turn {turn}, rules: {rules}")
                await _register(api, written, rules)
                for kind, requests in loads.items():
                    before = machine.cpu_seconds(pid)
                    await send(federation.host, requests)
                    spent = (machine.cpu_seconds(pid) - before) / len(requests) * 1000
                    # The first turn warms up.
                    if turn:
                        used[kind, rules].append(spent)
    for kind in loads:
        all_, named = (statistics.median(used[kind, rules]) for rules in RULES)
        report.add(f"{kind}, rules: all", "cpu", all_, "ms", named or None)
        report.add(f"{kind}, rules: named", "cpu", named, "ms")
        saved = [a - b for a, b in zip(used[kind, "all"], used[kind, "named"], strict=True)]
        report.add(kind, "saved", statistics.median(saved), "ms")
        report.add(kind, "saved_least", min(saved), "ms")
        report.add(kind, "saved_most", max(saved), "ms")


_BOTH = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)


def _creates(resource: Any, count: int) -> list[Request]:
    """Requests of which nothing is stored."""
    about = {"apiVersion": resource.api_version, "kind": resource.kind}
    made = [creation(resource, {**about, "metadata": {"name": f"c{n}", "namespace": _WHERE}}) for n in range(count)]
    return [Request(each.method, f"{each.path}?dryRun=All", each.body) for each in made]


async def _register(api: ApiServer, written: dict[Any, list[dict[str, Any]]], rules: str) -> None:
    """Register the webhooks for declared kinds with these rules, the others as `init` wrote them."""
    for resource, entries in written.items():
        wanted = entries
        if rules == "named":
            some = [{**entries[0]["rules"][0], "apiGroups": ["kubeflow.org"], "resources": ["paddlejobs"]}]
            wanted = [{**each, "rules": some} if "declared" in each["name"] else each for each in entries]
        await api.merge_patch(resource, keys.WEBHOOKS, {"webhooks": wanted})
    await asyncio.sleep(_SETTLE_S)


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
