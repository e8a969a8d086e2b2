"""The demo's command: federation up, workload through it, federation down, tables and checks."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from atoll.kube.errors import ApiError
from atoll.local import audit, binaries
from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.processes import ProcessFailed
from demo import checks, philly, record, report, workload
from demo.drive import Drive, create_queues
from demo.kill import Killer
from demo.places import Places
from demo.progress import progress
from demo.scales import GPUS_PER_NODE, SCALES, Scale

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit code is 0 only when every check passes."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--scale", choices=sorted(SCALES), default="full", help="small: two members and about 20 jobs")
    parser.add_argument("--seed", type=int, default=1, help="of the synthetic gangs (default: 1)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and audit logs in this folder")
    parser.add_argument(
        "--kill", type=int, metavar="SEED", help="kill each process of Atoll in turn, at moments that this seed decides"
    )
    options = parser.parse_args(arguments)
    plain = Console()
    console = plain if plain.is_terminal else Console(width=140)
    with _folder(options.keep) as folder:
        try:
            return asyncio.run(_demo(console, SCALES[options.scale], options.seed, folder, options.kill))
        except (KeyboardInterrupt, asyncio.CancelledError):
            console.print("Stopped; nothing is left running.")
            return _INTERRUPTED
        except (ApiError, ProcessFailed, binaries.BinariesError, TimeoutError) as error:
            console.print(f"The demo could not run: {error}", markup=False, highlight=False, soft_wrap=True)
            return 2


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="atoll-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


async def _demo(console: Console, scale: Scale, seed: int, folder: Path, kill: int | None) -> int:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    programs = await asyncio.to_thread(binaries.ensure)
    began = time.monotonic()
    work = workload.generate(philly.read(), scale, seed)
    _introduce(console, scale, work)
    federation = AtollFederation(
        scale.config,
        folder,
        binaries=programs,
        # A killed leader's successor waits for its lease.
        flags={}
        if kill is None
        else {"control": QUICK_ELECTION, "dispatcher": QUICK_ELECTION, "agent": QUICK_ELECTION},
        on_progress=lambda line: console.print(f"  {line}", highlight=False),
    )
    async with federation, await federation.host.connect() as api:
        await create_queues(api, scale)
        console.print(f"ready after {time.monotonic() - began:.0f} s; submitting", highlight=False)
        killer = None if kill is None else Killer(federation.processes, kill)
        with progress(console, len(work.submissions)) as step:
            drive = Drive(api, work, step, insist=killer is not None)
            async with _beside(killer):
                late = await drive.run()
        console.print("stopping")
    for name, why in drive.refused.items():
        console.print(f"refused by the host: job {name}: {why}", markup=False, highlight=False, soft_wrap=True)
    if late:
        console.print(f"not final in time: {', '.join(late)}", highlight=False, soft_wrap=True)
    if killer is not None:
        times = ", ".join(f"{name} {count}" for name, count in killer.killed.items())
        console.print(
            f"killed with seed {kill}: {times}; {drive.repeated} submissions were repeated",
            highlight=False,
            soft_wrap=True,
        )
    failed = _conclude(console, scale, work, federation)
    console.print(f"{time.monotonic() - began:.0f} s in total", highlight=False)
    return 1 if failed or late else 0


@contextlib.asynccontextmanager
async def _beside(killer: Killer | None) -> AsyncIterator[None]:
    task = None if killer is None else asyncio.create_task(killer.run())
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _introduce(console: Console, scale: Scale, work: workload.Workload) -> None:
    origins = [job.origin for job in work.submissions]
    sizes = ", ".join(f"{member.name} {len(member.node_names()) * GPUS_PER_NODE}" for member in scale.config.members)
    queues = ", ".join(f"{name} {gpus}" for name, gpus in scale.queues.items())
    console.print(
        f"GPUs of the members: {sizes}; capability of the queues: {queues}\n"
        f"{len(origins)} jobs: {origins.count(workload.Origin.TRACE)} of the Philly trace (rows {philly.ROWS.start} to "
        f"{philly.ROWS.stop - 1}), {origins.count(workload.Origin.MOVED)} of its 16-GPU jobs moved into the window, "
        f"{origins.count(workload.Origin.SYNTHETIC)} synthetic gangs\n"
        f"times compressed by {scale.factor:g}; run times of {work.capped} jobs capped at "
        f"{workload.RUN_TIME_CAP_S / 3600:g} h; the last job comes after {work.submissions[-1].offset:.0f} s",
        highlight=False,
    )


def _conclude(console: Console, scale: Scale, work: workload.Workload, federation: AtollFederation) -> bool:
    found = record.build(
        audit.read(federation.host.audit_log),
        {name: audit.read(member.audit_log) for name, member in federation.members.items()},
    )
    places = Places(scale.config)
    report.show(console, found, places)
    outcome = checks.run_all(found, [job.name for job in work.submissions], places)
    report.show_checks(console, outcome)
    return bool(checks.violated(outcome))


if __name__ == "__main__":
    sys.exit(main())
