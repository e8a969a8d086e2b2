"""What a Volcano Job gets by default, and every reason for which one is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.admission import jsonpatch
from atoll.kinds import Part
from atoll.kinds.volcano_job import KIND
from atoll.kinds.volcano_job import admission as jobs
from atoll.kinds.volcano_job.tasks import tasks_of
from tests.webhook.builders import (
    Json,
    changed,
    defaulted,
    make_container,
    make_job,
    make_task,
    with_container,
)

CLAIM = {"volumeClaimName": "data"}


def pod(**spec: Any) -> Json:
    return {"spec": {"containers": [make_container()], **spec}}


# -- defaults ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "queue"),
    [
        pytest.param(make_job(queue="a"), "a", id="the queue that the spec names"),
        pytest.param(
            make_job(metadata={"labels": {"kueue.x-k8s.io/queue-name": "b", "volcano.sh/queue-name": "c"}}),
            "b",
            id="Kueue's label before Volcano's",
        ),
        pytest.param(
            make_job(
                metadata={
                    "labels": {"volcano.sh/queue-name": "c"},
                    "annotations": {"scheduling.volcano.sh/queue-name": "d"},
                }
            ),
            "c",
            id="Volcano's label before the annotation",
        ),
        pytest.param(
            make_job(
                make_task(template={"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "e"}}}),
                metadata={"annotations": {"scheduling.volcano.sh/queue-name": "d"}},
            ),
            "d",
            id="the Job's annotation before the pod template's",
        ),
        pytest.param(
            make_job(make_task(template={"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "e"}}})),
            "e",
            id="the pod template's annotation before the namespace's",
        ),
        pytest.param(make_job(), "of-the-namespace", id="the namespace's annotation"),
    ],
)
def test_the_queue_is_the_first_that_is_named(job: Json, queue: str) -> None:
    namespace = {"scheduling.volcano.sh/queue-name": "of-the-namespace"}
    patch = jobs.default_job(job, namespace)
    assert jsonpatch.applied(job, patch)["spec"]["queue"] == queue


def test_without_any_hint_the_queue_is_default() -> None:
    assert defaulted(make_job())["spec"]["queue"] == "default"


def test_a_bare_job_gets_the_defaults_of_the_whole_and_keeps_its_tasks_as_they_were_written() -> None:
    tasks: list[Json] = [{"template": pod()}, {"replicas": 3, "template": pod(hostNetwork=True)}]
    spec = defaulted(make_job(*tasks, plugins={"mpi": []}))["spec"]
    whole = {"queue": "default", "schedulerName": "atoll", "maxRetry": 3, "minAvailable": 4}
    assert spec == {**whole, "plugins": {"mpi": [], "svc": [], "ssh": []}, "tasks": tasks}


def test_whoever_reads_tasks_and_every_member_gets_them_with_their_defaults() -> None:
    job = defaulted(make_job({"template": pod()}, {"replicas": 3, "template": pod()}))
    filled = {"minAvailable": 1, "maxRetry": 3, "template": pod()}
    assert tasks_of(job["spec"]) == [
        {**filled, "name": "default0", "replicas": 1},
        {**filled, "name": "default1", "replicas": 3, "minAvailable": 3},
    ]
    job["metadata"] |= {"name": "j", "namespace": "n"}
    gang = KIND.gang(job, priority=0)
    assert [(task.name, task.replicas, task.min_available) for task in gang.tasks] == [
        ("default0", 1, 1), ("default1", 3, 3),
    ]  # fmt: skip
    made = KIND.rewrite(job, Part("east", {"default0": 1, "default1": 3}, 4))
    assert [(each["name"], each["replicas"], each["minAvailable"], each["maxRetry"]) for each in made["spec"]["tasks"]] == [
        ("default0", 1, 1, 3), ("default1", 3, 3, 3),
    ]  # fmt: skip


def test_what_the_user_set_stays() -> None:
    job = make_job(
        make_task(replicas=4, minAvailable=0, maxRetry=-1),
        make_task("b", replicas=4),
        queue="q",
        schedulerName="volcano",
        maxRetry=0,
        minAvailable=3,
    )
    spec = defaulted(job)["spec"]
    assert {name: spec[name] for name in job["spec"] if name != "tasks"} == {
        "queue": "q",
        "schedulerName": "volcano",
        "maxRetry": 0,
        "minAvailable": 3,
    }
    assert (spec["tasks"][0]["minAvailable"], spec["tasks"][0]["maxRetry"]) == (0, -1)


def test_the_minimum_of_a_partitioned_task_is_whole_partitions() -> None:
    policy = {"totalPartitions": 4, "partitionSize": 3, "minPartitions": 2}
    spec = defaulted(make_job(make_task(replicas=12, partitionPolicy=policy)))["spec"]
    assert (tasks_of(spec)[0]["minAvailable"], spec["minAvailable"]) == (6, 6)


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        pytest.param({"hostNetwork": True}, "ClusterFirstWithHostNet", id="host network"),
        pytest.param({"hostNetwork": True, "dnsPolicy": "None"}, "None", id="host network, own choice"),
        pytest.param({}, None, id="pod network"),
    ],
)
def test_dns_policy(spec: Json, policy: str | None) -> None:
    job = defaulted(make_job(make_task(template=pod(**spec))))
    assert tasks_of(job["spec"])[0]["template"]["spec"].get("dnsPolicy") == policy


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        pytest.param({}, {"name": ["worker"], "iteration": "all"}, id="by itself"),
        pytest.param({"dependsOn": {}}, {}, id="not where the task says otherwise"),
        pytest.param({"name": "launcher"}, None, id="not where there is no such task"),
    ],
)
def test_the_master_of_mpi_waits_for_its_workers(master: Json, expected: Json | None) -> None:
    job = make_job(make_task("worker"), make_task("master") | master, plugins={"mpi": []})
    assert tasks_of(defaulted(job)["spec"])[1].get("dependsOn") == expected
    job["metadata"] |= {"name": "j", "namespace": "n"}
    assert KIND.gang(job, priority=0).whole is bool(expected)


def test_distributed_plugins_bring_the_ones_that_they_need() -> None:
    assert defaulted(make_job(plugins={"pytorch": []}))["spec"]["plugins"] == {
        "pytorch": [],
        "svc": [],
    }
    assert defaulted(make_job(plugins={"mpi": []}))["spec"]["plugins"].keys() == {
        "mpi",
        "svc",
        "ssh",
    }


# -- rules ---------------------------------------------------------------------------------------

LONG = "x" * 60


def policies(*items: Json) -> Json:
    return make_job(policies=list(items))


def volumes(*items: Json) -> Json:
    return make_job(volumes=list(items))


def partitioned(replicas: int, minimum: int | None = None, **policy: Any) -> Json:
    extra: Json = {} if minimum is None else {"minAvailable": minimum}
    return make_job(make_task(replicas=replicas, partitionPolicy=policy, **extra))


def depending(**needs: list[str]) -> Json:
    return make_job(*(make_task(name, dependsOn={"name": on}) for name, on in needs.items()))


def resources(requests: Json | None = None, limits: Json | None = None) -> Json:
    return with_container(resources={"requests": requests or {}, "limits": limits or {}})


def pinned(policy: str, **given: Json) -> Json:
    job = with_container(resources=given)
    job["spec"]["tasks"][0]["topologyPolicy"] = policy
    return job


RESTART = {"action": "RestartJob"}
CONTAINER = "spec.tasks[0].template.spec.containers[0]"

TEMPLATE = "spec.tasks[0].template"


def affine(*terms: Any) -> Json:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return make_job(make_task(template=pod(affinity={"nodeAffinity": required})))


TERMS = f"{TEMPLATE}.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"

REFUSED = {
    "a node selector with a number": (
        make_job(make_task(template=pod(nodeSelector={"zone": 1}))),
        f"{TEMPLATE}.spec.nodeSelector[...]",
    ),
    "a text for tolerations": (make_job(make_task(template=pod(tolerations="all"))), f"{TEMPLATE}.spec.tolerations"),
    "a list for the affinity": (make_job(make_task(template=pod(affinity=[]))), f"{TEMPLATE}.spec.affinity"),
    "a text for match expressions": (affine({"matchExpressions": "a"}), f"{TERMS}[0].matchExpressions"),
    "a number for a value of an expression": (
        affine({"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]}),
        f"{TERMS}[0].matchExpressions[0].values[0]",
    ),
    "an expression without a key": (
        affine({"matchExpressions": [{"operator": "Exists"}]}),
        f"{TERMS}[0].matchExpressions[0]",
    ),
    "an operator that there is not": (
        affine({"matchFields": [{"key": "metadata.name", "operator": "Is", "values": ["n"]}]}),
        f"{TERMS}[0].matchFields[0].operator",
    ),
    "a list for a service account": (
        make_job(make_task(template=pod(serviceAccountName=["a"]))),
        f"{TEMPLATE}.spec.serviceAccountName",
    ),
    "a label of a pod that is a number": (
        make_job(make_task(template={**pod(), "metadata": {"labels": {"a": 1}}})),
        f"{TEMPLATE}.metadata.labels[...]",
    ),
    "an overhead that is no quantity": (
        make_job(make_task(template=pod(overhead={"cpu": "much"}))),
        f"{TEMPLATE}.spec.overhead.cpu",
    ),
    "resources of a pod below zero": (
        make_job(make_task(template=pod(resources={"requests": {"cpu": "-1"}}))),
        f"{TEMPLATE}.spec.resources.requests.cpu",
    ),
    "a job without tasks": ({"metadata": {"name": "j"}, "spec": {}}, "spec.tasks"),
    "minAvailable above the sum of replicas": (make_job(minAvailable=3), "spec.minAvailable"),
    "a negative minAvailable": (make_job(minAvailable=-1), "spec.minAvailable"),
    "a negative maxRetry": (make_job(maxRetry=-1), "spec.maxRetry"),
    "a negative time to live": (
        make_job(ttlSecondsAfterFinished=-1),
        "spec.ttlSecondsAfterFinished",
    ),
    "a queue name in capitals": (make_job(queue="Team"), "spec.queue"),
    "a task minimum above its replicas": (
        make_job(make_task(minAvailable=3), minAvailable=1),
        "spec.tasks[0].minAvailable",
    ),
    "more pods than a member's agent makes": (
        make_job(make_task(replicas=60_000), make_task("b", replicas=40_001), minAvailable=1),
        "spec.tasks",
    ),
    "negative replicas": (make_job(make_task(replicas=-1)), "spec.tasks[0].replicas"),
    "a task retry below -1": (make_job(make_task(maxRetry=-2)), "spec.tasks[0].maxRetry"),
    "two tasks of one name": (make_job(make_task("a"), make_task("a")), "spec.tasks[1].name"),
    "a task name in capitals": (make_job(make_task("A")), "spec.tasks[0].name"),
    "a task name with a dot": (make_job(make_task("a.b")), "spec.tasks[0].name"),
    "a pod name of more than 63 characters": (make_job(name=LONG), "spec.tasks[0].name"),
    "a job name that can't begin a pod name": (make_job(name="Train"), "spec.tasks[0].name"),
    "a generated pod name that is too long": (
        make_job(name="", metadata={"generateName": "x" * 51}),
        "spec.tasks[0].name",
    ),
    "a policy with event and exit code": (
        policies({**RESTART, "event": "PodFailed", "exitCode": 3}),
        "spec.policies[0]",
    ),
    "a policy with neither": (policies(RESTART), "spec.policies[0]"),
    "an unknown event": (policies({**RESTART, "event": "PodBored"}), "spec.policies[0].event"),
    "an internal event": (policies({**RESTART, "event": "OutOfSync"}), "spec.policies[0].event"),
    "an unknown action": (
        policies({"action": "Panic", "event": "PodFailed"}),
        "spec.policies[0].action",
    ),
    "an internal action": (
        policies({"action": "SyncJob", "event": "PodFailed"}),
        "spec.policies[0].action",
    ),
    "a policy without action": (policies({"event": "PodFailed"}), "spec.policies[0].action"),
    "one event in two policies": (
        policies({**RESTART, "event": "PodFailed"}, {**RESTART, "events": ["PodEvicted", "PodFailed"]}),
        "spec.policies[1].event",
    ),
    "one exit code in two policies": (
        policies({**RESTART, "exitCode": 3}, {**RESTART, "exitCode": 3}),
        "spec.policies[1].exitCode",
    ),
    "any event beside another one": (
        policies({**RESTART, "event": "*"}, {**RESTART, "event": "PodFailed"}),
        "spec.policies",
    ),
    "exit code 0": (policies({**RESTART, "exitCode": 0}), "spec.policies[0].exitCode"),
    "a bad policy of a task": (
        make_job(make_task(policies=[RESTART])),
        "spec.tasks[0].policies[0]",
    ),
    "partitions that don't add up to the replicas": (
        partitioned(5, totalPartitions=2, partitionSize=2),
        "spec.tasks[0].partitionPolicy",
    ),
    "partitions of size 0": (
        partitioned(4, totalPartitions=2, partitionSize=0),
        "spec.tasks[0].partitionPolicy.partitionSize",
    ),
    "no partitions": (
        partitioned(4, totalPartitions=0, partitionSize=2),
        "spec.tasks[0].partitionPolicy.totalPartitions",
    ),
    "more needed partitions than there are": (
        partitioned(4, 4, totalPartitions=2, partitionSize=2, minPartitions=3),
        "spec.tasks[0].partitionPolicy.minPartitions",
    ),
    "a minimum that is not whole partitions": (
        partitioned(4, 3, totalPartitions=2, partitionSize=2, minPartitions=1),
        "spec.tasks[0].minAvailable",
    ),
    "a partition limited by tier and by tier name": (
        partitioned(
            4,
            totalPartitions=2,
            partitionSize=2,
            networkTopology={"highestTierAllowed": 1, "highestTierName": "rack"},
        ),
        "spec.tasks[0].partitionPolicy.networkTopology",
    ),
    "a job limited by tier and by tier name": (
        make_job(networkTopology={"highestTierAllowed": 1, "highestTierName": "rack"}),
        "spec.networkTopology",
    ),
    "an unknown topology mode": (
        make_job(networkTopology={"mode": "firm"}),
        "spec.networkTopology.mode",
    ),
    "an unknown plugin": (make_job(plugins={"horovod": []}), "spec.plugins.horovod"),
    "mpi without its master": (make_job(plugins={"mpi": []}), "spec.plugins.mpi"),
    "a name with dots and svc": (
        make_job(metadata={"name": "llama.v2"}, plugins={"svc": []}),
        "spec.plugins.svc",
    ),
    "a name with dots and what brings svc": (
        make_job(metadata={"name": "llama.v2"}, plugins={"svc": [], "ssh": []}),
        "spec.plugins.svc",
    ),
    "a name with a digit first and svc": (
        make_job(metadata={"name": "3d-unet"}, plugins={"svc": []}),
        "spec.plugins.svc",
    ),
    "a name that is too long for Ray's Service": (
        make_job(
            make_task("head", replicas=1, minAvailable=1), metadata={"name": "a" * 55}, plugins={"ray": [], "svc": []}
        ),
        "spec.plugins.ray",
    ),
    "more pods than a ConfigMap names": (
        make_job(make_task(replicas=40_000), plugins={"svc": []}),
        "spec.plugins.svc",
    ),
    "a port that is none": (make_job(plugins={"ssh": ["--ssh-port=70000"], "svc": []}), "spec.plugins.ssh"),
    "mpi with a master that is not there": (
        make_job(plugins={"mpi": ["--master=boss"]}),
        "spec.plugins.mpi",
    ),
    "a volume without mount path": (volumes(CLAIM), "spec.volumes[0].mountPath"),
    "a mount path with a colon": (
        volumes({"mountPath": "/a:b", **CLAIM}),
        "spec.volumes[0].mountPath",
    ),
    "two volumes at one path": (
        volumes({"mountPath": "/a", **CLAIM}, {"mountPath": "/a", **CLAIM}),
        "spec.volumes[1].mountPath",
    ),
    "a volume without source": (volumes({"mountPath": "/a"}), "spec.volumes[0]"),
    "a volume with two sources": (
        volumes({"mountPath": "/a", "volumeClaim": {"accessModes": []}, **CLAIM}),
        "spec.volumes[0]",
    ),
    "a claim name in capitals": (
        volumes({"mountPath": "/a", "volumeClaimName": "Data"}),
        "spec.volumes[0].volumeClaimName",
    ),
    "a dependency on an unknown task": (depending(a=["b"]), "spec.tasks[0].dependsOn.name"),
    "a task that depends on itself": (depending(a=["a"]), "spec.tasks"),
    "tasks that depend on each other": (depending(a=["b"], b=["c"], c=["a"]), "spec.tasks"),
    "an unknown topology policy": (
        pinned("loose", requests={"cpu": "2"}),
        "spec.tasks[0].topologyPolicy",
    ),
    "a topology policy with half a CPU": (
        pinned("restricted", requests={"cpu": "1500m"}),
        f"{CONTAINER}.resources.requests.cpu",
    ),
    "a topology policy without CPU": (
        pinned("single-numa-node"),
        f"{CONTAINER}.resources.requests.cpu",
    ),
    "a pod without containers": (
        make_job(make_task(template={"spec": {"containers": []}})),
        "spec.tasks[0].template.spec.containers",
    ),
    "a task without template": (
        make_job({"name": "a", "replicas": 2}),
        "spec.tasks[0].template.spec.containers",
    ),
    "a container without name": (with_container(name=""), f"{CONTAINER}.name"),
    "a container without image": (with_container(image=""), f"{CONTAINER}.image"),
    "two containers of one name": (
        make_job(make_task(template=pod(containers=[make_container(), make_container()]))),
        "spec.tasks[0].template.spec.containers[1].name",
    ),
    "a bad init container": (
        make_job(make_task(template=pod(initContainers=[{"name": "i"}]))),
        "spec.tasks[0].template.spec.initContainers[0].image",
    ),
    "a request that is no quantity": (
        resources({"cpu": "two"}),
        f"{CONTAINER}.resources.requests.cpu",
    ),
    "a negative request": (resources({"cpu": "-1"}), f"{CONTAINER}.resources.requests.cpu"),
    "a negative limit": (resources(limits={"cpu": -1}), f"{CONTAINER}.resources.limits.cpu"),
    "a request above the limit": (
        resources({"memory": "2Gi"}, {"memory": "2G"}),
        f"{CONTAINER}.resources.requests.memory",
    ),
    "half a device": (
        resources(limits={"nvidia.com/gpu": "500m"}),
        f"{CONTAINER}.resources.limits.nvidia.com/gpu",
    ),
    "overcommitted devices": (
        resources({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 2}),
        f"{CONTAINER}.resources.requests.nvidia.com/gpu",
    ),
    "a device without limit": (
        resources({"nvidia.com/gpu": 1}),
        f"{CONTAINER}.resources.requests.nvidia.com/gpu",
    ),
}


@pytest.mark.parametrize(
    ("job", "field"),
    [pytest.param(job, field, id=sentence) for sentence, (job, field) in REFUSED.items()],
)
def test_refused(job: Json, field: str) -> None:
    problems = jobs.validate_job(defaulted(job))
    assert [problem.field for problem in problems] == [field]
    assert problems[0].message


ADMITTED = {
    "a plain job": make_job(),
    "an elastic job": make_job(make_task(replicas=8, minAvailable=2), minAvailable=2),
    "a task of no replicas beside another": make_job(make_task(), make_task("b", replicas=0)),
    "a pod-pending policy without timeout": policies({**RESTART, "event": "PodPending"}),
    "any event alone": policies({**RESTART, "event": "*"}, {**RESTART, "exitCode": 3}),
    "an event named by both fields": policies({**RESTART, "event": "PodFailed", "events": ["PodFailed"]}),
    "a restart of a partition": policies({"action": "RestartPartition", "event": "PodFailed"}),
    "the same event for job and task": make_job(
        make_task(policies=[{**RESTART, "event": "PodFailed"}]),
        policies=[{**RESTART, "event": "PodFailed"}],
    ),
    "partitions that add up": partitioned(4, totalPartitions=2, partitionSize=2),
    "partitions without replicas": make_job(
        {
            "name": "a",
            "template": pod(),
            "partitionPolicy": {"totalPartitions": 2, "partitionSize": 2},
        }
    ),
    "a tier name": make_job(networkTopology={"mode": "hard", "highestTierName": "rack"}),
    "tier 0": make_job(networkTopology={"mode": "soft", "highestTierAllowed": 0}),
    "a name with dots, or a digit first, without svc": make_job(metadata={"name": "3d.unet"}, plugins={"env": []}),
    "mpi with a named master": make_job(make_task("boss"), plugins={"mpi": ["--master=boss"]}),
    "a diamond of dependencies": depending(a=[], b=["a"], c=["a"], d=["b", "c"]),
    "a topology policy with whole CPUs": pinned("restricted", requests={"cpu": "2000m"}),
    "a topology policy with whole CPUs as limit": pinned("best-effort", limits={"cpu": 2}),
    "topology policy none with half a CPU": pinned("none", requests={"cpu": "500m"}),
    "a device by limit": resources(limits={"nvidia.com/gpu": 8}),
    "a claim to be made": volumes({"mountPath": "/a", "volumeClaim": {"accessModes": ["x"]}}),
    "a pod name of exactly 63 characters": make_job(name="x" * 54),
    "a job of a chain of 1000 tasks": make_job(
        *(make_task(f"t{i}", dependsOn={"name": [f"t{i + 1}"] if i < 999 else []}) for i in range(1000))
    ),
}


@pytest.mark.parametrize("job", [pytest.param(job, id=sentence) for sentence, job in ADMITTED.items()])
def test_admitted(job: Json) -> None:
    assert jobs.validate_job(defaulted(job)) == []


def test_all_problems_come_at_once() -> None:
    job = make_job(make_task("A", minAvailable=3), plugins={"x": []}, queue="Q")
    assert len(jobs.validate_job(defaulted(job))) == 5


# -- properties ----------------------------------------------------------------------------------

names = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)


@st.composite
def valid_jobs(draw: st.DrawFn) -> Json:
    tasks: list[Json] = []
    for name in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        replicas = draw(st.integers(1, 50))
        task = make_task(name, replicas)
        if draw(st.booleans()):
            task["minAvailable"] = draw(st.integers(0, replicas))
        if draw(st.booleans()):
            del task["name"]
        if draw(st.booleans()):
            task["dependsOn"] = {"name": [t["name"] for t in tasks if "name" in t]}
        tasks.append(task)
    # A given name could be one that a default makes.
    job = make_job(*tasks, name=draw(names))
    if draw(st.booleans()):
        job["spec"]["queue"] = draw(names)
    if draw(st.booleans()):
        job["spec"]["plugins"] = {draw(st.sampled_from(["ssh", "svc", "env"])): []}
    return job


@given(valid_jobs())
@settings(max_examples=150, deadline=None)
def test_a_valid_job_with_its_defaults_has_no_problems(job: Json) -> None:
    before = copy.deepcopy(job)
    complete = defaulted(job)
    assert jobs.validate_job(complete) == []
    assert jobs.default_job(complete) == []
    assert job == before


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PLACES: list[tuple[str | int, ...]] = [
    *(("spec", name) for name in ("tasks", "minAvailable", "policies", "plugins", "volumes")),
    *(("spec", name) for name in ("queue", "networkTopology", "maxRetry")),
    *(("spec", "tasks", 0, name) for name in make_task()),
    *(
        ("spec", "tasks", 0, name)
        for name in ("minAvailable", "policies", "dependsOn", "partitionPolicy", "topologyPolicy")
    ),
    ("spec", "tasks", 0, "template", "spec", "containers"),
    ("spec", "tasks", 0, "template", "spec", "containers", 0),
    ("spec", "tasks", 0, "template", "spec", "containers", 0, "resources"),
    ("spec",),
    ("metadata",),
]


@given(st.sampled_from(PLACES), json_values)
@settings(max_examples=300, deadline=None)
def test_any_value_in_any_place_is_survived(path: tuple[str | int, ...], value: Any) -> None:
    hostile = changed(make_job(), *path, value=value)
    complete = defaulted(hostile)
    assert jobs.default_job(complete) == []
    jobs.validate_job(hostile)
    jobs.validate_job(complete)
    jobs.validate_job_update(make_job(), hostile)


@pytest.mark.parametrize(
    ("job", "fields"),
    [
        (make_job(policies=[{"event": "PodPending", "action": "RestartJob"}]), ["spec.policies[0]"]),
        (make_job(policies=[{"event": "PodRunning", "action": "RestartJob", "timeout": "1h"}]), []),
        (
            make_job(policies=[{"event": "JobUpdated", "action": "RestartJob", "timeout": "1h"}]),
            ["spec.policies[0].timeout"],
        ),
        (
            make_job(make_task(policies=[{"event": "JobUpdated", "action": "RestartJob"}])),
            ["spec.tasks[0].policies[0]"],
        ),
    ],
    ids=["pending without a time", "running for a time", "an update after a time", "an update of a task"],
)
def test_policies_without_effect_are_warned_of(job: Json, fields: list[str]) -> None:
    assert [each.field for each in jobs.warnings(job)] == fields
