"""The pods of a workload, in all its members, as reported to the host: counts and nodes, not the pods themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from atoll.model.plurals import counted
from atoll.view.tables import table

if TYPE_CHECKING:
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

HEADERS = ("CLUSTER", "NODE", "PODS", "DOMAIN")
EACH = ("CLUSTER", "POD", "NODE", "DOMAIN", "STATE", "RESTARTS", "REASON")
_STATES = ("pending", "running", "succeeded", "failed")


def describe(
    resource: ApiResource,
    workload: Json,
    binding: Json | None,
    silent: Mapping[str, str] = {},
    unseen: Sequence[str] = (),
) -> Json:
    """Where the pods of a workload are.

    Args:
        resource: of the workload.
        workload: the object.
        binding: its binding, if it has one that may be seen.
        silent: member that is not ready -> since when (RFC 3339).
        unseen: parts that its user may not see, in words.
    """
    meta = workload["metadata"]
    data: Json = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "namespace": meta.get("namespace", ""),
        "name": meta["name"],
        "pods": _counts(resource, workload),
        "clusters": [],
    }
    if (indices := _indices(resource, workload)) is not None:
        data["indices"] = indices
    spec, status = (binding or {}).get("spec") or {}, (binding or {}).get("status") or {}
    reports = {item.get("clusterName"): item for item in status.get("aggregatedStatus") or ()}
    sent = {item["name"]: item.get("replicas") for item in spec.get("clusters") or ()}
    for name in sorted({*sent, *reports}):
        said = (reports.get(name) or {}).get("status") or {}
        place = said.get("placement") or {}
        cluster: Json = {
            "cluster": name,
            "pods": _counts(resource, {"status": said}),
            "nodes": place.get("nodes") or {},
        }
        if sent.get(name) is not None:
            cluster["replicas"] = sent[name]
        if name in silent:
            cluster["notReadySince"] = silent[name]
        if name not in sent:
            cluster["leaving"] = True
        facts = ("domain", "tier", "waiting", "starting", "moves", "leaving")
        cluster |= {key: place[key] for key in facts if place.get(key)}
        data["clusters"].append(cluster)
    if unseen:
        data["unseen"] = list(unseen)
    return data


def _counts(resource: ApiResource, workload: Json) -> dict[str, int]:
    """Pods by state; none for objects that are no workload of Atoll's."""
    from atoll.kinds import BY_RESOURCE

    kind = BY_RESOURCE.get(resource)
    if kind is None:
        return {}
    _, *counts = kind.standing(workload)
    return {state: count for state, count in zip(_STATES, counts, strict=True) if count}


def _indices(resource: ApiResource, workload: Json) -> int | None:
    """How many indices a JobArray has, which its counts are about; None for other kinds."""
    from atoll.kinds import job_array
    from atoll.model.array_states import count_of

    if resource != job_array.KIND.resource:
        return None
    try:
        return count_of(job_array.indices_of(workload))
    except ValueError:
        return None


def each_rows(pods: Iterable[Json]) -> list[list[object]]:
    """A row for each pod, as its member tells it."""
    return [[str(pod.get(name.lower(), "")).replace("\n", " ") for name in EACH] for pod in pods]


def text(data: Json, *, no_headers: bool = False) -> str:
    """The pods as a person reads them: a row per node, then a line per member.

    Args:
        data: as `describe` gives it.
        no_headers: only the rows.
    """
    rows = [
        [each["cluster"], node, count, each.get("domain", "")]
        for each in data["clusters"]
        for node, count in sorted(each["nodes"].items())
    ]
    lines = [table(HEADERS, rows, no_headers=no_headers)] if rows else []
    if no_headers:
        return "\n".join(lines)
    if not data["clusters"] and "unseen" not in data:
        lines.append("no member has pods of it" + (f"; in all: {_words(data['pods'])}" if data["pods"] else ""))
    if "unseen" in data:
        lines.append(f"in all: {_words(data['pods'])}")
    else:
        lines += [""] if rows else []
        lines += [_member(each, data.get("indices")) for each in data["clusters"]]
    lines += [f"not shown: {each}" for each in data.get("unseen", ())]
    if rows:
        lines.append(
            "by name: atollctl job pods --each, job logs and job events; with rights in the member:"
            f" kubectl get pods -n {data['namespace']} -l {_label(data)}"
        )
    return "\n".join(lines)


def _member(cluster: Json, indices: int | None) -> str:
    line, wanted = f"{cluster['cluster']}: {_words(cluster['pods'])}", cluster.get("replicas")
    if indices is not None:
        line += f" of {indices} {'index' if indices == 1 else 'indices'}"
    if wanted is not None and (indices is not None or sum(cluster["pods"].values()) > wanted):
        # Pods that have ended make way for others.
        line += f"; {counted(wanted, 'pod')} at once"
    elif wanted is not None:
        line += f" of {wanted}"
    if since := cluster.get("notReadySince"):
        line += f"; not ready since {since}, figures are of then"
    for key in ("waiting", "starting", "moves"):
        if key in cluster:
            line += f"; {cluster[key]}"
    if leaving := cluster.get("leaving"):
        line += "; they are being evicted" + (f": {leaving}" if isinstance(leaving, str) else "")
    return line


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no pods yet"


def _label(data: Json) -> str:
    from atoll.kinds import kind_of

    kind = kind_of(data)
    assert kind is not None, "others have no pods here"
    return kind.pods_selector(data["namespace"], data["name"])
