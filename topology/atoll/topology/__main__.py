"""The process `atoll-topology`: one for each cluster with HyperNodes, with or without the rest of Atoll."""

from __future__ import annotations

import argparse

from atoll.kube import process
from atoll.kube.process import Process
from atoll.kube.transport import ApiServer
from atoll.model import quantity
from atoll.model.vector import Vector
from atoll.topology.operator import Admission, Operator, Rules, run_kopf


async def setup(running: Process, options: argparse.Namespace) -> None:
    """Connect, and add the operator's tasks."""
    api = await running.stack.enter_async_context(
        await ApiServer.from_kubeconfig(
            options.kubeconfig, user_agent="atoll-topology", rate=process.rate_limit(options)
        )
    )
    rules = Rules(options.slot, options.lost_share, options.recovery_seconds, options.counts_seconds)
    operator = Operator(api, rules, running.metrics)
    running.ready_when(lambda: operator.ready)
    running.add_task("status", operator.run())
    admission = None
    if options.admission_port:
        admission = Admission(options.admission_address, options.admission_port, options.admission_service or "")
    elif options.admission_service:
        raise SystemExit("atoll-topology: --admission-service means nothing without --admission-port")
    running.add_task("kopf", run_kopf(operator, running.stopping, options.kubeconfig, admission))


def main() -> None:
    """Console script `atoll-topology`."""
    parser = process.arguments("topology", "Looks after the HyperNodes of one cluster.", cluster="cluster")
    parser.add_argument(
        "--slot",
        type=_slot,
        default="nvidia.com/gpu=1",
        metavar="RESOURCE=AMOUNT,...",
        help="what one slot takes of a node; status says how many are free (default: nvidia.com/gpu=1)",
    )
    parser.add_argument(
        "--lost-share",
        type=_share,
        default=0.5,
        metavar="SHARE",
        help="share of a domain's own nodes, two at least, that must be lost for the domain to be lost (default: 0.5)",
    )
    parser.add_argument(
        "--recovery-seconds",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="time that a node must be Ready without a break before it counts again (default: 60)",
    )
    parser.add_argument(
        "--counts-seconds",
        type=_seconds,
        default=5.0,
        metavar="S",
        help="least time between two writes of one status when only counts differ (default: 5)",
    )
    parser.add_argument(
        "--admission-port",
        type=int,
        default=0,
        metavar="PORT",
        help="serve admission of HyperNodes and keep webhook configuration topology.atoll.sh (default: 0, off)",
    )
    parser.add_argument(
        "--admission-address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on; the API server calls it where no Service is named (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--admission-service",
        type=_service,
        metavar="NAMESPACE/NAME",
        help="Service by whose port 443 the API server reaches admission",
    )
    options = parser.parse_args()
    process.run("topology", options, lambda running: setup(running, options))


def _slot(text: str) -> Vector:
    try:
        slot = quantity.requests(quantity.resource_list(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not slot or min(slot.values()) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} takes nothing; write RESOURCE=AMOUNT, as nvidia.com/gpu=1")
    return slot


def _service(text: str) -> str:
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/NAME")
    return text


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return share


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no time")
    return seconds


if __name__ == "__main__":
    main()
