"""Failed indices of a JobArray once more: a new array with the same template, because an end is never taken back."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

from atoll.cli.submission import BadSubmission
from atoll.kinds.job_array import indices_of
from atoll.model import keys
from atoll.model.apiresource import JOB_ARRAYS
from atoll.model.array_states import position_of, ranges, runs_of, short, written
from atoll.view.arrays import failed_indices

Json = dict[str, Any]

_DROPPED: Final = (
    keys.LAST_APPLIED, keys.SUBMITTED_BY, keys.HOLD, keys.ABORTED, keys.RETRY, keys.RESCHEDULE,
    # Tools that own the first array would remove the second.
    "app.kubernetes.io/", "argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/",
    "meta.helm.sh/",
)  # fmt: skip
"""Starts of labels and annotations that belong to the first array alone."""


def again(array: Mapping[str, Any], wanted: str = "") -> Json:
    """The array that runs failed indices of another one.

    Args:
        array: as the host has it.
        wanted: indices such as `3,17-20`; empty for all that failed.

    Raises:
        BadSubmission: none failed, one of the wanted ones did not, or they are too many ranges for one array.
    """
    meta, failed = array["metadata"], failed_indices(array)
    name = f"jobarray/{meta['name']}"
    chosen = _chosen(name, failed, wanted) if wanted else failed
    if not chosen:
        raise BadSubmission(f"{name} has no failed index")
    indices = ",".join(map(written, ranges(chosen)))
    try:
        runs_of(indices)
    except ValueError as error:
        raise BadSubmission(f"{name}: {error}; name some of them", indices="") from error
    metadata = {
        "name": f"{meta['name'][:40].rstrip('-.')}-{secrets.token_hex(3)}",
        "namespace": meta["namespace"],
        "labels": _kept(meta.get("labels")),
        "annotations": {**_kept(meta.get("annotations")), keys.ARRAY_RETRY_OF: meta["name"]},
    }
    spec = {**array["spec"], "indices": indices}
    if arguments := spec.get("arguments"):
        runs = indices_of(array)
        spec["arguments"] = [arguments[position_of(runs, index) or 0] for index in chosen]
    return {"apiVersion": JOB_ARRAYS.api_version, "kind": JOB_ARRAYS.kind, "metadata": metadata, "spec": spec}


def _chosen(name: str, failed: list[int], wanted: str) -> list[int]:
    try:
        asked = runs_of(wanted)
    except ValueError as error:
        raise BadSubmission(str(error), indices=wanted) from error
    there = set(failed)
    others = [index for run in asked for index in run if index not in there]
    if others:
        raise BadSubmission(f"{name}: {short(others)} did not fail; {short(failed) or 'none'} did")
    return [index for run in asked for index in run]


def _kept(marks: Mapping[str, str] | None) -> dict[str, str]:
    return {name: value for name, value in (marks or {}).items() if not name.startswith(_DROPPED)}
