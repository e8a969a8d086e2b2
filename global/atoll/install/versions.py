"""Which Kubernetes a host and a member may be: asked at `init` and `join`, before anything is changed.

A version is the one that a server claims to behave as: a server that emulates an older version is taken at its word. A
feature that an administrator may have turned off is tried, as no version shows that.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from atoll.install.refusal import Refused
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.kube.version import Version, version_of
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS
from atoll.model.member import OLDEST_KUBERNETES

Json = dict[str, Any]

OLDEST: Final = OLDEST_KUBERNETES
"""Of host and members; tests run a host and a member of this version."""
NEWEST: Final = (1, 36)
"""That tests run with; newer ones are taken, with a note that they are untested."""
_PROBED_IN: Final = "kube-system"
"""Where a Job is tried: no webhook of ours, and hardly another one, looks at objects made there."""


async def version(api: ApiServer) -> Version:
    """The version of a cluster.

    Raises:
        Refused: its answer is no version.
        ApiError: it gives no answer.
    """
    try:
        return await version_of(api)
    except ValueError as error:
        raise Refused(str(error)) from error


async def check_host(host: ApiServer) -> Version:
    """Refuse a host that is too old, or on which batch Jobs can't be kept from its own controller.

    Raises:
        Refused: with the reason and what to do.
        ApiError: the host refused.
    """
    found = await version(host)
    managed = await _job_managed_by(host)
    if managed is False:
        raise Refused(
            f"the host (Kubernetes {found}) drops spec.managedBy of batch Jobs: its own controller would run them,"
            " beside Atoll. The feature gate JobManagedBy is off, as by default before Kubernetes 1.32: turn it on"
            " (--feature-gates=JobManagedBy=true) on kube-apiserver and kube-controller-manager, and use Kubernetes"
            f" {_text(OLDEST)} or newer"
        )
    _refuse_old(found, "the host")
    return found


async def check_member(member: ApiServer, name: str) -> Version:
    """Refuse a member that is too old.

    Raises:
        Refused: with the reason and what to do.
        ApiError: the member refused.
    """
    found = await version(member)
    _refuse_old(found, f"member {name}")
    return found


def said(found: Version) -> str:
    """A line for whoever installs."""
    tested = "" if found.number <= NEWEST else f"; Atoll is tested with {_text(OLDEST)} to {_text(NEWEST)}"
    return f"Kubernetes {found}{tested}"


def _refuse_old(found: Version, what: str) -> None:
    if found.number < OLDEST:
        raise Refused(
            f"{what} is Kubernetes {found}, and {_text(OLDEST)} is the oldest that Atoll supports: upgrade it first"
        )


def _text(number: tuple[int, int]) -> str:
    return f"{number[0]}.{number[1]}"


async def _job_managed_by(host: ApiServer) -> bool | None:
    """Whether the API server keeps the field; None where it let us try nothing. Nothing is stored."""
    container = {"name": "c", "image": "none"}
    job = {
        "apiVersion": BATCH_JOBS.api_version,
        "kind": BATCH_JOBS.kind,
        "metadata": {"generateName": "atoll-probe-", "namespace": _PROBED_IN},
        "spec": {
            "suspend": True,
            "managedBy": keys.CONTROLLER,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }
    path = BATCH_JOBS.path(_PROBED_IN)
    try:
        answer = await host.request("POST", path, body=orjson.dumps(job), params={"dryRun": "All"})
    except (errors.Forbidden, errors.Invalid, errors.NotFound, errors.Busy, errors.Unexpected):
        # Another's webhook or policy: the version has to do.
        return None
    return bool(orjson.loads(answer)["spec"].get("managedBy") == keys.CONTROLLER)
