"""What the plugins of Volcano Jobs make, and what they tell the pods; names and arguments are Volcano's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.agent.jobs import pods
from atoll.kinds.interface import Part
from atoll.kinds.volcano_job import KIND, plugins
from atoll.kinds.volcano_job.plugins import JobView, KeyPair, Task

Json = dict[str, Any]
OWNER = {"kind": "Job", "name": "j", "uid": "u"}
KEY = KeyPair("PRIVATE", "ssh-rsa PUBLIC")


def view(**replicas: int) -> JobView:
    return JobView("j", "ns", tuple(Task(name, count, 0, count) for name, count in replicas.items()), OWNER)


def decorated(job: JobView, given: Json, task: str, index: int = 0, **container: Any) -> Json:
    found = job.task(task)
    assert found is not None
    containers = [{"name": "c", **container}]
    pod = {
        "metadata": {"name": f"j-{task}-{index}"},
        "spec": {"initContainers": [{"name": "i"}], "containers": containers},
    }
    plugins.decorate(job, given, pod, found, index)
    return pod


def env(pod: Json, container: str = "containers") -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in pod["spec"][container][0].get("env", ())}


def test_env_tells_all_containers_the_index_of_their_pod():
    pod = decorated(view(w=3), {"env": []}, "w", 2)
    assert env(pod) == env(pod, "initContainers") == {"VK_TASK_INDEX": "2", "VC_TASK_INDEX": "2"}


def test_indices_and_sizes_of_a_divided_job_are_job_wide():
    job = JobView("j", "ns", (Task("master", 0, 1, 1), Task("worker", 2, 4, 8)))
    pod = decorated(job, {"env": [], "pytorch": [], "hcclrank": []}, "worker", 1)
    assert (env(pod)["VC_TASK_INDEX"], env(pod)["RANK"], env(pod)["WORLD_SIZE"]) == ("5", "6", "9")
    assert pod["metadata"]["annotations"] == {"hccl/rankIndex": "6"}


def test_what_the_user_has_set_stays():
    pod = decorated(view(w=1), {"env": []}, "w", env=[{"name": "VC_TASK_INDEX", "value": "mine"}])
    assert env(pod)["VC_TASK_INDEX"] == "mine"


def test_svc_gives_names_hosts_and_a_policy():
    job = view(ps=1, worker=2)
    service, hosts, policy = plugins.objects(job, {"svc": []}, lambda: KEY)
    assert (service["kind"], service["metadata"]["name"], service["spec"]["clusterIP"]) == ("Service", "j", "None")
    assert service["metadata"]["ownerReferences"] == [OWNER]
    selector = {"volcano.sh/job-name": "j", "volcano.sh/job-namespace": "ns"}
    assert service["spec"]["selector"] == selector
    assert hosts["metadata"]["name"] == "j-svc"
    assert hosts["data"] == {
        "ps.host": "j-ps-0.j", "VC_PS_HOSTS": "j-ps-0.j", "VC_PS_NUM": "1",
        "worker.host": "j-worker-0.j\nj-worker-1.j", "VC_WORKER_HOSTS": "j-worker-0.j,j-worker-1.j", "VC_WORKER_NUM": "2",
    }  # fmt: skip
    assert policy["spec"]["podSelector"] == {"matchLabels": selector}
    pod = decorated(job, {"svc": []}, "worker", 1)
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("j-worker-1", "j")
    assert env(pod)["VC_WORKER_HOSTS"] == {"configMapKeyRef": {"name": "j-svc", "key": "VC_WORKER_HOSTS"}}
    assert pod["spec"]["containers"][0]["volumeMounts"] == [{"name": "j-svc", "mountPath": "/etc/volcano"}]


def test_svc_can_do_without_the_policy_and_the_variables():
    given = {"svc": ["--disable-network-policy=true", "--publish-not-ready-addresses", "--inject-hosts-env=false"]}
    service, hosts = plugins.objects(view(w=1), given, lambda: KEY)
    assert (service["spec"]["publishNotReadyAddresses"], hosts["kind"]) == (True, "ConfigMap")
    assert env(decorated(view(w=1), given, "w")) == {}


def test_ssh_makes_a_key_and_puts_it_where_it_is_wanted():
    job = view(master=1, worker=1)
    [secret] = plugins.objects(job, {"ssh": []}, lambda: KEY)
    assert (secret["kind"], secret["metadata"]["name"]) == ("Secret", "j-ssh")
    assert (secret["stringData"]["id_rsa"], secret["stringData"]["authorized_keys"]) == (KEY.private, KEY.public)
    assert "Host j-worker-0\n  HostName j-worker-0.j" in secret["stringData"]["config"]
    pod = decorated(job, {"ssh": []}, "master")
    assert pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] == "/root/.ssh"
    assert pod["spec"]["volumes"][0]["secret"]["defaultMode"] == 0o600
    other = decorated(job, {"ssh": ["--ssh-key-file-path=/home/mpi", "--no-root"]}, "master")
    [volume] = other["spec"]["volumes"]
    assert (volume["secret"]["defaultMode"], volume["secret"]["items"][0]["path"]) == (0o644, "id_rsa")


def test_ssh_takes_the_user_s_own_key():
    given = {"ssh": ["--ssh-private-key=A", "--ssh-public-key=B"]}
    [secret] = plugins.objects(view(w=1), given, lambda: pytest.fail("no key is wanted"))
    assert (secret["stringData"]["id_rsa"], secret["stringData"]["id_rsa.pub"]) == ("A", "B")


def test_pytorch_tells_the_rendezvous_and_the_rank():
    job = view(master=1, worker=2)
    pods = [decorated(job, {"pytorch": ["--port=1234"]}, *at) for at in (("master", 0), ("worker", 0), ("worker", 1))]
    assert [env(pod)["RANK"] for pod in pods] == ["0", "1", "2"]
    assert all(
        env(pod).items() >= {"MASTER_ADDR": "j-master-0.j", "MASTER_PORT": "1234", "WORLD_SIZE": "3"}.items()
        for pod in pods
    )
    assert env(pods[2]).items() >= {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": "j-master-0.j"}.items()
    assert pods[0]["spec"]["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 1234}]


def test_pytorch_lets_workers_wait_for_their_master_where_that_is_asked_for():
    wishes = ["--wait-master-enabled=true", "--wait-master-timeout=600", "--wait-master-image=example.org/box:1"]
    job = view(master=1, worker=1)
    waiting = decorated(job, {"pytorch": wishes}, "worker")["spec"]["initContainers"][-1]
    assert (waiting["name"], waiting["image"]) == ("wait-for-master", "example.org/box:1")
    assert waiting["command"][2].startswith("left=600; until { nc -z -w 1 j-master-0.j 23456 || ")
    for other in (decorated(job, {"pytorch": wishes}, "master"), decorated(job, {"pytorch": wishes[1:]}, "worker")):
        assert [each["name"] for each in other["spec"]["initContainers"]] == ["i"]


def test_who_waits_for_the_master_may_do_what_the_pod_s_container_may():
    context = {"runAsNonRoot": True, "allowPrivilegeEscalation": False}
    job, wishes = view(master=1, worker=1), {"pytorch": ["--wait-master-enabled"]}
    pod = decorated(job, wishes, "worker", securityContext=context)
    assert pod["spec"]["initContainers"][-1]["securityContext"] == context
    plugins.decorate(job, wishes, pod, job.tasks[1], 0)
    assert len(pod["spec"]["initContainers"]) == 2, "one of that name is there"


def test_tensorflow_tells_the_cluster_and_the_place_in_it():
    pod = decorated(view(ps=1, trainer=2), {"tensorflow": ["--worker=trainer"]}, "trainer", 1)
    assert json.loads(env(pod)["TF_CONFIG"]) == {
        "cluster": {"ps": ["j-ps-0.j:2222"], "worker": ["j-trainer-0.j:2222", "j-trainer-1.j:2222"]},
        "task": {"type": "worker", "index": 1},
    }


def test_mpi_tells_the_master_its_workers():
    job = view(master=1, worker=2)
    assert env(decorated(job, {"mpi": []}, "master"))["MPI_HOST"] == "j-worker-0.j,j-worker-1.j"
    worker = decorated(job, {"mpi": []}, "worker")
    assert "MPI_HOST" not in env(worker)
    assert worker["spec"]["containers"][0]["ports"] == [{"name": "mpijob-port", "containerPort": 22}]


def test_a_worker_of_mpi_is_ready_once_its_port_answers_unless_it_says_so_itself():
    def probe(task: str, **container: Any) -> Any:
        pod = decorated(view(master=1, worker=2), {"mpi": ["--port=2222"]}, task, **container)
        return pod["spec"]["containers"][0].get("readinessProbe")

    assert probe("worker")["tcpSocket"] == {"port": 2222}
    assert probe("worker", readinessProbe={"exec": {}}) == {"exec": {}}
    assert probe("master") is None
    assert plugins.waits({"mpi": ["--worker=node"], "svc": []}) == {"master": "node"}
    assert plugins.waits({"pytorch": []}) == {}


def test_names_that_a_template_gives_its_pods_are_those_that_others_find():
    job = JobView("j", "ns", (Task("master", 1, 0, 1, "boss", "team"), Task("worker", 2, 0, 2)))
    assert env(decorated(job, {"pytorch": []}, "worker"))["MASTER_ADDR"] == "boss.team"
    assert job.hosts("master") == ["boss.team"]


NAMES = "{pod}.{cluster}.{service}.{namespace}.svc.clusterset.local"


def test_where_a_network_joins_members_hosts_are_job_wide():
    """The master and four workers run in east, two more workers in west, whose pods these are."""
    east, west = "east.j.ns.svc.clusterset.local", "west.j.ns.svc.clusterset.local"
    master = Task("master", 0, 1, 1, shares=(("east", 1), ("west", 0)))
    job = JobView("j", "ns", (Task("worker", 2, 4, 6, shares=(("east", 4), ("west", 2))), master), OWNER, NAMES)
    pod = decorated(job, {"pytorch": [], "mpi": []}, "worker", 1)
    assert (env(pod)["MASTER_ADDR"], env(pod)["RANK"], env(pod)["WORLD_SIZE"]) == (f"j-master-0.{east}", "6", "7")
    _, hosts, export = plugins.objects(job, {"svc": []}, lambda: KEY)
    assert hosts["data"]["VC_WORKER_NUM"] == "6"
    assert hosts["data"]["worker.host"].splitlines()[3:5] == [f"j-worker-3.{east}", f"j-worker-0.{west}"]
    # A NetworkPolicy would keep pods of the other member out.
    assert (export["kind"], export["metadata"]["name"]) == ("ServiceExport", "j")
    [secret] = plugins.objects(job, {"ssh": []}, lambda: KEY)
    assert secret["stringData"]["config"].count("Host j-worker-0\n") == 1


def test_the_part_of_a_divided_job_knows_the_tasks_that_are_elsewhere():
    template = {"spec": {"containers": [{"name": "c"}]}}
    tasks = [{"name": name, "replicas": count, "template": template} for name, count in (("master", 1), ("worker", 6))]
    spec = {"minAvailable": 7, "tasks": tasks, "plugins": {"pytorch": []}}
    shares = {"master": [("east", 1), ("west", 0)], "worker": [("east", 4), ("west", 2)]}
    part = Part(
        "west", {"master": 0, "worker": 2}, 2, parts=2, preceding={"master": 1, "worker": 4}, shares=shares,
        network=NAMES,
    )  # fmt: skip
    made = KIND.rewrite({"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": spec}, part)
    made["metadata"]["uid"] = "v"
    found = env(pods.pod(made, 0, 1))
    assert (found["RANK"], found["WORLD_SIZE"]) == ("6", "7")
    assert found["MASTER_ADDR"] == "j-master-0.east.j.ns.svc.clusterset.local"


def test_the_rank_that_a_container_has_is_that_of_ascend_s_library():
    pod = decorated(view(worker=2), {"hcclrank": []}, "worker", 1, env=[{"name": "RANK", "value": "9"}])
    assert pod["metadata"]["annotations"] == {"hccl/rankIndex": "9"}


def test_ray_starts_the_head_and_the_workers_that_join_it():
    job = view(head=1, worker=1)
    [service] = plugins.objects(job, {"ray": []}, lambda: KEY)
    assert (service["metadata"]["name"], [each["port"] for each in service["spec"]["ports"]]) == (
        "j-head-svc",
        [6379, 8265, 10001],
    )
    head, worker = (
        decorated(job, {"ray": []}, task)["spec"]["containers"][0]["command"][2] for task in ("head", "worker")
    )
    assert head.startswith("ray start --head --block")
    ports = ["--dashboardPort=1", "--clientPort=2", "--headContainer=c", "--workerContainer=c"]
    head = decorated(job, {"ray": ports}, "head")["spec"]["containers"][0]["command"][2]
    assert "--dashboard-port=1 --ray-client-server-port=2" in head
    assert worker == "ray start --block --address=j-head-0.j:6379"
    assert decorated(job, {"ray": []}, "head", command=["mine"])["spec"]["containers"][0]["command"] == ["mine"]


def test_mxnet_tells_the_scheduler_and_the_counts():
    found = env(decorated(view(scheduler=1, server=2, worker=3), {"mxnet": []}, "worker"))
    assert (found["DMLC_PS_ROOT_URI"], found["DMLC_ROLE"], found["DMLC_NUM_SERVER"], found["DMLC_NUM_WORKER"]) == (
        "j-scheduler-0.j",
        "worker",
        "2",
        "3",
    )


def test_plugins_bring_those_that_they_need():
    assert plugins.required({"mpi": []}) == ["svc", "ssh"]
    assert plugins.required({"pytorch": [], "svc": []}) == []


@pytest.mark.parametrize(
    ("given", "tasks", "says"),
    [
        pytest.param({"horovod": []}, {}, "not a known plugin; use one of env, svc", id="an unknown plugin"),
        pytest.param(
            {"svc": ["--publish-not-redy-addresses"]},
            {},
            "did you mean --publish-not-ready-addresses",
            id="a misspelt flag",
        ),
        pytest.param(
            {"env": ["--x=1"]}, {}, "--x is not one of its flags; it takes none", id="a flag of a plugin that has none"
        ),
        pytest.param(
            {"pytorch": ["--port=0"]}, {"master": 1}, "whole number from 1 to 65535", id="a port that can't be"
        ),
        pytest.param({"pytorch": ["--port"]}, {"master": 1}, "--port needs a value", id="a flag without its value"),
        pytest.param({"pytorch": ["port=1"]}, {"master": 1}, "is no flag; write --name=value", id="a word"),
        pytest.param({"svc": ["--disable-network-policy=perhaps"]}, {}, "use true or false", id="no boolean"),
        pytest.param({"pytorch": []}, {"worker": 2}, "'master'", id="pytorch without its master"),
        pytest.param(
            {"pytorch": ["--wait-master-image="]}, {"master": 1}, "names no image", id="an image without a name"
        ),
        pytest.param({"pytorch": ["--wait-master-timeout=0"]}, {"master": 1}, "from 1 to 604800", id="no time to wait"),
        pytest.param({"pytorch": []}, {"master": 2}, "with 1 replica", id="two masters"),
        pytest.param({"mpi": []}, {"worker": 1}, "its master is task 'master'", id="mpi without its master"),
        pytest.param({"ssh": ["--ssh-key-file-path=x"]}, {}, "absolute path", id="a relative path"),
        pytest.param({"ssh": ["--no-root"]}, {}, "--ssh-key-file-path", id="a user without a folder"),
        pytest.param({"ssh": ["--ssh-private-key=A"]}, {}, "belong together", id="half a key"),
        pytest.param({"ray": []}, {"worker": 1}, "'head'", id="ray without its head"),
        pytest.param(
            {"tensorflow": []}, {"a": 1}, "no task has one of the names", id="tensorflow without any of its tasks"
        ),
    ],
)
def test_arguments_that_can_t_work_are_told(given: Json, tasks: dict[str, int], says: str):
    [(name, text)] = list(plugins.problems(given, tasks))
    assert name == next(iter(given))
    assert says in text


def test_flags_are_written_as_go_programs_take_them():
    assert list(plugins.problems({"pytorch": ["-master", "boss", "--port", "80"]}, {"boss": 1})) == []
