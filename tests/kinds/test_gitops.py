"""A file that is applied again changes nothing, though admission and control have written on its object.

Custom resources are compared by JSON merge patch, in which a list counts as a whole; that is stricter than the merge by
keys that `kubectl apply` and Argo CD use for kinds of Kubernetes itself.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.admission import jsonpatch
from atoll.admission.rules import Change
from atoll.kinds import KINDS, Kind, volcano_job
from atoll.kinds.batch_job import KIND as BATCH_JOB
from atoll.model import keys
from tests.kinds.samples import BY_TITLE, SAMPLES, new, pod

Json = dict[str, Any]
PAGE = Path(__file__).parents[2] / "docs/gitops.md"


def three_way(last: Json, wanted: Json, live: Json) -> Json:
    """The merge patch of `kubectl apply` and Argo CD: differences of the file from the object, and removals since it
    was applied last.
    """
    patch: Json = {name: None for name in last if name not in wanted and name in live}
    for name, value in wanted.items():
        if isinstance(value, dict) and isinstance(live.get(name), dict):
            before = last.get(name)
            if below := three_way(before if isinstance(before, dict) else {}, value, live[name]):
                patch[name] = below
        elif name not in live or live[name] != value:
            patch[name] = value
    return patch


def without(obj: Json, *pointers: str) -> Json:
    """The object without the fields that `ignoreDifferences` of an Application names by `jsonPointers`."""
    obj = copy.deepcopy(obj)
    for pointer in pointers:
        *above, last = (step.replace("~1", "/").replace("~0", "~") for step in pointer.removeprefix("/").split("/"))
        holder = obj
        for step in above:
            holder = holder.get(step) or {}
        holder.pop(last, None)
    return obj


def volcano(**spec: Any) -> Json:
    tasks = [
        {"name": "worker", "template": pod(hostNetwork=True)},
        {"replicas": 2, "name": "master", "template": pod()},
        {"template": pod(), "partitionPolicy": {"totalPartitions": 2, "partitionSize": 2, "networkTopology": {}}},
    ]
    head = {"name": "w", "namespace": "team"}
    about = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": head}
    return {**about, "spec": {"tasks": tasks, "plugins": {"mpi": []}, **spec}}


def batch(**spec: Any) -> Json:
    head = {"name": "w", "namespace": "team"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": head, "spec": {"template": pod(), **spec}}


def file_of(kind: Kind) -> Json:
    """A manifest as its user keeps it."""
    if kind is volcano_job.KIND:
        return volcano()
    if kind is BATCH_JOB:
        return batch(parallelism=2, completions=2)
    obj = new(kind.words.title)
    obj["metadata"] = {"name": "w", "namespace": "team", "labels": {"app": "w"}}
    return obj


def admitted(kind: Kind, obj: Json) -> Json:
    sample = SAMPLES.get(kind.words.title)
    change = Change(new=obj, namespace={keys.QUEUE_ANNOTATION: "team-a"}, referred=sample.referred if sample else None)
    return jsonpatch.applied(obj, kind.admission().defaults(change))


def dispatched(kind: Kind, obj: Json) -> Json:
    """As it is on the host once it was dispatched."""
    return jsonpatch.applied(obj, list(kind.suspension(obj, suspended=False)))


WORKLOADS = [kind for kind in KINDS if kind.assembly is None]
each_kind = pytest.mark.parametrize("kind", WORKLOADS, ids=lambda kind: kind.words.title)


@each_kind
def test_a_file_that_is_applied_again_changes_nothing(kind: Kind) -> None:
    obj = file_of(kind)
    live = admitted(kind, copy.deepcopy(obj))
    assert three_way(obj, obj, live) == {}
    live = dispatched(kind, live)
    assert three_way(obj, obj, live) == {}


SWITCHED = [kind for kind in WORKLOADS if kind.suspension({"spec": {"suspend": True}}, suspended=False)]
"""Kinds whose switch follows the dispatch."""


@pytest.mark.parametrize("kind", SWITCHED, ids=lambda kind: kind.words.title)
def test_a_file_that_sets_the_switch_differs_in_that_alone(kind: Kind) -> None:
    obj = file_of(kind)
    obj["spec"]["suspend"] = True
    obj["metadata"]["labels"] = {keys.KUEUE_QUEUE_LABEL: "team-a"}
    live = dispatched(kind, admitted(kind, copy.deepcopy(obj)))
    assert three_way(obj, obj, live) == {"spec": {"suspend": True}}
    ignored = "/spec/suspend"
    assert three_way(without(obj, ignored), without(obj, ignored), without(live, ignored)) == {}


def test_the_switch_of_other_kinds_is_on_the_host_what_a_file_for_kueue_says() -> None:
    for title, kind in BY_TITLE.items():
        if not kind.switch or kind in SWITCHED:
            continue
        obj = file_of(kind)
        holder = obj["spec"]
        for step in kind.switch[1:-1]:
            holder = holder.setdefault(step, {})
        holder[kind.switch[-1]] = kind.switched_off
        obj["metadata"]["labels"] = {keys.KUEUE_QUEUE_LABEL: "team-a"}
        live = dispatched(kind, admitted(kind, copy.deepcopy(obj)))
        assert three_way(obj, obj, live) == {}, title


@pytest.mark.parametrize("kind", SWITCHED, ids=lambda kind: kind.words.title)
def test_a_file_for_kueue_that_is_forced_on_a_workload_does_not_stop_it(kind: Kind) -> None:
    obj = file_of(kind)
    obj["spec"]["suspend"] = True
    obj["metadata"]["labels"] = {keys.KUEUE_QUEUE_LABEL: "team-a"}
    live = dispatched(kind, admitted(kind, copy.deepcopy(obj)))
    forced = copy.deepcopy(live)
    forced["spec"]["suspend"] = True
    defaults = kind.admission().defaults(Change(new=forced, old=live, namespace={}))
    assert jsonpatch.applied(forced, defaults) == live
    del forced["metadata"]["labels"][keys.KUEUE_QUEUE_LABEL]
    held = jsonpatch.applied(forced, kind.admission().defaults(Change(new=forced, old=live, namespace={})))
    assert held["metadata"]["annotations"][keys.HOLD] == "true"


def test_the_page_names_each_kind_whose_switch_follows_the_dispatch() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    application = yaml.safe_load(block)["spec"]
    said = {(each["group"], each["kind"]): each["jsonPointers"] for each in application["ignoreDifferences"]}
    assert said == {(kind.resource.group, kind.resource.kind): ["/spec/suspend"] for kind in SWITCHED}
    assert application["syncPolicy"]["syncOptions"] == ["RespectIgnoreDifferences=true"]
