"""The TrainJob of Kubeflow Trainer: a training runtime of the host with what the TrainJob says of it.

A TrainJob has no pods of its own: they are in the TrainingRuntime or ClusterTrainingRuntime that it names. Admission
writes that one's spec on it. Changes by the TrainJob (nodes, resources, overrides of pods) are carried out in it here,
so that the charge equals the running pods; the member gets the outcome as a TrainingRuntime of the TrainJob's own name.
On the host the TrainJob stays suspended: its operator accepts no foreign name in `managedBy`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from atoll.kinds import job_set
from atoll.kinds.interface import Json, Outcome, Referred, Words
from atoll.kinds.templated import Component, Path, Reading, Templated, condition_of, number, value_at
from atoll.model import keys
from atoll.model.apiresource import ApiResource
from atoll.model.placer import Placer

GROUP: Final = "trainer.kubeflow.org"
TRAINING_RUNTIMES: Final = ApiResource(GROUP, "v1alpha1", "trainingruntimes", "TrainingRuntime")
CLUSTER_TRAINING_RUNTIMES: Final = ApiResource(
    GROUP, "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)

_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
"""Label of a replicated Job: its purpose."""
_TRAINER = "trainer"
_INITIALIZERS = {"dataset-initializer": "dataset", "model-initializer": "model"}
"""Step and container -> the field of the TrainJob's initializer."""
_NODE = "node"
"""Container of a step `trainer`; in MPI runtimes also the replicated Job of the nodes."""
_RUNTIME: Path = ("spec", "runtime")
_JOB_SET: Path = (*_RUNTIME, "template", "spec")
_CHANGES = ("podSpecOverrides", "podTemplateOverrides", "runtimePatches")
"""Fields of a TrainJob that change pod templates, in the releases of its operator."""
_KEYED = {
    **dict.fromkeys(("containers", "initContainers", "volumes", "imagePullSecrets", "schedulingGates", "env"), "name"),
    "volumeMounts": "mountPath",
}
"""Lists of a pod that are merged by a key; others are replaced."""


class _Entire(dict[str, Any]):
    """A TrainJob with its runtime in it; of nothing that a user wrote."""


def _runtime_of(obj: Mapping[str, Any]) -> tuple[ApiResource, str] | None:
    said = value_at(obj, ("spec", "runtimeRef"))
    if not isinstance(said, Mapping) or not isinstance(name := said.get("name"), str) or not name:
        return None
    if (said.get("apiGroup") or GROUP) != GROUP:
        return None
    kind = said.get("kind") or CLUSTER_TRAINING_RUNTIMES.kind
    return next(((each, name) for each in (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES) if each.kind == kind), None)


def _written(runtime: Mapping[str, Any]) -> str:
    return orjson.dumps(runtime.get("spec") or {}, option=orjson.OPT_SORT_KEYS).decode()


def _entire(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """The TrainJob with its runtime, as it changes that, in field `runtime`.

    Raises:
        ValueError: no runtime is written on it.
    """
    if isinstance(obj, _Entire):
        return obj
    text = value_at(obj, ("metadata", "annotations", keys.RUNTIME))
    if not text:
        raise ValueError(f"annotation {keys.RUNTIME}: is missing, so its pods are unknown; create it again")
    runtime, spec = orjson.loads(text), obj["spec"]
    trainer = spec.get("trainer") or {}
    policy = runtime.get("mlPolicy") or {}
    nodes = trainer.get("numNodes")
    nodes = policy.get("numNodes") if nodes is None else nodes
    nodes = 1 if nodes is None else nodes
    if type(nodes) is not int or nodes < 1:
        raise ValueError(f"spec.trainer.numNodes: {nodes!r} is no whole number of 1 or more")
    for job in value_at(runtime, ("template", "spec", "replicatedJobs")) or ():
        _change(job, spec, trainer, nodes, policy.get("mpi"))
    for metadata in _of_job_set(spec):
        runtime["template"]["metadata"] = _merged(runtime["template"].get("metadata") or {}, metadata)
    if policy:
        # Of MPI's it is the number of launchers.
        runtime["mlPolicy"] = {**policy, "numNodes": 1 if policy.get("mpi") else nodes}
    # All of it is one gang already.
    runtime.pop("podGroupPolicy", None)
    return _Entire({**obj, "spec": {**spec, "trainer": {**trainer, "numNodes": nodes}, "runtime": runtime}})


def _change(job: Json, spec: Json, trainer: Json, nodes: int, mpi: Json | None) -> None:
    """A replicated Job as the TrainJob wants it, in place."""
    step = value_at(job, ("template", "metadata", "labels", _STEP))
    of_nodes = job["name"] == _NODE if mpi is not None else step == _TRAINER
    made: Json = job.setdefault("template", {}).setdefault("spec", {})
    if of_nodes:
        pods = max(nodes - 1, 1) if mpi is not None and mpi.get("runLauncherAsNode") else nodes
        made |= {"parallelism": pods, "completions": pods}
    if of_nodes or step in (_TRAINER, *_INITIALIZERS):
        job["replicas"] = 1
    for metadata in _of_job(spec, str(job["name"])):
        job["template"]["metadata"] = _merged(job["template"].get("metadata") or {}, metadata)
    template: Json = made.setdefault("template", {})
    for metadata, pod in _changes(spec, str(job["name"])):
        template["metadata"] = _merged(template.get("metadata") or {}, metadata)
        template["spec"] = _merged(template.get("spec") or {}, pod)
    for container in value_at(template, ("spec", "containers")) or ():
        if container.get("name") == _NODE and (of_nodes or step == _TRAINER):
            _fill(container, trainer)
            if resources := trainer.get("resourcesPerNode"):
                container["resources"] = resources
        field = _INITIALIZERS.get(str(step))
        if field and container.get("name") == step and (said := value_at(spec, ("initializer", field))):
            _fill(container, said)


def _fill(container: Json, said: Json) -> None:
    """What the TrainJob says of a container that refers to Secrets and ConfigMaps; its operator fills in the rest."""
    container |= _merged({"env": container.get("env") or []}, {"env": said.get("env") or []})
    if secret := said.get("secretRef"):
        sources = [each for each in container.get("envFrom") or () if each.get("secretRef") != secret]
        container["envFrom"] = [*sources, {"secretRef": secret}]


def _changes(spec: Json, job: str) -> Iterator[tuple[Json, Json]]:
    """(metadata, pod spec) to merge into the template of a replicated Job, in order."""
    for each in spec.get("podSpecOverrides") or ():
        if _targets(each, job):
            yield {}, {name: value for name, value in each.items() if name != "targetJobs"}
    for each in spec.get("podTemplateOverrides") or ():
        if _targets(each, job):
            yield each.get("metadata") or {}, each.get("spec") or {}
    for patch in spec.get("runtimePatches") or ():
        path = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        for each in value_at(patch, path) or ():
            template = value_at(each, ("template", "spec", "template")) or {}
            if each.get("name") == job:
                yield template.get("metadata") or {}, template.get("spec") or {}


def _of_job(spec: Json, job: str) -> Iterator[Json]:
    """Labels and annotations to merge into a replicated Job's template of Jobs."""
    for patch in spec.get("runtimePatches") or ():
        for each in value_at(patch, ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")) or ():
            if each.get("name") == job and (metadata := value_at(each, ("template", "metadata"))):
                yield metadata


def _targets(override: Json, job: str) -> bool:
    return any(each.get("name") == job for each in override.get("targetJobs") or ())


def _of_job_set(spec: Json) -> Iterator[Json]:
    """Labels and annotations to merge into the JobSet's."""
    for patch in spec.get("runtimePatches") or ():
        if metadata := value_at(patch, ("trainingRuntimeSpec", "template", "metadata")):
            yield metadata


def _merged(old: Any, new: Any, field: str = "") -> Any:
    """As API servers merge a strategic patch of a pod, without its directives."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{name: _merged(old.get(name), value, name) for name, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list) and (key := _KEYED.get(field)):
        named = {each.get(key): each for each in old}
        return list((named | {each.get(key): _merged(named.get(each.get(key)), each) for each in new}).values())
    return new


def _folded(made: Json) -> None:
    """The TrainJob names the runtime that goes along, which has all that it changed; only the operator's part stays."""
    spec = made["spec"]
    runtime = spec.pop("runtime", None)
    if runtime is None:
        return
    for name in _CHANGES:
        spec.pop(name, None)
    spec["runtimeRef"] = {"apiGroup": GROUP, "kind": TRAINING_RUNTIMES.kind, "name": made["metadata"]["name"]}
    made["metadata"].setdefault("annotations", {})[keys.RUNTIME] = _written({"spec": runtime})


def _brought(manifest: Mapping[str, Any]) -> Sequence[Json]:
    metadata = manifest["metadata"]
    text = metadata["annotations"][keys.RUNTIME]
    version = f"{metadata['annotations'].get(keys.EPOCH, 0)}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    about = {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "labels": {keys.MANAGED: "true", keys.MADE: "true"},
        "annotations": {keys.SOURCE_VERSION: version},
    }
    kind = {"apiVersion": TRAINING_RUNTIMES.api_version, "kind": TRAINING_RUNTIMES.kind}
    return [{**kind, "metadata": about, "spec": orjson.loads(text)}]


def _components(obj: Mapping[str, Any]) -> list[Component]:
    return job_set.components_of(obj, _JOB_SET)


def _read(status: Mapping[str, Any]) -> Reading:
    ended = condition_of(status, "Complete", "Failed")
    jobs = status.get("jobsStatus") or ()
    ready, succeeded, failed = (sum(number(job, name) for job in jobs) for name in ("ready", "succeeded", "failed"))
    suspended = condition_of(status, "Suspended") is not None
    outcome = None
    if ended is not None:
        outcome = Outcome.SUCCEEDED if ended["type"] == "Complete" else Outcome.FAILED
    return Reading(
        state=ended["type"] if ended else "Suspended" if suspended else "",
        running=ready,
        succeeded=succeeded,
        failed=failed,
        outcome=outcome,
        ended=ended.get("lastTransitionTime") if ended else None,
        suspended=suspended and outcome is None,
        known=bool(jobs or status.get("conditions")),
        # They are of Jobs.
        pods=False,
    )


def _problems(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if value_at(obj, (*_RUNTIME, "mlPolicy", "torch", "elasticPolicy")):
        text = "its runtime has mlPolicy.torch.elasticPolicy, which makes pods that no queue is charged for: name one"
        yield "spec.runtimeRef", f"{text} with numNodes"
    jobs = value_at(obj, (*_JOB_SET, "replicatedJobs")) or ()
    names = {str(each.get("name")) for each in jobs}
    for field in _CHANGES[:2]:
        for index, each in enumerate(value_at(obj, ("spec", field)) or ()):
            for target in each.get("targetJobs") or ():
                if target.get("name") not in names:
                    text = f"{target.get('name')!r} is no job of its runtime; it has {', '.join(sorted(names))}"
                    yield f"spec.{field}[{index}].targetJobs", text


def _warnings(obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    text = value_at(obj, ("metadata", "annotations", keys.RUNTIME))
    if isinstance(text, str) and orjson.loads(text).get("podGroupPolicy"):
        yield "spec.runtimeRef", "podGroupPolicy of its runtime has no effect: all of its pods are one gang"


KIND = Templated(
    resource=ApiResource(GROUP, "v1alpha1", "trainjobs", "TrainJob"),
    words=Words(
        title="TrainJob",
        names=("trainjob", "trainjobs"),
        held="`spec.suspend`, which stays set",
        prefix="trainjob/",
        needs="Kubeflow Trainer",
    ),
    route="trainjobs",
    pods="the jobs of the training runtime that it names, as it changes them",
    order="`dependsOn` of the runtime, such as initializers: the member waits for the first",
    components=_components,
    read=_read,
    over=lambda obj, status: job_set.over_of(obj, status.get("jobsStatus"), _JOB_SET),
    released_when=job_set.RELEASED,
    pods_label="jobset.sigs.k8s.io/jobset-name",
    switch=("spec", "suspend"),
    starts=lambda obj: job_set.starts_of(obj, _JOB_SET),
    problems=_problems,
    warnings=_warnings,
    referred=Referred(
        resources=(CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES),
        field="spec.runtimeRef",
        of=_runtime_of,
        annotation=keys.RUNTIME,
        written=_written,
        entire=_entire,
        brings=(TRAINING_RUNTIMES,),
        brought=_brought,
    ),
    folded=_folded,
    host_only=(("spec", "managedBy"),),
    placers=(Placer.ATOLL,),
)
