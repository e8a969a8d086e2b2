"""What the commands that people type all day import: `python -m tests.cli.import_profile [--check]`.

Each command runs in a process of its own against a server with canned answers, as the way from the command line to the
last line of its output decides what is imported. Time depends on the machine, what is imported does not: --check, which
`make lint` runs, looks at names and counts only.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.cli.kubeconfigs import kubeconfig
from tests.view.made import binding, job, queue, told

Json = dict[str, Any]

HEAVY = (
    "atoll.api",
    "atoll.cli.columns",
    "atoll.cli.installing",
    "atoll.cli.jsonpath",
    "atoll.cli.local",
    "atoll.cli.simulate",
    "atoll.cli.what_if",
    "atoll.control",
    "atoll.dispatcher",
    "atoll.install",
    "atoll.local",
    "atoll.sim",
    "cryptography",
    "kubernetes",
    "numpy",
    "prometheus_client",
    "pydantic",
    "re2",
    "rich",
    "structlog",
)
"""Neither they nor what is below them."""
COMMANDS = {
    "explain": ("explain", "vcjob/train"),
    "job list": ("job", "list", "-o", "wide"),
    "queue list": ("queue", "list"),
}
_GROUND = "import asyncio, ssl, aiohttp, typer.main, yaml, msgspec, orjson"
_MOST = 1.25
"""Modules of a command, to those of the libraries that every command needs."""
_COUNT = "import atexit, sys; atexit.register(lambda: print('MODULES', *sys.modules, file=sys.stderr)); "


def answers() -> dict[str, Json]:
    """Path -> what the host says."""
    mine = binding()
    mine["spec"]["resource"]["uid"] = "job-train"
    jobs, queues = "/apis/batch.volcano.sh/v1alpha1", "/apis/scheduling.volcano.sh/v1beta1/queues"
    bindings = "/apis/work.karmada.io/v1alpha2/namespaces/team/resourcebindings"
    status = {"phase": "Suspended", "reason": "QuotaExceeded", "message": "it would exceed its queue's capability"}
    place = told(queue(capability={"cpu": "4"}), pending=1)
    batch = {**job("nightly"), "apiVersion": "batch/v1", "spec": {"managedBy": "atoll.sh/control"}}
    return {
        f"{jobs}/namespaces/team/jobs": _list(job()),
        f"{jobs}/namespaces/team/jobs/train": job(),
        "/apis/batch/v1/namespaces/team/jobs": _list(batch),
        "/api/v1/namespaces/team/pods": _list(),
        "/apis/cluster.karmada.io/v1alpha1/clusters": _list(),
        bindings: _list(mine),
        f"{bindings}/train-job": mine,
        "/apis/query.atoll.sh/v1alpha1/namespaces/team/verdicts/train-job": {"status": status},
        queues: _list(place),
        f"{queues}/research": place,
    }


def _list(*items: Json) -> Json:
    return {"metadata": {"resourceVersion": "1"}, "items": list(items)}


async def ran(code: str, *args: str, environment: dict[str, str]) -> tuple[set[str], float]:
    """Modules that a program has imported at its end, and the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _COUNT + code,
        *args,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    out, said = (text.decode() for text in await process.communicate())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(args) or code}: {out}{said.partition('MODULES ')[0]}")
    names = next(line for line in said.splitlines() if line.startswith("MODULES "))
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return set(names.split()[1:]), spent


async def profile(rounds: int) -> tuple[int, dict[str, tuple[set[str], float]]]:
    """Modules of the libraries that all need; command -> its modules and its median CPU seconds."""
    said = answers()

    async def answer(request: web.Request) -> web.Response:
        found = said.get(request.path)
        if found is None:
            return web.json_response({"reason": "NotFound", "message": request.path}, status=404)
        return web.json_response(found)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "kubeconfig"
            kubeconfig(f"http://127.0.0.1:{port}", file)
            environment = {**os.environ, "KUBECONFIG": str(file), "COLUMNS": "120"}
            ground, _ = await ran(_GROUND, environment=environment)
            found = {}
            for name, args in COMMANDS.items():
                code = "from atoll.cli.app import main; main()"
                runs = [await ran(code, *args, environment=environment) for _ in range(rounds)]
                found[name] = (runs[-1][0], statistics.median(spent for _, spent in runs))
    finally:
        await runner.cleanup()
    return len(ground), found


def main(argv: list[str] | None = None) -> int:
    """Print a table; with --check only what is wrong, 1 if anything is."""
    parser = argparse.ArgumentParser(prog="python -m tests.cli.import_profile", description=__doc__)
    parser.add_argument("--check", action="store_true", help="1 if a command imports what it should not")
    parser.add_argument("--rounds", type=int, default=11, help="runs of each command, for the median")
    options = parser.parse_args(argv)
    ground, found = asyncio.run(profile(1 if options.check else options.rounds))
    wrong = []
    for name, (modules, spent) in found.items():
        ratio = len(modules) / ground
        heavy = [each for each in HEAVY if any(one == each or one.startswith(f"{each}.") for one in modules)]
        if heavy:
            wrong.append(f"atollctl {name} imports {', '.join(heavy)}")
        if ratio > _MOST:
            wrong.append(f"atollctl {name} imports {len(modules)} modules, {ratio:.2f} times what its libraries need")
        if not options.check:
            print(f"{name:<12} {spent:.3f} s of CPU, {len(modules)} modules ({ratio:.2f} of the libraries' {ground})")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
